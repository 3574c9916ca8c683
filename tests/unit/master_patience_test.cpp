// A member is not removed for a time in which it could not act, because the master slept or because the member was
// busy.
#include "tests/unit/master_play.hpp"

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

constexpr Duration limit = 5 * second;

Timeouts with_limit() {
    Timeouts timeouts;
    timeouts.vote = limit;
    return timeouts;
}

proto::Vote of_kind(proto::VoteKind kind) {
    proto::Vote vote;
    vote.set_kind(kind);
    return vote;
}

// Admits two members that form a group, or a second one that joins the first. They are connected with each other, and
// the members in `asks` vote for the update.
void admit(World& world, Member& first, Member& second, const std::vector<Member*>& asks) {
    const auto connect = [&] {
        world.report_edges(first, second);
        world.report_edges(second, first);
    };
    connect();
    for (Member* member : asks) world.vote(*member, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    REQUIRE(second.seen > 0);
    connect();
}

struct Pair {
    World world;
    Member a{name(1), 0, {}, 0, 0, 0, {}, false}, b{name(2), 0, {}, 0, 0, 0, {}, false};

    // `newcomer_links`: how many connections with newcomers each member can hold; 0: not stated.
    explicit Pair(const Timeouts& timeouts = with_limit(), std::uint32_t newcomer_links = 0) : world(timeouts) {
        for (Member* member : {&a, &b})
            world.say_hello(*member, [&](proto::Hello& hello) { hello.set_newcomer_links(newcomer_links); });
        admit(world, a, b, {&a});
    }
    // `a` waits in a call, and the link of `b` is away when the limit passes.
    void b_comes_back_late() {
        world.vote(a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
        pass(limit - second);
        world.reset(b);
        pass(3 * second);
        REQUIRE_FALSE(b.refused);
        world.say_hello(b);
    }
    // Time passes in ticks, and both members send heartbeats. `b_works`: that one says in each that it works.
    void pass(Duration time, bool b_works = false) {
        for (Duration step = 100 * millisecond; time > 0; time -= step) {
            for (Member* member : {&a, &b}) {
                if (member->link == 0 || member->refused) continue;
                proto::PeerMessage message;
                message.set_heartbeat(member->seen);
                message.set_heard(member->heard);
                message.set_works(member == &b && b_works);
                world.tell(*member, message);
            }
            world.advance(step);
        }
    }
};

}  // namespace

TEST_CASE("a vote that nobody joins is given up after the limit, and the one that makes no call is removed") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.pass(limit - second);
    CHECK_FALSE(run.b.refused);
    run.pass(2 * second);
    CHECK(run.b.refused);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("a member that says that it works is believed for twenty limits, whatever was before, and not for ever") {
    Pair run;
    run.pass(30 * limit);  // it computes, and nobody waits
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.pass(19 * limit, true);
    CHECK_FALSE(run.b.refused);
    run.pass(2 * limit, true);
    CHECK_FALSE(run.b.refused);
    run.pass(limit, true);
    CHECK(run.b.refused);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("the sleep of a master is left out of the limit on votes") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.pass(limit - second);
    run.world.advance(60 * second);
    CHECK_FALSE(run.b.refused);
    run.pass(second / 2);
    CHECK_FALSE(run.b.refused);
    run.pass(second);
    CHECK(run.b.refused);
}

TEST_CASE("a master that sleeps again and again reaches the limit on votes") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    for (int i = 0; i < 7; ++i) {
        run.pass(second);
        run.world.advance(60 * second);
    }
    CHECK(run.b.refused);
    CHECK_FALSE(run.a.refused);
}

TEST_CASE("calls that cross are not given up for the time that the master slept") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    run.pass(second);
    const std::uint64_t before = run.a.seen;
    run.world.advance(60 * second);
    run.pass(second);
    CHECK(run.a.seen == before);
    run.pass(limit);
    CHECK(run.a.seen > before);
}

TEST_CASE("calls do not cross with a member that has just made another one") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    run.pass(limit - second);
    run.world.vote(run.b, of_kind(proto::VOTE_OPTIMIZE_TOPOLOGY));
    const std::uint64_t before = run.a.seen;
    run.pass(2 * second);
    CHECK(run.a.seen == before);
    run.pass(limit);
    CHECK(run.a.seen > before);
}

