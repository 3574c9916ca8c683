#include "harness/coverage.hpp"

#include "core/base/format.hpp"
#include "net-sim/draw.hpp"

#include <algorithm>
#include <bit>

namespace pccl::harness {

using namespace core;

namespace {

// What a mark is about; part of its hash.
enum class About : std::uint64_t { state, same_machine, other_machine, phase, fault, hits, fault_in_phase };

Mark mark_of(About about, std::uint64_t a, std::uint64_t b) {
    return static_cast<Mark>(sim::mix(sim::mix(static_cast<std::uint64_t>(about), a), b));
}

std::uint64_t phase_of(std::uint64_t state) { return state & 0xff; }

std::size_t place(Mark mark, std::size_t slots) { return (mark * 0x9E3779B1u >> 7) & (slots - 1); }

template <class... Kinds>
constexpr std::uint32_t events_of() {
    return ((1u << sim::index_in<Kinds>(static_cast<const Event*>(nullptr))) | ...);
}

// Bulk data, calls and the clock seldom move a machine to another abstract state without a probe or a message.
bool may_change_state(const Event& event) {
    constexpr std::uint32_t kinds = events_of<ControlArrived, LinkClosed, LinkOpened, LinkRefused>();
    return ((kinds >> event.index()) & 1) != 0;
}

}  // namespace

// --- a set -----------------------------------------------------------------------------------------------------------

void MarkSet::clear() {
    marks_.clear();
    ++generation_;
}

void MarkSet::add(Mark mark) {
    for (std::size_t i = place(mark, slots_.size());; i = (i + 1) & (slots_.size() - 1)) {
        Slot& slot = slots_[i];
        if (slot.generation == generation_ && slot.mark != mark) continue;
        if (slot.generation == generation_ || marks_.size() == most) return;
        slot = Slot{mark, generation_};
        marks_.push_back(mark);
        return;
    }
}

// --- one run ---------------------------------------------------------------------------------------------------------

void Coverage::begin(std::uint32_t second_master) {
    second_master_ = second_master;
    hits_ = 0;
    unmarked_ = 0;
    seen_.clear();
    active_.clear();
    last_node_ = last_probe_ = 0;
    states_.clear();
    marks_.clear();
}

Coverage::Seen& Coverage::of(std::uint32_t node) {
    if (node >= seen_.size()) seen_.resize(node + 1);
    return seen_[node];
}

void Coverage::handled(std::uint32_t node, Instant now, const Event& event, const sim::Machine& machine) {
    const std::size_t hits = hits_;
    hits_ = 0;
    // Of such events every second one is enough: a state that lasts is still seen, at half the cost.
    if (hits == 0 && (!may_change_state(event) || (++unmarked_ & 1) != 0)) return;
    Seen& seen = of(node);
    const std::uint64_t role = role_of(node);
    const std::uint64_t state = machine.abstract_state();
    if (state != seen.state) {
        seen.state = state;
        states_.add(mark_of(About::state, role, state));
        if (detail_ == Detail::all) marks_.add(mark_of(About::state, role, state));
    }
    if (detail_ == Detail::states || hits == 0) return;
    std::erase_if(active_, [now](const Active& fault) { return fault.until < now; });
    for (std::size_t i = 0; i < hits; ++i) {
        const auto probe = static_cast<std::uint32_t>(hit_[i]) + 1;
        marks_.add(mark_of(About::same_machine, seen.probe, probe));
        if (last_node_ != node && last_probe_ != 0) marks_.add(mark_of(About::other_machine, last_probe_, probe));
        marks_.add(mark_of(About::phase, phase_of(state), probe));
        for (const Active& fault : active_)
            marks_.add(mark_of(About::fault, static_cast<std::uint64_t>(fault.kind), probe));
        seen.probe = last_probe_ = probe;
        last_node_ = node;
    }
}

void Coverage::fault(FaultKind kind, Instant now, Instant until) {
    if (detail_ == Detail::states) return;
    // The consequences of a fault come some time after it.
    constexpr Duration echo = second;
    until = std::max(now, until);
    active_.push_back(Active{kind, until < never - echo ? until + echo : never});
    for (std::uint32_t node = 0; node < seen_.size(); ++node) {
        const std::uint64_t role = role_of(node);
        marks_.add(
            mark_of(About::fault_in_phase, static_cast<std::uint64_t>(kind) << 1 | role, phase_of(seen_[node].state)));
    }
}

void Coverage::end(const std::array<std::uint64_t, probe_count>& probes) {
    if (detail_ == Detail::states) return;
    for (std::size_t probe = 0; probe < probes.size(); ++probe) {
        if (probes[probe] != 0)
            marks_.add(mark_of(About::hits, probe, static_cast<std::uint64_t>(std::bit_width(probes[probe]))));
    }
}

// --- many runs -------------------------------------------------------------------------------------------------------

Census::Entry& Census::slot(Mark mark) {
    std::size_t i = place(mark, slots_.size());
    while (slots_[i].runs != 0 && slots_[i].mark != mark) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
}

void Census::grow() {
    if (size_ * 2 < slots_.size()) return;
    std::vector<Entry> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Entry& entry : old) {
        if (entry.runs != 0) slot(entry.mark) = entry;
    }
}

