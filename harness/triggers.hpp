// Triggers of faults: the names of all conditions that a fault can wait for, and the faults of a run that still wait.
//
// A fault begins at a fixed time, or some time after its trigger: the n-th effect of a kind, the n-th time that the
// protocol reaches a phase, the n-th hit of a probe, or another fault. Watching messages and probes costs time, so it
// is done only if a fault waits for one.
#pragma once

#include "core/base/probe.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::harness {

// A step of the protocol. `phases` in triggers.cpp has the name and the meaning of each, in the same order.
enum class Phase : std::uint8_t {
    start_told,
    outcome_told,
    admission_told,
    welcome,
    takes_up,
    refusal,
    dial_plan,
    survey,
    sync_plan,
    sync_outcome,
    resume,
    edge_lost,
    start_vote,
    end_vote,
    update_vote,
    sync_vote,
    sync_end_vote,
    chunk_request,
    chunk,
    list_request,
    hash_request,
    hashes,
    holders,
    edge_up,
    declared,
    leave,
    goodbye,
    key_request,
    keys,
    grace,
    removal,
    sleep,
    abortion,
    count
};

// Values of Fault::trigger: 0 for none, then effects, phases and probes. Each *_last is the last value of its kind.
inline constexpr std::uint32_t effects_last = static_cast<std::uint32_t>(sim::effect_kinds);
inline constexpr std::uint32_t phases_last = effects_last + static_cast<std::uint32_t>(Phase::count);
inline constexpr std::uint32_t probes_last = phases_last + static_cast<std::uint32_t>(core::probe_count);
constexpr std::uint32_t trigger_of(Phase phase) { return effects_last + static_cast<std::uint32_t>(phase) + 1; }
constexpr std::uint32_t trigger_of(core::Probe probe) { return phases_last + static_cast<std::uint32_t>(probe) + 1; }
template <class T>
constexpr std::uint32_t trigger_of() {
    return static_cast<std::uint32_t>(sim::effect_index<T>() + 1);
}
constexpr bool is_effect(std::uint32_t trigger) { return trigger != 0 && trigger <= effects_last; }
constexpr bool is_phase(std::uint32_t trigger) { return trigger > effects_last && trigger <= phases_last; }
bool is_message(std::uint32_t trigger);  // a phase that is reached by sending a message
std::string trigger_name(std::uint32_t trigger);
std::optional<std::uint32_t> trigger_named(std::string_view name);
std::string list_phases();

// Where a trigger happened: the node that acted, and the node at the other end of its link. no_node: none.
struct Scene {
    std::uint32_t here = sim::no_node;
    std::uint32_t there = sim::no_node;
};

// How many faults took effect, by what began them. If that was a fixed time or an effect, only repetitions count.
struct SecondFaults {
    std::uint64_t behind_faults = 0;  // their trigger was another fault
    std::uint64_t at_phases = 0;      // their trigger was a phase or a probe
    std::uint64_t repeated = 0;       // repetitions (Fault::again), with any trigger
    void operator+=(const SecondFaults& more) {
        behind_faults += more.behind_faults;
        at_phases += more.at_phases;
        repeated += more.repeated;
    }
};

class Triggers final : public sim::MessageWatch {
public:
    // `begins`: the first number of the script items that begin a fault. The lower half of their second number is the
    // index of the fault. The upper half is the node where the trigger happened plus one; 0: none.
    Triggers(sim::World& world, const std::vector<Fault>& faults, std::uint64_t begins);
    void schedule();  // before the run
    void hit(core::Probe probe) {
        if (probes_[static_cast<std::size_t>(probe)]) reached(probe);
    }
    bool wants_probes() const { return probes_.any(); }
    // The fault took effect and ends at `ends`: schedules the faults that follow it. Later calls for the same fault do
    // nothing.
    void began(std::size_t fault, const Scene& scene, Instant ends);
    // Waits for the trigger of this fault once more, for `trigger_count` times.
    void arm_again(std::size_t fault);
    const Scene& scene_of(std::size_t fault) const { return scenes_[fault]; }
    void disarm();  // no phase or probe begins a fault any more

    bool says(std::uint32_t node, std::uint32_t to, sim::Talk talk, std::span<const std::uint8_t> body) override;
    void chunk_arrived(std::uint32_t node, std::uint32_t from) override;

private:
    struct Armed {
        std::size_t fault = 0;
        std::uint32_t trigger = 0;
        std::uint32_t countdown = 0;  // hits that are missing; 0: the fault has begun
    };
    void reached(core::Probe probe);
    // Counts one hit for each armed fault that `fits` accepts. True: a fault must crash the process at once.
    template <class Fits>
    bool count(const Scene& scene, Fits fits);
    bool fire(std::size_t fault, const Scene& scene);  // returns the same

    sim::World& world_;
    const std::vector<Fault>& faults_;
    std::uint64_t begins_;
    std::vector<Armed> armed_;               // faults that wait for a phase or a probe
    std::vector<Scene> scenes_;              // by index of the fault
    std::vector<bool> began_;                // by index of the fault
    std::bitset<core::probe_count> probes_;  // those that a fault waits for
};

}  // namespace pccl::harness
