// Remotes can make the master send, keep and do only a bounded amount.
#include "tests/unit/master_play.hpp"

#include "core/base/probe.hpp"

#include <set>

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

std::uint64_t waits = 0;

struct Pair {
    World world;
    Member a{name(1)}, b{name(2)};

    explicit Pair(const Limits& limits = {}) : world(limits) {
        world.say_hello(a);
        world.say_hello(b);
        world.report_edges(a, b);
        world.report_edges(b, a);
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        world.report_edges(a, b);
        world.report_edges(b, a);
    }
    std::uint64_t start(std::uint64_t tag) {
        for (Member* member : {&a, &b}) {
            proto::Vote vote;
            vote.set_kind(proto::VOTE_START);
            vote.set_id(tag);
            vote.mutable_shape()->set_count(10);
            world.vote(*member, vote);
        }
        REQUIRE(a.answers.back().has_start());
        return a.answers.back().start().op();
    }
    void end(Member& member, std::uint64_t op, bool ok, const Cause& cause = {}) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(op);
        vote.set_ok(ok);
        write(cause, *vote.mutable_cause());
        world.vote(member, vote);
    }
};

}  // namespace

TEST_CASE("a cause as long as a frame is cut before it reaches a member or the journal") {
    Pair run;
    const std::uint64_t op = run.start(1);
    run.end(run.a, op, false, make_cause<CauseKind::text>(std::string(1'000'000, 'x')));
    for (Member* member : {&run.a, &run.b}) {
        REQUIRE(member->answers.back().has_outcome());
        CHECK_FALSE(member->answers.back().outcome().commit());
        CHECK(member->most_bytes <= control_bytes_least);  // neither has sent its own limit
    }
    CHECK(run.world.journal_bytes() < 10'000);
    // A member that comes back after a restart receives the same outcome, in a frame within its limit.
    run.world.restart();
    run.b.seen = 1;
    run.world.say_hello(run.b);
    CHECK(run.b.answers.back().has_outcome());
    CHECK(run.b.most_bytes <= control_bytes_least);
}

TEST_CASE("ids that are used up continue in the next incarnation, and never repeat") {
    Limits limits;
    limits.ids_per_incarnation = 3;
    Pair run(limits);
    std::set<std::uint64_t> ids;
    for (std::uint64_t i = 0; i < 20; ++i) {
        if (i == 10) {
            run.world.restart();
            for (Member* member : {&run.a, &run.b}) {
                run.world.say_hello(*member);
                run.world.resumed(*member);
            }
            run.world.report_edges(run.a, run.b);
            run.world.report_edges(run.b, run.a);
        }
        const std::uint64_t op = run.start(i);
        CHECK(ids.insert(op).second);
        CHECK(op == *ids.rbegin());
        for (Member* member : {&run.a, &run.b}) run.end(*member, op, true);
    }
}

TEST_CASE("a member that acknowledges nothing is removed before it fills the memory") {
    Limits limits;
    limits.untold_max = 50;
    Pair run(limits);
    run.b.acknowledges = false;
    for (std::uint64_t i = 0; i < 100 && !run.b.refused; ++i) {
        const std::uint64_t op = run.start(i);
        for (Member* member : {&run.a, &run.b}) run.end(*member, op, true);
        run.world.advance(300 * millisecond);
    }
    CHECK(run.b.refused);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("decisions that nobody acknowledges take a bounded number of bytes together") {
    Limits limits;
    limits.kept_bytes_max = 5'000;
    Pair run(limits);
    run.b.acknowledges = false;
    std::uint64_t decided = 0;
    for (; decided < 100 && !run.b.refused; ++decided) {
        const std::uint64_t op = run.start(decided);
        for (Member* member : {&run.a, &run.b}) run.end(*member, op, true);
        run.world.advance(300 * millisecond);
    }
    CHECK(run.b.refused);
    CHECK(decided > 5);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("what members acknowledged before a restart is not held against those who have not resumed") {
    Limits limits;
    limits.untold_max = 50;
    Pair run(limits);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const std::uint64_t op = run.start(i);
        for (Member* member : {&run.a, &run.b}) run.end(*member, op, true);
        for (Member* member : {&run.a, &run.b}) {
            proto::PeerMessage message;
            message.set_heartbeat(member->seen);
            run.world.tell(*member, message);
        }
        run.world.advance(300 * millisecond);
    }
    run.world.restart();
    for (Member* member : {&run.a, &run.b}) {
        for (int i = 0; i < 4; ++i) run.world.advance(300 * millisecond);
        run.world.say_hello(*member);
        CHECK_FALSE(member->refused);
        run.world.resumed(*member);
    }
    run.world.advance(300 * millisecond);
    CHECK(run.world.status().peers.size() == 2);
}

TEST_CASE("what a joiner reports a thousand times makes the master look at its topology a few times") {
    Pair run;
    Member joiner{name(3)};
    run.world.say_hello(joiner);
    set_probe_handler([](Probe probe) { waits += probe == Probe::joiner_report_waits ? 1 : 0; });
    for (int i = 0; i < 1000; ++i) run.world.report_edges(joiner, run.a);
    set_probe_handler(nullptr);
    CHECK(waits > 1900);  // of 2,000 reports
}

TEST_CASE("a member that votes for more starts than it may launch is removed, and nobody else") {
    Pair run;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_START);
    vote.mutable_shape()->set_count(10);
    std::uint64_t tag = 0;
    for (; tag < 200'000 && !run.a.refused; ++tag) {
        vote.set_id(tag);
        run.world.vote(run.a, vote);
    }
    CHECK(run.a.refused);
    CHECK(tag == 65'536 + 1);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a member that comes back, lives and never declares what it waits for is removed") {
    Pair run;
    run.world.reset(run.b);
    run.world.say_hello(run.b);
    proto::PeerMessage heartbeat;
    int beats = 0;
    for (; beats < 200 && !run.b.refused; ++beats) {
        run.world.pass(Timeouts{}.peer / 5);
        for (Member* member : {&run.a, &run.b}) {
            heartbeat.set_heartbeat(member->seen);
            if (!member->refused) run.world.tell(*member, heartbeat);
        }
    }
    CHECK(run.b.refused);
    CHECK(beats > 20);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("a member that sends a vote larger than one can be is removed, and nothing of it is kept") {
    Pair run;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_START);
    vote.mutable_shape()->set_count(10);
    vote.set_stuck(std::string(100'000, 'x'));
    run.world.vote(run.a, vote);
    CHECK(run.a.refused);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("connections that come when a tick is due do not put it off") {
    play::FourMembers run;
    const std::uint64_t heard = run.one.heard;
    play::Member stranger{play::name(9)};
    for (int i = 0; i < 20 && run.one.heard == heard; ++i) {
        run.world.stand_still(second);
        run.world.dial(stranger, 99);
    }
    CHECK(run.one.heard > heard);  // a heartbeat
}

TEST_CASE("a newcomer that dials again has the place that it has already") {
    Limits limits;
    limits.peers_max = 3;
    Pair run(limits);
    Member c{name(3)};
    run.world.say_hello(c);
    REQUIRE_FALSE(c.refused);
    run.world.say_hello(c);  // its first connection is half open
    CHECK_FALSE(c.refused);
    Member d{name(4)};
    run.world.say_hello(d);
    CHECK(d.refused);
}

TEST_CASE("a call that members made before their update is decided first, if a loss makes both complete") {
    play::FourMembers run;
    play::Member newcomer{play::name(9)};
    run.world.say_hello(newcomer);
    for (play::Member* member : run.all) {
        run.world.report_edges(*member, newcomer);
        run.world.report_edges(newcomer, *member);
    }
    proto::Vote pending, update;
    pending.set_kind(proto::VOTE_PEERS_PENDING);
    update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
    for (play::Member* member : {&run.one, &run.three, &run.four}) {
        run.world.vote(*member, pending);
        run.world.vote(*member, update);
    }
    proto::PeerMessage leaves;
    leaves.set_leave(true);
    run.world.tell(run.two, leaves);
    CHECK_FALSE(newcomer.answers.empty());
    // The newcomer stands behind both calls, so the first one does not wait for it.
    const std::vector<proto::Answer>& answers = run.one.answers;
    REQUIRE(answers.size() >= 2);
    CHECK(answers.end()[-2].kind_case() == proto::Answer::kPending);
    CHECK(answers.end()[-2].pending());
    CHECK(answers.back().has_topology());
}

TEST_CASE("an update waits for an optimization that its members called before, and admits its newcomers then") {
    play::FourMembers run;
    proto::Vote optimize, update;
    optimize.set_kind(proto::VOTE_OPTIMIZE_TOPOLOGY);
    update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
    for (play::Member* member : run.all) run.world.vote(*member, optimize);
    play::Member newcomer{play::name(9)};
    run.world.say_hello(newcomer);
    for (play::Member* member : run.all) {
        run.world.report_edges(*member, newcomer);
        run.world.report_edges(newcomer, *member);
    }
    // The tests of the edges take a while.
    for (play::Member* member : run.all) run.world.vote(*member, update);
    CHECK(newcomer.answers.empty());
    std::vector<play::Member*> everybody = run.all;
    everybody.push_back(&newcomer);
    run.world.pass(60 * second, everybody);
    const std::vector<proto::Answer>& answers = run.one.answers;
    REQUIRE(answers.size() >= 2);
    CHECK(answers.end()[-2].has_optimize());
    CHECK(answers.back().has_topology());
    CHECK_FALSE(newcomer.answers.empty());
}

TEST_CASE("a link for which too much waits for the disk is closed, and its member is told everything when it resumes") {
    Limits limits;
    limits.held_bytes_max = 1'500;
    play::FourMembers run({}, limits);
    play::Member& member = run.one;
    const std::size_t before = member.answers.size();
    run.world.hold_disk(true);
    proto::Vote vote;
    vote.set_kind(proto::VOTE_PEERS_PENDING);
    for (play::Member* each : run.all) run.world.vote(*each, vote);
    // The warnings that its votes wait are held behind the answer.
    for (std::uint64_t i = 0; i < 100; ++i) {
        vote.set_kind(proto::VOTE_START);
        vote.set_id(i);
        vote.mutable_shape()->set_count(10);
        run.world.vote(member, vote);
    }
    run.world.pass(35 * second, run.all);
    CHECK(member.closed);
    CHECK_FALSE(run.two.closed);
    CHECK_THAT(run.world.logged, Catch::Contains("more messages wait for the disk than the limit"));
    run.world.check();
    member.closed = false;
    run.world.say_hello(member);
    run.world.hold_disk(false);
    CHECK_FALSE(member.closed);
    CHECK(member.answers.size() == before + 1);
    run.world.check();
}
