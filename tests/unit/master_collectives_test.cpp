// What the master asks of the members' votes for a collective, and what its start tells them.
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace pccl::core;

namespace {

namespace proto = pccl::proto;

struct Group {
    play::World world;
    play::Member a{play::name(1)}, b{play::name(2)};

    Group() {
        world.say_hello(a);
        world.say_hello(b);
        join_edges();
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        join_edges();
    }
    void join_edges() {
        world.report_edges(a, b);
        world.report_edges(b, a);
    }
    static proto::Vote vote(CollectiveKind kind, std::uint64_t count, std::uint64_t own = 0,
                            std::uint64_t capacity = 0) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_START);
        vote.set_id(5);
        vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(kind));
        vote.mutable_shape()->set_count(count);
        vote.set_count(own);
        vote.set_capacity(capacity);
        vote.set_world(2);
        vote.set_room(10'000);
        return vote;
    }
    static proto::Vote with_root(proto::Vote vote, const Uuid& root) {
        vote.mutable_shape()->set_root(to_bytes(root));
        return vote;
    }
    static proto::Vote with_input(proto::Vote vote, const std::string& input) {
        vote.set_input(input);
        vote.set_whole(true);
        return vote;
    }
    // The answer to both votes, as `a` gets it.
    proto::Answer start(const proto::Vote& one, const proto::Vote& other) {
        world.vote(a, one);
        world.vote(b, other);
        REQUIRE(a.answers.back().has_start());
        REQUIRE(b.answers.back().has_start());
        CHECK(a.answers.back().start().op() == b.answers.back().start().op());
        CHECK(a.answers.back().start().result() == b.answers.back().start().result());
        return a.answers.back();
    }
    std::string refused(const proto::Vote& one, const proto::Vote& other, Result result = Result::invalid_argument) {
        const proto::Answer answer = start(one, other);
        CHECK(answer.start().op() == 0);
        CHECK(answer.result() == static_cast<std::uint32_t>(result));
        return to_text(cause_of(answer.cause()));
    }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the master refuses a collective whose members disagree, and says in what") {
    Group run;
    using Kind = CollectiveKind;
    CHECK(contains(run.refused(run.vote(Kind::all_gather, 0, 1, 9), run.vote(Kind::barrier, 0)), "differ in kind"));
    const proto::Vote copy = run.vote(Kind::broadcast, 7);
    CHECK(contains(run.refused(run.with_root(copy, run.a.uuid), run.with_root(copy, run.b.uuid)), "differ in root"));
    CHECK(contains(run.refused(run.with_root(copy, play::name(9)), run.with_root(copy, play::name(9))),
                   "is not a member of the group"));
    CHECK(contains(run.refused(run.with_root(run.vote(Kind::reduce, 7), run.a.uuid),
                               run.with_root(run.vote(Kind::reduce, 8), run.a.uuid)),
                   "differ in count"));
    CHECK(
        contains(run.refused(run.vote(Kind::all_gather, 0, 4, 9), run.vote(Kind::all_gather, 0, 4, 7)), "room for, 7"));
    CHECK(contains(run.refused(run.vote(Kind::reduce_scatter, 8, 4), run.vote(Kind::reduce_scatter, 8, 3)),
                   "7 elements in all"));
    proto::Vote late = run.vote(Kind::reduce_scatter, 8, 4);
    late.set_world(3);
    CHECK(contains(run.refused(late, run.vote(Kind::reduce_scatter, 8, 4), Result::rank_connection_lost), "for 3"));
    const auto root = [&](Kind kind, std::uint64_t own, std::uint64_t capacity) {
        return run.with_root(run.vote(kind, 0, own, capacity), run.a.uuid);
    };
    CHECK(contains(run.refused(root(Kind::gather, 4, 7), root(Kind::gather, 4, 99)), "room for, 7"));
    CHECK(contains(run.refused(root(Kind::scatter, 4, 9), root(Kind::scatter, 0, 3)),
                   "has room for 3 elements, and the pieces for it have 4"));
    proto::Vote late_root = root(Kind::scatter, 4, 9);
    late_root.set_world(3);
    CHECK(contains(run.refused(late_root, root(Kind::scatter, 0, 9), Result::rank_connection_lost), "for 3"));
    proto::Vote row = run.vote(Kind::all_to_all, 0, 0, 9);
    row.add_counts(6);
    row.add_counts(6);
    CHECK(contains(run.refused(row, run.vote(Kind::all_to_all, 0, 4, 99)),
                   "has room for 9 elements, and the pieces for it have 10"));
    proto::Vote other_row = run.vote(Kind::all_to_all, 0, 4, 99);
    other_row.set_world(3);
    CHECK(contains(run.refused(row, other_row, Result::rank_connection_lost), "for 3"));
    // 2^22 slices of one byte, and one more.
    proto::Vote huge = root(Kind::gather, slices_of_pieces_max, ~std::uint64_t{0} >> 14);
    huge.mutable_shape()->set_slice_bytes(1);
    proto::Vote short_one = root(Kind::gather, 1, 0);
    short_one.mutable_shape()->set_slice_bytes(1);
    CHECK(contains(run.refused(huge, short_one, Result::invalid_usage), "more than one collective can have"));
    proto::Vote gave_up = root(Kind::scatter, 0, 9);
    gave_up.set_refused(true);
    write(make_cause<CauseKind::too_many_counts>(1000), *gave_up.mutable_cause());
    CHECK(contains(run.refused(gave_up, root(Kind::scatter, 0, 9), Result::invalid_usage), "1000 members do not fit"));
    proto::Vote cramped = run.vote(Kind::barrier, 0);
    CHECK(run.start(cramped, cramped).start().op() != 0);
}

