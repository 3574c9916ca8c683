#include "net-real/tls/enrolment.hpp"

#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/link.hpp"
#include "net-real/sockets.hpp"
#include "net-real/streams/tls_stream.hpp"

#include <cerrno>
#include <cstring>

#include <poll.h>

namespace pccl::real::tls {

namespace {

constexpr int poll_ms = 50;

struct ReplySink final : EventSink {
    explicit ReplySink(Link& from) : link(from) {}
    void on_event(const core::Event& event) override {
        const auto* control = std::get_if<core::ControlArrived>(&event);
        has_reply = control != nullptr && core::decode(control->body, reply);
        is_over = true;
        link.close_input();
    }
    Link& link;
    proto::EnrolReply reply;
    bool has_reply = false;
    bool is_over = false;
};

// One exchange over one connection. Blocks until it is over, its time is, or `stop` says so.
class Exchange {
public:
    Exchange(std::unique_ptr<TlsStream> stream, const PeerIdentity::Stop& stop)
        : stream_(std::move(stream)), stop_(stop), link_(1, *stream_, core::Limits{}),
          deadline_(EventLoop::now() + exchange_time) {}

    bool run(const std::string& request, proto::EnrolReply& reply, std::string& error) {
        if (!open(error)) return false;
        const auto master = stream_->other_end();
        if (!master || !master->is_master || stream_->protocol() != Protocol::enrolment) {
            error = "whoever answers is not the master of this run, though the run's authority has signed its "
                    "certificate; check the address";
            return false;
        }
        link_.queue_control(request);
        ReplySink sink(link_);
        ReceiveSpace space;
        std::vector<core::Event> sent;
        while (!sink.is_over) {
            const Link::Outcome out = link_.send(1u << 20, sent);
            if (out.progress == Link::Progress::closed || !stream_->send_unsent()) {
                error = core::formatted("the master closed the connection ({})", out.reason);
                return false;
            }
            const Link::Outcome in = link_.receive(space, sink, 1u << 20);
            if (sink.is_over) break;
            if (in.progress == Link::Progress::closed) {
                error = core::formatted("the master closed the connection without an answer ({})", in.reason);
                return false;
            }
            const bool writes = link_.has_output() || stream_->has_unsent();
            if (!wait(static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), error)) return false;
        }
        reply = std::move(sink.reply);
        if (!sink.has_reply) error = "the master's answer cannot be read; do both ends run the same version?";
        return sink.has_reply;
    }

private:
    bool open(std::string& error) {
        for (;;) {
            switch (stream_->open(error)) {
            case Stream::Opening::open: return true;
            case Stream::Opening::failed: return false;
            case Stream::Opening::waiting: break;
            }
            if (!wait(stream_->opening_wait() == Stream::Wait::writable ? POLLOUT : POLLIN, error)) return false;
        }
    }
    bool wait(short events, std::string& error) {
        for (;;) {
            pollfd one{stream_->descriptor(), events, 0};
            const int ready = ::poll(&one, 1, poll_ms);
            // Also if bytes trickle in: whoever is there must not hold the caller for longer.
            if (ready > 0 && EventLoop::now() <= deadline_) return true;
            if (ready < 0 && errno != EINTR) {
                error = std::string("poll: ") + std::strerror(errno);
                return false;
            }
            if (stop_ && stop_()) {
                error = "ended by the caller";
                return false;
            }
            if (EventLoop::now() > deadline_) {
                error = core::formatted("no answer within {} s; is this the port of a secure master?",
                                        exchange_time / core::second);
                return false;
            }
        }
    }

    std::unique_ptr<TlsStream> stream_;
    const PeerIdentity::Stop& stop_;
    Link link_;
    const core::Instant deadline_;
};

}  // namespace

std::unique_ptr<PeerIdentity> PeerIdentity::make(std::string_view invitation, std::optional<std::time_t> clock,
                                                 std::string& error) {
    std::unique_ptr<PeerIdentity> made(new PeerIdentity);
    if (!parse_invitation(invitation, made->invitation_, error)) return nullptr;
    made->clock_ = clock;
    made->key_ = make_key(error);
    return made->key_ == nullptr ? nullptr : std::move(made);
}

bool PeerIdentity::join(const std::vector<core::Endpoint>& masters, const Stop& stop, std::string& error) {
    return ask(masters, false, stop, error);
}

bool PeerIdentity::renew(const std::vector<core::Endpoint>& masters, const Stop& stop, std::string& error) {
    return ask(masters, true, stop, error);
}

bool PeerIdentity::ask(const std::vector<core::Endpoint>& masters, bool same_peer, const Stop& stop,
                       std::string& error) {
    proto::EnrolRequest request;
    request.set_request(make_request(*key_, error));
    if (request.request().empty()) return false;
    request.set_same_peer(same_peer);
    std::shared_ptr<const Context> context = context_;
    if (context == nullptr) {
        context = Context::make_newcomer(invitation_.authority, clock_, error);
        if (context == nullptr) return false;
        request.set_invitation(invitation_.id);
        request.set_secret(invitation_.secret.data(), invitation_.secret.size());
    }
    std::string tried;
    for (const core::Endpoint& master : masters) {
        std::string why;
        const int descriptor = dial(master, std::nullopt, why);
        auto stream = descriptor < 0 ? nullptr : TlsStream::dialled(descriptor, context, Protocol::enrolment);
        proto::EnrolReply reply;
        if (stream != nullptr && Exchange(std::move(stream), stop).run(core::encode(request), reply, why)) {
            if (reply.error() == proto::ENROL_OK) return take(reply, error);
            error = core::formatted("the master at {} refused: {}", core::to_text(master), reply.text());
            return false;
        }
        tried += core::formatted("{}{}: {}", tried.empty() ? "" : "; ", core::to_text(master), why);
        if (stop && stop()) break;
    }
    error = "no certificate from the master: " + tried;
    return false;
}

bool PeerIdentity::take(const proto::EnrolReply& reply, std::string& error) {
    Credentials own;
    own.certificate = certificate_from_der(reply.certificate(), error);
    own.authority = certificate_from_der(reply.authority(), error);
    const auto hash = own.authority == nullptr ? std::nullopt : hash_of_key(*own.authority);
    const auto name = own.certificate == nullptr ? std::nullopt : name_of(*own.certificate);
    if (!name || name->is_master || !hash || *hash != invitation_.authority) {
        error = "the master's answer contains no usable certificate";
        return false;
    }
    EVP_PKEY_up_ref(key_.get());
    own.key.reset(key_.get());
    auto context = Context::make(Context::Side::peer, own, error);
    if (context == nullptr) return false;
    context_ = std::move(context);
    name_ = *name;
    obtained_ = std::time(nullptr);
    valid_until_ = lifetime_of(*own.certificate).until;
    data_plaintext_ = reply.data_plaintext();
    return true;
}

}  // namespace pccl::real::tls
