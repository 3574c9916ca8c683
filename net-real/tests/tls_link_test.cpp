// Loops that connect by TLS: each end learns who the other one is, and a dial reaches only the one that it names.
#include "net-real/event_loop.hpp"

#include "net-real/line_budget.hpp"
#include "net-real/tests/quiet_client.hpp"
#include "net-real/tests/stream_pairs.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

// Dials, echoes control frames of accepted links, and keeps what happens.
class Machine final : public QuietClient {
public:
    std::vector<core::OpenLink> dials;
    std::vector<core::OpenLink> dials_after_answer;  // made when the first answer has come

    void start(core::Instant, core::Effects& out) override {
        for (const core::OpenLink& dial : dials) out.push_back(dial);
    }
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        const std::lock_guard lock(mutex_);
        if (const auto* opened = std::get_if<core::LinkOpened>(&event)) {
            out.push_back(core::SendControl{opened->link, body});
        } else if (const auto* refused = std::get_if<core::LinkRefused>(&event)) {
            refused_[refused->link] = refused->reason;
        } else if (const auto* accepted = std::get_if<core::LinkAccepted>(&event)) {
            callers_.push_back(accepted->identity);
        } else if (const auto* control = std::get_if<core::ControlArrived>(&event)) {
            if (control->link % 2 == 1) {
                for (const core::OpenLink& dial : std::exchange(dials_after_answer, {})) out.push_back(dial);
            }
            const std::string arrived(control->body.begin(), control->body.end());
            if (control->link % 2 == 0)
                out.push_back(core::SendControl{control->link, arrived});
            else if (arrived == body)
                ++answers_;
        }
        changed_.notify_all();
        return core::Status::ok;
    }

    bool wait(const std::function<bool()>& is_true) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(60), is_true);
    }
    bool wait_answer(int count = 1) {
        return wait([this, count] { return answers_ >= count; });
    }
    // Why the dial of this link was refused.
    std::string wait_refusal(core::LinkId link) {
        wait([&] { return refused_.contains(link); });
        const std::lock_guard lock(mutex_);
        return refused_[link];
    }
    std::vector<core::Uuid> callers() {
        const std::lock_guard lock(mutex_);
        return callers_;
    }

    void log(Severity severity, std::string_view) override {
        if (severity == Severity::warn) ++warnings;
    }
    std::atomic<int> warnings{0};
    const std::string body = std::string(300'000, 'x');

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<core::LinkId, std::string> refused_;
    std::vector<core::Uuid> callers_;
    int answers_ = 0;
};

class Loop {
public:
    explicit Loop(std::shared_ptr<const tls::Context> context) : loop_(LoopSettings{}, machine) {
        loop_.set_tls({std::move(context), true, true, {}});
    }
    ~Loop() {
        loop_.request_stop();
        loop_.join();
    }
    std::uint16_t listen() {
        std::string error;
        ListenRequest request;
        request.address = loopback_endpoint();
        REQUIRE(loop_.listen(request, error));
        start();
        return loop_.port();
    }
    void start() {
        std::string error;
        REQUIRE(loop_.start(error));
    }
    Machine machine;

private:
    EventLoop loop_;
};

}  // namespace

TEST_CASE("a TLS link opens to the peer that the dial names, and the accepting machine learns who dialled") {
    const TlsRun run;
    Loop target(run.peer(1)), dialler(run.peer(2));
    const std::uint16_t port = target.listen();
    dialler.machine.dials = {{1, loopback_endpoint(port), test_uuid(1)}};
    dialler.start();
    CHECK(dialler.machine.wait_answer());
    CHECK(target.machine.callers() == std::vector<core::Uuid>{test_uuid(2)});
}

TEST_CASE("further connections with a peer use its ticket, and both ends know each other as before") {
    const TlsRun run;
    const auto at_target = run.peer(1);
    Loop target(at_target), dialler(run.peer(2));
    const std::uint16_t port = target.listen();
    dialler.machine.dials = {{1, loopback_endpoint(port), test_uuid(1)}};
    for (core::LinkId link = 3; link < 17; link += 2)
        dialler.machine.dials_after_answer.push_back({link, loopback_endpoint(port), test_uuid(1)});
    dialler.start();
    CHECK(dialler.machine.wait_answer(8));
    CHECK(at_target->accepted().all == 8);
    CHECK(at_target->accepted().resumed == 7);
    CHECK(target.machine.callers() == std::vector<core::Uuid>(8, test_uuid(2)));
}

