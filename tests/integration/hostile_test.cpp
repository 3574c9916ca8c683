// Anything on any listening port during a run: the run goes on, and both sides name other protocol versions.
#include "cluster.hpp"

#include "core/wire/frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>
#include <random>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;
constexpr std::uint8_t other_version = 9;

sockaddr_in loopback_address(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// A connection that sends arbitrary bytes.
class Stranger {
public:
    explicit Stranger(std::uint16_t port) : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in address = loopback_address(port);
        connected_ = connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    ~Stranger() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    Stranger(Stranger&& other) noexcept : descriptor_(other.descriptor_), connected_(other.connected_) {
        other.descriptor_ = -1;
    }
    Stranger(const Stranger&) = delete;
    bool connected() const { return connected_; }
    void say(const std::string& bytes) {
        std::size_t done = 0;
        while (done < bytes.size()) {
            const ssize_t n = ::send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
            if (n <= 0) return;  // refused, which is fine
            done += static_cast<std::size_t>(n);
        }
    }
    // Reads until the other side closes, or until nothing came for `patience_ms`.
    std::string listen(int patience_ms) {
        std::string heard;
        char bytes[4096];
        for (;;) {
            pollfd waiting{descriptor_, POLLIN, 0};
            if (poll(&waiting, 1, patience_ms) <= 0) return heard;
            const ssize_t n = recv(descriptor_, bytes, sizeof bytes, 0);
            if (n <= 0) return heard;
            heard.append(bytes, static_cast<std::size_t>(n));
        }
    }

private:
    int descriptor_;
    bool connected_ = false;
};

std::string random_bytes(std::mt19937_64& random, std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

std::string control_frame(const std::string& body) {
    std::string frame;
    pccl::core::wire::append_control(frame, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
    return frame;
}

// A frame that is correct except for its version byte (the third of the prefix).
std::string frame_of_other_version() {
    std::string frame = control_frame("hello");
    frame.at(2) = static_cast<char>(other_version);
    pccl::core::wire::seal_prefix(reinterpret_cast<std::uint8_t*>(frame.data()));
    return frame;
}

// A prefix with the right magic, the given type and a length far above every limit.
std::string huge_length(std::uint8_t type) {
    std::string frame = control_frame("x");
    frame.at(3) = static_cast<char>(type);
    for (std::size_t i = 4; i < 8; ++i) frame.at(i) = static_cast<char>(0xFF);
    pccl::core::wire::seal_prefix(reinterpret_cast<std::uint8_t*>(frame.data()));
    return frame;
}

std::vector<std::string> garbage(std::mt19937_64& random) {
    std::string wrong_checksum = control_frame("some body");
    wrong_checksum.back() ^= 1;
    std::string wrong_length = control_frame("some body");
    wrong_length.at(5) ^= 1;
    const std::string right_frame = control_frame(random_bytes(random, 300));
    return {
        std::string(4096, '\0'),
        std::string(1 << 20, '\xFF'),
        random_bytes(random, 1),
        random_bytes(random, 4096),
        random_bytes(random, 1 << 20),
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        huge_length(0),
        huge_length(1),
        huge_length(2),
        huge_length(3),
        huge_length(255),
        wrong_checksum,
        wrong_length,
        right_frame,  // a valid frame, but no message
        right_frame + right_frame + right_frame,
        right_frame.substr(0, right_frame.size() / 2),  // half a frame
        right_frame.substr(0, 7),                       // half a prefix
        frame_of_other_version(),
        "",  // silence
    };
}

void reduce_on_all(Cluster& cluster, std::uint64_t tag, std::size_t count) {
    std::vector<std::uint64_t> seeds(cluster.size());
    for (std::size_t i = 0; i < cluster.size(); ++i) seeds[i] = tag * 10 + i;
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, count, tag, "in", seeds, i));
    }
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
        INFO(cluster[i].log_text());
        REQUIRE(answer.result == success);
        REQUIRE(answer.world == cluster.size());
        CHECK(answer.matches);
    }
}

std::vector<std::uint16_t> all_ports(Cluster& cluster) {
    std::vector<std::uint16_t> ports{cluster.master().port()};
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        const std::vector<std::uint16_t> own = cluster[i].listening_ports();
        REQUIRE_FALSE(own.empty());
        ports.insert(ports.end(), own.begin(), own.end());
    }
    return ports;
}

