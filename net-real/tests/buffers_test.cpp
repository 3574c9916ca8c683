// The memory that BufferTable holds for the machine.
#include "net-real/buffers.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr std::uint64_t mebibyte = 1u << 20;
using Allocation = BufferTable::Allocation;

}  // namespace

TEST_CASE("idle blocks count against the limit of scratch memory") {
    BufferTable buffers;
    buffers.limit_scratch(64 * mebibyte);
    core::BufferId next = 1;
    std::uint64_t most = 0;
    // Each operation has another size, so that no block of an earlier one fits.
    for (const std::uint64_t size : {20, 40, 50, 10, 60, 30, 64}) {
        REQUIRE(buffers.allocate(next, size * mebibyte) == Allocation::done);
        most = std::max(most, buffers.scratch_bytes());
        buffers.free(next, 0);
        most = std::max(most, buffers.scratch_bytes());
        next += 2;
    }
    CHECK(most <= 64 * mebibyte);
    // Memory in use is never unmapped.
    REQUIRE(buffers.allocate(next, 32 * mebibyte) == Allocation::done);
    REQUIRE(buffers.allocate(next + 2, 32 * mebibyte) == Allocation::done);
    *buffers.resolve({next, 0, 1}) = 1;
    *buffers.resolve({next + 2, 0, 1}) = 1;
    CHECK(buffers.scratch_bytes() <= 64 * mebibyte);
}

TEST_CASE("a block that fits is used again, within the limit and without one") {
    for (const std::uint64_t limit : {std::uint64_t{0}, 64 * mebibyte}) {
        BufferTable buffers;
        buffers.limit_scratch(limit);
        REQUIRE(buffers.allocate(1, 32 * mebibyte) == Allocation::done);
        const std::uint8_t* const first = buffers.resolve({1, 0, 1});
        buffers.free(1, 0);
        REQUIRE(buffers.allocate(3, 30 * mebibyte) == Allocation::done);
        CHECK(buffers.resolve({3, 0, 1}) == first);
    }
}

TEST_CASE("idle blocks go after ten seconds") {
    BufferTable buffers;
    REQUIRE(buffers.allocate(1, 300 * mebibyte) == Allocation::done);
    buffers.free(1, 0);
    CHECK(buffers.scratch_bytes() == 300 * mebibyte);
    CHECK(buffers.next_trim() == 10 * core::second);
    CHECK(buffers.trim(10 * core::second) == core::never);
    CHECK(buffers.scratch_bytes() == 0);
}
