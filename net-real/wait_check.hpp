// A callback with which the host program can end a call of the library that waits. The waiting thread calls it
// repeatedly. Python needs it: signal handlers run only between two instructions of the interpreter, so Ctrl-C could
// not end a waiting call otherwise. Each thread has its own check, or none. The public function is pcclSetWaitCheck.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::real {

// True: end the call. The communicator then leaves the run as with pcclAbort.
using WaitCheck = bool (*)(void* user);

// Time between two checks. A thread without a check does not wake up for it.
constexpr core::Duration wait_check_interval = 50 * core::millisecond;

// Sets the check of the calling thread; null: none.
void set_wait_check(WaitCheck check, void* user);
bool has_wait_check();
// Calls the check. True: the call must end. False also if there is no check.
bool host_ends_wait();

}  // namespace pccl::real
