// The connections of the loop: accept, read, write, close. openings.cpp has what comes before a stream is open.
#include "net-real/event_loop_impl.hpp"
#include "net-real/streams/tcp_stream.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

namespace pccl::real {

using boost::asio::posix::stream_descriptor;

namespace {

// As receive_budget_bytes.
constexpr std::size_t send_budget_bytes = 1u << 20;
constexpr std::size_t queued_control_bytes_max = 64u << 20;
constexpr int accepts_per_turn = 64;

constexpr core::Duration activity_interval = 50 * core::millisecond;
constexpr core::Duration accept_pause = 100 * core::millisecond;

}  // namespace

// ---- links -------------------------------------------------------------------------------------------------------

EventLoop::Impl::Connection* EventLoop::Impl::find(core::LinkId id) {
    const auto found = links_.find(id);
    return found == links_.end() ? nullptr : found->second.get();
}

// Also null if the other end reads so little that `bytes` more would exceed the bound; the link is lost then. Checked
// here and not when bytes leave, because a full socket is not written to until it has room.
EventLoop::Impl::Connection* EventLoop::Impl::find_with_room(core::LinkId id, std::size_t bytes) {
    const auto found = links_.find(id);
    if (found == links_.end()) return nullptr;
    const ConnectionRef connection = found->second;
    if (connection->link.queued_control_bytes() + bytes <= queued_control_bytes_max) return connection.get();
    lose(connection, "the other end does not read");
    return nullptr;
}

EventLoop::Impl::ConnectionRef EventLoop::Impl::watch_stream(core::LinkId id, std::unique_ptr<Stream> stream) {
    try {
        return std::make_shared<Connection>(context_, id, std::move(stream), settings_.limits);
    } catch (const std::exception& failure) {
        // The system cannot watch one more descriptor.
        client_.log(Severity::warn, std::string("cannot watch a socket: ") + failure.what());
        return nullptr;
    }
}

EventLoop::Impl::ConnectionRef EventLoop::Impl::make_connection(core::LinkId id, std::unique_ptr<Stream> stream) {
    ConnectionRef connection = watch_stream(id, std::move(stream));
    if (connection != nullptr) links_.emplace(id, connection);
    return connection;
}

void EventLoop::Impl::close_link(const core::CloseLink& effect) {
    // Drop queued events of this link: the machine has closed it and must get no further ones.
    std::erase_if(pending_, [&](const core::Event& event) {
        return std::visit(
            [&](const auto& any) {
                if constexpr (requires { any.link; })
                    return any.link == effect.link;
                else
                    return false;
            },
            event);
    });
    const auto found = links_.find(effect.link);
    if (found == links_.end()) return;
    const ConnectionRef connection = found->second;
    links_.erase(found);
    shut_connection(connection, effect.flush);
}

// The machine does not know the connection any more. With `flush`, output that was handed over is sent first. Then the
// write side is shut down, and input is dropped until the other end closes too. Closing with unread input would reset
// the connection and could destroy what was just sent.
void EventLoop::Impl::shut_connection(const ConnectionRef& connection, bool flush) {
    connection->link.close_input();
    if (!flush || connection->state != State::open) {
        destroy(connection);
        return;
    }
    if (connection->link.is_sending()) connection->link.cancel_send();
    file_payloads_.forget_link(connection->link.id());
    make_room_for_flushing(*connection);
    connection->state = State::flushing;
    connection->close_at = now() + flush_time;
    closing_.push_back(connection);
    mark_dirty(*connection);
    // mark_dirty finds only links that the machine knows.
    if (!connection->dirty) {
        connection->dirty = true;
        dirty_.push_back(connection);
    }
}

// A dialler that was refused may keep its end open. At most `unregistered_links_max` accepted connections that have
// their answer are kept; beyond that the oldest is destroyed.
void EventLoop::Impl::make_room_for_flushing(const Connection& next) {
    const auto accepted = [](const Connection& connection) { return connection.link.id() % 2 == 0; };
    if (!accepted(next)) return;
    const auto answered = [&](const ConnectionRef& one) { return accepted(*one) && one->state == State::draining; };
    if (std::count_if(closing_.begin(), closing_.end(), answered) < settings_.limits.unregistered_links_max) return;
    const auto oldest = std::find_if(closing_.begin(), closing_.end(), answered);
    destroy(*oldest);
    closing_.erase(oldest);
}

void EventLoop::Impl::destroy(const ConnectionRef& connection) {
    if (connection->state == State::closed) return;
    connection->state = State::closed;
    connection->link.close_input();
    file_payloads_.forget_link(connection->link.id());
    connection->watch.release();
    connection->stream->close();
    // Last, because `connection` may be an element of opening_.
    if (connection->close_at != core::never) std::erase(opening_, ConnectionRef(connection));
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
    if (was_dialing)
        pending_.push_back(core::LinkRefused{id, reason});
    else
        pending_.push_back(core::LinkClosed{id, reason});
}

void EventLoop::Impl::set_user_timeout(core::Duration user_timeout) {
    settings_.socket_options.user_timeout = user_timeout;
    for (auto& [id, connection] : links_) {
        if (connection->state == State::open) apply_options(*connection);
    }
}

void EventLoop::Impl::apply_options(Connection& connection) {
    SocketOptions options = settings_.socket_options;
    if (connection.to_master) options.traffic = Traffic::control;
    connection.stream->apply(options);
}

void EventLoop::Impl::mark_dirty(Connection& connection) {
    if (connection.dirty) return;
    const auto found = links_.find(connection.link.id());
    if (found == links_.end()) return;
    connection.dirty = true;
    dirty_.push_back(found->second);
}

void EventLoop::Impl::arm_read(const ConnectionRef& connection) {
    if (connection->input_wait || connection->state == State::closed) return;
    connection->input_wait = connection->stream->input_wait();
    expect(connection, *connection->input_wait);
}

void EventLoop::Impl::arm_write(const ConnectionRef& connection) {
    if (connection->output_wait || connection->state == State::closed) return;
    const bool opens = connection->state == State::dialing || connection->state == State::greeting;
    connection->output_wait = opens ? connection->stream->opening_wait() : connection->stream->output_wait();
    expect(connection, *connection->output_wait);
}

void EventLoop::Impl::expect(const ConnectionRef& connection, Stream::Wait readiness) {
    bool& expected = connection->expected[static_cast<std::size_t>(readiness)];
    if (expected) return;
    expected = true;
    if (readiness == Stream::Wait::now) {
        boost::asio::post(context_, [this, connection] { on_ready(connection, Stream::Wait::now); });
        return;
    }
    const auto kind =
        readiness == Stream::Wait::readable ? stream_descriptor::wait_read : stream_descriptor::wait_write;
    connection->watch.async_wait(kind, [this, connection, readiness](const auto& error) {
        if (!error) on_ready(connection, readiness);
    });
}

// Serves every direction that waits for this readiness now. Some streams use one readiness for both directions, and
// woken() may take a signal that was meant for a direction that began to wait later than this call was asked for.
void EventLoop::Impl::on_ready(const ConnectionRef& connection, Stream::Wait readiness) {
    connection->expected[static_cast<std::size_t>(readiness)] = false;
    if (connection->state == State::closed) return;
    begin_turn();
    if (readiness != Stream::Wait::now) connection->stream->woken();
    const bool input = connection->input_wait == readiness;
    const bool output = connection->output_wait == readiness;
    if (input) connection->input_wait.reset();
    if (output) connection->output_wait.reset();
    if (output) on_writable(connection);
    if (input && connection->state != State::closed && !receive_later(connection)) on_readable(connection);
    finish_turn();
}

void EventLoop::Impl::on_writable(const ConnectionRef& connection) {
    if (connection->state == State::dialing || connection->state == State::greeting)
        on_opening(connection);
    else
        pump(connection);
}

void EventLoop::Impl::on_readable(const ConnectionRef& connection) {
    bool more = false;
    if (connection->state == State::open && !connection->link.is_input_closed())
        more = receive_from(connection, crew_ ? Link::Until::payload : Link::Until::drained);
    else if (connection->state == State::enrolling && !connection->link.is_input_closed())
        receive_enrolment(connection);
    else if (!drop_input(connection))
        return;
    if (!more || !receive_later(connection)) arm_read(connection);
}

// `before`: what the stream gave already for this call. True: there may be more.
bool EventLoop::Impl::receive_from(const ConnectionRef& connection, Link::Until until, const Link::Outcome& before) {
    Link::Outcome outcome = connection->link.receive(space_, *this, receive_budget_bytes, until);
    outcome.bytes += before.bytes;
    received(connection, outcome);
    return connection->state == State::open && outcome.progress == Link::Progress::more;
}

void EventLoop::Impl::received(const ConnectionRef& connection, const Link::Outcome& outcome) {
    if (connection->state != State::open) return;                   // the machine closed it meanwhile
    if (connection->stream->has_unsent()) mark_dirty(*connection);  // an answer of the stream itself
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
            on_event(core::LinkActivity{connection->link.id(), connection->link.payload_arrived()});
        }
    }
}

