// Triggers of faults: the names of everything that a fault may wait for, and the faults of a run that still wait.
//
// A fault begins at a fixed time, or some time after one of these: the n-th effect of a kind, the n-th time that the
// protocol reaches a phase, the n-th hit of a probe, or another fault. Messages and probes are watched only if a fault
// waits for one.
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
    goodbye,
    grace,
    removal,
    sleep,
    abortion,
    count
};

// Values of Fault::trigger: 0 none, then effects, phases and probes.
inline constexpr std::uint32_t effects_end = static_cast<std::uint32_t>(sim::effect_kinds);
inline constexpr std::uint32_t phases_end = effects_end + static_cast<std::uint32_t>(Phase::count);
inline constexpr std::uint32_t probes_end = phases_end + static_cast<std::uint32_t>(core::probe_count);
constexpr std::uint32_t trigger_of(Phase phase) { return effects_end + static_cast<std::uint32_t>(phase) + 1; }
constexpr std::uint32_t trigger_of(core::Probe probe) { return phases_end + static_cast<std::uint32_t>(probe) + 1; }
template <class T>
constexpr std::uint32_t trigger_of() {
    return static_cast<std::uint32_t>(sim::effect_index<T>() + 1);
}
constexpr bool is_effect(std::uint32_t trigger) { return trigger != 0 && trigger <= effects_end; }
constexpr bool is_phase(std::uint32_t trigger) { return trigger > effects_end && trigger <= phases_end; }
bool is_message(std::uint32_t trigger);  // the phase is a message that is sent
std::string trigger_name(std::uint32_t trigger);
std::optional<std::uint32_t> trigger_named(std::string_view name);
std::string list_phases();

// The nodes of the world where something happened. no_node: none.
struct Scene {
    std::uint32_t here = sim::no_node;
    std::uint32_t there = sim::no_node;
};

// How many faults took effect whose trigger was more than a time or an effect.
struct SecondFaults {
    std::uint64_t behind_faults = 0;
    std::uint64_t at_phases = 0;  // and at probes
    std::uint64_t repeated = 0;
    void operator+=(const SecondFaults& more) {
        behind_faults += more.behind_faults;
        at_phases += more.at_phases;
        repeated += more.repeated;
    }
};

class Triggers final : public sim::MessageWatch {
public:
    // `begins`: the script item that begins a fault. Its number is the index of the fault, with the node of the trigger
    // plus one in the upper half.
    Triggers(sim::World& world, const std::vector<Fault>& faults, std::uint64_t begins);
    void schedule();
    void hit(core::Probe probe) {
        if (probes_[static_cast<std::size_t>(probe)]) reached(probe);
    }
    bool wants_probes() const { return probes_.any(); }
    // The fault took effect and ends at `ends`. Only the first call for a fault counts.
    void began(std::size_t fault, const Scene& scene, Instant ends);
    const Scene& scene_of(std::size_t fault) const { return scenes_[fault]; }
    void disarm();

    bool says(std::uint32_t node, std::uint32_t to, sim::Talk talk, std::span<const std::uint8_t> body) override;
    void chunk_arrived(std::uint32_t node, std::uint32_t from) override;

private:
    struct Armed {
        std::size_t fault = 0;
        std::uint32_t trigger = 0;
        std::uint32_t countdown = 0;
    };
    void reached(core::Probe probe);
    // Counts down the faults that wait for this. True: the process must die at once.
    template <class Fits>
    bool count(const Scene& scene, Fits fits);
    bool fire(std::size_t fault, const Scene& scene);

    sim::World& world_;
    const std::vector<Fault>& faults_;
    std::uint64_t begins_;
    std::vector<Armed> armed_;  // faults that wait for a phase or a probe
    std::vector<Scene> scenes_;
    std::vector<bool> began_;
    std::bitset<core::probe_count> probes_;
};

}  // namespace pccl::harness