TEST_CASE("a dial that reaches another peer, the master, or another run is refused") {
    const TlsRun run, other;
    Loop peer(run.peer(1)), foreign(other.peer(1)), dialler(run.peer(2)), master(run.master());
    const std::uint16_t peer_port = peer.listen(), foreign_port = foreign.listen(), master_port = master.listen();
    dialler.machine.dials = {{1, loopback_endpoint(peer_port), test_uuid(3)},
                             {3, loopback_endpoint(peer_port), {}},  // the master is expected
                             {5, loopback_endpoint(foreign_port), test_uuid(1)},
                             {7, loopback_endpoint(master_port), test_uuid(1)},
                             {9, loopback_endpoint(master_port), {}}};
    dialler.start();
    CHECK(dialler.machine.wait_refusal(1).find("does not name peer") != std::string::npos);
    CHECK(dialler.machine.wait_refusal(3).find("does not name the master") != std::string::npos);
    CHECK(dialler.machine.wait_refusal(5).find("authority of another run") != std::string::npos);
    CHECK(dialler.machine.wait_refusal(7).find("does not name peer") != std::string::npos);
    CHECK(dialler.machine.wait_answer());  // of the master
    CHECK(foreign.machine.callers().empty());
}

TEST_CASE("strangers that connect and say nothing give way, and do not keep peers out") {
    const TlsRun run;
    Loop target(run.peer(1)), dialler(run.peer(2));
    const std::uint16_t port = target.listen();
    std::vector<int> strangers;
    std::string error;
    for (int i = 0; i < 300; ++i) {
        const int one = dial(loopback_endpoint(port), std::nullopt, error);
        REQUIRE(one >= 0);
        strangers.push_back(one);
    }
    dialler.machine.dials = {{1, loopback_endpoint(port), test_uuid(1)}};
    dialler.start();
    CHECK(dialler.machine.wait_answer());
    CHECK(target.machine.callers().size() == 1);  // the machine has never heard of the others
    // The oldest ones were closed: at most 256 are kept.
    pollfd first{strangers.front(), POLLIN, 0};
    CHECK(::poll(&first, 1, 60'000) == 1);
    for (const int one : strangers) close_socket(one);
}

TEST_CASE("strangers from many addresses do not fill the log") {
    const TlsRun run;
    Loop target(run.master());
    const std::uint16_t port = target.listen();
    constexpr int strangers = 200;
    std::string error;
    for (int i = 0; i < strangers; ++i) {
        core::Endpoint source = loopback_endpoint();
        source.address[3] = static_cast<std::uint8_t>(2 + i);  // 127.0.0.2 and so on
        const int one = dial(loopback_endpoint(port), source, error);
        REQUIRE(one >= 0);
        wait_until(one, POLLOUT);
        REQUIRE(::send(one, "no TLS, and no frame either", 27, MSG_NOSIGNAL) == 27);
        char answer[256];
        do {
            wait_until(one, POLLIN);
        } while (::recv(one, answer, sizeof answer, 0) > 0);
        close_socket(one);
    }
    CHECK(target.machine.warnings > 0);
    CHECK(target.machine.warnings < strangers);
}

TEST_CASE("a budget of lines counts what is beyond it, and each window has its own") {
    constexpr core::Instant begin = 100 * core::second;
    LineBudget budget;
    for (int i = 0; i < LineBudget::lines_max; ++i) CHECK(budget.take(begin + i));
    CHECK(budget.due() == core::never);
    for (int i = 0; i < 5; ++i) CHECK_FALSE(budget.take(begin + core::second));
    CHECK(budget.due() == begin + LineBudget::window);
    CHECK(budget.collect(begin + LineBudget::window - 1) == 0);
    CHECK_FALSE(budget.take(begin + LineBudget::window));  // the count before it comes first
    CHECK(budget.collect(begin + LineBudget::window) == 6);
    CHECK(budget.due() == core::never);
    CHECK(budget.collect(begin + 2 * LineBudget::window) == 0);
    for (int i = 0; i < LineBudget::lines_max; ++i) CHECK(budget.take(begin + LineBudget::window));
    CHECK_FALSE(budget.take(begin + LineBudget::window));
    CHECK(budget.collect(begin + 2 * LineBudget::window) == 1);
    CHECK(budget.take(begin + 2 * LineBudget::window));
}
