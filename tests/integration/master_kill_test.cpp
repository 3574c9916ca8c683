// The master kill test: a real pccl-master gets SIGKILL at random moments while peers admit, synchronize and reduce, and is
// started again on its state directory. Nothing may be lost: no split, no revision, no member.
//
// The peers (see master_kill_peer.c) check each value themselves and print what they saw of each turn; all must print the
// same. PCCL_MASTER_KILLS sets the number of kills (5), PCCL_KILL_SEED the seed, which is printed; with the same seed the
// same peers and delays are drawn (what the machine does in that time is up to it).
#include "process.hpp"
#include "state_directory.hpp"

#include "core/base/random.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace integration;

namespace {

constexpr std::size_t kills_per_run = 10;

std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
    const char* text = std::getenv(name);
    return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// Turn -> what was seen in it.
using Turns = std::map<std::uint64_t, std::string>;

// Reads what there is; the rounds of retries may differ by when a peer asked.
void collect(Process& peer, Turns& turns, std::uint64_t& rounds, std::chrono::milliseconds patience) {
    while (const auto line = peer.poll_line(patience)) {
        const std::vector<std::string> list = words(*line);
        if (list.size() != 7 || list[0] != "turn") continue;
        turns[std::stoull(list[1])] = list[2] + " " + list[3] + " " + list[4] + " " + list[5];
        rounds += std::stoull(list[6]) - 1;
        patience = std::chrono::milliseconds(0);
    }
}

struct Total {
    std::size_t kills = 0, turns = 0, retried = 0;
};

// One run of several peers: `kills` times the master goes, then the peers finish in peace.
void play(std::uint64_t seed, std::size_t kills, Total& total) {
    pccl::core::Random random(seed);
    static constexpr std::size_t counts[] = {300, 20'000, 400'000};
    const std::size_t peers = 2 + random.below(3);
    const std::size_t count = counts[random.below(3)];
    std::printf("seed %llu: %zu peers, %zu elements, %zu kills\n", static_cast<unsigned long long>(seed), peers, count,
                kills);
    std::fflush(stdout);
    const StateDirectory directory;
    auto master = std::make_unique<MasterProcess>(directory.environment());
    const std::uint16_t port = master->port();
    std::vector<std::unique_ptr<Process>> programs;
    std::vector<Turns> seen(peers);
    std::vector<std::uint64_t> rounds(peers, 0);
    for (std::size_t i = 0; i < peers; ++i) {
        programs.push_back(std::make_unique<Process>(
            std::vector<std::string>{PCCL_TEST_MASTER_KILL_PEER, std::to_string(port), std::to_string(i),
                                     std::to_string(peers), std::to_string(count), std::to_string(2'000'000'000)}));
    }
    for (auto& program : programs) REQUIRE(program->expect_line() == "ready");
    for (std::size_t kill = 0; kill < kills; ++kill) {
        // A turn behind the last kill, so that each one falls into work; then a moment anywhere in some turns.
        const std::size_t before = seen[0].size();
        for (const auto begin = std::chrono::steady_clock::now(); seen[0].size() <= before;) {
            collect(*programs[0], seen[0], rounds[0], std::chrono::milliseconds(100));
            if (std::chrono::steady_clock::now() - begin > hang_guard) {
                for (auto& program : programs) UNSCOPED_INFO(program->log_text());
                FAIL("no turn ends; seed " << seed << ", kill " << kill);
            }
        }
        const auto pause = std::chrono::microseconds(random.below(random.below(3) == 0 ? 100'000 : 8'000));
        std::this_thread::sleep_for(pause);  // the random moment itself
        master->signal(SIGKILL);
        master->wait();
        master = std::make_unique<MasterProcess>(directory.environment(), port);
        for (std::size_t i = 0; i < peers; ++i) collect(*programs[i], seen[i], rounds[i], std::chrono::milliseconds(0));
    }
    const std::size_t before = seen[0].size();
    for (const auto begin = std::chrono::steady_clock::now();
         seen[0].size() <= before + 1 && std::chrono::steady_clock::now() - begin < hang_guard;) {
        collect(*programs[0], seen[0], rounds[0], std::chrono::milliseconds(100));
    }
    CHECK(seen[0].size() > before);
    CHECK(master->log_text().find("removed") == std::string::npos);
    master->signal(SIGTERM);
    CHECK(master->wait() == 0);
    std::size_t turns = 0;
    for (std::size_t i = 0; i < peers; ++i) {
        // The clean stop ends the run: each call fails and the peer ends, having printed what it had done.
        INFO("peer " << i << " log:\n" << programs[i]->log_text());
        CHECK(programs[i]->wait() == 4);
        collect(*programs[i], seen[i], rounds[i], std::chrono::milliseconds(0));
        CHECK(programs[i]->log_text().find("stopped on purpose") != std::string::npos);
        turns = i == 0 ? seen[i].size() : std::min(turns, seen[i].size());
    }
    for (std::size_t i = 1; i < peers; ++i) {
        for (const auto& [turn, text] : seen[i]) {
            const auto other = seen[0].find(turn);
            INFO("peer " << i << ", turn " << turn);
            if (other != seen[0].end()) CHECK(text == other->second);
        }
        // Nobody is more than the turn ahead that the others had not finished when the master stopped.
        CHECK(seen[i].size() <= turns + 1);
    }
    CHECK(seen[0].size() <= turns + 1);
    CHECK(seen[0].rbegin()->first == seen[0].size());  // no revision is missing
    total.kills += kills;
    total.turns += turns;
    total.retried += rounds[0];
}

}  // namespace

TEST_CASE("SIGKILL of the master at random moments: no split, no lost revision, nobody rejoins") {
    const std::size_t kills = from_environment("PCCL_MASTER_KILLS", 5);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::uint64_t first = from_environment(
        "PCCL_KILL_SEED",
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
    Total total;
    for (std::uint64_t seed = first; total.kills < kills; ++seed) {
        INFO("replay: PCCL_KILL_SEED=" << seed
                                       << " PCCL_MASTER_KILLS=" << std::min(kills_per_run, kills - total.kills));
        play(seed, std::min(kills_per_run, kills - total.kills), total);
    }
    std::printf("%zu kills, %zu turns, %zu retried rounds\n", total.kills, total.turns, total.retried);
}
