// A question to the host while one of its threads sleeps in a call: shall the call keep waiting? Interpreters that run
// signal handlers only between two of their steps need it, so that the keyboard can end a call. Each thread has its own
// check, or none.
#pragma once

#include "core/base/ids.hpp"

namespace pccl::real {

using WaitCheck = bool (*)(void* user);

// Time between two checks. Without a check, waiting costs nothing more.
constexpr core::Duration wait_check_interval = 50 * core::millisecond;

// Sets the check of the calling thread; null: none.
void set_wait_check(WaitCheck check, void* user);
bool has_wait_check();
// True: the host asks the call to end. False also if there is no check.
bool wait_is_unwanted();

}  // namespace pccl::real
