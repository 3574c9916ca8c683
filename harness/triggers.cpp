#include "harness/triggers.hpp"

#include "core/base/format.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Talk;

namespace {

struct PhaseText {
    const char* name;
    const char* meaning;
    // For a phase that is a message: its direction, the beginning of its text (without the number of an answer), and
    // what the text contains.
    Talk talk = Talk::peer_to_peer;
    const char* begins = nullptr;
    const char* contains = "";
    const char* contains_not = nullptr;
};

constexpr PhaseText phases[] = {
    {"start-told", "the master tells one member that an operation starts", Talk::master_to_peer, "start op"},
    {"outcome-told", "the master tells one member how an operation ended", Talk::master_to_peer, "outcome op"},
    {"admitted", "the master tells a joiner that it is a member", Talk::master_to_peer, "admitted"},
    {"welcome", "the master greets a newcomer", Talk::master_to_peer, "welcome", "", "seat resumed"},
    {"takes-up", "the master greets a member that came back", Talk::master_to_peer, "welcome", "seat resumed"},
    {"refusal", "the master refuses or removes somebody", Talk::master_to_peer, "refusal"},
    {"dial-plan", "the master tells somebody whom to dial", Talk::master_to_peer, "plan: dial"},
    {"survey", "the master has a bandwidth tested", Talk::master_to_peer, "test"},
    {"sync-plan", "the master tells one member who won a synchronization", Talk::master_to_peer, "sync ", " plan"},
    {"sync-outcome", "the master tells one member how a synchronization ended", Talk::master_to_peer, "sync ",
     " outcome"},
    {"hello-again", "a member that lost its master introduces itself", Talk::peer_to_master, "hello", " resumes"},
    {"edge-down", "a peer reports a connection that it lost or could not open", Talk::peer_to_master, "edge", " down"},
    {"start-vote", "a member launches an operation", Talk::peer_to_master, "vote start"},
    {"end-vote", "a member says that its last slice has landed, or that it gives up", Talk::peer_to_master, "vote end"},
    {"update-vote", "a member updates the topology", Talk::peer_to_master, "vote update_topology"},
    {"sync-vote", "a member begins to synchronize", Talk::peer_to_master, "vote sync revision"},
    {"sync-end-vote", "a member says that its state is whole, or that it gives up", Talk::peer_to_master,
     "vote sync_end"},
    {"chunk-request", "a member asks another one for a chunk of shared state", Talk::peer_to_peer, "chunk_request"},
    {"chunk-landed", "a chunk of shared state has landed"},
    {"list-request", "a member asks another one for a page of the list of entries", Talk::peer_to_peer, "hash_request",
     " of entries"},
    {"hash-request", "a member asks another one for hashes of an entry", Talk::peer_to_peer, "hash_request", " entry "},
    {"hashes", "a member sends hashes of its shared state", Talk::peer_to_peer, "hashes"},
    {"holders", "the master tells a receiver who holds the state", Talk::master_to_peer, "sync_holders"},
    {"edge-up", "a peer reports a connection that opened", Talk::peer_to_master, "edge", " up"},
    {"declared", "a member that came back has declared its calls", Talk::peer_to_master, "resumed"},
    {"leave", "a member leaves", Talk::peer_to_master, "leave"},
    {"goodbye", "a peer closes a connection on purpose", Talk::peer_to_peer, "goodbye"},
    {"key-request", "the master asks a member for a page of its keys", Talk::master_to_peer, "page_request"},
    {"keys", "a member sends a page of its keys to the master", Talk::peer_to_master, "page of keys"},
    {"grace", "a master began on a journal with members: its grace begins"},
    {"removal", "the master has decided to remove a member"},
    {"slept", "a machine notices that it did not run for a while"},
    {"abort", "an operation is aborted, by a vote or for somebody who is gone"},
};
static_assert(std::size(phases) == static_cast<std::size_t>(Phase::count));

constexpr Probe removals[] = {
    Probe::not_resumed_after_restart, Probe::absent_too_long, Probe::member_silent, Probe::removed_by_both_links,
    Probe::removed_by_late_word,      Probe::no_ring_victim,  Probe::vote_timed_out};
constexpr Probe sleeps[] = {Probe::peer_slept, Probe::master_slept};
constexpr Probe abortions[] = {Probe::aborted_by_vote, Probe::aborted_by_removal, Probe::aborted_over_edge};
constexpr Probe graces[] = {Probe::master_restarted};

std::span<const Probe> probes_of(Phase phase) {
    switch (phase) {
    case Phase::grace: return graces;
    case Phase::removal: return removals;
    case Phase::sleep: return sleeps;
    case Phase::abortion: return abortions;
    default: return {};
    }
}

Phase phase_of(std::uint32_t trigger) { return static_cast<Phase>(trigger - effects_last - 1); }
const PhaseText& text_of(std::uint32_t trigger) { return phases[trigger - effects_last - 1]; }

bool is_said(const PhaseText& phase, Talk talk, std::string_view text) {
    return phase.begins != nullptr && phase.talk == talk && text.starts_with(phase.begins) &&
           text.find(phase.contains) != std::string_view::npos &&
           (phase.contains_not == nullptr || text.find(phase.contains_not) == std::string_view::npos);
}

// An aimed crash without a delay that waits for a message: the process dies instead of sending the message.
bool dies_at_once(const Fault& fault) {
    return fault.at == 0 && is_message(fault.trigger) &&
           (fault.kind == FaultKind::aimed_peer || fault.kind == FaultKind::aimed_master);
}

}  // namespace

