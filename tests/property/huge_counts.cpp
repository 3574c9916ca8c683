// Operations of more than 2^32 elements. Their geometry is compared with exact integers. Runs without content must
// write every byte of each result.
#include "core/all_reduce/operation.hpp"
#include "harness/draw_units.hpp"
#include "harness/run.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

using Exact = unsigned __int128;

constexpr std::uint64_t counts[] = {5'000'000'000, 5'000'000'001, 4'294'967'295, 4'294'967'296, 8'589'934'591};

}  // namespace

TEST_CASE("slices of more than 2^32 elements are those of exact integers") {
    Limits limits;
    limits.slice_bytes = 3u << 20;
    for (const std::uint64_t count : counts) {
        for (const std::uint32_t world : {2u, 3u, 7u}) {
            for (const DataType type : {DataType::u8, DataType::f32, DataType::f64}) {
                Operation::Identity identity;
                identity.world = world;
                identity.position = world - 1;
                ReduceShape shape;
                shape.count = count;
                shape.type = type;
                const Operation op(identity, shape, 2, 4, limits);
                const std::uint64_t size = element_bytes(type);
                const std::uint64_t slice_elements = limits.slice_bytes / size;
                INFO(count << " elements of " << size << " bytes, " << world << " members");
                std::uint32_t slice = 0;
                Exact sum = 0;
                bool right = true;
                for (std::uint32_t part = 0; part < world; ++part) {
                    const Exact begin = Exact{count} * part / world, end = Exact{count} * (part + 1) / world;
                    for (Exact at = begin; at < end; at += slice_elements, ++slice) {
                        const Exact length = std::min<Exact>(slice_elements, end - at) * size;
                        right = right && op.part_of(slice) == part && Exact{op.byte_offset(slice)} == at * size &&
                                Exact{op.byte_length(slice)} == length &&
                                op.wire_offset(slice) == op.byte_offset(slice) &&
                                op.wire_length(slice) == op.byte_length(slice);
                        sum += length;
                    }
                }
                CHECK(right);
                CHECK(op.slices() == slice);
                CHECK((sum == Exact{count} * size));
                CHECK((Exact{op.bytes()} == sum));
                CHECK(op.wire_bytes() == op.bytes());
            }
        }
    }
}

TEST_CASE("operations of more than 2^32 elements write each byte of their results") {
    std::uint64_t in_place = 0, beside = 0;
    for (const std::uint32_t peers : {2u, 3u}) {
        for (const std::uint32_t in_place_per_mille : {0u, 1000u}) {
            Scenario s;
            s.seed = 1;
            s.world.symbolic = true;
            s.world.network.latency_low = s.world.network.latency_high = millisecond;
            s.world.network.rate_low = s.world.network.rate_high = 1'000'000'000'000;
            s.world.network.window_low = s.world.network.window_high = 1 << 30;
            s.peers.resize(peers);
            for (PeerPlan& plan : s.peers) plan.turns = 4;
            s.workload.sync = false;
            s.workload.world_min = peers;
            s.workload.f32_sum = true;
            s.workload.elements_min = s.workload.elements_max = 5;
            s.workload.elements_times = 1'000'000'007;
            s.workload.in_place_per_mille = in_place_per_mille;
            s.limits.payload_bytes_max = s.limits.slice_bytes = 1u << 24;
            s.limits.eager_bytes = 1u << 26;
            s.limits.scratch_bytes = 1u << 30;
            s.limits.copy_bytes = 1u << 30;
            s.patience = 600 * second;
            s.stop_after = 100 * second;
            const Verdict verdict = run(s);
            INFO(peers << " peers: " << verdict.violation.oracle << " " << verdict.violation.reason);
            REQUIRE(verdict.held());
            CHECK(verdict.counters.committed >= peers);
            (in_place_per_mille != 0 ? in_place : beside) += verdict.counters.committed;
            // In place, the final bytes are first held beside the input.
            if (in_place_per_mille != 0) CHECK(verdict.machine_bytes_most > std::uint64_t{5} * 1'000'000'007 * 4);
        }
    }
    CHECK(in_place > 0);
    CHECK(beside > 0);
}

TEST_CASE("seeds draw operations of more than 2^32 elements, and many entries with long names") {
    std::uint64_t huge = 0, many = 0;
    for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
        const Scenario s = generate(seed);
        if (is_huge(s)) ++huge;
        if (s.workload.entries >= 500) ++many;
    }
    CHECK(huge > 0);
    CHECK(many > 0);
}
