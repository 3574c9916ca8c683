// Bandwidths between peers: how one is measured from what arrives, and the table of those that were, with their ages.
//
// The table is not journalled: a master that was restarted measures again at the next vote.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/leftovers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pccl::core {

// The receiving end of a test. What all its connections bring is counted over windows of the receiver's own time; when three
// windows in a row agree, the rate is what came in them. A frame counts for the time in which it came, so windows are judged
// when the one after them is over too: what then still comes began later. The first frame is not counted, as nobody knows
// when it began. A window is at least a round trip long, so that a sender that still gathers speed is not taken for a stable
// one.
class RateMeter {
public:
    RateMeter(Duration round_trip, Duration time_max, std::uint64_t bytes_max);
    // A frame is here in full; its first byte came at `begun`.
    void landed(Instant begun, Instant now, std::uint64_t bytes);
    // Nothing better will be known: the rate is stable, everything has come, or the time is over.
    bool concluded(Instant now) const;
    struct Rate {
        std::uint64_t bytes = 0;  // 0: nothing is known
        Duration duration = 0;
    };
    Rate rate() const;

private:
    struct Window {
        Instant begin = 0, end = 0;
        std::uint64_t bytes = 0;
    };
    static constexpr std::size_t judged = 3;
    void judge();

    Duration window_min_;
    Duration time_max_;
    std::uint64_t bytes_max_;
    std::uint64_t bytes_ = 0;
    Instant first_ = never;
    Instant last_ = 0;
    Window open_;
    Window since_warm_;  // from the end of the first window on, for a rate that never becomes stable
    std::uint32_t open_frames_ = 0;
    std::array<Window, judged + 1> closed_{};  // the last ones, oldest first
    std::uint32_t windows_closed_ = 0;
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
    // Measurements of which an end is nobody that `known` knows.
    template <class Known>
    std::size_t strange(const Known& known) const {
        return count_strange(entries_, known);
    }

    // Cost of each directed edge for a tour, row by row: picoseconds per byte. One that could not be measured costs several
    // times the worst that could: it is used where nothing else is left. The same when nothing at all is known.
    std::vector<std::uint32_t> costs(const std::vector<Uuid>& nodes) const;

private:
    std::map<std::pair<Uuid, Uuid>, Entry> entries_;
};

}  // namespace pccl::core
