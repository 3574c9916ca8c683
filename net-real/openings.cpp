// Connections before their stream is open: dials by TCP, and both ends of streams through shared memory. enrolments.cpp
// has what accepted TLS streams need.
//
// A dial to an address of this host tries shared memory first. Whatever goes wrong there, or takes too long, the same
// link is dialled by TCP, and the machine sees one LinkOpened or LinkRefused in any case. The machine learns of an
// accepted stream when it is open, as LinkAccepted.
#include "net-real/event_loop_impl.hpp"
#include "net-real/streams/tcp_stream.hpp"

#include "core/base/format.hpp"
#include "core/topology/address_rules.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pccl::real {

using boost::asio::posix::stream_descriptor;

namespace {

constexpr int accepts_per_turn = 64;
// Accepted streams that are not open yet. Beyond that the oldest is closed.
constexpr std::size_t greetings_max = 64;

}  // namespace

// ---- dialling ----------------------------------------------------------------------------------------------------

void EventLoop::Impl::open_link(const core::OpenLink& effect) {
    // A secure run names whom it dials, and a master does not listen for shared memory.
    const bool to_master = tls_.context != nullptr && effect.peer.is_nil();
    if (to_master || !dial_shared(effect)) dial_tcp(effect);
}

void EventLoop::Impl::dial_tcp(const core::OpenLink& effect) {
    const core::LinkId id = effect.link;
    std::string error;
    // No translator is within a host. There a port that was used a moment ago would only be in the way.
    const bool any_port = core::is_loopback(effect.target) || own_addresses_.contains(effect.target, now());
    const int descriptor =
        dial(effect.target, settings_.dial_source, error, any_port ? std::uint16_t{0} : effect.source_port);
    if (descriptor < 0) {
        pending_.push_back(core::LinkRefused{id, std::move(error)});
        return;
    }
    std::unique_ptr<Stream> stream;
    TlsStream* encrypted = nullptr;
    if (tls_.context != nullptr && (effect.peer.is_nil() || tls_.data)) {
        auto made = TlsStream::dialled(descriptor, tls_.context, tls::Protocol::link,
                                       effect.yields             ? TlsStream::Meeting::yields
                                       : effect.source_port != 0 ? TlsStream::Meeting::leads
                                                                 : TlsStream::Meeting::never);
        const std::string host = tls_.master_name.empty() ? certificate_host(effect.target) : tls_.master_name;
        if (made != nullptr && made->is_from_files() && effect.peer.is_nil() && !made->expect_host(host)) made.reset();
        if (made != nullptr && !effect.peer.is_nil()) made->use_tickets(sessions_, effect.peer);
        encrypted = made.get();
        stream = std::move(made);
        if (stream == nullptr) {
            pending_.push_back(core::LinkRefused{id, "no memory for a TLS connection"});
            return;
        }
    } else {
        stream = std::make_unique<TcpStream>(descriptor);
    }
    const ConnectionRef connection = make_connection(id, std::move(stream));
    if (connection == nullptr) {
        pending_.push_back(core::LinkRefused{id, "the system's limit of watched sockets is reached"});
        return;
    }
    connection->state = State::dialing;
    connection->tls = encrypted;
    connection->to_master = effect.peer.is_nil();
    connection->wanted = effect.peer;
    arm_write(connection);
}

// False: dial by TCP.
bool EventLoop::Impl::dial_shared(const core::OpenLink& effect) {
    const core::Endpoint& target = effect.target;
    const SharedMemorySettings& shared = settings_.shared_memory;
    if (!shared.enabled || std::count(shared.tcp_only.begin(), shared.tcp_only.end(), target) != 0) return false;
    if (!own_addresses_.contains(target, now())) return false;
    // The kernel would choose the target's own address as the source too.
    core::Endpoint source = target;
    if (settings_.dial_source && settings_.dial_source->is_v6 == target.is_v6 &&
        settings_.dial_source->address != core::Endpoint{}.address)
        source = *settings_.dial_source;
    SharedStream::Failure failure;
    auto stream = SharedStream::dial(target, source, shared.ring_bytes, shared_use_, failure);
    if (stream == nullptr) {
        tell_fallback(target, failure);
        return false;
    }
    const ConnectionRef connection = make_connection(effect.link, std::move(stream));
    if (connection == nullptr) return false;
    connection->state = State::dialing;
    connection->by_tcp = effect;
    connection->wanted = effect.peer;
    connection->close_at = now() + shared.opening_time;
    opening_.push_back(connection);
    arm_write(connection);
    return true;
}

void EventLoop::Impl::tell_fallback(const core::Endpoint& target, const SharedStream::Failure& failure) {
    bool& told = failure.is_forbidden ? told_forbidden_ : told_no_offer_;
    if (told) return;
    told = true;
    client_.log(failure.is_forbidden ? Severity::warn : Severity::info,
                core::formatted("{} is on this host, but is reached by TCP and not through shared memory: {}",
                                core::to_text(target), failure.reason));
}

// ---- both ends ---------------------------------------------------------------------------------------------------

void EventLoop::Impl::on_opening(const ConnectionRef& connection) {
    std::string reason;
    switch (connection->stream->open(reason)) {
    case Stream::Opening::waiting: arm_write(connection); break;
    case Stream::Opening::failed: opening_failed(connection, reason); break;
    case Stream::Opening::open: opened(connection); break;
    }
}

