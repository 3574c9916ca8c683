// Which parts of a scenario real processes can play.
#include "core/base/format.hpp"
#include "harness/fault_refs.hpp"
#include "harness/real/bridge.hpp"
#include "harness/real/proxy.hpp"
#include "harness/scenario_text.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

struct Unplayable {
    const char* setting;
    const char* reason;
    bool (*is_set)(const Scenario&);
    void (*drop)(Scenario&);
};

const sim::WorldParameters world_defaults;

const Unplayable settings[] = {
    {"claim", "a real process does not know what the others have achieved",
     [](const Scenario& s) { return s.claim != Claim::all_end; },
     [](Scenario& s) {
         s.claim = Claim::all_end;
         s.core.clear();
     }},
    {"clock.drift_ppm", "all processes read the clock of this machine",
     [](const Scenario& s) { return s.world.drift_ppm != 0; }, [](Scenario& s) { s.world.drift_ppm = 0; }},
    {"clock.timer_late_max", "timers are those of the system",
     [](const Scenario& s) { return s.world.timer_late_max != 0; }, [](Scenario& s) { s.world.timer_late_max = 0; }},
    {"network.loss_per_million", "bytes of loopback are not lost",
     [](const Scenario& s) { return s.world.network.loss_per_million != 0; },
     [](Scenario& s) { s.world.network.loss_per_million = 0; }},
    {"network.queue_max", "bytes of loopback are not lost",
     [](const Scenario& s) { return s.world.network.queue_max != 0; },
     [](Scenario& s) { s.world.network.queue_max = 0; }},
    {"compute.max", "reductions take what they take", [](const Scenario& s) { return s.world.compute_max != 0; },
     [](Scenario& s) { s.world.compute_max = 0; }},
    {"disk", "the master's disk is that of this machine",
     [](const Scenario& s) {
         return s.world.disk_low != world_defaults.disk_low || s.world.disk_high != world_defaults.disk_high;
     },
     [](Scenario& s) {
         s.world.disk_low = world_defaults.disk_low;
         s.world.disk_high = world_defaults.disk_high;
     }},
    {"memory.symbolic", "real payload has content", [](const Scenario& s) { return s.world.symbolic; },
     [](Scenario& s) { s.world.symbolic = false; }},
    {"workload.many_window", "the call does not tell which tags were reduced among whom",
     [](const Scenario& s) { return s.workload.many_window != 0; }, [](Scenario& s) { s.workload.many_window = 0; }},
    {"workload.collectives_per_mille", "a process of the bridge launches all-reduces only",
     [](const Scenario& s) { return s.workload.collectives_per_mille != 0; },
     [](Scenario& s) { s.workload.collectives_per_mille = s.workload.sends_per_mille = 0; }},
    {"workload.interrupt_per_mille", "nothing leaves the run beside a call that waits",
     [](const Scenario& s) { return s.workload.interrupt_per_mille != 0; },
     [](Scenario& s) { s.workload.interrupt_per_mille = 0; }},
    {"workload.beside", "a process of the bridge makes one call at a time",
     [](const Scenario& s) { return s.workload.beside != 0; }, [](Scenario& s) { s.workload.beside = 0; }},
    {"peer masters=", "nobody plays the addresses at which nobody answers",
     [](const Scenario& s) {
         return std::any_of(s.peers.begin(), s.peers.end(), [](const PeerPlan& p) { return p.masters.size() != 1; });
     },
     [](Scenario& s) {
         for (PeerPlan& plan : s.peers) plan.masters = PeerPlan{}.masters;
     }},
    {"peer advertises, or two-interfaces", "all processes are on this machine",
     [](const Scenario& s) {
         return std::any_of(s.peers.begin(), s.peers.end(),
                            [](const PeerPlan& p) { return p.advertises || p.two_interfaces; });
     },
     [](Scenario& s) {
         for (PeerPlan& plan : s.peers) plan.advertises = plan.two_interfaces = false;
     }},
    {"peer nat=", "all processes are in one network",
     [](const Scenario& s) {
         return std::any_of(s.peers.begin(), s.peers.end(),
                            [](const PeerPlan& p) { return p.translator != sim::Translator::none; });
     },
     [](Scenario& s) {
         for (PeerPlan& plan : s.peers) plan.translator = sim::Translator::none;
     }},
    {"memory.wrong_chunks_per_million", "nothing makes a real sender's memory lie",
     [](const Scenario& s) { return s.world.wrong_chunks_per_million != 0; },
     [](Scenario& s) { s.world.wrong_chunks_per_million = 0; }},
    {"network.long_texts_per_million", "real processes say what they say",
     [](const Scenario& s) { return s.world.long_texts_per_million != 0; },
     [](Scenario& s) { s.world.long_texts_per_million = 0; }},
    {"memory.fails_per_million", "nothing makes the system refuse memory",
     [](const Scenario& s) { return s.world.allocation_fails_per_million != 0; },
     [](Scenario& s) { s.world.allocation_fails_per_million = 0; }},
    {"memory.staging_max", "nothing slows the disk for incoming state",
     [](const Scenario& s) { return s.world.staging_max != 0; }, [](Scenario& s) { s.world.staging_max = 0; }},
};

