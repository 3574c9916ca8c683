// Memory for slices that come before their operation is known: for a few neighbours, whoever else is connected.
#include "core/base/link_pass.hpp"
#include "core/wire/convert.hpp"
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace pccl::core;
using play::at;
using play::name;
using play::Peer;

namespace {

// The memory that the peer asks for when this one has dialled it.
std::vector<BufferId> connect(Peer& peer, std::uint8_t neighbour) {
    const LinkId link = LinkId{2} * neighbour;
    peer.handle(LinkAccepted{link, at(neighbour, 1)});
    const Uuid from = name(neighbour);
    peer.say(link, peer.hello(to_bytes(link_pass(Peer::key(), from).hello), false, from));
    REQUIRE(peer.said[link].has_welcome());
    return peer.allocations;
}

// The neighbour sends a slice of an operation that has not started here.
void send_early(Peer& peer, std::uint8_t neighbour, OpId op) {
    wire::BulkHeader header;
    header.op = op;
    header.length = 1000;
    peer.handle(BulkArrived{LinkId{2} * neighbour, header});
    peer.handle(PayloadLanded{LinkId{2} * neighbour, PayloadLanded::Verdict::landed, 7});
}

}  // namespace

TEST_CASE("after a pause, many neighbours that have gone may be accepted: few of them get memory") {
    Peer peer;
    std::vector<BufferId> reserves;
    for (std::uint8_t neighbour = 20; neighbour < 24; ++neighbour) {
        REQUIRE(connect(peer, neighbour).size() == 1);
        reserves.push_back(peer.allocations[0]);
        peer.handle(BufferAllocated{reserves.back(), true});
    }
    CHECK(connect(peer, 24).empty());
    CHECK(connect(peer, 25).empty());

    SECTION("memory that becomes free goes to one that waits for it") {
        peer.handle(LinkClosed{2 * 21, "reset"});
        CHECK(peer.freed == std::vector{reserves[1]});
        CHECK(peer.allocations.size() == 1);
    }
    SECTION("one that waited and has gone gets none") {
        peer.handle(LinkClosed{2 * 24, "reset"});
        CHECK((peer.freed.empty() && peer.allocations.empty()));
        peer.handle(LinkClosed{2 * 25, "reset"});
        peer.handle(LinkClosed{2 * 20, "reset"});
        CHECK(peer.freed == std::vector{reserves[0]});
        CHECK(peer.allocations.empty());
    }
}

TEST_CASE("what a neighbour sent for operations that never start is dropped with its last connection") {
    Peer peer;
    REQUIRE(connect(peer, 20).size() == 1);
    const BufferId reserve = peer.allocations[0];
    peer.handle(BufferAllocated{reserve, true});
    send_early(peer, 20, OpId{1} << 40);
    CHECK(peer.flows.empty());
    send_early(peer, 20, OpId{1} << 41);
    CHECK(peer.flows.empty());
    peer.handle(LinkClosed{2 * 20, "reset"});
    CHECK(peer.freed == std::vector{reserve});
}
