// The first member of a host, in a hierarchical all-reduce: what it says over the edge within the host.
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

constexpr OpId op = 1;

// Two hosts with two members each. This peer is the first one of the first host, `name(9)` the last one of it, which has
// dialled this one. There is no other connection.
class First : public play::Peer {
public:
    First() {
        say(play::admitted_as_second());
        handle(LinkAccepted{link, play::at(9, 1)});
        play::Peer::say(link, hello(to_bytes(link_pass(key(), name(9)).hello), false, name(9)));
        REQUIRE(said[link].has_welcome());
        const auto reserve = allocations;
        for (const BufferId buffer : reserve) handle(BufferAllocated{buffer, true});
    }
    using play::Peer::say;
    void starts() {
        CommandLaunch launch;
        launch.ticket = 2;
        launch.tag = 5;
        launch.shape.count = 4 << 20;
        launch.send = launch.receive = 4;  // in place: the result needs memory of its own
        call(launch);
        proto::MasterMessage message = begun(op, 4, name(8));
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_host_other_end(to_bytes(name(9)));
        start.add_host_ends(1);
        start.add_host_ends(3);
        say(message);
    }
    bool says_ready() const {
        return std::any_of(flows.begin(), flows.end(), [](const SendFlow& flow) {
            return flow.link == link && flow.word.op == op && flow.word.kind == wire::FlowKind::ready;
        });
    }
    static constexpr LinkId link = 2;  // from name(9)
};

}  // namespace

TEST_CASE("the edge within a host is ready when the operation along the ring has its memory") {
    First peer;
    peer.starts();
    const auto asked = peer.allocations;
    REQUIRE(asked.size() == 2);
    CHECK_FALSE(peer.says_ready());
    peer.handle(BufferAllocated{asked[0], true});
    CHECK_FALSE(peer.says_ready());
    peer.handle(BufferAllocated{asked[1], true});
    CHECK(peer.says_ready());
}
