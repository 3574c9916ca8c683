// In place, final bytes overwrite the input, and scratch has it until the outcome is known.
#include "core/compute.hpp"
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;
using play::name;

namespace {

constexpr OpId op = 1;
constexpr BufferId array = 4;
constexpr std::uint64_t half_bytes = 200'000;  // a slice: this peer finishes the head, the other peer the tail
constexpr BufferRef head{array, 0, half_bytes}, tail{array, half_bytes, half_bytes};

// At position 0 of two in an all-reduce in place. Its slice has left.
class Member : public play::Peer {
public:
    Member() {
        say(play::admitted_as_second());
        handle(LinkAccepted{from, play::at(9, 1)});
        play::Peer::say(from, hello(to_bytes(link_pass(key(), name(9)).hello), false, name(9)));
        for (const BufferId buffer : std::vector(allocations)) handle(BufferAllocated{buffer, true});
        proto::DialPlan edges;
        *edges.add_targets() = play::entry(0, play::other_key(), uuid());
        plan(edges);
        to = opens.at(0).link;
        welcomed(to);

        CommandLaunch launch;
        launch.ticket = 2;
        launch.tag = 5;
        launch.shape.count = 2 * half_bytes / 4;
        launch.send = launch.receive = array;
        call(launch);
        say(begun(op, 2, name(9)));
        const std::vector<BufferId> asked = allocations;
        REQUIRE(asked.size() == 2);
        scratch = asked[1];
        for (const BufferId buffer : asked) handle(BufferAllocated{buffer, true});
        if (sends.empty()) handle(FlowArrived{to, {op, 4, 4, wire::FlowKind::ready, 0}});
        REQUIRE(sends.size() == 1);
        CHECK(sends[0].source == tail);
        copies = computes;
        handle(PayloadSent{to, 0, false});
    }
    using play::Peer::say;
    BufferRef kept(const BufferRef& input) const { return {scratch, input.offset, input.length}; }
    void arrives(std::uint16_t phase, std::uint32_t slice) {
        wire::BulkHeader header;
        header.op = op;
        header.slice = slice;
        header.phase = phase;
        header.length = half_bytes;
        handle(BulkArrived{from, header});
    }
    void lands() { handle(PayloadLanded{from, PayloadLanded::Verdict::landed, 7}); }
    void computed(const Compute& compute) { handle(ComputeDone{compute.id, 5, {}}); }
    // Its own slice is kept, and the slice of the other one is reduced.
    void keeps_both() {
        computed(copies.at(0));
        arrives(0, 0);
        lands();
        const Compute reduce = computes.at(0);
        computed(reduce);
    }
    // The connection to the other peer breaks and is opened again. From where the own slice is sent then.
    BufferRef leaves_again() {
        opens.clear();
        handle(LinkClosed{to, "reset"});
        for (int i = 0; i < 100 && opens.empty(); ++i) handle(Timer{}, 100 * millisecond);
        REQUIRE(opens.size() == 1);
        to = opens[0].link;
        welcomed(to);
        if (sends.at(0).header.phase == 1) handle(PayloadSent{to, 0, false});
        if (sends.empty()) handle(FlowArrived{to, {op, 4, 4, wire::FlowKind::ready, 0}});
        REQUIRE(sends.size() == 1);
        REQUIRE((sends[0].header.phase == 0 && sends[0].header.slice == 1));
        return sends[0].source;
    }
    void outcome(bool commit) {
        proto::MasterMessage message;
        message.mutable_answer()->set_index(3);
        message.mutable_answer()->mutable_outcome()->set_op(op);
        message.mutable_answer()->mutable_outcome()->set_commit(commit);
        say(message);
    }
    bool is_over() const { return freed.size() == 2; }  // slots and scratch
    // What is copied if the driver ends here: from where, and to where.
    std::vector<std::pair<BufferRef, BufferRef>> ends() {
        std::vector<std::pair<BufferRef, BufferRef>> copies;
        machine().copy_rest([&](const Compute& copy) { copies.emplace_back(copy.a, copy.target); });
        return copies;
    }
    LinkId from = 4, to = 0;
    BufferId scratch = 0;
    std::vector<Compute> copies;  // that were requested when the slice left
};

bool is_copy(const Compute& compute, const BufferRef& from, const BufferRef& to) {
    return compute.kind == Compute::Kind::copy && compute.a == from && compute.target == to;
}

}  // namespace

TEST_CASE("input is kept when it leaves and when it is reduced; final bytes land on it") {
    Member peer;
    REQUIRE(peer.copies.size() == 1);
    CHECK(is_copy(peer.copies[0], tail, peer.kept(tail)));
    peer.computed(peer.copies[0]);

    peer.arrives(0, 0);
    peer.lands();
    REQUIRE(peer.computes.size() == 1);
    const Compute reduce = peer.computes[0];
    CHECK(reduce.target == head);
    CHECK(reduce.b == head);
    CHECK(reduce.keep == peer.kept(head));
    CHECK(is_well_formed(reduce));
    peer.computed(reduce);
    REQUIRE(peer.sends.size() == 1);
    CHECK(peer.sends[0].source == head);

    peer.arrives(1, 1);
    REQUIRE(peer.receives.size() == 1);
    CHECK(peer.receives[0].target == tail);
    peer.lands();

    SECTION("after the commit nothing is copied") {
        peer.outcome(true);
        CHECK(peer.computes.empty());
        CHECK(peer.is_over());
    }
    SECTION("after a failure the input comes back, and then the operation is over") {
        peer.outcome(false);
        CHECK_FALSE(peer.is_over());
        REQUIRE(peer.computes.size() == 2);
        CHECK(is_copy(peer.computes[0], peer.kept(head), head));
        CHECK(is_copy(peer.computes[1], peer.kept(tail), tail));
        const std::vector<Compute> back = peer.computes;
        peer.computed(back[0]);
        CHECK_FALSE(peer.is_over());
        peer.computed(back[1]);
        CHECK(peer.is_over());
    }
}

