// An I/O thread without memory: it ends with a reason, and everybody who waits for it returns.
#include "net-real/callback_thread.hpp"
#include "net-real/calls.hpp"
#include "net-real/log.hpp"
#include "net-real/master_runtime.hpp"
#include "net-real/peer_runtime.hpp"
#include "net-real/settings.hpp"
#include "net-real/tests/quiet_client.hpp"
#include "net-real/tests/scarce_memory.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr std::chrono::seconds hang_guard{60};

// More than any end of a thread needs.
constexpr long allocations_max = 40;

// Keeps the reason of the end.
class Ending : public QuietClient {
public:
    core::Status handle(core::Instant, const core::Event&, core::Effects&) override { return core::Status::ok; }
    void ended(const std::string& why) override {
        end_scarcity();
        reason = why;
    }
    std::string reason;  // read after join()
};

// Hashes much at its start, which is a task for the workers, while memory is scarce.
class Hashing : public Ending {
public:
    explicit Hashing(long successes) : successes_(successes), data_(1u << 20) {}
    void start(core::Instant, core::Effects& out) override {
        core::Compute hash;
        hash.kind = core::Compute::Kind::hash;
        hash.a = {buffer, 0, data_.size()};
        out.emplace_back(hash);
        fail_allocations(successes_, 1);
    }
    core::Status handle(core::Instant, const core::Event&, core::Effects&) override { return core::Status::ok; }
    std::vector<std::uint8_t>& data() { return data_; }
    core::BufferId buffer = 0;

private:
    const long successes_;
    std::vector<std::uint8_t> data_;
};

// Asks for a copy, and fails before the loop carries it out.
class Failing : public Ending {
public:
    void start(core::Instant, core::Effects& out) override {
        core::Compute copy;
        copy.a = {buffer, 0, 1};
        copy.target = {buffer, 1, 1};
        out.emplace_back(copy);
        throw std::bad_alloc();
    }
    std::vector<std::uint8_t> data{7, 0};
    core::BufferId buffer = 0;
};

// A master that accepts connections and never answers.
class SilentMaster {
public:
    SilentMaster() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(socket_, 16) == 0);
        REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        REQUIRE(parse_endpoint("127.0.0.1", endpoint_));
        endpoint_.port = ntohs(address.sin_port);
    }
    ~SilentMaster() { ::close(socket_); }
    SilentMaster(const SilentMaster&) = delete;
    SilentMaster& operator=(const SilentMaster&) = delete;
    const core::Endpoint& endpoint() const { return endpoint_; }

private:
    const int socket_;
    core::Endpoint endpoint_;
};

}  // namespace

TEST_CASE("what a client asked to compute is done before it hears that its loop failed") {
    Failing client;
    EventLoop loop(LoopSettings{}, client);
    client.buffer = loop.buffers().register_buffer(client.data.data(), client.data.size());
    std::string error;
    REQUIRE(loop.start(error));
    loop.join();
    CHECK_FALSE(client.reason.empty());
    CHECK(client.data == std::vector<std::uint8_t>{7, 7});
}

TEST_CASE("a loop that fails has a reason, however little memory there is") {
    for (const long failures : {1L, 2L, all_further}) {
        Ending client;
        EventLoop loop(LoopSettings{}, client);
        std::string error;
        REQUIRE(loop.start(error));
        loop.post([&] {
            fail_allocations(0, failures);
            throw std::bad_alloc();
        });
        loop.join();
        CHECK(client.reason == "out of memory");
    }
}

TEST_CASE("the tasks behind one that throws are dropped with the loop") {
    Ending client;
    EventLoop loop(LoopSettings{}, client);
    auto answer = std::make_shared<std::promise<void>>();
    std::future<void> answered = answer->get_future();
    // Posted before the start, so that both are in one batch.
    loop.post([] { throw std::runtime_error("a task"); });
    loop.post([answer] { answer->set_value(); });
    answer.reset();
    std::string error;
    REQUIRE(loop.start(error));
    REQUIRE(answered.wait_for(hang_guard) == std::future_status::ready);
    CHECK_THROWS_AS(answered.get(), std::future_error);
    loop.join();
    CHECK(client.reason == "the I/O thread failed: a task");
}

