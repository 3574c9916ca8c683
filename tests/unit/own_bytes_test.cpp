// The root of a broadcast sends what lies in its place already: the checksum is made while the bytes leave.
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

constexpr Tag tag = 5;
constexpr OpId op = 1;

// A ring of two: the peer, which is the root, and another one, which is ready for the broadcast.
class Root : public play::Peer {
public:
    Root() {
        say(play::admitted_as_second());
        proto::DialPlan edges;
        *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        plan(edges);
        REQUIRE(opens.size() == 1);
        link = opens[0].link;
        welcomed(link);

        CommandLaunch launch;
        launch.ticket = 2;
        launch.tag = tag;
        launch.shape.count = 100'000;
        launch.send = launch.receive = 4;
        launch.collective.kind = CollectiveKind::broadcast;
        launch.collective.root = uuid();
        call(launch);
        proto::MasterMessage message = begun(op, 2, name(9));
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_collective(static_cast<std::uint32_t>(CollectiveKind::broadcast));
        for (const std::uint32_t index : {0u, 1u}) {
            proto::StartMember& member = *start.add_members();
            member.set_peer(to_bytes(index == 0 ? uuid() : name(9)));
            member.set_index(index);
        }
        say(message);
        handle(FlowArrived{link, {op, 4, 0, wire::FlowKind::ready, 0}});
    }
    using play::Peer::say;
    void acknowledges(std::uint32_t slice) { handle(FlowArrived{link, {op, slice, 0, wire::FlowKind::ack, 1}}); }
    LinkId link = 0;
};

}  // namespace

TEST_CASE("own bytes that are in their place leave at once, and get their checksum from the report that they have left") {
    Root root;
    REQUIRE(root.sends.size() == 1);
    const SendPayload first = root.sends[0];
    CHECK(first.source.id == 4);
    CHECK_FALSE(first.has_checksum);
    CHECK(root.computes.empty());
    std::uint64_t left = 0;
    for (SendPayload send = first; left < 400'000;) {
        CHECK_FALSE(send.has_checksum);
        left += send.header.length;
        root.handle(PayloadSent{root.link, 77 + send.header.slice, false});
        CHECK((left < 400'000) == root.votes.empty());
        if (left == 400'000) break;
        REQUIRE(root.sends.size() == 1);
        send = root.sends[0];
    }
    REQUIRE(root.votes.size() == 1);
    CHECK(root.votes[0].kind() == proto::VOTE_END);
    CHECK(root.votes[0].ok());
    CHECK(root.votes[0].digest() != 0);
}

TEST_CASE("own bytes that were acknowledged before the report are summed afterwards, once") {
    Root root;
    // The digest with a report, for comparison.
    Root usual;
    const auto send_all = [](Root& peer, bool acknowledged_first) {
        proto::Vote end;
        for (std::uint64_t left = 0; left < 400'000;) {
            REQUIRE(peer.sends.size() == 1);
            const SendPayload send = peer.sends[0];
            left += send.header.length;
            const std::uint64_t sum = 77 + send.header.slice;
            if (acknowledged_first) {
                peer.acknowledges(send.header.slice);
                REQUIRE(peer.computes.size() == 1);
                const Compute compute = peer.computes[0];
                CHECK(compute.kind == Compute::Kind::hash);
                CHECK(compute.a.id == send.source.id);
                CHECK(compute.a.offset == send.source.offset);
                peer.handle(PayloadSent{peer.link, 0, true});
                CHECK(peer.votes.empty());
                const std::vector<SendPayload> next = peer.sends;
                peer.handle(ComputeDone{compute.id, sum, {}});
                if (peer.sends.empty()) peer.sends = next;
            } else {
                peer.handle(PayloadSent{peer.link, sum, false});
            }
            if (!peer.votes.empty()) end = peer.votes[0];
            CHECK((left == 400'000) == end.ok());
        }
        return end.digest();
    };
    CHECK(send_all(root, true) == send_all(usual, false));
}