TEST_CASE("the length of a list of counts in a message is known before") {
    proto::Vote vote;
    for (const std::uint64_t count : {0ull, 1ull, 127ull, 128ull, 16'383ull, 16'384ull, 1ull << 49, ~0ull})
        vote.add_counts(count);
    // A byte each for the tag, in two bytes, and the length.
    CHECK(vote.ByteSizeLong() == wire::counts_bytes(vote.counts()) + 3);
}

TEST_CASE("a vote for a collective that cannot be removes its member") {
    for (const int which : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
        Group run;
        proto::Vote vote = run.vote(CollectiveKind::all_gather, 0, 4, 9);
        if (which == 0) vote.mutable_shape()->set_collective(collective_kind_count);
        if (which == 1) vote.set_count(~std::uint64_t{0});
        if (which == 2) vote.mutable_shape()->set_root("short");
        if (which == 3) vote = run.with_input(vote, "five5");
        if (which == 4) vote.mutable_shape()->set_quantization(1);
        if (which >= 5) vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(CollectiveKind::all_to_all));
        if (which == 5) vote.add_counts(4);  // for two members
        if (which == 6) vote.set_count(~std::uint64_t{0} >> 14);
        if (which == 7) vote.add_counts(1);
        if (which == 7) vote.add_counts(~std::uint64_t{0});
        if (which == 8) vote = run.with_input(vote, "seven77");  // and not twice 4
        run.world.vote(run.a, vote);
        CHECK(run.a.closed);
    }
}

TEST_CASE("a vote has counts only if its collective has pieces of different sizes, and a send has slices") {
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::barrier, CollectiveKind::all_gather, CollectiveKind::send}) {
        Group run;
        proto::Vote vote = run.vote(kind, 0);
        if (kind == CollectiveKind::send) {
            vote.mutable_shape()->set_root(to_bytes(run.a.uuid));
            vote.mutable_shape()->set_target(to_bytes(run.b.uuid));
        } else {
            vote.add_counts(0);
            vote.add_counts(0);
        }
        run.world.vote(run.a, vote);
        CHECK(run.a.closed);
        CHECK_FALSE(run.b.closed);
    }
}

TEST_CASE("the room for an answer that a vote names is not believed beyond the frames of its member") {
    Group run;  // with the least frames
    const proto::Vote vote =
        run.with_input(run.vote(CollectiveKind::all_gather, 0, 3000, 9000), std::string(3000, 'x'));
    const proto::Answer answer = run.start(vote, vote);
    CHECK_FALSE(answer.start().reduced());
    CHECK(answer.start().op() != 0);
    CHECK_FALSE(run.a.closed);
}

