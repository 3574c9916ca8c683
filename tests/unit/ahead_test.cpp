// An all-reduce whose input leaves ahead of its start.
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

// A ring of two, with the peer at position 0.
class Member : public play::Peer {
public:
    Member() {
        say(play::admitted_as_second());
        proto::DialPlan edges;
        *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        plan(edges);
        const LinkId link = opens.at(0).link;
        welcomed(link);
    }
    using play::Peer::say;
    Serial launches(Tag tag) {
        CommandLaunch launch;
        launch.ticket = ++ticket_;
        launch.tag = tag;
        launch.shape.count = 100'000;
        launch.send = 4;
        launch.receive = 5;
        call(launch);
        return votes.at(0).serial();
    }
    void starts(OpId op, Serial serial) {
        proto::MasterMessage message = next(serial);
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_op(op);
        start.set_world(2);
        start.set_predecessor(to_bytes(name(9)));
        start.set_successor(to_bytes(name(9)));
        say(message);
    }

private:
    proto::MasterMessage next(Serial serial) {
        proto::MasterMessage message = play::admitted_as_second();
        message.mutable_answer()->clear_kind();
        message.mutable_answer()->set_index(++index_);
        message.mutable_answer()->set_serial(serial);
        return message;
    }
    std::uint64_t index_ = 1;
    Ticket ticket_ = 1;
};

}  // namespace

TEST_CASE("an all-reduce runs from its start on, also if its input leaves ahead of the start") {
    Member peer;
    const Serial first = peer.launches(5);
    CHECK(peer.sends.empty());  // no ring is known
    CHECK(peer.statistics().operations_running == 0);
    peer.starts(1, first);
    CHECK(peer.statistics().operations_running == 1);

    const Serial second = peer.launches(6);
    CHECK(peer.statistics().operations_running == 1);
    peer.starts(2, second);
    CHECK(peer.statistics().operations_running == 2);
}
