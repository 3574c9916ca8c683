// Tests of Operation alone, without links: geometry of slices, credit, order of sending, lost slices.
#include "core/all_reduce/ahead.hpp"
#include "core/all_reduce/operation.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <memory>
#include <vector>

using namespace pccl::core;

namespace {

// Slices of 16 bytes. Vectors here have elements of one byte.
Limits small() {
    Limits limits;
    limits.slice_bytes = 16;
    return limits;
}

// `slots`: 0: one for each slice.
std::unique_ptr<Operation> make(std::uint32_t world, std::uint32_t position, std::uint64_t count,
                                std::uint32_t slots = 0) {
    Operation::Identity id;
    id.id = 1;
    id.world = world;
    id.position = position;
    ReduceShape shape;
    shape.count = count;
    shape.type = DataType::u8;
    const Limits limits = small();
    auto op = std::make_unique<Operation>(id, shape, 1, 2, limits);
    op->make_slots(slots == 0 ? op->slices() : slots, op->slices());
    op->prepared = true;
    return op;
}

// All members of a ring. A slice that is sent arrives, is reduced and is acknowledged at once. All members have their
// buffers ready, and a slot for each slice.
struct Ring {
    explicit Ring(std::uint32_t world, std::uint64_t count) {
        for (std::uint32_t i = 0; i < world; ++i) ops.push_back(make(world, i, count));
        for (auto& op : ops) {
            op->neighbour_ready = true;
            op->neighbour_slots = op->credit = ops[0]->slices();
        }
    }
    // Sends one slice from this member to its successor. False: nothing may leave now.
    bool step(std::uint32_t from) {
        Operation& op = *ops[from];
        const Operation::Next next = op.peek(0, Operation::none);
        if (next.slice == Operation::none) return false;
        op.pop(next);
        op.leaves(next.phase, next.slice, 1);
        const std::uint32_t to = (from + 1) % static_cast<std::uint32_t>(ops.size());
        land(*ops[to], next.phase, next.slice);
        op.acknowledged(next.phase, next.slice);
        if (next.phase == 0 && !op.starts(next.slice)) op.give_slot(next.slice);
        op.credit = ops[to]->granted;
        return true;
    }
    // The slice arrives at `op`. It must not have arrived in this phase before.
    void land(Operation& op, int phase, std::uint32_t slice) {
        Half& half = op.half(phase, slice);
        REQUIRE(half.in == InState::none);
        half.in = InState::landed;
        if (phase == 0) {
            REQUIRE(op.take_slot(slice) != Operation::none);
            if (!op.finishes(slice)) return op.enqueue(0, slice);
            op.give_slot(slice);
            op.half(1, slice).in = InState::landed;
        }
        ++op.finals;
        op.add_digest(slice, slice + 100);
        if (op.forwards_final(slice)) op.enqueue(1, slice);
    }
    std::vector<std::unique_ptr<Operation>> ops;
};

}  // namespace

TEST_CASE("slices cover the vector without a gap, whatever the world and the count") {
    for (const std::uint32_t world : {2u, 3u, 5u}) {
        for (const std::uint64_t count : {1ull, 7ull, 64ull, 1000ull}) {
            const auto op = make(world, 0, count);
            std::uint64_t at = 0;
            for (std::uint32_t slice = 0; slice < op->slices(); ++slice) {
                CHECK(op->byte_offset(slice) == at);
                CHECK(op->byte_length(slice) <= 16);
                at += op->byte_length(slice);
            }
            CHECK(at == op->bytes());
        }
    }
}

TEST_CASE("each slice starts at one member and is finished by one") {
    for (std::uint32_t slice = 0; slice < make(3, 0, 200)->slices(); ++slice) {
        std::uint32_t starts = 0, finishes = 0, forwards = 0;
        for (std::uint32_t position = 0; position < 3; ++position) {
            const auto op = make(3, position, 200);
            starts += op->starts(slice) ? 1 : 0;
            finishes += op->finishes(slice) ? 1 : 0;
            forwards += op->forwards_final(slice) ? 1 : 0;
        }
        CHECK(starts == 1);
        CHECK(finishes == 1);
        CHECK(forwards == 2);
    }
}

TEST_CASE("a ring that moves one slice after the other comes to its end with equal digests") {
    for (const std::uint32_t world : {2u, 3u, 4u}) {
        Ring ring(world, 300);
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t i = 0; i < world; ++i) moved = ring.step(i) || moved;
        }
        for (const auto& op : ring.ops) {
            CHECK(op->finals == op->slices());
            CHECK(op->digest == ring.ops[0]->digest);
            CHECK_FALSE(op->wants_to_send());
            CHECK_FALSE(op->unanswered());
        }
    }
}

