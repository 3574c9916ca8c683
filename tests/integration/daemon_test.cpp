// pccl-master as a program that people and service managers start.
#include "cluster.hpp"
#include "state_directory.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace integration;

namespace {

constexpr const char* any_port = "127.0.0.1:0";

struct Run {
    int code;
    std::string output;
    std::string log;
};

Run run(std::vector<std::string> arguments, const Environment& environment = {}) {
    arguments.insert(arguments.begin(), PCCL_TEST_MASTER);
    Process master(arguments, environment);
    std::string output;
    while (const auto line = master.read_line()) output += *line + "\n";
    const int code = master.wait();
    return {code, output, master.log_text()};
}

// A pipe whose writing end children inherit.
class Pipe {
public:
    Pipe() {
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        reader_ = ends[0];
        writer_ = fcntl(ends[1], F_DUPFD, 100);
        close(ends[1]);
    }
    ~Pipe() {
        close(reader_);
        close_writer();
    }
    Pipe(const Pipe&) = delete;
    int writer() const { return writer_; }
    void close_writer() {
        if (writer_ >= 0) close(writer_);
        writer_ = -1;
    }
    std::string read_all() {
        std::string text;
        char bytes[256];
        for (ssize_t n; (n = read(reader_, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<std::size_t>(n));
        return text;
    }

private:
    int reader_ = -1;
    int writer_ = -1;
};

// The socket on which a service manager listens.
class NotifySocket {
public:
    explicit NotifySocket(const std::string& directory) : path_(directory + "/notify") {
        socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        REQUIRE(path_.size() < sizeof address.sun_path);
        std::memcpy(address.sun_path, path_.c_str(), path_.size());
        REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    ~NotifySocket() { close(socket_); }
    NotifySocket(const NotifySocket&) = delete;
    const std::string& path() const { return path_; }
    std::string next() {
        pollfd waiting{socket_, POLLIN, 0};
        REQUIRE(poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(hang_guard).count())) == 1);
        char bytes[512];
        const ssize_t n = recv(socket_, bytes, sizeof bytes, 0);
        return n > 0 ? std::string(bytes, static_cast<std::size_t>(n)) : std::string();
    }

private:
    std::string path_;
    int socket_ = -1;
};

}  // namespace

TEST_CASE("wrong usage ends with 2 and names what is wrong") {
    const auto says = [](std::vector<std::string> arguments, const std::string& what) {
        const Run result = run(std::move(arguments));
        INFO(result.log);
        CHECK(result.code == 2);
        CHECK(result.log.find(what) != std::string::npos);
    };
    says({"--listen", "1.2.3:80"}, "1.2.3:80");
    says({"--listen", "127.0.0.1:99999"}, "port below 65536");
    says({"--listen", "no-such-host.invalid:1"}, "no-such-host.invalid");
    says({"--log-level", "LOUD"}, "TRACE, DEBUG");
    says({"--status", "::1:80"}, "[V6]:PORT");
    says({"--status", "no-such-host.invalid"}, "--status: ");
    says({"--log-format", "xml"}, "xml");
    says({"--ready-fd", "987"}, "no such descriptor");
    says({"--nonsense"}, "--nonsense");
}

TEST_CASE("help lists every setting, version is one line; both end with 0") {
    const Run help = run({"--help"});
    CHECK(help.code == 0);
    for (const char* word :
         {"--listen", "--status", "--state-dir", "--ready-fd", "--log-format", "PCCL_PEER_TIMEOUT_MS",
          "PCCL_MASTER_TIMEOUT_MS", "PCCL_ADVERTISE_ADDRESS", "PCCL_STATE_DIR"}) {
        INFO(word);
        CHECK(help.output.find(word) != std::string::npos);
    }
    const Run version = run({"--version"});
    CHECK(version.code == 0);
    CHECK(version.output.rfind("pccl-master ", 0) == 0);
}

TEST_CASE("a port in use ends with 1 and says so") {
    MasterProcess first;
    const Run second = run({"--listen", "127.0.0.1:" + std::to_string(first.port())});
    CHECK(second.code == 1);
    CHECK(second.log.find("another program listens there") != std::string::npos);
}

TEST_CASE("a name is resolved, and the line shows it as it was written") {
    Process master({PCCL_TEST_MASTER, "--listen-address", "localhost:0"});
    CHECK(master.expect_line().rfind("listening on localhost:", 0) == 0);
    master.signal(SIGINT);
    CHECK(master.wait() == 0);
}

TEST_CASE("the ready descriptor gets the line once and is closed") {
    Pipe pipe;
    Process master({PCCL_TEST_MASTER, "--listen", any_port, "--ready-fd", std::to_string(pipe.writer())});
    pipe.close_writer();
    const std::string line = pipe.read_all();  // returns when the master closes the pipe, while it runs on
    CHECK(line == master.expect_line() + "\n");
    master.signal(SIGTERM);
    CHECK(master.wait() == 0);
}

TEST_CASE("a service manager is told when it serves and when it stops") {
    StateDirectory directory;
    NotifySocket manager(directory.path());
    Process master({PCCL_TEST_MASTER, "--listen", any_port}, {{"NOTIFY_SOCKET", manager.path()}});
    CHECK(manager.next().rfind("READY=1\n", 0) == 0);
    master.signal(SIGTERM);
    CHECK(manager.next() == "STOPPING=1");
    CHECK(master.wait() == 0);
}

TEST_CASE("json lines are one object each, whatever a stranger sends") {
    Process master({PCCL_TEST_MASTER, "--listen", any_port, "--log-format", "json", "--log-level", "debug"});
    const std::string line = master.expect_line();
    const auto port = static_cast<std::uint16_t>(std::stoul(line.substr(line.rfind(':') + 1)));
    Process peer({PCCL_TEST_PEER});
    peer.send("create " + std::to_string(port) + " 0");
    REQUIRE(peer.expect_line() == "create 0");
    peer.send("connect");
    REQUIRE(peer.expect_line() == "connect 0");
    master.signal(SIGTERM);
    CHECK(master.wait() == 0);
    std::istringstream log(master.log_text());
    std::size_t lines = 0;
    for (std::string text; std::getline(log, text); ++lines) {
        INFO(text);
        CHECK(text.rfind("{\"time\":\"20", 0) == 0);
        CHECK(text.find("\"level\":\"") != std::string::npos);
        CHECK(text.find("\"who\":\"master\"") != std::string::npos);
        CHECK(text.back() == '}');
    }
    CHECK(lines > 0);
}

TEST_CASE("a master that is stopped on purpose tells its peers, who do not wait for it") {
    // They would wait for an hour if the master had been killed.
    Cluster cluster(2, {{"PCCL_MASTER_TIMEOUT_MS", "3600000"}});
    cluster[0].send("update");  // waits for the vote of the other peer
    cluster.master().signal(SIGTERM);
    CHECK(cluster.master().wait() == 0);
    CHECK(cluster[0].answer("update").result == update_topology_failed);
    CHECK(cluster[0].says("the master was stopped on purpose"));
    CHECK(cluster[0].attribute(1) == 1);
    // The other peer waits in no call: its attributes change as soon as its I/O thread has read the message.
    const auto deadline = std::chrono::steady_clock::now() + hang_guard;
    while (cluster[1].attribute(1) != 1 && std::chrono::steady_clock::now() < deadline) {
    }
    CHECK(cluster[1].attribute(1) == 1);
}

TEST_CASE("a second signal ends it at once") {
    // A peer that does not read makes the first stop last for a while.
    Cluster cluster(1);
    cluster[0].signal(SIGSTOP);
    cluster.master().signal(SIGSTOP);  // so that both signals are pending when it continues
    cluster.master().signal(SIGTERM);
    cluster.master().signal(SIGINT);
    cluster.master().signal(SIGCONT);
    CHECK(cluster.master().wait() == -SIGTERM);  // the lower number comes first
}
