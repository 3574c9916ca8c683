// Programs with more than one thread: collectives that run beside updates of the topology, run-wide calls made while
// another one is open, and a thread that aborts or destroys the communicator while others are at work.
//
// A program that keeps these rules comes to its end:
//  - All members make their run-wide calls in the same order: some calls of are_peers_pending, then an update. Or each of
//    them is on a thread of its own, and every turn makes the same number of them: then the order may differ. The last
//    of them may be an optimize instead. A newcomer may have to join in the calls of the turn before. It stays so many
//    behind the others, which does no harm.
//  - One kind of collective runs beside them: all tags, or synchronizations. A member that joins in the middle of a
//    round misses the operations that were decided before its admission, so it is at most one operation of a tag behind
//    the others. A round launches each tag equally often and retries nothing. It ends whatever the update does.
//  - An update is called between two rounds, because launched tags must have been awaited. Beside synchronizations it
//    is sometimes called in the middle. The next round begins as soon as the update was called, not when it returns.
#include "core/base/format.hpp"
#include "harness/process.hpp"

namespace pccl::harness {

using namespace core;

// One turn is one update of the topology. The thread of the collectives starts with the membership.
Task<bool> Process::membership_beside() {
    waited_ = false;
    if (collectives_ended_) {
        collectives_end_ = collectives_ended_ = gate_wanted_ = at_gate_ = false;
        collectives_ = collectives();
        collectives_.start();
    }
    co_return co_await renew_beside();
}

Task<bool> Process::renew_beside() {
    const Workload& w = scenario_.workload;
    const bool queued = w.beside_queued && w.beside_asks != 0;
    Completion failed;
    for (std::uint32_t i = queued ? 1 : 0; i < w.beside_asks && failed.result == Result::success; ++i) {
        failed = co_await vote(CallKind::are_peers_pending);
        if (stopping()) break;
    }
    if (failed.result == Result::success && !stopping()) {
        // Beside a synchronization the update may be called at any time.
        const bool between_rounds = !w.sync || draw_.chance(500'000);
        gate_wanted_ = between_rounds;
        if (between_rounds && !at_gate_) co_await wait(gate_reached_);
        if (queued) {
            asking_ = 1;
            ++counters_.queued;
            // Called after the update if it is later.
            const bool crossed = w.beside_crossed && w.beside_asks == 1;
            const auto later = [&] { return crossed && draw_.chance(500'000) ? draw_.below(20 * millisecond) + 1 : 0; };
            asked_ = {};
            ask_ = ask_beside(later());
            if (crossed) {
                ++asking_;
                ask_again_ = ask_beside(later());
                ask_again_.start();
            }
            ask_.start();
        }
        gate_wanted_ = false;
        notify(gate_);
        ++counters_.beside;
        failed = co_await vote(CallKind::update_topology);
        if (asking_ != 0) co_await wait(ask_returned_);
        if (queued && failed.result == Result::success) failed = asked_;
    }
    if (failed.result == Result::success) co_return true;
    if (co_await still_member(failed))
        world_.violate("contract", formatted("{} is a member, and a run-wide call failed: {}", sim::Trace::name(node_),
                                             to_text(failed.cause)));
    co_return false;
}

Task<void> Process::ask_beside(Duration later) {
    if (later != 0) co_await sleep(later);
    const bool optimizes = scenario_.workload.optimize_per_mille != 0;
    const bool alone = attributes_.global_world < 2;
    Completion answer = co_await vote(optimizes ? CallKind::optimize : CallKind::are_peers_pending);
    // A peer that is alone has nothing to optimize. If it has lost its membership, the update beside this call shows it.
    const bool failed = answer.result == Result::topology_optimization_failed || answer.result == Result::invalid_usage;
    if (optimizes && failed && (alone || answer.cause.has(CauseKind::run_left_alone)) && !destroyed())
        answer.result = Result::success;
    if (asked_.result == Result::success) asked_ = answer;
    if (--asking_ == 0) notify(ask_returned_);
}

// The thread of the collectives, round by round.
Task<void> Process::collectives() {
    while (!collectives_end_) {
        if (gate_wanted_) {
            at_gate_ = true;
            notify(gate_reached_);
            co_await wait(gate_);
            at_gate_ = false;
            continue;
        }
        if ((attributes_.group_world < 2 && draw_.chance(700'000)) || (tensors_.empty() && !scenario_.workload.sync)) {
            co_await sleep(draw_.log_uniform(millisecond, 100 * millisecond));
            continue;
        }
        if (scenario_.workload.sync) {
            co_await synchronize_beside();
        } else {
            chains_.clear();
            chains_open_ = tensors_.size();
            for (std::size_t i = 0; i < tensors_.size(); ++i) chains_.push_back(chain(i));
            for (Task<void>& one : chains_) one.start();
            if (chains_open_ != 0) co_await wait(chains_done_);
        }
        co_await sleep(draw_.log_uniform(microsecond, scenario_.workload.compute_max));
    }
    collectives_ended_ = true;
    notify(collectives_returned_);
}

// Launches one tag again as soon as its previous launch has an outcome, as a completion callback would.
Task<void> Process::chain(std::size_t index) {
    for (std::uint32_t i = 0; i < scenario_.workload.beside; ++i) {
        refill(tensors_[index]);
        const Completion launched = co_await launch(index, draw_.chance(scenario_.workload.mismatch_per_mille * 1000));
        if (launched.result != Result::success) {
            if (launched.result != Result::too_few_peers && !destroyed())
                world_.violate("contract", std::string("a launch was refused with ") + sim::to_text(launched.result));
            break;
        }
        const Completion c = co_await await(index);
        if (c.result == Result::success) continue;
        if (c.result != Result::rank_connection_lost && c.result != Result::invalid_argument &&
            c.result != Result::too_few_peers && !given_up(c))
            world_.violate("contract", std::string("an await gave ") + sim::to_text(c.result));
        co_await sleep(draw_.log_uniform(100 * microsecond, 50 * millisecond));
    }
    if (--chains_open_ == 0) notify(chains_done_);
}

Task<void> Process::synchronize_beside() {
    const Completion c = co_await sync();
    if (c.result == Result::success) {
        revision_ = c.revision + 1;
        refusals_ = 0;
        apply();
        save_checkpoint();
        co_return;
    }
    if (c.result == Result::invalid_usage && !interrupted_by(now()) && ++refusals_ > 2)
        revision_ = scenario_.workload.first_revision;
    co_await sleep(draw_.log_uniform(millisecond, 100 * millisecond));
}

// Ends the thread of the collectives, and waits until it has returned from its calls.
Task<void> Process::end_collectives() {
    if (collectives_ended_) co_return;
    collectives_end_ = true;
    gate_wanted_ = false;
    notify(gate_);
    co_await wait(collectives_returned_);
}

// --- abort and destroy -----------------------------------------------------------------------------------------------

void Process::may_be_interrupted(CallKind kind) {
    const std::uint32_t per_mille = scenario_.workload.interrupt_per_mille;
    if (per_mille == 0 || kind == CallKind::leave || !interrupt_.done() || stopping()) return;
    if (interrupted_at_ != never || now() >= scenario_.chaos_end || (!connected_ && !connecting_)) return;
    if (!interrupts_.chance(per_mille * 1000)) return;
    const Duration delay = interrupts_.log_uniform(microsecond, 300 * millisecond);
    interrupt_ = interrupt(delay, interrupts_.chance(600'000));
    interrupt_.start();
}

Task<void> Process::interrupt(Duration delay, bool abort) {
    const std::uint32_t life = life_;
    co_await sleep(delay);
    if (life != life_ || interrupted_at_ != never || finished_ || (!connected_ && !connecting_)) co_return;
    // The membership was lost before. The first thread has to find out why.
    if (attributes_set_ > ledger_.lives[life].connected_at) co_return;
    interrupted_at_ = now();
    destroyed_ = destroyed_ || !abort;
    interrupting_ = true;
    ledger_.lives[life].leaves_at = now();
    CommandLeave command;
    command.abort = abort;
    if (const std::uint32_t twice = scenario_.workload.leave_twice_per_mille;
        twice != 0 && interrupts_.chance(twice * 1000) && leave_again_.done()) {
        leave_again_ = leave_again();
        leave_again_.start();
    }
    const Completion c = co_await call(CallKind::leave, command);
    if (c.result != Result::success) world_.violate("progress", abort ? "abort failed" : "destroy failed");
    if (Life& ended = ledger_.lives[life]; ended.connected_at != never && !ended.lost) {
        ended.ended = true;
        ended.gone_at = std::min(ended.gone_at, now());
    }
    ++(abort ? counters_.aborted_lives : counters_.destroyed_lives);
    interrupting_ = false;
    notify(interrupt_returned_);
}

// If the others of its gang do not come, a connect waits for ever. A thread gives it up when applications are told to
// end, and sometimes before.
Task<void> Process::watch_gang() {
    while (!finished_) {
        co_await sleep(gang_draw_.log_uniform(10 * millisecond, 200 * millisecond));
        if (!connecting_ || interrupted_at_ != never || !interrupt_.done()) continue;
        if (!stopping() && now() < waits_until_) continue;
        interrupt_ = interrupt(microsecond, gang_draw_.chance(700'000));
        interrupt_.start();
    }
}

// A second abort, right after the first call. It must return too when the other calls have returned.
Task<void> Process::leave_again() {
    co_await sleep(microsecond);
    CommandLeave command;
    command.abort = true;
    const Completion c = co_await call(CallKind::leave, command);
    if (c.result != Result::success) world_.violate("progress", "a second abort failed");
}

}  // namespace pccl::harness
