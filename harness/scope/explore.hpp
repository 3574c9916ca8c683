// Explores a scope: takes every choice in every state, and judges each end.
//
// The search is depth first. It does not enter a state whose hash it has seen. Independent events in another order lead
// to the same state, so each such state is explored once. At an end no program goes on, and the outcomes are judged.
// Then one schedule without choices shows that the run still works: all members agree on a topology, reduce, leave and
// hold no memory.
#pragma once

#include "harness/scope/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pccl::scope {

struct Bounds {
    std::uint64_t states = 0;  // 0: any number
    bool stop_at_first = true;
    Identity identity = Identity::memory;
};

struct Finding {
    std::string what;
    std::string sequence;  // the choices that lead to it, for replay()
};

struct Report {
    std::uint64_t states = 0;       // different states
    std::uint64_t transitions = 0;  // choices taken
    std::uint64_t ends = 0;         // different states in which no program goes on
    std::uint64_t outcomes = 0;     // different things that programs saw
    std::uint64_t depth = 0;        // choices on the longest path
    core::Duration waited = 0;      // the longest simulated time from the last fault, or the begin, to an end
    std::size_t machine_states = 0;
    std::size_t machine_steps = 0;
    bool complete = false;
    std::vector<Finding> findings;  // the first of each kind
    std::uint64_t broken_ends = 0;
};

Report explore(const Scope& scope, const Bounds& bounds);

// Plays one path, and prints it if `print` is set. Returns the violation; empty: none.
std::string replay(const Scope& scope, const std::string& sequence, bool print);

// The promise that the end breaks; empty: none.
std::string judge(const World& world, const State& state);
// Plays one schedule without choices from an end. Returns the violation; empty: none.
std::string see_it_work(World& world, State state);

}  // namespace pccl::scope
