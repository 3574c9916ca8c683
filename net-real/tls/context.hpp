// What TLS connections of one process share: its key and certificate, the authority it trusts, and the rules. TLS 1.3
// only. Immutable, so any number of connections may use one.
//
// Connections choose a protocol by ALPN: `link` carries frames between two authenticated ends. `enrolment` carries one
// request for a certificate; its client may have no certificate yet.
#pragma once

#include "net-real/tls/certificates.hpp"

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

namespace pccl::real::tls {

enum class Protocol : std::uint8_t { none, link, enrolment };

struct Credentials {
    KeyPtr key;
    CertificatePtr certificate;
    CertificatePtr authority;
};

class Context {
public:
    enum class Side : std::uint8_t { master, peer };
    // Null and `error` if OpenSSL refuses key or certificate.
    static std::shared_ptr<const Context> make(Side side, const Credentials& credentials, std::string& error);
    // For a newcomer without a certificate. It trusts the authority whose key has this hash. `clock`: the time by which
    // certificates are judged; nothing: the system's.
    static std::shared_ptr<const Context> make_newcomer(const KeyHash& authority, std::optional<std::time_t> clock,
                                                        std::string& error);

    // A connection that begins its handshake. Null if memory is short.
    SslPtr connection(bool dials, Protocol protocol) const;
    // Of connection(): chosen in the handshake.
    static Protocol protocol_of(const SSL& ssl);

private:
    Context() = default;

    ContextPtr context_;
    KeyHash pinned_{};
};

// Why a handshake failed, as a sentence with its remedy.
std::string explain_failure(const SSL& ssl, const std::string& reason);

}  // namespace pccl::real::tls
