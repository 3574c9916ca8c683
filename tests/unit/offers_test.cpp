// Connections that the target of an edge opens, because the source may be unable to reach it.
#include "core/base/link_pass.hpp"
#include "core/peer_machine.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

Endpoint at(std::uint8_t last, std::uint16_t port) {
    Endpoint endpoint;
    endpoint.address = {10, 0, 0, last};
    endpoint.port = port;
    return endpoint;
}

// A peer that the master has welcomed. The test plays the master and the other peer.
class Peer {
public:
    static constexpr std::uint16_t listen_port = 48'149;

    Peer() : machine_(config()) {
        handle(Command{CommandConnect{1}});
        REQUIRE(opens.size() == 1);
        master_ = opens[0].link;
        handle(LinkOpened{master_, at(1, listen_port)});
        proto::MasterMessage message;
        message.mutable_welcome()->set_protocol_version(wire::protocol_version);
        message.mutable_welcome()->set_run_id(to_bytes(name(7)));
        message.mutable_welcome()->set_link_key(to_bytes(key()));
        say(master_, message);
    }
    static Secret key() {
        Secret secret;
        secret.fill(1);
        return secret;
    }
    const Uuid& uuid() const { return machine_.uuid(); }
    void plan(const proto::DialPlan& plan) {
        proto::MasterMessage message;
        *message.mutable_plan() = plan;
        opens.clear();
        say(master_, message);
    }
    // A hello of the other peer.
    proto::LinkMessage hello(const std::string& pass, bool offer) const {
        proto::LinkMessage message;
        auto& hello = *message.mutable_hello();
        hello.set_protocol_version(wire::protocol_version);
        hello.set_run_id(to_bytes(name(7)));
        hello.set_from(to_bytes(name(9)));
        hello.set_to(to_bytes(uuid()));
        hello.set_pass(pass);
        hello.set_offer(offer);
        return message;
    }
    void say(LinkId link, const google::protobuf::MessageLite& message) {
        const std::string body = encode(message);
        handle(ControlArrived{link, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    void handle(const Event& event, Duration later = millisecond) {
        Effects effects;
        said.clear();
        REQUIRE(machine_.handle(now_ += later, event, effects) == Status::ok);
        machine_.check();
        for (const Effect& effect : effects) {
            if (const auto* open = std::get_if<OpenLink>(&effect)) opens.push_back(*open);
            if (const auto* close = std::get_if<CloseLink>(&effect)) closed.push_back(close->link);
            const auto* send = std::get_if<SendControl>(&effect);
            if (send == nullptr) continue;
            if (send->link == master_) {
                proto::PeerMessage message;
                REQUIRE(message.ParseFromString(send->body));
                if (message.has_edge()) edges.push_back(message.edge());
                continue;
            }
            REQUIRE(said[send->link].ParseFromString(send->body));
        }
    }
    std::vector<OpenLink> opens;
    std::vector<LinkId> closed;
    std::map<LinkId, proto::LinkMessage> said;  // in the last event, to the other peer
    std::vector<proto::EdgeReport> edges;

private:
    static PeerConfig config() {
        PeerConfig config;
        config.seed = 3;
        config.listen_port = listen_port;
        config.stripes = 2;
        return config;
    }
    PeerMachine machine_;
    Instant now_ = second;
    LinkId master_ = 0;
};

proto::DialTarget entry(std::uint16_t source_port, const Secret& key_of_other, const Uuid& dialler) {
    proto::DialTarget target;
    target.set_peer(to_bytes(name(9)));
    write(at(9, 500), *target.mutable_address());
    const LinkPass pass = link_pass(key_of_other, dialler);
    target.set_pass_hello(to_bytes(pass.hello));
    target.set_pass_welcome(to_bytes(pass.welcome));
    target.set_single(true);
    target.set_source_port(source_port);
    return target;
}

Secret other_key() {
    Secret secret;
    secret.fill(2);
    return secret;
}

}  // namespace

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

namespace {

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
        CHECK(behind.plan.offers_size() == 0);
        Endpoint target;
        REQUIRE(behind.plan.targets_size() == 1);
        REQUIRE(read(behind.plan.targets(0).address(), target));
        CHECK(target == at(6, 1));
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
