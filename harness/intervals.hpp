// Calls indexed by time: finds those that overlap with an interval without looking at all of them.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pccl::harness {

// The indices of calls, added in the order of their begin. A search skips whole blocks of calls that have ended before,
// so one that never ends does not make it visit all behind it.
class Intervals {
public:
    void add(std::size_t index, core::Instant begin, core::Instant end) {
        if (entries_.size() % block == 0) latest_ends_.push_back(end);
        latest_ends_.back() = std::max(latest_ends_.back(), end);
        entries_.push_back(Entry{index, begin, end});
    }

    // Calls `visit(index)`, in order, for each call that begins before `end` and ends after `begin`.
    template <class Visit>
    void near(core::Instant begin, core::Instant end, Visit visit) const {
        for (std::size_t i = 0; i < entries_.size() && entries_[i].begin < end;) {
            if (latest_ends_[i / block] <= begin) {
                i += block;
                continue;
            }
            const std::size_t last = std::min(i + block, entries_.size());
            for (; i < last && entries_[i].begin < end; ++i) {
                if (entries_[i].end > begin) visit(entries_[i].index);
            }
        }
    }
    // Visits all of them, in order.
    template <class Visit>
    void all(Visit visit) const {
        for (const Entry& entry : entries_) visit(entry.index);
    }

private:
    static constexpr std::size_t block = 256;
    struct Entry {
        std::size_t index = 0;
        core::Instant begin = 0;
        core::Instant end = 0;
    };
    std::vector<Entry> entries_;
    std::vector<core::Instant> latest_ends_;  // of each block of entries
};

}  // namespace pccl::harness
