#include "net-real/tls/enrolment.hpp"

#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/exchange.hpp"
#include "net-real/sockets.hpp"
#include "net-real/streams/tls_stream.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace pccl::real::tls {

namespace {

constexpr core::Duration pause_min = 100 * core::millisecond;
constexpr core::Duration pause_max = 2 * core::second;
constexpr core::Duration stop_interval = 50 * core::millisecond;

// False: the caller has stopped it.
bool wait_for(core::Duration time, const PeerIdentity::Stop& stop) {
    const core::Instant until = EventLoop::now() + time;
    for (core::Instant now = EventLoop::now(); now < until; now = EventLoop::now()) {
        if (stop && stop()) return false;
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(stop_interval, until - now)));
    }
    return !stop || !stop();
}

}  // namespace

// Asks the master over a connection whose other end must be the master of this run.
PeerIdentity::Asked PeerIdentity::exchange(std::unique_ptr<TlsStream> stream, const Stop& stop,
                                           const std::string& request, proto::EnrolReply& reply, std::string& error) {
    const TlsStream& encrypted = *stream;
    Exchange exchange(std::move(stream), stop, exchange_time);
    if (!exchange.open(error)) {
        if (error.starts_with("no answer")) error += "; is this the port of a secure master?";
        return encrypted.was_abandoned() ? Asked::turned_away : Asked::failed;
    }
    const auto master = encrypted.other_end();
    if (!master || !master->is_master || encrypted.protocol() != Protocol::enrolment) {
        error = "whoever answers is not the master of this run, though the run's authority has signed its "
                "certificate; check the address";
        return Asked::failed;
    }
    std::string answer;
    if (!exchange.ask(request, answer, error)) return Asked::turned_away;
    if (reply.ParseFromString(answer)) return Asked::granted;
    error = "the master's answer cannot be read; do both ends run the same version?";
    return Asked::failed;
}

std::unique_ptr<PeerIdentity> PeerIdentity::make(std::string_view invitation, std::optional<std::time_t> clock,
                                                 std::string& error, std::optional<core::Endpoint> source) {
    std::unique_ptr<PeerIdentity> made(new PeerIdentity);
    if (!parse_invitation(invitation, made->invitation_, error)) return nullptr;
    made->clock_ = clock;
    made->source_ = source;
    made->key_ = make_key(error);
    return made->key_ == nullptr ? nullptr : std::move(made);
}

bool PeerIdentity::join(const std::vector<core::Endpoint>& masters, core::Duration patience, const Stop& stop,
                        std::string& error) {
    const core::Instant until = EventLoop::now() + patience;
    std::random_device draw;
    for (core::Duration pause = pause_min;; pause = std::min(2 * pause, pause_max)) {
        const Asked asked = ask(masters, false, stop, error);
        if (asked != Asked::turned_away) return asked == Asked::granted;
        // Half of it to all of it, or a crowd would come again together.
        const core::Duration some = pause / 2 + static_cast<core::Duration>(draw()) % (pause / 2);
        if (EventLoop::now() + some >= until || !wait_for(some, stop)) return false;
    }
}

bool PeerIdentity::renew(const std::vector<core::Endpoint>& masters, const Stop& stop, std::string& error) {
    return ask(masters, true, stop, error) == Asked::granted;
}

PeerIdentity::Asked PeerIdentity::ask(const std::vector<core::Endpoint>& masters, bool same_peer, const Stop& stop,
                                      std::string& error) {
    proto::EnrolRequest request;
    request.set_request(this->request(error));
    if (request.request().empty()) return Asked::failed;
    request.set_same_peer(same_peer);
    // The master would accept no connection with a certificate that is over.
    const bool is_over = clock_.value_or(std::time(nullptr)) > valid_until_;
    std::shared_ptr<const Context> context = is_over && !same_peer ? nullptr : context_;
    if (context == nullptr) {
        context = Context::make_newcomer(invitation_.authority, clock_, error);
        if (context == nullptr) return Asked::failed;
        request.set_invitation(invitation_.id);
        request.set_secret(invitation_.secret.data(), invitation_.secret.size());
    }
    was_refused_ = false;
    std::string tried;
    bool is_there = false;
    for (const core::Endpoint& master : masters) {
        std::string why;
        const int descriptor = dial(master, source_, why);
        auto stream = descriptor < 0 ? nullptr : TlsStream::dialled(descriptor, context, Protocol::enrolment);
        proto::EnrolReply reply;
        const Asked asked =
            stream == nullptr ? Asked::failed : exchange(std::move(stream), stop, core::encode(request), reply, why);
        if (asked == Asked::granted) {
            if (reply.error() == proto::ENROL_OK) return take(reply, error) ? Asked::granted : Asked::failed;
            was_refused_ = reply.error() != proto::ENROL_BUSY && reply.error() != proto::ENROL_OTHER;
            error = core::formatted("the master at {} refused: {}", core::to_text(master), reply.text());
            return reply.error() == proto::ENROL_BUSY ? Asked::turned_away : Asked::failed;
        }
        is_there = is_there || asked == Asked::turned_away;
        tried += core::formatted("{}{}: {}", tried.empty() ? "" : "; ", core::to_text(master), why);
        if (stop && stop()) break;
    }
    error = "no certificate from the master: " + tried;
    return is_there ? Asked::turned_away : Asked::failed;
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
