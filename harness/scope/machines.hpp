// The machines of a scope as a table of states and a table of steps.
//
// A machine is a function from (state, event, time) to (state, effects). The world of a scope holds only the numbers of
// states. A step that was taken before is looked up; the real machine runs only for new steps. So a world is small and
// easy to copy, and the search can go back to any state.
//
// The identity of a state is the fingerprint of the machine's memory (arena.hpp). To check that, it can be the whole
// history instead (Identity::history): then each sequence of events makes a state of its own.
#pragma once

#include "core/master_machine.hpp"
#include "core/peer_machine.hpp"
#include "harness/scope/arena.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace pccl::scope {

using StateId = std::uint32_t;
inline constexpr StateId no_state = ~StateId{0};

enum class Identity : std::uint8_t { memory, history };

struct Step {
    StateId next = no_state;
    core::Effects effects;
    std::string broken;  // the text of an assertion, or of the refusal of an event; empty: none
};

class Machines {
public:
    explicit Machines(Identity identity) : identity_(identity) {}

    // The number of a slot is the node; 0 is the master.
    void add_master(const core::MasterConfig& config);
    void add_peer(const core::PeerConfig& config);

    // The machine right after its start. A master has replayed `journal`.
    const Step& start_master(core::Instant now, const std::vector<std::string>& journal);
    StateId start_peer(std::size_t node);
    const Step& handle(std::size_t node, StateId state, core::Instant now, const core::Event& event);

    core::Instant next_deadline(std::size_t node, StateId state) const { return slots_[node]->states[state].deadline; }
    Hash128 fingerprint(std::size_t node, StateId state) const { return slots_[node]->states[state].fingerprint; }
    std::uint64_t refused_frames(std::size_t node, StateId state) const { return slots_[node]->states[state].refused; }
    std::string explain(std::size_t node, StateId state);

    std::size_t states() const;
    std::size_t steps() const;

private:
    struct State {
        Arena::Image image;
        Hash128 fingerprint;
        core::Instant deadline = core::never;
        std::uint64_t refused = 0;
    };
    struct Key {
        StateId state = no_state;
        Hash128 event;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct HashOfKey {
        std::size_t operator()(const Key& key) const {
            return static_cast<std::size_t>(key.event.low ^ (key.state * 0x9E3779B97F4A7C15ull));
        }
    };
    struct Slot {
        Arena arena{1u << 20};
        core::MasterConfig master_config;
        core::PeerConfig peer_config;
        bool is_master = false;
        core::MasterMachine* master = nullptr;  // in the arena, valid for the loaded state
        core::PeerMachine* peer = nullptr;
        StateId loaded = no_state;
        std::vector<State> states;
        std::unordered_map<Hash128, StateId, HashOfHash> known;
        std::unordered_map<Key, std::unique_ptr<Step>, HashOfKey> steps;
    };

    void load(Slot& slot, StateId state);
    StateId note(Slot& slot, const Hash128& history);
    // Runs `act` with allocations from the slot's arena. Returns the text of a broken assertion, or of the refusal of
    // an event; empty: none.
    std::string guarded(Slot& slot, core::Effects& effects, const std::function<bool(core::Effects&)>& act);
    const Step& run(Slot& slot, const Key& key, const std::function<bool(core::Effects&)>& act);

    Identity identity_;
    ChunkTable chunks_;
    std::deque<std::unique_ptr<Slot>> slots_;
};

// A hash of everything that distinguishes two events, and of the time.
Hash128 hash_of(core::Instant now, const core::Event& event);

}  // namespace pccl::scope