TEST_CASE("input comes back to a place that a part of the final bytes may have reached") {
    Member peer;
    peer.keeps_both();
    peer.arrives(1, 1);
    peer.outcome(false);
    REQUIRE(peer.computes.size() == 2);
    CHECK(is_copy(peer.computes[1], peer.kept(tail), tail));
}

TEST_CASE("input comes back when all that was computed is done") {
    Member peer;
    const Compute copy = peer.copies.at(0);
    peer.arrives(0, 0);
    peer.lands();
    const Compute reduce = peer.computes.at(0);
    peer.outcome(false);
    CHECK(peer.computes.empty());
    peer.computed(copy);
    CHECK((peer.computes.empty() && !peer.is_over()));
    peer.computed(reduce);
    REQUIRE(peer.computes.size() == 1);  // nothing has overwritten the other slice
    CHECK(is_copy(peer.computes[0], peer.kept(head), head));
    const Compute back = peer.computes[0];
    peer.computed(back);
    CHECK(peer.is_over());
}

TEST_CASE("final bytes that come while the input is copied are declined") {
    Member peer;
    const Compute copy = peer.copies.at(0);
    peer.arrives(1, 1);
    CHECK(peer.receives.empty());
    CHECK(peer.discards.size() == 1);
    REQUIRE(peer.flows.size() == 1);
    CHECK(peer.flows[0].word.kind == wire::FlowKind::decline);
    peer.handle(PayloadLanded{peer.from, PayloadLanded::Verdict::discarded, 0});
    peer.computed(copy);
    peer.arrives(1, 1);
    REQUIRE(peer.receives.size() == 1);
    CHECK(peer.receives[0].target == tail);
}

TEST_CASE("final bytes land in scratch while the input leaves once more") {
    Member peer;
    peer.keeps_both();
    REQUIRE(peer.leaves_again() == tail);
    CHECK(peer.computes.empty());
    peer.arrives(1, 1);
    REQUIRE(peer.receives.size() == 1);
    CHECK(peer.receives[0].target == peer.kept(tail));
    SECTION("they land, and the input stays where it is") {
        peer.lands();
        CHECK(peer.leaves_again() == tail);
        CHECK(peer.computes.empty());  // its place in scratch has final bytes
        SECTION("commit") {
            peer.outcome(true);
            REQUIRE(peer.computes.size() == 1);
            CHECK(is_copy(peer.computes[0], peer.kept(tail), tail));
            CHECK_FALSE(peer.is_over());
        }
        SECTION("failure") {
            peer.outcome(false);
            REQUIRE(peer.computes.size() == 1);
            CHECK(is_copy(peer.computes[0], peer.kept(head), head));
        }
    }
    SECTION("they do not land: the input is kept once more before others land on it") {
        peer.handle(PayloadLanded{peer.from, PayloadLanded::Verdict::abandoned, 0});
        CHECK(peer.leaves_again() == tail);
        REQUIRE(peer.computes.size() == 1);
        const Compute copy = peer.computes[0];
        CHECK(is_copy(copy, tail, peer.kept(tail)));
        peer.computed(copy);
        peer.handle(PayloadSent{peer.to, 0, false});
        peer.arrives(1, 1);
        REQUIRE(peer.receives.size() == 1);
        CHECK(peer.receives[0].target == tail);
    }
}

TEST_CASE("input that final bytes have overwritten leaves once more from scratch") {
    Member peer;
    peer.keeps_both();
    peer.arrives(1, 1);
    REQUIRE(peer.receives.at(0).target == tail);
    CHECK(peer.leaves_again() == peer.kept(tail));
}

TEST_CASE("a driver that ends leaves the input where the outcome is not known, and the result after a commit") {
    Member peer;
    const std::pair head_back(peer.kept(head), head), tail_back(peer.kept(tail), tail);
    SECTION("before anything is overwritten") { CHECK(peer.ends().empty()); }
    SECTION("while a slice is reduced") {
        peer.arrives(0, 0);
        peer.lands();
        CHECK(peer.ends() == std::vector{head_back});
    }
    SECTION("while final bytes land") {
        peer.keeps_both();
        peer.arrives(1, 1);
        CHECK(peer.ends() == std::vector{head_back, tail_back});
    }
    SECTION("after the commit") {
        peer.keeps_both();
        REQUIRE(peer.leaves_again() == tail);
        peer.arrives(1, 1);
        peer.lands();
        peer.outcome(true);
        CHECK(peer.computes.size() == 1);  // of the slice that landed in scratch
        CHECK(peer.ends().empty());
    }
}
