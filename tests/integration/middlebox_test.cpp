// All-reduce across a middlebox that lets a connection come up and then drops or rejects packets, by length or by
// content. The middlebox is nftables in a network namespace of this test; it disappears with the last process in it.
#include "cluster.hpp"

#include "core/wire/frame.hpp"

#include <catch2/catch.hpp>

#include <cstdio>

#include <sched.h>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;
constexpr std::size_t count = 200'000;

bool shell(const std::string& command) {
    Process process({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; exec " + command});
    return process.wait() == 0;
}

// Peers at 127.0.1.1, 127.0.1.2 and so on, in a network of their own.
class Middlebox {
public:
    // From now on this process and all that it starts live in the new network.
    Middlebox() {
        works_ = unshare(CLONE_NEWNET) == 0 && shell("ip link set lo up") && shell("nft add table inet box") &&
                 shell("nft add chain inet box in '{ type filter hook input priority 0; }'");
        if (!works_) WARN("skipped: packet filters need root, iproute2 and nftables");
    }
    bool works() const { return works_; }
    // Applies `fate` to what `from` sends to `to`, if it matches.
    void rule(std::size_t from, std::size_t to, const std::string& match, const std::string& fate) {
        REQUIRE(shell("nft 'add rule inet box in ip saddr " + address(from) + " ip daddr " + address(to) + " " + match +
                      " counter " + fate + "'"));
    }
    static std::string address(std::size_t peer) { return "127.0.1." + std::to_string(peer + 1); }

private:
    bool works_ = false;
};

std::vector<ReduceAnswer> reduce_on_all(Cluster& cluster, std::uint64_t tag) {
    const std::vector<std::uint64_t> seeds{3, 5, 8};
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, count, tag, "in", seeds, i));
    }
    std::vector<ReduceAnswer> answers;
    for (std::size_t i = 0; i < cluster.size(); ++i) answers.push_back(as_reduce(cluster[i].answer("reduce")));
    return answers;
}

// Three members in the order of their admission: the first one sends to the second one. `spoil` makes that edge lose
// data. The call fails for all and leaves their inputs unchanged, the master names the edge, and the next call uses
// another ring.
template <class Spoil>
void loses_and_is_led_around(const Spoil& spoil) {
    // The middlebox sees only what goes over the network.
    const Environment patience{{"PCCL_PEER_TIMEOUT_MS", "2000"}, {"PCCL_SHARED_MEMORY", "0"}};
    Cluster cluster(0, patience);
    for (std::size_t i = 0; i < 3; ++i) cluster.admit(0, {{"PCCL_BIND_ADDRESS", Middlebox::address(i)}});
    for (const ReduceAnswer& answer : reduce_on_all(cluster, 1)) {
        REQUIRE(answer.result == success);
        CHECK(answer.matches);
    }
    spoil();
    for (const ReduceAnswer& answer : reduce_on_all(cluster, 2)) {
        CHECK(answer.result == rank_connection_lost);
        CHECK(answer.intact);
    }
    CHECK(cluster.master().says("the ring of group 0 was led around"));
    for (const ReduceAnswer& answer : reduce_on_all(cluster, 3)) {
        CHECK(answer.result == success);
        CHECK(answer.world == 3);
        CHECK(answer.matches);
    }
    INFO(cluster.master().log_text());
    CHECK(cluster.master().log_text().find("removed") == std::string::npos);
}

}  // namespace

TEST_CASE("a path that drops long packets in one direction is named, and the ring is led around it") {
    Middlebox box;
    if (!box.works()) return;
    loses_and_is_led_around([&] { box.rule(0, 1, "meta length > 1000", "drop"); });
}

TEST_CASE("a firewall that resets connections at a pattern is named, and the ring is led around it") {
    Middlebox box;
    if (!box.works()) return;
    loses_and_is_led_around([&] {
        // The first bytes of a frame with a slice, after a TCP header without options or with time stamps.
        const auto frame = pccl::core::wire::encode_bulk({});
        char pattern[16];
        std::snprintf(pattern, sizeof pattern, "0x%02x%02x%02x%02x", frame[0], frame[1], frame[2], frame[3]);
        box.rule(0, 1, std::string("tcp doff 5 @th,160,32 ") + pattern, "reject with tcp reset");
        box.rule(0, 1, std::string("tcp doff 8 @th,256,32 ") + pattern, "reject with tcp reset");
    });
}
