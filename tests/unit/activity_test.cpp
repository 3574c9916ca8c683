// A neighbour that keeps an operation busy, and gets none of it through: declines, parts that move, frames that nobody
// wants. It lives and answers, and the operation ends all the same.
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <optional>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

constexpr OpId op = 5;
constexpr OpId dead_op = 3;
constexpr std::uint64_t slice_elements = 65'536;
constexpr Duration for_ever = 3600 * second;

// A ring of two in which both edges are up.
class Member : public play::Peer {
public:
    Member(bool is_root, std::uint32_t slices, CollectiveKind kind = CollectiveKind::broadcast) {
        say(play::admitted_as_second());
        proto::DialPlan edges;
        *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        plan(edges);
        out = opens.at(0).link;
        welcomed(out);
        handle(LinkAccepted{in, play::at(9, 1)});
        say(in, hello(to_bytes(link_pass(key(), name(9)).hello), false, name(9)));
        take_memory();
        start(is_root, slices, kind);
    }
    using play::Peer::say;
    // What has left is in the network, so the next slice may leave.
    std::vector<wire::BulkHeader> sent() {
        std::vector<wire::BulkHeader> headers;
        while (!leaving_.empty()) {
            headers.push_back(leaving_.front());
            leaving_.erase(leaving_.begin());
            does(PayloadSent{out, 7, false});
        }
        return headers;
    }
    void answer(wire::FlowKind kind, std::uint32_t slice, std::uint32_t value = 0, OpId of = op) {
        does(FlowArrived{out, {of, slice, value, kind, 1}});
    }
    void does(const Event& event, Duration later = millisecond) {
        handle(event, later);
        noted();
    }
    void noted() {
        for (const SendPayload& send : sends) leaving_.push_back(send.header);
        for (const proto::Vote& vote : votes) {
            if (vote.kind() == proto::VOTE_END && !vote.ok()) against_ = vote;
        }
    }
    // Once in a second the neighbour does this, and the master and both connections live. Ends when this peer votes
    // against the operation, and returns the time until then.
    Duration until_given_up(const std::function<void()>& neighbour) {
        Duration passed = 0;
        while (!against_ && passed < for_ever) {
            neighbour();
            proto::MasterMessage master;
            master.set_heartbeat(true);
            say(master);
            proto::LinkMessage beat;
            beat.set_heartbeat(false);
            beat.set_started(op);
            say(in, beat);
            say(out, beat);
            does(Timer{}, second);
            passed += second;
        }
        return passed;
    }
    const proto::Vote& against() const { return against_.value(); }

    LinkId out = 0;
    const LinkId in = 1000;

private:
    void take_memory() {
        const auto asked = allocations;
        for (const BufferId buffer : asked) does(BufferAllocated{buffer, true});
    }
    void start(bool is_root, std::uint32_t slices, CollectiveKind kind) {
        CommandLaunch launch;
        launch.ticket = 2;
        launch.shape.count = slices * slice_elements;
        launch.send = launch.receive = 4;
        launch.collective.kind = kind;
        launch.collective.root = is_root ? uuid() : name(9);
        call(launch);
        proto::MasterMessage message;
        message.mutable_answer()->set_index(2);
        message.mutable_answer()->set_serial(votes.at(0).serial());
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_op(op);
        start.set_world(2);
        start.set_position(is_root ? 0 : 1);
        start.set_predecessor(to_bytes(name(9)));
        start.set_successor(to_bytes(name(9)));
        start.set_collective(static_cast<std::uint32_t>(kind));
        for (const std::uint32_t index : {0u, 1u}) {
            proto::StartMember& member = *start.add_members();
            member.set_peer(to_bytes((index == 0) == is_root ? uuid() : name(9)));
            member.set_index(index);
        }
        say(message);
        for (const SendPayload& send : sends) leaving_.push_back(send.header);
        take_memory();
        if (is_root || kind == CollectiveKind::reduce) does(FlowArrived{out, {op, 64, 0, wire::FlowKind::ready, 0}});
    }
    std::vector<wire::BulkHeader> leaving_;
    std::optional<proto::Vote> against_;
};

}  // namespace

TEST_CASE("a slice that is declined again and again does not get through") {
    for (const std::uint32_t slices : {1u, 3u}) {
        Member root(true, slices);
        CHECK(root.until_given_up([&] {
            for (const wire::BulkHeader& slice : root.sent()) root.answer(wire::FlowKind::decline, slice.slice);
        }) < 200 * second);
        CHECK(root.against().stuck() == to_bytes(name(9)));
    }
}

