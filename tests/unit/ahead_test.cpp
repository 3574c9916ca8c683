// An all-reduce whose input leaves ahead of its start.
#include "core/all_reduce/ahead.hpp"
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

// A ring of two, with the peer at position 0.
class Member : public play::Peer {
public:
    explicit Member(Duration round_trip = millisecond) {
        say(play::admitted_as_second());
        proto::DialPlan edges;
        *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        plan(edges);
        const LinkId link = opens.at(0).link;
        welcomed(link, round_trip);
    }
    using play::Peer::say;
    Serial launches(Tag tag, std::uint64_t count = 100'000) {
        CommandLaunch launch;
        launch.ticket = ++ticket_;
        launch.tag = tag;
        launch.shape.count = count;
        launch.shape.type = DataType::f32;
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

TEST_CASE("large inputs leave in parts on a short path, and whole on a long one") {
    constexpr std::uint64_t small = 100'000, large = 1'000'000;
    const std::uint64_t whole = cut_of(2, 0, name_of_pairwise), part = cut_of(2, 0, 0);
    for (const bool near : {false, true}) {
        for (const std::uint64_t count : {small, large}) {
            Member peer(near ? 100 * microsecond : millisecond);
            peer.starts(1, peer.launches(5));
            peer.launches(6, count);
            CHECK(peer.votes.at(0).near() == near);
            CHECK(peer.sends.at(0).header.entry == (near && count == large ? part : whole));
        }
    }
}
