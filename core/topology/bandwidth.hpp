// How a receiver measures a bandwidth, and the table of measured bandwidths between peers with their ages.
//
// The table is not journalled: after a restart the master measures again at the next vote. Neither of the two sends
// anything: BandwidthProbe runs a test, and RingOptimizer decides which ones are made.
//
// Invariant: a peer that the master does not know any more has no entry.
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

// The receiving end of a test. It counts the bytes of all connections in windows of the receiver's own time. When three
// consecutive windows agree, their bytes give the rate. A frame's bytes are spread over the interval in which they
// arrived. A window is final only when the next one has closed: no frame still in flight can have started inside it.
// The first frame is not counted, because its start is unknown. A window lasts at least one round trip (a quarter of
// the test time is enough), so that a sender that still gathers speed is not taken for a stable one.
class RateMeter {
public:
    RateMeter(Duration round_trip, Duration time_max, std::uint64_t bytes_max);
    // A frame has arrived in full; its first byte arrived at `begun`.
    void landed(Instant begun, Instant now, std::uint64_t bytes);
    // True if waiting gives no better result: the rate is stable, everything has arrived, or the time is over.
    bool concluded(Instant now) const;
    struct Rate {
        std::uint64_t bytes = 0;  // 0: unknown
        Duration duration = 0;
    };
    Rate rate() const;

private:
    struct Window {
        Instant begin = 0, end = 0;
        std::uint64_t bytes = 0;
    };
    static constexpr std::size_t judged = 3;
    bool gathers_speed() const;
    void judge();

    Duration window_min_;
    Duration time_max_;
    std::uint64_t bytes_max_;
    std::uint64_t bytes_ = 0;
    Instant first_ = never;
    Instant last_ = 0;
    Window open_;
    // From the end of the first window, or of one in which the sender still gathered speed; used if the rate never
    // becomes stable.
    Window since_warm_;
    std::uint32_t open_frames_ = 0;
    std::array<Window, judged + 1> closed_{};  // the last windows, oldest first
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
    // Number of measurements with an end for which `known` is false.
    template <class Known>
    std::size_t strange(const Known& known) const {
        return count_strange(entries_, known);
    }

    // The cost of each directed edge for a tour, row by row, in picoseconds per byte. An edge that could not be
    // measured costs several times the worst measured one, so that a tour uses it only if nothing else is left. Without
    // any measurement all edges cost the same.
    std::vector<std::uint32_t> costs(const std::vector<Uuid>& nodes) const;

private:
    std::map<std::pair<Uuid, Uuid>, Entry> entries_;
};

}  // namespace pccl::core
