// Collectives over direct edges at the master: when it chooses them, whom it has dial, and how they end.
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

using namespace pccl::core;

namespace {

namespace proto = pccl::proto;

constexpr std::uint64_t large = 100'000;

struct Group : play::FourMembers {
    using play::FourMembers::FourMembers;
    std::uint64_t tag = 0;

    void report(play::Member& from, const play::Member& to, bool up) {
        proto::PeerMessage message;
        message.mutable_edge()->set_peer(to_bytes(to.uuid));
        message.mutable_edge()->set_outgoing(true);
        message.mutable_edge()->set_up(up);
        world.tell(from, message);
    }
    proto::Vote vote(CollectiveKind kind, std::uint64_t count, const play::Member* root) const {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_START);
        vote.set_id(tag);
        vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(kind));
        vote.mutable_shape()->set_slice_bytes(1u << 10);
        if (root != nullptr) vote.mutable_shape()->set_root(to_bytes(root->uuid));
        vote.set_count(count);
        vote.set_world(4);
        vote.set_capacity(4 * large);
        vote.set_room(10'000);
        return vote;
    }
    // The start of a collective with pieces of so many elements.
    proto::StartAnswer start(CollectiveKind kind, std::uint64_t count = large, const play::Member* root = nullptr) {
        ++tag;
        for (play::Member* member : all) world.vote(*member, vote(kind, count, root));
        for (const play::Member* member : all) {
            REQUIRE(member->answers.back().has_start());
            CHECK(member->answers.back().start().direct() == one.answers.back().start().direct());
        }
        return one.answers.back().start();
    }
    void ends(play::Member& member, std::uint64_t op, bool ok = true, const play::Member* stuck = nullptr) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(op);
        vote.set_ok(ok);
        if (stuck != nullptr) vote.set_stuck(to_bytes(stuck->uuid));
        world.vote(member, vote);
    }
    void commit(std::uint64_t op) {
        for (play::Member* member : all) ends(*member, op);
        for (const play::Member* member : all) REQUIRE(member->answers.back().outcome().commit());
    }
    // Around the ring, which makes the master want direct edges, and then over them.
    std::uint64_t start_directly(CollectiveKind kind = CollectiveKind::all_to_all,
                                 const play::Member* root = nullptr) {
        const proto::StartAnswer first = start(kind, large, root);
        REQUIRE_FALSE(first.direct());
        commit(first.op());
        join_edges();
        const proto::StartAnswer second = start(kind, large, root);
        REQUIRE(second.direct());
        return second.op();
    }
    void pass(Duration time, bool works = false) { world.pass(time, all, works); }
};

std::set<std::string> targets_of(const play::Member& member) {
    std::set<std::string> targets;
    for (const auto& target : member.plan.targets()) targets.insert(target.peer());
    return targets;
}

std::string why(const play::Member& member) { return to_text(cause_of(member.answers.back().cause())); }

}  // namespace

TEST_CASE("the first large pieces go around the ring, and the next ones over direct edges") {
    Group run;
    CHECK(targets_of(run.one).size() == 1);
    const std::uint64_t op = run.start_directly();
    for (const play::Member* member : run.all) {
        CHECK(targets_of(*member).size() == 3);
        // The two that are no neighbours in the ring.
        CHECK(member->plan.callers_size() == 2);
        for (const auto& target : member->plan.targets()) {
            const bool called = [&] {
                for (const play::Member* other : run.all) {
                    if (to_bytes(other->uuid) != target.peer()) continue;
                    for (const std::string& caller : other->plan.callers()) {
                        if (caller == to_bytes(member->uuid)) return true;
                    }
                }
                return false;
            }();
            CHECK(target.single() == called);
        }
    }
    run.commit(op);
    // Small ones do not need them, nor do other kinds.
    const proto::StartAnswer small = run.start(CollectiveKind::all_to_all, 10);
    CHECK_FALSE(small.direct());
    run.commit(small.op());
    CHECK_FALSE(run.start(CollectiveKind::all_gather).direct());
}

