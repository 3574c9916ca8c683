// The kill tests of the collectives, with real processes (collectives_peer.cpp checks the buffers). Each round is one
// collective in which one process gets SIGKILL, at a byte or a moment that a seed draws:
// - a member: the others must have the same outcome of each try, with their inputs back after a failure, and go on;
// - the master, which is started again on its state directory: nobody is removed, and each collective ends with
//   success.
//
// A member that talks TCP, and the master, die at a byte (dying.h): that does not depend on the speed of the machine. A
// member that hands its data over in shared memory dies at a moment of the time that the same collective took before.
//
// PCCL_KILL_ROUNDS: kills of members for each kind (4). PCCL_MASTER_KILLS: kills of the master for each kind (3).
// PCCL_KILL_SEED: the first seed. Each round is drawn from a seed that it prints; PCCL_KILL_SEED=<that>
// PCCL_KILL_ROUNDS=1 draws it again. What other threads and processes do meanwhile still depends on the machine.
#include "kill_draws.hpp"
#include "process.hpp"
#include "state_directory.hpp"

#include "core/base/random.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using namespace integration;

namespace {

using pccl::core::Random;

// Elements of 8 bytes. The least number ends with its start: its bytes are in the votes.
std::size_t draw_count(Random& random) {
    static constexpr std::size_t counts[] = {200, 20'000, 50'000, 150'000, 500'000};
    return counts[random.below(5)];
}

class Peers {
public:
    Peers(std::uint16_t port, std::size_t count, const Environment& environment) {
        for (std::size_t i = 0; i < count; ++i) {
            peers_.push_back(std::make_unique<Process>(
                std::vector<std::string>{PCCL_TEST_COLLECTIVES_PEER, std::to_string(port), std::to_string(i),
                                         std::to_string(count)},
                environment));
        }
    }
    Process& operator[](std::size_t index) { return *peers_.at(index); }
    std::size_t size() const { return peers_.size(); }
    std::string logs() const {
        std::string text;
        for (const auto& peer : peers_) text += "---- peer\n" + peer->log_text();
        return text;
    }

private:
    std::vector<std::unique_ptr<Process>> peers_;
};

// What a peer says about one collective, up to "done". Checked, and without what may differ between members.
struct Outcome {
    std::vector<std::string> tries;  // "RESULT WORLD PIECES"
    std::string world;
    bool ended = false;

