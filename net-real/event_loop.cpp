#include "net-real/event_loop.hpp"

#include "core/base/assert.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/link.hpp"
#include "net-real/workers.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <sys/socket.h>
#include <thread>
#include <unordered_map>
#include <vector>

namespace pccl::real {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;

namespace {

// What one link may do before the others and the timers have their turn.
constexpr std::size_t receive_budget_bytes = 512u << 10;
constexpr std::size_t send_budget_bytes = 1u << 20;
// Computes done at once on the loop's thread: a slice that has just landed is in the cache here and nowhere else.
constexpr std::uint64_t inline_compute_bytes = 1u << 20;
constexpr std::uint64_t inline_hash_bytes = 64u << 10;
constexpr std::uint64_t inline_turn_bytes = 8u << 20;
constexpr std::size_t queued_control_bytes_max = 64u << 20;
constexpr int stripe_unsent_bytes = 512 << 10;
constexpr int accepts_per_turn = 64;

constexpr core::Duration activity_interval = 50 * core::millisecond;
constexpr core::Duration flush_time = 1 * core::second;
constexpr core::Duration accept_pause = 100 * core::millisecond;

core::ComputeDone run_compute(const core::Compute& compute, std::uint8_t* target, const std::uint8_t* a,
                              const std::uint8_t* b) {
    core::ComputeDone done{compute.id, 0, {}};
    switch (compute.kind) {
        case core::Compute::Kind::reduce:
            core::numeric::reduce(compute.type, compute.op, target, a, b,
                                  compute.target.length / core::element_bytes(compute.type), compute.divisor);
            break;
        case core::Compute::Kind::copy:
            if (compute.a.length > 0 && target != a) std::memmove(target, a, compute.a.length);
            break;
        case core::Compute::Kind::hash:
            done.hash = core::numeric::hash128(a, compute.a.length);
            return done;
    }
    if (compute.want_checksum) done.checksum = core::numeric::checksum64(target, compute.target.length);
    return done;
}

}  // namespace

class EventLoop::Impl final : public EventSink {
  public:
    Impl(LoopSettings settings, LoopClient& client);
    ~Impl();

    bool listen(const ListenRequest& request, std::string& error);
    bool start(std::string& error);
    bool post(std::function<void()> task);
    void request_stop();
    void join();
    void deliver(core::Event event) { pending_.push_back(std::move(event)); }
    void on_event(const core::Event& event) override;

    BufferTable buffers;
    std::uint16_t port = 0;

  private:
    enum class State : std::uint8_t { dialing, open, flushing, draining, closed };
    struct Connection {
        Connection(asio::io_context& context, core::LinkId id, int descriptor, const core::Limits& limits)
            : watch(context, descriptor), descriptor(descriptor), link(id, descriptor, limits) {}
        stream_descriptor watch;
        int descriptor;
        Link link;
        State state = State::open;
        bool read_armed = false;
        bool write_armed = false;
        bool dirty = false;           // in dirty_
        bool unsent_limited = false;
        bool activity_due = false;
        std::uint64_t send_turn = 0;  // the turn that `sent_bytes` belongs to
        std::size_t sent_bytes = 0;
        core::Instant noticed = 0;    // when the machine last heard of the link
        core::Instant close_at = core::never;
    };
    using ConnectionRef = std::shared_ptr<Connection>;

    // thread
    void thread_main();
    void run();
    void tear_down() noexcept;
    core::Instant own_deadline() const;
    void own_timers(core::Instant now);
    void run_posted();
    void begin_stop();

    // turns
    void begin_turn();
    void finish_turn();
    void handle_pending();
    void handle_one(const core::Event& event);
    void carry_out(core::Effect& effect);
    void compute(const core::Compute& effect);

    // links
    Connection* find(core::LinkId id);
    ConnectionRef make_connection(core::LinkId id, int descriptor);
    void open_link(const core::OpenLink& effect);
    void close_link(const core::CloseLink& effect);
    void shut_connection(const ConnectionRef& connection, bool flush);
    void destroy(const ConnectionRef& connection);
    void lose(const ConnectionRef& connection, const std::string& reason);
    void mark_dirty(Connection& connection);
    void arm_read(const ConnectionRef& connection);
    void arm_write(const ConnectionRef& connection);
    void on_readable(const ConnectionRef& connection);
    void on_writable(const ConnectionRef& connection);
    void receive_from(const ConnectionRef& connection);
    void drop_input(const ConnectionRef& connection);
    void pump(const ConnectionRef& connection);
    void arm_accept();
    void on_acceptable();

