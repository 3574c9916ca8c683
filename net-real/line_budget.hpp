// Bounds the log lines that strangers cause: anybody who reaches a port may come from many addresses, so each line
// would be a new one. Lines beyond the budget are counted. One thread at a time.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <utility>

namespace pccl::real {

class LineBudget {
public:
    static constexpr int lines_max = 10;  // in each window
    static constexpr core::Duration window = 10 * core::second;

    // False: the line is counted, and must not be logged.
    bool take(core::Instant now) {
        if (hidden_ == 0 && now - begun_ >= window) {
            begun_ = now;
            lines_ = 0;
        }
        if (lines_ < lines_max) {
            ++lines_;
            return true;
        }
        ++hidden_;
        return false;
    }
    // When collect() must be called.
    core::Instant due() const { return hidden_ == 0 ? core::never : begun_ + window; }
    // How many lines were counted in the window that has ended, if there were any. The next window begins.
    std::uint64_t collect(core::Instant now) {
        if (now < due()) return 0;
        begun_ = now;
        lines_ = 0;
        return std::exchange(hidden_, 0);
    }

private:
    core::Instant begun_ = -window;
    int lines_ = 0;
    std::uint64_t hidden_ = 0;
};

}  // namespace pccl::real
