// A secure run of real processes: its master, its invitations, and peers that used one.
#pragma once

#include "cluster.hpp"
#include "state_directory.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

namespace integration {

struct Done {
    int code = 0;
    std::vector<std::string> lines;
    std::string errors;
    std::string line(std::size_t index = 0) const { return index < lines.size() ? lines[index] : ""; }
};

inline Done run(const std::vector<std::string>& command) {
    Process process(command);
    Done done;
    while (const auto line = process.read_line()) done.lines.push_back(*line);
    done.code = process.wait();
    done.errors = process.log_text();
    return done;
}

class SecureRun {
public:
    // `variables` are for all peers and the master; `options` for the master, in addition to --secure.
    explicit SecureRun(std::size_t peers, const Environment& variables = {}, std::vector<std::string> options = {})
        : cluster(0, merged(directory.environment(), variables), with_secure(std::move(options))) {
        for (std::size_t i = 0; i < peers; ++i) cluster.admit(0, with_invite({"--name", "peer" + std::to_string(i)}));
    }
    Done master_command(std::vector<std::string> words) {
        words.insert(words.begin(), PCCL_TEST_MASTER);
        words.insert(words.end(), {"--state-dir", directory.path()});
        return run(words);
    }
    std::string invite(std::vector<std::string> words = {}) {
        words.insert(words.begin(), "invite");
        const Done done = master_command(words);
        INFO(done.errors);
        REQUIRE(done.code == 0);
        return done.line();
    }
    Environment with_invite(const std::vector<std::string>& words = {}) { return {{"PCCL_INVITE", invite(words)}}; }
    // What pcclConnect returns, and what the peer logs.
    std::pair<int, std::string> connect(const Environment& environment) {
        ScriptPeer peer(cluster.master().port(), 0, environment);
        const int result = peer.ask("connect").result;
        return {result, peer.log_text()};
    }
    // All members reduce; they must get the same bytes.
    void reduce(std::uint64_t tag) {
        std::vector<std::uint64_t> seeds;
        for (std::size_t i = 0; i < cluster.size(); ++i) seeds.push_back(50 + i);
        for (std::size_t i = 0; i < cluster.size(); ++i)
            cluster[i].send("reduce " + reduce_arguments(10, 0, 200'000, tag, "out", seeds, i));
        std::string hash;
        for (std::size_t i = 0; i < cluster.size(); ++i) {
            const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
            CHECK(answer.result == success);
            CHECK(answer.matches);
            CHECK((hash.empty() || hash == answer.hash));
            hash = answer.hash;
        }
    }

    StateDirectory directory;
    Cluster cluster;

private:
    static Environment merged(Environment a, const Environment& b) {
        a.insert(b.begin(), b.end());
        return a;
    }
    static std::vector<std::string> with_secure(std::vector<std::string> options) {
        options.emplace_back("--secure");
        return options;
    }
};

}  // namespace integration