    // One more line. True: it was the last one.
    bool note(const std::string& line) {
        const std::vector<std::string> list = words(line);
        REQUIRE(list.size() >= 3);
        if (list[0] == "done") {
            world = list[2];
            ended = true;
        } else {
            REQUIRE(list[0] == "end");
            REQUIRE(list.size() >= 5);
            INFO(line);
            CHECK(list[4] == "1");
            const std::size_t name = line.find(' ', line.find(' ') + 1) + 1;
            tries.push_back(line.substr(line.find(' ', name) + 1));
        }
        return ended;
    }
    std::size_t failures() const { return tries.empty() ? 0 : tries.size() - 1; }
};

struct Total {
    std::size_t rounds = 0, failed = 0;  // failed: tries that the others had to make again
};

// One member dies in a collective; the others try again, and make another one.
void kill_member(const char* kind, std::uint64_t seed, Total& by_bytes, Total& by_moments) {
    Random random(seed);
    const std::size_t count = 3 + random.below(2), victim = random.below(count), root = random.below(count);
    const std::size_t elements = draw_count(random);
    const bool by_byte = random.below(2) == 0;
    // A little more than all of it: then it dies at the end.
    const double part = static_cast<double>(random.below(10'500)) / 10'000;
    char death[64];
    std::snprintf(death, sizeof death, "%s %.4f", by_byte ? "byte" : "moment", part);
    INFO("PCCL_KILL_SEED=" << seed << ": " << kind << " of " << elements << " elements, " << count
                           << " members, root " << root << ", victim " << victim << ", " << death);
    MasterProcess master;
    Peers peers(master.port(), count, {{"PCCL_SHARED_MEMORY", by_byte ? "0" : "1"}});
    for (std::size_t i = 0; i < count; ++i) REQUIRE(peers[i].expect_line() == "ready");
    // The first collective is slow. The one before the death gives the bytes and the time.
    constexpr int deadly = 2, steps = 4;
    for (int step = 0; step < steps; ++step) {
        const std::string command = std::string("run ") + kind + " " + std::to_string(elements) + " " +
                                    std::to_string(root) + " " + std::to_string(step);
        std::vector<Outcome> outcomes;
        for (std::size_t i = 0; i < count; ++i) {
            if (step <= deadly || i != victim)
                peers[i].send(step == deadly && i == victim ? command + " " + death : command);
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (step >= deadly && i == victim) continue;
            Outcome outcome;
            while (!outcome.note(peers[i].expect_line())) {
            }
            outcomes.push_back(outcome);
        }
        INFO("step " << step << "\n" << peers.logs());
        for (const Outcome& outcome : outcomes) CHECK(outcome.tries == outcomes.front().tries);
        // The deadly one may have come to its end before the death, with all members.
        if (step < deadly) CHECK(outcomes.front().failures() == 0);
        const std::string world = outcomes.front().world;
        CHECK((world == std::to_string(step < deadly ? count : count - 1) ||
               (step == deadly && world == std::to_string(count) && outcomes.front().failures() == 0)));
        if (step == deadly) (by_byte ? by_bytes : by_moments).failed += outcomes.front().failures();
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (i != victim) peers[i].send("quit");
        CHECK(peers[i].wait() == (i == victim ? -SIGKILL : 0));
    }
    master.signal(SIGTERM);
    CHECK(master.wait() == 0);
    ++(by_byte ? by_bytes : by_moments).rounds;
}

void kill_members(const char* kind) {
    const std::uint64_t rounds = from_environment("PCCL_KILL_ROUNDS", 4), first = first_seed();
    if (rounds == 0) return;
    std::printf("%s: a member dies, seeds from %llu\n", kind, static_cast<unsigned long long>(first));
    std::fflush(stdout);
    Total by_bytes, by_moments;
    for (std::uint64_t round = 0; round < rounds; ++round) kill_member(kind, first + round, by_bytes, by_moments);
    std::printf("%s: %zu members killed at a byte (%zu failed tries), %zu at a moment (%zu)\n", kind, by_bytes.rounds,
                by_bytes.failed, by_moments.rounds, by_moments.failed);
}

constexpr const char* patience_ms = "300000";

// A master on a state directory, with many lives: each ends at a byte that is drawn, and the next one begins at once.
class DyingMaster {
public:
    DyingMaster(Random& random, std::size_t deaths) : random_(random), deaths_left_(deaths) {
        auto first = std::make_unique<MasterProcess>(environment());
        port_ = first->port();
        process_ = std::move(first);
    }
    std::uint16_t port() const { return port_; }
    Process& process() { return *process_; }
    std::size_t deaths_left() const { return deaths_left_; }
    std::string logs() const { return logs_ + process_->log_text(); }

    // Starts the first life that ends by itself.
    void begin_to_die() {
        process_->signal(SIGKILL);
        process_->wait();
        start_again();
    }
    // If it has died: starts it again. The last life does not end by itself.
    bool look() {
        if (!process_->has_ended()) return false;
        INFO(logs());
        REQUIRE(process_->wait() == -SIGKILL);
        --deaths_left_;
        start_again();
        return true;
    }

private:
    // On a slow machine, lives that end at once take long together.
    Environment environment() const {
        Environment environment = directory_.environment();
        environment["PCCL_MASTER_TIMEOUT_MS"] = patience_ms;
        return environment;
    }
    void start_again() {
        logs_ += "---- life of a master: " + life_ + "\n" + process_->log_text();
        CHECK(process_->log_text().find("removed") == std::string::npos);
        Environment environment = this->environment();
        life_ = "without an end";
        if (deaths_left_ > 0) {
            // From the first byte after its start to some collectives later. A transaction writes whole pages.
            const bool in_journal = random_.below(3) == 0;
            const std::uint64_t bytes = 1 + random_.below(in_journal ? 200'000 : random_.below(4) == 0 ? 600 : 8'000);
            environment["LD_PRELOAD"] = PCCL_TEST_DYING;
            environment["ASAN_OPTIONS"] = "verify_asan_link_order=0";
            environment[in_journal ? "PCCL_TEST_DIE_AFTER_JOURNAL_BYTES" : "PCCL_TEST_DIE_AFTER_BYTES"] =
                std::to_string(bytes);
            life_ = std::to_string(bytes) + (in_journal ? " bytes of the journal" : " bytes of messages");
        }
        process_ = std::make_unique<Process>(
            std::vector<std::string>{PCCL_TEST_MASTER, "--listen", "127.0.0.1:" + std::to_string(port_)}, environment);
    }

    Random& random_;
    std::size_t deaths_left_;
    StateDirectory directory_;
    std::unique_ptr<Process> process_;
    std::uint16_t port_ = 0;
    std::string life_ = "the first", logs_;
};

// Sends `command` to all peers and waits for the ends of all, while the master dies and starts again.
void play_step(Peers& peers, DyingMaster& master, const std::string& command, Total& total) {
    std::vector<Outcome> outcomes(peers.size());
    for (std::size_t i = 0; i < peers.size(); ++i) peers[i].send(command);
    auto deadline = std::chrono::steady_clock::now() + hang_guard;
    for (bool all = false; !all;) {
        bool moved = master.look();
        all = true;
        for (std::size_t i = 0; i < peers.size(); ++i) {
            if (outcomes[i].ended) continue;
            if (const auto line = peers[i].poll_line(std::chrono::milliseconds(1))) {
                outcomes[i].note(*line);
                moved = true;
            } else if (peers[i].has_ended()) {
                FAIL(command << ": a peer has ended\n" << peers.logs() << master.logs());
            }
            all = all && outcomes[i].ended;
        }
        const auto now = std::chrono::steady_clock::now();
        if (moved) deadline = now + hang_guard;
        if (now > deadline) FAIL(command << " hangs\n" << peers.logs() << master.logs());
    }
    INFO(command << "\n" << peers.logs() << master.logs());
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.world == std::to_string(peers.size()));
        CHECK(outcome.tries == outcomes.front().tries);
    }
    ++total.rounds;
    total.failed += outcomes.front().failures();
}

void kill_masters(const char* kind) {
    const std::uint64_t deaths = from_environment("PCCL_MASTER_KILLS", 3), seed = first_seed();
    if (deaths == 0) return;
    std::printf("%s: the master dies, seed %llu\n", kind, static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    INFO("PCCL_KILL_SEED=" << seed << " PCCL_MASTER_KILLS=" << deaths << ": " << kind);
    Random random(seed);
    DyingMaster master(random, deaths);
    const std::size_t count = 2 + random.below(3);
    Peers peers(master.port(), count,
                {{"PCCL_SHARED_MEMORY", random.below(2) == 0 ? "0" : "1"}, {"PCCL_MASTER_TIMEOUT_MS", patience_ms}});
    for (std::size_t i = 0; i < count; ++i) REQUIRE(peers[i].expect_line() == "ready");
    master.begin_to_die();
    Total total;
    for (int step = 0, undisturbed = 0; undisturbed < 2; ++step) {
        REQUIRE(step < 100'000);  // or the master does not count its bytes
        if (master.deaths_left() == 0) ++undisturbed;
        play_step(peers, master,
                  std::string("run ") + kind + " " + std::to_string(draw_count(random)) + " " +
                      std::to_string(random.below(count)) + " " + std::to_string(step),
                  total);
    }
    for (std::size_t i = 0; i < count; ++i) {
        peers[i].send("quit");
        CHECK(peers[i].wait() == 0);
    }
    master.process().signal(SIGTERM);
    CHECK(master.process().wait() == 0);
    std::printf("%s: %llu masters killed during %zu collectives, with %zu failed tries\n", kind,
                static_cast<unsigned long long>(deaths), total.rounds, total.failed);
}

}  // namespace

TEST_CASE("a member dies in an all-reduce") { kill_members("all_reduce"); }
TEST_CASE("a member dies in an all-gather") { kill_members("all_gather"); }
TEST_CASE("a member dies in a broadcast") { kill_members("broadcast"); }
TEST_CASE("a member dies in a reduce-scatter") { kill_members("reduce_scatter"); }
TEST_CASE("a member dies in a reduce") { kill_members("reduce"); }
TEST_CASE("a member dies in a gather") { kill_members("gather"); }
TEST_CASE("a member dies in a scatter") { kill_members("scatter"); }
TEST_CASE("a member dies in an all-to-all") { kill_members("all_to_all"); }
TEST_CASE("a member dies in a barrier") { kill_members("barrier"); }

TEST_CASE("the master dies in an all-reduce") { kill_masters("all_reduce"); }
TEST_CASE("the master dies in an all-gather") { kill_masters("all_gather"); }
TEST_CASE("the master dies in a broadcast") { kill_masters("broadcast"); }
TEST_CASE("the master dies in a reduce-scatter") { kill_masters("reduce_scatter"); }
TEST_CASE("the master dies in a reduce") { kill_masters("reduce"); }
TEST_CASE("the master dies in a gather") { kill_masters("gather"); }
TEST_CASE("the master dies in a scatter") { kill_masters("scatter"); }
TEST_CASE("the master dies in an all-to-all") { kill_masters("all_to_all"); }
TEST_CASE("the master dies in a barrier") { kill_masters("barrier"); }