TEST_CASE("a start tells each member the pieces of all, also after a restart of the master") {
    Group run;
    const proto::Answer answer = run.start(run.vote(CollectiveKind::all_gather, 0, 40'000, 99'999),
                                           run.vote(CollectiveKind::all_gather, 0, 5, 99'999));
    const auto check = [&](const proto::StartAnswer& start) {
        CHECK_FALSE(start.reduced());
        CHECK(start.collective() == static_cast<std::uint32_t>(CollectiveKind::all_gather));
        REQUIRE(start.members_size() == 2);
        for (const auto& member : start.members()) {
            CHECK(member.count() == (member.peer() == to_bytes(run.a.uuid) ? 40'000u : 5u));
            CHECK(member.index() < 2);
        }
        CHECK(start.members(0).index() != start.members(1).index());
    };
    check(answer.start());
    const std::uint64_t seen = run.b.answers[run.b.answers.size() - 2].index();
    const std::size_t before = run.b.answers.size();
    run.world.restart();
    run.b.answers.pop_back();
    run.b.seen = seen;
    run.world.say_hello(run.b);
    REQUIRE(run.b.answers.size() == before);
    check(run.b.answers.back().start());
}

TEST_CASE("small collectives end with their start") {
    Group run;
    using Kind = CollectiveKind;
    const auto first_index = [&](const proto::StartAnswer& start) {
        for (const auto& member : start.members()) {
            if (member.index() == 0) return member.peer() == to_bytes(run.a.uuid) ? 'a' : 'b';
        }
        return '?';
    };
    // u8 is type 0.
    proto::StartAnswer start = run.start(run.with_input(run.vote(Kind::all_gather, 0, 3, 9), "aaa"),
                                         run.with_input(run.vote(Kind::all_gather, 0, 0, 9), ""))
                                   .start();
    CHECK(start.reduced());
    CHECK(start.result() == "aaa");
    start = run.start(run.with_input(run.vote(Kind::all_gather, 0, 1, 9), "a"),
                      run.with_input(run.vote(Kind::all_gather, 0, 1, 9), "b"))
                .start();
    CHECK(start.result() == (first_index(start) == 'a' ? "ab" : "ba"));
    start = run.start(run.with_input(run.with_root(run.vote(Kind::broadcast, 2), run.b.uuid), ""),
                      run.with_input(run.with_root(run.vote(Kind::broadcast, 2), run.b.uuid), "xy"))
                .start();
    CHECK(start.reduced());
    CHECK(start.result() == "xy");
    for (const Kind kind : {Kind::reduce, Kind::reduce_scatter}) {
        proto::Vote one = run.vote(kind, 2, kind == Kind::reduce ? 0 : 2), other = run.vote(kind, 2);
        if (kind == Kind::reduce) one = run.with_root(one, run.a.uuid);
        if (kind == Kind::reduce) other = run.with_root(other, run.a.uuid);
        start = run.start(run.with_input(one, "\x01\x02"), run.with_input(other, "\x10\x20")).start();
        CHECK(start.reduced());
        CHECK(start.result() == "\x11\x22");
    }
    const auto rooted = [&](Kind kind, std::uint64_t own, std::uint64_t capacity, const std::string& input) {
        return run.with_input(run.with_root(run.vote(kind, 0, own, capacity), run.b.uuid), input);
    };
    start = run.start(rooted(Kind::gather, 1, 0, "a"), rooted(Kind::gather, 2, 3, "bb")).start();
    CHECK(start.reduced());
    CHECK(start.result() == (first_index(start) == 'a' ? "abb" : "bba"));
    start = run.start(rooted(Kind::scatter, 0, 2, ""), rooted(Kind::scatter, 2, 2, "xxyy")).start();
    CHECK(start.reduced());
    CHECK(start.result() == "xxyy");
    CHECK(start.members(0).count() == 2);
    proto::Vote row = run.vote(Kind::all_to_all, 0, 0, 9);
    row.add_counts(1);
    row.add_counts(2);
    start = run.start(run.with_input(row, "abb"), run.with_input(run.vote(Kind::all_to_all, 0, 1, 9), "cd")).start();
    CHECK(start.reduced());
    CHECK(start.result() == (first_index(start) == 'a' ? "abbcd" : "cdabb"));
    for (const auto& member : start.members()) {
        const bool is_a = member.peer() == to_bytes(run.a.uuid);
        CHECK(member.counts_size() == (is_a ? 2 : 0));
        CHECK(member.count() == (is_a ? 0u : 1u));
    }
    start = run.start(run.with_input(run.vote(Kind::barrier, 0), ""), run.with_input(run.vote(Kind::barrier, 0), ""))
                .start();
    CHECK(start.reduced());
    CHECK(start.members_size() == 2);
}

TEST_CASE("two members reduce a large array along the ring only if both are near to each other") {
    const auto vote = [](std::uint64_t count, bool near) {
        proto::Vote vote = Group::vote(CollectiveKind::all_reduce, count);
        vote.mutable_shape()->set_type(static_cast<std::uint32_t>(DataType::f32));
        vote.set_near(near);
        return vote;
    };
    const auto pairwise = [&](std::uint64_t count, bool one, bool other) {
        Group run;
        return run.start(vote(count, one), vote(count, other)).start().pairwise();
    };
    constexpr std::uint64_t small = 128 << 10, large = small + 1, largest = 8 << 20;
    CHECK(pairwise(small, true, true));
    CHECK_FALSE(pairwise(large, true, true));
    CHECK(pairwise(large, true, false));
    CHECK(pairwise(largest, false, false));
    CHECK_FALSE(pairwise(largest + 1, false, false));
}
