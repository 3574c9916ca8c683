// All-reduce between real processes: every type and operation against a naive reference, every place and odd size, and
// many tags at a time in different orders.
#include "cluster.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <set>

using namespace integration;

namespace {

constexpr int type_count = 12;
constexpr int op_count = 5;
constexpr int type_u8 = 0;
constexpr int type_f32 = 10;
constexpr int op_sum = 0;
constexpr int op_avg = 1;

std::vector<std::uint64_t> seeds_for(std::size_t members, std::uint64_t salt) {
    std::vector<std::uint64_t> seeds(members);
    for (std::size_t i = 0; i < members; ++i) seeds[i] = salt * 100 + i;
    return seeds;
}

// Gives the command to all and expects the reference result, with equal bytes on all members.
std::vector<ReduceAnswer> reduce_on_all(Cluster& cluster, int type, int op, std::size_t count, std::uint64_t tag,
                                        const std::string& place) {
    const std::vector<std::uint64_t> seeds = seeds_for(cluster.size(), tag + 1);
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        cluster[i].send("reduce " + reduce_arguments(type, op, count, tag, place, seeds, i));
    }
    std::vector<ReduceAnswer> answers;
    for (std::size_t i = 0; i < cluster.size(); ++i) answers.push_back(as_reduce(cluster[i].answer("reduce")));
    for (const ReduceAnswer& answer : answers) {
        INFO("type " << type << " op " << op << " count " << count << " place " << place);
        REQUIRE(answer.result == success);
        CHECK(answer.world == cluster.size());
        CHECK(answer.matches);
        CHECK(answer.intact);
        CHECK(answer.hash == answers.front().hash);
    }
    return answers;
}

void every_type_and_operation(std::size_t members) {
    Cluster cluster(members);
    std::uint64_t tag = 0;
    for (int type = 0; type < type_count; ++type) {
        for (int op = 0; op < op_count; ++op) {
            reduce_on_all(cluster, type, op, 1000 + tag, tag, tag % 2 == 0 ? "in" : "out");
            ++tag;
        }
    }
}

}  // namespace

TEST_CASE("two peers: all types and operations equal the naive reference") { every_type_and_operation(2); }

// Averages of three must be rounded.
TEST_CASE("three peers: all types and operations equal the naive reference") { every_type_and_operation(3); }

TEST_CASE("four peers: all types and operations equal the naive reference") { every_type_and_operation(4); }

TEST_CASE("three peers: sizes around every border, in and out of place, misaligned") {
    Cluster cluster(3);
    std::uint64_t tag = 0;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{65535},
          std::size_t{65536}, std::size_t{65537}, std::size_t{200000}, std::size_t{1500001}}) {
        for (const char* place : {"in", "out", "odd"}) reduce_on_all(cluster, type_f32, op_avg, count, tag++, place);
        reduce_on_all(cluster, type_u8, op_sum, count, tag++, "odd");
    }
}

TEST_CASE("the bytes a peer reports are those a ring must move") {
    Cluster cluster(4);
    constexpr std::size_t count = 1 << 20;
    const double expected = 2.0 * 3 / 4 * count * 4;
    for (const ReduceAnswer& answer : reduce_on_all(cluster, type_f32, op_sum, count, 7, "in")) {
        CHECK(static_cast<double>(answer.sent_bytes) == Approx(expected).epsilon(0.01));
        CHECK(static_cast<double>(answer.received_bytes) == Approx(expected).epsilon(0.01));
    }
}

