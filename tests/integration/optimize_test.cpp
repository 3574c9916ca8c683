// Optimizing the topology between real processes: all members get the same answer, and the rings work afterwards.
#include "cluster.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;

// Few connections and little payload: a loopback can be measured with them too.
const Environment quick{{"PCCL_NUM_BENCHMARK_CONNECTIONS", "2"}, {"PCCL_LOG_LEVEL", "INFO"}};

void expect_reduction(Cluster& cluster, const std::vector<std::size_t>& members, std::uint64_t tag) {
    std::vector<std::uint64_t> seeds;
    for (const std::size_t member : members) seeds.push_back(1000 + member);
    for (std::size_t k = 0; k < members.size(); ++k)
        cluster[members[k]].send("reduce " + reduce_arguments(type_f32, op_sum, 30000, tag, "in", seeds, k));
    for (const std::size_t member : members) {
        const ReduceAnswer answer = as_reduce(cluster[member].answer("reduce"));
        REQUIRE(answer.result == success);
        CHECK(answer.matches);
    }
}

}  // namespace

TEST_CASE("optimize topology: all members succeed, every edge is measured once, reductions go on") {
    Cluster cluster(4, quick);
    for (const Answer& answer : cluster.all("optimize")) CHECK(answer.result == success);
    CHECK(cluster.master().says("optimizing the topology: 12 edges to measure"));
    CHECK(cluster.master().log_text().find("could not be measured") == std::string::npos);
    expect_reduction(cluster, {0, 1, 2, 3}, 1);
    for (const Answer& answer : cluster.all("optimize")) CHECK(answer.result == success);
    CHECK(cluster.master().says("optimizing the topology: 0 edges to measure"));
    expect_reduction(cluster, {0, 1, 2, 3}, 2);
    cluster.admit();
    for (const Answer& answer : cluster.all("optimize")) CHECK(answer.result == success);
    CHECK(cluster.master().says("optimizing the topology: 8 edges to measure"));
    expect_reduction(cluster, {0, 1, 2, 3, 4}, 3);
}

TEST_CASE("optimize topology: result codes, alone, with a launched tag, and lost") {
    Cluster cluster(2, {{"PCCL_MASTER_TIMEOUT_MS", "500"}});
    const std::vector<std::uint64_t> seeds{1, 2};
    for (std::size_t i = 0; i < 2; ++i)
        CHECK(cluster[i].ask("launch " + reduce_arguments(type_f32, op_sum, 1000, 1, "in", seeds, i)).result ==
              success);
    CHECK(cluster[0].ask("optimize").result == pending_async_ops);
    for (const Answer& answer : cluster.all("await 1")) CHECK(answer.result == success);
    for (const Answer& answer : cluster.all("optimize")) CHECK(answer.result == success);
    cluster[0].send("optimize");  // peer 1 does not vote, so this waits
    cluster.master().signal(SIGKILL);
    CHECK(cluster.master().wait() == -SIGKILL);
    CHECK(cluster[0].answer("optimize").result == topology_optimization_failed);
    CHECK(cluster[0].ask("optimize").result == topology_optimization_failed);
}

TEST_CASE("optimize topology: a member that dies while others wait for it leaves them to go on, the last one with a "
          "failure") {
    Cluster cluster(3, quick);
    cluster[0].send("optimize");
    cluster[1].send("optimize");
    cluster[2].signal(SIGKILL);
    CHECK(cluster[0].answer("optimize").result == success);
    CHECK(cluster[1].answer("optimize").result == success);
    expect_reduction(cluster, {0, 1}, 1);
    cluster[0].send("optimize");
    cluster[1].signal(SIGKILL);
    CHECK(cluster[0].answer("optimize").result == topology_optimization_failed);
    CHECK(cluster[0].attribute(1) == 1);
    CHECK(cluster[0].ask("optimize").result == invalid_usage);
}
