#include "core/topology/bandwidth.hpp"

#include "core/topology/tour.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
constexpr Duration window_least = 10 * millisecond;
constexpr std::uint32_t window_frames_least = 64;  // several per connection: connections end their frames in turns
constexpr std::uint64_t spread_per_cent_max = 8;   // largest difference between windows that agree
constexpr std::uint64_t speeding_per_cent = 125;    // of the window before: the sender still gathers speed
constexpr std::uint64_t picoseconds = 1'000'000'000'000;
constexpr std::uint32_t unmeasured_factor = 4;

// Bytes per second. Does not overflow, whatever a peer reports.
std::uint64_t per_second(std::uint64_t bytes, Duration duration) {
    const auto wide = static_cast<unsigned __int128>(bytes) * static_cast<std::uint64_t>(second) /
                      static_cast<std::uint64_t>(std::max<Duration>(duration, 1));
    return static_cast<std::uint64_t>(std::min<unsigned __int128>(std::max<unsigned __int128>(wide, 1), picoseconds));
}
}  // namespace

RateMeter::RateMeter(Duration round_trip, Duration time_max, std::uint64_t bytes_max)
    : window_min_(std::clamp(round_trip, window_least, std::max(window_least, time_max / 4))), time_max_(time_max),
      bytes_max_(bytes_max) {}

void RateMeter::landed(Instant begun, Instant now, std::uint64_t bytes) {
    bytes_ += bytes;
    last_ = now;
    if (first_ == never) {
        first_ = open_.begin = now;
        return;
    }
    begun = std::min(begun, now);
    const auto count = [&](Window& window) {
        const Instant from = std::max(begun, window.begin), to = std::min(now, window.end);
        if (from > to || (from == to && begun != now)) return;
        window.bytes += begun == now ? bytes
                                     : static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) *
                                                                  static_cast<std::uint64_t>(to - from) /
                                                                  static_cast<std::uint64_t>(now - begun));
    };
    open_.end = now;
    count(open_);
    if (windows_closed_ != 0) {
        since_warm_.end = now;
        count(since_warm_);
    }
    if (begun != now) std::for_each(closed_.begin(), closed_.end(), count);
    if (++open_frames_ < window_frames_least || open_.end - open_.begin < window_min_) return;
    std::shift_left(closed_.begin(), closed_.end(), 1);
    closed_.back() = open_;
    if (windows_closed_++ == 0 || gathers_speed()) since_warm_ = Window{now, now, 0};
    open_ = Window{now, now, 0};
    open_frames_ = 0;
    if (windows_closed_ >= closed_.size()) judge();
}

bool RateMeter::gathers_speed() const {
    const Window& before = closed_[judged - 1];
    const Window& last = closed_[judged];
    return per_second(last.bytes, last.end - last.begin) / speeding_per_cent >
           per_second(before.bytes, before.end - before.begin) / 100;
}

void RateMeter::judge() {
    std::uint64_t least = ~std::uint64_t{0}, most = 0;
    for (std::size_t i = 0; i < judged; ++i) {
        const std::uint64_t rate = per_second(closed_[i].bytes, closed_[i].end - closed_[i].begin);
        least = std::min(least, rate);
        most = std::max(most, rate);
    }
    stable_ = most - least <= least / 100 * spread_per_cent_max;
}

bool RateMeter::concluded(Instant now) const {
    return stable_ || bytes_ >= bytes_max_ || (first_ != never && now - first_ >= time_max_);
}

RateMeter::Rate RateMeter::rate() const {
    if (stable_) {
        Rate sum{0, closed_[judged - 1].end - closed_[0].begin};
        for (std::size_t i = 0; i < judged; ++i) sum.bytes += closed_[i].bytes;
        return sum;
    }
    const Window whole = windows_closed_ != 0 && since_warm_.bytes != 0 ? since_warm_
                         : windows_closed_ != 0                         ? closed_.back()
                                                                        : open_;
    return whole.bytes == 0 ? Rate{} : Rate{whole.bytes, std::max<Duration>(whole.end - whole.begin, microsecond)};
}

void BandwidthTable::record(const Uuid& from, const Uuid& to, std::uint64_t bytes, Duration duration, Instant now) {
    entries_[{from, to}] = Entry{per_second(bytes, duration), now};
}

const BandwidthTable::Entry* BandwidthTable::find(const Uuid& from, const Uuid& to) const {
    const auto entry = entries_.find({from, to});
    return entry == entries_.end() ? nullptr : &entry->second;
}

bool BandwidthTable::known(const Uuid& from, const Uuid& to, Instant now, Duration age_max) const {
    const Entry* entry = find(from, to);
    return entry != nullptr && now - entry->measured <= age_max;
}

void BandwidthTable::forget(const Uuid& peer) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first.first == peer || entry.first.second == peer; });
}

std::vector<std::uint32_t> BandwidthTable::costs(const std::vector<Uuid>& nodes) const {
    const std::size_t n = nodes.size();
    std::vector<std::uint32_t> costs(n * n, 0);
    std::map<Uuid, std::size_t> place;
    for (std::size_t i = 0; i < n; ++i) place.emplace(nodes[i], i);
    std::uint64_t worst = 1;
    for (const auto& [ends, entry] : entries_) {
        const auto from = place.find(ends.first), to = place.find(ends.second);
        if (from == place.end() || to == place.end()) continue;
        const std::uint64_t cost = std::clamp<std::uint64_t>(picoseconds / entry.bytes_per_second, 1,
                                                             TourSearch::cost_max / (2 * unmeasured_factor));
        costs[from->second * n + to->second] = static_cast<std::uint32_t>(cost);
        worst = std::max(worst, cost);
    }
    for (std::uint32_t& cost : costs) {
        if (cost == 0) cost = static_cast<std::uint32_t>(worst * unmeasured_factor);
    }
    return costs;
}

}  // namespace pccl::core
