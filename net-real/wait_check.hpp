// What a host asks for while one of its threads sleeps in a call: shall it go on waiting? Languages whose signal handlers
// run between two steps of an interpreter need it to end a call from the keyboard. Each thread has its own, or none.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::real {

using WaitCheck = bool (*)(void* user);

// Between two questions. Waiting costs nothing more without a check.
constexpr core::Duration wait_check_interval = 50 * core::millisecond;

// For the calling thread; null: none.
void set_wait_check(WaitCheck check, void* user);
bool has_wait_check();
// True: the host wants the call to end. False also when there is no check.
bool wait_is_unwanted();

}  // namespace pccl::real
