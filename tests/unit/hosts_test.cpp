// Members that share a host: their places in the ring, and hierarchical all-reduces at the master.
#include "core/base/host_span.hpp"
#include "core/topology/hosts.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers ends_of(const std::vector<std::uint64_t>& hosts) { return host_ends_of(hosts); }
Numbers grouped(const std::vector<std::uint64_t>& hosts) { return grouped_by_host(hosts); }

// Members that name these hosts and come in this order, at most four.
struct Group {
    play::World world;
    play::Member one{play::name(1)}, two{play::name(2)}, three{play::name(3)}, four{play::name(4)};
    std::vector<play::Member*> all;
    std::uint64_t tag = 0;

    explicit Group(const std::vector<std::uint64_t>& hosts) {
        play::Member* const members[] = {&one, &two, &three, &four};
        for (std::size_t i = 0; i < hosts.size(); ++i) comes(*members[i], hosts[i]);
        admit();
    }
    Group(const Group&) = delete;
    void comes(play::Member& member, std::uint64_t host) {
        all.push_back(&member);
        world.say_hello(member, [&](proto::Hello& hello) { hello.set_host(host); });
    }
    void admit() {
        join_edges();
        std::vector<play::Member*> voters;
        std::copy_if(all.begin(), all.end(), std::back_inserter(voters),
                     [&](const play::Member* member) { return member == &one || member->seen > 0; });
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        for (play::Member* member : voters) world.vote(*member, update);
        for (const play::Member* member : all) REQUIRE(member->seen > 0);
    }
    void join_edges() {
        for (play::Member* member : all) {
            for (const play::Member* other : all) {
                if (member != other) world.report_edges(*member, *other);
            }
        }
    }
    void start(std::uint64_t count = 1 << 22) {
        ++tag;
        for (play::Member* member : all) {
            proto::Vote vote;
            vote.set_kind(proto::VOTE_START);
            vote.set_id(tag);
            vote.mutable_shape()->set_count(count);
            vote.mutable_shape()->set_slice_bytes(1u << 10);
            vote.set_room(10'000);
            world.vote(*member, vote);
        }
        for (const play::Member* member : all) REQUIRE(member->answers.back().start().op() != 0);
    }
    // `stuck`: the first member's data does not get through to this one.
    void end(bool ok = true, const play::Member* stuck = nullptr) {
        const std::uint64_t op = one.answers.back().start().op();
        for (play::Member* member : all) {
            proto::Vote vote;
            vote.set_kind(proto::VOTE_END);
            vote.set_id(op);
            vote.set_ok(ok || member != &one);
            if (stuck != nullptr && member == &one) vote.set_stuck(to_bytes(stuck->uuid));
            world.vote(*member, vote);
        }
        for (const play::Member* member : all) REQUIRE(member->answers.back().outcome().commit() == ok);
    }
    void starts_by_hosts() {
        join_edges();
        start();
        REQUIRE(told(one).host_ends_size() == 2);
    }
    void pass(Duration time) { world.pass(time, all); }
    // The connection of these members is gone for so long that the ring does without it.
    void lead_around(play::Member& from, const play::Member& to) {
        proto::PeerMessage lost;
        lost.mutable_edge()->set_peer(to_bytes(to.uuid));
        lost.mutable_edge()->set_outgoing(true);
        world.tell(from, lost);
        for (int i = 0; i < 40 && world.logged.find("led around") == std::string::npos; ++i) {
            pass(second);
            world.tell(from, lost);
        }
        REQUIRE(world.logged.find("led around") != std::string::npos);
    }
    static const proto::StartAnswer& told(const play::Member& member) { return member.answers.back().start(); }
    static bool dials(const play::Member& from, const play::Member& to) {
        for (const auto& target : from.plan.targets()) {
            if (target.peer() == to_bytes(to.uuid)) return true;
        }
        return false;
    }
};

}  // namespace

TEST_CASE("the last members of hosts, around a ring") {
    CHECK(ends_of({1, 1, 2, 2}) == Numbers{1, 3});
    CHECK(ends_of({1, 2, 2, 1}) == Numbers{0, 2});
    CHECK(ends_of({1, 2, 1, 1}) == Numbers{0, 1});
    CHECK(ends_of({1, 2, 3}).empty());
    CHECK(ends_of({1, 1, 1}).empty());
    CHECK(ends_of({1, 1, 0}).empty());
    CHECK(ends_of({1}).empty());
    const HostSpan around = host_of(3, 4, Numbers{0, 2});
    CHECK((around.first == 3 && around.last == 0 && around.size == 2 && around.number == 0));
    const HostSpan inside = host_of(1, 4, Numbers{0, 2});
    CHECK((inside.first == 1 && inside.last == 2 && inside.size == 2 && inside.number == 1));
    CHECK(host_of(2, 5, Numbers{1, 2, 4}).size == 1);
}

TEST_CASE("an order with the members of each host side by side") {
    CHECK(grouped({1, 2, 1, 2}) == Numbers{0, 2, 1, 3});
    CHECK(grouped({1, 1, 2, 2}).empty());
    CHECK(grouped({1, 2, 2, 1}).empty());
    CHECK(grouped({1, 2, 3}).empty());
    CHECK(grouped({0, 0, 0}).empty());
    CHECK(grouped({1, 0, 1, 0}) == Numbers{0, 2, 1, 3});
    CHECK(grouped({1, 1, 1}).empty());
}

