// Communicators and a master in one process, over loopback: guarantees of the runtime itself, whatever the protocol
// does.
#include "net-real/log.hpp"
#include "net-real/master_runtime.hpp"
#include "net-real/peer_runtime.hpp"
#include "net-real/settings.hpp"
#include "net-real/wait_check.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace pccl;
using namespace pccl::real;
using namespace std::chrono_literals;

namespace {

std::size_t entries_of(const char* folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
}

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

core::Endpoint loopback(std::uint16_t port = 0) {
    core::Endpoint endpoint;
    REQUIRE(parse_endpoint("127.0.0.1", endpoint));
    endpoint.port = port;
    return endpoint;
}

std::unique_ptr<MasterRuntime> make_master(MasterSettings settings = {}) {
    auto master = std::make_unique<MasterRuntime>(settings);
    std::string error;
    const bool is_up = master->bind(loopback(), error) && master->run(error);
    INFO(error);
    REQUIRE(is_up);
    REQUIRE(master->port() != 0);
    return master;
}

std::unique_ptr<PeerRuntime> make_peer(std::uint16_t master_port, PeerSettings settings = {}) {
    settings.master = loopback(master_port);
    settings.port_first = settings.port_last = 0;
    auto peer = std::make_unique<PeerRuntime>(settings);
    std::string error;
    const bool is_up = peer->start(error);
    INFO(error);
    REQUIRE(is_up);
    return peer;
}

// Connects both; the first admits the second.
void join(PeerRuntime& first, PeerRuntime& second) {
    REQUIRE(first.call(core::CommandConnect{}).result == core::Result::success);
    std::thread joiner([&] { second.call(core::CommandConnect{}); });
    while (first.attributes().global_world < 2) {
        if (first.call(core::CommandArePeersPending{}).pending)
            first.call(core::CommandUpdateTopology{});
        else
            std::this_thread::sleep_for(1ms);
    }
    joiner.join();
    REQUIRE(second.attributes().global_world == 2);
}

core::Completion reduce(PeerRuntime& peer, core::Tag tag, std::vector<float>& send, std::vector<float>& receive) {
    const auto from = peer.register_buffer(send.data(), send.size() * sizeof(float));
    const auto to = peer.register_buffer(receive.data(), receive.size() * sizeof(float));
    auto completion =
        peer.call(core::CommandLaunch{0, tag, {send.size(), core::DataType::f32, core::ReduceOp::sum}, from, to},
                  core::CommandAwait{0, tag});
    peer.release_buffer(from);
    peer.release_buffer(to);
    return completion;
}

bool reduces(PeerRuntime& first, PeerRuntime& second, std::size_t count) {
    std::vector<float> a(count, 1.0f), b(count, 2.0f), at_a(count), at_b(count);
    core::Completion other;
    std::thread thread([&] { other = reduce(second, 7, b, at_b); });
    const core::Completion mine = reduce(first, 7, a, at_a);
    thread.join();
    return mine.result == core::Result::success && other.result == core::Result::success &&
           at_a == std::vector<float>(count, 3.0f) && at_b == at_a;
}

int connect_raw(std::uint16_t port) {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return descriptor;
    ::close(descriptor);
    return -1;
}

}  // namespace

TEST_CASE("an array that is reduced in place holds its input if the I/O thread fails in the middle") {
    set_log_threshold(Severity::fatal);
    constexpr std::size_t count = 8u << 20;
    for (int turns = 0; turns < 48; turns += 8) {
        auto master = make_master();
        auto first = make_peer(master->port()), second = make_peer(master->port());
        join(*first, *second);
        std::vector<float> mine(count, 1.0f), theirs(count, 2.0f);
        const auto in_place = [](PeerRuntime& peer, std::vector<float>& array) {
            const auto buffer = peer.register_buffer(array.data(), array.size() * sizeof(float));
            const auto completion = peer.call(
                core::CommandLaunch{0, 7, {array.size(), core::DataType::f32, core::ReduceOp::sum}, buffer, buffer},
                core::CommandAwait{0, 7});
            peer.release_buffer(buffer);
            return completion.result;
        };
        std::thread other([&] { in_place(*second, theirs); });
        std::thread failure([&] {
            for (int i = 0; i < turns; ++i) first->statistics();  // each is one turn of the I/O thread
            first->connect([]() -> bool { throw std::bad_alloc(); });
        });
        const core::Result result = in_place(*first, mine);
        failure.join();
        second->abort();
        other.join();
        INFO("after " << turns << " turns");
        // The thread may fail between the commit and the end of the call.
        const bool is_input = mine == std::vector<float>(count, 1.0f);
        const bool is_result = mine == std::vector<float>(count, 3.0f);
        CHECK((is_result || (is_input && result != core::Result::success)));
    }
    set_log_threshold(Severity::warn);
}

