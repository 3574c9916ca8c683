// The kill test: real peers reduce in place, and one of them gets SIGKILL at a random moment of an operation.
//
// Each round starts a master and 3 or 4 peers (see kill_peer.c, which checks values and restored inputs itself). The
// survivors must report the same outcomes and equal bytes for every attempt of every step, retry without any other
// call, and end by themselves. PCCL_KILL_ROUNDS sets the number of rounds (5), PCCL_KILL_SEED the first seed. Each
// round prints its seed, and PCCL_KILL_SEED=<that> PCCL_KILL_ROUNDS=1 draws the same round again. The moment in the
// operation still depends on the machine.
#include "kill_draws.hpp"
#include "process.hpp"

#include "core/base/random.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <time.h>

using namespace integration;

namespace {

struct Plan {
    std::size_t peers;
    std::size_t victim;
    std::size_t count;       // elements of 8 bytes
    std::uint64_t step;      // the victim dies in this step
    std::uint64_t delay_us;  // after its `begin` line
};

Plan draw(std::uint64_t seed) {
    pccl::core::Random random(seed);
    Plan plan{};
    plan.peers = 3 + random.below(2);
    plan.victim = random.below(plan.peers);
    // From one slice to many. The delay covers the whole operation and a little more.
    static constexpr std::size_t counts[] = {1'000, 40'000, 300'000, 1'000'000, 2'000'000};
    plan.count = counts[random.below(5)];
    plan.step = 1 + random.below(4);
    plan.delay_us = random.below(200 + plan.count / 25);
    return plan;
}

// The random moment itself. Nothing waits for an event here.
void let_pass(std::uint64_t microseconds) {
    timespec pause{static_cast<time_t>(microseconds / 1'000'000), static_cast<long>(microseconds % 1'000'000) * 1000};
    nanosleep(&pause, nullptr);
}

// "STEP ATTEMPT" -> "RESULT WORLD LANES HASH". Each line is checked when it is read.
using Outcomes = std::map<std::string, std::string>;

Outcomes read_outcomes(Process& peer, std::size_t index, const Plan& plan) {
    Outcomes outcomes;
    while (const auto line = peer.read_line()) {
        const std::vector<std::string> list = words(*line);
        if (list.empty() || list[0] != "end") continue;
        INFO("peer " << index << ": " << *line);
        REQUIRE(list.size() == 9);
        const int result = std::stoi(list[3]);
        CHECK((result == 0 || result == 8));
        CHECK(list[6] == "1");  // every contribution is there once, or:
        CHECK(list[7] == "1");  // the input is back
        if (result == 0) {
            const unsigned lanes = static_cast<unsigned>(std::stoul(list[5]));
            const unsigned everybody = (1u << plan.peers) - 1;
            CHECK((lanes == everybody || lanes == (everybody & ~(1u << plan.victim))));
            CHECK(static_cast<unsigned long>(__builtin_popcount(lanes)) == std::stoul(list[4]));
        }
        // After a failure the world attribute may differ between members, because they learn of losses at different
        // times. Results, members and bytes may not differ.
        outcomes[list[1] + " " + list[2]] =
            list[3] + " " + (result == 0 ? list[4] : "-") + " " + list[5] + " " + list[8];
    }
    return outcomes;
}

void wait_for_line(Process& peer, const std::string& wanted) {
    for (std::string line; line != wanted;) line = peer.expect_line();
}

void play(std::uint64_t seed) {
    const Plan plan = draw(seed);
    MasterProcess master;
    std::vector<std::unique_ptr<Process>> peers;
    for (std::size_t i = 0; i < plan.peers; ++i) {
        peers.push_back(std::make_unique<Process>(
            std::vector<std::string>{PCCL_TEST_KILL_PEER, std::to_string(master.port()), std::to_string(i),
                                     std::to_string(plan.peers), std::to_string(plan.count), "2"}));
    }
    wait_for_line(*peers[plan.victim], "begin " + std::to_string(plan.step));
    let_pass(plan.delay_us);
    peers[plan.victim]->signal(SIGKILL);
    std::vector<Outcomes> seen;
    for (std::size_t i = 0; i < plan.peers; ++i) {
        if (i == plan.victim) continue;
        seen.push_back(read_outcomes(*peers[i], i, plan));
        INFO("peer " << i << " log:\n" << peers[i]->log_text());
        CHECK(peers[i]->wait() == 0);
        CHECK(seen.back() == seen.front());
        CHECK_FALSE(seen.back().empty());
    }
    CHECK(peers[plan.victim]->wait() == -SIGKILL);
    std::size_t failed = 0;
    for (const auto& [name, outcome] : seen.front()) failed += outcome.front() != '0';
    std::printf("  %zu attempts, %zu failed\n", seen.front().size(), failed);
    master.signal(SIGTERM);
    CHECK(master.wait() == 0);
}

}  // namespace

TEST_CASE("one SIGKILL at a random moment of an operation") {
    const std::uint64_t rounds = from_environment("PCCL_KILL_ROUNDS", 5);
    const std::uint64_t first = first_seed();
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t seed = first + round;
        const Plan plan = draw(seed);
        std::printf("round %llu seed %llu: %zu peers, victim %zu, step %llu, %zu elements, %llu us\n",
                    static_cast<unsigned long long>(round + 1), static_cast<unsigned long long>(seed), plan.peers,
                    plan.victim, static_cast<unsigned long long>(plan.step), plan.count,
                    static_cast<unsigned long long>(plan.delay_us));
        std::fflush(stdout);
        INFO("replay: PCCL_KILL_SEED=" << seed << " PCCL_KILL_ROUNDS=1");
        play(seed);
    }
}