TEST_CASE("a gather and a scatter need the edges of their root") {
    Group run;
    run.commit(run.start_directly(CollectiveKind::gather, &run.two));
    for (const play::Member* member : run.all)
        CHECK(targets_of(*member).contains(to_bytes(run.two.uuid)) == (member != &run.two));
    CHECK(targets_of(run.two).size() == 1);
    run.commit(run.start_directly(CollectiveKind::scatter, &run.two));
    CHECK(targets_of(run.two).size() == 3);
    // Another root has edges of its own.
    CHECK_FALSE(run.start(CollectiveKind::scatter, large, &run.three).direct());
}

TEST_CASE("a large group, or one that may not, goes around the ring") {
    Limits limits;
    limits.direct_peers_max = 3;
    Group run({}, limits);
    for (int i = 0; i < 3; ++i) {
        const proto::StartAnswer start = run.start(CollectiveKind::all_to_all);
        CHECK_FALSE(start.direct());
        run.commit(start.op());
        run.join_edges();
        CHECK(targets_of(run.one).size() == 1);
    }
}

TEST_CASE("a direct edge that is down sends the pieces around the ring, and costs nobody anything") {
    Group run;
    run.commit(run.start_directly());
    const std::string next = run.one.answers[run.one.answers.size() - 2].start().successor();
    play::Member& other = next == to_bytes(run.two.uuid) ? run.three : run.two;
    run.report(run.one, other, false);
    const proto::StartAnswer start = run.start(CollectiveKind::all_to_all);
    CHECK_FALSE(start.direct());
    run.commit(start.op());
    run.pass(100 * second);
    for (const play::Member* member : run.all) CHECK_FALSE(member->closed);
    run.report(run.one, other, true);
    CHECK(run.start(CollectiveKind::all_to_all).direct());
}

TEST_CASE("after a failure the group goes around the ring for a while, for longer each time") {
    const Timeouts timeouts;
    Group run(timeouts);
    std::uint64_t op = run.start_directly();
    for (int failures = 0; failures < 3; ++failures) {
        run.ends(run.one, op, false, &run.three);
        CHECK_FALSE(run.two.answers.back().outcome().commit());
        // Pieces that go around the ring keep the direct edges, too.
        const Instant end = run.world.now() + (timeouts.stuck_mark() << failures);
        while (run.world.now() + 15 * second < end) {
            run.pass(10 * second);
            const proto::StartAnswer start = run.start(CollectiveKind::all_to_all);
            REQUIRE_FALSE(start.direct());
            run.commit(start.op());
        }
        run.pass(20 * second);
        const proto::StartAnswer start = run.start(CollectiveKind::all_to_all);
        REQUIRE(start.direct());
        op = start.op();
    }
    for (const play::Member* member : run.all) CHECK_FALSE(member->closed);
}

TEST_CASE("an operation whose direct edge stays down fails, and its members stay") {
    Group run;
    const std::uint64_t op = run.start_directly();
    const std::string next = run.one.answers.back().start().successor();
    play::Member& other = next == to_bytes(run.two.uuid) ? run.three : run.two;
    run.report(run.one, other, false);
    run.pass(30 * second);
    REQUIRE(run.four.answers.back().has_outcome());
    CHECK(run.four.answers.back().outcome().op() == op);
    CHECK_FALSE(run.four.answers.back().outcome().commit());
    for (const play::Member* member : run.all) CHECK_FALSE(member->closed);
    CHECK_FALSE(run.start(CollectiveKind::all_to_all).direct());
}

TEST_CASE("of two gathers with different roots only the one fails whose edge stays down") {
    Group run;
    const std::uint64_t of_two = run.start_directly(CollectiveKind::gather, &run.two);
    const std::uint64_t of_three = run.start_directly(CollectiveKind::gather, &run.three);
    run.report(run.one, run.three, false);
    run.pass(30 * second, true);
    for (const play::Member* member : run.all) {
        REQUIRE(member->answers.back().has_outcome());
        CHECK(member->answers.back().outcome().op() == of_three);
        CHECK_FALSE(member->answers.back().outcome().commit());
    }
    run.commit(of_two);
}

