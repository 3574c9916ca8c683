// Whatever a stranger claims towards the master, it must harm nobody else.
#include "tests/unit/master_play.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
    run.world.say_hello(stranger);  // registered, so it receives the name of the run
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

TEST_CASE("a member that has seen more decisions than there are is removed, and the run goes on") {
    Pair run;
    run.world.reset(run.a);
    run.world.say_hello(run.a, [](proto::Hello& hello) { hello.set_seen(1000); });
    CHECK(run.a.refused);
    CHECK_FALSE(run.b.refused);
    CHECK(run.members() == 1);
}

TEST_CASE("a restarted master removes a member that names decisions which nobody made, and the run goes on") {
    const auto claims_later = [](proto::Hello& hello) { hello.set_seen(1000); };
    const auto claims_other = [](proto::Hello& hello) { hello.set_seen_chain(hello.seen_chain() ^ 1); };
    for (const auto& claims : std::vector<std::function<void(proto::Hello&)>>{claims_later, claims_other}) {
        Pair run;
        run.world.restart();
        run.world.say_hello(run.b);
        run.world.say_hello(run.a, claims);
        CHECK(run.a.refused);
        CHECK_FALSE(run.b.refused);
        CHECK(run.members() == 1);
    }
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

TEST_CASE("idle connections give way: newcomers and members get in, whoever floods loses its own") {
    Pair run;
    std::vector<std::unique_ptr<Member>> crowd;
    const auto come = [&](std::uint8_t address) {
        crowd.push_back(std::make_unique<Member>(member(100)));
        run.world.dial(*crowd.back(), address);
    };
    Member early = member(3);
    run.world.dial(early, 77);
    for (int i = 0; i < 1000; ++i) come(66);
    // It is one of few at its address, so it may still send its hello.
    CHECK_FALSE(early.closed);
    const auto open = std::count_if(crowd.begin(), crowd.end(), [](const auto& one) { return !one->closed; });
    CHECK(open <= static_cast<std::ptrdiff_t>(Limits{}.unregistered_links_max));
    // Another host has a place at once, at the cost of the flood.
    Member newcomer = member(4);
    run.world.say_hello(
        newcomer, [](proto::Hello&) {}, 67);
    CHECK_FALSE(newcomer.welcome.run_id().empty());
    CHECK(crowd.front()->closed);
    // So has one of the same host, when the others have had the time to send their hello.
    run.world.advance(Timeouts{}.place());
    Member neighbour = member(5);
    run.world.say_hello(
        neighbour, [](proto::Hello&) {}, 66);
    CHECK_FALSE(neighbour.welcome.run_id().empty());
    // Room is left for the addresses of members, and a member resumes.
    run.world.reset(run.a);
    run.world.say_hello(run.a);
    CHECK(run.a.welcome.member());
    CHECK(run.members() == 2);
}

namespace {

// Each of a crowd dials again when its connection was closed, and its hello takes `way` to come. Returns how many got in.
std::size_t crowd_comes(World& world, std::vector<Member>& crowd, Duration between, Duration way, Duration time) {
    std::vector<Instant> dialled(crowd.size(), -never);
    const Instant end = world.now() + time;
    std::size_t next = 0;
    const auto in = [](const Member& one) { return !one.welcome.run_id().empty() && one.heard != 0; };
    while (world.now() < end) {
        for (std::size_t i = 0; i < crowd.size(); ++i) {
            if (dialled[i] == -never || in(crowd[i]) || world.now() - dialled[i] < way) continue;
            if (!crowd[i].closed) world.hello(crowd[i], [](proto::Hello&) {});
            dialled[i] = -never;
        }
        for (std::size_t tried = 0; tried < crowd.size(); ++tried, ++next) {
            Member& one = crowd[next % crowd.size()];
            if (in(one) || dialled[next % crowd.size()] != -never) continue;
            one.closed = false;
            world.dial(one, static_cast<std::uint8_t>(20 + next % crowd.size()));
            dialled[next++ % crowd.size()] = world.now();
            break;
        }
        world.advance(between);
    }
    return static_cast<std::size_t>(std::count_if(crowd.begin(), crowd.end(), in));
}

}  // namespace

TEST_CASE("a crowd of newcomers over a long path gets in, though the room is small") {
    Limits limits;
    limits.unregistered_links_max = 8;
    World world(limits);
    std::vector<Member> crowd;
    for (std::uint8_t i = 0; i < 20; ++i) crowd.push_back(member(static_cast<std::uint8_t>(30 + i)));
    CHECK(crowd_comes(world, crowd, 20 * millisecond, 300 * millisecond, 10 * second) == crowd.size());
}

TEST_CASE("after a restart of the master all members resume at once, however small the room is") {
    Limits limits;
    limits.unregistered_links_max = 8;
    World world(limits);
    std::vector<Member> crowd;
    for (std::uint8_t i = 0; i < 9; ++i) crowd.push_back(member(static_cast<std::uint8_t>(30 + i)));
    for (std::uint8_t i = 0; i < 9; ++i) {
        world.say_hello(
            crowd[i], [](proto::Hello&) {}, static_cast<std::uint8_t>(20 + i));
        for (std::uint8_t k = 0; k < i; ++k) {
            world.report_edges(crowd[i], crowd[k]);
            world.report_edges(crowd[k], crowd[i]);
        }
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        if (i > 0) world.vote(crowd[0], update);
        for (std::uint8_t k = 1; k < i; ++k) world.vote(crowd[k], update);
    }
    REQUIRE(world.status().peers.size() == crowd.size());
    world.restart();
    for (Member& one : crowd) one.welcome.clear_run_id(), one.heard = 0;
    // Nobody has to dial twice: each has a place of its own.
    CHECK(crowd_comes(world, crowd, 10 * millisecond, 900 * millisecond, 2 * second) == crowd.size());
}

TEST_CASE("an address that each host dials as its own is not given to members") {
    Pair run;
    for (const std::string& bytes :
         {std::string("\x7f\0\0\1", 4), std::string("\xa9\xfe\xa9\xfe", 4), std::string("\0\1\2\3", 4),
          std::string(15, '\0') + '\1', std::string("\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16)}) {
        Member stranger = member(5);
        run.world.say_hello(stranger, [&](proto::Hello& hello) {
            hello.mutable_advertised()->set_address(bytes);
            hello.mutable_advertised()->set_is_v6(bytes.size() == 16);
        });
        CAPTURE(bytes.size());
        CHECK(stranger.refused);
        CHECK(run.a.plan.targets_size() <= 1);
        CHECK(run.b.plan.targets_size() <= 1);
    }
}

TEST_CASE("a newcomer with an advertised address is refused where the members are at loopback addresses") {
    World world;
    Member at_loopback = member(1), newcomer = member(2);
    world.say_hello(
        at_loopback, [](const proto::Hello&) {}, 127);
    world.say_hello(newcomer,
                    [](proto::Hello& hello) { hello.mutable_advertised()->set_address(std::string("\x0a\0\0\5", 4)); });
    CHECK(newcomer.refusal.find("is reached at a loopback address") != std::string::npos);
}

TEST_CASE("who waits costs a member one connection each way, and no more than it can hold") {
    World world;
    Member first = member(1);
    world.say_hello(first, [](proto::Hello& hello) { hello.set_newcomer_links(100); });
    REQUIRE(first.seen > 0);
    std::vector<std::unique_ptr<Member>> crowd;
    for (int i = 0; i < 500; ++i) {
        crowd.push_back(std::make_unique<Member>(member(0)));
        crowd.back()->uuid.bytes = {static_cast<std::uint8_t>(1 + i / 200), static_cast<std::uint8_t>(1 + i % 200), 9};
        world.say_hello(*crowd.back());
    }
    REQUIRE(first.plan.targets_size() == 50);
    REQUIRE(first.plan.callers_size() == 50);
    for (const auto& target : first.plan.targets()) CHECK(target.single());
    // A newcomer that claims a connection which the member does not confirm is not admitted.
    const auto say = [&](Member& from, const std::string& peer, bool outgoing) {
        proto::PeerMessage message;
        message.mutable_edge()->set_peer(peer);
        message.mutable_edge()->set_outgoing(outgoing);
        message.mutable_edge()->set_up(true);
        world.tell(from, message);
    };
    for (const auto& one : crowd) {
        const proto::DialPlan plan = one->plan;
        for (const auto& target : plan.targets()) say(*one, target.peer(), true);
        for (const std::string& caller : plan.callers()) say(*one, caller, false);
    }
    const proto::DialPlan plan = first.plan;
    for (const auto& target : plan.targets()) say(first, target.peer(), true);
    const auto update = [&] {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(first, vote);
    };
    const auto admitted = [&] {
        return std::count_if(crowd.begin(), crowd.end(), [](const auto& one) { return one->seen > 0; });
    };
    update();
    CHECK(admitted() == 0);
    for (const std::string& caller : plan.callers()) say(first, caller, false);
    update();
    CHECK(admitted() == 50);
    // The other newcomers have their turn.
    CHECK(std::any_of(crowd.begin(), crowd.end(),
                      [](const auto& one) { return one->seen == 0 && one->plan.targets_size() > 0; }));
}

TEST_CASE("the time in which a member did not run counts against no edge of it") {
    Pair run;
    const auto pass = [&](int seconds, bool both) {
        for (int i = 0; i < seconds; ++i) {
            run.world.pass(second);
            proto::PeerMessage heartbeat;
            heartbeat.set_heartbeat(run.a.seen);
            heartbeat.set_heard(run.a.heard);
            if (!run.a.closed) run.world.tell(run.a, heartbeat);
            heartbeat.set_heartbeat(run.b.seen);
            heartbeat.set_heard(run.b.heard);
            if (both && !run.b.closed) run.world.tell(run.b, heartbeat);
        }
    };
    pass(1, true);  // what they received is acknowledged
    // A connection breaks. The member that must accept the next one sleeps.
    run.report(run.a, run.b, true, false);
    run.report(run.b, run.a, false, false);
    pass(9, false);
    pass(8, true);
    CHECK(run.members() == 2);
    pass(4, true);
    CHECK(run.members() == 1);
}

TEST_CASE("an authenticated caller cannot claim another name, nor join another group than its invitation allows") {
    Pair run;
    Member liar = member(9);
    liar.identity = name(8);
    run.world.say_hello(liar);
    CHECK(liar.refused);
    // Not even with the token of the member that it claims to be.
    Member thief = member(1);
    thief.identity = name(8);
    thief.welcome = run.a.welcome;
    run.world.say_hello(thief, [](proto::Hello& hello) { hello.set_generation(1000); });
    CHECK(thief.refused);
    CHECK_FALSE(run.a.closed);
    Member honest = member(7);
    honest.identity = name(7);
    honest.allowed = 2;
    run.world.say_hello(honest, [](proto::Hello& hello) { hello.set_group(3); });
    CHECK(honest.refused);
    honest.refused = honest.closed = false;
    run.world.say_hello(honest, [](proto::Hello& hello) { hello.set_group(2); });
    CHECK_FALSE(honest.refused);
    CHECK_FALSE(honest.closed);
}

TEST_CASE("a revoked member is removed at once, also while it is away, and the others close its connections") {
    for (const bool away : {false, true}) {
        Pair run;
        if (away) run.world.reset(run.b);
        REQUIRE(run.members() == 2);
        run.world.revoke(run.b.uuid);
        CHECK(run.members() == 1);
        CHECK((away || (run.b.refused && run.b.closed)));
        CHECK(run.a.revoked == std::vector<std::string>{to_bytes(run.b.uuid)});
        run.b.refused = false;
        run.world.say_hello(run.b);
        CHECK(run.b.refused);
    }
}

TEST_CASE("a member that was away when a peer was revoked learns of it when it resumes, also after a restart") {
    for (const bool restarted : {false, true}) {
        Pair run;
        run.world.reset(run.a);
        run.world.revoke(run.b.uuid);
        CHECK(run.a.revoked.empty());
        if (restarted) run.world.restart();
        run.world.say_hello(run.a);
        CHECK(run.a.revoked == std::vector<std::string>{to_bytes(run.b.uuid)});
    }
}

TEST_CASE("newcomers learn of a revocation too, and a member whose welcome waits for the disk learns of it behind that") {
    Pair run;
    Member newcomer = member(3);
    run.world.say_hello(newcomer);
    run.world.reset(run.a);
    run.world.hold_disk(true);
    run.world.say_hello(run.a);
    const std::uint64_t heard = run.a.heard;
    run.world.revoke(run.b.uuid);
    CHECK(newcomer.revoked.size() == 1);
    CHECK(run.a.heard == heard);
    run.world.hold_disk(false);
    CHECK(run.a.heard > heard);
    CHECK(run.a.revoked == std::vector<std::string>{to_bytes(run.b.uuid)});
}

TEST_CASE("a connection that a revoked peer has opened before, and that has said nothing, is closed") {
    Pair run;
    Member late = member(3), other = member(4);
    late.identity = late.uuid;
    other.identity = other.uuid;
    run.world.dial(late);
    run.world.dial(other);
    run.world.revoke(late.uuid);
    CHECK(late.closed);
    CHECK_FALSE(other.closed);
}

TEST_CASE("a revoked newcomer waits no longer, and a revoked stranger harms nobody") {
    Pair run;
    Member newcomer = member(3);
    run.world.say_hello(newcomer);
    run.world.revoke(newcomer.uuid);
    CHECK(newcomer.refused);
    CHECK(newcomer.closed);
    run.world.revoke(name(99));
    CHECK(run.members() == 2);
    CHECK_FALSE(run.a.closed);
}
