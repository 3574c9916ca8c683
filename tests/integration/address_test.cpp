// How peers and the master reach each other: IPv6, both families at one listener, ports, and hosts that see each other
// under different addresses.
#include "cluster.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace integration;

namespace {

// A listener of the test itself, on all addresses.
class HeldPort {
public:
    HeldPort() {
        socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        socklen_t length = sizeof address;
        REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(listen(socket_, 1) == 0);
        REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
        port_ = ntohs(address.sin_port);
    }
    ~HeldPort() { close(socket_); }
    HeldPort(const HeldPort&) = delete;
    unsigned port() const { return port_; }

private:
    int socket_ = -1;
    unsigned port_ = 0;
};

bool has_ipv6() {
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool works = probe >= 0 && bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    if (probe >= 0) close(probe);
    if (!works) WARN("skipped: this host has no IPv6");
    return works;
}

std::uint16_t port_of(Process& master) {
    const std::string line = master.expect_line();
    REQUIRE(line.rfind("listening on ", 0) == 0);
    return static_cast<std::uint16_t>(std::stoul(line.substr(line.rfind(':') + 1)));
}

int create(Process& peer, std::uint16_t port, const std::string& host) {
    peer.send("create " + std::to_string(port) + " 0 " + host);
    return std::stoi(words(peer.expect_line()).at(1));
}

int result_of(Process& peer) { return std::stoi(words(peer.expect_line()).at(1)); }

int connect(Process& peer) {
    peer.send("connect");
    return result_of(peer);
}

// `newcomer` connects, and `member` votes until it is admitted.
void admit(Process& member, Process& newcomer) {
    newcomer.send("connect");
    for (bool pending = false; !pending;) {
        member.send("pending");
        const auto list = words(member.expect_line());
        REQUIRE(list.at(1) == "0");
        pending = list.at(2) == "1";
    }
    member.send("update");
    CHECK(result_of(member) == success);
    CHECK(result_of(newcomer) == success);
}

void reduce_together(Process& first, Process& second) {
    const std::vector<std::uint64_t> seeds{5, 6};
    first.send("reduce " + reduce_arguments(10, 0, 100'000, 1, "in", seeds, 0));
    second.send("reduce " + reduce_arguments(10, 0, 100'000, 1, "in", seeds, 1));
    for (Process* peer : {&first, &second}) {
        const auto list = words(peer->expect_line());
        INFO(peer->log_text());
        CHECK(list.at(1) == "0");
        CHECK(list.at(2) == "2");
        CHECK(list.at(5) == "1");
    }
}

// Two hosts with a cable between them, as network namespaces: 10.77.0.1 and fd77::1 on one side, .2 and ::2 on the
// other.
class TwoHosts {
public:
    TwoHosts() {
        const std::string suffix = std::to_string(getpid());
        names_ = {"pccl-a-" + suffix, "pccl-b-" + suffix};
        works_ = geteuid() == 0 && shell("ip netns add " + names_[0]) && shell("ip netns add " + names_[1]) &&
                 shell("ip link add va type veth peer name vb netns " + names_[1], 0) && address(0, "va") &&
                 address(1, "vb");
        if (!works_) WARN("skipped: network namespaces need root and iproute2");
    }
    ~TwoHosts() {
        for (const std::string& name : names_) (void)shell("ip netns delete " + name);
    }
    TwoHosts(const TwoHosts&) = delete;
    bool work() const { return works_; }
    std::unique_ptr<Process> start(std::size_t host, const std::string& command,
                                   const Environment& environment = {}) const {
        return std::make_unique<Process>(
            std::vector<std::string>{"/bin/sh", "-c", path + "exec ip netns exec " + names_[host] + " " + command},
            environment);
    }

private:
    static bool shell(const std::string& command) {
        Process process({"/bin/sh", "-c", path + "exec " + command});
        return process.wait() == 0;
    }
    bool shell(const std::string& command, std::size_t host) const {
        return shell("ip netns exec " + names_[host] + " " + command);
    }
    bool address(std::size_t host, const std::string& device) const {
        const std::string end = std::to_string(host + 1);
        return shell("ip link set lo up", host) && shell("ip link set " + device + " up", host) &&
               shell("ip addr add 10.77.0." + end + "/24 dev " + device, host) &&
               shell("ip addr add fd77::" + end + "/64 nodad dev " + device, host);
    }
    inline static const std::string path = "PATH=$PATH:/usr/sbin:/sbin; ";
    std::vector<std::string> names_;
    bool works_ = false;
};

}  // namespace

TEST_CASE("master and peers on IPv6") {
    if (!has_ipv6()) return;
    Process master({PCCL_TEST_MASTER, "--listen", "[::1]:0"});
    const std::uint16_t port = port_of(master);
    Process first({PCCL_TEST_PEER}), second({PCCL_TEST_PEER}, {{"PCCL_BIND_ADDRESS", "::1"}});
    REQUIRE(create(first, port, "::1") == success);
    REQUIRE(create(second, port, "::1") == success);
    REQUIRE(connect(first) == success);
    admit(first, second);
    reduce_together(first, second);
}

TEST_CASE("peers of both families meet at one listener") {
    if (!has_ipv6()) return;
    Process master({PCCL_TEST_MASTER, "--insecure", "--listen", "[::]:0"});
    const std::uint16_t port = port_of(master);
    Process first({PCCL_TEST_PEER}), second({PCCL_TEST_PEER});
    REQUIRE(create(first, port, "127.0.0.1") == success);
    REQUIRE(create(second, port, "::1") == success);
    REQUIRE(connect(first) == success);
    admit(first, second);
    reduce_together(first, second);
}

TEST_CASE("addresses at which no master can be are refused when the communicator is made") {
    const auto refused = [](const std::string& host, std::uint16_t port, const std::string& why) {
        Process peer({PCCL_TEST_PEER});
        INFO(host);
        CHECK(create(peer, port, host) == invalid_argument);
        CHECK(peer.says(why));
    };
    refused("0.0.0.0", 48148, "wildcard");
    refused("::", 48148, "wildcard");
    refused("224.0.0.1", 48148, "multicast");
    refused("ff02::1", 48148, "multicast");
    refused("fe80::1", 48148, "link-local");
    refused("255.255.255.255", 48148, "broadcast");
    refused("127.0.0.1", 0, "port 0");
}

TEST_CASE("the first free port of the range is taken; when there is none, the message says what to change") {
    MasterProcess master;
    HeldPort held;
    const std::string from = std::to_string(held.port());
    {
        ScriptPeer peer(master.port(), 0, {{"PCCL_PORT_RANGE", from}});
        CHECK(peer.ask("connect").result == master_connection_failed);
        CHECK(peer.says("PCCL_PORT_RANGE"));
    }
    ScriptPeer peer(master.port(), 0, {{"PCCL_PORT_RANGE", from + "-" + std::to_string(held.port() + 50)}});
    CHECK(peer.ask("connect").result == success);
    const std::vector<std::uint16_t> ports = peer.listening_ports();
    REQUIRE(ports.size() == 1);
    CHECK((ports[0] > held.port() && ports[0] <= held.port() + 50));
}

TEST_CASE("an address that this host does not have is named") {
    MasterProcess master;
    ScriptPeer peer(master.port(), 0, {{"PCCL_BIND_ADDRESS", "192.0.2.1"}});
    CHECK(peer.ask("connect").result == master_connection_failed);
    CHECK(peer.says("192.0.2.1"));
    CHECK(peer.says("does not have that address"));
}

TEST_CASE("an advertised address that nobody can reach is named, and the default is taken") {
    MasterProcess master;
    ScriptPeer peer(master.port(), 0, {{"PCCL_ADVERTISE_ADDRESS", "0.0.0.0"}});
    CHECK(peer.says("PCCL_ADVERTISE_ADDRESS=0.0.0.0 cannot be used (it is the wildcard"));
    CHECK(peer.ask("connect").result == success);
}

TEST_CASE("two hosts: a peer on the master's own host needs an address that the other host can reach") {
    const TwoHosts hosts;
    if (!hosts.work()) return;
    const auto master = hosts.start(0, std::string(PCCL_TEST_MASTER) + " --listen [::]:0");
    const std::uint16_t port = port_of(*master);
    {
        const auto local = hosts.start(0, PCCL_TEST_PEER);
        const auto remote = hosts.start(1, PCCL_TEST_PEER);
        REQUIRE(create(*local, port, "127.0.0.1") == success);
        REQUIRE(create(*remote, port, "10.77.0.1") == success);
        REQUIRE(connect(*local) == success);
        CHECK(connect(*remote) == master_connection_failed);
        INFO(remote->log_text());
        CHECK(remote->says("PCCL_ADVERTISE_ADDRESS"));
        local->send("destroy");
        CHECK(result_of(*local) == success);
    }
    // With it both can join, also if one uses IPv4 and the other one IPv6.
    const auto local = hosts.start(0, PCCL_TEST_PEER, {{"PCCL_ADVERTISE_ADDRESS", "[fd77::1]"}});
    const auto remote = hosts.start(1, PCCL_TEST_PEER);
    REQUIRE(create(*local, port, "127.0.0.1") == success);
    REQUIRE(create(*remote, port, "fd77::1") == success);
    REQUIRE(connect(*local) == success);
    admit(*local, *remote);
    reduce_together(*local, *remote);
    // A third peer, again on the master's host and without that address, gets the reason itself.
    const auto third = hosts.start(0, PCCL_TEST_PEER);
    REQUIRE(create(*third, port, "127.0.0.1") == success);
    CHECK(connect(*third) == master_connection_failed);
    CHECK(third->says("loopback address"));
    CHECK(third->says("set PCCL_ADVERTISE_ADDRESS"));
}
