#include "harness/fault_refs.hpp"

#include <algorithm>
#include <numeric>

namespace pccl::harness {

bool names_two(FaultKind kind) {
    return kind == FaultKind::one_way || kind == FaultKind::cut_pair || kind == FaultKind::flap ||
           impairs_an_edge(kind);
}

bool names_a_node(FaultKind kind) {
    switch (kind) {
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog:
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer:
    case FaultKind::pause:
    case FaultKind::hostile:
    case FaultKind::replayed_hello:
    case FaultKind::slow_compute:
    case FaultKind::roam:
    case FaultKind::hang:
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap:
    case FaultKind::flap:
    case FaultKind::clock_jump:
    case FaultKind::interface:
    case FaultKind::closed_port:
    case FaultKind::revoke:
    case FaultKind::liar: return true;
    default: return false;
    }
}

bool chooses_a_connection(FaultKind kind) {
    switch (kind) {
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::stall:
    case FaultKind::corrupt: return true;
    default: return false;
    }
}

Fault untied(const std::vector<Fault>& faults, Fault fault) {
    for (std::size_t steps = 0; fault.follows != 0 && fault.follows <= faults.size() && steps < faults.size();
         ++steps) {
        const Fault& first = faults[fault.follows - 1];
        fault.at += first.at + (fault.behind_its_end ? first.duration : 0);
        fault.trigger = first.trigger;
        fault.trigger_count = first.trigger_count;
        fault.behind_its_end = first.behind_its_end;
        fault.follows = first.follows;
    }
    fault.follows = 0;
    fault.behind_its_end = false;
    if (fault.trigger == 0) fault.place = FaultPlace::named;
    return fault;
}

namespace {

// `places`: for each old index the new one, plus one; 0: the fault was removed.
void rename(std::vector<Fault>& faults, const std::vector<std::uint32_t>& places) {
    for (Fault& fault : faults) {
        if (fault.follows != 0) fault.follows = places[fault.follows - 1];
    }
}

}  // namespace

void remove_faults(std::vector<Fault>& faults, const std::function<bool(const Fault&)>& gone, Followers followers) {
    std::vector<bool> goes(faults.size());
    for (std::size_t i = 0; i < faults.size(); ++i) goes[i] = gone(faults[i]);
    for (bool more = followers == Followers::go; more;) {
        more = false;
        for (std::size_t i = 0; i < faults.size(); ++i) {
            if (goes[i] || faults[i].follows == 0 || !goes[faults[i].follows - 1]) continue;
            goes[i] = more = true;
        }
    }
    std::vector<Fault> left;
    std::vector<std::uint32_t> places(faults.size());
    for (std::size_t i = 0; i < faults.size(); ++i) {
        if (goes[i]) continue;
        const bool alone = faults[i].follows != 0 && goes[faults[i].follows - 1];
        left.push_back(alone ? untied(faults, faults[i]) : faults[i]);
        places[i] = static_cast<std::uint32_t>(left.size());
    }
    rename(left, places);
    faults = std::move(left);
}

void sort_by_time(std::vector<Fault>& faults) {
    std::vector<std::uint32_t> order(faults.size()), places(faults.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t x, std::uint32_t y) { return faults[x].at < faults[y].at; });
    std::vector<Fault> sorted;
    for (std::uint32_t i = 0; i < order.size(); ++i) {
        sorted.push_back(faults[order[i]]);
        places[order[i]] = i + 1;
    }
    rename(sorted, places);
    faults = std::move(sorted);
}

bool references_hold(const std::vector<Fault>& faults) {
    return std::all_of(faults.begin(), faults.end(), [&](const Fault& fault) {
        const Fault* at = &fault;
        for (std::size_t steps = 0; at->follows != 0; ++steps) {
            if (at->follows > faults.size() || steps >= faults.size() || at->trigger != 0) return false;
            at = &faults[at->follows - 1];
        }
        return true;
    });
}

}  // namespace pccl::harness
