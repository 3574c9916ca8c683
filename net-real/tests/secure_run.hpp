// A secure run over loopback: its master with invitations, peers in this process, and what they log.
#pragma once

#include "core/base/format.hpp"
#include "net-real/log.hpp"
#include "net-real/master_runtime.hpp"
#include "net-real/peer_runtime.hpp"
#include "net-real/settings.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace secure_run {

using namespace pccl;
using namespace pccl::real;

inline constexpr auto hang_guard = std::chrono::seconds(60);

inline core::Endpoint loopback(std::uint16_t port = 0) {
    core::Endpoint endpoint;
    REQUIRE(parse_endpoint("127.0.0.1", endpoint));
    endpoint.port = port;
    return endpoint;
}

// The log of one program, and waits for its lines.
class Log {
public:
    LogSink sink() {
        set_log_threshold(Severity::info);
        return [this](Severity, const std::string& line) {
            const std::lock_guard lock(mutex_);
            text_ += line + "\n";
            changed_.notify_all();
        };
    }
    bool says(const std::string& part) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, hang_guard, [&] { return text_.find(part) != std::string::npos; });
    }
    std::string text() {
        const std::lock_guard lock(mutex_);
        return text_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string text_;
};

class Run {
public:
    explicit Run(MasterSettings settings = {}) : settings_(std::move(settings)) {
        std::string name = (std::filesystem::temp_directory_path() / "pccl-secure-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        folder_ = name;
        settings_.state_directory = folder_;
        settings_.secure = true;
        settings_.log = log.sink();
        start(0);
    }
    ~Run() {
        master.reset();
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    void restart() {
        const std::uint16_t port = master->port();
        master->stop();
        master->await_termination();
        master.reset();
        start(port);
    }
    // `port`: at which the newcomer reaches the master; 0: its own.
    std::string invite(tls::Authority::Wish wish = {}, std::uint16_t port = 0) {
        wish.address = core::formatted("127.0.0.1:{}", port == 0 ? master->port() : port);
        std::string text, error;
        const bool made = master->authority()->invite(wish, text, error);
        INFO(error);
        REQUIRE(made);
        return text;
    }
    std::string invite_named(const std::string& name) {
        tls::Authority::Wish wish;
        wish.name = name;
        return invite(wish);
    }

    const std::string& folder() const { return folder_; }

    Log log;
    std::unique_ptr<MasterRuntime> master;

private:
    void start(std::uint16_t port) {
        master = std::make_unique<MasterRuntime>(settings_);
        std::string error;
        const bool is_up = master->bind(loopback(port), error) && master->run(error);
        INFO(error);
        REQUIRE(is_up);
    }
    MasterSettings settings_;
    std::string folder_;
};

inline PeerSettings with_invite(std::string invite) {
    PeerSettings settings;
    settings.invite = std::move(invite);
    settings.bind_address = loopback();
    settings.port_first = settings.port_last = 0;
    settings.shared_memory = false;
    return settings;
}

inline std::unique_ptr<PeerRuntime> make_peer(const PeerSettings& settings) {
    auto peer = std::make_unique<PeerRuntime>(settings);
    std::string error;
    const bool is_up = peer->start(error);
    INFO(error);
    REQUIRE(is_up);
    return peer;
}

inline void connect(PeerRuntime& peer) {
    const core::Completion completion = peer.call(core::CommandConnect{});
    INFO(core::to_text(completion.cause));
    REQUIRE(completion.result == core::Result::success);
}

// What pcclConnect says. An invitation that can never work is a wrong argument, so that nobody tries it again.
inline std::string refusal(const PeerSettings& settings, core::Result result = core::Result::master_connection_failed) {
    const auto peer = make_peer(settings);
    const core::Completion completion = peer->call(core::CommandConnect{});
    CHECK(completion.result == result);
    return core::to_text(completion.cause);
}

// `newcomer` connects while the members vote.
inline void admit(const std::vector<PeerRuntime*>& members, PeerRuntime& newcomer) {
    std::vector<std::thread> threads;
    for (PeerRuntime* member : members) {
        threads.emplace_back([member] {
            for (;;) {
                const core::Completion answer = member->call(core::CommandArePeersPending{});
                if (answer.result != core::Result::success || answer.pending) break;
            }
            member->call(core::CommandUpdateTopology{});
        });
    }
    const core::Completion joined = newcomer.call(core::CommandConnect{});
    for (std::thread& thread : threads) thread.join();
    INFO(core::to_text(joined.cause));
    REQUIRE(joined.result == core::Result::success);
    CHECK(newcomer.attributes().global_world == members.size() + 1);
}

// Every member reduces; peer i contributes inputs[i]. Returns the results; none: it failed.
inline std::vector<std::vector<float>> reduce(const std::vector<PeerRuntime*>& peers, std::vector<std::vector<float>> inputs,
                                              core::Tag tag = 7) {
    std::vector<std::vector<float>> results(peers.size());
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < peers.size(); ++i) {
        results[i].resize(inputs[i].size());
        threads.emplace_back([&, i] {
            PeerRuntime& peer = *peers[i];
            const auto from = peer.register_buffer(inputs[i].data(), inputs[i].size() * sizeof(float));
            const auto to = peer.register_buffer(results[i].data(), results[i].size() * sizeof(float));
            const core::Completion completion = peer.call(
                core::CommandLaunch{0, tag, {inputs[i].size(), core::DataType::f32, core::ReduceOp::sum}, from, to},
                core::CommandAwait{0, tag});
            if (completion.result != core::Result::success) ++failures;
            peer.release_buffer(from);
            peer.release_buffer(to);
        });
    }
    for (std::thread& thread : threads) thread.join();
    if (failures != 0) results.clear();
    return results;
}

inline bool reduces(const std::vector<PeerRuntime*>& peers, std::size_t count) {
    std::vector<std::vector<float>> inputs;
    float sum = 0;
    for (std::size_t i = 0; i < peers.size(); ++i) {
        inputs.emplace_back(count, static_cast<float>(i + 1));
        sum += static_cast<float>(i + 1);
    }
    const auto results = reduce(peers, inputs);
    if (results.size() != peers.size()) return false;
    for (const auto& result : results) {
        if (result != std::vector<float>(count, sum)) return false;
    }
    return true;
}

}  // namespace secure_run
