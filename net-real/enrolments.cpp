// Accepted TLS connections: who is at the other end, and the requests for certificates. The machine learns of a
// connection only when both ends are authenticated.
//
// Bounds: a handshake, and a request with its answer, take at most opening_time; at most unregistered_links_max
// connections are in this state, and the oldest gives way.
#include "net-real/enrolment_request.hpp"
#include "net-real/event_loop_impl.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pccl::real {

namespace {

constexpr core::Duration opening_time = 5 * core::second;
constexpr std::size_t greetings_max = 256;

// Without the port, which differs each time: equal log lines are counted and not repeated.
std::string host_of(const core::Endpoint& remote) {
    const std::string text = core::to_text(remote);
    return text.substr(0, text.rfind(':'));
}

}  // namespace

void EventLoop::Impl::greet_by_tls(int descriptor, const core::Endpoint& remote) {
    make_room_for_greeting(greetings_max);
    std::shared_ptr<const tls::Context> context = client_.present_context();
    auto stream = TlsStream::accepted(descriptor, context != nullptr ? std::move(context) : tls_.context);
    if (stream == nullptr) {
        client_.log(Severity::warn, "no memory for a TLS connection");
        return;
    }
    TlsStream* const encrypted = stream.get();
    const core::LinkId id = next_link_;
    next_link_ += 2;
    const ConnectionRef connection = watch_stream(id, std::move(stream));
    if (connection == nullptr) return;
    apply_options(*connection);
    connection->tls = encrypted;
    connection->remote = remote;
    connection->state = State::greeting;
    connection->close_at = now() + opening_time;
    opening_.push_back(connection);
    arm_write(connection);
}

// Of a connection that this end has dialled.
bool EventLoop::Impl::is_expected(Connection& connection, std::string& why) const {
    if (connection.tls == nullptr) return true;
    const auto found = connection.tls->other_end();
    const bool is_master = connection.wanted.is_nil();
    // With a certificate of the operator's PKI, the handshake has checked the master's name.
    const bool is_right = found && (!is_master ? found->is_peer(connection.wanted) : found->is_master || found->by_key);
    if (connection.tls->protocol() == tls::Protocol::link && is_right) return true;
    why = core::formatted("the certificate of the other end does not name {}, but {}",
                          is_master ? "the master" : "peer " + core::short_name(connection.wanted),
                          !found             ? "nobody"
                          : found->is_master ? "the master"
                                             : "peer " + core::short_name(found->peer));
    return false;
}

// opened() has taken the connection out of opening_.
void EventLoop::Impl::authenticated(const ConnectionRef& connection) {
    connection->other = connection->tls->other_end();
    client_.log(Severity::debug,
                core::formatted("accepted a TLS connection from {}, {}", host_of(connection->remote),
                                connection->tls->used_ticket() ? "with a ticket" : "handshake in full"));
    if (connection->tls->protocol() == tls::Protocol::enrolment) {
        connection->state = State::enrolling;
        connection->close_at = now() + opening_time;
        opening_.push_back(connection);
        arm_read(connection);
        return;
    }
    std::string why;
    if (connection->tls->protocol() != tls::Protocol::link)
        why = "it is no program of this library";
    else if (!connection->other || connection->other->is_master)
        why = "its certificate names no peer";
    else if (connection->other->peer.is_nil())
        why = "it names a peer id that does not belong to the key of its certificate";
    else if (links_.size() >= settings_.links_max)
        why = "too many connections";
    else if (client_.admits(*connection->other, why)) {
        connection->state = State::open;
        connection->noticed = now();
        links_.emplace(connection->link.id(), connection);
        arm_read(connection);
        pending_.push_back(core::LinkAccepted{connection->link.id(), connection->remote, connection->other->peer,
                                              connection->other->group});
        return;
    }
    refuse_caller(connection, why);
}

void EventLoop::Impl::refuse_caller(const ConnectionRef& connection, const std::string& why) {
    const bool is_plain = connection->tls->is_plaintext();
    const bool is_abandoned = connection->tls->was_abandoned();
    if (connection->other || refused_lines_[is_abandoned ? 1 : 0].take(now()))
        client_.log(is_abandoned ? Severity::info : Severity::warn,
                    core::formatted(
                        "refused a connection from {}{}: {}{}", host_of(connection->remote),
                        connection->other ? core::formatted(" ({}, peer {})", connection->other->name,
                                                            core::short_name(connection->other->peer))
                                          : "",
                        why,
                        is_plain ? "; give that peer an invitation (PCCL_INVITE) or a certificate (PCCL_TLS_CA)" : ""));
    const bool has_stream = is_plain || connection->other;
    const std::string body =
        !has_stream ? std::string()
                    : client_.refusal(is_plain ? "plaintext peer: this run is secure; ask its operator for an "
                                                 "invitation (pccl-master invite) and set PCCL_INVITE, or for a "
                                                 "certificate (PCCL_TLS_CA, PCCL_TLS_CERT, PCCL_TLS_KEY)"
                                               : why);
    if (body.empty() && !connection->tls->has_refused()) {
        destroy(connection);
        return;
    }
    if (body.empty()) {
        // A reset, because of input that nobody reads, could destroy the alert that says why.
        std::erase(opening_, ConnectionRef(connection));
        connection->tls->go_plain();
        connection->state = State::open;
        shut_connection(connection, true);
        return;
    }
    if (is_plain) connection->tls->go_plain();
    answer_and_close(connection, body);
}

void EventLoop::Impl::tell_refused(core::Instant at) {
    for (LineBudget& lines : refused_lines_) {
        if (const std::uint64_t count = lines.collect(at); count != 0)
            client_.log(&lines == &refused_lines_[0] ? Severity::warn : Severity::info,
                        core::formatted("refused {} more connections of callers without a certificate", count));
    }
}

void EventLoop::Impl::answer_and_close(const ConnectionRef& connection, const std::string& body) {
    std::erase(opening_, ConnectionRef(connection));
    connection->state = State::open;
    connection->link.queue_control(body);
    shut_connection(connection, true);
}

void EventLoop::Impl::receive_enrolment(const ConnectionRef& connection) {
    EnrolmentRequest sink(connection->link);
    const Link::Outcome outcome = connection->link.receive(space_, sink, EnrolmentRequest::bytes_max);
    if (!sink.has_come) {
        if (outcome.progress == Link::Progress::closed) destroy(connection);
        return;
    }
    if (sink.is_refused) {
        opening_failed(connection, "its request cannot be read");
        return;
    }
    client_.enrol(connection->link.id(), std::move(sink.body), connection->other);
}

void EventLoop::Impl::answer_enrolment(core::LinkId link, const std::string& body) {
    const auto found = std::find_if(opening_.begin(), opening_.end(), [link](const ConnectionRef& connection) {
        return connection->link.id() == link && connection->state == State::enrolling;
    });
    if (found == opening_.end()) return;  // it has waited for too long
    answer_and_close(ConnectionRef(*found), body);
}

void EventLoop::Impl::drop_not_admitted() {
    handle_pending();
    std::vector<ConnectionRef> ended;
    std::string why;
    for (const auto& [id, connection] : links_) {
        if (connection->other && !client_.admits(*connection->other, why)) ended.push_back(connection);
    }
    for (const ConnectionRef& connection : ended) lose(connection, "its certificate is not accepted any more");
}

}  // namespace pccl::real
