// On which of several stripes slices leave, and when those of a late stripe leave again on an idle one.
#include "core/all_reduce/ahead.hpp"
#include "core/all_reduce/flow.hpp"
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

constexpr std::uint64_t slice_elements = 65'536;

// A ring of two: the peer is the root of a broadcast, with two stripes to the other one.
class Root : public play::Peer {
public:
    explicit Root(std::uint32_t slices, std::uint64_t elements = slice_elements) {
        say(play::admitted_as_second());
        proto::DialPlan edges;
        auto& target = *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        target.set_single(false);
        plan(edges);
        welcomed(opens.at(0).link);
        welcomed(opens.at(1).link);
        stripes = {opens[0].link, opens[1].link};
        start(1, slices, elements);
    }
    using play::Peer::say;
    void start(OpId id, std::uint32_t slices, std::uint64_t elements) {
        launch(id, slices, elements, CollectiveKind::broadcast);
        ready(id);
    }
    void launch(OpId id, std::uint32_t slices, std::uint64_t elements, CollectiveKind kind) {
        last_ = id;
        CommandLaunch launch;
        launch.ticket = 1 + id;
        launch.tag = 5 + id;
        launch.shape.count = slices * elements;
        launch.send = 4;
        launch.receive = kind == CollectiveKind::broadcast ? 4 : 5;
        launch.collective.kind = kind;
        if (kind == CollectiveKind::broadcast) launch.collective.root = uuid();
        call(launch);
        took();
        proto::MasterMessage message;
        message.mutable_answer()->set_index(1 + id);
        message.mutable_answer()->set_serial(votes.at(0).serial());
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_op(id);
        start.set_world(2);
        start.set_predecessor(to_bytes(name(9)));
        start.set_successor(to_bytes(name(9)));
        start.set_collective(static_cast<std::uint32_t>(kind));
        start.set_pairwise(kind == CollectiveKind::all_reduce);
        for (const std::uint32_t index : {0u, 1u}) {
            if (kind == CollectiveKind::all_reduce) break;
            proto::StartMember& member = *start.add_members();
            member.set_peer(to_bytes(index == 0 ? uuid() : name(9)));
            member.set_index(index);
        }
        say(message);
        took();
        const auto asked = allocations;
        for (const BufferId buffer : asked) {
            handle(BufferAllocated{buffer, true});
            took();
        }
    }
    void ready(OpId id) {
        handle(FlowArrived{stripes[0], {id, 64, 0, wire::FlowKind::ready, 0}});
        took();
    }
    // All of the frame that leaves on this stripe is in the network.
    void left(std::size_t stripe, Duration later = millisecond) {
        const std::size_t before = in_flight[stripe].size();
        handle(PayloadSent{stripes[stripe], 7, false}, later);
        took();
        leaves[stripe] = in_flight[stripe].size() > before;
    }
    void all_leave(Duration later = millisecond) {
        while (leaves[0] || leaves[1]) {
            for (const std::size_t stripe : {0u, 1u}) {
                if (leaves[stripe]) left(stripe, later);
            }
        }
    }
    // The first slice of the stripe that was not acknowledged yet, so long after the last event.
    void acknowledged(std::size_t stripe, Duration later) {
        const wire::BulkHeader slice = in_flight[stripe].at(0);
        in_flight[stripe].erase(in_flight[stripe].begin());
        wire::FlowWord word;
        word.op = is_ahead(slice.op) ? last_ : slice.op;  // its start is known by now
        word.slice = slice.slice;
        word.kind = wire::FlowKind::ack;
        word.phase = static_cast<std::uint8_t>(slice.phase);
        handle(FlowArrived{stripes[stripe], word}, later);
        took();
    }
    // A part of the first slice has arrived.
    void moving(std::size_t stripe) {
        const wire::BulkHeader slice = in_flight[stripe].at(0);
        handle(FlowArrived{stripes[stripe],
                           {slice.op, slice.slice, 1, wire::FlowKind::moving, static_cast<std::uint8_t>(slice.phase)}});
        took();
    }
    // Of four slices, the last one of the second stripe is not acknowledged.
    void one_is_late() {
        all_leave();
        acknowledged(0, 40 * millisecond);
        acknowledged(1, millisecond);
        acknowledged(0, 30 * millisecond);
    }
    void pass(Duration time) {
        handle(Timer{}, time);
        took();
    }
    std::array<LinkId, 2> stripes{};
    std::array<std::vector<wire::BulkHeader>, 2> in_flight;

private:
    void took() {
        for (const SendPayload& send : sends) {
            const std::size_t stripe = send.link == stripes[0] ? 0 : 1;
            in_flight[stripe].push_back(send.header);
            leaves[stripe] = true;
        }
    }
    std::array<bool, 2> leaves{};
    OpId last_ = 0;  // operation that was launched
};

}  // namespace

TEST_CASE("a slice is late when it takes longer than the measured ones, and by more the more they differ") {
    AnswerTime even;
    for (int i = 0; i < 100; ++i) even.measured(40 * millisecond, 1000);
    CHECK(even.bytes == 1000);
    CHECK(even.patience() > 55 * millisecond);
    CHECK(even.patience() < 65 * millisecond);

    AnswerTime uneven;
    for (int i = 0; i < 100; ++i) uneven.measured((i % 2 == 0 ? 20 : 100) * millisecond, 1000);
    CHECK(uneven.patience() > 100 * millisecond);
    CHECK(uneven.patience() < 300 * millisecond);
}