TEST_CASE("a task that the workers did not get is not waited for") {
    bool completes = false;
    for (long successes = 0; !completes && successes < allocations_max; ++successes) {
        INFO(successes << " allocations succeed");
        Hashing client(successes);
        EventLoop loop(LoopSettings{}, client);
        client.buffer = loop.buffers().register_buffer(client.data().data(), client.data().size());
        std::string error;
        REQUIRE(loop.start(error));
        loop.post([] { end_scarcity(); });
        loop.request_stop();
        loop.join();
        CHECK_FALSE(loop.computes());
        completes = client.reason.empty();
    }
    CHECK(completes);
}

TEST_CASE("a second command keeps its caller, although there is no memory") {
    Calls calls;
    core::Command command = core::CommandArePeersPending{};
    const Calls::CallRef call = calls.open(command, core::CommandAwait{});
    const core::Ticket ticket = std::get<core::CommandArePeersPending>(command).ticket;
    std::optional<core::Command> second;
    fail_allocations(0);
    try {
        second = calls.complete(ticket, {});
    } catch (const std::bad_alloc&) {
    }
    end_scarcity();
    CHECK(second.has_value());
    core::Completion lost;
    lost.result = core::Result::internal_error;
    calls.fail_all(lost);
    CHECK(Calls::wait(*call, core::Duration{0}));
}

TEST_CASE("a prepared callback needs no memory") {
    CallbackThread thread;
    thread.start();
    std::promise<void> called;
    CallbackThread::Prepared callback = CallbackThread::prepare([&] { called.set_value(); });
    fail_allocations(0);
    thread.push(std::move(callback));
    end_scarcity();
    CHECK(called.get_future().wait_for(hang_guard) == std::future_status::ready);
}

TEST_CASE("a call returns when the I/O thread fails, whichever allocation fails after that") {
    const SilentMaster master;
    set_log_threshold(Severity::err);
    for (const long failures : {1L, all_further}) {
        for (long successes = 0; successes < allocations_max; ++successes) {
            INFO(successes << " allocations succeed, then fail: " << failures);
            PeerSettings settings;
            settings.master = master.endpoint();
            settings.port_first = settings.port_last = 0;
            settings.name = "a name that does not fit into a short string";
            settings.log = [](Severity, const std::string&) {};
            PeerRuntime peer(settings);
            std::string error;
            REQUIRE(peer.start(error));
            std::promise<core::Completion> promise;
            std::future<core::Completion> returned = promise.get_future();
            std::thread caller([&] {
                promise.set_value(peer.connect([=]() -> bool {  // called by the I/O thread
                    fail_allocations(successes, failures);
                    throw std::bad_alloc();
                }));
            });
            CHECK(returned.wait_for(hang_guard) == std::future_status::ready);
            peer.stop();
            caller.join();
            CHECK(returned.get().result == core::Result::internal_error);
        }
    }
    set_log_threshold(Severity::warn);
}

TEST_CASE("a master that fails has ended, whichever allocation fails after that") {
    set_log_threshold(Severity::err);
    for (const long failures : {1L, all_further}) {
        for (long successes = 0; successes < allocations_max; ++successes) {
            INFO(successes << " allocations succeed, then fail: " << failures);
            MasterSettings settings;
            settings.log = [](Severity, const std::string&) {};
            auto master = std::make_shared<MasterRuntime>(settings);
            core::Endpoint loopback;
            REQUIRE(parse_endpoint("127.0.0.1", loopback));
            std::string error;
            REQUIRE(master->bind(loopback, error));
            REQUIRE(master->run(error));
            boost::asio::post(master->context(), [=] {
                fail_allocations(successes, failures);
                throw std::bad_alloc();
            });
            auto promise = std::make_shared<std::promise<void>>();
            std::future<void> ended = promise->get_future();
            // Not joined: in a test that fails it waits for ever, and keeps the master.
            std::thread([master, promise] {
                master->await_termination();
                promise->set_value();
            }).detach();
            REQUIRE(ended.wait_for(hang_guard) == std::future_status::ready);
            CHECK(master->failed());
        }
    }
    set_log_threshold(Severity::warn);
}
