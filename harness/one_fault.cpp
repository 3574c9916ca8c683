#include "harness/one_fault.hpp"

#include "core/base/format.hpp"
#include "core/state_sync/receiver.hpp"
#include "harness/even_world.hpp"
#include "harness/ledger.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include "net-sim/driver.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

// Largest count of a trigger: a run has hundreds of control messages, and as many slices.
constexpr std::int64_t messages_most = 400;
// One end of a connection that was reset may notice it so late.
constexpr Duration noticed_late = 300 * millisecond;

struct Wait {
    Duration longest = 0;
    std::string who;
    Instant end = 0;
};

// For each call that returned after `from`: the time before its return in which no program did anything. Returns the
// longest one. The time before the last action of a program does not count, because programs may be late for their own
// reasons.
Wait longest_wait(const Ledger& ledger, Instant from) {
    std::vector<Instant> signs{from};
    const auto each = [&](const auto& visit) {
        for (const VoteFact& fact : ledger.votes) visit(fact, to_text(fact.kind));
        for (const LaunchFact& fact : ledger.launches) visit(fact, "reduction");
        for (const SyncFact& fact : ledger.syncs) visit(fact, "synchronization");
    };
    each([&](const auto& fact, const char*) {
        signs.push_back(fact.begin);
        if (fact.end != open_end) signs.push_back(fact.end);
    });
    for (const LaunchFact& fact : ledger.launches) signs.push_back(fact.awaited);
    for (const Life& life : ledger.lives) {
        if (life.leaves_at != open_end) signs.push_back(life.leaves_at);
    }
    std::sort(signs.begin(), signs.end());
    Wait wait;
    each([&](const auto& fact, const char* what) {
        if (fact.end == open_end || fact.end == fact.begin || fact.end <= from) return;
        const Instant last = *std::prev(std::lower_bound(signs.begin(), signs.end(), fact.end));
        if (fact.end - last > wait.longest)
            wait = {fact.end - last, formatted("{} {}", ledger.name(fact.life), what), fact.end};
    });
    return wait;
}

}  // namespace

