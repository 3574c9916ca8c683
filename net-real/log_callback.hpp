// The host's own receiver of log lines. One thread, which holds no lock of the library, calls it.
//
// Lines come from I/O threads, which must never wait. So lines are queued, and when the receiver is too slow they are
// counted instead. A child of fork() has no receiver.
#pragma once

#include "net-real/log.hpp"

#include <functional>
#include <string>

namespace pccl::real {

// `level` is the number of the Severity, as in pcclLogLevel_t.
using LogCallback = std::function<void(int level, const char* line)>;

// Empty: none. Returns when the former one runs no more; from within it, at once. Throws std::system_error if no thread
// can be started; then the former one stays.
void set_log_callback(LogCallback callback);

// False: no callback is set.
bool give_to_callback(Severity severity, const std::string& line);

}  // namespace pccl::real
