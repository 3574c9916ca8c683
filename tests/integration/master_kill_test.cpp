// The master kill test: a real pccl-master gets SIGKILL at random moments while peers admit, synchronize and reduce,
// and is started again on its state directory. Nothing may be lost: no split, no revision, no member.
//
// The peers (see master_kill_peer.c) check each value themselves and print the results of each turn; all must print the
// same. PCCL_MASTER_KILLS sets the number of kills (20), PCCL_KILL_SEED the seed, which is printed. The same seed draws
// the same peers and delays. What happens within the delays still depends on the machine.
#include "kill_draws.hpp"
#include "process.hpp"
#include "state_directory.hpp"

#include "core/base/random.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace integration;

namespace {

constexpr std::size_t kills_per_run = 10;

// Turn -> what the peer printed for it.
using Turns = std::map<std::uint64_t, std::string>;

struct Seen {
    Turns turns;
    std::uint64_t rounds = 0;  // of retries; peers may differ in it, because they ask at different times
};

bool note(const std::string& line, Seen& seen) {
    const std::vector<std::string> list = words(line);
    if (list.size() != 7 || list[0] != "turn") return false;
    seen.turns[std::stoull(list[1])] = list[2] + " " + list[3] + " " + list[4] + " " + list[5];
    seen.rounds += std::stoull(list[6]) - 1;
    return true;
}

// Reads the lines that are there already.
void collect(Process& peer, Seen& seen) {
    while (const auto line = peer.poll_line(std::chrono::milliseconds(0))) note(*line, seen);
}

// Waits for turns that end from now on.
void wait_for_turns(Process& peer, Seen& seen, std::size_t turns) {
    collect(peer, seen);
    while (turns > 0) {
        if (note(peer.expect_line(), seen)) --turns;
    }
}

struct Total {
    std::size_t kills = 0, turns = 0, retried = 0;
};

// One run of several peers: the master is killed `kills` times, then the peers finish undisturbed.
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
    std::vector<Seen> seen(peers);
    for (std::size_t i = 0; i < peers; ++i) {
        programs.push_back(std::make_unique<Process>(
            std::vector<std::string>{PCCL_TEST_MASTER_KILL_PEER, std::to_string(port), std::to_string(i),
                                     std::to_string(peers), std::to_string(count), std::to_string(2'000'000'000)}));
    }
    for (auto& program : programs) REQUIRE(program->expect_line() == "ready");
    for (std::size_t kill = 0; kill < kills; ++kill) {
        // First wait for a turn after the last kill, so that each kill comes during work. Then wait for a random time.
        wait_for_turns(*programs[0], seen[0], 1);
        const auto pause = std::chrono::microseconds(random.below(random.below(3) == 0 ? 100'000 : 8'000));
        std::this_thread::sleep_for(pause);  // the random moment itself
        master->signal(SIGKILL);
        master->wait();
        CHECK(master->log_text().find("removed") == std::string::npos);
        master = std::make_unique<MasterProcess>(directory.environment(), port);
        for (std::size_t i = 0; i < peers; ++i) collect(*programs[i], seen[i]);
    }
    wait_for_turns(*programs[0], seen[0], 2);
    CHECK(master->log_text().find("removed") == std::string::npos);
    master->signal(SIGUSR1);  // ends the run
    CHECK(master->wait() == 0);
    std::size_t turns = 0;
    for (std::size_t i = 0; i < peers; ++i) {
        // The run has ended: each call fails, and the peer ends. Before, it has printed its finished turns.
        INFO("peer " << i << " log:\n" << programs[i]->log_text());
        CHECK(programs[i]->wait() == 4);
        collect(*programs[i], seen[i]);
        CHECK(programs[i]->says("stopped on purpose"));
        turns = i == 0 ? seen[i].turns.size() : std::min(turns, seen[i].turns.size());
    }
    for (std::size_t i = 1; i < peers; ++i) {
        for (const auto& [turn, text] : seen[i].turns) {
            const auto other = seen[0].turns.find(turn);
            INFO("peer " << i << ", turn " << turn);
            if (other != seen[0].turns.end()) CHECK(text == other->second);
        }
        // When the master stopped, a peer may have been one turn ahead of the others, but not more.
        CHECK(seen[i].turns.size() <= turns + 1);
    }
    CHECK(seen[0].turns.size() <= turns + 1);
    CHECK(seen[0].turns.rbegin()->first == seen[0].turns.size());  // no revision is missing
    total.kills += kills;
    total.turns += turns;
    total.retried += seen[0].rounds;
}

}  // namespace

TEST_CASE("SIGKILL of the master at random moments: no split, no lost revision, nobody rejoins") {
    const std::size_t kills = from_environment("PCCL_MASTER_KILLS", 20);
    const std::uint64_t first = first_seed();
    Total total;
    for (std::uint64_t seed = first; total.kills < kills; ++seed) {
        INFO("replay: PCCL_KILL_SEED=" << seed
                                       << " PCCL_MASTER_KILLS=" << std::min(kills_per_run, kills - total.kills));
        play(seed, std::min(kills_per_run, kills - total.kills), total);
    }
    std::printf("%zu kills, %zu turns, %zu retried rounds\n", total.kills, total.turns, total.retried);
}
