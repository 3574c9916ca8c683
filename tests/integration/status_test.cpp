// pccl-master --status: what its clients get, and that none of them disturbs the run.
#include "cluster.hpp"
#include "state_directory.hpp"

#include "tests/property/json_reader.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace integration;
using json_reader::Value;

namespace {

const std::vector<std::string> with_status = {"--status", "127.0.0.1:0"};

std::uint16_t status_port(Process& master) {
    const std::string line = master.expect_line();
    REQUIRE(line.rfind("status on 127.0.0.1:", 0) == 0);
    return static_cast<std::uint16_t>(std::stoul(line.substr(line.rfind(':') + 1)));
}

class Connection {
public:
    explicit Connection(std::uint16_t port) : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    ~Connection() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    Connection(Connection&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Connection(const Connection&) = delete;
    void say(const std::string& bytes) {
        for (std::size_t done = 0; done < bytes.size();) {
            const ssize_t n = send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
            if (n <= 0) return;
            done += static_cast<std::size_t>(n);
        }
    }
    // Reads until the master closes.
    std::string read_all() {
        std::string text;
        char bytes[4096];
        for (;;) {
            pollfd waiting{descriptor_, POLLIN, 0};
            const int guard = static_cast<int>(std::chrono::milliseconds(hang_guard).count());
            REQUIRE(poll(&waiting, 1, guard) == 1);
            const ssize_t n = recv(descriptor_, bytes, sizeof bytes, 0);
            if (n <= 0) return text;
            text.append(bytes, static_cast<std::size_t>(n));
        }
    }

private:
    int descriptor_;
};

std::string tell(std::uint16_t port, const std::string& request) {
    Connection connection(port);
    connection.say(request);
    return connection.read_all();
}

std::string get(std::uint16_t port, const std::string& path) {
    return tell(port, "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
}

std::string body_of(const std::string& answer) {
    const std::size_t end = answer.find("\r\n\r\n");
    REQUIRE(end != std::string::npos);
    return answer.substr(end + 4);
}

int code_of(const std::string& answer) {
    INFO(answer);
    REQUIRE(answer.rfind("HTTP/1.1 ", 0) == 0);
    return std::stoi(answer.substr(9, 3));
}

Value status(std::uint16_t port) {
    const std::string answer = get(port, "/status");
    REQUIRE(code_of(answer) == 200);
    CHECK(answer.find("Content-Type: application/json") != std::string::npos);
    return json_reader::Reader(body_of(answer)).read();
}

// Reads the status until it is as expected.
Value status_until(std::uint16_t port, const std::function<bool(const Value&)>& expected) {
    const auto deadline = std::chrono::steady_clock::now() + hang_guard;
    for (;;) {
        Value now = status(port);
        if (expected(now)) return now;
        if (std::chrono::steady_clock::now() > deadline) FAIL("it never says so: " << body_of(get(port, "/status")));
    }
}

void reduce_together(Cluster& cluster) {
    const std::vector<std::uint64_t> seeds = {1, 2};
    for (std::size_t i = 0; i < 2; ++i) cluster[i].send("reduce " + reduce_arguments(9, 0, 1000, 7, "out", seeds, i));
    for (std::size_t i = 0; i < 2; ++i) {
        const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
        CHECK(answer.result == success);
        CHECK(answer.matches);
    }
}

}  // namespace

TEST_CASE("nothing is served unless it is asked for") {
    MasterProcess master;
    CHECK(master.listening_ports() == std::vector<std::uint16_t>{master.port()});
}

TEST_CASE("a port in use ends with 1 and names the option") {
    MasterProcess first({}, 0, with_status);
    Process second(
        {PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--status", "127.0.0.1:" + std::to_string(status_port(first))});
    CHECK(second.wait() == 1);
    CHECK(second.says("give --status another port"));
}

TEST_CASE("the status tells who is in, what was done and who waits for whom") {
    Cluster cluster(2, {}, with_status);
    const std::uint16_t port = status_port(cluster.master());
    reduce_together(cluster);
    Value now = status(port);
    CHECK(now["state"].text == "serving");
    CHECK(now["incarnation"].number() == 1);
    CHECK(now["members"].number() == 2);
    CHECK(now["peers"].items.size() == 2);
    CHECK(now["votes_open"].number() == 0);
    REQUIRE(now["groups"].items.size() == 1);
    const Value group = now["groups"].items[0];
    CHECK(group["ring"].items.size() == 2);
    CHECK(group["edges"].items.size() == 2);
    CHECK(group["edges"].items[0]["up"].yes);
    CHECK(group["edges"].items[0]["bytes_per_second"].kind == Value::Kind::nothing);
    CHECK(group["tally"]["committed"].number() == 1);
    CHECK(group["tally"]["aborted"].number() == 0);

    // A newcomer that no member admits yet.
    ScriptPeer newcomer(cluster.master().port());
    newcomer.send("connect");
    now = status_until(port, [](const Value& value) { return value["peers"].items.size() == 3; });
    std::size_t joining = 0;
    for (const Value& peer : now["peers"].items) joining += peer["state"].text == "joining" ? 1 : 0;
    CHECK(joining == 1);
    CHECK(now["members"].number() == 2);

    // One member votes, the other does not.
    cluster[0].send("update");
    now = status_until(port, [](const Value& value) { return value["votes_open"].number() == 1; });
    const Value vote = now["votes"].items.at(0);
    CHECK(vote["vote"].text == "update topology");
    CHECK(vote["voted"].number() == 1);
    CHECK(vote["missing"].number() == 1);
    std::string waiting;
    for (const Value& peer : now["peers"].items) {
        if (peer["waits"].kind == Value::Kind::object) waiting += peer["peer"].text;
    }
    REQUIRE(vote["waits_for"].items.size() == 1);
    CHECK(waiting.size() == 8);
    CHECK(vote["waits_for"].items[0].text != waiting);
    cluster[1].send("update");
    for (std::size_t i = 0; i < 2; ++i) CHECK(cluster[i].answer("update").result == success);

    // A member that dies.
    cluster.remove(1);
    now = status_until(port, [](const Value& value) { return !value["removals"].items.empty(); });
    CHECK(now["removed"].number() == 1);
    CHECK_FALSE(now["removals"].items[0]["reason"].text.empty());
}

TEST_CASE("a text for people at /") {
    Cluster cluster(2, {}, with_status);
    const std::string answer = get(status_port(cluster.master()), "/");
    CHECK(code_of(answer) == 200);
    CHECK(answer.find("Content-Type: text/plain") != std::string::npos);
    CHECK(answer.find("2 members") != std::string::npos);
}

TEST_CASE("after a restart on its journal it says who may still resume") {
    const StateDirectory directory;
    Cluster cluster(2, {{"PCCL_STATE_DIR", directory.path()}, {"PCCL_PEER_TIMEOUT_MS", "60000"}}, with_status);
    cluster[1].signal(SIGSTOP);
    cluster.kill_and_restart_master();
    const std::uint16_t port = status_port(cluster.master());
    const Value now = status_until(port, [](const Value& value) {
        const auto& peers = value["peers"].items;
        return std::any_of(peers.begin(), peers.end(),
                           [](const Value& peer) { return peer["state"].text == "member"; });
    });
    CHECK(now["state"].text == "resuming");
    CHECK(now["incarnation"].number() == 2);
    CHECK(now["peers"].items.size() == 2);
    cluster[1].signal(SIGCONT);
    status_until(port, [](const Value& value) { return value["state"].text == "serving"; });
}

TEST_CASE("a journal whose disk hangs is shown, and named on the peers; calls go on when it answers") {
    const StateDirectory directory;
    Cluster cluster(2, directory.environment_with_disk(), with_status);
    const std::uint16_t port = status_port(cluster.master());
    status_until(port, [](const Value& value) { return value["journal_waits_ms"].kind == Value::Kind::nothing; });
    directory.stall_disk(true);
    for (std::size_t i = 0; i < 2; ++i) cluster[i].send("pending");
    status_until(port, [](const Value& value) {
        return value["journal_waits_ms"].kind == Value::Kind::number && value["journal_waits_ms"].number() >= 6'000;
    });
    CHECK(get(port, "/").find("the disk of the journal has not answered for") != std::string::npos);
    CHECK(cluster.master().log_text().find("has not answered for") != std::string::npos);
    directory.stall_disk(false);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(cluster[i].answer("pending").result == success);
        CHECK(cluster[i].log_text().find("every call waits for it") != std::string::npos);
    }
    status_until(port, [](const Value& value) { return value["journal_waits_ms"].kind == Value::Kind::nothing; });
}

TEST_CASE("requests that are none get an answer or an end, and change nothing") {
    MasterProcess master({}, 0, with_status);
    const std::uint16_t port = status_port(master);
    CHECK(code_of(get(port, "/status?x=1")) == 200);
    CHECK(code_of(get(port, "/nothing")) == 404);
    CHECK(code_of(get(port, "//status")) == 404);
    const std::string post = tell(port, "POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    CHECK(code_of(post) == 405);
    CHECK(post.find("Allow: GET, HEAD") != std::string::npos);
    CHECK(code_of(tell(port, "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 405);
    const std::string head = tell(port, "HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK(code_of(head) == 200);
    CHECK(body_of(head).empty());
    CHECK(code_of(tell(port, "what is this\r\n\r\n")) == 400);
    CHECK(code_of(tell(port, "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n")) == 431);
    CHECK(code_of(get(port, "/" + std::string(20'000, 'x'))) == 431);
    CHECK(tell(port, std::string(3, '\0')).size() < 1000);
    CHECK(code_of(get(port, "/")) == 200);
}

TEST_CASE("many that say nothing or read nothing: others are served, and the run goes on") {
    Cluster cluster(2, {}, with_status);
    const std::uint16_t port = status_port(cluster.master());
    const int before = cluster.master().open_descriptors();
    std::vector<Connection> silent;
    for (int i = 0; i < 100; ++i) {
        silent.emplace_back(port);
        if (i % 3 == 0) silent.back().say("GET /status HT");
        if (i % 3 == 1) silent.back().say("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    CHECK(status(port)["members"].number() == 2);
    CHECK(cluster.master().open_descriptors() <= before + 17);
    reduce_together(cluster);
    // The first connections were closed in favour of later ones.
    silent.front().read_all();
    status_until(port,
                 [](const Value& value) { return value["groups"].items.at(0)["tally"]["committed"].number() == 1; });
    cluster.master().signal(SIGTERM);
    CHECK(cluster.master().wait() == 0);
}

TEST_CASE("a web page whose name leads to the master reads nothing of its status") {
    MasterProcess master({}, 0, with_status);
    const std::uint16_t port = status_port(master);
    const auto ask = [&](const std::string& host) {
        const std::string line = host.empty() ? "" : "Host: " + host + "\r\n";
        return tell(port, "GET /status HTTP/1.1\r\n" + line + "\r\n");
    };
    for (const char* host :
         {"127.0.0.1", "127.0.0.1:48147", "[::1]:48147", "localhost", "LocalHost:1", "10.1.2.3", ""}) {
        CAPTURE(host);
        CHECK(ask(host).rfind("HTTP/1.1 200 ", 0) == 0);
    }
    for (const char* host :
         {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:48147", "[evil]", "127.0.0.1:x:y", "."}) {
        CAPTURE(host);
        const std::string answer = ask(host);
        CHECK(answer.rfind("HTTP/1.1 421 ", 0) == 0);
        CHECK(answer.find("\"run\"") == std::string::npos);
    }
}
