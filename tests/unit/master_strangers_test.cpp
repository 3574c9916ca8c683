// What somebody who is no member claims towards the master: it hurts nobody else.
#include "tests/unit/master_play.hpp"

#include <algorithm>

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

Member member(std::uint8_t number) {
    Member made;
    made.uuid = name(number);
    return made;
}

// Two members of one ring.
struct Pair {
    World world;
    Member a = member(1), b = member(2);

    Pair() {
        world.say_hello(a);
        world.say_hello(b);
        connect(a, b);
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        connect(a, b);
    }
    void connect(Member& one, Member& other) {
        world.report_edges(one, other);
        world.report_edges(other, one);
    }
    void report(Member& from, const Member& about, bool outgoing, bool up) {
        proto::PeerMessage message;
        message.mutable_edge()->set_peer(to_bytes(about.uuid));
        message.mutable_edge()->set_outgoing(outgoing);
        message.mutable_edge()->set_up(up);
        world.tell(from, message);
    }
    std::ptrdiff_t members() const {
        const MasterStatus status = world.status();
        return std::count_if(status.peers.begin(), status.peers.end(), [](const MasterStatus::Peer& peer) {
            return peer.state != MasterStatus::PeerState::joining && peer.state != MasterStatus::PeerState::unreachable;
        });
    }
};

}  // namespace

TEST_CASE("a stranger that has seen more decisions than there are ends nothing") {
    Pair run;
    Member stranger = member(9);
    run.world.say_hello(stranger);  // registered: it learns the name of the run
    const std::string name_of_run = stranger.welcome.run_id();
    for (const Uuid& claimed : {stranger.uuid, name(8), run.a.uuid}) {
        stranger.uuid = claimed;
        run.world.say_hello(stranger, [&](proto::Hello& hello) {
            hello.set_run_id(name_of_run);
            hello.set_seen(std::uint64_t{1} << 62);
            hello.set_token(4711);
            hello.set_generation(1000);
        });
        CHECK_FALSE(run.a.closed);
        CHECK_FALSE(run.b.closed);
    }
    CHECK_FALSE(run.a.refused);
    CHECK_FALSE(run.b.refused);
    run.world.say_hello(stranger, [&](proto::Hello& hello) {
        hello.clear_run_id();
        hello.set_uuid(to_bytes(name(7)));
    });
    CHECK(stranger.welcome.run_id() == name_of_run);
}

TEST_CASE("a member that has seen more decisions than there are ends the run") {
    Pair run;
    run.world.reset(run.a);
    run.world.say_hello(run.a, [](proto::Hello& hello) { hello.set_seen(1000); });
    CHECK(run.a.refused);
    CHECK(run.b.refused);
}

TEST_CASE("who claims to be a waiting newcomer does not push it out") {
    Pair run;
    Member newcomer = member(3), stranger = member(3);
    run.world.say_hello(newcomer);
    run.world.say_hello(stranger, [](proto::Hello& hello) {
        hello.set_token(4711);
        hello.set_generation(1000);
    });
    CHECK(stranger.closed);
    CHECK_FALSE(newcomer.closed);
    // The newcomer itself dials again.
    run.world.reset(newcomer);
    newcomer.closed = false;
    run.world.say_hello(newcomer);
    CHECK_FALSE(newcomer.closed);
}

TEST_CASE("a newcomer that cannot reach a member is no witness of its death") {
    for (const bool outgoing : {true, false}) {
        Pair run;
        Member newcomer = member(3);
        run.world.say_hello(newcomer);
        for (const Member* about : {&run.a, &run.b}) {
            run.report(newcomer, *about, outgoing, true);
            run.report(newcomer, *about, outgoing, false);
        }
        REQUIRE(run.members() == 2);
        run.world.reset(run.a);
        run.world.reset(run.b);
        run.report(newcomer, run.a, !outgoing, false);
        CHECK(run.members() == 2);
    }
}

TEST_CASE("a neighbour that never reached a member is no witness of its death; one whose connection broke is") {
    Pair run;
    run.world.reset(run.a);
    CHECK(run.members() == 2);
    run.report(run.b, run.a, true, false);
    CHECK(run.members() == 1);
}