void draw_one_fault(Scenario& s, Draw& draw) {
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    if (peers < 2) return;
    s.claim = Claim::all_end;
    s.core.clear();
    const Duration peer = s.timeouts.peer;
    const Duration longest = 16 * peer + s.timeouts.grace();  // longer than any call may wait for the fault
    // A peer that gives up the master at once would come back as another peer.
    s.timeouts.master = std::max(s.timeouts.master, 5 * second);
    Fault f;
    f.a = draw.number(1, peers);
    f.b = 1 + (f.a - 1 + draw.number(1, peers - 1)) % peers;
    f.value = draw.bits();
    switch (draw.number(0, peers > 3 ? 8 : 6)) {
    case 0:
        f.kind = FaultKind::reset;
        f.b = 0;
        if (draw.chance(500'000)) f.b = aim_control;
        break;
    case 1:
        f.kind = FaultKind::stall;
        f.b = 0;
        if (draw.chance(300'000)) f.b = aim_control;
        f.duration = draw.log_uniform(millisecond, peer / 2);
        break;
    case 2:
        f.kind = FaultKind::crash_peer;
        f.value &= ~std::uint64_t{3};
        break;
    case 3:
        f.kind = FaultKind::crash_peer;
        f.value = (f.value & ~std::uint64_t{3}) | 1;
        break;
    case 4:
        f.kind = FaultKind::crash_master;
        f.duration = draw.log_uniform(millisecond, s.timeouts.master / 2);
        f.value |= 1;
        break;
    case 5:
        f.kind = FaultKind::pause;
        f.a = draw.number(0, peers);
        f.b = 0;
        f.duration = draw.log_uniform(millisecond, peer / 2);
        break;
    case 6:
        f.kind = FaultKind::half_open;
        f.b = 0;
        f.value &= ~(std::uint64_t{3} << 32);
        break;
    case 7:
        f.kind = FaultKind::swallow;
        f.value = draw.number(0, 200);
        f.duration = longest;
        break;
    default:
        // This case and the one before it need more than three peers. Among three all are neighbours, so one of the two
        // separated peers would be removed.
        f.kind = FaultKind::cut_pair;
        f.duration = longest;
        break;
    }
    static const std::uint32_t effects[] = {
        static_cast<std::uint32_t>(sim::effect_index<SendControl>()) + 1,
        static_cast<std::uint32_t>(sim::effect_index<SendPayload>()) + 1,
        static_cast<std::uint32_t>(sim::effect_index<ReceivePayload>()) + 1,
    };
    f.trigger = effects[draw.below(3)];
    f.trigger_count = static_cast<std::uint32_t>(draw.log_uniform(1, messages_most));
    f.at = draw.chance(300'000) ? draw.log_uniform(microsecond, 100 * millisecond) : 0;
    Draw keys(sim::mix(s.seed, 262));
    if (s.workload.sync && keys.chance(150'000)) {
        // Members submit different keys, and the fault comes while the master compares them.
        s.workload.schema_per_mille = keys.number(100, 600);
        if (keys.chance(500'000)) s.limits.control_bytes_max = core::control_bytes_least;
        f.trigger = trigger_of(keys.chance(500'000) ? Phase::key_request : Phase::keys);
        f.trigger_count = keys.number(1, 6);
        f.at = keys.chance(500'000) ? 0 : keys.log_uniform(microsecond, 4 * s.world.network.latency_high + microsecond);
        if (keys.chance(600'000)) {
            f.kind = FaultKind::reset;
            f.b = aim_control | aim_named;
        }
    }
    s.faults.push_back(f);
    s.chaos_end = busy_time(s) + f.duration + second;
}

Scenario without_faults(const Scenario& scenario) {
    Scenario s = scenario;
    s.faults.clear();
    return s;
}

bool has_one_fault(const Scenario& s) {
    if (s.faults.size() != 1 || s.faults.front().again != 0) return false;
    if (!s.even || !has_equal_paths(s) || !is_even(without_faults(s))) return false;
    switch (s.faults.front().kind) {
    case FaultKind::reset:
    case FaultKind::stall:
    case FaultKind::crash_peer:
    case FaultKind::crash_master:
    case FaultKind::pause:
    case FaultKind::half_open:
    case FaultKind::cut_pair:
    case FaultKind::swallow: return true;
    default: return false;
    }
}

static Duration dialled_again(const Scenario& s) {
    return 2 * s.timeouts.redial_longest() + 40 * s.world.network.latency_high + s.timeouts.tick();
}

// Worst case: the member is silent, and its link closes just before the peer time-out. Only then does the time begin in
// which it may resume.
static Duration delay_of_death(const Scenario& s) { return 2 * s.timeouts.peer + dialled_again(s); }

Duration delay_of_fault(const Scenario& s) {
    const Fault& f = s.faults.front();
    const Timeouts& t = s.timeouts;
    const Duration again = dialled_again(s);
    switch (f.kind) {
    // One end may notice the reset late, or only by the silence of the other end.
    case FaultKind::reset: return again + std::min<Duration>(noticed_late, t.peer + t.tick());
    case FaultKind::stall:
    case FaultKind::pause: return f.duration + again;
    case FaultKind::crash_peer: return delay_of_death(s);
    case FaultKind::crash_master: return f.duration + t.grace() + again;
    // The connection may also be a newcomer's. Its welcome may wait for the disk.
    case FaultKind::half_open: return 6 * t.peer + t.dial + t.handshake + again;
    default: break;
    }
    if (!s.workload.sync) return 4 * t.peer + t.dial + again;
    // A synchronization without progress is given up for all members. If each connection carries its first bytes, a
    // list is fetched again on each, which counts as progress a few times. The loss that follows is noticed after a
    // peer time-out, and the holder rests before it is asked again.
    const Duration lists_again = f.kind == FaultKind::swallow ? (beginnings_max - 1) * 2 * t.peer : 0;
    return 9 * t.peer + t.grace() + lists_again + again;
}

// Time for a state whose chunks are requested one after another. It is added because the fault may change which peer
// receives the state.
static Duration transfer_time(const Scenario& s) {
    if (!s.workload.sync) return 0;
    const std::int64_t chunks = 1 + 8ll * s.workload.state_elements_max / s.limits.chunk_bytes;
    return s.workload.entries * chunks * 2 * s.world.network.latency_high / s.limits.chunks_in_flight;
}

// Time for a call for many tags of all members, of which one lets a single tag run at a time. It is added because the
// fault may change which members make such a call together.
static Duration one_after_another_time(const Scenario& s) {
    return s.workload.many_window == 0 ? 0 : rounds_time(s, 1);
}

// Who leaves while its connection to the master is broken cannot say so, and counts as one that has died. Nobody is
// given up before the peer time-out.
static bool waits_for_who_left_unheard(const Scenario& s, const Ledger& ledger, const Wait& wait) {
    const Instant from = ledger.disturbed_at;
    const Instant until = from + noticed_late + 2 * s.timeouts.redial_min + 10 * s.world.network.latency_high;
    return s.faults.front().kind == FaultKind::reset && wait.end >= from + s.timeouts.peer &&
           std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
               return life.leaves_at != open_end && life.leaves_at >= from && life.leaves_at <= until;
           });
}

sim::Violation check_delay(const Scenario& scenario, const Ledger& ledger, const Ledger& without) {
    const Wait wait = longest_wait(ledger, ledger.disturbed_at);
    const Duration usual = longest_wait(without, 0).longest;
    const Duration surveyed = scenario.workload.optimize_per_mille != 0 ? scenario.timeouts.survey : 0;
    if (ledger.disturbed_at == open_end) return {};
    const Duration delay =
        waits_for_who_left_unheard(scenario, ledger, wait) ? delay_of_death(scenario) : delay_of_fault(scenario);
    const Duration allowed = delay + transfer_time(scenario) + surveyed + one_after_another_time(scenario);
    if (wait.longest <= usual + allowed) return {};
    return {"waiting", formatted("{}, which returned at {} ms, waited for {} ms; without the fault nobody waits for "
                                 "more than {} ms, and it may cost {} ms",
                                 wait.who, wait.end / millisecond, wait.longest / millisecond, usual / millisecond,
                                 allowed / millisecond)};
}

}  // namespace pccl::harness
