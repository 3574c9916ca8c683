// The host's own receiver of log lines, called from one thread that holds no lock of ours.
//
// Lines come from I/O threads, which must wait for nobody: they are queued, and when the receiver is slow they are counted
// instead. A child of fork() has no receiver.
#pragma once

#include "net-real/log.hpp"

#include <functional>
#include <string>

namespace pccl::real {

// `level` is the number of the Severity, as in pcclLogLevel_t.
using LogCallback = std::function<void(int level, const char* line)>;

// Empty: none. Returns when the former one runs no more (at once from within it). Throws std::system_error when the thread
// cannot be had; the former one stays then.
void set_log_callback(LogCallback callback);

// False: there is none.
bool give_to_callback(Severity severity, const std::string& line);

}  // namespace pccl::real
