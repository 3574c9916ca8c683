// Peers of one host, each a process: their data connections go through shared memory, unless one of them has turned it
// off; and nothing remains of a peer that is killed.
#include "cluster.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;

// How many connections of the process go through shared memory.
std::size_t shared_connections(const Process& process) {
    std::ifstream maps("/proc/" + std::to_string(process.pid()) + "/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:pccl-link") != std::string::npos) ++count;
    }
    return count;
}

std::string reduction(std::size_t members, std::size_t index, std::uint64_t tag, std::size_t elements) {
    std::vector<std::uint64_t> seeds;
    for (std::size_t k = 0; k < members; ++k) seeds.push_back(1000 + k);
    return "reduce " + reduce_arguments(type_f32, op_sum, elements, tag, "out", seeds, index);
}

void expect_reduction(Cluster& cluster, std::uint64_t tag) {
    for (std::size_t k = 0; k < cluster.size(); ++k) cluster[k].send(reduction(cluster.size(), k, tag, 1'000'000));
    for (std::size_t k = 0; k < cluster.size(); ++k) {
        const ReduceAnswer answer = as_reduce(cluster[k].answer("reduce"));
        CHECK(answer.result == success);
        CHECK(answer.matches);
    }
}

// Looks again until it is true. The limit is a hang guard.
bool becomes(const std::function<bool()>& is_true) {
    const auto limit = std::chrono::steady_clock::now() + hang_guard;
    while (!is_true()) {
        if (std::chrono::steady_clock::now() > limit) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("two peers of one host reduce through shared memory") {
    Cluster cluster(2);
    expect_reduction(cluster, 1);
    CHECK(shared_connections(cluster[0]) > 0);
    CHECK(shared_connections(cluster[0]) == shared_connections(cluster[1]));
    CHECK(shared_connections(cluster.master()) == 0);
}

TEST_CASE("a peer that has turned shared memory off works with one that has not") {
    Cluster cluster(1);
    cluster.admit(0, {{"PCCL_SHARED_MEMORY", "0"}});
    expect_reduction(cluster, 1);
    CHECK(shared_connections(cluster[0]) == 0);
    CHECK(shared_connections(cluster[1]) == 0);
    CHECK(cluster[0].log_text().find("shared memory") == std::string::npos);
}

TEST_CASE("a peer that is killed in a reduction leaves no memory and no descriptor at its neighbours") {
    Cluster cluster(2);
    expect_reduction(cluster, 1);
    const std::size_t shared = shared_connections(cluster[0]);
    const int descriptors = cluster[0].open_descriptors();
    for (std::uint64_t round = 0; round < 5; ++round) {
        INFO("round " << round);
        cluster.admit();
        // 40 MB, so that it is most probably killed in the middle. The moment differs from round to round.
        for (std::size_t k = 0; k < 3; ++k) cluster[k].send(reduction(3, k, 10 + round, 10'000'000));
        if (round > 0) becomes([&] { return shared_connections(cluster[2]) >= 2 * round; });
        cluster[2].signal(SIGKILL);
        for (std::size_t k = 0; k < 2; ++k) {
            const ReduceAnswer answer = as_reduce(cluster[k].answer("reduce"));
            CHECK((answer.result == success || answer.result == rank_connection_lost));
            CHECK(answer.intact);
        }
        cluster.remove(2);
        expect_reduction(cluster, 100 + round);
        for (std::size_t k = 0; k < 2; ++k) {
            CHECK(becomes([&] { return shared_connections(cluster[k]) == shared; }));
            CHECK(becomes([&] { return cluster[k].open_descriptors() == descriptors; }));
        }
    }
}
