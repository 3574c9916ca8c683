// A peer's side of a secure run: its key, its certificate, and how it gets them from the master.
//
// The key is made once per object and never leaves the process. Functions that talk to the master block the calling
// thread, at most exchange_time for each address; `stop` is asked about every 50 ms and ends the wait. One thread at a
// time.
//
// A master that very many newcomers ask at once closes some of their connections. join() asks again after a pause,
// which grows, until `patience` is over. The master knows a request that it has granted by its key, so no use is spent twice.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/enrolment.pb.h"
#include "net-real/tls/context.hpp"
#include "net-real/tls/invitation.hpp"

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::real {
class TlsStream;
}

namespace pccl::real::tls {

inline constexpr core::Duration exchange_time = 5 * core::second;

class PeerIdentity {
public:
    using Stop = std::function<bool()>;

    // `clock`: by which certificates are judged; nothing: the system's. `source`: the address from which the master is
    // dialled; nothing: the system chooses. Null: `error` says what is wrong.
    static std::unique_ptr<PeerIdentity> make(std::string_view invitation, std::optional<std::time_t> clock,
                                              std::string& error, std::optional<core::Endpoint> source = std::nullopt);

    // After a failure: the master has answered, and the invitation or certificate is of no use, now and later.
    bool was_refused() const { return was_refused_; }

    const std::string& master() const { return invitation_.master; }
    // A certificate for a new peer id: by the certificate that is there, or by the invitation if there is none or it has
    // expired. The secret is sent only after the authority of the master was checked.
    bool join(const std::vector<core::Endpoint>& masters, core::Duration patience, const Stop& stop,
              std::string& error);
    // A certificate for the same peer id with a new lifetime. Asks once.
    bool renew(const std::vector<core::Endpoint>& masters, const Stop& stop, std::string& error);
    // What join() and renew() do with the master's answer. False: it holds nothing that can be used, and nothing has
    // changed.
    bool take(const proto::EnrolReply& reply, std::string& error);
    // The certificate signing request of this object's key. Empty: see `error`.
    std::string request(std::string& error) const { return make_request(*key_, error); }

    // ---- after join()
    std::shared_ptr<const Context> context() const { return context_; }
    const core::Uuid& peer() const { return name_.peer; }
    bool data_plaintext() const { return data_plaintext_; }
    // When half of the time is over that the certificate was valid for when it came.
    std::time_t renew_at() const { return obtained_ + (valid_until_ - obtained_) / 2; }

private:
    PeerIdentity() = default;
    // turned_away: the master is there, and may answer later.
    enum class Asked : std::uint8_t { granted, failed, turned_away };
    Asked ask(const std::vector<core::Endpoint>& masters, bool same_peer, const Stop& stop, std::string& error);
    static Asked exchange(std::unique_ptr<TlsStream> stream, const Stop& stop, const std::string& request,
                          proto::EnrolReply& reply, std::string& error);

    Invitation invitation_;
    std::optional<std::time_t> clock_;
    std::optional<core::Endpoint> source_;
    KeyPtr key_;
    CertificateName name_;
    std::time_t obtained_ = 0;
    std::time_t valid_until_ = 0;
    std::shared_ptr<const Context> context_;
    bool data_plaintext_ = false;
    bool was_refused_ = false;
};

}  // namespace pccl::real::tls