    LoopSettings settings_;
    LoopClient& client_;
    asio::io_context context_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
    stream_descriptor listener_watch_{context_};
    int listener_ = -1;
    core::Instant accept_resume_ = core::never;
    bool accept_armed_ = false;
    std::thread thread_;

    std::mutex posted_mutex_;
    std::vector<std::function<void()>> posted_;
    std::vector<std::function<void()>> posted_now_;
    bool ended_ = false;
    bool stop_requested_ = false;

    std::unordered_map<core::LinkId, ConnectionRef> links_;  // what the machine knows
    std::vector<ConnectionRef> closing_;                     // what it has closed and is still flushed
    core::LinkId next_link_ = 2;
    std::deque<ConnectionRef> dirty_;
    std::deque<core::Event> pending_;
    std::vector<core::Event> sent_events_;
    core::Effects effects_;
    ReceiveSpace space_;
    Workers workers_;
    std::uint64_t turn_ = 0;
    std::uint64_t inline_bytes_ = 0;
    bool in_handle_ = false;
    bool stopping_ = false;
    bool finished_ = false;
    core::Instant stop_at_ = core::never;
    std::string halt_reason_;
};

// ---- life --------------------------------------------------------------------------------------------------------

EventLoop::Impl::Impl(LoopSettings settings, LoopClient& client) : settings_(std::move(settings)), client_(client) {
    descriptors::install();
}

EventLoop::Impl::~Impl() {
    request_stop();
    join();
    tear_down();
}

bool EventLoop::Impl::listen(const ListenRequest& request, std::string& error) {
    if (listener_ >= 0) {
        error = "listening already";
        return false;
    }
    listener_ = listen_on(request, port, error);
    return listener_ >= 0;
}

bool EventLoop::Impl::start(std::string& error) {
    try {
        if (listener_ >= 0) listener_watch_.assign(listener_);
        const SignalsBlocked blocked;
        thread_ = std::thread([this] { thread_main(); });
        return true;
    } catch (const std::exception& failure) {
        if (listener_watch_.is_open()) listener_watch_.release();
        error = std::string("cannot start the I/O thread: ") + failure.what();
        return false;
    }
}

bool EventLoop::Impl::post(std::function<void()> task) {
    bool was_empty = false;
    {
        const std::lock_guard lock(posted_mutex_);
        if (ended_) return false;
        was_empty = posted_.empty();
        posted_.push_back(std::move(task));
    }
    if (was_empty) asio::post(context_, [this] { run_posted(); });
    return true;
}

void EventLoop::Impl::request_stop() {
    {
        const std::lock_guard lock(posted_mutex_);
        if (stop_requested_) return;
        stop_requested_ = true;
    }
    post([this] { begin_stop(); });
}

void EventLoop::Impl::join() {
    if (thread_.joinable()) thread_.join();
}

void EventLoop::Impl::thread_main() {
    name_this_thread(settings_.thread_name);
    std::string reason;
    try {
        run();
        reason = halt_reason_;
    } catch (const std::exception& failure) {
        reason = std::string("the I/O thread failed: ") + failure.what();
    } catch (...) {
        reason = "the I/O thread failed";
    }
    tear_down();
    {
        const std::lock_guard lock(posted_mutex_);
        ended_ = true;
        posted_.clear();
    }
    try {
        client_.ended(reason);
    } catch (...) {
        // Out of memory while saying so: nothing is left to do.
    }
}

void EventLoop::Impl::tear_down() noexcept {
    workers_.finish();
    dirty_.clear();
    for (auto& [id, connection] : links_) destroy(connection);
    links_.clear();
    for (auto& connection : closing_) destroy(connection);
    closing_.clear();
    if (listener_watch_.is_open()) listener_watch_.release();
    close_socket(listener_);
    listener_ = -1;
}

void EventLoop::Impl::run() {
    begin_turn();
    client_.start(now(), effects_);
    for (auto& effect : effects_) carry_out(effect);
    effects_.clear();
    finish_turn();
    arm_accept();
    while (!finished_) {
        core::Instant at = now();
        const core::Instant deadline = std::min(stopping_ ? core::never : client_.next_deadline(), own_deadline());
        if (deadline > at) {
            const core::Instant until = std::min(deadline, at + 3600 * core::second);
            context_.run_one_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)));
            at = now();
        }
        if (own_deadline() <= at) own_timers(at);
        if (!stopping_ && client_.next_deadline() <= at) {
            // What has come before the deadline was seen must be heard before it is judged.
            const std::size_t bound = 2 * links_.size() + 16;
            for (std::size_t i = 0; i < bound && context_.poll_one() > 0; ++i) {}
            if (stopping_) continue;
            begin_turn();
            handle_one(core::Timer{});
            finish_turn();
        }
    }
}