// Null: it can be played.
const char* why_not(const Fault& fault) {
    switch (fault.kind) {
    case FaultKind::partition:
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog:
    case FaultKind::interface:
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::crash_peer:
    case FaultKind::crash_master:
    case FaultKind::pause:
    case FaultKind::stall:
    case FaultKind::corrupt:
    case FaultKind::hang:
    case FaultKind::swizzle: break;
    case FaultKind::aimed_peer: return "a real process cannot be stopped between two effects";
    case FaultKind::aimed_master: return "a real process cannot be stopped between two effects";
    case FaultKind::torn_write:
    case FaultKind::older_journal:
    case FaultKind::empty_journal:
    case FaultKind::stop_master:
    case FaultKind::two_masters: return "nobody changes the journal of a real master";
    case FaultKind::full_disk:
    case FaultKind::slow_disk:
    case FaultKind::stuck_disk: return "the master's disk is that of this machine";
    case FaultKind::slow_compute: return "reductions take what they take";
    case FaultKind::revoke: return "the bridge's run is not secure, so nobody has a certificate";
    case FaultKind::roam: return "a process keeps its loopback address";
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap: return "the proxy passes on what it reads, whatever it is";
    case FaultKind::hostile:
    case FaultKind::replayed_hello: return "nobody plays the stranger";
    default: return "the bridge has no such fault";
    }
    if (fault.kind == FaultKind::pause && (fault.b & 1) != 0) return "processes cannot be stopped all at one instant";
    const bool of_a_connection = fault.kind == FaultKind::reset || fault.kind == FaultKind::end_early ||
                                 fault.kind == FaultKind::half_open || fault.kind == FaultKind::stall ||
                                 fault.kind == FaultKind::corrupt;
    if (of_a_connection && fault.b != 0) return "the proxy chooses from all connections";
    if (fault.follows != 0 || fault.again != 0 || fault.place != FaultPlace::named)
        return "the bridge plays each fault once, by the clock or by what the proxy reads";
    if (fault.forever) return "every fault of a real run heals when the faults end";
    if (fault.trigger == 0) return nullptr;
    const std::size_t effect = fault.trigger - 1;
    const bool seen_by_proxy = effect == sim::effect_index<SendPayload>() ||
                               effect == sim::effect_index<ReceivePayload>() ||
                               effect == sim::effect_index<SendFlow>() || effect == sim::effect_index<Compute>() ||
                               effect == sim::effect_index<SendControl>();
    return seen_by_proxy ? nullptr : "effects of this kind do not show in the network";
}

// The setting or fault as its line in the text.
std::string line_of(const Scenario& scenario, const std::string& begin) {
    const std::string text = to_text(scenario);
    const std::size_t at = text.find("\n" + begin) + 1;
    return text.substr(at, text.find('\n', at) - at);
}

}  // namespace

std::vector<std::string> unplayable(const Scenario& scenario) {
    std::vector<std::string> lines;
    for (const Unplayable& setting : settings) {
        if (setting.is_set(scenario))
            lines.push_back(formatted("{}: {}", line_of(scenario, setting.setting), setting.reason));
    }
    for (const Fault& fault : scenario.faults) {
        const char* reason = why_not(fault);
        if (reason == nullptr) continue;
        Scenario one;
        one.faults.push_back(fault);
        lines.push_back(formatted("{}: {}", line_of(one, "fault"), reason));
    }
    return lines;
}

Scenario playable_part(Scenario scenario) {
    for (const Unplayable& setting : settings) setting.drop(scenario);
    remove_faults(
        scenario.faults, [](const Fault& fault) { return why_not(fault) != nullptr; }, Followers::stay);
    return scenario;
}

}  // namespace pccl::harness