TEST_CASE("a member that an operation kept busy gets the full time when it has ended") {
    Pair run;
    for (Member* member : {&run.a, &run.b}) {
        proto::Vote start = of_kind(proto::VOTE_START);
        start.set_id(5);
        start.mutable_shape()->set_count(10);
        run.world.vote(*member, start);
    }
    REQUIRE(run.a.answers.back().has_start());
    const std::uint64_t op = run.a.answers.back().start().op();
    // Meanwhile, another thread of the first member waits in an update.
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.pass(3 * limit);
    for (Member* member : {&run.a, &run.b}) {
        proto::Vote end = of_kind(proto::VOTE_END);
        end.set_id(op);
        end.set_ok(true);
        run.world.vote(*member, end);
    }
    REQUIRE(run.b.answers.back().has_outcome());
    run.pass(limit - second);
    CHECK_FALSE(run.b.refused);
    run.pass(2 * second);
    CHECK(run.b.refused);
}

TEST_CASE("a member whose answer waits for the disk is not removed for its next vote") {
    Pair run;
    run.world.hold_disk(true);
    run.world.vote(run.a, of_kind(proto::VOTE_PEERS_PENDING));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    const std::uint64_t before = run.b.seen;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.pass(2 * limit);
    CHECK(run.b.seen == before);
    CHECK_FALSE(run.b.refused);
    run.world.hold_disk(false);
    CHECK(run.b.seen > before);
    run.pass(limit - second);
    CHECK_FALSE(run.b.refused);
    run.pass(2 * second);
    CHECK(run.b.refused);
}

TEST_CASE("a member that comes back from the other side of its host keeps the address that the others dial") {
    World world(with_limit());
    Member a{name(1), 0, {}, 0, 0, 0, {}, false}, b{name(2), 0, {}, 0, 0, 0, {}, false};
    const auto nothing = [](const proto::Hello&) {};
    world.say_hello(a, nothing, 127);
    world.say_hello(b, nothing, 127);
    admit(world, a, b, {&a});
    world.reset(a);
    world.say_hello(a, nothing, 10);
    world.resumed(a);
    REQUIRE(a.plan.targets_size() == 1);
    CHECK(a.plan.targets(0).peer() == to_bytes(b.uuid));
}

TEST_CASE("plans that change while the disk hangs are told once") {
    Pair run;
    run.world.hold_disk(true);
    run.world.vote(run.a, of_kind(proto::VOTE_PEERS_PENDING));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    const std::uint64_t before = run.a.heard;
    for (std::uint8_t i = 0; i < 100; ++i) {
        Member newcomer{name(static_cast<std::uint8_t>(10 + i)), 0, {}, 0, 0, 0, {}, false};
        run.world.say_hello(newcomer);
        run.world.reset(newcomer);
    }
    run.world.hold_disk(false);
    CHECK(run.a.heard > before);
    CHECK(run.a.heard <= before + 4);  // an answer, the plan that was held, and what changed meanwhile
}

