// The programs of examples/ as a user would run them. Peers are killed and replaced while the master lives.
//
// All programs print one line per step, "<word> N, W peers, CONTENT". Peers that print step N of the same shard must
// print the same CONTENT, whenever they joined and whichever peers died: only then is it one training run.
#include "process.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace integration;

namespace {

struct Example {
    const char* program;
    int shards = 1;                    // peers are spread over so many groups
    bool goes_on_short_handed = true;  // otherwise it waits for a replacement
    std::size_t peers = 3;
};

class Churn {
public:
    Churn(const Example& example, const char* steps) : example_(example), steps_(steps) {}

    void start(int shard) {
        std::vector<std::string> command{std::string(PCCL_TEST_PROGRAMS) + "/" + example_.program,
                                         "127.0.0.1:" + std::to_string(master_.port()), steps_};
        if (example_.shards > 1) {
            command.push_back(std::to_string(shard));
            command.push_back(std::to_string(example_.shards));
        }
        peers_.push_back(std::make_unique<Peer>());
        peers_.back()->process = std::make_unique<Process>(command);
        peers_.back()->shard = shard;
    }

    // Kills a peer. Returns its shard, for the peer that replaces it.
    int kill(std::size_t index) {
        const int shard = peers_.at(index)->shard;
        peers_.at(index)->process->signal(SIGKILL);
        CHECK(peers_.at(index)->process->wait() == -SIGKILL);
        drain(*peers_[index]);
        peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(index));
        return shard;
    }

    // Waits until every peer has ended `turns` steps among `world` peers from now on. Reads all peers all the time: a
    // peer that cannot write makes the others wait.
    void await_steps(std::size_t world, int turns) {
        for (const auto& peer : peers_) peer->steps_in_this_world = 0;
        const auto deadline = std::chrono::steady_clock::now() + hang_guard;
        for (bool all = false; !all;) {
            all = true;
            for (const auto& peer : peers_) {
                read_some(*peer, world);
                all = all && peer->steps_in_this_world >= turns;
            }
            if (!all && std::chrono::steady_clock::now() > deadline) {
                std::string logs;
                for (const auto& peer : peers_) logs += "last line: " + peer->last + "\n" + peer->process->log_text();
                FAIL(example_.program << ": no " << turns << " steps among " << world << " peers\n" << logs);
            }
        }
    }

    void await_end() {
        for (const auto& peer : peers_) {
            drain(*peer);
            INFO(example_.program << ", last line: " << peer->last << "\n" << peer->process->log_text());
            CHECK(peer->process->wait() == 0);
            CHECK_FALSE(peer->last.empty());
        }
    }

private:
    struct Peer {
        std::unique_ptr<Process> process;
        int shard = 0;
        int steps_in_this_world = 0;
        std::string last;
    };

    void read_some(Peer& peer, std::size_t world) {
        for (int i = 0; i < 50; ++i) {
            const auto line = peer.process->poll_line(std::chrono::milliseconds(i == 0 ? 5 : 0));
            if (!line) return;
            if (note(peer, *line) == world) ++peer.steps_in_this_world;
        }
    }

    void drain(Peer& peer) {
        while (const auto line = peer.process->read_line()) note(peer, *line);
    }

    // Checks a line. Returns the world that it names.
    std::size_t note(Peer& peer, const std::string& line) {
        peer.last = line;
        const std::vector<std::string> list = words(line);
        REQUIRE(list.size() >= 5);
        REQUIRE(list[3] == "peers,");
        const std::string content = line.substr(line.find("peers,"));
        const auto [at, is_new] = contents_.try_emplace({peer.shard, std::stoull(list[1])}, content);
        INFO(example_.program << ": " << line);
        if (at->second != content) CHECK(at->second == content);
        const std::size_t world = std::stoul(list[2]);
        if (world % static_cast<std::size_t>(example_.shards) != 0) FAIL_CHECK("a step in a grid that is not full");
        return world;
    }

    const Example example_;
    const std::string steps_;
    MasterProcess master_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::map<std::pair<int, unsigned long long>, std::string> contents_;
};

constexpr Example examples[] = {
    {"basic_loop"}, {"pending_pump"}, {"diloco"}, {"async_diloco"}, {"gather_pieces"}, {"sharded_grid", 2, false, 4},
};

}  // namespace

TEST_CASE("each example goes on, with one content per step, while peers are killed and replaced") {
    for (const Example& example : examples) {
        Churn run(example, "100000000");
        for (std::size_t i = 0; i < example.peers; ++i) run.start(static_cast<int>(i) % example.shards);
        run.await_steps(example.peers, 5);
        // The oldest, the youngest, one in the middle; then all except one of the rest.
        for (const std::size_t victim : {std::size_t{0}, example.peers - 1, std::size_t{1}}) {
            const int shard = run.kill(victim);
            if (example.goes_on_short_handed) run.await_steps(example.peers - 1, 5);
            run.start(shard);
            run.await_steps(example.peers, 5);
        }
        if (example.goes_on_short_handed) {
            for (std::size_t left = example.peers; left > 1; --left) run.kill(0);
            for (std::size_t i = 1; i < example.peers; ++i) run.start(0);
            run.await_steps(example.peers, 5);
        }
    }
}

TEST_CASE("each example comes to its end when nobody disturbs it") {
    for (const Example& example : examples) {
        Churn run(example, "30");
        for (int i = 0; i < 2 * example.shards; ++i) run.start(i % example.shards);
        run.await_end();
    }
}
