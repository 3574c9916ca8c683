// The ballot alone: who has voted, who is waited for, and what a vote does to its clocks.
#include "core/voting/ballot.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"
#include "tests/unit/name.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace pccl;
using namespace pccl::core;

namespace {

const Uuid a = name(1), b = name(2), c = name(3);
const BallotKey update{proto::VOTE_UPDATE_TOPOLOGY, 0, 0};

proto::Vote vote(Serial serial) {
    proto::Vote cast;
    cast.set_serial(serial);
    return cast;
}

}  // namespace

TEST_CASE("a ballot is complete when each elector has voted, and never without electors") {
    Ballot ballot;
    ballot.cast(a, vote(1), 0);
    CHECK_FALSE(ballot.complete({a, b}));
    CHECK(ballot.missing({a, b}) == std::vector<Uuid>{b});
    ballot.cast(b, vote(1), 0);
    CHECK(ballot.complete({a, b}));
    // One who came meanwhile is waited for, too.
    CHECK_FALSE(ballot.complete({a, b, c}));
    CHECK_FALSE(ballot.complete({}));
}

TEST_CASE("a vote that is declared again renews no clock, a newer one does") {
    Ballot ballot;
    ballot.cast(a, vote(1), 10);
    ballot.cast(a, vote(1), 20);
    CHECK(ballot.changed == 10);
    CHECK(ballot.votes().at(a).at == 10);
    ballot.cast(a, vote(2), 30);
    CHECK(ballot.changed == 30);
    CHECK(ballot.votes().size() == 1);
}

TEST_CASE("time that is left out moves no clock into the future") {
    Ballot ballot;
    ballot.cast(a, vote(1), 10);
    ballot.shift_clocks(5, 12);
    CHECK(ballot.opened == 5);
    CHECK(ballot.changed == 12);
    ballot.restart_clocks(40);
    CHECK(ballot.opened == 40);
    CHECK(ballot.votes().at(a).at == 40);
}

TEST_CASE("a member that is gone is withdrawn from each ballot, and empty ballots close") {
    BallotBox box;
    const BallotKey start{proto::VOTE_START, 1, 7};
    box.cast(update, a, vote(1), 0);
    box.cast(start, a, vote(2), 0);
    box.cast(start, a, vote(3), 0);
    box.cast(start, b, vote(1), 0);
    CHECK(box.starts_of(a) == 1);
    CHECK(box.starts_of(b) == 1);
    box.withdraw(a);
    CHECK(box.starts_of(a) == 0);
    CHECK(box.find(update) == nullptr);
    REQUIRE(box.find(start) != nullptr);
    CHECK_FALSE(box.find(start)->has(a));
    const Ballot taken = box.take(start);
    CHECK(taken.has(b));
    CHECK(box.starts_of(b) == 0);
    CHECK(box.all().empty());
}

TEST_CASE("the electors are the members as the log of decisions knows them now") {
    RunState state(1);
    state.members[a].group = 1;
    state.members[b].group = 2;
    state.groups[1].ring = {a};
    state.groups[2].ring = {b};
    state.ops[5].group = 1;
    state.ops[5].tag = 7;
    state.ops[5].members = {{a, 1, 0}, {c, 1, 0}};  // c is gone
    CHECK(electors_of(state, update) == std::vector<Uuid>{a, b});
    CHECK(electors_of(state, {proto::VOTE_START, 1, 7}) == std::vector<Uuid>{a});
    CHECK(electors_of(state, {proto::VOTE_END, 1, 5}) == std::vector<Uuid>{a});
    CHECK(electors_of(state, {proto::VOTE_END, 1, 6}).empty());
    CHECK(electors_of(state, {proto::VOTE_SYNC_END, 1, 9}).empty());
}
