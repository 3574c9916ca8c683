#include "harness/canary.hpp"

#include "harness/run.hpp"

#include <algorithm>
#include <iterator>

namespace pccl::harness {

using namespace core;

namespace {

struct Kind {
    const char* name;
    const char* oracle;
};
constexpr Kind kinds[] = {{"the truth", ""},
                          {"one wrong byte in everybody's result", "value"},
                          {"one wrong byte in one result", "parity"},
                          {"an operation failed for one member", "one-outcome"},
                          {"an operation with another world for one member", "membership"},
                          {"an input changed by an operation out of place", "restore"},
                          {"a buffer changed after the return", "no-phantom"},
                          {"another state for one member", "parity"},
                          {"a state that nobody had", "value"},
                          {"a synchronization failed for one member", "one-outcome"},
                          {"a revision was left out", "revision"},
                          {"the next revision was refused", "revision"},
                          {"a world that is too large", "membership"},
                          {"a world that is too small", "membership"},
                          {"another answer about pending peers for one member", "membership"},
                          {"a member lost for nothing", "membership"},
                          {"bytes received by a member that only sends", "election"},
                          {"an application that never ends", "progress"}};
static_assert(std::size(kinds) == static_cast<std::size_t>(Lie::count));

// Three members, all calls of the interface, no fault.
Scenario quiet() {
    Scenario s;
    s.seed = 1;
    for (std::uint32_t i = 0; i < 3; ++i) {
        PeerPlan plan;
        plan.turns = 6;
        s.peers.push_back(plan);
    }
    s.limits.slice_bytes = 64;
    s.limits.eager_bytes = 128;
    s.limits.chunk_bytes = 64;
    s.limits.payload_bytes_max = 4096;
    s.workload.pump = false;
    s.workload.tags = 2;
    s.workload.elements_max = 64;
    s.workload.in_place_per_mille = 0;
    s.timeouts.peer = 5 * second;
    s.timeouts.master = 10 * second;
    s.chaos_end = 5 * second;
    s.stop_after = second;
    s.patience = 60 * second;
    return s;
}

bool good(const Completion& completion, Instant end) { return end != open_end && completion.result == Result::success; }

// The last operation, or synchronization, that all three members completed.
std::vector<LaunchFact*> last_operation(Ledger& ledger) {
    for (auto last = ledger.launches.rbegin(); last != ledger.launches.rend(); ++last) {
        std::vector<LaunchFact*> members;
        for (LaunchFact& fact : ledger.launches) {
            if (good(fact.completion, fact.end) && fact.completion.world == 3 && fact.tag == last->tag &&
                fact.shape.count != 0 && fact.begin < last->end && last->begin < fact.end) {
                members.push_back(&fact);
            }
        }
        if (members.size() == 3) return members;
    }
    return {};
}

std::vector<SyncFact*> last_sync(Ledger& ledger) {
    for (auto last = ledger.syncs.rbegin(); last != ledger.syncs.rend(); ++last) {
        std::vector<SyncFact*> members;
        for (SyncFact& fact : ledger.syncs) {
            if (good(fact.completion, fact.end) && fact.revision == last->revision && !fact.after.empty())
                members.push_back(&fact);
        }
        if (members.size() == 3) return members;
    }
    return {};
}

VoteFact* last_vote(Ledger& ledger, CallKind kind) {
    for (auto fact = ledger.votes.rbegin(); fact != ledger.votes.rend(); ++fact) {
        if (fact->kind == kind && good(fact->completion, fact->end) && fact->completion.attributes.global_world == 3)
            return &*fact;
    }
    return nullptr;
}

bool synced_later(const Ledger& ledger, const SyncFact& fact) {
    return std::any_of(ledger.syncs.begin(), ledger.syncs.end(), [&](const SyncFact& other) {
        return other.life == fact.life && other.begin > fact.begin && good(other.completion, other.end);
    });
}

void fail(Completion& completion, Result result) {
    completion.result = result;
    completion.message = "increment";
}

}  // namespace

void tamper(Ledger& ledger, Lie lie) {
    const std::vector<LaunchFact*> operation = last_operation(ledger);
    const std::vector<SyncFact*> sync = last_sync(ledger);
    if (operation.size() < 3 || sync.size() < 3) return;  // nothing to lie about: the line will say so
    switch (lie) {
    case Lie::value_of_all:
        for (LaunchFact* fact : operation) fact->output[0] ^= 1;
        break;
    case Lie::parity_of_one: operation.back()->output[0] ^= 1; break;  // behind one that is right
    case Lie::outcome_of_one: fail(operation[0]->completion, Result::rank_connection_lost); break;
    case Lie::world_of_one: ++operation[0]->completion.world; break;
    case Lie::state_of_one: sync[0]->after[0] ^= 1; break;
    case Lie::state_of_all:
        for (SyncFact* fact : sync) fact->after[0] ^= 1;
        break;
    case Lie::sync_of_one:
        // One that its member did not follow up: else the gap in its revisions is seen first.
        for (SyncFact* fact : sync) {
            if (!synced_later(ledger, *fact)) fail(fact->completion, Result::internal_error);
        }
        break;
    case Lie::revision_skipped:
        for (SyncFact* fact : sync) ++fact->completion.revision;
        break;
    case Lie::revision_refused:
        for (SyncFact* fact : sync) fail(fact->completion, Result::invalid_usage);
        break;
    case Lie::world_too_large:
    case Lie::world_too_small:
        for (VoteFact& fact : ledger.votes) {
            Attributes& attributes = fact.completion.attributes;
            if (fact.kind != CallKind::update_topology || attributes.global_world != 3) continue;
            attributes.global_world += lie == Lie::world_too_large ? 1 : -1u;
            attributes.group_world = attributes.largest_group = attributes.global_world;
        }
        break;
    case Lie::pending_to_one:
        if (VoteFact* fact = last_vote(ledger, CallKind::are_peers_pending)) {
            fact->completion.pending = !fact->completion.pending;
        }
        break;
    case Lie::sender_received:
        for (SyncFact* fact : sync) {
            fact->strategy = SyncStrategy::send_only;
            fact->completion.received_bytes = 1;
        }
        break;
    case Lie::lost_for_nothing: ledger.lives.back().lost = true; break;
    default: break;
    }
}

std::vector<CanaryLine> run_canary() {
    std::vector<CanaryLine> lines;
    for (std::size_t i = 0; i < std::size(kinds); ++i) {
        Scenario scenario = quiet();
        RunOptions options;
        options.lie = static_cast<Lie>(i);
        scenario.workload.pump = options.lie == Lie::pending_to_one;
        const Verdict verdict = run(scenario, options);
        lines.push_back(CanaryLine{kinds[i].name, kinds[i].oracle, verdict.violation.oracle});
    }
    return lines;
}

}  // namespace pccl::harness