TEST_CASE("tags launched and awaited in a different order on each peer") {
    Cluster cluster(3);
    constexpr std::size_t tags = 40;  // more than may run at a time
    std::vector<std::uint64_t> order(tags);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    std::vector<std::vector<std::uint64_t>> launch_order(3, order);
    std::vector<std::vector<std::uint64_t>> await_order(3, order);
    std::reverse(launch_order[1].begin(), launch_order[1].end());
    std::rotate(launch_order[2].begin(), launch_order[2].begin() + 17, launch_order[2].end());
    std::reverse(await_order[0].begin(), await_order[0].end());
    std::rotate(await_order[1].begin(), await_order[1].begin() + 5, await_order[1].end());
    for (std::size_t i = 0; i < 3; ++i) {
        for (const std::uint64_t tag : launch_order[i]) {
            const auto seeds = seeds_for(3, tag + 1);
            cluster[i].send("launch " + reduce_arguments(type_f32, op_sum, 5000 + tag * 3000, tag,
                                                         tag % 2 ? "in" : "out", seeds, i));
        }
        for (const std::uint64_t tag : await_order[i]) cluster[i].send("await " + std::to_string(tag));
    }
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t k = 0; k < tags; ++k) REQUIRE(cluster[i].answer("launch").result == success);
        for (std::size_t k = 0; k < tags; ++k) {
            const ReduceAnswer answer = as_reduce(cluster[i].answer("await"));
            REQUIRE(answer.result == success);
            CHECK(answer.matches);
            CHECK(answer.intact);
        }
    }
}

TEST_CASE("a tag launched twice is refused, the first stays valid; each launch is awaited once") {
    Cluster cluster(2);
    const auto seeds = seeds_for(2, 1);
    CHECK(cluster[0].ask("launch " + reduce_arguments(type_f32, op_sum, 1000, 9, "in", seeds, 0)).result == success);
    CHECK(cluster[0].ask("launch " + reduce_arguments(type_f32, op_sum, 1000, 9, "in", seeds, 0)).result ==
          invalid_argument);
    CHECK(cluster[0].ask("reduce " + reduce_arguments(type_f32, op_sum, 1000, 9, "in", seeds, 0)).result ==
          invalid_argument);
    CHECK(cluster[0].ask("update").result == pending_async_ops);
    CHECK(cluster[0].ask("sync 0 w:10:4:1").result == pending_async_ops);
    CHECK(cluster[1].ask("launch " + reduce_arguments(type_f32, op_sum, 1000, 9, "in", seeds, 1)).result == success);
    for (std::size_t i = 0; i < 2; ++i) {
        const ReduceAnswer answer = as_reduce(cluster[i].ask("await 9"));
        CHECK(answer.result == success);
        CHECK(answer.matches);
        CHECK(cluster[i].ask("await 9").result == rank_connection_lost);
        CHECK(cluster[i].ask("await 1234").result == rank_connection_lost);
    }
    reduce_on_all(cluster, type_f32, op_sum, 10, 9, "in");  // the tag is free again
}

TEST_CASE("members that disagree about the shape all fail with InvalidArgument, and go on") {
    Cluster cluster(2);
    const auto seeds = seeds_for(2, 1);
    struct Variant {
        int type, op;
        std::size_t count;
    };
    for (const Variant other :
         {Variant{type_f32, op_sum, 999}, Variant{type_f32, op_avg, 1000}, Variant{5, op_sum, 1000}}) {
        cluster[0].send("reduce " + reduce_arguments(type_f32, op_sum, 1000, 3, "in", seeds, 0));
        cluster[1].send("reduce " + reduce_arguments(other.type, other.op, other.count, 3, "in", seeds, 1));
        for (std::size_t i = 0; i < 2; ++i) {
            const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
            CHECK(answer.result == invalid_argument);
            CHECK(answer.intact);
        }
    }
    reduce_on_all(cluster, type_f32, op_sum, 1000, 3, "out");
}

TEST_CASE("alone in the group: TooFewPeers, also with other groups in the run") {
    Cluster cluster(1);
    const auto seeds = seeds_for(1, 1);
    CHECK(cluster[0].ask("reduce " + reduce_arguments(type_f32, op_sum, 10, 0, "in", seeds, 0)).result ==
          too_few_peers);
    cluster.admit(5);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(cluster[i].attribute(1) == 2);
        CHECK(cluster[i].attribute(2) == 1);
        CHECK(cluster[i].attribute(3) == 2);
        CHECK(cluster[i].attribute(4) == 1);
        CHECK(cluster[i].ask("reduce " + reduce_arguments(type_f32, op_sum, 10, 0, "in", seeds, 0)).result ==
              too_few_peers);
    }
}
