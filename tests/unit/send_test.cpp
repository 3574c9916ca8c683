// Sends between two members: what the master starts, refuses and tells to whom; and how their bytes travel.
#include "core/voting/graph.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl::core;

namespace {

namespace proto = pccl::proto;

constexpr std::uint32_t slice_bytes = 1u << 10;

struct Group : play::FourMembers {
    std::vector<play::Member*> ring;  // in its order

    explicit Group(const Timeouts& timeouts = {}) : FourMembers(timeouts) {
        // An all-gather tells the ring.
        for (play::Member* member : all) {
            proto::Vote vote;
            vote.set_kind(proto::VOTE_START);
            vote.set_id(99);
            vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(CollectiveKind::all_gather));
            vote.set_capacity(100);
            vote.set_room(10'000);
            vote.set_whole(true);
            world.vote(*member, vote);
        }
        REQUIRE(one.answers.back().start().members_size() == 4);
        for (const auto& told : one.answers.back().start().members()) {
            for (play::Member* member : all) {
                if (told.peer() == to_bytes(member->uuid)) ring.push_back(member);
            }
        }
        REQUIRE(ring.size() == 4);
    }
    static proto::Vote vote(const play::Member& from, const play::Member& to, std::uint64_t count,
                            std::uint64_t room = 0, std::uint64_t tag = 5) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_START);
        vote.set_id(tag);
        vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(CollectiveKind::send));
        vote.mutable_shape()->set_root(to_bytes(from.uuid));
        vote.mutable_shape()->set_target(to_bytes(to.uuid));
        vote.mutable_shape()->set_slice_bytes(slice_bytes);
        vote.set_count(count);
        vote.set_capacity(room);
        vote.set_room(10'000);
        return vote;
    }
    void gives(play::Member& from, const play::Member& to, std::uint64_t count, std::uint64_t tag = 5) {
        world.vote(from, vote(from, to, count, 0, tag));
    }
    void takes(const play::Member& from, play::Member& to, std::uint64_t room, std::uint64_t tag = 5) {
        world.vote(to, vote(from, to, 0, room, tag));
    }
    void ends(play::Member& member, std::uint64_t op, bool ok = true, bool refused = false) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(op);
        vote.set_ok(ok);
        vote.set_refused(refused);
        world.vote(member, vote);
    }
    void leave(play::Member& member) {
        proto::PeerMessage message;
        message.set_leave(true);
        world.tell(member, message);
        member.closed = true;
    }
};

const proto::StartAnswer& start_of(const play::Member& member) { return member.answers.back().start(); }

std::string why(const play::Member& member) { return to_text(cause_of(member.answers.back().cause())); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a send starts on the path of the ring between its ends, and tells nobody else") {
    Group run;
    play::Member &from = *run.ring[1], &between = *run.ring[2], &to = *run.ring[3], &other = *run.ring[0];
    const std::size_t before = other.answers.size();
    run.gives(from, to, 5000);
    run.takes(from, to, 5000);
    const std::uint64_t op = start_of(from).op();
    REQUIRE(op != 0);
    CHECK(other.answers.size() == before);
    std::uint32_t position = 0;
    for (const play::Member* member : {&from, &between, &to}) {
        const proto::StartAnswer& start = start_of(*member);
        CHECK(start.op() == op);
        CHECK(start.world() == 3);
        CHECK(start.position() == position++);
        CHECK(start.shape().count() == 5000);
        CHECK(start.members().empty());
        CHECK((member->answers.back().serial() == 0) == (member == &between));
    }
    CHECK(start_of(from).successor() == to_bytes(between.uuid));
    CHECK(start_of(to).predecessor() == to_bytes(between.uuid));
    // Those that forward it vote for the end, too.
    run.ends(from, op);
    run.ends(to, op);
    CHECK_FALSE(to.answers.back().has_outcome());
    run.ends(between, op);
    for (const play::Member* member : {&from, &between, &to}) CHECK(member->answers.back().outcome().commit());
    CHECK(other.answers.size() == before);
}