TEST_CASE("members of one host come side by side, and a large all-reduce goes by hosts") {
    Group run({7, 8, 7, 8});
    run.start();
    // The new order is wanted, and none of its edges has been reported yet.
    CHECK(Group::told(run.one).successor() == to_bytes(run.two.uuid));
    CHECK(Group::told(run.one).host_ends().empty());
    CHECK(Group::dials(run.one, run.three));
    run.end();
    run.join_edges();  // the new order
    run.join_edges();  // the edges within the hosts
    run.start();
    CHECK(Group::told(run.one).successor() == to_bytes(run.three.uuid));
    CHECK(Group::told(run.three).successor() == to_bytes(run.two.uuid));
    for (const play::Member* member : run.all) {
        const auto& ends = Group::told(*member).host_ends();
        CHECK(std::vector<std::uint32_t>(ends.begin(), ends.end()) == Numbers{1, 3});
        CHECK_FALSE(Group::told(*member).direct());
    }
    CHECK(Group::told(run.one).host_other_end() == to_bytes(run.three.uuid));
    CHECK(Group::told(run.three).host_other_end() == to_bytes(run.one.uuid));
    CHECK(Group::told(run.two).host_other_end() == to_bytes(run.four.uuid));
    CHECK(Group::dials(run.three, run.one));
    run.end();
    run.start(1000);
    CHECK(Group::told(run.one).host_ends().empty());
}

TEST_CASE("after a hierarchical all-reduce failed, the next ones go around the ring for a while") {
    Group run({7, 7, 8, 8});
    run.starts_by_hosts();
    run.end(false);
    run.start();
    CHECK(Group::told(run.one).host_ends().empty());
}

TEST_CASE("a restarted master continues a hierarchical all-reduce") {
    Group run({7, 7, 8, 8});
    run.starts_by_hosts();
    run.world.restart();
    for (play::Member* member : run.all) {
        run.world.say_hello(*member);
        run.world.resumed(*member);
    }
    // The plans still name the edges within the hosts, for the operation that runs.
    CHECK(Group::dials(run.two, run.one));
    CHECK(Group::dials(run.four, run.three));
    run.join_edges();
    run.end();
}

TEST_CASE("what runs by hosts needs its edges within the hosts, whatever the ring is by then") {
    RunningOp whole;
    for (std::uint8_t i = 1; i <= 4; ++i) whole.members.push_back({play::name(i), 0, 0});
    whole.way = RunningOp::Way::hierarchical;
    whole.host_ends = {1, 3};
    const auto edges = whole.edges();
    const auto needs = [&](std::uint8_t from, std::uint8_t to) {
        return std::find(edges.begin(), edges.end(), std::pair(play::name(from), play::name(to))) != edges.end();
    };
    CHECK(edges.size() == 6);
    CHECK((needs(1, 2) && needs(2, 3) && needs(3, 4) && needs(4, 1)));
    CHECK((needs(2, 1) && needs(4, 3)));
}

TEST_CASE("a ring that was led around an edge stays as it is until the group has newcomers") {
    Group run({7, 8, 7, 8});
    CHECK(Group::dials(run.one, run.three));
    run.lead_around(run.one, run.two);
    run.join_edges();
    run.join_edges();
    CHECK(run.world.logged.find("side by side") == std::string::npos);
}

TEST_CASE("a restarted master leaves the order of a ring that was led around an edge") {
    Group run({7, 8, 7, 8});
    run.join_edges();
    run.join_edges();
    REQUIRE(run.world.logged.find("side by side") != std::string::npos);
    run.lead_around(run.one, run.three);
    REQUIRE(Group::dials(run.one, run.two));
    run.world.logged.clear();
    run.lead_around(run.three, run.one);
    run.world.logged.clear();
    run.world.restart();
    for (play::Member* member : run.all) run.world.say_hello(*member);
    for (play::Member* member : run.all) run.world.resumed(*member);
    run.pass(second);
    run.join_edges();
    run.join_edges();
    CHECK(run.world.logged.find("side by side") == std::string::npos);
}

TEST_CASE("an edge that failed in a ring is not kept open within its host") {
    Group run({7, 8, 8});
    CHECK(Group::dials(run.two, run.three));
    CHECK(Group::dials(run.three, run.two));  // within the host
    run.lead_around(run.two, run.three);
    CHECK(Group::dials(run.three, run.two));  // the ring's
    CHECK_FALSE(Group::dials(run.two, run.three));
}

TEST_CASE("a better order does not use an edge that carries nothing") {
    Group run({7, 7, 8});
    run.join_edges();
    run.start();
    CHECK(Group::told(run.one).successor() == to_bytes(run.two.uuid));
    run.end(false, &run.two);
    REQUIRE(run.world.logged.find("led around") != std::string::npos);
    run.comes(run.four, 8);
    run.admit();
    run.join_edges();
    run.join_edges();
    CHECK(run.world.logged.find("side by side") == std::string::npos);
    run.start();
    CHECK(Group::told(run.one).successor() == to_bytes(run.three.uuid));
}

TEST_CASE("edges of a better order that never work are not wanted for ever") {
    const Timeouts timeouts;
    Group run({7, 8, 7, 8});
    CHECK(Group::dials(run.one, run.three));
    run.pass(2 * timeouts.peer - second);
    CHECK(Group::dials(run.one, run.three));
    run.pass(3 * second);
    CHECK_FALSE(Group::dials(run.one, run.three));
    CHECK(Group::dials(run.one, run.two));
}
