// Checks the reasons in error messages (oracle `progress`): an error may blame others only with a cause.
//
// The error of a failed call may name another peer, or a limit, as the reason. Each such reason needs a cause at that
// time: a recorded hardship of a member of the group, or a call that was open for as long as the limit.
#include "core/base/format.hpp"
#include "harness/oracles.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

class Blames {
public:
    Blames(const Scenario& scenario, const Ledger& ledger, Excuses& excuses)
        : scenario_(scenario), ledger_(ledger), excuses_(excuses) {}

    // Empty if something in the run explains every cause that the completion names.
    std::string wrong(std::uint32_t life, Instant begin, Instant end, const Completion& completion) {
        if (end == open_end || completion.result == Result::success) return {};
        const auto says = [&](auto... kinds) { return (completion.cause.has(kinds) || ...); };
        // This message repeats why the membership ended. check_losses judges that, for the time when it happened.
        if (says(CauseKind::no_longer_a_member, CauseKind::gang_lost)) return {};
        // A liar can be the reason of any failure, while it lies and until the master has noticed.
        if (ledger_.lied(begin - excuses_.seat_kept(), end)) {
            excuses_.use(Excuse::liar);
            return {};
        }
        const bool edge = says(CauseKind::nothing_gets_to, CauseKind::edge_stuck);
        std::string reason;
        if ((edge || says(CauseKind::nothing_sent_by, CauseKind::nothing_new_from)) &&
            !hardship(edge ? Excuse::stuck_edge : Excuse::starved, life, begin, end))
            reason = "no fault held up a member of its group";
        else if (says(CauseKind::no_holder_left) && !hardship(Excuse::unreachable, life, begin, end))
            reason = "no fault kept members of its group apart";
        else if (says(CauseKind::edge_down) && !somebody_died(life, begin, end) &&
                 !excuses_.edge_down(group_of(life), begin, end))
            reason = "no two members of its group were apart for so long";
        else if (says(CauseKind::tag_failed_often) &&
                 end - begin + jumps(true) < 3 * scenario_.timeouts.peer - drift(3 * scenario_.timeouts.peer))
            reason = "the call was open for less than three peer time-outs";
        else if (completion.result == Result::invalid_usage && says(CauseKind::calls_crossed) &&
                 waited_too_short(begin, end))
            reason = "the call was open for less than the limit";
        else
            reason = without_a_cause(life, end, says);
        if (reason.empty()) return {};
        return formatted("{} on {} [{} us .. {} us]: {}, though {}", ledger_.name(life),
                         sim::Trace::name(ledger_.lives[life].node), begin / microsecond, end / microsecond,
                         to_text(completion.cause), reason);
    }

private:
    // Failures that only a setting of the scenario, or the end of another life, can cause.
    template <class Says>
    std::string without_a_cause(std::uint32_t life, Instant end, const Says& says) const {
        const sim::WorldParameters& world = scenario_.world;
        if (says(CauseKind::no_scratch_memory, CauseKind::no_memory_for_state) &&
            world.allocation_fails_per_million == 0 && scenario_.limits.operation_bytes_max == 0)
            return "no memory was refused";
        if (says(CauseKind::memory_late, CauseKind::no_memory_for_hashes) && world.staging_max == 0 &&
            world.allocation_fails_per_million == 0)
            return "no memory came late";
        if (says(CauseKind::holders_wrong) && world.wrong_chunks_per_million == 0) return "nobody sent wrong content";
        if (says(CauseKind::results_differ)) return "no fault reaches results";
        if (says(CauseKind::shapes_differ) && scenario_.workload.mismatch_per_mille == 0 &&
            scenario_.workload.collectives_per_mille == 0)
            return "all programs make the same calls";
        if (says(CauseKind::group_left_alone, CauseKind::group_left_alone_after, CauseKind::run_left_alone) &&
            !somebody_went(life, end, says(CauseKind::run_left_alone)))
            return "nobody went";
        return {};
    }
    // Until the master removes a dead member, its neighbours cannot reach it.
    bool somebody_died(std::uint32_t life, Instant begin, Instant end) const {
        return std::any_of(ledger_.lives.begin(), ledger_.lives.end(), [&](const Life& other) {
            return other.ended && other.group == ledger_.lives[life].group && other.gone_at <= end &&
                   excuses_.counted_until(other.gone_at) >= begin;
        });
    }
    // A removed member may learn it later, or never. Admitted strangers, and processes that a lasting fault stops, have
    // no life that ends: with either of them the answer is true.
    bool somebody_went(std::uint32_t life, Instant end, bool of_any_group) const {
        const Life& own = ledger_.lives[life];
        if (!ledger_.stranger_hellos.empty() ||
            std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& f) { return f.forever; }))
            return true;
        return std::any_of(ledger_.lives.begin(), ledger_.lives.end(), [&](const Life& other) {
            if (&other == &own || (!of_any_group && other.group != own.group)) return false;
            // It may have been admitted and removed before it learned of either.
            const bool connecting = other.asked_at <= end && (other.refused || other.connected_at >= end);
            return connecting || other.lost ||
                   (other.member_until <= end && (other.ended || other.gone_at != open_end));
        });
    }
    std::vector<std::uint32_t> group_of(std::uint32_t life) const {
        std::vector<std::uint32_t> group;
        for (std::uint32_t node = 1; node <= scenario_.peers.size(); ++node) {
            if (scenario_.peers[node - 1].group == ledger_.lives[life].group) group.push_back(node);
        }
        return group;
    }
    bool hardship(Excuse excuse, std::uint32_t life, Instant begin, Instant end) {
        return excuses_.hard_for(excuse, group_of(life), begin, end);
    }
    bool waited_too_short(Instant begin, Instant end) const {
        const Duration limit = scenario_.timeouts.vote;
        return limit == 0 || end - begin + jumps(false) < limit - drift(limit);
    }
    Duration drift(Duration time) const { return 2 * time * scenario_.world.drift_ppm / 1'000'000; }
    // The sum of forward jumps of the master's clock. With `members` also those of all peers, because one member that
    // gives up ends the operation for all. A jump without a named node always counts.
    Duration jumps(bool members) const {
        Duration by = 0;
        for (const Fault& fault : scenario_.faults) {
            if (fault.kind != FaultKind::clock_jump) continue;
            if (members || fault.place != FaultPlace::named || fault.a % (scenario_.peers.size() + 1) == 0)
                by += fault.duration * (fault.again + 1);
        }
        return by;
    }

    const Scenario& scenario_;
    const Ledger& ledger_;
    Excuses& excuses_;
};

}  // namespace

sim::Violation check_blames(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    Blames blames(scenario, ledger, excuses);
    const auto check = [&](const auto& facts) -> std::string {
        for (const auto& fact : facts) {
            std::string wrong = blames.wrong(fact.life, fact.begin, fact.end, fact.completion);
            if (!wrong.empty()) return wrong;
        }
        return {};
    };
    for (const std::string& wrong : {check(ledger.launches), check(ledger.syncs), check(ledger.votes)}) {
        if (!wrong.empty()) return {"progress", wrong};
    }
    return {};
}

}  // namespace pccl::harness
