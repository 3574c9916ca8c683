// The example many_tensors among peers that are killed and started: the surviving peers end with the same weights.
#include "process.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace integration;

TEST_CASE("many_tensors goes on when a peer is killed and another one comes") {
    const MasterProcess master;
    const auto start = [&] {
        return std::make_unique<Process>(
            std::vector<std::string>{PCCL_TEST_MANY_TENSORS, "127.0.0.1", std::to_string(master.port()), "60"});
    };
    std::map<std::string, std::string> hashes;  // by step
    // Reads until the output ends or until this step.
    const auto follow = [&](Process& peer, int last) {
        while (const auto line = peer.read_line()) {
            const std::vector<std::string> parts = words(*line);  // step N world W hash H
            REQUIRE(parts.size() == 6);
            INFO(*line);
            const auto [known, is_new] = hashes.emplace(parts[1], parts[5]);
            CHECK(known->second == parts[5]);
            if (std::stoi(parts[1]) >= last) return;
        }
    };
    std::vector<std::unique_ptr<Process>> peers;
    for (int i = 0; i < 3; ++i) peers.push_back(start());
    follow(*peers[0], 5);
    peers[1]->signal(SIGKILL);
    peers[1]->wait();
    peers[1] = start();
    follow(*peers[0], 20);
    peers[2]->signal(SIGKILL);
    peers[2]->wait();
    peers.pop_back();
    for (const auto& peer : peers) {
        follow(*peer, 1000);
        CHECK(peer->wait() == 0);
    }
    CHECK(hashes.count("60") == 1);
}
