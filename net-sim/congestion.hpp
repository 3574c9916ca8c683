// The congestion window of one stream: how many bytes may be in flight when packets are lost. As in TCP (RFC 5681 in
// outline): slow start, then growth by one packet per round trip; a loss halves the window, a time-out sets it to one
// packet.
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
        // Grows by one packet per window of acknowledged bytes; in slow start, by one per packet.
        while (credit_ >= window_) {
            credit_ -= window_;
            window_ += packet;
        }
    }
    // Several losses within one round trip count as one.
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