TEST_CASE("who waits for the master itself is in no other call") {
    Timeouts timeouts = with_limit();
    timeouts.vote = second;
    World world(timeouts);
    Member a{name(1), 0, {}, 0, 0, 0, {}, false}, b{name(2), 0, {}, 0, 0, 0, {}, false},
        c{name(3), 0, {}, 0, 0, 0, {}, false};
    const auto in_group = [](GroupId group) { return [group](proto::Hello& hello) { hello.set_group(group); }; };
    world.say_hello(a, in_group(0));
    world.say_hello(b, in_group(1));
    world.say_hello(c, in_group(1));
    admit(world, b, c, {&a, &b});
    // The edge between the two members of a group breaks for a moment, so their operation waits for it.
    proto::PeerMessage down;
    down.mutable_edge()->set_peer(to_bytes(c.uuid));
    down.mutable_edge()->set_outgoing(true);
    world.tell(b, down);
    for (Member* member : {&b, &c}) {
        proto::Vote start = of_kind(proto::VOTE_START);
        start.set_id(5);
        start.mutable_shape()->set_count(10);
        world.vote(*member, start);
    }
    const std::uint64_t before = a.seen;
    world.vote(a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    for (int i = 0; i < 15; ++i) {
        for (Member* member : {&a, &b, &c}) {
            proto::PeerMessage message;
            message.set_heartbeat(member->seen);
            message.set_heard(member->heard);
            world.tell(*member, message);
        }
        world.advance(100 * millisecond);
    }
    CHECK(a.seen == before);
}

TEST_CASE("a member is asked anew for a vote that others joined after it was asked") {
    Pair run;
    Member c{name(3), 0, {}, 0, 0, 0, {}, false};
    run.world.say_hello(c);
    run.world.report_edges(run.a, c);
    run.world.report_edges(c, run.a);
    admit(run.world, run.b, c, {&run.a, &run.b});
    std::uint64_t acknowledged = 0;
    const auto pass = [&](Duration time, bool reads) {
        for (; time > 0; time -= 100 * millisecond) {
            if (reads) acknowledged = c.heard;
            proto::PeerMessage message;
            message.set_heartbeat(c.seen);
            message.set_heard(acknowledged);
            run.world.tell(c, message);
            run.pass(100 * millisecond);
        }
    };
    // It has been in no call for long when the last member votes. Then it is slow to acknowledge.
    pass(limit - 50 * millisecond, true);
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    pass(limit + 150 * millisecond, true);
    REQUIRE_FALSE(c.refused);
    run.world.vote(run.b, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    pass(limit - second, true);
    pass(2 * second, false);
    CHECK_FALSE(c.refused);
    pass(second, true);
    CHECK(c.refused);
}

TEST_CASE("a member in no call is judged when it has resumed, for the time away too") {
    Pair run;
    run.b_comes_back_late();
    run.pass(second / 2);
    CHECK_FALSE(run.b.refused);
    run.world.resumed(run.b);
    run.pass(second / 2);
    CHECK(run.b.refused);
}

TEST_CASE("a member that resumes in no call is judged before its link can break again") {
    Pair run;
    run.b_comes_back_late();
    run.world.resumed(run.b);
    CHECK(run.b.refused);
}

TEST_CASE("calls that cross are given up, though the link of one member breaks soon after each resume") {
    Pair run;
    run.world.vote(run.a, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    const std::uint64_t answered = run.a.seen;
    for (int i = 0; i < 9 && run.a.seen == answered; ++i) {
        run.world.reset(run.b);
        run.pass(second);
        run.world.say_hello(run.b);
        run.world.resumed(run.b);
    }
    CHECK(run.a.seen > answered);
    CHECK_FALSE(run.a.refused);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a member that called while its link was away is not in no call") {
    Pair run;
    run.b_comes_back_late();
    run.world.vote(run.b, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    run.world.resumed(run.b);
    run.pass(2 * limit);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a master that sleeps in its grace gives its members all of it again") {
    Pair run;
    run.world.restart();
    // The master has no open link while it sleeps.
    run.world.advance(60 * second);
    run.world.say_hello(run.a);
    CHECK_FALSE(run.a.refused);
    run.world.resumed(run.a);
    run.pass(2 * second);
    run.world.say_hello(run.b);
    CHECK_FALSE(run.b.refused);
    run.world.resumed(run.b);
    CHECK(run.world.status().peers.size() == 2);
    CHECK_FALSE(run.world.status().grace_until);
}

TEST_CASE("a master that sleeps with one member resumed waits for the other one") {
    Pair run;
    run.world.restart();
    run.world.say_hello(run.a);
    run.world.resumed(run.a);
    run.world.advance(60 * second);
    run.pass(2 * second);
    run.world.say_hello(run.b);
    CHECK_FALSE(run.b.refused);
    run.world.resumed(run.b);
    CHECK(run.world.status().peers.size() == 2);
}

TEST_CASE("a connection that could not speak while the master slept is not closed for it") {
    World world;
    Member a{name(1), 0, {}, 0, 0, 0, {}, false};
    world.dial(a);
    world.advance(60 * second);
    world.hello(a, [](const proto::Hello&) {});
    CHECK(a.welcome.token() != 0);
}

TEST_CASE("a disk that does not answer is named to the operator and to every member") {
    Pair run;
    run.world.hold_disk(true);
    run.world.vote(run.a, of_kind(proto::VOTE_PEERS_PENDING));
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    run.pass(4 * second);
    CHECK(run.world.logged.find("has not answered") == std::string::npos);
    // The master's own sleep does not count against the disk.
    run.world.advance(60 * second);
    run.pass(4 * second);
    CHECK(run.world.logged.find("has not answered") == std::string::npos);
    run.pass(2 * second);
    CHECK(run.world.logged.find("has not answered for 5 s") != std::string::npos);
    for (const Member* member : {&run.a, &run.b}) CHECK(member->notices.find("every call waits") != std::string::npos);
    run.world.hold_disk(false);
    CHECK(run.world.logged.find("written again") != std::string::npos);
    CHECK(run.b.answers.back().has_pending());
}

TEST_CASE(
    "a master whose disk does not answer for the limit of the operator stops, and the next one takes up the run") {
    Timeouts timeouts;
    timeouts.journal = 20 * second;
    Pair run(timeouts);
    run.world.vote(run.a, of_kind(proto::VOTE_PEERS_PENDING));
    // A slow disk answers each time.
    for (int i = 0; i < 5; ++i) {
        run.world.hold_disk(true);
        run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
        run.world.vote(run.a, of_kind(proto::VOTE_PEERS_PENDING));
        run.pass(15 * second);
        run.world.hold_disk(false);
    }
    CHECK(run.world.halted.empty());
    run.world.hold_disk(true);
    run.world.vote(run.b, of_kind(proto::VOTE_PEERS_PENDING));
    CHECK(run.world.status().journal_waits == run.world.now());
    // The master's own sleep does not count against the disk.
    run.world.advance(60 * second);
    run.pass(19 * second);
    CHECK(run.world.halted.empty());
    run.pass(2 * second);
    CHECK(run.world.halted.find("has not answered for 20 s") != std::string::npos);
    CHECK(run.world.halted.find("takes up the run") != std::string::npos);
    CHECK(run.world.status().stopped);
}

TEST_CASE("a master that nobody has reached yet names a disk that does not answer, and stops at the limit") {
    Timeouts timeouts;
    timeouts.journal = 20 * second;
    World world(timeouts);
    world.hold_disk(true);
    world.restart();
    world.pass(6 * second);
    CHECK(world.logged.find("has not answered for 5 s") != std::string::npos);
    world.pass(15 * second);
    CHECK(world.halted.find("has not answered for 20 s") != std::string::npos);
}

TEST_CASE("a key list that does not come holds up a synchronization for three peer time-outs at most") {
    Pair run{Timeouts{}};
    std::uint64_t schema = 1;
    for (Member* member : {&run.a, &run.b}) {
        proto::Vote vote = of_kind(proto::VOTE_SYNC);
        vote.set_entries(2);
        write(Hash128{schema++, 0}, *vote.mutable_schema());
        run.world.vote(*member, vote);
    }
    run.pass(29 * second);
    CHECK_FALSE(run.b.refused);
    run.pass(2 * second);
    CHECK(run.b.refused);
    CHECK(run.a.answers.back().has_sync());
}

namespace {

proto::PeerMessage edge_report(const Member& other, bool outgoing, bool up, bool unwanted = false) {
    proto::PeerMessage message;
    message.mutable_edge()->set_peer(to_bytes(other.uuid));
    message.mutable_edge()->set_outgoing(outgoing);
    message.mutable_edge()->set_up(up);
    message.mutable_edge()->set_unwanted(unwanted);
    return message;
}

// One newcomer has a place, and another one waits for it.
struct Newcomers : Pair {
    Member first{name(9), 0, {}, 0, 0, 0, {}, false}, next{name(8), 0, {}, 0, 0, 0, {}, false};

    Newcomers() : Pair(Timeouts{}, 2) {
        world.say_hello(first);
        for (const Member* member : {&a, &b}) say(first, *member, true, true);
        for (Member* member : {&a, &b}) say(*member, first, true, true);
        world.say_hello(next);
    }
    void say(Member& member, const Member& other, bool outgoing, bool up, bool unwanted = false) {
        world.tell(member, edge_report(other, outgoing, up, unwanted));
    }
    void a_second_passes() {
        for (Member* member : {&first, &next}) {
            proto::PeerMessage message;
            message.set_heartbeat(0);
            message.set_heard(member->heard);
            world.tell(*member, message);
        }
        pass(1000 * millisecond);
    }
    bool next_has_the_place() const { return next.plan.targets_size() + next.plan.callers_size() != 0; }
};

}  // namespace

TEST_CASE("a newcomer that cannot be let in gives its place to others, whatever it says") {
    using Lie = void (*)(Newcomers&, int);
    const std::pair<const char*, Lie> lies[] = {
        {"it has reached the members", [](Newcomers&, int) {}},
        {"it takes its word back and gives it again",
         [](Newcomers& run, int) {
             for (const Member* member : {&run.a, &run.b}) {
                 run.say(run.first, *member, true, false, true);
                 run.say(run.first, *member, true, true);
             }
         }},
        {"it takes its word back each time, before anybody looks",
         [](Newcomers& run, int) {
             for (int i = 0; i < 33; ++i) {
                 for (const Member* member : {&run.a, &run.b}) run.say(run.first, *member, true, false, true);
             }
             for (const Member* member : {&run.a, &run.b}) {
                 run.say(run.first, *member, true, true);
                 run.say(run.first, *member, true, false, true);
             }
         }},
        {"it does not say that its connections broke",
         [](Newcomers& run, int i) {
             if (i != 0) return;
             for (Member* member : {&run.a, &run.b}) {
                 for (const bool up : {true, false}) run.say(*member, run.first, false, up);
             }
         }},
        {"it connects for a moment now and then",
         [](Newcomers& run, int i) {
             if (i % 9 != 0) return;
             for (Member* member : {&run.a, &run.b}) {
                 for (const bool up : {true, false}) run.say(*member, run.first, false, up);
             }
         }},
        {"it is connected with one of two members",
         [](Newcomers& run, int i) {
             if (i == 0) run.say(run.a, run.first, false, true);
             if (i == 0) run.say(run.b, run.first, true, false);
         }},
    };
    for (const auto& [what, lie] : lies) {
        Newcomers run;
        int seconds_of_next = 0;
        for (int i = 0; i < 240; ++i) {
            lie(run, i);
            run.a_second_passes();
            seconds_of_next += run.next_has_the_place() ? 1 : 0;
        }
        INFO(what);
        CHECK(seconds_of_next >= 10);
        CHECK(run.first.notices.find("cannot be admitted yet") != std::string::npos);
    }
}

TEST_CASE("the turn of a newcomer begins when it has a place") {
    Pair run(Timeouts{}, 4);
    // Both are notified at the same time that nobody reaches them, so their turns would begin and end together.
    Member newcomers[] = {{name(7), 0, {}, 0, 0, 0, {}, false},
                          {name(8), 0, {}, 0, 0, 0, {}, false},
                          {name(9), 0, {}, 0, 0, 0, {}, false}};
    for (Member* member : {&newcomers[0], &newcomers[1]}) run.world.say_hello(*member);
    int seconds_of_second = 0;
    for (int i = 0; i < 600; ++i) {
        if (i == 60) {
            for (const Member* member : {&newcomers[0], &newcomers[1]}) REQUIRE_FALSE(member->notices.empty());
            // From here on there is only one place.
            for (Member* member : {&run.a, &run.b}) {
                run.world.reset(*member);
                run.world.say_hello(*member, [](proto::Hello& hello) { hello.set_newcomer_links(2); });
                run.world.resumed(*member);
            }
            run.world.say_hello(newcomers[2]);
        }
        for (Member& member : newcomers) {
            if (member.link == 0) continue;
            proto::PeerMessage message;
            message.set_heartbeat(0);
            message.set_heard(member.heard);
            run.world.tell(member, message);
        }
        run.pass(second);
        const proto::DialPlan& plan = newcomers[1].plan;
        if (i > 60) seconds_of_second += plan.targets_size() + plan.callers_size() != 0 ? 1 : 0;
    }
    CHECK(seconds_of_second > 10);
}

TEST_CASE("a newcomer that can be let in keeps its place until the members let it in") {
    Newcomers run;
    for (Member* member : {&run.a, &run.b}) run.say(*member, run.first, false, true);
    for (int i = 0; i < 200; ++i) run.a_second_passes();
    CHECK_FALSE(run.next_has_the_place());
    CHECK(run.first.notices.empty());
    for (Member* member : {&run.a, &run.b}) run.world.vote(*member, of_kind(proto::VOTE_UPDATE_TOPOLOGY));
    CHECK(run.world.status().peers.size() == 4);
    CHECK(run.first.seen > 0);
}