TEST_CASE("a part of a slice moves only when it is larger than before") {
    Member root(true, 1);
    REQUIRE(root.sent().size() == 1);
    std::uint32_t part = 1000;
    SECTION("a path that is slow has time") {
        CHECK(root.until_given_up([&] { root.answer(wire::FlowKind::moving, 0, ++part); }) == for_ever);
    }
    SECTION("the same part says nothing") {
        CHECK(root.until_given_up([&] { root.answer(wire::FlowKind::moving, 0, part); }) < 200 * second);
        CHECK(root.against().stuck() == to_bytes(name(9)));
    }
    SECTION("nor do the parts of slices that are declined in between") {
        CHECK(root.until_given_up([&] {
            root.sent();
            root.answer(wire::FlowKind::moving, 0, part);
            root.answer(wire::FlowKind::decline, 0);
        }) < 300 * second);
        CHECK(root.against().stuck() == to_bytes(name(9)));
    }
}

TEST_CASE("the rests of frames on the path to a neighbour are waited for while they grow, if they are few") {
    Member root(true, 2);
    REQUIRE(root.sent().size() == 2);
    root.answer(wire::FlowKind::ack, 0);
    std::uint32_t part = 0;
    const auto says = [&](std::uint32_t slice, std::uint32_t bytes, OpId of) {
        root.answer(wire::FlowKind::moving, slice, bytes, of);
    };
    SECTION("of another copy") { CHECK(root.until_given_up([&] { says(0, ++part, op); }) == for_ever); }
    SECTION("of an operation that is over") {
        CHECK(root.until_given_up([&] { says(0, ++part, dead_op); }) == for_ever);
    }
    SECTION("more than a frame has") {
        CHECK(root.until_given_up([&] { says(0, 0x8000'0000 + ++part, op); }) < 200 * second);
    }
    SECTION("the same again and again") {
        CHECK(root.until_given_up([&] { says(0, 100, op); }) < 200 * second);
        CHECK(root.against().stuck() == to_bytes(name(9)));
    }
    SECTION("one frame after the other") {
        CHECK(root.until_given_up([&] { says(++part, 100, dead_op); }) < 200 * second);
    }
    SECTION("two frames in turn") {
        CHECK(root.until_given_up([&] { says(++part % 2, 100, dead_op); }) < 200 * second);
    }
}

TEST_CASE("frames that nobody wants delay what is wanted, but not for ever") {
    Member receiver(false, 2);
    wire::BulkHeader header;
    header.op = dead_op;
    header.phase = 1;
    header.length = 4 * slice_elements;
    SECTION("one that is slow") {
        std::uint32_t part = 0;
        receiver.does(BulkArrived{receiver.in, header});
        CHECK(receiver.until_given_up([&] { receiver.does(LinkActivity{receiver.in, ++part}); }) == for_ever);
    }
    SECTION("one after the other") {
        const Duration passed = receiver.until_given_up([&] {
            receiver.does(BulkArrived{receiver.in, header});
            receiver.does(LinkActivity{receiver.in, 1000});
            receiver.does(PayloadLanded{receiver.in, PayloadLanded::Verdict::discarded, 0});
            ++header.slice;
        });
        CHECK(passed > 100 * second);
        CHECK(passed < 300 * second);
    }
}

TEST_CASE("a successor that has no room for ever is given up when the master asks about it") {
    Member sender(false, 1, CollectiveKind::reduce);
    Duration asked = 0;
    const auto asks = [&] {
        if ((asked += second) % (10 * second) != 0) return;
        proto::MasterMessage master;
        master.set_unfinished(op);
        sender.say(master);
        sender.noted();
    };
    SECTION("from the first slice on") {
        REQUIRE(sender.sent().size() == 1);  // before the neighbour was ready
        sender.does(FlowArrived{sender.out, {op, 0, 0, wire::FlowKind::decline, 0}});
        CHECK(sender.sent().empty());
        const Duration passed = sender.until_given_up(asks);
        CHECK(passed > 110 * second);
        CHECK(passed < 150 * second);
    }
    SECTION("a part that grows is waited for") {
        sender.does(FlowArrived{sender.out, {op, 64, 64, wire::FlowKind::ready, 0}});
        REQUIRE(sender.sent().size() == 1);
        std::uint32_t part = 0;
        CHECK(sender.until_given_up([&] {
            sender.does(FlowArrived{sender.out, {op, 0, ++part, wire::FlowKind::moving, 0}});
            asks();
        }) == for_ever);
    }
}
