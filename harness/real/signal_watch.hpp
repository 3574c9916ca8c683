// Signals of a program that waits for its children.
#pragma once

#include "core/base/ids.hpp"

#include <csignal>
#include <poll.h>
#include <vector>

namespace pccl::harness {

// While this object exists, SIGCHLD, SIGINT, SIGTERM and SIGHUP are delivered only inside wait(). SIGPIPE has no
// effect.
class SignalWatch {
public:
    SignalWatch();
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;
    // poll() that returns early on those signals. A negative limit means no limit.
    void wait(std::vector<pollfd>& set, core::Duration limit) const;
    // The signal that asked this process to end, or 0.
    static int asked_to_end();

private:
    sigset_t before_{};
    struct sigaction previous_[5]{};
};

}  // namespace pccl::harness
