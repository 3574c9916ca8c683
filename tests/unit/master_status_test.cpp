// The master's status for spectators, over one short run.
#include "tests/unit/master_play.hpp"

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

proto::Vote vote_of(proto::VoteKind kind, std::uint64_t id = 0) {
    proto::Vote vote;
    vote.set_kind(kind);
    vote.set_id(id);
    return vote;
}

Member member(std::uint8_t number) { return Member{name(number), 0, {}, 0, 0, 0, {}, false}; }

const MasterStatus::Peer& peer(const MasterStatus& status, const Member& member) {
    for (const MasterStatus::Peer& peer : status.peers) {
        if (peer.uuid == member.uuid) return peer;
    }
    FAIL("not in the status");
    return status.peers.front();
}

}  // namespace

TEST_CASE("status of a master") {
    World world;
    Member a = member(1), b = member(2), c = member(3);
    const Instant begin = world.now();
    CHECK(world.status().peers.empty());
    CHECK(world.status().started == begin);
    world.say_hello(a);  // alone, so it is admitted at once
    world.advance(second);
    world.say_hello(b);
    CHECK(peer(world.status(), a).state == MasterStatus::PeerState::member);
    CHECK(peer(world.status(), a).since == begin);
    CHECK(peer(world.status(), b).state == MasterStatus::PeerState::joining);
    CHECK(peer(world.status(), b).since == begin + second);
    world.report_edges(a, b);
    world.report_edges(b, a);
    world.vote(a, vote_of(proto::VOTE_UPDATE_TOPOLOGY));
    REQUIRE(b.seen > 0);
    CHECK(peer(world.status(), b).state == MasterStatus::PeerState::member);
    CHECK(world.status().admitted == 2);
    world.report_edges(a, b);
    world.report_edges(b, a);

    // One of two members has voted.
    world.advance(second);
    proto::Vote start = vote_of(proto::VOTE_START, 5);
    start.mutable_shape()->set_count(10);
    start.mutable_shape()->set_type(static_cast<std::uint32_t>(DataType::f32));
    world.vote(a, start);
    world.pass(second);
    MasterStatus status = world.status();
    REQUIRE(status.votes.size() == 1);
    CHECK(status.votes_open == 1);
    CHECK(std::string(status.votes[0].kind) == "start of a collective");
    CHECK(status.votes[0].tag == Tag{5});
    CHECK(status.votes[0].group == GroupId{0});
    CHECK(status.votes[0].opened == begin + 2 * second);
    CHECK(status.votes[0].missing == 1);
    CHECK(status.votes[0].waits_for == std::vector<Uuid>{b.uuid});
    REQUIRE(peer(status, a).call.has_value());
    CHECK(peer(status, a).call->since == begin + 2 * second);
    CHECK_FALSE(peer(status, b).call.has_value());

    // Both have voted, so the operation runs.
    world.vote(b, start);
    status = world.status();
    REQUIRE(status.groups.size() == 1);
    CHECK(status.groups[0].ring.size() == 2);
    CHECK(status.groups[0].edges[0].up);
    CHECK(status.groups[0].running == 1);
    REQUIRE(status.groups[0].operations.size() == 1);
    CHECK(status.groups[0].operations[0].tag == 5);
    CHECK(status.groups[0].operations[0].bytes == 40);
    CHECK(status.groups[0].operations[0].started == begin + 3 * second);
    for (Member* each : {&a, &b}) {
        proto::Vote end = vote_of(proto::VOTE_END, status.groups[0].operations[0].id);
        end.set_ok(true);
        world.vote(*each, end);
    }
    status = world.status();
    CHECK(status.groups[0].running == 0);
    CHECK(status.groups[0].operations.empty());
    CHECK(status.groups[0].tally.started == 1);
    CHECK(status.groups[0].tally.committed == 1);
    CHECK(status.groups[0].tally.committed_bytes == 40);

    // One member also votes for another tag. Then the other member leaves.
    world.vote(a, vote_of(proto::VOTE_START, 6));
    world.vote(b, start);
    world.vote(a, start);
    CHECK(world.status().groups[0].tally.started == 2);
    proto::PeerMessage leave;
    leave.set_leave(true);
    world.tell(b, leave);
    status = world.status();
    CHECK(status.removed == 1);
    REQUIRE(status.removals.size() == 1);
    CHECK(status.removals[0].uuid == b.uuid);
    CHECK(status.removals[0].cause.kind == CauseKind::left);
    CHECK(status.groups[0].tally.aborted == 1);
    CHECK(status.groups[0].tally.refused == 1);  // nobody else is left

    // A restarted master has the list of members, but no history.
    world.restart();
    status = world.status();
    CHECK(status.incarnation == 2);
    CHECK(status.grace_until.has_value());
    CHECK(peer(status, a).state == MasterStatus::PeerState::absent);
    CHECK(status.groups[0].tally.started == 0);
    world.say_hello(a);
    CHECK(peer(world.status(), a).state == MasterStatus::PeerState::resuming);
    world.resumed(a);
    CHECK(peer(world.status(), a).state == MasterStatus::PeerState::member);
    CHECK_FALSE(world.status().grace_until.has_value());
}

TEST_CASE("bytes that are no frame are counted, and cost their sender the connection") {
    World world;
    Member a = member(1), b = member(2);
    world.say_hello(a);
    world.dial(b);
    world.garbage(b);
    CHECK(b.closed);
    CHECK_FALSE(a.closed);
    CHECK(world.status().frames_refused == 1);
}
