// The training program of each process, simulated or real: the loops that users write, with choices drawn per scenario.
#include "core/base/format.hpp"
#include "harness/process.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace pccl::harness {

using namespace core;

Task<void> Process::main() {
    std::uint32_t turns = plan_.turns;
    while (!stopping() && (turns != 0 || has_goal())) {
        if (!co_await connect()) {
            co_await sleep(draw_.log_uniform(millisecond, 500 * millisecond));
            continue;
        }
        bool member = true;
        for (bool first = true; member && (turns != 0 || has_goal()) && !stopping(); first = false) {
            member = scenario_.workload.beside != 0 ? co_await membership_beside() : co_await membership(first);
            if (turns != 0 && !waited_) --turns;
            // A program that only waits for the faults to end does no work meanwhile.
            if (member && turns == 0 && has_goal()) co_await sleep(scenario_.chaos_end - now());
            if (member && (turns != 0 || has_goal()))
                co_await sleep(draw_.log_uniform(microsecond, scenario_.workload.compute_max));
        }
        if (member) break;
        co_await end_collectives();
        if (!plan_.rejoins && !has_goal()) break;
        if (draw_.chance(300'000)) {
            revision_ = scenario_.workload.first_revision;
        }
        if (turns != 0) --turns;
        const Duration pause = draw_.log_uniform(millisecond, 300 * millisecond);
        // Some programs connect again at once.
        sim::Draw own(sim::mix(scenario_.seed, sim::mix(870, sim::mix(node_, life_))));
        if (!own.chance(150'000)) co_await sleep(pause);
    }
    while (lie_ == Lie::never_ends) co_await sleep(second);
    if (connected_) {
        // Half of the programs leave while their other threads are at work.
        if (!collectives_ended_ && draw_.chance(500'000)) co_await end_collectives();
        co_await leave_the_run();
    }
    co_await end_collectives();
    if (interrupting_) co_await wait(interrupt_returned_);
    finished_ = true;
    world_.program_ended(node_);
}

// Whether to raise the revision after a failure. Mostly all members make this mistake together, because they run the
// same program.
bool Process::raises_all_the_same() {
    const std::uint32_t per_million = scenario_.workload.hasty_revision_per_mille * 1000;
    if (draw_.chance(300'000)) return draw_.chance(per_million);
    return sim::Draw(sim::mix(scenario_.seed, sim::mix(700 + plan_.group, revision_))).chance(per_million);
}

// The expected revision that a refused synchronization names.
static std::optional<std::uint64_t> expected_revision(const Cause& cause) {
    for (const CauseKind kind : {CauseKind::nobody_has_revision, CauseKind::nobody_sends_revision}) {
        if (cause.kind == kind) return cause.numbers[0];
    }
    return std::nullopt;
}

// One turn of the loop. False: not a member any more.
Task<bool> Process::membership(bool first_turn) {
    waited_ = false;
    renewed_ = first_turn;
    if (!first_turn && !co_await renew()) co_return false;
    if (stopping()) co_return true;
    // A program that does not skip the update in its first turn. The others do not make this call.
    if (first_turn && scenario_.workload.early_update_per_mille != 0 &&
        draw_.chance(scenario_.workload.early_update_per_mille * 1000)) {
        const Completion c = co_await vote(CallKind::update_topology);
        if (c.result != Result::success && !co_await still_member(c)) co_return false;
        if (stopping()) co_return true;
    }
    if (first_turn && scenario_.workload.visit_per_mille != 0 && now() < scenario_.chaos_end &&
        draw_.chance(scenario_.workload.visit_per_mille * 1000))
        co_return co_await leave();
    // A program that is out of step with the others. Only a vote limit can end this.
    if (scenario_.workload.cross_per_mille != 0 && scenario_.timeouts.vote != 0 && now() < scenario_.chaos_end &&
        draw_.chance(scenario_.workload.cross_per_mille * 1000)) {
        const Completion c = co_await vote(CallKind::update_topology);
        if (c.result != Result::success && !co_await still_member(c)) co_return false;
    }
    if (scenario_.workload.world_min > 1 && attributes_.group_world < scenario_.workload.world_min) {
        waited_ = true;
        co_await sleep(draw_.log_uniform(100 * millisecond, second));
        co_return true;
    }
    if (renewed_ && scenario_.workload.optimize_per_mille != 0 && !co_await optimize()) co_return false;
    if (attributes_.group_world < 2 && draw_.chance(700'000)) {
        // Alone: a program waits for others; sometimes it synchronizes or tries all the same.
        co_await sleep(draw_.log_uniform(millisecond, 300 * millisecond));
        co_return true;
    }
    // Members that send only, but differ, cause each other's removal. If a core must work in the end, this ends with
    // the faults.
    const bool drifts = scenario_.claim != Claim::core || now() < scenario_.chaos_end;
    if (drifts && scenario_.workload.drift_per_mille != 0 && draw_.chance(scenario_.workload.drift_per_mille * 1000)) {
        // All bytes, or one byte of each entry.
        const bool all = draw_.chance(500'000);
        for (const StateEntry& entry : entries_) {
            std::vector<std::uint8_t>& bytes = memory(entry.buffer);
            if (all) {
                for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw_.bits());
            } else if (!bytes.empty()) {
                bytes[draw_.below(bytes.size())] ^= static_cast<std::uint8_t>(1 + draw_.below(255));
            }
        }
    }
    if (scenario_.workload.sync) {
        const Completion c = co_await sync();
        if (c.result != Result::success) {
            if (!co_await still_member(c)) {
                if (interrupted_by(now())) co_return false;
                ledger_.lives[life_].refused_revision = c.result == Result::invalid_usage;
                if (c.result == Result::invalid_usage && ++refusals_ > 1) revision_ = scenario_.workload.first_revision;
                co_return false;
            }
            // All members were started again, and none holds the state that the group expects. Some programs take the
            // revision that the message names. The others leave, and the run begins anew when the last of them has
            // left. They wait before they come back: otherwise members that are about to leave would admit them.
            if (c.result == Result::invalid_usage && ++refusals_ > 3) {
                refusals_ = 0;
                if (const auto expected = expected_revision(c.cause); expected && draw_.chance(500'000)) {
                    revision_ = *expected;
                    hasty_ = false;
                    co_return true;
                }
                (void)co_await leave_in_flight();
                co_await sleep(draw_.log_uniform(second, 10 * second));
                co_return false;
            }
            // A loop that takes its own turn counter as revision goes on counting after a failure.
            if (hasty_) {
                if (revision_ != 0) --revision_;  // it may have been reset to 0 meanwhile
                hasty_ = false;
            } else if (raises_all_the_same()) {
                ++revision_;
                hasty_ = true;
            }
            co_return true;
        }
        revision_ = c.revision + 1;
        hasty_ = false;
        refusals_ = 0;
        save_checkpoint();
    }
    co_await sleep(draw_.log_uniform(microsecond, scenario_.workload.compute_max));
    if (draw_.chance(scenario_.workload.leave_in_flight_per_mille * 1000)) co_return co_await leave_in_flight();
    if (scenario_.workload.many_window != 0 && !tensors_.empty()) co_return co_await reduce_many();
    co_return co_await reduce_all();
}

Task<bool> Process::renew() {
    if (scenario_.workload.pump) {
        for (;;) {
            const Completion c = co_await vote(CallKind::are_peers_pending);
            if (c.result == Result::success) {
                if (!c.pending) co_return true;
                break;
            }
            if (!co_await still_member(c)) co_return false;
            if (stopping()) co_return true;
        }
    }
    for (;;) {
        const Completion c = co_await vote(CallKind::update_topology);
        renewed_ = c.result == Result::success;
        if (renewed_) co_return true;
        if (!co_await still_member(c)) co_return false;
        if (stopping()) co_return true;
    }
}

// All members have the same epoch from the update that has just returned. They draw by it, so either all of them call
// optimize or none does.
Task<bool> Process::optimize() {
    sim::Draw draw(sim::mix(scenario_.seed, sim::mix(801, epoch_seen_)));
    if (!draw.chance(scenario_.workload.optimize_per_mille * 1000)) co_return true;
    if (attributes_.global_world < 2) {
        const Completion alone = co_await call(CallKind::optimize, CommandOptimizeTopology{});
        if (alone.result != Result::invalid_usage && alone.result != Result::topology_optimization_failed)
            world_.violate("contract", std::string("a lone peer's optimize gave ") + sim::to_text(alone.result));
        co_return true;
    }
    const Completion c = co_await vote(CallKind::optimize);
    if (c.result == Result::success) co_return true;
    if (c.result != Result::topology_optimization_failed && !given_up(c) && !destroyed())
        world_.violate("contract", formatted("an optimize gave {}: {}", sim::to_text(c.result), to_text(c.cause)));
    co_return co_await still_member(c);
}

// Sometimes makes a call that must wait until every launched tag was awaited.
Task<void> Process::call_beside_a_launch() {
    sim::Draw draw(sim::mix(scenario_.seed, sim::mix(862, sim::mix(number_, ledger_.launches.size()))));
    if (!draw.chance(lie_ == Lie::let_through ? 1'000'000 : 4'000)) co_return;
    Completion early;
    const std::uint64_t which = draw.below(3);
    if (which == 0) {
        early = co_await call(CallKind::update_topology, CommandUpdateTopology{});
    } else if (which == 1) {
        early = co_await call(CallKind::optimize, CommandOptimizeTopology{});
    } else {
        CommandSync command;
        command.revision = revision_;
        command.entries = entries_;
        early = co_await call(CallKind::sync, std::move(command));
    }
    if (lie_ == Lie::let_through) early.result = Result::success;
    const bool lost = early.attributes.global_world < 2 || attributes_.global_world < 2;
    if (early.result != Result::pending_async_ops && !lost && !destroyed())
        world_.violate("contract", std::string("a call beside a launched tag gave ") + sim::to_text(early.result));
}

// Launches all tags at once and awaits them in a random order. If a tag failed because a member was lost, all members
// retry it.
Task<bool> Process::reduce_all() {
    const Workload& w = scenario_.workload;
    const Instant begin = now();
    std::vector<std::size_t> open(tensors_.size());
    for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
    for (const std::size_t i : open) refill(tensors_[i]);
    bool all_good = true, gives_up = false;
    for (int round = 0; !open.empty(); ++round) {
        begin_round();
        shuffle(open);
        std::vector<std::size_t> launched;
        for (const std::size_t i : open) {
            const bool mismatched = draw_.chance(w.mismatch_per_mille * 1000);
            const Completion c = co_await launch(i, mismatched);
            if (c.result != Result::success) {
                all_good = false;
                if (c.result == Result::too_few_peers) continue;
                if (c.result != Result::rank_connection_lost && !destroyed())
                    world_.violate("contract", std::string("a launch was refused with ") + sim::to_text(c.result));
                continue;
            }
            launched.push_back(i);
            co_await call_beside_a_launch();
            if (draw_.chance(w.twice_per_mille * 1000)) {
                CommandLaunch again;
                again.tag = tensors_[i].tag;
                again.shape = tensors_[i].shape;
                again.send = again.receive = tensors_[i].send;
                const Completion twice = co_await call(CallKind::launch, again);
                if (twice.result != Result::invalid_argument && twice.result != Result::too_few_peers && !destroyed()) {
                    world_.violate("contract", std::string("a tag launched twice gave ") + sim::to_text(twice.result));
                }
            }
            if (draw_.chance(100'000)) co_await sleep(draw_.log_uniform(microsecond, w.compute_max));
        }
        shuffle(launched);
        std::vector<std::size_t> failed;
        bool last_lost = false;
        Completion last;
        for (const std::size_t i : launched) {
            const Completion c = co_await await(i);
            if (c.result == Result::success) continue;
            last = c;
            last_lost = true;
            if (c.result == Result::rank_connection_lost) {
                failed.push_back(i);
            } else if (c.result != Result::invalid_argument && c.result != Result::too_few_peers && !given_up(c)) {
                world_.violate("contract", std::string("an await gave ") + sim::to_text(c.result));
            } else {
                all_good = false;
            }
        }
        if (last_lost && !co_await still_member(last)) co_return false;
        if (stopping() || attributes_.group_world < 2 || round > 20) {
            gives_up = !failed.empty();
            if (gives_up) all_good = false;
            break;
        }
        std::sort(failed.begin(), failed.end());
        open = failed;
    }
    // The others may try again, and send when they have succeeded.
    if (!gives_up && !co_await exchange(begin)) co_return false;
    if (!all_good && attributes_.global_world <= 1) {
        Completion alone;
        if (!co_await still_member(alone)) co_return false;
    }
    if (all_good && !tensors_.empty() && attributes_.group_world > 1) {
        apply();
        save_checkpoint();
    }
    co_return true;
}

// Whether the failure is a legal way to give up. The master may give up a vote, or a member may be unable to run an
// operation, only if there is a limit and the error names it. A tag of many may fail again and again; check_blames then
// compares the error with the duration of the call.
bool Process::given_up(const Completion& completion) const {
    const Cause& cause = completion.cause;
    if (cause.has(CauseKind::too_many_members)) return true;  // check_collectives judges it
    // A member that lies may say that it gives a tag up, for any reason, or that it can never run an operation.
    const bool lies = has_liars(scenario_);
    if (completion.result == Result::internal_error)
        return cause.has(CauseKind::tag_failed_often) || (lies && cause.has(CauseKind::tag_given_up));
    if (lies && cause.has(CauseKind::member_cannot)) return true;
    return completion.result == Result::invalid_usage &&
           ((scenario_.timeouts.vote != 0 &&
             (cause.has(CauseKind::calls_crossed) || cause.has(CauseKind::vote_awaited))) ||
            (scenario_.limits.operation_bytes_max != 0 &&
             (cause.has(CauseKind::no_scratch_left) || cause.has(CauseKind::scratch_limit))));
}

// Reduces all tags in one call, in a random order and with a random window.
Task<bool> Process::reduce_many() {
    const Workload& w = scenario_.workload;
    std::vector<std::size_t> order(tensors_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (const std::size_t i : order) refill(tensors_[i]);
    shuffle(order);
    CommandReduceMany command;
    command.window = static_cast<std::uint32_t>(draw_.log_uniform(1, w.many_window));
    for (const std::size_t i : order)
        command.launches.push_back(prepare_launch(i, draw_.chance(w.mismatch_per_mille * 1000)));
    const std::uint32_t window = command.window;
    Completion c = co_await call(CallKind::reduce_many, std::move(command));
    const bool refused = c.worlds.empty();
    if (refused) c.worlds.assign(order.size(), 0);
    if (lie_ == Lie::window_passed) c.peak = window + 1;
    // A member that lies may tell the master another window than its program's.
    if (c.peak > window && !world_.lied(node_))
        world_.violate("window", formatted("{} ran {} operations at a time, with a window of {}",
                                           sim::Trace::name(node_), c.peak, window));
    if (c.result != Result::success && c.result != Result::too_few_peers && c.result != Result::invalid_argument &&
        !given_up(c) && !destroyed())
        world_.violate("contract", std::string("a call for many tags gave ") + sim::to_text(c.result));
    if (c.result == Result::too_few_peers && attributes_.group_world > 1)
        world_.violate("contract",
                       formatted("a call for many tags found too few peers in a group of {}", attributes_.group_world));
    bool all_reduced = true;
    for (std::size_t k = 0; k < order.size(); ++k) {
        Completion one = c;
        one.world = c.worlds[k];
        one.result = one.world != 0 ? Result::success : c.result;
        all_reduced = all_reduced && one.world != 0;
        if (one.world == 0 && c.result == Result::success)
            world_.violate("value", formatted("a call for many tags succeeded, and tag {} is not reduced",
                                              tensors_[order[k]].tag));
        tensors_[order[k]].launched = true;
        returned(order[k], one);
        if (!refused) continue;
        // It was not launched, so no other member can have counted it.
        LaunchFact& fact = ledger_.launches[tensors_[order[k]].launch];
        fact.end = fact.begin;
    }
    if (c.result != Result::success && !co_await still_member(c)) co_return false;
    if (all_reduced && attributes_.group_world > 1) {
        apply();
        save_checkpoint();
    }
    co_return true;
}

// Launches all tags and leaves without waiting. It comes back as a newcomer.
Task<bool> Process::leave_in_flight() {
    begin_round();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        refill(tensors_[i]);
        (void)co_await launch(i, false);
    }
    co_return co_await leave();
}

Task<void> Process::leave_the_run() {
    if (interrupting_) co_await wait(interrupt_returned_);
    interrupted_at_ = std::min(interrupted_at_, now());
    destroyed_ = true;
    Life& own = ledger_.lives[life_];
    own.leaves_at = std::min(own.leaves_at, now());  // another thread may have aborted it before
    const Completion c = co_await call(CallKind::leave, CommandLeave{});
    if (c.result != Result::success) world_.violate("progress", "leave failed");
    life_ended();
    connected_ = false;
}

Task<bool> Process::leave() {
    co_await leave_the_run();
    for (Tensor& tensor : tensors_) {
        // It is not known whether these operations were committed before this peer left, so either content is legal.
        tensor.waiting = false;
        tensor.untouched_since = false;
    }
    co_return false;
}

}  // namespace pccl::harness
