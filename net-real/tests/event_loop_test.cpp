// The loop with a machine of the test: how it treats an end that does not read.
#include "net-real/event_loop.hpp"

#include "core/wire/frame.hpp"
#include "net-real/calls.hpp"
#include "net-real/tests/quiet_client.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <netinet/in.h>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

thread_local bool has_memory = true;

}  // namespace

// Memory that ends when a test says so.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
    void* const memory = has_memory ? std::malloc(bytes) : nullptr;
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr std::size_t answer_bytes = 1u << 20;

// Answers each control frame with a large one. Counts its answers until the link is lost.
class Generous : public QuietClient {
public:
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        if (const auto* control = std::get_if<core::ControlArrived>(&event)) {
            out.push_back(core::SendControl{control->link, std::string(answer_bytes, 'a')});
            ++answers;
        } else if (const auto* closed = std::get_if<core::LinkClosed>(&event)) {
            const std::lock_guard lock(mutex);
            reason = closed->reason;
            changed.notify_all();
        }
        return core::Status::ok;
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::string reason;
    std::size_t answers = 0;  // read when the link is lost
};

// Waits until so many control frames have come, then answers all of them and closes their links.
class Refuser : public Generous {
public:
    explicit Refuser(std::size_t together) : together_(together) {}
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        if (const auto* control = std::get_if<core::ControlArrived>(&event)) asked_.push_back(control->link);
        if (asked_.size() < together_) return core::Status::ok;
        for (const core::LinkId link : std::exchange(asked_, {})) {
            out.push_back(core::SendControl{link, "no"});
            out.push_back(core::CloseLink{link, true});
        }
        return core::Status::ok;
    }

private:
    const std::size_t together_;
    std::vector<core::LinkId> asked_;
};

std::size_t descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

int connect_to(std::uint16_t port) {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return descriptor;
}

// A loop that listens, with a low limit for ends that are closed.
class Closing {
public:
    explicit Closing(std::size_t together) : machine_(together), loop_(few_ends(), machine_) {
        std::string error;
        ListenRequest request;
        request.address = core::Endpoint{};
        REQUIRE(loop_.listen(request, error));
        REQUIRE(loop_.start(error));
    }
    ~Closing() {
        loop_.request_stop();
        loop_.join();
    }
    int dial_and_ask() {
        const int descriptor = connect_to(loop_.port());
        std::string frame;
        core::wire::append_control(frame, std::array<std::uint8_t, 1>{'q'});
        REQUIRE(::send(descriptor, frame.data(), frame.size(), MSG_NOSIGNAL) > 0);
        return descriptor;
    }
    static bool gets_answer(int descriptor) {
        char byte = 0;
        return ::recv(descriptor, &byte, 1, 0) == 1;
    }

private:
    static LoopSettings few_ends() {
        LoopSettings settings;
        settings.limits.unregistered_links_max = 8;
        return settings;
    }
    Refuser machine_;
    EventLoop loop_;
};

}  // namespace

TEST_CASE("an end that asks and does not read is lost when the queue of answers is full") {
    Generous client;
    EventLoop loop(LoopSettings{}, client);
    std::string error;
    ListenRequest request;
    request.address = core::Endpoint{};
    REQUIRE(loop.listen(request, error));
    REQUIRE(loop.start(error));
    const int stranger = connect_to(loop.port());
    std::string frames;
    const std::array<std::uint8_t, 1> body{'q'};
    for (int i = 0; i < 1000; ++i) core::wire::append_control(frames, body);
    // The other end may be gone before all of it is sent.
    static_cast<void>(::send(stranger, frames.data(), frames.size(), MSG_NOSIGNAL));
    {
        std::unique_lock lock(client.mutex);
        client.changed.wait_for(lock, std::chrono::seconds(60), [&] { return !client.reason.empty(); });
        CHECK(client.reason == "the other end does not read");
        // At most what the socket took, and 64 MiB in the queue.
        CHECK(client.answers < 200);
    }
    ::close(stranger);
    loop.request_stop();
    loop.join();
}

TEST_CASE("ends that are refused and do not close hold no more descriptors than ends that say nothing") {
    Closing run(1);
    const std::size_t before = descriptors();
    constexpr std::size_t count = 60;
    std::vector<int> strangers;
    for (std::size_t i = 0; i < count; ++i) {
        strangers.push_back(run.dial_and_ask());
        REQUIRE(run.gets_answer(strangers.back()));  // however many came before
    }
    CHECK(descriptors() <= before + count + 8);
    for (const int stranger : strangers) ::close(stranger);
}

TEST_CASE("all ends that are closed at once get what was said to them last") {
    constexpr std::size_t count = 60;
    Closing run(count);
    std::vector<int> members;
    for (std::size_t i = 0; i < count; ++i) members.push_back(run.dial_and_ask());
    for (const int member : members) {
        CHECK(run.gets_answer(member));
        ::close(member);
    }
}

TEST_CASE("a loop stops although the thread that stops it has no memory") {
    Generous client;
    EventLoop loop(LoopSettings{}, client);
    std::string error;
    REQUIRE(loop.start(error));
    has_memory = false;
    try {
        loop.request_stop();
    } catch (const std::bad_alloc&) {
    }
    has_memory = true;
    loop.request_stop();
    loop.join();  // does not return if nothing has reached the loop
    CHECK_FALSE(loop.post([] {}));
}

TEST_CASE("each call fails when the communicator is lost, also behind one whose continuation throws") {
    Calls calls;
    std::vector<Calls::CallRef> waiting;
    int continued = 0;
    for (int i = 0; i < 8; ++i) {
        core::Command command = core::CommandArePeersPending{};
        waiting.push_back(calls.open(command, std::nullopt, [&](const core::Completion&) {
            ++continued;
            throw std::runtime_error("a continuation");
        }));
    }
    core::Completion lost;
    lost.result = core::Result::internal_error;
    CHECK_NOTHROW(calls.fail_all(lost));
    CHECK(continued == 8);
    for (const auto& call : waiting) CHECK(Calls::wait(*call, core::Duration{0}));
}
