// Bandwidths between peers: how one is measured from what arrives, and the table of those that were, with their ages.
//
// The table is not journalled: a master that was restarted measures again at the next vote.
#pragma once

#include "core/base/ids.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

// The receiving end of a test. Frames of all its connections are counted over windows of the receiver's own time; when three
// windows in a row agree, the rate is what came in them. What the first frame brought is not counted, as nobody knows when
// it began. A window is at least a round trip long, so that a sender that still gathers speed is not taken for a stable one.
class RateMeter {
public:
    RateMeter(Duration round_trip, Duration time_max, std::uint64_t bytes_max);
    void landed(Instant now, std::uint64_t bytes);
    // Nothing better will be known: the rate is stable, everything has come, or the time is over.
    bool concluded(Instant now) const;
    struct Rate {
        std::uint64_t bytes = 0;  // 0: nothing is known
        Duration duration = 0;
    };
    Rate rate() const;

private:
    Duration window_min_;
    Duration time_max_;
    std::uint64_t bytes_max_;
    std::uint64_t bytes_ = 0;
    Instant first_ = never;
    Instant last_ = 0;
    Rate window_, since_warm_;  // since_warm_: all but the first window, for a rate that never becomes stable
    std::uint32_t window_frames_ = 0;
    std::array<Rate, 3> windows_{};
    std::uint32_t windows_closed_ = 0;
    Instant window_begin_ = 0;
    bool stable_ = false;
};

class BandwidthTable {
public:
    struct Entry {
        std::uint64_t bytes_per_second = 0;
        Instant measured = 0;
    };
    void record(const Uuid& from, const Uuid& to, std::uint64_t bytes, Duration duration, Instant now);
    const Entry* find(const Uuid& from, const Uuid& to) const;
    bool known(const Uuid& from, const Uuid& to, Instant now, Duration age_max) const;
    void forget(const Uuid& peer);
    std::size_t size() const { return entries_.size(); }

    // Cost of each directed edge for a tour, row by row: picoseconds per byte. One that could not be measured costs several
    // times the worst that could: it is used where nothing else is left. The same when nothing at all is known.
    std::vector<std::uint32_t> costs(const std::vector<Uuid>& nodes) const;

private:
    std::map<std::pair<Uuid, Uuid>, Entry> entries_;
};

}  // namespace pccl::core