TEST_CASE("a restarted master tells the same start, and keeps the edges of what runs") {
    Group run;
    const std::uint64_t op = run.start_directly(CollectiveKind::gather, &run.four);
    const std::uint64_t seen = run.three.answers[run.three.answers.size() - 2].index();
    run.world.restart();
    run.three.answers.pop_back();
    run.three.seen = seen;
    for (play::Member* member : run.all) {
        run.world.say_hello(*member);
        run.world.resumed(*member);
    }
    REQUIRE(run.three.answers.back().has_start());
    CHECK(run.three.answers.back().start().direct());
    CHECK(run.three.answers.back().start().op() == op);
    run.pass(second);
    for (const play::Member* member : run.all)
        CHECK(targets_of(*member).contains(to_bytes(run.four.uuid)) == (member != &run.four));
    run.join_edges();
    run.commit(op);
    // They are wanted and work, so the next one uses them, too. Those of another root are not wanted.
    const proto::StartAnswer next = run.start(CollectiveKind::gather, large, &run.four);
    CHECK(next.direct());
    run.commit(next.op());
    CHECK_FALSE(run.start(CollectiveKind::gather, large, &run.one).direct());
}

TEST_CASE("direct edges that nobody uses are closed") {
    const Timeouts timeouts;
    Group run(timeouts);
    run.commit(run.start_directly());
    run.pass(timeouts.direct_idle() - 5 * second);
    CHECK(targets_of(run.one).size() == 3);
    run.pass(10 * second);
    for (const play::Member* member : run.all) CHECK(targets_of(*member).size() == 1);
}

TEST_CASE("a member that alone does not end a direct collective does not hold it up") {
    Group run;
    const std::uint64_t op = run.start_directly();
    for (play::Member* member : {&run.one, &run.two, &run.three}) run.ends(*member, op);
    run.pass(50 * second);
    REQUIRE(run.two.answers.back().has_outcome());
    CHECK_FALSE(run.two.answers.back().outcome().commit());
    CHECK(why(run.two).find("does not say that it has finished") != std::string::npos);
    for (const play::Member* member : run.all) CHECK_FALSE(member->closed);
}

TEST_CASE("members that report progress are waited for, and those that report none are not") {
    const Timeouts timeouts;
    Group run(timeouts);
    const std::uint64_t op = run.start_directly();
    for (play::Member* member : {&run.one, &run.two}) run.ends(*member, op);
    run.pass(3 * timeouts.starved_for_good(), true);
    CHECK_FALSE(run.two.answers.back().has_outcome());
    run.pass(timeouts.starved_for_good() + 10 * second);
    REQUIRE(run.two.answers.back().has_outcome());
    CHECK_FALSE(run.two.answers.back().outcome().commit());
}

TEST_CASE("a direct edge that a ring comes to need gets its full time") {
    Group run;
    run.commit(run.start_directly());
    const proto::StartAnswer& start = run.one.answers[run.one.answers.size() - 2].start();
    play::Member *next = nullptr, *behind = nullptr;  // of member one in the ring
    for (play::Member* member : run.all) {
        const auto at = static_cast<int>((start.position() + 1) % 4);
        const auto after = static_cast<int>((start.position() + 2) % 4);
        if (start.members(at).peer() == to_bytes(member->uuid)) next = member;
        if (start.members(after).peer() == to_bytes(member->uuid)) behind = member;
    }
    REQUIRE((next != nullptr && behind != nullptr));
    run.report(run.one, *behind, false);
    run.pass(60 * second);
    proto::PeerMessage message;
    message.set_leave(true);
    run.world.tell(*next, message);
    next->link = 0;
    run.pass(4 * second);
    CHECK(run.world.logged.find("cannot reach") == std::string::npos);
    run.pass(20 * second);
    CHECK(run.world.logged.find("cannot reach") != std::string::npos);
    for (const play::Member* member : run.all) CHECK((member == next || !member->closed));
}
