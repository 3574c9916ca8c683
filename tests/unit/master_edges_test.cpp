// Edges of the ring that only their targets can open: whom the master judges by them, and when.
#include "tests/unit/master_play.hpp"

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

Member member(std::uint8_t number) {
    Member made;
    made.uuid = name(number);
    return made;
}

// A ring of a, b and c. Nobody can dial c.
struct Ring {
    World world;
    Member a = member(1), b = member(2), c = member(3), other = member(4);

    Ring() {
        come(a, 0);
        for (Member* newcomer : {&b, &c}) come(*newcomer, 0);
        come(other, 1);  // a group of its own
        join_edges();
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(a.answers.back().view().global_world() == 4);
        join_edges();
    }
    Ring(const Ring&) = delete;
    void come(Member& who, GroupId group) {
        world.say_hello(who, [&](proto::Hello& hello) { hello.set_group(group); });
    }
    void join_edges() {
        for (Member* one : {&a, &b, &c}) {
            for (const Member* another : {&a, &b, &c}) {
                if (one != another) world.report_edges(*one, *another);
            }
        }
    }
    // From now on a must dial c.
    void b_leaves() {
        proto::PeerMessage leave;
        leave.set_leave(true);
        world.tell(b, leave);
        REQUIRE(a.plan.targets_size() == 1);
        REQUIRE(a.plan.targets(0).peer() == to_bytes(c.uuid));
        REQUIRE(c.plan.offers_size() == 0);
    }
    void cannot_dial(Member& source, const Member& target) {
        proto::PeerMessage message;
        message.mutable_edge()->set_peer(to_bytes(target.uuid));
        message.mutable_edge()->set_outgoing(true);
        world.tell(source, message);
    }
    bool says(const std::string& text) const { return world.logged.find(text) != std::string::npos; }
};

}  // namespace

TEST_CASE("an edge is not judged while the word to offer it waits for the disk") {
    Ring run;
    run.b_leaves();
    run.world.hold_disk(true);
    run.come(run.other, 1);  // a resume is a record, which is not durable now
    run.world.resumed(run.other);
    run.cannot_dial(run.a, run.c);
    run.world.pass(14 * second, {&run.a, &run.c, &run.other});
    CHECK(run.c.plan.offers_size() == 0);
    CHECK_FALSE(run.says("cannot reach"));
    run.world.hold_disk(false);
    CHECK(run.c.plan.offers_size() == 1);
    // The time before does not count.
    run.world.pass(second, {&run.a, &run.c, &run.other});
    CHECK_FALSE(run.says("cannot reach"));
    run.world.pass(14 * second, {&run.a, &run.c, &run.other});
    CHECK(run.says("cannot reach"));
    CHECK((run.a.refused || run.c.refused));
}

TEST_CASE("what was not wanted for a moment, while the plan with it waited for the disk, begins anew") {
    Ring run;
    Member newcomer = member(5);
    run.world.hold_disk(true);
    run.come(run.other, 1);  // a resume is a record, which is not durable now
    run.world.resumed(run.other);
    const std::uint32_t before = run.a.plans;
    run.come(newcomer, 0);
    run.world.reset(newcomer);
    run.come(newcomer, 0);
    CHECK(run.a.plans == before);
    run.world.hold_disk(false);
    run.world.pass(2 * second, {&run.a, &run.b, &run.c, &run.other, &newcomer});
    // With the newcomer, without it, and with it again: the master has forgotten what it knew of that connection.
    CHECK(run.a.plans == before + 3);
}

TEST_CASE("an edge is not judged at the moment at which its target learns that it must dial") {
    Ring run;
    run.b_leaves();
    run.world.pass(3 * second, {&run.a, &run.c, &run.other});  // the dial runs out of time, after the grace
    run.cannot_dial(run.a, run.c);
    CHECK(run.c.plan.offers_size() == 1);
    CHECK_FALSE(run.says("cannot reach"));
    run.world.pass(2 * second, {&run.a, &run.c, &run.other});
    CHECK(run.says("cannot reach"));
}

TEST_CASE("an edge is judged at once if its source cannot be dialled either") {
    Ring run;
    run.b_leaves();
    for (int i = 0; i < 2; ++i) run.cannot_dial(run.c, run.a);  // it breaks, and is dialled in vain
    run.world.pass(3 * second, {&run.a, &run.c, &run.other});
    run.cannot_dial(run.a, run.c);
    CHECK(run.says("peer 01010101 cannot reach peer 03030303"));
}