void EventLoop::Impl::opened(const ConnectionRef& connection) {
    std::erase(opening_, connection);
    connection->close_at = core::never;
    if (connection->state == State::greeting) {
        if (connection->tls != nullptr)
            authenticated(connection);
        else
            greeted(connection);
        return;
    }
    if (std::string why; !is_expected(*connection, why)) {
        lose(connection, why);
        return;
    }
    apply_options(*connection);
    connection->state = State::open;
    connection->noticed = now();
    arm_read(connection);
    if (connection->link.has_output()) mark_dirty(*connection);
    const bool is_tcp = !connection->by_tcp;
    pending_.push_back(core::LinkOpened{connection->link.id(),
                                        is_tcp ? local_address(connection->stream->descriptor()) : core::Endpoint{}});
}

void EventLoop::Impl::opening_failed(const ConnectionRef& connection, const std::string& reason) {
    if (connection->tls != nullptr && connection->state == State::greeting) {
        refuse_caller(connection, reason);
        return;
    }
    if (connection->state == State::enrolling) {
        client_.log(Severity::info, "closed a connection that asked for a certificate: " + reason);
        destroy(connection);
        return;
    }
    if (connection->state == State::greeting) {
        client_.log(Severity::debug, "a process of this host could not connect through shared memory: " + reason);
        destroy(connection);
        return;
    }
    if (!connection->by_tcp) {
        // A master that very many peers dial at once closes some of the connections. Without TLS it does so when they
        // are open, and the machine dials again. With TLS it is to do the same.
        if (connection->tls != nullptr && connection->wanted.is_nil() && connection->tls->was_abandoned()) {
            connection->state = State::open;
            pending_.push_back(core::LinkOpened{connection->link.id(), core::Endpoint{}});
        }
        lose(connection, reason);
        return;
    }
    const core::OpenLink dial = *connection->by_tcp;
    tell_fallback(dial.target, {reason, false});
    destroy(connection);
    links_.erase(dial.link);
    dial_tcp(dial);
}

void EventLoop::Impl::give_up_openings(core::Instant at) {
    // opening_failed() takes the connection out of opening_.
    const auto overdue = [at](const ConnectionRef& connection) { return connection->close_at <= at; };
    for (;;) {
        const auto found = std::find_if(opening_.begin(), opening_.end(), overdue);
        if (found == opening_.end()) return;
        const ConnectionRef connection = *found;
        begin_turn();
        opening_failed(connection, "the other end did not answer in time");
        finish_turn();
    }
}

// ---- accepting through shared memory -------------------------------------------------------------------------------

void EventLoop::Impl::listen_shared(const ListenRequest& request) {
    core::Endpoint local = request.address.value_or(core::Endpoint{});
    local.port = port;
    shared_listener_ = shared_listen(local, shared_listen_error_);
}

void EventLoop::Impl::close_openings() {
    while (!opening_.empty()) {
        const ConnectionRef connection = opening_.back();
        destroy(connection);
    }
}

void EventLoop::Impl::close_listeners() {
    if (listener_watch_.is_open()) listener_watch_.release();
    close_socket(listener_);
    listener_ = -1;
    if (shared_listener_watch_.is_open()) shared_listener_watch_.release();
    close_socket(shared_listener_);
    shared_listener_ = -1;
}

void EventLoop::Impl::arm_shared_accept() {
    if (shared_listener_ < 0 || shared_accept_armed_ || stopping_) return;
    shared_accept_armed_ = true;
    shared_listener_watch_.async_wait(stream_descriptor::wait_read, [this](const auto& error) {
        shared_accept_armed_ = false;
        if (error || shared_listener_ < 0) return;
        begin_turn();
        on_shared_acceptable();
        finish_turn();
        if (accept_resume_ == core::never) arm_shared_accept();
    });
}

void EventLoop::Impl::on_shared_acceptable() {
    for (int i = 0; i < accepts_per_turn; ++i) {
        const int descriptor = shared_accept(shared_listener_);
        if (descriptor < 0) {
            if (errno == EINTR || errno == ECONNABORTED || errno == EPERM) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return;
            accept_later(std::strerror(errno));
            return;
        }
        make_room_for_greeting(greetings_max);
        const core::LinkId id = next_link_;
        next_link_ += 2;
        const ConnectionRef connection = watch_stream(id, SharedStream::accepted(descriptor, shared_use_));
        if (connection == nullptr) continue;
        connection->state = State::greeting;
        connection->close_at = now() + settings_.shared_memory.opening_time;
        opening_.push_back(connection);
        arm_write(connection);
    }
}

void EventLoop::Impl::make_room_for_greeting(std::size_t most) {
    const auto greets = [](const ConnectionRef& connection) {
        return connection->state == State::greeting || connection->state == State::enrolling;
    };
    const std::size_t room = std::min<std::size_t>(most, std::max(settings_.limits.unregistered_links_max, 1u));
    if (static_cast<std::size_t>(std::count_if(opening_.begin(), opening_.end(), greets)) < room) return;
    const ConnectionRef oldest = *std::find_if(opening_.begin(), opening_.end(), greets);
    opening_failed(oldest, "too many at once");
}

// The stream of an accepted connection is open: from now on the machine treats it like one that came by TCP.
void EventLoop::Impl::greeted(const ConnectionRef& connection) {
    core::Endpoint remote = static_cast<const SharedStream&>(*connection->stream).source();
    std::string refusal;
    // A process of this host may use any address of the host by TCP too, but no other one.
    if (!own_addresses_.contains(remote, now())) refusal = "its address is not one of this host";
    if (links_.size() >= settings_.links_max) refusal = "too many connections";
    if (!refusal.empty()) {
        opening_failed(connection, refusal);
        return;
    }
    connection->state = State::open;
    connection->noticed = now();
    links_.emplace(connection->link.id(), connection);
    arm_read(connection);
    pending_.push_back(core::LinkAccepted{connection->link.id(), remote});
}

}  // namespace pccl::real