TEST_CASE("own input leaves half of the successor's slots free, a sum that goes on may use all") {
    const auto op = make(3, 0, 300);
    op->neighbour_ready = true;
    op->neighbour_slots = op->credit = 4;
    for (int sent = 0; sent < 2; ++sent) {
        const Operation::Next next = op->peek(0, Operation::none);
        REQUIRE(next.slice != Operation::none);
        op->pop(next);
    }
    CHECK(op->free_credit() == 2);
    CHECK(op->peek(0, Operation::none).slice == Operation::none);
    std::uint32_t other = 0;
    while (op->starts(other) || op->finishes(other)) ++other;
    op->enqueue(0, other);
    CHECK(op->peek(0, Operation::none).slice == other);
}

TEST_CASE("before the start so much leaves as fits into the reserve of the successor") {
    Operation::Identity id;
    id.id = ahead_of(7);
    id.serial = 7;
    id.world = 2;
    ReduceShape shape;
    shape.count = 300;
    shape.type = DataType::u8;
    Operation op(id, shape, 1, 2, small());
    op.ahead = true;
    CHECK(op.peek(0, Operation::none).slice == Operation::none);
    const Operation::Next next = op.peek(1, Operation::none);
    CHECK(next.slice != Operation::none);
    CHECK(next.eager);
}

TEST_CASE(
    "after the start the successor probably has as many slots, and more may leave; nothing does after a decline") {
    const auto op = make(2, 0, 300);
    const Operation::Next next = op->peek(0, Operation::none);
    CHECK(next.slice != Operation::none);
    CHECK_FALSE(next.eager);
    CHECK(op->peek(0, 0).slice == Operation::none);  // on a short path
    op->held = true;
    CHECK(op->peek(1, Operation::none).slice == Operation::none);
}

TEST_CASE("input of the predecessor leaves a slot free for other partial sums, if there are few") {
    const std::uint32_t world = 3;
    const auto op = make(world, 0, 300);
    std::vector<std::uint32_t> input;
    std::uint32_t other = Operation::none;
    for (std::uint32_t slice = 0; slice < op->slices(); ++slice) {
        if (op->distance(slice) == 1) input.push_back(slice);
        if (op->distance(slice) == 2) other = slice;
    }
    REQUIRE(input.size() > 2);
    const auto few = make(world, 0, 300, 3);
    CHECK(few->take_slot(input[0]) != Operation::none);
    CHECK(few->take_slot(input[1]) != Operation::none);
    CHECK(few->take_slot(input[2]) == Operation::none);
    CHECK(few->take_slot(other) != Operation::none);
    for (const std::uint32_t slice : input) CHECK(op->take_slot(slice) != Operation::none);  // there is one for each
}

TEST_CASE("a slice that is declined gives its credit back; one that is lost keeps it and goes first") {
    const auto op = make(2, 0, 300);
    op->neighbour_ready = true;
    op->neighbour_slots = op->credit = 8;
    const Operation::Next first = op->peek(0, Operation::none);
    op->pop(first);
    op->leaves(0, first.slice, 1);
    CHECK(op->used == 1);
    op->declined(0, first.slice);
    CHECK(op->used == 0);
    CHECK(op->peek(0, Operation::none).slice == first.slice);
    op->pop(op->peek(0, Operation::none));
    op->leaves(0, first.slice, 1);
    CHECK(op->lost_again(0, first.slice, second, 100 * millisecond));
    CHECK(op->resends());
    CHECK(op->used == 1);
    CHECK(op->peek(0, Operation::none).slice == first.slice);
    // A second loss within 100 ms does not count: connections that break together are one loss.
    op->pop(op->peek(0, Operation::none));
    op->leaves(0, first.slice, 2);
    CHECK_FALSE(op->lost_again(0, first.slice, second + 1, 100 * millisecond));
    CHECK(op->lost.at({0, first.slice}).times == 1);
    // The acknowledgement comes while the resend is queued: the slice is not sent again.
    op->acknowledged(0, first.slice);
    CHECK_FALSE(op->resends());
    CHECK(op->peek(0, Operation::none).slice != first.slice);
}

TEST_CASE("of lost slices, the one that was lost most often goes first") {
    const auto op = make(2, 0, 300);
    op->neighbour_ready = true;
    op->neighbour_slots = op->credit = 8;
    const auto leaves = [&] {
        const Operation::Next next = op->peek(0, Operation::none);
        op->pop(next);
        op->leaves(next.phase, next.slice, 1);
        return next.slice;
    };
    const std::uint32_t often = leaves();
    CHECK(op->lost_again(0, often, second, 0));
    CHECK(leaves() == often);
    const std::uint32_t once = leaves();
    CHECK(op->lost_again(0, often, 2 * second, 0));
    CHECK(op->lost_again(0, once, 2 * second, 0));
    CHECK(op->resends() == 2);
    CHECK(leaves() == often);
    CHECK(op->resends() == 1);
    CHECK(leaves() == once);
    CHECK(op->resends() == 0);
}

TEST_CASE("a member that reads results ahead of the outcome still waits for input") {
    const auto op = make(2, 0, 64);
    CHECK(op->waits_for_input());
    op->computes = 1;
    CHECK_FALSE(op->waits_for_input());
    op->reading = 1;
    CHECK(op->waits_for_input());
}
