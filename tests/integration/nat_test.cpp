// Peers behind address translators of real kernels: two private networks, a router in front of each, and a public
// network with the master. Everything is in network namespaces of this process; they disappear with it.
#include "cluster.hpp"
#include "state_directory.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;
constexpr std::size_t count = 300'000;
constexpr int admitted_after = 60;  // votes

bool shell(const std::string& command) {
    Process process({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; " + command});
    const bool done = process.wait() == 0;
    if (!done) UNSCOPED_INFO(command << ": " << process.log_text());
    return done;
}

// What is in front of a host.
enum class Router {
    none,       // it is in the public network
    cone,       // keeps ports; lets in only what comes from an address and port that was dialled
    open,       // the same, and forwards the listener's port
    symmetric,  // another outer port for each connection
    mapping,    // the same, but it gives its host a port that it asks for by NAT-PMP (nat_pmp_router.cpp)
    pcp,        // the same with Debian's miniupnpd, and by PCP only
    nat_pmp,    // by NAT-PMP only
    upnp,       // by UPnP only
    shared,     // the router of the host before it
};

constexpr const char* miniupnpd = "/usr/sbin/miniupnpd";

bool has_miniupnpd(Router kind) { return kind == Router::pcp || kind == Router::nat_pmp || kind == Router::upnp; }

// 203.0.113.1: the master. Host i: 203.0.113.(21 + i), or 192.168.1.2 behind 203.0.113.(11 + i); the next hosts of the
// same router: 192.168.1.3 and so on. A router with miniupnpd also has 11.0.113.(11 + i), because miniupnpd gives no
// ports of addresses that are for examples.
class Internet {
public:
    Internet() {
        ::mkdir("/run/netns", 0755);
        works_ = ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                 ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 ::mount("none", "/run/netns", "tmpfs", 0, nullptr) == 0 &&
                 shell("ip link set lo up && ip link add public type bridge && ip link set public up && "
                       "ip addr add 203.0.113.1/24 dev public && nft list tables");
        if (!works_) WARN("skipped: network namespaces need root, iproute2 and nftables");
    }
    bool works() const { return works_; }

    // The name of the namespace with the host.
    std::string add(Router kind) {
        const std::string number = std::to_string(hosts_);
        const std::string host = "host" + number;
        if (kind != Router::shared) {
            router_ = "router" + number;
            inside_ = 0;
        }
        const std::string outer = "203.0.113." + std::to_string((kind == Router::none ? 21 : 11) + hosts_);
        ++hosts_;
        std::string steps = "set -e; ip netns add " + host + "; ip -n " + host + " link set lo up; ";
        if (kind == Router::none) {
            steps += wire(host, "wan" + number, outer);
        } else {
            if (kind != Router::shared) {
                steps += "ip netns add " + router_ + "; ip -n " + router_ + " link set lo up; " +
                         wire(router_, "wan" + number, outer) + "ip -n " + router_ + " link add lan type bridge; ip -n " +
                         router_ + " addr add 192.168.1.1/24 dev lan; ip -n " + router_ +
                         " link set lan up; ip netns exec " + router_ + " sysctl -qw net.ipv4.ip_forward=1; ";
            }
            const std::string port = "lan" + std::to_string(inside_);
            steps += "ip -n " + router_ + " link add " + port + " type veth peer name eth0 netns " + host + "; ip -n " +
                     router_ + " link set " + port + " master lan up; ip -n " + host + " addr add 192.168.1." +
                     std::to_string(2 + inside_++) + "/24 dev eth0; ip -n " + host + " link set eth0 up; ip -n " +
                     host + " route add default via 192.168.1.1";
            if (has_miniupnpd(kind)) steps += "; ip -n " + router_ + " addr add 11." + outer.substr(4) + "/24 dev wan";
            if (kind != Router::shared) {
                steps += "; ip netns exec " + router_ + " nft -f - <<'END'\n" + rules(kind) + "END\n";
            }
        }
        REQUIRE(shell(steps));
        return host;
    }

private:
    static std::string wire(const std::string& name, const std::string& link, const std::string& address) {
        return "ip link add " + link + " type veth peer name wan netns " + name + "; ip link set " + link +
               " master public up; ip -n " + name + " addr add " + address + "/24 dev wan; ip -n " + name +
               " link set wan up; ";
    }
    static std::string rules(Router kind) {
        std::string text = "table ip box {\n"
                           " chain post { type nat hook postrouting priority 100; oifname wan masquerade ";
        text += kind == Router::cone || kind == Router::open ? "" : "random,fully-random";
        text += "; }\n chain in { type filter hook input priority 0; iifname wan ct state established,related accept; "
                "iifname wan drop; }\n"
                " chain through { type filter hook forward priority 0; iifname wan ct state established,related "
                "accept; iifname wan ct status dnat accept; iifname wan drop; }\n";
        if (kind == Router::open)
            text += " chain pre { type nat hook prerouting priority -100; iifname wan tcp dport 48149 dnat to "
                    "192.168.1.2; }\n";
        if (kind == Router::mapping) text += " chain pre { type nat hook prerouting priority -100; }\n";
        // The first byte of a request is the version: 0 of NAT-PMP, 2 of PCP.
        if (kind == Router::pcp || kind == Router::nat_pmp)
            text += std::string(" chain ask { type filter hook input priority 0; iifname lan udp dport 5351 @th,64,8 "
                                "!= ") +
                    (kind == Router::pcp ? "2" : "0") + " drop; }\n";
        text += "}\n";
        if (has_miniupnpd(kind))
            text += "table inet filter { chain miniupnpd { }\n chain prerouting_miniupnpd { }\n"
                    " chain postrouting_miniupnpd { }\n chain prerouting { type nat hook prerouting priority -100; "
                    "jump prerouting_miniupnpd; }\n}\n";
        return text;
    }

    bool works_ = false;
    int hosts_ = 0;
    std::string router_;  // of the host that was added last
    int inside_ = 0;      // hosts behind it
};

// Debian's miniupnpd in the namespace of a router. It has an outer address of its own.
class Miniupnpd {
public:
    Miniupnpd(const std::string& router, const std::string& outer, Router kind) : router_(router) {
        std::ofstream file(directory_.path() + "/conf");
        file << "ext_ifname=wan\next_ip=" << outer << "\nlistening_ip=lan\nhttp_port=5000\nipv6_disable=yes\n"
             << "enable_natpmp=" << (kind == Router::upnp ? "no" : "yes")
             << "\nenable_upnp=" << (kind == Router::upnp ? "yes" : "no")
             << "\nsecure_mode=yes\nsystem_uptime=no\nuuid=00000000-0000-0000-0000-000000000001\n"
             << "upnp_table_name=filter\nupnp_nat_table_name=filter\nlease_file=" << directory_.path() << "/leases\n"
             << "allow 1024-65535 192.168.1.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n";
        file.close();
        process_.emplace(std::vector<std::string>{"/bin/sh", "-c",
                                                  "PATH=$PATH:/usr/sbin:/sbin; exec ip netns exec " + router + " " +
                                                      miniupnpd + " -d -f " + directory_.path() + "/conf -P " +
                                                      directory_.path() + "/pid"});
        if (!process_->says(kind == Router::upnp ? "HTTP listening on port" : "Listening for NAT-PMP/PCP traffic"))
            throw std::runtime_error("miniupnpd: " + process_->log_text());
    }
    // Waits until it forwards a port, or no port at all.
    bool forwards(bool wanted) const {
        return shell("for i in $(seq 300); do ip netns exec " + router_ +
                     " nft list chain inet filter prerouting_miniupnpd | grep -q dnat; [ $? = " + (wanted ? "0" : "1") +
                     " ] && exit 0; sleep 0.1; done; exit 1");
    }
    std::string log_text() const { return process_->log_text(); }

private:
    const std::string router_;
    StateDirectory directory_;
    std::optional<Process> process_;
};

class Peer : public Process {
public:
    Peer(const std::string& space, std::uint16_t port, const Environment& environment)
        : Process({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; exec ip netns exec " + space + " " PCCL_TEST_PEER},
                  environment) {
        send("create " + std::to_string(port) + " 0 203.0.113.1");
        if (expect_line() != "create 0") throw std::runtime_error("pcclCreateCommunicator failed:\n" + log_text());
    }
    std::vector<std::string> ask(const std::string& command) {
        send(command);
        return words(expect_line(std::chrono::seconds(120)));
    }
};

class Run {
public:
    Run(const std::vector<Router>& routers, bool secure) {
        for (const Router kind : routers) {
            const std::string number = std::to_string(spaces_.size());
            spaces_.push_back(internet.add(kind));
            const std::string last = std::to_string(11 + spaces_.size() - 1);
            if (has_miniupnpd(kind))
                daemons_.push_back(std::make_unique<Miniupnpd>("router" + number, "11.0.113." + last, kind));
            if (kind != Router::mapping) continue;
            givers_.push_back(std::make_unique<Process>(std::vector<std::string>{
                "/bin/sh", "-c",
                "PATH=$PATH:/usr/sbin:/sbin; exec ip netns exec router" + number +
                    " " PCCL_TEST_NAT_PMP " 203.0.113." + last + " 2"}));
            if (givers_.back()->expect_line() != "ready") throw std::runtime_error("nat_pmp_router");
        }
        std::vector<std::string> command{PCCL_TEST_MASTER, "--listen", "203.0.113.1:0"};
        Environment environment{{"PCCL_PEER_TIMEOUT_MS", "3000"}, {"PCCL_LOG_LEVEL", "INFO"}};
        if (secure) {
            directory_.emplace();
            for (const auto& [name, value] : directory_->environment()) environment[name] = value;
            command.emplace_back("--secure");
        }
        master_ = std::make_unique<Process>(command, environment);
        const std::string line = master_->expect_line();
        port_ = static_cast<std::uint16_t>(std::stoul(line.substr(line.rfind(':') + 1)));
        Environment& peer = peer_environment_;
        peer = {
            {"PCCL_PEER_TIMEOUT_MS", "3000"}, {"PCCL_LOG_LEVEL", "INFO"}, {"PCCL_PORT_RANGE", "48149-48200"}};
        for (const std::string& space : spaces_) {
            if (secure) {
                Process invite({PCCL_TEST_MASTER, "invite", "--state-dir", directory_->path()});
                peer["PCCL_INVITE"] = invite.expect_line();
            }
            peer["PCCL_PORT_MAPPING"] = givers_.empty() && daemons_.empty() ? "0" : "1";
            peers_.push_back(std::make_unique<Peer>(space, port_, peer));
        }
    }
    Peer& operator[](std::size_t index) { return *peers_.at(index); }
    Process& master() { return *master_; }
    Process& giver(std::size_t index) { return *givers_.at(index); }
    const Miniupnpd& daemon(std::size_t index) const { return *daemons_.at(index); }
    void end_peers() {
        for (const auto& peer : peers_) peer->ask("destroy");
    }
    // What `pccl-master doctor` prints on this host, and its exit code.
    std::pair<int, std::string> doctor(std::size_t host) {
        Process process({"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; exec ip netns exec " + spaces_.at(host) +
                                              " " PCCL_TEST_MASTER " doctor --master 203.0.113.1:" +
                                              std::to_string(port_)});
        std::string text;
        while (const auto line = process.read_line()) text += *line + "\n";
        return {process.wait(), text};
    }
    std::string logs() const {
        std::string text = "---- master\n" + master_->log_text();
        for (const auto& peer : peers_) text += "---- peer\n" + peer->log_text();
        for (const auto& daemon : daemons_) text += "---- miniupnpd\n" + daemon->log_text();
        return text;
    }

    // All connect. The members vote until the world has the size of the run; false: it never had.
    bool assemble() {
        REQUIRE(peers_[0]->ask("connect") == std::vector<std::string>{"connect", "0"});
        for (std::size_t i = 1; i < peers_.size(); ++i) {
            if (!admit(i)) return false;
        }
        return true;
    }
    // The last peer is killed, and another one joins in its place.
    bool replace_last() {
        peers_.pop_back();
        peers_.push_back(std::make_unique<Peer>(spaces_.back(), port_, peer_environment_));
        return admit(peers_.size() - 1);
    }
    void kill(std::size_t index) { peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(index)); }

    // All reduce; each result must be the sum, so all hold the same bytes.
    bool reduce(std::uint64_t tag) {
        std::vector<std::uint64_t> seeds;
        for (std::size_t i = 0; i < peers_.size(); ++i) seeds.push_back(3 + i);
        for (std::size_t i = 0; i < peers_.size(); ++i)
            peers_[i]->send("reduce " + reduce_arguments(type_f32, op_sum, count, tag, "out", seeds, i));
        bool good = true;
        std::string hash;
        for (const auto& peer : peers_) {
            const std::vector<std::string> answer = words(peer->expect_line());
            // reduce RESULT WORLD TX RX MATCHES INTACT HASH
            const bool is_first = hash.empty();
            if (is_first && answer.size() == 8) hash = answer[7];
            good = good && answer.size() == 8 && answer[1] == "0" && answer[5] == "1" && answer[7] == hash &&
                   answer[2] == std::to_string(peers_.size());
        }
        return good;
    }

    Internet internet;

private:
    // Peer `i` joins those before it.
    bool admit(std::size_t i) {
        peers_[i]->send("connect");
        std::optional<std::string> answer;
        for (int votes = 0; votes < admitted_after && !answer; ++votes) {
            for (std::size_t k = 0; k < i; ++k) peers_[k]->send("update");
            for (std::size_t k = 0; k < i; ++k) peers_[k]->expect_line();
            answer = peers_[i]->poll_line(std::chrono::milliseconds(500));
        }
        return answer == "connect 0";
    }

    std::vector<std::string> spaces_;
    Environment peer_environment_;
    std::optional<StateDirectory> directory_;
    std::unique_ptr<Process> master_;
    std::uint16_t port_ = 0;
    std::vector<std::unique_ptr<Process>> givers_;
    std::vector<std::unique_ptr<Miniupnpd>> daemons_;
    std::vector<std::unique_ptr<Peer>> peers_;
};

bool possible() {
    Internet internet;
    return internet.works();
}

void reduces(const std::vector<Router>& routers, bool secure = false) {
    if (!possible()) return;
    Run run(routers, secure);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    CHECK(run.reduce(1));
    CHECK(run.reduce(2));
}

}  // namespace

TEST_CASE("one peer behind a translator, one in the public network") { reduces({Router::none, Router::cone}); }

TEST_CASE("the founder of the run is behind a translator") { reduces({Router::symmetric, Router::none}); }

TEST_CASE("both behind translators that keep ports") { reduces({Router::cone, Router::cone}); }

TEST_CASE("both behind translators that keep ports, in a secure run") { reduces({Router::cone, Router::cone}, true); }

TEST_CASE("one behind a translator that forwards its port, one behind a strict one") {
    reduces({Router::open, Router::symmetric});
}

// Both listen on the same port, so the router gives one of them another outer port.
TEST_CASE("two behind one translator, one behind another") {
    reduces({Router::cone, Router::shared, Router::cone});
}

TEST_CASE("one behind a translator, two behind another") { reduces({Router::cone, Router::cone, Router::shared}); }

// The member that goes had the port of the router that is like its own.
TEST_CASE("of two behind one translator, the one that got another outer port stays") {
    if (!possible()) return;
    Run run({Router::cone, Router::cone, Router::shared}, false);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    REQUIRE(run.reduce(1));
    run.kill(1);
    // Its neighbours may first see that it is gone.
    bool reduced = false;
    for (std::uint64_t tag = 2; tag < 12 && !reduced; ++tag) reduced = run.reduce(tag);
    INFO(run.logs());
    CHECK(reduced);
}

TEST_CASE("three of them") { reduces({Router::none, Router::cone, Router::cone}); }

TEST_CASE("the doctor tells what is between a host and a master") {
    if (!possible()) return;
    Run run({Router::none, Router::cone, Router::symmetric}, false);
    const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    {
        const auto [code, text] = run.doctor(0);
        INFO(text);
        CHECK(code == 0);
        CHECK(says(text, "the master sees this host at its own address, 203.0.113.21"));
        CHECK(says(text, "reach this host: the master has dialled port"));
    }
    {
        const auto [code, text] = run.doctor(1);
        INFO(text);
        CHECK(code == 0);
        CHECK(says(text, "192.168.1.2 here, 203.0.113.12 for others"));
        CHECK(says(text, "It keeps ports"));
        CHECK(says(text, "do not reach this host"));
        CHECK(says(text, "This peer will dial them instead"));
    }
    {
        const auto [code, text] = run.doctor(2);
        INFO(text);
        CHECK(code == 0);
        CHECK(says(text, "It makes port"));
        CHECK(says(text, "It can only be with peers that others reach"));
    }
}

TEST_CASE("both behind strict translators: the newcomer gets an error that says what was tried") {
    if (!possible()) return;
    Run run({Router::symmetric, Router::symmetric}, false);
    REQUIRE(run[0].ask("connect") == std::vector<std::string>{"connect", "0"});
    const std::vector<std::string> answer = run[1].ask("connect");
    INFO(run.logs());
    CHECK(answer == std::vector<std::string>{"connect", "7"});
    CHECK(run[1].says("a translator makes 203.0.113.12"));
    CHECK(run[1].says("tried, in both directions"));
    CHECK(run.master().says("refused 203.0.113.12"));
}

TEST_CASE("both behind strict translators that give ports: they connect, ports are renewed, and given back") {
    if (!possible()) return;
    Run run({Router::mapping, Router::mapping}, false);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    CHECK(run.reduce(1));
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(run[i].says("the router forwards 203.0.113.1" + std::to_string(1 + i) + ":49149 to port 48149 of this "
                                                                                      "peer (by NAT-PMP)"));
        // The first one, and two renewals.
        for (int k = 0; k < 3; ++k) CHECK(run.giver(i).expect_line() == "mapped 48149 49149");
    }
    CHECK(run.reduce(2));
    const auto [code, text] = run.doctor(0);
    INFO(text);
    CHECK(text.find("gives ports to peers that ask with PCCL_PORT_MAPPING=1") != std::string::npos);
    run.end_peers();
    for (std::size_t i = 0; i < 2; ++i) {
        std::string line = "mapped";
        while (line.starts_with("mapped")) line = run.giver(i).expect_line();
        CHECK(line == "unmapped 48149");
    }
}

