// What a service manager wants to know, over the datagram socket that it names in NOTIFY_SOCKET.
#pragma once

#include <string>

namespace pccl_master {

// Sends `state` ("READY=1", "STOPPING=1", lines) where there is somebody to tell; never blocks, never fails.
void notify_service_manager(const std::string& state);

}  // namespace pccl_master