core::Instant EventLoop::Impl::own_deadline() const {
    core::Instant earliest = std::min({accept_resume_, stop_at_, buffers.next_trim()});
    for (const auto& connection : closing_) earliest = std::min(earliest, connection->close_at);
    return earliest;
}

void EventLoop::Impl::own_timers(core::Instant at) {
    if (accept_resume_ <= at) {
        accept_resume_ = core::never;
        arm_accept();
    }
    for (std::size_t i = 0; i < closing_.size();) {
        if (closing_[i]->close_at > at) {
            ++i;
            continue;
        }
        const ConnectionRef connection = closing_[i];
        destroy(connection);
        std::erase(closing_, connection);
    }
    if (buffers.next_trim() <= at) buffers.trim(at);
    if (stop_at_ <= at || (stopping_ && closing_.empty())) finished_ = true;
}

void EventLoop::Impl::run_posted() {
    begin_turn();
    {
        const std::lock_guard lock(posted_mutex_);
        posted_now_.swap(posted_);
    }
    for (auto& task : posted_now_) {
        task();
        handle_pending();
    }
    posted_now_.clear();
    finish_turn();
}

void EventLoop::Impl::begin_stop() {
    if (stopping_) return;
    core::Effects effects;
    client_.shut_down(now(), effects);
    for (auto& effect : effects) carry_out(effect);
    handle_pending();
    stopping_ = true;
    stop_at_ = now() + flush_time;
    std::vector<ConnectionRef> open;
    for (auto& [id, connection] : links_) open.push_back(connection);
    links_.clear();
    for (auto& connection : open) shut_connection(connection, connection->state == State::open);
    if (listener_watch_.is_open()) listener_watch_.release();
    close_socket(listener_);
    listener_ = -1;
    accept_resume_ = core::never;
    if (closing_.empty()) finished_ = true;
}

// ---- turns -------------------------------------------------------------------------------------------------------

void EventLoop::Impl::begin_turn() {
    ++turn_;
    inline_bytes_ = 0;
}

void EventLoop::Impl::on_event(const core::Event& event) {
    handle_one(event);
    handle_pending();
}

void EventLoop::Impl::handle_one(const core::Event& event) {
    if (stopping_) return;
    ASSERT(!in_handle_);
    in_handle_ = true;
    const core::Status status = client_.handle(now(), event, effects_);
    in_handle_ = false;
    ASSERT(status == core::Status::ok);
    for (auto& effect : effects_) carry_out(effect);
    effects_.clear();
}

void EventLoop::Impl::handle_pending() {
    while (!pending_.empty()) {
        const core::Event event = std::move(pending_.front());
        pending_.pop_front();
        handle_one(event);
    }
}

void EventLoop::Impl::finish_turn() {
    for (;;) {
        handle_pending();
        if (dirty_.empty()) break;
        const ConnectionRef connection = std::move(dirty_.front());
        dirty_.pop_front();
        connection->dirty = false;
        pump(connection);
    }
    if (!halt_reason_.empty()) finished_ = true;
}