TEST_CASE("the two directions of a pair, other pairs and other collectives may have one tag") {
    Group run;
    run.gives(run.one, run.two, 5000);
    run.gives(run.two, run.one, 6000);
    run.gives(run.three, run.four, 7000);
    run.takes(run.one, run.two, 5000);
    CHECK(start_of(run.two).shape().count() == 5000);
    run.takes(run.two, run.one, 6000);
    CHECK(start_of(run.one).shape().count() == 6000);
    run.takes(run.three, run.four, 7000);
    CHECK(start_of(run.four).shape().count() == 7000);
    proto::Vote barrier;
    barrier.set_kind(proto::VOTE_START);
    barrier.set_id(5);
    barrier.mutable_shape()->set_collective(static_cast<std::uint32_t>(CollectiveKind::barrier));
    barrier.set_room(10'000);
    barrier.set_whole(true);
    for (play::Member* member : run.all) run.world.vote(*member, barrier);
    CHECK(start_of(run.three).reduced());
    CHECK(start_of(run.three).members_size() == 4);
}

TEST_CASE("a small send ends with its start, and only the receiver is told the bytes") {
    Group run;
    proto::Vote vote = run.vote(run.one, run.three, 3);
    vote.set_input("abc");
    vote.set_whole(true);
    run.world.vote(run.one, vote);
    vote = run.vote(run.one, run.three, 0, 4);
    vote.set_whole(true);
    run.world.vote(run.three, vote);
    for (const play::Member* member : {&run.one, &run.three}) {
        CHECK(start_of(*member).reduced());
        CHECK(start_of(*member).world() == 2);
        CHECK(start_of(*member).shape().count() == 3);
    }
    CHECK(start_of(run.three).result() == "abc");
    CHECK(start_of(run.one).result().empty());
}

TEST_CASE("a send is refused to both if its ends differ, and says in what") {
    Group run;
    const auto refused = [&](Result result, const std::string& text) {
        for (const play::Member* member : {&run.one, &run.two}) {
            REQUIRE(member->answers.back().has_start());
            CHECK(start_of(*member).op() == 0);
            CHECK(member->answers.back().result() == static_cast<std::uint32_t>(result));
            CHECK(contains(why(*member), text));
        }
    };
    run.gives(run.one, run.two, 8);
    run.takes(run.one, run.two, 7);
    refused(Result::invalid_argument, "has room for 7 elements, and the pieces for it have 8");
    proto::Vote other = run.vote(run.one, run.two, 0, 8);
    other.mutable_shape()->set_type(3);
    run.gives(run.one, run.two, 8);
    run.world.vote(run.two, other);
    refused(Result::invalid_argument, "differ in data type");
    run.gives(run.one, run.two, slice_bytes * slices_of_pieces_max);
    run.takes(run.one, run.two, slice_bytes * slices_of_pieces_max);
    refused(Result::invalid_usage, "more than one collective can have");
}

TEST_CASE("nobody waits for an end of a send that has gone, or never was a member") {
    Group run;
    run.gives(run.one, run.two, 5000);
    const std::size_t before = run.one.answers.size();
    run.leave(run.two);
    REQUIRE(run.one.answers.size() == before + 1);
    CHECK(start_of(run.one).op() == 0);
    CHECK(run.one.answers.back().result() == static_cast<std::uint32_t>(Result::rank_connection_lost));
    CHECK(contains(why(run.one), "is not a member of the group"));
    run.takes(run.two, run.one, 5000);
    CHECK(contains(why(run.one), "is not a member of the group"));
    const play::Member nobody{play::name(9)};
    run.gives(run.three, nobody, 5);
    CHECK(contains(why(run.three), "is not a member of the group"));
    CHECK(run.three.answers.back().result() == static_cast<std::uint32_t>(Result::rank_connection_lost));
}

TEST_CASE("a send fails for both when a member that forwards it leaves, or cannot") {
    for (const bool leaves : {true, false}) {
        Group run;
        play::Member &from = *run.ring[0], &between = *run.ring[1], &to = *run.ring[2], &other = *run.ring[3];
        run.gives(from, to, 5000);
        run.takes(from, to, 5000);
        const std::uint64_t op = start_of(from).op();
        const std::size_t before = other.answers.size();
        if (leaves)
            run.leave(between);
        else
            run.ends(between, op, false, true);
        for (const play::Member* member : {&from, &to}) {
            REQUIRE(member->answers.back().has_outcome());
            CHECK_FALSE(member->answers.back().outcome().commit());
            CHECK(member->answers.back().result() ==
                  static_cast<std::uint32_t>(leaves ? Result::rank_connection_lost : Result::invalid_usage));
        }
        CHECK(other.answers.size() == before);
    }
}

TEST_CASE("a member that forwards a send is told of it again after restarts of the master") {
    Group run;
    play::Member &from = *run.ring[0], &between = *run.ring[1], &to = *run.ring[2];
    run.gives(from, to, 5000);
    run.takes(from, to, 5000);
    const std::uint64_t op = start_of(from).op();
    // `between` has not received the start.
    between.answers.pop_back();
    between.seen = between.answers.back().index();
    run.world.restart();
    for (play::Member* member : run.all) {
        run.world.say_hello(*member);
        run.world.resumed(*member);
    }
    CHECK(start_of(between).op() == op);
    CHECK(between.answers.back().serial() == 0);
    CHECK(start_of(between).shape().count() == 5000);
    for (play::Member* member : {&from, &between, &to}) run.ends(*member, op);
    for (const play::Member* member : {&from, &between, &to}) CHECK(member->answers.back().outcome().commit());
}

TEST_CASE("the path of a send has no edge from its receiver to its sender") {
    Group run;
    play::Member &from = *run.ring[0], &to = *run.ring[1];
    run.gives(from, to, 5000);
    run.takes(from, to, 5000);
    REQUIRE(start_of(from).world() == 2);
    for (const auto& target : to.plan.targets()) CHECK(target.peer() != to_bytes(from.uuid));
}

TEST_CASE("a vote for a send that cannot be removes its member") {
    for (const int which : {0, 1, 2, 3, 4, 5}) {
        Group run;
        proto::Vote vote = run.vote(run.one, run.two, 4);
        if (which == 0) vote.mutable_shape()->set_target(to_bytes(run.one.uuid));  // to itself
        if (which == 1) vote = run.vote(run.two, run.three, 4);                    // of two others
        if (which == 2) vote.mutable_shape()->set_target("short");
        if (which == 3) vote.mutable_shape()->set_count(4);
        if (which == 4) vote.set_count(~std::uint64_t{0});
        if (which == 5) vote.set_batch(1);
        run.world.vote(run.one, vote);
        CHECK(run.one.closed);
    }
}

TEST_CASE("a member that makes no call is removed, also while it forwards the sends of others") {
    Timeouts timeouts;
    timeouts.vote = 5 * second;
    Group run(timeouts);
    play::Member &from = *run.ring[0], &idle = *run.ring[1], &to = *run.ring[2], &waits = *run.ring[3];
    proto::Vote update;
    update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
    run.world.vote(waits, update);
    const auto heartbeats = [&] {
        for (play::Member* member : run.all) {
            if (member->closed || member->refused) continue;
            proto::PeerMessage message;
            message.set_heartbeat(member->seen);
            message.set_heard(member->heard);
            run.world.tell(*member, message);
        }
    };
    for (int turn = 0; turn < 40 && !idle.refused; ++turn) {
        const std::uint64_t tag = 100 + static_cast<std::uint64_t>(turn);
        run.gives(from, to, 5000, tag);
        run.takes(from, to, 5000, tag);
        const std::uint64_t op = start_of(from).op();
        for (int step = 0; step < 4; ++step) {
            heartbeats();
            run.world.pass(250 * millisecond);
        }
        if (idle.refused) break;
        for (play::Member* member : {&from, &idle, &to}) run.ends(*member, op);
    }
    CHECK(idle.refused);
    CHECK_FALSE(waits.refused);
}
