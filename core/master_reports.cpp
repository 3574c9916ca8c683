#include "core/master_reports.hpp"

#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"

namespace pccl::core {

void MasterReports::decided(const proto::Decision& decision) {
    to_.registry.tell(decision);
    to_.hosts.decided(decision);
    if (decision.has_sync() && !to_.holder_edges.empty()) to_.agenda.topology = true;
}

void MasterReports::held_welcome_leaves(const Uuid& peer, Duration waited) {
    to_.registry.welcome_waited(peer, waited);
    to_.patience.welcome_waited(peer, waited);
}

void MasterReports::held_plan_leaves(const Uuid& peer, Duration waited) {
    if (waited > to_.turn.timeouts.tick()) to_.rings.told_again(peer);
    to_.agenda.topology = true;  // another plan may wait behind this one
}

void MasterReports::member_resumes(const Uuid& member) {
    to_.patience.resumes(member);
    to_.rounds.keys().resumed(member);
}

void MasterReports::member_removed(const Uuid& member, GroupId group) {
    to_.ballots.withdraw(member);
    to_.patience.removed(member);
    to_.unfinished.removed(member);
    to_.optimizer.removed(member, group);
    if (!to_.decisions.state().groups.contains(group)) to_.rounds.forget(group);
}

void MasterReports::run_over() {
    to_.ballots = BallotBox{};
    to_.patience.forget_run();
    to_.rounds.forget_run();
    to_.operations.forget_run();
    to_.unfinished.forget_run();
    to_.holder_edges.forget_run();
    to_.optimizer.forget_run();
    to_.direct.forget_run();
    to_.hosts.forget_run();
}

void MasterReports::edge_of_operation_failed(OpId id, const Cause& cause) {
    to_.operations.decide(id, Result::rank_connection_lost, cause);
}

void MasterReports::give_up(const BallotKey& key, const Cause& cause) {
    if (key.kind == proto::VOTE_START) return to_.operations.refuse(key, Result::invalid_usage, cause);
    if (key.kind == proto::VOTE_SYNC) return to_.rounds.give_up(key, cause);
    proto::Decision decision;
    if (key.kind == proto::VOTE_UPDATE_TOPOLOGY)
        decision.mutable_topology();
    else if (key.kind == proto::VOTE_PEERS_PENDING)
        decision.set_pending(false);
    else
        decision.set_optimize(true);
    add_seats(to_.ballots.take(key), *decision.mutable_seats());
    decision.set_result(static_cast<std::uint32_t>(Result::invalid_usage));
    write(cause, *decision.mutable_cause());
    *decision.mutable_sizes() = to_.decisions.state().sizes();
    to_.decisions.append(decision);
}

}  // namespace pccl::core