namespace {

template <class... Handlers>
struct Overload : Handlers... {
    using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

}  // namespace

void EventLoop::Impl::carry_out(core::Effect& effect) {
    if (!halt_reason_.empty()) return;
    std::visit(
        Overload{
            [&](const core::OpenLink& e) { open_link(e); },
            [&](const core::CloseLink& e) { close_link(e); },
            [&](const core::SendControl& e) {
                Connection* connection = find(e.link);
                if (connection == nullptr) return;
                connection->link.queue_control(e.body);
                mark_dirty(*connection);
            },
            [&](const core::SendFlow& e) {
                Connection* connection = find(e.link);
                if (connection == nullptr) return;
                connection->link.queue_flow(e.word);
                mark_dirty(*connection);
            },
            [&](const core::SendPayload& e) {
                Connection* connection = find(e.link);
                if (connection == nullptr) return;
                if (!connection->unsent_limited) {
                    connection->unsent_limited = true;
                    limit_unsent(connection->descriptor, stripe_unsent_bytes);
                }
                connection->link.send_payload(e, buffers.resolve(e.source));
                mark_dirty(*connection);
            },
            [&](const core::CancelSend& e) {
                Connection* connection = find(e.link);
                // The frame may have left already, its PayloadSent is then the next event.
                if (connection == nullptr || !connection->link.is_sending()) return;
                if (connection->link.cancel_send()) pending_.push_back(core::PayloadSent{e.link, 0, true});
            },
            [&](const core::ReceivePayload& e) {
                Connection* connection = find(e.link);
                if (connection == nullptr) return;
                connection->link.receive_payload(buffers.resolve(e.target), e.target.length);
            },
            [&](const core::DiscardPayload& e) {
                if (Connection* connection = find(e.link)) connection->link.discard_payload();
            },
            [&](const core::RedirectReceive& e) {
                if (Connection* connection = find(e.link)) connection->link.redirect_receive();
            },
            [&](const core::AllocateBuffer& e) {
                pending_.push_back(core::BufferAllocated{e.buffer, buffers.allocate(e.buffer, e.bytes)});
            },
            [&](const core::FreeBuffer& e) { buffers.free(e.buffer, now()); },
            [&](const core::Compute& e) { compute(e); },
            [&](const core::Persist& e) { pending_.push_back(core::RecordPersisted{e.sequence}); },
            [&](const core::Complete& e) { client_.complete(e); },
            [&](const core::SetAttributes& e) { client_.set_attributes(e.attributes); },
            [&](const core::Log& e) { client_.log(severity_of(e.level), e.text); },
            [&](const core::Halt& e) {
                halt_reason_ = e.reason.empty() ? "halted" : e.reason;
                client_.log(Severity::fatal, halt_reason_);
            },
        },
        effect);
}

void EventLoop::Impl::compute(const core::Compute& effect) {
    const bool is_hash = effect.kind == core::Compute::Kind::hash;
    std::uint8_t* target = is_hash ? nullptr : buffers.resolve(effect.target);
    const std::uint8_t* a = buffers.resolve(effect.a);
    const std::uint8_t* b = effect.kind == core::Compute::Kind::reduce ? buffers.resolve(effect.b) : nullptr;
    const std::uint64_t bytes = effect.a.length;
    const bool is_small = bytes <= (is_hash ? inline_hash_bytes : inline_compute_bytes);
    if (is_small && inline_bytes_ <= inline_turn_bytes) {
        inline_bytes_ += bytes;
        pending_.push_back(run_compute(effect, target, a, b));
        return;
    }
    workers_.submit([this, effect, target, a, b] {
        const core::ComputeDone done = run_compute(effect, target, a, b);
        post([this, done] { deliver(done); });
    });
}

// ---- links -------------------------------------------------------------------------------------------------------

EventLoop::Impl::Connection* EventLoop::Impl::find(core::LinkId id) {
    const auto found = links_.find(id);
    return found == links_.end() ? nullptr : found->second.get();
}

EventLoop::Impl::ConnectionRef EventLoop::Impl::make_connection(core::LinkId id, int descriptor) {
    try {
        auto connection = std::make_shared<Connection>(context_, id, descriptor, settings_.limits);
        links_.emplace(id, connection);
        return connection;
    } catch (const std::exception& failure) {
        // The system has no room for one more watched descriptor.
        client_.log(Severity::warn, std::string("cannot watch a socket: ") + failure.what());
        close_socket(descriptor);
        return nullptr;
    }
}

void EventLoop::Impl::open_link(const core::OpenLink& effect) {
    std::string error;
    const int descriptor = dial(effect.target, settings_.dial_source, error);
    if (descriptor < 0) {
        pending_.push_back(core::LinkRefused{effect.link, std::move(error)});
        return;
    }
    const ConnectionRef connection = make_connection(effect.link, descriptor);
    if (connection == nullptr) {
        pending_.push_back(core::LinkRefused{effect.link, "the system's limit of watched sockets is reached"});
        return;
    }
    connection->state = State::dialing;
    arm_write(connection);
}

void EventLoop::Impl::close_link(const core::CloseLink& effect) {
    const auto found = links_.find(effect.link);
    if (found == links_.end()) return;
    const ConnectionRef connection = found->second;
    links_.erase(found);
    shut_connection(connection, effect.flush);
}

// The machine does not know the connection any more. With `flush` what was handed over still leaves, then the write side
// is ended and input is dropped until the other end closes too: closing with unread input would reset the connection
// and could destroy what was just sent.
void EventLoop::Impl::shut_connection(const ConnectionRef& connection, bool flush) {
    connection->link.close_input();
    if (!flush || connection->state != State::open) {
        destroy(connection);
        return;
    }
    if (connection->link.is_sending()) connection->link.cancel_send();
    connection->state = State::flushing;
    connection->close_at = now() + flush_time;
    closing_.push_back(connection);
    mark_dirty(*connection);
    // mark_dirty finds machine links only.
    if (!connection->dirty) {
        connection->dirty = true;
        dirty_.push_back(connection);
    }
}

void EventLoop::Impl::destroy(const ConnectionRef& connection) {
    if (connection->state == State::closed) return;
    connection->state = State::closed;
    connection->link.close_input();
    connection->watch.release();
    close_socket(connection->descriptor);
    connection->descriptor = -1;
}

void EventLoop::Impl::lose(const ConnectionRef& connection, const std::string& reason) {
    if (connection->state == State::closed) return;
    const bool is_known = connection->state == State::open || connection->state == State::dialing;
    const bool was_dialing = connection->state == State::dialing;
    const core::LinkId id = connection->link.id();
    destroy(connection);
    if (!is_known) {
        std::erase(closing_, connection);
        if (stopping_ && closing_.empty()) finished_ = true;
        return;
    }
    links_.erase(id);
    if (was_dialing) pending_.push_back(core::LinkRefused{id, reason});
    else pending_.push_back(core::LinkClosed{id, reason});
}

void EventLoop::Impl::mark_dirty(Connection& connection) {
    if (connection.dirty) return;
    const auto found = links_.find(connection.link.id());
    if (found == links_.end()) return;
    connection.dirty = true;
    dirty_.push_back(found->second);
}

void EventLoop::Impl::arm_read(const ConnectionRef& connection) {
    if (connection->read_armed || connection->state == State::closed) return;
    connection->read_armed = true;
    connection->watch.async_wait(stream_descriptor::wait_read, [this, connection](const auto& error) {
        connection->read_armed = false;
        if (error || connection->state == State::closed) return;
        begin_turn();
        on_readable(connection);
        finish_turn();
    });
}

void EventLoop::Impl::arm_write(const ConnectionRef& connection) {
    if (connection->write_armed || connection->state == State::closed) return;
    connection->write_armed = true;
    connection->watch.async_wait(stream_descriptor::wait_write, [this, connection](const auto& error) {
        connection->write_armed = false;
        if (error || connection->state == State::closed) return;
        begin_turn();
        on_writable(connection);
        finish_turn();
    });
}

void EventLoop::Impl::on_writable(const ConnectionRef& connection) {
    if (connection->state != State::dialing) {
        pump(connection);
        return;
    }
    const std::string failure = dial_result(connection->descriptor);
    if (!failure.empty()) {
        lose(connection, failure);
        return;
    }
    apply_options(connection->descriptor, settings_.socket_options);
    connection->state = State::open;
    connection->noticed = now();
    arm_read(connection);
    if (connection->link.has_output()) mark_dirty(*connection);
    pending_.push_back(core::LinkOpened{connection->link.id()});
}

void EventLoop::Impl::on_readable(const ConnectionRef& connection) {
    if (connection->state == State::open) receive_from(connection);
    else drop_input(connection);
    arm_read(connection);
}

void EventLoop::Impl::receive_from(const ConnectionRef& connection) {
    const Link::Outcome outcome = connection->link.receive(space_, *this, receive_budget_bytes);
    if (connection->state != State::open) return;  // the machine closed it meanwhile
    if (outcome.progress == Link::Progress::closed) {
        lose(connection, outcome.reason);
        return;
    }
    if (outcome.events > 0) {
        connection->noticed = now();
    } else if (outcome.bytes > 0) {
        const core::Instant at = now();
        if (at - connection->noticed >= activity_interval) {
            connection->noticed = at;
            on_event(core::LinkActivity{connection->link.id()});
        }
    }
}

void EventLoop::Impl::drop_input(const ConnectionRef& connection) {
    for (std::size_t dropped = 0; dropped < receive_budget_bytes;) {
        const ssize_t result = ::recv(connection->descriptor, space_.discard.data(), space_.discard.size(), 0);
        if (result > 0) {
            dropped += static_cast<std::size_t>(result);
            continue;
        }
        if (result < 0 && errno == EINTR) continue;
        if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (result < 0 || connection->state == State::draining) lose(connection, {});
        return;
    }
}

void EventLoop::Impl::pump(const ConnectionRef& connection) {
    if (connection->state != State::open && connection->state != State::flushing) return;
    if (connection->write_armed) return;
    if (connection->send_turn != turn_) {
        connection->send_turn = turn_;
        connection->sent_bytes = 0;
    }
    if (connection->sent_bytes >= send_budget_bytes) {
        if (connection->link.has_output()) arm_write(connection);
        return;
    }
    sent_events_.clear();
    const Link::Outcome outcome = connection->link.send(send_budget_bytes - connection->sent_bytes, sent_events_);
    connection->sent_bytes += outcome.bytes;
    if (connection->state == State::open) {
        for (auto& event : sent_events_) pending_.push_back(std::move(event));
    }
    if (outcome.progress == Link::Progress::closed) {
        // What the other end said before it closed is heard first.
        if (connection->state == State::open) receive_from(connection);
        lose(connection, outcome.reason);
        return;
    }
    if (connection->link.has_output()) {
        if (connection->link.queued_control_bytes() > queued_control_bytes_max) {
            lose(connection, "the other end does not read");
            return;
        }
        if (outcome.events == 0) {
            arm_write(connection);
            return;
        }
        if (!connection->dirty) {
            connection->dirty = true;
            dirty_.push_back(connection);
        }
        return;
    }
    if (connection->state == State::flushing) {
        ::shutdown(connection->descriptor, SHUT_WR);
        connection->state = State::draining;
        arm_read(connection);
    }
}

// ---- accepting ---------------------------------------------------------------------------------------------------

void EventLoop::Impl::arm_accept() {
    if (listener_ < 0 || accept_armed_ || stopping_) return;
    accept_armed_ = true;
    listener_watch_.async_wait(stream_descriptor::wait_read, [this](const auto& error) {
        accept_armed_ = false;
        if (error || listener_ < 0) return;
        begin_turn();
        on_acceptable();
        finish_turn();
        if (accept_resume_ == core::never) arm_accept();
    });
}

void EventLoop::Impl::on_acceptable() {
    for (int i = 0; i < accepts_per_turn; ++i) {
        core::Endpoint remote;
        const int descriptor = accept_from(listener_, remote);
        if (descriptor < 0) {
            if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return;
            client_.log(Severity::warn, std::string("accepting connections is paused: ") + std::strerror(errno));
            accept_resume_ = now() + accept_pause;
            return;
        }
        if (links_.size() >= settings_.links_max) {
            client_.log(Severity::warn, "too many connections, refusing further ones");
            close_socket(descriptor);
            continue;
        }
        apply_options(descriptor, settings_.socket_options);
        const core::LinkId id = next_link_;
        next_link_ += 2;
        const ConnectionRef connection = make_connection(id, descriptor);
        if (connection == nullptr) continue;
        connection->noticed = now();
        arm_read(connection);
        on_event(core::LinkAccepted{id, remote});
    }
}

// ---- the face ----------------------------------------------------------------------------------------------------

EventLoop::EventLoop(LoopSettings settings, LoopClient& client)
    : impl_(std::make_unique<Impl>(std::move(settings), client)) {}
EventLoop::~EventLoop() = default;
bool EventLoop::listen(const ListenRequest& request, std::string& error) { return impl_->listen(request, error); }
std::uint16_t EventLoop::port() const { return impl_->port; }
bool EventLoop::start(std::string& error) { return impl_->start(error); }
bool EventLoop::post(std::function<void()> task) { return impl_->post(std::move(task)); }
void EventLoop::request_stop() { impl_->request_stop(); }
void EventLoop::join() { impl_->join(); }
BufferTable& EventLoop::buffers() { return impl_->buffers; }
void EventLoop::deliver(core::Event event) { impl_->deliver(std::move(event)); }

core::Instant EventLoop::now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace pccl::real