std::size_t Census::add(std::uint32_t run, std::span<const Mark> marks) {
    ++runs_;
    const std::size_t before = size_;
    for (const Mark mark : marks) {
        Entry& entry = slot(mark);
        if (entry.runs++ != 0) continue;
        entry.mark = mark;
        entry.first = run;
        ++size_;
        grow();
    }
    return size_ - before;
}

void Census::merge(std::span<const Entry> entries, std::uint64_t runs) {
    runs_ += runs;
    for (const Entry& other : entries) {
        Entry& entry = slot(other.mark);
        entry.first = entry.runs == 0 ? other.first : std::min(entry.first, other.first);
        if (entry.runs == 0) ++size_;
        entry.mark = other.mark;
        entry.runs += other.runs;
        grow();
    }
}

std::uint32_t Census::runs_of(Mark mark) const {
    std::size_t i = place(mark, slots_.size());
    while (slots_[i].runs != 0 && slots_[i].mark != mark) i = (i + 1) & (slots_.size() - 1);
    return slots_[i].runs;
}

std::size_t Census::seen_once() const {
    return static_cast<std::size_t>(
        std::count_if(slots_.begin(), slots_.end(), [](const Entry& entry) { return entry.runs == 1; }));
}

double Census::chance_of_new() const {
    std::vector<std::uint32_t> alone;
    for (const Entry& entry : slots_) {
        if (entry.runs == 1) alone.push_back(entry.first);
    }
    std::sort(alone.begin(), alone.end());
    const auto runs = static_cast<double>(std::unique(alone.begin(), alone.end()) - alone.begin());
    return runs_ == 0 ? 1 : runs / static_cast<double>(runs_);
}

std::size_t Census::size_within(std::uint64_t runs) const {
    return static_cast<std::size_t>(std::count_if(
        slots_.begin(), slots_.end(), [runs](const Entry& entry) { return entry.runs != 0 && entry.first < runs; }));
}

std::vector<Census::Entry> Census::entries() const {
    std::vector<Entry> all;
    all.reserve(size_);
    for (const Entry& entry : slots_) {
        if (entry.runs != 0) all.push_back(entry);
    }
    return all;
}

std::string thoroughness(const Census& states, const char* what_runs_are) {
    return formatted(
        "abstract states: {} in half of the {}, {} in all; {} in one only; the next one shows a new state with chance "
        "{:.2f} % (Good-Turing)\n",
        states.size_within((states.runs() + 1) / 2), what_runs_are, states.size(), states.seen_once(),
        100 * states.chance_of_new());
}

}  // namespace pccl::harness
