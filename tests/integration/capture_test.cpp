// What goes over the network is captured by tcpdump, in a network namespace of this process, and searched for what was
// sent: 64 bytes of the tensors, names, and the secret of an invitation. The same run without TLS shows that the search
// finds what is there.
#include "net-real/tls/invitation.hpp"
#include "secure_run.hpp"
#include "values.h"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <net/if.h>
#include <sched.h>
#include <string_view>
#include <sys/ioctl.h>
#include <thread>

using namespace integration;

namespace {

constexpr std::size_t elements = 200'000;  // 800 kB
constexpr std::size_t marker_bytes = 64;
constexpr std::size_t markers_of_a_tensor = 100;  // one may lie in two packets
const std::string state_name = "name-of-the-optimizer-state";

// Gives this process a network of its own, with a loopback that no other process uses. False: it may not.
bool enter_own_network() {
    if (::unshare(CLONE_NEWNET) != 0) return false;
    const harness::Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::snprintf(request.ifr_name, sizeof request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(any.number(), SIOCSIFFLAGS, &request) == 0;
}

class Capture {
public:
    explicit Capture(const std::string& folder)
        : path_(folder + "/capture.pcap"),
          tcpdump_({"/bin/sh", "-c",
                    "PATH=$PATH:/usr/sbin:/sbin; exec tcpdump -i lo -U -s 0 -B 65536 --immediate-mode -Z root -w " +
                        path_}) {
        works_ = tcpdump_.says("listening on") && std::filesystem::exists(path_);
    }
    bool works() const { return works_; }
    // All that was sent so far. The kernel gives tcpdump the packets in their order, so an own one marks the end.
    std::string bytes() {
        const std::string end = "the end of this capture, and 64 bytes that no other packet has: " + path_;
        const harness::Descriptor sender(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(9);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::sendto(sender.number(), end.data(), end.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                         sizeof to) == static_cast<ssize_t>(end.size()));
        std::string all;
        const auto give_up = std::chrono::steady_clock::now() + hang_guard;
        do {
            std::ifstream file(path_, std::ios::binary);
            all.assign(std::istreambuf_iterator<char>(file), {});
            if (all.find(end) != std::string::npos) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        } while (std::chrono::steady_clock::now() < give_up);
        REQUIRE(all.find(end) != std::string::npos);
        tcpdump_.signal(SIGINT);
        tcpdump_.wait();
        CHECK(tcpdump_.log_text().find("\n0 packets dropped by kernel") != std::string::npos);
        return all;
    }

private:
    std::string path_;
    Process tcpdump_;
    bool works_ = false;
};

// Pieces of the tensor that a peer with this seed contributes; of the sum, if there are several seeds.
std::vector<std::string> markers_of(const std::vector<std::uint64_t>& seeds) {
    std::vector<float> sum(elements), one(elements);
    for (const std::uint64_t seed : seeds) {
        value_fill(one.data(), pcclFloat, elements, seed);
        for (std::size_t i = 0; i < elements; ++i) sum[i] += one[i];
    }
    std::vector<std::string> markers;
    const char* const bytes = reinterpret_cast<const char*>(sum.data());
    for (std::size_t i = 0; i < markers_of_a_tensor; ++i)
        markers.emplace_back(bytes + i * (elements * sizeof(float) / markers_of_a_tensor), marker_bytes);
    return markers;
}

struct Seen {
    std::size_t bytes = 0, tensors = 0, names = 0, secrets = 0;
};

std::size_t count_of(const std::string& all, const std::vector<std::string>& wanted) {
    std::size_t count = 0;
    for (const std::string& one : wanted) {
        for (std::size_t at = all.find(one); at != std::string::npos; at = all.find(one, at + 1)) ++count;
    }
    return count;
}

// Two peers join, reduce and synchronise while the network is captured.
Seen look(Cluster& cluster, Capture& capture, const std::vector<std::string>& names,
          const std::vector<std::string>& secrets) {
    const std::vector<std::uint64_t> seeds{50, 51};
    for (std::size_t i = 0; i < 2; ++i)
        cluster[i].send("reduce " + reduce_arguments(pcclFloat, pcclSum, elements, 7, "out", seeds, i));
    for (std::size_t i = 0; i < 2; ++i) {
        const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
        CHECK(answer.result == success);
        CHECK(answer.matches);
    }
    // The second one gets the state of the first.
    for (std::size_t i = 0; i < 2; ++i)
        cluster[i].send("sync 1 " + std::string(i == 0 ? "send " : "receive ") + state_name + ":10:" +
                        std::to_string(elements) + ":" + std::to_string(60 + i));
    for (std::size_t i = 0; i < 2; ++i) CHECK(cluster[i].answer("sync").result == success);
    // Names are sent only to find out whose differ.
    for (std::size_t i = 0; i < 2; ++i) cluster[i].send("sync 2 " + state_name + (i == 0 ? ":10:4:1" : "-two:10:4:1"));
    int refused = 0;
    for (std::size_t i = 0; i < 2; ++i) refused += cluster[i].answer("sync").result == success ? 0 : 1;
    CHECK(refused > 0);
    const std::string all = capture.bytes();
    std::vector<std::string> tensors;
    for (const auto& from : {std::vector<std::uint64_t>{50}, {51}, {50, 51}, {60}}) {
        const std::vector<std::string> more = markers_of(from);
        tensors.insert(tensors.end(), more.begin(), more.end());
    }
    return {all.size(), count_of(all, tensors), count_of(all, names), count_of(all, secrets)};
}

// Nothing: it is skipped.
std::optional<Seen> look_at_run(bool secure) {
    if (!enter_own_network()) {
        WARN("skipped: a network of its own needs root");
        return std::nullopt;
    }
    const StateDirectory folder;
    Capture capture(folder.path());
    if (!capture.works()) {
        WARN("skipped: tcpdump is missing, or may not capture");
        return std::nullopt;
    }
    const Environment variables{{"PCCL_SHARED_MEMORY", "0"}};
    if (!secure) {
        Cluster cluster(2, variables);
        return look(cluster, capture, {state_name}, {});
    }
    SecureRun run(0, variables);
    std::vector<std::string> secrets;
    for (const char* name : {"alice", "bob"}) {
        const std::string invite = run.invite({"--name", std::string(name) + "-who-was-invited"});
        pccl::real::tls::Invitation read;
        std::string why;
        REQUIRE(pccl::real::tls::parse_invitation(invite, read, why));
        secrets.push_back(pccl::real::tls::to_hex(read.secret));
        secrets.emplace_back(read.secret.begin(), read.secret.end());
        run.cluster.admit(0, {{"PCCL_INVITE", invite}});
    }
    return look(run.cluster, capture, {state_name, "-who-was-invited"}, secrets);
}

}  // namespace

TEST_CASE("a capture of a secure run holds no byte of tensors, names or secrets") {
    const auto seen = look_at_run(true);
    if (!seen) return;
    CHECK(seen->bytes > 3 * elements * sizeof(float));  // what was sent is there
    CHECK(seen->tensors == 0);
    CHECK(seen->names == 0);
    CHECK(seen->secrets == 0);
}

TEST_CASE("a capture of the same run without TLS holds tensors and names") {
    const auto seen = look_at_run(false);
    if (!seen) return;
    CHECK(seen->tensors > 100);
    CHECK(seen->names > 0);
}
