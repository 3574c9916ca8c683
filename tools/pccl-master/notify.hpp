// Reports the state of the master to a service manager, over the datagram socket that NOTIFY_SOCKET names.
#pragma once

#include <string>

namespace pccl_master {

// Sends `state` ("READY=1", "STOPPING=1", lines) if NOTIFY_SOCKET is set. Never blocks, never fails.
void notify_service_manager(const std::string& state);

}  // namespace pccl_master