namespace {

// Two peers behind strict routers of this kind connect, reduce, and give their ports back.
void gives_ports(Router kind, const std::string& name) {
    if (!possible()) return;
    if (::access(miniupnpd, X_OK) != 0) {
        WARN("skipped: there is no miniupnpd (Debian: miniupnpd-nftables)");
        return;
    }
    Run run({kind, kind}, false);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    CHECK(run.reduce(1));
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(run[i].says("the router forwards 11.0.113.1" + std::to_string(1 + i) +
                          ":48149 to port 48149 of this peer (by " + name + ")"));
        CHECK(run.daemon(i).forwards(true));
    }
    CHECK(run.reduce(2));
    const auto [code, text] = run.doctor(0);
    INFO(text);
    CHECK(text.find("gives ports to peers that ask with PCCL_PORT_MAPPING=1: it speaks " + name + " (") !=
          std::string::npos);
    // The router still has the port of the peer that was killed. It belongs to the next one.
    const bool replaced = run.replace_last();
    INFO(run.logs());
    REQUIRE(replaced);
    CHECK(run[1].says("the router forwards 11.0.113.12:48149 to port 48149 of this peer (by " + name + ")"));
    CHECK(run.reduce(3));
    run.end_peers();
    for (std::size_t i = 0; i < 2; ++i) CHECK(run.daemon(i).forwards(false));
}

}  // namespace