// Reads and drops input: of a refused link until the machine closes it, and of a closed link while it is flushed.
bool EventLoop::Impl::drop_input(const ConnectionRef& connection) {
    for (std::size_t dropped = 0; dropped < receive_budget_bytes;) {
        const iovec space{space_.discard.data(), space_.discard.size()};
        const ssize_t result = connection->stream->receive({&space, 1});
        if (result > 0) {
            dropped += static_cast<std::size_t>(result);
            continue;
        }
        if (result < 0 && errno == EINTR) continue;
        if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        // The end of the input alone does not stop a flush. It is noticed again after the flush.
        if (result < 0 || connection->state != State::flushing) lose(connection, "closed by the other end");
        return false;
    }
    return true;
}

void EventLoop::Impl::pump(const ConnectionRef& connection) {
    if (!may_send(connection)) return;
    send_from(*connection, sent_);
    sent_from(connection, sent_);
}

bool EventLoop::Impl::may_send(const ConnectionRef& connection) {
    if (connection->state != State::open && connection->state != State::flushing) return false;
    if (connection->output_wait) return false;
    if (connection->send_turn != turn_) {
        connection->send_turn = turn_;
        connection->sent_bytes = 0;
    }
    if (connection->sent_bytes < send_budget_bytes) return true;
    // A flushed connection also waits for its shutdown, which pump() does when nothing is left to send.
    if (connection->link.has_output() || connection->stream->has_unsent() || connection->state == State::flushing)
        arm_write(connection);
    return false;
}

