// What one run reached, as a set of marks. Over many runs: how often each mark was reached, and how likely the next run
// reaches a new one.
//
// A mark is a hash of one of these:
// - the abstract state of a machine;
// - a probe, and the probe that the same machine or another machine hit before it;
// - a probe, and the phase of its machine;
// - a probe, and a kind of fault that is active;
// - a probe, and the number of its hits (in powers of two);
// - a fault, and the phases of the machines when it took effect.
// This only observes: a run and its trace hash do not depend on it.
#pragma once

#include "core/base/probe.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pccl::harness {

using Mark = std::uint32_t;

// A set of marks that is cheap to clear. It holds at most `most` marks and drops further ones.
class MarkSet {
public:
    static constexpr std::size_t most = 12'000;
    MarkSet() : slots_(1u << 14) {}
    void clear();
    void add(Mark mark);
    std::span<const Mark> marks() const { return marks_; }  // in the order of insertion

private:
    struct Slot {
        Mark mark = 0;
        std::uint32_t generation = 0;
    };
    std::vector<Slot> slots_;
    std::vector<Mark> marks_;
    std::uint32_t generation_ = 1;
};

class Coverage final : public sim::MachineWatch {
public:
    // states: abstract states only. That is enough to measure how thorough a range of seeds was.
    enum class Detail : std::uint8_t { states, all };
    explicit Coverage(Detail detail) : detail_(detail) {}

    // --- from the run ------------------------------------------------------------------------------------------------
    // `second_master`: the node of the second master, if the scenario has one. Node 0 is the first master.
    void begin(std::uint32_t second_master);
    void hit(core::Probe probe) {
        if (hits_ < hit_.size()) hit_[hits_++] = probe;
    }
    void handled(std::uint32_t node, Instant now, const core::Event& event, const sim::Machine& machine) override;
    // A fault took effect and lasts until `until`.
    void fault(FaultKind kind, Instant now, Instant until);
    void end(const std::array<std::uint64_t, core::probe_count>& probes);

    // --- of the last run ---------------------------------------------------------------------------------------------
    std::span<const Mark> states() const { return states_.marks(); }
    std::span<const Mark> marks() const { return marks_.marks(); }  // none with Detail::states

private:
    struct Seen {  // of one machine
        std::uint64_t state = 0;
        std::uint32_t probe = 0;  // the last one, plus one; 0: none
    };
    struct Active {
        FaultKind kind = FaultKind::partition;
        Instant until = 0;
    };
    Seen& of(std::uint32_t node);
    std::uint64_t role_of(std::uint32_t node) const { return node == 0 || node == second_master_ ? 1 : 0; }

    Detail detail_;
    std::array<core::Probe, 64> hit_{};  // probes hit by the event that is being handled
    std::size_t hits_ = 0;
    std::uint32_t unmarked_ = 0;  // events without a probe that may have changed the state
    std::vector<Seen> seen_;
    std::vector<Active> active_;
    std::uint32_t second_master_ = 0;
    std::uint32_t last_node_ = 0;
    std::uint32_t last_probe_ = 0;
    MarkSet states_, marks_;
};

// Counts over many runs. The caller numbers the runs, so that counts of several processes can be merged.
class Census {
public:
    struct Entry {
        Mark mark = 0;
        std::uint32_t runs = 0;  // runs that reached it; 0: an empty slot
        std::uint32_t first = 0;
    };
    // Returns how many of the marks are new.
    std::size_t add(std::uint32_t run, std::span<const Mark> marks);
    void merge(std::span<const Entry> entries, std::uint64_t runs);
    std::uint32_t runs_of(Mark mark) const;
    std::uint64_t runs() const { return runs_; }
    std::size_t size() const { return size_; }
    std::size_t seen_once() const;
    // Good–Turing estimate of the chance that the next run reaches a new mark: the share of runs that reached a mark
    // which no other run reached.
    double chance_of_new() const;
    // The number of different marks in runs with a number below `runs`.
    std::size_t size_within(std::uint64_t runs) const;
    std::vector<Entry> entries() const;

private:
    Entry& slot(Mark mark);
    void grow();
    std::vector<Entry> slots_ = std::vector<Entry>(1u << 10);
    std::size_t size_ = 0;
    std::uint64_t runs_ = 0;
};

// One line: how many abstract states the runs reached, and how likely the next run reaches a new one.
std::string thoroughness(const Census& states, const char* what_runs_are);

}  // namespace pccl::harness
