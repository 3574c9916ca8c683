#include "harness/real/signal_watch.hpp"

#include <iterator>

namespace pccl::harness {

namespace {

constexpr int watched_signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE};

volatile std::sig_atomic_t end_signal = 0;

void on_signal(int number) {
    if (number != SIGCHLD && number != SIGPIPE) end_signal = number;
}

}  // namespace

SignalWatch::SignalWatch() {
    end_signal = 0;
    sigset_t watched;
    sigemptyset(&watched);
    for (std::size_t i = 0; i < std::size(watched_signals); ++i) {
        sigaddset(&watched, watched_signals[i]);
        struct sigaction action {};
        action.sa_handler = on_signal;
        ::sigaction(watched_signals[i], &action, &previous_[i]);
    }
    ::sigprocmask(SIG_BLOCK, &watched, &before_);
}

SignalWatch::~SignalWatch() {
    for (std::size_t i = 0; i < std::size(watched_signals); ++i)
        ::sigaction(watched_signals[i], &previous_[i], nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::wait(std::vector<pollfd>& set, core::Duration limit) const {
    timespec time{};
    if (limit > 0) {
        time.tv_sec = limit / core::second;
        time.tv_nsec = limit % core::second;
    }
    if (::ppoll(set.data(), set.size(), limit < 0 ? nullptr : &time, &before_) >= 0) return;
    for (pollfd& entry : set) entry.revents = 0;
}

int SignalWatch::asked_to_end() { return end_signal; }

}  // namespace pccl::harness