TEST_CASE("each copy doubles the patience, up to a bound, until a slice that left once is acknowledged") {
    AnswerTime time;
    time.measured(100 * millisecond, 1000);
    const Duration once = time.patience();
    CHECK(once == 300 * millisecond);
    time.hedges = 2;
    CHECK(time.patience() == 4 * once);
    time.hedges = 1000;
    CHECK(time.patience() == 256 * once);
    time.measured(100 * millisecond, 500);
    CHECK(time.patience() < once);
    CHECK(time.bytes == 1000);
}

TEST_CASE("the next operation begins on the stripe of the last one, and what follows it at once does not") {
    Root root(1);
    for (const OpId id : {2u, 3u}) {
        CHECK(root.in_flight[1].empty());
        root.all_leave();
        root.acknowledged(0, 40 * millisecond);
        root.start(id, 1, slice_elements);
        CHECK(root.in_flight[0].size() == 1);
    }
    CHECK(root.in_flight[1].empty());
    root.all_leave();
    root.start(4, 1, slice_elements);
    CHECK(root.in_flight[1].size() == 1);
}

TEST_CASE("the last slice of a late stripe leaves again on an idle one") {
    Root root(4);
    root.one_is_late();
    root.pass(10 * millisecond);
    CHECK(root.sends.empty());
    root.pass(200 * millisecond);
    REQUIRE(root.sends.size() == 1);
    CHECK(root.sends[0].link == root.stripes[0]);
    CHECK(root.sends[0].header.slice == root.in_flight[1].at(0).slice);
    root.pass(200 * millisecond);
    CHECK(root.sends.empty());
}

TEST_CASE("a neighbour that is silent on all stripes gets no copies") {
    Root root(4);
    root.all_leave();
    root.acknowledged(0, 40 * millisecond);
    root.acknowledged(0, millisecond);
    root.acknowledged(1, millisecond);  // the last word of all
    root.pass(second);
    CHECK(root.sends.empty());
}

TEST_CASE("while all stripes have something to send, what one of them has in flight does not leave again") {
    Root root(6);
    root.left(0);
    root.left(1);
    root.left(0);  // one slice waits for a stripe
    REQUIRE(root.in_flight[0].size() == 3);
    REQUIRE(root.in_flight[1].size() == 2);
    root.acknowledged(0, 40 * millisecond);
    root.acknowledged(1, millisecond);
    root.acknowledged(0, 30 * millisecond);
    root.pass(500 * millisecond);
    root.left(0);
    REQUIRE(root.sends.size() == 1);
    CHECK(root.sends[0].header.slice != root.in_flight[1].at(0).slice);
}

TEST_CASE("on a short path nothing leaves twice: there the processor is late") {
    Root root(4);
    root.all_leave(microsecond);
    root.acknowledged(0, 50 * microsecond);
    root.acknowledged(1, microsecond);
    root.acknowledged(0, 30 * microsecond);
    root.pass(second);
    CHECK(root.sends.empty());
}

TEST_CASE("a slice that is larger than all that were measured may take longer") {
    Root root(1, 1000);
    root.all_leave();
    root.acknowledged(0, 40 * millisecond);
    root.start(2, 2, slice_elements);
    root.start(3, 1, 1000);
    root.all_leave();
    REQUIRE(root.in_flight[0].size() + root.in_flight[1].size() == 3);
    const std::size_t both = root.in_flight[0].size() == 2 ? 0 : 1;
    REQUIRE(root.in_flight[both].at(1).op == 3);
    root.in_flight[both].erase(root.in_flight[both].begin());
    root.acknowledged(both, 40 * millisecond);
    root.pass(second);
    CHECK(root.sends.empty());
}

TEST_CASE("the acknowledgement of a copy is not measured, and the patience with the next slice is longer") {
    Root root(4);
    root.one_is_late();
    root.pass(200 * millisecond);
    REQUIRE(root.sends.size() == 1);
    root.left(0);
    root.acknowledged(0, millisecond);  // the first one had arrived
    root.acknowledged(1, millisecond);  // the stripe works
    root.start(2, 2, slice_elements);
    root.all_leave();
    REQUIRE(root.in_flight[0].size() == 1);
    REQUIRE(root.in_flight[1].size() == 1);
    root.moving(0);
    root.pass(130 * millisecond);
    CHECK(root.sends.empty());
    root.pass(200 * millisecond);
    CHECK(root.sends.size() == 1);
}

TEST_CASE("the time in which the neighbour could not answer does not count") {
    Root root(4);
    root.all_leave();
    for (const std::size_t stripe : {0u, 1u, 0u, 1u}) root.acknowledged(stripe, 20 * millisecond);
    root.launch(2, 2, slice_elements, CollectiveKind::all_reduce);
    root.all_leave();
    REQUIRE(!root.in_flight[0].empty());
    REQUIRE(!root.in_flight[1].empty());
    root.pass(second);
    root.ready(2);
    root.all_leave();
    const auto silent = root.in_flight[1];
    root.acknowledged(0, 10 * millisecond);
    for (const SendPayload& send : root.sends) {
        for (const wire::BulkHeader& slice : silent) CHECK(send.header.slice != slice.slice);
    }
}

TEST_CASE("on a short path little of the own input is in flight while slices wait for each other") {
    const Limits limits;
    const auto after = [&](std::uint32_t slices, Duration time, Flow flow = {}) {
        for (std::uint32_t i = 0; i < slices; ++i) flow.acknowledged_within(time, 1000, false);
        return flow;
    };
    CHECK(Flow{}.near_slots_bytes(limits) == limits.near_slots_bytes / 8);
    const Flow idle = after(100, millisecond / 2);
    CHECK(idle.near_slots_bytes(limits) == limits.near_slots_bytes);
    CHECK(after(100, 2 * millisecond, idle).near_slots_bytes(limits) == limits.near_slots_bytes / 8);
}
