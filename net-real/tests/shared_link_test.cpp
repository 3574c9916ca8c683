// Loops that connect through shared memory, or fall back to TCP.
#include "net-real/event_loop.hpp"

#include "core/wire/frame.hpp"
#include "net-real/tests/quiet_client.hpp"
#include "net-real/tests/stream_pairs.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

// Dials, answers every control frame of an accepted link with the same bytes, and keeps what happens.
class Machine final : public QuietClient {
public:
    std::vector<core::Endpoint> targets;  // links 1, 3, 5...

    void start(core::Instant, core::Effects& out) override {
        for (std::size_t i = 0; i < targets.size(); ++i) out.push_back(core::OpenLink{2 * i + 1, targets[i]});
    }
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        const std::lock_guard lock(mutex_);
        if (const auto* opened = std::get_if<core::LinkOpened>(&event)) {
            open_.insert(opened->link);
            out.push_back(core::SendControl{opened->link, large});
        } else if (const auto* refused = std::get_if<core::LinkRefused>(&event)) {
            refused_.insert(refused->link);
        } else if (const auto* accepted = std::get_if<core::LinkAccepted>(&event)) {
            accepted_.push_back(accepted->remote);
        } else if (const auto* closed = std::get_if<core::LinkClosed>(&event)) {
            closed_.insert(closed->link);
        } else if (const auto* control = std::get_if<core::ControlArrived>(&event)) {
            const std::string body(control->body.begin(), control->body.end());
            if (control->link % 2 == 0)
                out.push_back(core::SendControl{control->link, body});
            else if (body == large)
                answered_.insert(control->link);
        }
        changed_.notify_all();
        return core::Status::ok;
    }
    void log(Severity, std::string_view text) override {
        const std::lock_guard lock(mutex_);
        lines_.emplace_back(text);
    }

    bool wait(const std::function<bool(Machine&)>& is_true) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return is_true(*this); });
    }
    bool wait_answered(std::size_t count) {
        return wait([count](Machine& machine) { return machine.answered_.size() >= count; });
    }
    std::vector<core::Endpoint> accepted() {
        const std::lock_guard lock(mutex_);
        return accepted_;
    }
    std::size_t refused() {
        const std::lock_guard lock(mutex_);
        return refused_.size();
    }
    long lines_with(const std::string& text) {
        const std::lock_guard lock(mutex_);
        return std::count_if(lines_.begin(), lines_.end(),
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }

    // For the conditions of wait(), which holds the lock.
    bool accepted_gone(std::size_t count) const { return closed_.size() == count; }
    std::size_t refusals() const { return refused_.size(); }

    const std::string large = std::string(300'000, 'x');

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<core::LinkId> open_, refused_, closed_, answered_;
    std::vector<core::Endpoint> accepted_;
    std::vector<std::string> lines_;
};

LoopSettings settings_with(bool shared, core::Duration opening_time = 10 * core::second) {
    LoopSettings settings;
    settings.shared_memory.enabled = shared;
    settings.shared_memory.ring_bytes = 64u << 10;
    settings.shared_memory.opening_time = opening_time;
    return settings;
}

class Loop {
public:
    explicit Loop(LoopSettings settings) : loop_(std::move(settings), machine) {}
    ~Loop() { stop(); }
    void listen(std::optional<core::Endpoint> address = loopback_endpoint()) {
        std::string error;
        ListenRequest request;
        request.address = address;
        REQUIRE(loop_.listen(request, error));
    }
    void start(std::vector<core::Endpoint> targets = {}) {
        machine.targets = std::move(targets);
        std::string error;
        REQUIRE(loop_.start(error));
    }
    void stop() {
        loop_.request_stop();
        loop_.join();
    }
    std::uint16_t port() const { return loop_.port(); }
    std::uint64_t shared_bytes() {
        std::promise<std::uint64_t> answer;
        REQUIRE(loop_.post([&] { answer.set_value(loop_.shared_memory_bytes()); }));
        return answer.get_future().get();
    }

    Machine machine;

private:
    EventLoop loop_;
};

// Connects to the name beside a TCP port of 127.0.0.1.
int connect_beside(std::uint16_t port) {
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = "pccl-link-1/127.0.0.1:" + std::to_string(port);
    text.copy(name.sun_path + 1, text.size());
    REQUIRE(::connect(descriptor, reinterpret_cast<const sockaddr*>(&name),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) == 0);
    return descriptor;
}

// Waits until the other end has closed.
bool is_closed(int descriptor) {
    char bytes[256];
    pollfd one{descriptor, POLLIN, 0};
    for (;;) {
        if (::poll(&one, 1, 60'000) <= 0) return false;
        if (::recv(descriptor, bytes, sizeof bytes, 0) <= 0) return true;
    }
}

}  // namespace

TEST_CASE("loops of one host connect through shared memory, on a named address and on all") {
    for (const bool any : {false, true}) {
        INFO("any address: " << any);
        const std::size_t before = open_descriptors();
        {
            Loop server(settings_with(true));
            server.listen(any ? std::nullopt : std::optional(loopback_endpoint()));
            server.start();
            Loop client(settings_with(true));
            client.start({loopback_endpoint(server.port()), loopback_endpoint(server.port())});
            REQUIRE(client.machine.wait_answered(2));
            CHECK(client.shared_bytes() == 2 * (4096 + 2 * (64u << 10)));
            CHECK(server.shared_bytes() == client.shared_bytes());
            for (const core::Endpoint& remote : server.machine.accepted())
                CHECK(remote.address == loopback_endpoint().address);
            CHECK(server.machine.accepted().size() == 2);
            // The death of one side is seen by the other one.
            client.stop();
            CHECK(server.machine.wait([](Machine& machine) { return machine.accepted_gone(2); }));
            CHECK(server.shared_bytes() == 0);
        }
        CHECK(open_descriptors() == before);
    }
}

TEST_CASE("if one side does not offer shared memory, TCP is used, and the log has one line about it") {
    for (const bool server_offers : {false, true}) {
        INFO("server offers: " << server_offers);
        Loop server(settings_with(server_offers));
        server.listen();
        server.start();
        Loop client(settings_with(!server_offers));
        client.start({loopback_endpoint(server.port()), loopback_endpoint(server.port())});
        REQUIRE(client.machine.wait_answered(2));
        CHECK(client.shared_bytes() == 0);
        CHECK(server.shared_bytes() == 0);
        CHECK(client.machine.lines_with("is reached by TCP") == (server_offers ? 0 : 1));
    }
}

TEST_CASE("an endpoint that is for TCP only is not dialled through shared memory") {
    Loop server(settings_with(true));
    server.listen();
    server.start();
    LoopSettings settings = settings_with(true);
    settings.shared_memory.tcp_only.push_back(loopback_endpoint(server.port()));
    Loop client(settings);
    client.start({loopback_endpoint(server.port())});
    REQUIRE(client.machine.wait_answered(1));
    CHECK(client.shared_bytes() == 0);
    CHECK(client.machine.lines_with("TCP") == 0);
}

TEST_CASE("somebody else behind the name: the dial ends by TCP") {
    enum class Manner { silent, leaves, lies };
    for (const Manner manner : {Manner::silent, Manner::leaves, Manner::lies}) {
        INFO("manner " << static_cast<int>(manner));
        Loop server(settings_with(false));
        server.listen();
        server.start();
        std::string error;
        const int squatter = shared_listen(loopback_endpoint(server.port()), error);
        REQUIRE(squatter >= 0);
        Loop client(settings_with(true, manner == Manner::silent ? 50 * core::millisecond : 60 * core::second));
        client.start({loopback_endpoint(server.port())});
        wait_until(squatter, POLLIN);
        const int caught = shared_accept(squatter);
        if (manner == Manner::leaves) close_socket(caught);
        if (manner == Manner::lies) {
            const std::string lie(24, 'l');
            REQUIRE(::send(caught, lie.data(), lie.size(), MSG_NOSIGNAL) == 24);
        }
        CHECK(client.machine.wait_answered(1));
        CHECK(client.shared_bytes() == 0);
        CHECK(client.machine.refused() == 0);
        client.stop();
        if (manner != Manner::leaves) close_socket(caught);
        close_socket(squatter);
    }
}

TEST_CASE("nobody listens: the dial is refused once") {
    Loop client(settings_with(true));
    std::uint16_t port = 0;
    {
        Loop server(settings_with(true));
        server.listen();
        port = server.port();
    }
    client.start({loopback_endpoint(port)});
    CHECK(client.machine.wait([](Machine& machine) { return machine.refusals() == 1; }));
}

TEST_CASE("strangers behind the name hold few descriptors and keep nobody out") {
    Loop server(settings_with(true, 3600 * core::second));  // none is closed because of its age
    server.listen();
    server.start();
    const std::size_t before = open_descriptors();
    constexpr std::size_t count = 200;
    std::vector<int> strangers;
    for (std::size_t i = 0; i < count; ++i) {
        strangers.push_back(connect_beside(server.port()));
        if (i >= 100) REQUIRE(is_closed(strangers[i - 100]));  // the oldest gave way
    }
    CHECK(open_descriptors() <= before + count + 110);
    Loop client(settings_with(true));
    client.start({loopback_endpoint(server.port())});
    CHECK(client.machine.wait_answered(1));
    CHECK(client.shared_bytes() > 0);
    for (const int stranger : strangers) ::close(stranger);
}

TEST_CASE("a stranger that says nothing is closed after a time") {
    Loop server(settings_with(true, 50 * core::millisecond));
    server.listen();
    server.start();
    const int stranger = connect_beside(server.port());
    CHECK(is_closed(stranger));
    CHECK(server.machine.accepted().empty());
    ::close(stranger);
}

TEST_CASE("a dialler that gives an address of another host is refused") {
    Loop server(settings_with(true));
    server.listen();
    server.start();
    core::Endpoint elsewhere;
    const std::uint8_t documentation[] = {192, 0, 2, 1};
    std::copy(std::begin(documentation), std::end(documentation), elsewhere.address.begin());
    SharedMemoryUse use{0, std::uint64_t{1} << 30};
    SharedStream::Failure failure;
    const auto stream = SharedStream::dial(loopback_endpoint(server.port()), elsewhere, 64u << 10, use, failure);
    REQUIRE(stream != nullptr);
    std::string reason;
    REQUIRE(finish_opening(*stream, reason) == Stream::Opening::open);
    CHECK(is_closed(stream->descriptor()));
    CHECK(server.machine.accepted().empty());
}
