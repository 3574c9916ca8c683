// Connections that the target of an edge opens, because the source may be unable to reach it.
#include "core/topology/address_rules.hpp"
#include "tests/unit/master_play.hpp"
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::at;
using play::entry;
using play::name;
using play::other_key;
using play::Peer;

TEST_CASE("a peer dials the callers that its plan names, and takes their hello as if they had dialled") {
    Peer peer;
    proto::DialPlan plan;
    *plan.add_offers() = entry(16'400, other_key(), peer.uuid());
    peer.plan(plan);
    // To the listener, and to the port from which the caller dials: that one from the own listener.
    REQUIRE(peer.opens.size() == 2);
    CHECK((peer.opens[0].target == at(9, 500) && peer.opens[0].source_port == 0));
    CHECK((peer.opens[1].target == at(9, 16'400) && peer.opens[1].source_port == Peer::listen_port));
    CHECK((peer.opens[0].yields && peer.opens[0].peer == name(9)));
    const LinkId link = peer.opens[1].link, other = peer.opens[0].link;
    peer.handle(LinkOpened{link});
    CHECK(peer.said[link].hello().offer());
    CHECK(peer.said[link].hello().pass() == to_bytes(link_pass(other_key(), peer.uuid()).hello));

    SECTION("with the pass of a caller") {
        peer.say(link, peer.hello(to_bytes(link_pass(Peer::key(), name(9)).hello), false));
        REQUIRE(peer.said[link].has_welcome());
        CHECK(peer.said[link].welcome().pass() == to_bytes(link_pass(Peer::key(), name(9)).welcome));
        REQUIRE(peer.edges.size() == 1);
        CHECK((peer.edges[0].up() && !peer.edges[0].outgoing()));
        // The other dial is not needed any more.
        CHECK(peer.closed == std::vector{other});
        // If the connection breaks, the peer dials again.
        peer.opens.clear();
        peer.handle(LinkClosed{link, "reset"});
        CHECK(peer.opens.size() == 2);
    }
    SECTION("without a pass, it is refused and dialled again later") {
        peer.opens.clear();
        peer.say(link, peer.hello("", false));
        CHECK(peer.said[link].has_refusal());
        CHECK(peer.opens.empty());
        peer.handle(Timer{}, 100 * millisecond);
        CHECK(peer.opens.size() == 1);
    }
    SECTION("an offer on an offer is refused") {
        peer.say(link, peer.hello(to_bytes(link_pass(Peer::key(), name(9)).hello), true));
        CHECK(peer.said[link].has_refusal());
    }
    SECTION("a plan without the caller ends the dials") {
        peer.plan({});
        CHECK(peer.closed.size() == 2);
    }
}

TEST_CASE("the source of an edge uses a connection that the target offers, and shows its pass to nobody else") {
    Peer peer;
    proto::DialPlan plan;
    *plan.add_targets() = entry(16'400, other_key(), peer.uuid());
    peer.plan(plan);
    REQUIRE(peer.opens.size() == 1);
    CHECK((peer.opens[0].source_port == 16'400 && !peer.opens[0].yields));
    peer.handle(LinkAccepted{2, at(9, 1)});

    SECTION("from the target") {
        peer.say(2, peer.hello(to_bytes(link_pass(Peer::key(), name(9)).hello), true));
        REQUIRE(peer.said[2].has_hello());
        CHECK(peer.said[2].hello().pass() == to_bytes(link_pass(other_key(), peer.uuid()).hello));
        CHECK(peer.said[2].hello().stripes() == 2);
        CHECK(peer.closed == std::vector{peer.opens[0].link});  // its own dial
        proto::LinkMessage welcome;
        welcome.mutable_welcome()->set_from(to_bytes(name(9)));
        welcome.mutable_welcome()->set_pass(to_bytes(link_pass(other_key(), peer.uuid()).welcome));
        peer.say(2, welcome);
        REQUIRE(peer.edges.size() == 1);
        CHECK((peer.edges[0].up() && peer.edges[0].outgoing()));
        // A second one is not needed.
        peer.handle(LinkAccepted{4, at(9, 1)});
        peer.say(4, peer.hello(to_bytes(link_pass(Peer::key(), name(9)).hello), true));
        CHECK(peer.said[4].refusal().present());
    }
    SECTION("from a stranger") {
        peer.say(2, peer.hello("", true));
        CHECK(peer.said[2].has_refusal());
        CHECK_FALSE(peer.said[2].has_hello());
        CHECK(peer.closed == std::vector<LinkId>{2});
    }
    SECTION("two dials that meet are one connection: the offer on it is no answer") {
        const LinkId link = peer.opens[0].link;
        peer.handle(LinkOpened{link});
        CHECK_FALSE(peer.said[link].hello().offer());
        peer.say(link, peer.hello(to_bytes(link_pass(Peer::key(), name(9)).hello), true));
        CHECK(peer.said.empty());
        CHECK(peer.closed.empty());
    }
}

TEST_CASE("of the dials to a caller, those to its listener have a second address") {
    Peer peer;
    proto::DialPlan plan;
    auto* offer = plan.add_offers();
    *offer = entry(16'400, other_key(), peer.uuid());
    write(at(5, 600), *offer->mutable_other_address());
    offer->set_other_first(true);
    peer.plan(plan);
    REQUIRE(peer.opens.size() == 2);
    CHECK(peer.opens[0].target == at(5, 600));
    CHECK(peer.opens[1].target == at(9, 16'400));
    // The port has no other address, so it is dialled again later.
    peer.handle(LinkClosed{peer.opens[1].link, "refused"});
    CHECK(peer.opens.size() == 2);
    peer.handle(LinkClosed{peer.opens[0].link, "refused"});
    REQUIRE(peer.opens.size() == 3);
    CHECK(peer.opens[2].target == at(9, 500));
}

TEST_CASE("a peer dials the two addresses of a target in turn, and keeps the one that works") {
    Peer peer;
    proto::DialPlan plan;
    auto* target = plan.add_targets();
    *target = entry(16'400, other_key(), peer.uuid());
    write(at(5, 600), *target->mutable_other_address());
    target->set_other_first(true);
    peer.plan(plan);
    REQUIRE(peer.opens.size() == 1);
    CHECK((peer.opens[0].target == at(5, 600) && peer.opens[0].source_port == 0));
    // The other one is dialled at once. Nobody waits long for an answer inside.
    const bool refused = GENERATE(true, false);
    if (refused)
        peer.handle(LinkClosed{peer.opens[0].link, "refused"});
    else
        peer.handle(Timer{}, 500 * millisecond);
    REQUIRE(peer.opens.size() == 2);
    CHECK((peer.opens[1].target == at(9, 500) && peer.opens[1].source_port == 16'400));

    SECTION("both failed: after a while, both are dialled again") {
        peer.handle(LinkClosed{peer.opens[1].link, "refused"});
        CHECK(peer.opens.size() == 2);
        peer.handle(Timer{}, 100 * millisecond);
        REQUIRE(peer.opens.size() == 3);
        CHECK(peer.opens[2].target == at(5, 600));
    }
    SECTION("somebody else is there, who refuses") {
        const LinkId link = peer.opens[1].link;
        peer.handle(LinkOpened{link});
        proto::LinkMessage refusal;
        refusal.mutable_refusal();
        peer.say(link, refusal);
        peer.handle(Timer{}, 100 * millisecond);
        REQUIRE(peer.opens.size() == 3);
        CHECK(peer.opens[2].target == at(5, 600));
    }
    SECTION("the target is there, and refuses: it is dialled there again") {
        const LinkId link = peer.opens[1].link;
        peer.handle(LinkOpened{link});
        proto::LinkMessage refusal;
        refusal.mutable_refusal()->set_present(true);
        peer.say(link, refusal);
        peer.handle(Timer{}, 100 * millisecond);
        REQUIRE(peer.opens.size() == 3);
        CHECK(peer.opens[2].target == at(9, 500));
    }
    SECTION("the second one works: it is dialled three times more before the other one") {
        peer.welcomed(peer.opens[1].link);
        peer.handle(LinkClosed{peer.opens[1].link, "reset"});
        for (std::size_t dials = 3; dials <= 6; ++dials) {
            peer.handle(Timer{}, 2 * second);
            REQUIRE(peer.opens.size() == dials);
            CHECK(peer.opens.back().target == at(9, 500));
            peer.handle(LinkClosed{peer.opens.back().link, "refused"});
        }
        REQUIRE(peer.opens.size() == 7);
        CHECK(peer.opens.back().target == at(5, 600));
    }
}

TEST_CASE("a bandwidth test whose first address fails is made at the other one") {
    Peer peer;
    proto::MasterMessage order;
    order.mutable_test()->set_test(1);
    auto* target = order.mutable_test()->mutable_target();
    *target = entry(0, other_key(), peer.uuid());
    write(at(5, 600), *target->mutable_other_address());
    peer.opens.clear();
    peer.say(order);
    REQUIRE_FALSE(peer.opens.empty());
    CHECK(peer.opens.back().target == at(9, 500));
    const std::size_t dials = peer.opens.size();
    peer.handle(LinkClosed{peer.opens.front().link, "refused"});
    REQUIRE(peer.opens.size() == 2 * dials);
    CHECK(peer.opens.back().target == at(5, 600));
    // No third time.
    peer.handle(LinkClosed{peer.opens.back().link, "refused"});
    CHECK(peer.opens.size() == 2 * dials);
}

namespace {

// As play::World::dial() has it.
Endpoint seen(std::uint8_t first_byte, std::uint16_t port) {
    Endpoint remote;
    remote.address[0] = first_byte;
    remote.port = port;
    return remote;
}

void say_translated(play::World& world, play::Member& member, std::uint8_t outer, std::uint8_t inner, bool keeps) {
    world.say_hello(
        member,
        [&](proto::Hello& hello) {
            Endpoint local = at(inner, keeps ? 1 : 7);  // the world's connections come from port 1
            write(local, *hello.mutable_local());
            hello.mutable_advertised()->set_port(local.port);
            hello.set_from_listener(true);
        },
        outer);
}

// It listens on port 7.
void say_advertised(play::World& world, play::Member& member, std::uint8_t outer, const Endpoint& local,
                    const Endpoint& advertised) {
    world.say_hello(
        member,
        [&](proto::Hello& hello) {
            write(local, *hello.mutable_local());
            write(advertised, *hello.mutable_advertised());
            hello.set_listen_port(7);
        },
        outer);
}

}  // namespace

TEST_CASE("the master plans offers for peers behind translators") {
    play::World world;
    play::Member open{name(1)}, behind{name(2)}, behind_too{name(3)};
    world.say_hello(open, [](const proto::Hello&) {}, 10);
    proto::Vote update;
    update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);

    SECTION("one end is reachable: only the other one offers") {
        say_translated(world, behind, 20, 5, true);
        REQUIRE(behind.plan.offers_size() == 1);
        CHECK(behind.plan.offers(0).peer() == to_bytes(open.uuid));
        CHECK(behind.plan.offers(0).source_port() == 0);
        CHECK(behind.plan.targets_size() == 1);
        CHECK(open.plan.offers_size() == 0);
        CHECK(open.plan.targets(0).source_port() == 0);
        CHECK(behind.welcome.seen().port() == 1);
    }
    SECTION("both are behind translators that keep ports") {
        play::World two;
        say_translated(two, behind, 20, 5, true);
        say_translated(two, behind_too, 30, 5, true);
        REQUIRE(behind.plan.offers_size() == 1);
        REQUIRE(behind_too.plan.targets_size() == 1);
        CHECK(behind.plan.offers(0).source_port() == dial_port(1));
        CHECK(behind_too.plan.targets(0).source_port() == dial_port(1));
    }
    SECTION("both are behind the same one") {
        play::World two;
        say_translated(two, behind, 20, 5, true);
        say_translated(two, behind_too, 20, 6, true);
        Addresses addresses;
        REQUIRE(behind.plan.targets_size() == 1);
        REQUIRE(read_addresses(behind.plan.targets(0), addresses));
        CHECK(addresses == Addresses{seen(20, 1), at(6, 1), true});
        // It may be that of a provider, with a network behind it for each.
        CHECK(behind.plan.offers_size() == 1);
    }
    SECTION("both are behind the same one, which forwards ports to them") {
        play::World two;
        say_advertised(two, behind, 20, at(5, 3), at(20, 100));
        say_advertised(two, behind_too, 20, at(6, 3), at(20, 200));
        Addresses addresses;
        REQUIRE(behind.plan.targets_size() == 1);
        REQUIRE(read_addresses(behind.plan.targets(0), addresses));
        CHECK(addresses == Addresses{at(20, 200), at(6, 7), true});
        CHECK(behind.plan.offers_size() == 0);
    }
    SECTION("both are in the master's network, and advertise addresses to others") {
        play::World two;
        say_advertised(two, behind, 5, seen(5, 3), at(40, 5));
        say_advertised(two, behind_too, 6, seen(6, 3), at(40, 6));
        Addresses addresses;
        REQUIRE(behind.plan.targets_size() == 1);
        REQUIRE(read_addresses(behind.plan.targets(0), addresses));
        CHECK(addresses == Addresses{at(40, 6), seen(6, 7), false});
    }
    SECTION("a member that dials anew from another port is still reached at the port that was seen before") {
        play::World two;
        say_translated(two, behind, 20, 5, false);
        two.vote(behind, update);
        REQUIRE(behind.seen > 0);
        two.reset(behind);
        two.say_hello(
            behind,
            [&](proto::Hello& hello) {
                write(at(5, 9), *hello.mutable_local());
                hello.mutable_advertised()->set_port(7);
            },
            20);
        two.resumed(behind);
        say_translated(two, behind_too, 30, 5, true);
        REQUIRE(behind_too.plan.targets_size() == 1);
        Addresses addresses;
        REQUIRE(read_addresses(behind_too.plan.targets(0), addresses));
        CHECK(addresses.usual == seen(20, 1));
    }
    SECTION("a dial has failed: the target offers from then on") {
        play::Member other{name(4)};
        world.say_hello(other, [](const proto::Hello&) {}, 11);
        CHECK(other.plan.offers_size() == 0);
        proto::PeerMessage message;
        message.mutable_edge()->set_peer(to_bytes(other.uuid));
        message.mutable_edge()->set_outgoing(true);
        world.tell(open, message);
        REQUIRE(other.plan.offers_size() == 1);
        message.mutable_edge()->set_up(true);
        world.tell(open, message);
        CHECK(other.plan.offers_size() == 1);
    }
}
