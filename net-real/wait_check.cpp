#include "net-real/wait_check.hpp"

namespace pccl::real {

namespace {
thread_local WaitCheck check_of_thread = nullptr;
thread_local void* user_of_thread = nullptr;
}  // namespace

void set_wait_check(WaitCheck check, void* user) {
    check_of_thread = check;
    user_of_thread = user;
}

bool has_wait_check() { return check_of_thread != nullptr; }

bool host_ends_wait() { return check_of_thread != nullptr && check_of_thread(user_of_thread); }

}  // namespace pccl::real