bool is_message(std::uint32_t trigger) { return is_phase(trigger) && text_of(trigger).begins != nullptr; }

std::string trigger_name(std::uint32_t trigger) {
    if (is_effect(trigger)) return sim::effect_name(trigger - 1);
    return is_phase(trigger) ? text_of(trigger).name : probe_texts[trigger - phases_last - 1].name;
}

std::optional<std::uint32_t> trigger_named(std::string_view name) {
    for (std::uint32_t trigger = 1; trigger <= phases_last; ++trigger) {
        if (name == trigger_name(trigger)) return trigger;
    }
    for (std::uint32_t i = 0; i < probe_count; ++i) {
        if (name == probe_texts[i].name) return phases_last + i + 1;
    }
    return std::nullopt;
}

std::string list_phases() {
    std::string text;
    for (const PhaseText& phase : phases) {
        std::string name = phase.name;
        name.resize(15, ' ');
        text += formatted("  {}{}\n", name, phase.meaning);
    }
    return text;
}

Triggers::Triggers(sim::World& world, const std::vector<Fault>& faults, std::uint64_t begins)
    : world_(world), faults_(faults), begins_(begins), scenes_(faults.size()), began_(faults.size()) {
    for (std::size_t i = 0; i < faults.size(); ++i) {
        const std::uint32_t trigger = faults[i].trigger;
        if (trigger <= effects_last) continue;
        armed_.push_back(Armed{i, trigger, faults[i].trigger_count});
        if (!is_phase(trigger)) probes_.set(trigger - phases_last - 1);
        if (!is_phase(trigger)) continue;
        for (const Probe probe : probes_of(phase_of(trigger))) probes_.set(static_cast<std::size_t>(probe));
    }
}

void Triggers::schedule() {
    for (std::size_t i = 0; i < faults_.size(); ++i) {
        const Fault& fault = faults_[i];
        if (fault.trigger == 0 && fault.follows == 0) world_.schedule_script(fault.at, begins_, i);
        if (is_effect(fault.trigger))
            world_.arm(sim::Trigger{fault.trigger - 1, fault.trigger_count, fault.at, begins_, i});
    }
    const bool listens = std::any_of(armed_.begin(), armed_.end(), [](const Armed& armed) {
        return is_message(armed.trigger) || armed.trigger == trigger_of(Phase::chunk);
    });
    if (listens) world_.watch(this);
}

void Triggers::arm_again(std::size_t index) {
    const Fault& fault = faults_[index];
    if (is_effect(fault.trigger))
        return world_.arm(sim::Trigger{fault.trigger - 1, fault.trigger_count, fault.at, begins_, index});
    for (Armed& armed : armed_) {
        if (armed.fault == index) armed.countdown = fault.trigger_count;
    }
}

void Triggers::disarm() {
    armed_.clear();
    probes_.reset();
}

template <class Fits>
bool Triggers::count(const Scene& scene, Fits fits) {
    bool dies = false;
    for (Armed& armed : armed_) {
        if (armed.countdown == 0 || !fits(armed) || --armed.countdown != 0) continue;
        dies |= fire(armed.fault, scene);
    }
    return dies;
}

bool Triggers::fire(std::size_t index, const Scene& scene) {
    const Fault& fault = faults_[index];
    scenes_[index] = scene;
    const bool of_the_master = fault.kind == FaultKind::aimed_master;
    if (dies_at_once(fault) && of_the_master == world_.is_master(scene.here) &&
        (!of_the_master || scene.here == world_.master())) {
        world_.arm(scene.here, sim::AimedCrash{0, 0, (fault.value & 1) != 0, index});
        return true;
    }
    const std::uint64_t node = scene.here == sim::no_node ? 0 : scene.here + 1;
    world_.schedule_script(world_.now() + fault.at, begins_, index | node << 32);
    return false;
}

void Triggers::reached(Probe probe) {
    const auto [here, there] = world_.acting();
    count(Scene{here, there}, [probe](const Armed& armed) {
        if (!is_phase(armed.trigger)) return armed.trigger == trigger_of(probe);
        const std::span<const Probe> probes = probes_of(phase_of(armed.trigger));
        return std::find(probes.begin(), probes.end(), probe) != probes.end();
    });
}

bool Triggers::says(std::uint32_t node, std::uint32_t to, Talk talk, std::span<const std::uint8_t> body) {
    std::string text = sim::control_text(talk, body);
    if (constexpr std::string_view answer = "answer "; talk == Talk::master_to_peer && text.starts_with(answer))
        text.erase(0, text.find(' ', answer.size()) + 1);
    return count(Scene{node, to}, [&](const Armed& armed) {
        return is_phase(armed.trigger) && is_said(text_of(armed.trigger), talk, text);
    });
}

void Triggers::chunk_arrived(std::uint32_t node, std::uint32_t from) {
    count(Scene{node, from}, [](const Armed& armed) { return armed.trigger == trigger_of(Phase::chunk); });
}

void Triggers::began(std::size_t index, const Scene& scene, Instant ends) {
    if (began_[index]) return;
    began_[index] = true;
    for (std::size_t i = 0; i < faults_.size(); ++i) {
        const Fault& fault = faults_[i];
        if (fault.follows != index + 1) continue;
        const Instant from = fault.behind_its_end ? ends : world_.now();
        if (from == never) continue;
        scenes_[i] = scene;
        const std::uint64_t node = scene.here == sim::no_node ? 0 : scene.here + 1;
        world_.schedule_script(from + fault.at, begins_, i | node << 32);
    }
}

}  // namespace pccl::harness