// Touches nothing but the connection, so several threads may do it for one connection each.
void EventLoop::Impl::send_from(Connection& connection, Sent& sent) {
    sent.outcome = {};
    sent.is_full = false;
    sent.failure.clear();
    sent.events.clear();
    // A stream may have taken bytes that the system has not.
    if (connection.stream->has_unsent()) {
        if (!connection.stream->send_unsent()) sent.failure = "send: " + connection.stream->error_text();
        sent.is_full = connection.stream->has_unsent();
        if (sent.is_full || !sent.failure.empty()) return;
    }
    sent.outcome = connection.link.send(send_budget_bytes - connection.sent_bytes, sent.events);
}

void EventLoop::Impl::sent_from(const ConnectionRef& connection, Sent& sent) {
    if (connection->state == State::closed) return;
    Link::Outcome& outcome = sent.outcome;
    if (!sent.failure.empty()) {
        outcome.progress = Link::Progress::closed;
        outcome.reason = std::move(sent.failure);
    } else if (sent.is_full) {
        arm_write(connection);
        return;
    }
    connection->sent_bytes += outcome.bytes;
    if (!sent.events.empty()) file_payloads_.end_read(connection->link.id());
    if (connection->state == State::open) {
        for (auto& event : sent.events) pending_.push_back(std::move(event));
    }
    if (outcome.progress == Link::Progress::closed) {
        // First handle what the other end sent before it closed.
        if (connection->state == State::open) receive_from(connection, Link::Until::drained);
        lose(connection, outcome.reason);
        return;
    }
    if (connection->link.has_output()) {
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
    if (connection->stream->has_unsent()) {
        arm_write(connection);
        return;
    }
    if (connection->state == State::flushing) {
        connection->stream->shut_down_output();
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
            accept_later(std::strerror(errno));
            return;
        }
        if (links_.size() >= settings_.links_max) {
            client_.log(Severity::warn, "too many connections, refusing further ones");
            close_socket(descriptor);
            continue;
        }
        if (tls_.context != nullptr && tls_.accepted) {
            greet_by_tls(descriptor, remote);
            continue;
        }
        const core::LinkId id = next_link_;
        next_link_ += 2;
        const ConnectionRef connection = make_connection(id, std::make_unique<TcpStream>(descriptor));
        if (connection == nullptr) continue;
        apply_options(*connection);
        connection->noticed = now();
        arm_read(connection);
        on_event(core::LinkAccepted{id, remote});
    }
}

void EventLoop::Impl::accept_later(const char* what) {
    client_.log(Severity::warn, std::string("accepting connections is paused: ") + what);
    accept_resume_ = now() + accept_pause;
}

}  // namespace pccl::real
