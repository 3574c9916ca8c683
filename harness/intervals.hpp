// Calls indexed by time: finds those that overlap with an interval without looking at all of them.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pccl::harness {

// The indices of calls, added in the order of their begin.
class Intervals {
public:
    void add(std::size_t index, core::Instant begin, core::Instant end) {
        const core::Instant latest = entries_.empty() ? end : std::max(entries_.back().latest_end, end);
        entries_.push_back(Entry{index, begin, latest});
    }

    // Calls `visit(index)`, in order, for each call that begins before `end` and ends after `begin`, and perhaps for
    // some others.
    template <class Visit>
    void near(core::Instant begin, core::Instant end, Visit visit) const {
        auto entry = std::partition_point(entries_.begin(), entries_.end(),
                                          [&](const Entry& e) { return e.latest_end <= begin; });
        for (; entry != entries_.end() && entry->begin < end; ++entry) visit(entry->index);
    }
    // Visits all of them, in order.
    template <class Visit>
    void all(Visit visit) const {
        for (const Entry& entry : entries_) visit(entry.index);
    }

private:
    struct Entry {
        std::size_t index = 0;
        core::Instant begin = 0;
        core::Instant latest_end = 0;  // of this call and all before it
    };
    std::vector<Entry> entries_;
};

}  // namespace pccl::harness