TEST_CASE("communicators of one host share memory while they are connected, if both allow it") {
    for (const bool allowed : {true, false}) {
        INFO("allowed " << allowed);
        auto master = make_master();
        auto first = make_peer(master->port());
        PeerSettings settings;
        settings.shared_memory = allowed;
        auto second = make_peer(master->port(), settings);
        join(*first, *second);
        CHECK(reduces(*first, *second, 100'000));
        CHECK((first->statistics().shared_bytes > 0) == allowed);
        CHECK((second->statistics().shared_bytes > 0) == allowed);
    }
}

TEST_CASE("strangers on the ports harm nobody, also when descriptors run out") {
    set_log_threshold(Severity::none);
    auto master = make_master();
    auto first = make_peer(master->port());
    auto second = make_peer(master->port());
    join(*first, *second);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit small = before;
    small.rlim_cur = entries_of("/proc/self/fd") + 60;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
    std::vector<int> strangers;
    for (int i = 0; i < 200; ++i) {
        const int descriptor = connect_raw(i % 2 == 0 ? master->port() : first->listen_port());
        if (descriptor < 0) break;
        strangers.push_back(descriptor);
        const std::string junk(4096, i % 3 == 0 ? '\0' : '\x55');
        [[maybe_unused]] const auto ignored = ::send(descriptor, junk.data(), junk.size(), MSG_NOSIGNAL);
    }
    REQUIRE(strangers.size() > 10);
    REQUIRE(reduces(*first, *second, 10'000));
    for (const int descriptor : strangers) ::close(descriptor);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    std::this_thread::sleep_for(300ms);
    REQUIRE(reduces(*first, *second, 10'000));
    // The pause has ended: newcomers are accepted again.
    auto third = make_peer(master->port());
    std::thread joiner([&] { third->call(core::CommandConnect{}); });
    bool pending = false;
    for (int i = 0; i < 500 && !pending; ++i) {
        core::Completion other;
        std::thread vote([&] { other = second->call(core::CommandArePeersPending{}); });
        pending = first->call(core::CommandArePeersPending{}).pending;
        vote.join();
        std::this_thread::sleep_for(5ms);
    }
    REQUIRE(pending);
    std::thread update([&] { second->call(core::CommandUpdateTopology{}); });
    REQUIRE(first->call(core::CommandUpdateTopology{}).result == core::Result::success);
    update.join();
    joiner.join();
    REQUIRE(third->attributes().global_world == 3);
    set_log_threshold(Severity::warn);
}

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer ends a forked child that uses threads
TEST_CASE("a check that forks within a call: the call goes on in the parent, and fails in the child") {
    static std::atomic<pid_t> child;
    static bool ends_in_child;
    auto master = make_master();
    auto first = make_peer(master->port());
    auto second = make_peer(master->port());
    join(*first, *second);
    for (const bool ends : {false, true}) {
        child = 0;
        ends_in_child = ends;
        set_wait_check(
            [](void*) {
                if (child != 0) return false;
                child = ::fork();
                if (child != 0) return false;
                ::alarm(60);  // ends a child that hangs
                child = ::getpid();
                return ends_in_child;
            },
            nullptr);
        std::thread other([&] {
            while (child == 0) std::this_thread::yield();
            second->call(core::CommandUpdateTopology{});
        });
        const core::Completion completion = first->call(core::CommandUpdateTopology{});
        if (child == ::getpid()) ::_exit(completion.result == core::Result::invalid_usage ? 0 : 1);
        set_wait_check(nullptr, nullptr);
        CHECK(completion.result == core::Result::success);
        other.join();
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }
}
#endif

TEST_CASE("idle communicators use no CPU") {
    auto master = make_master();
    auto first = make_peer(master->port());
    auto second = make_peer(master->port());
    join(*first, *second);
    REQUIRE(reduces(*first, *second, 1'000'000));
    std::this_thread::sleep_for(200ms);
    const double before = cpu_seconds();
    std::this_thread::sleep_for(5s);
    const double percent = (cpu_seconds() - before) / 5 * 100;
    WARN("two idle peers and a master: " << percent << " % of a core together");
    REQUIRE(percent < 1.0);
}

TEST_CASE("log lines: level, name, repeated lines are counted") {
    std::mutex mutex;
    std::vector<std::string> lines;
    const LogSink sink = [&](Severity, const std::string& line) {
        const std::lock_guard lock(mutex);
        lines.push_back(line);
    };
    set_log_threshold(Severity::warn);
    log_line(Severity::info, "master", "not shown", sink);
    for (int i = 0; i < 5; ++i) log_line(Severity::warn, "master", "shown once \n only", sink);
    log_line(Severity::err, "0123abcd", "another", sink);
    REQUIRE(lines.size() == 2);
    REQUIRE(lines[0].find("WARN master shown once   only") != std::string::npos);
    REQUIRE(lines[0].size() > 24);
    REQUIRE(lines[0][10] == 'T');
    REQUIRE(lines[0][23] == 'Z');
    REQUIRE(lines[1].find("ERR 0123abcd another") != std::string::npos);
}

TEST_CASE("settings: bad values fall back, good ones count") {
    set_log_threshold(Severity::none);
    ::setenv("PCCL_PEER_TIMEOUT_MS", "1500", 1);
    ::setenv("PCCL_MASTER_TIMEOUT_MS", "soon", 1);
    ::setenv("PCCL_PORT_RANGE", "50000-50010", 1);
    ::setenv("PCCL_BIND_ADDRESS", "127.0.0.1", 1);
    EnvironmentSettings settings = read_environment();
    REQUIRE(settings.peer_timeout == 1500 * core::millisecond);
    REQUIRE(settings.master_timeout == 30 * core::second);
    REQUIRE(settings.port_first == 50000);
    REQUIRE(settings.port_last == 50010);
    REQUIRE(settings.bind_address.has_value());
    ::setenv("PCCL_PORT_RANGE", "9-1", 1);
    ::setenv("PCCL_BIND_ADDRESS", "nowhere", 1);
    settings = read_environment();
    REQUIRE(settings.port_first == 48149);
    REQUIRE(!settings.bind_address.has_value());
    for (const auto& info : setting_table()) {
        if (std::string(info.name) != "PCCL_LOG_LEVEL") ::unsetenv(info.name);
    }
    REQUIRE(setting_help().find("PCCL_PORT_RANGE") != std::string::npos);
    set_log_threshold(Severity::warn);
}

TEST_CASE("endpoints as text") {
    core::Endpoint endpoint;
    endpoint.port = 48148;
    REQUIRE(parse_endpoint("10.1.2.3", endpoint));
    REQUIRE(endpoint.port == 48148);
    REQUIRE(parse_endpoint("10.1.2.3:80", endpoint));
    REQUIRE(endpoint.port == 80);
    REQUIRE(parse_endpoint("[::1]:81", endpoint));
    REQUIRE(endpoint.is_v6);
    REQUIRE(endpoint.port == 81);
    REQUIRE(parse_endpoint("::1", endpoint));
    for (const char* bad :
         {"", ":80", "1.2.3", "1.2.3.4:", "1.2.3.4:99999", "[::1", "[1.2.3.4]:5", "1.2.3.4:x", "name:1"}) {
        INFO(bad);
        REQUIRE(!parse_endpoint(bad, endpoint));
    }
}