TEST_CASE("both behind strict translators that give ports by PCP only") { gives_ports(Router::pcp, "PCP"); }

TEST_CASE("both behind strict translators that give ports by NAT-PMP only") {
    gives_ports(Router::nat_pmp, "NAT-PMP");
}

TEST_CASE("both behind strict translators that give ports by UPnP only") {
#ifdef PCCL_HAS_UPNP
    gives_ports(Router::upnp, "UPnP");
#else
    WARN("skipped: this build has no UPnP, because libminiupnpc-dev was not there");
#endif
}

// The router leads no connection from inside to its outer ports.
TEST_CASE("two behind one router that gives both a port connect inside, and one elsewhere by the port") {
    if (!possible()) return;
    if (::access(miniupnpd, X_OK) != 0) {
        WARN("skipped: miniupnpd is not installed");
        return;
    }
    Run run({Router::pcp, Router::shared, Router::none}, false);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    CHECK(run[0].says("the router forwards 11.0.113.11:"));
    CHECK(run[1].says("the router forwards 11.0.113.11:"));
    CHECK(run.reduce(1));
}

TEST_CASE("a peer whose router gives no ports says so, and joins as if it had not asked") {
    if (!possible()) return;
    Run run({Router::mapping, Router::cone}, false);
    const bool together = run.assemble();
    INFO(run.logs());
    REQUIRE(together);
    CHECK(run[1].says("the router gives this peer no port (PCP: the router does not speak it; NAT-PMP: the router does "
                      "not speak it; UPnP: "));
    CHECK(run.reduce(1));
}
