// A restarted master that waits for its members: which decisions it makes meanwhile, and which it does not.
#include "tests/unit/master_play.hpp"

#include <optional>

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

struct Pair {
    World world;
    Member a{name(1), 0, {}, 0, 0, 0, {}, false}, b{name(2), 0, {}, 0, 0, 0, {}, false};
    std::uint64_t op = 0;

    // Two members, and an operation that has started.
    Pair() {
        world.say_hello(a);
        world.say_hello(b);
        world.report_edges(a, b);
        world.report_edges(b, a);
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        // They report their connections again, as edges of the ring.
        world.report_edges(a, b);
        world.report_edges(b, a);
        for (Member* member : {&a, &b}) {
            proto::Vote start;
            start.set_kind(proto::VOTE_START);
            start.set_id(5);
            start.mutable_shape()->set_count(10);
            world.vote(*member, start);
        }
        REQUIRE(a.answers.back().has_start());
        op = a.answers.back().start().op();
        REQUIRE(op != 0);
    }
    void end(Member& member, bool ok) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(op);
        vote.set_ok(ok);
        world.vote(member, vote);
    }
    static std::optional<bool> outcome(const Member& member) {
        if (member.answers.empty() || !member.answers.back().has_outcome()) return std::nullopt;
        return member.answers.back().outcome().commit();
    }
};

}  // namespace

TEST_CASE("a vote against an operation aborts it, although a member may still resume") {
    Pair run;
    run.world.restart();
    run.world.say_hello(run.a);
    run.end(run.a, false);
    run.world.resumed(run.a);
    CHECK(Pair::outcome(run.a) == false);
    // The member that comes later gets the same outcome, whatever it votes.
    run.world.say_hello(run.b);
    run.end(run.b, true);
    run.world.resumed(run.b);
    CHECK(Pair::outcome(run.b) == false);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a vote for an operation waits for the members that may still resume") {
    Pair run;
    run.world.restart();
    run.world.say_hello(run.a);
    run.end(run.a, true);
    run.world.resumed(run.a);
    run.world.advance(second);
    CHECK(Pair::outcome(run.a) == std::nullopt);
    run.world.say_hello(run.b);
    run.end(run.b, true);
    run.world.resumed(run.b);
    CHECK(Pair::outcome(run.a) == true);
    CHECK(Pair::outcome(run.b) == true);
}

TEST_CASE("an older journal is recognised although decisions of the grace have taken the lost numbers") {
    Pair run;
    // The first member votes and loses its link. The other one receives the commit of the operation.
    run.end(run.a, true);
    run.world.reset(run.a);
    run.end(run.b, true);
    REQUIRE(Pair::outcome(run.b) == true);
    run.world.restart_without(1);
    run.world.say_hello(run.a);
    run.end(run.a, false);
    REQUIRE(Pair::outcome(run.a) == false);
    REQUIRE(run.a.seen == run.b.seen);
    run.world.say_hello(run.b);
    CHECK(run.b.refused);
    CHECK(run.a.refused);
}

TEST_CASE("an older journal is recognised although it lacks the resume of the member that knows more") {
    Pair run;
    const std::size_t lost_resumes = GENERATE(1, 2, 16);
    std::size_t lost_records = 1;
    // Each resume has two records: the token that the member was given, and that the member has shown it.
    for (std::size_t i = 0; i < lost_resumes; ++i, lost_records += 2) {
        run.world.reset(run.b);
        run.world.say_hello(run.b);
        run.world.resumed(run.b);
    }
    // Only the second member receives the outcome.
    run.end(run.a, true);
    run.world.reset(run.a);
    run.end(run.b, true);
    REQUIRE(Pair::outcome(run.b) == true);
    run.world.restart_without(lost_records);
    run.world.say_hello(run.a);
    run.world.say_hello(run.b);
    CHECK(run.b.refused);
    CHECK(run.a.refused);
    CHECK(run.world.logged.find("the journal is older than what peer") != std::string::npos);
}

TEST_CASE("a member whose resume was lost with the journal resumes, if nothing that it was told is lost") {
    Pair run;
    run.world.reset(run.b);
    run.world.say_hello(run.b);
    run.world.resumed(run.b);
    run.world.restart_without(2);
    for (Member* member : {&run.a, &run.b}) {
        run.world.say_hello(*member);
        run.end(*member, true);
        run.world.resumed(*member);
        CHECK_FALSE(member->refused);
    }
    CHECK(Pair::outcome(run.b) == true);
}

TEST_CASE("a token that was replaced stays worth nothing after a restart") {
    Pair run;
    Member copy = run.b;
    run.world.reset(run.b);
    run.world.say_hello(run.b);
    run.world.resumed(run.b);  // its message shows that it has the newer token
    run.world.restart();
    copy.generation += 5;
    run.world.say_hello(copy);
    CHECK(copy.refused);
    run.world.say_hello(run.b);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("who holds only tokens of earlier resumes is no holder of the seat") {
    Pair run;
    Member copy = run.b;
    for (int i = 0; i < 3; ++i) {
        run.world.reset(run.b);
        run.world.say_hello(run.b);
        run.world.resumed(run.b);
        if (i == 1) copy = run.b;
    }
    REQUIRE(copy.former_tokens.size() == 2);
    copy.generation += 5;
    // It claims a decision that was never made. If the master believed it, the run would end.
    copy.seen += 100;
    run.world.say_hello(copy);
    CHECK(copy.refused);
    CHECK_FALSE(run.a.refused);
    CHECK_FALSE(run.b.refused);
    CHECK(run.world.status().peers.size() == 2);
}

TEST_CASE("a member that resumes after snapshots and restarts is known by what it was told last") {
    Pair run;
    for (int i = 0; i < 3; ++i) {
        run.world.restart();
        for (Member* member : {&run.a, &run.b}) {
            run.world.say_hello(*member);
            run.world.resumed(*member);
            CHECK_FALSE(member->refused);
        }
        proto::Vote update;
        update.set_kind(proto::VOTE_PEERS_PENDING);
        for (Member* member : {&run.a, &run.b}) run.world.vote(*member, update);
    }
    CHECK(run.world.status().peers.size() == 2);
}
