// How much a sender has in flight where packets are lost: slow start, growth by a packet a round trip, half after a loss and
// one packet after a time-out, as TCP does (RFC 5681 in outline).
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace pccl::sim {

class CongestionWindow {
public:
    static constexpr std::size_t packet = 1'460;
    static constexpr std::size_t packets(std::size_t bytes) { return (bytes + packet - 1) / packet; }

    std::size_t bytes() const { return window_; }
    void acknowledged(std::size_t bytes) {
        credit_ += window_ < threshold_ ? bytes * window_ / packet : bytes;
        // A packet more for each window of bytes; in slow start for each packet.
        while (credit_ >= window_) {
            credit_ -= window_;
            window_ += packet;
        }
    }
    // Losses within one round trip count once.
    void lost(core::Instant now, core::Duration round_trip, bool by_time_out) {
        if (now < recovers_until_) return;
        recovers_until_ = now + round_trip;
        threshold_ = std::max(window_ / 2, 2 * packet);
        window_ = by_time_out ? packet : threshold_;
        credit_ = 0;
    }

private:
    std::size_t window_ = 10 * packet;
    std::size_t threshold_ = std::numeric_limits<std::size_t>::max();
    std::size_t credit_ = 0;
    core::Instant recovers_until_ = 0;
};

}  // namespace pccl::sim