// A listening socket that is no master.
class FalseMaster {
public:
    FalseMaster() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address = loopback_address(0);
        socklen_t length = sizeof address;
        REQUIRE(bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(::listen(descriptor_, 16) == 0);
        REQUIRE(getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
        port_ = ntohs(address.sin_port);
    }
    ~FalseMaster() { close(descriptor_); }
    FalseMaster(const FalseMaster&) = delete;
    std::uint16_t port() const { return port_; }
    int accept_one() const {
        pollfd waiting{descriptor_, POLLIN, 0};
        return poll(&waiting, 1, 30'000) == 1 ? accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    }

private:
    int descriptor_;
    std::uint16_t port_ = 0;
};

}  // namespace

TEST_CASE("garbage on every port while reductions run: all of them succeed") {
    std::mt19937_64 random(20240607);
    Cluster cluster(2);
    const std::vector<std::uint16_t> ports = all_ports(cluster);
    std::uint64_t tag = 0;
    std::vector<Stranger> lingering;
    for (int turn = 0; turn < 3; ++turn) {
        for (const std::string& bytes : garbage(random)) {
            std::vector<std::uint64_t> seeds{tag * 10, tag * 10 + 1};
            for (std::size_t i = 0; i < 2; ++i) {
                cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, 300'000, tag, "in", seeds, i));
            }
            for (const std::uint16_t port : ports) {
                lingering.emplace_back(port);
                lingering.back().say(bytes);
                if (random() % 2 == 0) lingering.pop_back();  // closes at once, the others stay open
            }
            for (std::size_t i = 0; i < 2; ++i) {
                const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
                INFO(cluster[i].log_text());
                REQUIRE(answer.result == success);
                REQUIRE(answer.world == 2);
                CHECK(answer.matches);
            }
            ++tag;
        }
    }
    cluster.admit();  // peers are still accepted
    reduce_on_all(cluster, tag, 1000);
}

TEST_CASE("a thousand connections that say nothing: the run goes on") {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    setrlimit(RLIMIT_NOFILE, &limit);
    Cluster cluster(2);
    const std::vector<std::uint16_t> ports = all_ports(cluster);
    std::vector<Stranger> crowd;
    for (int i = 0; i < 1000; ++i) crowd.emplace_back(ports[static_cast<std::size_t>(i) % ports.size()]);
    for (std::uint64_t tag = 0; tag < 5; ++tag) reduce_on_all(cluster, tag, 100'000);
    crowd.clear();
    cluster.admit();
    reduce_on_all(cluster, 9, 1000);
}

TEST_CASE("a frame of another version is named by the master and by a peer") {
    Cluster cluster(1);
    const std::string named = "version " + std::to_string(other_version);
    const std::vector<std::uint16_t> ports = all_ports(cluster);
    for (const std::uint16_t port : ports) {
        Stranger stranger(port);
        REQUIRE(stranger.connected());
        stranger.say(frame_of_other_version());
        stranger.listen(10'000);  // waits until it is closed
    }
    // The line is written before the connection is closed.
    INFO("master: " << cluster.master().log_text() << "\npeer: " << cluster[0].log_text());
    CHECK(cluster.master().says(named));
    CHECK(cluster[0].says(named));
}

TEST_CASE("a master of another version: connect fails and says so") {
    FalseMaster master;
    ScriptPeer peer(master.port(), 0, {{"PCCL_MASTER_TIMEOUT_MS", "300"}});
    peer.send("connect");
    std::vector<int> accepted;
    // Answers each attempt with a frame of another version, until the peer gives up.
    std::optional<std::string> line;
    while (!line) {
        const int descriptor = master.accept_one();
        REQUIRE(descriptor >= 0);
        accepted.push_back(descriptor);
        const std::string frame = frame_of_other_version();
        CHECK(::send(descriptor, frame.data(), frame.size(), MSG_NOSIGNAL) > 0);
        line = peer.poll_line(std::chrono::milliseconds(1000));
    }
    for (const int descriptor : accepted) close(descriptor);
    CHECK(*line == "connect 6");
    INFO(peer.log_text());
    CHECK(peer.says("version " + std::to_string(other_version)));
    CHECK(peer.ask("destroy").result == success);
}

TEST_CASE("the address of something else, or of something silent: connect fails in bounded time") {
    FalseMaster silent;
    ScriptPeer peer(silent.port(), 0, {{"PCCL_MASTER_TIMEOUT_MS", "300"}});
    CHECK(peer.ask("connect").result == master_connection_failed);
    CHECK(peer.ask("destroy").result == success);
}

TEST_CASE("pccl-master: clean stop on both signals, help, usage errors, an address in use") {
    for (const int number : {SIGTERM, SIGINT}) {
        MasterProcess master;
        master.signal(number);
        CHECK(master.wait() == 0);
        CHECK_FALSE(master.read_line().has_value());  // nothing but the one line on standard output
    }
    Process help({PCCL_TEST_MASTER, "--help"});
    CHECK(help.wait() == 0);
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nonsense"},
                                                      {"--listen"},
                                                      {"--listen", "no-port"},
                                                      {"--listen", "127.0.0.1:99999"},
                                                      {"--listen", "127.0.0.1:"},
                                                      {"--listen", "::1:80"},
                                                      {"stray"}}) {
        std::vector<std::string> command{PCCL_TEST_MASTER};
        command.insert(command.end(), arguments.begin(), arguments.end());
        Process wrong(command);
        INFO(arguments.front());
        CHECK(wrong.wait() == 2);
    }
    MasterProcess first;
    Process second({PCCL_TEST_MASTER, "--listen-address", "127.0.0.1:" + std::to_string(first.port())});
    CHECK(second.wait() == 1);
}
