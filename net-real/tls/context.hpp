// What TLS connections of one process share: its key and certificate, the authority it trusts, and the rules. TLS 1.3
// only. Immutable, so any number of connections may use one.
//
// Connections choose a protocol by ALPN: `link` carries frames between two authenticated ends. `enrolment` carries one
// request for a certificate; its client may have no certificate yet.
#pragma once

#include "net-real/tls/certificates.hpp"
#include "net-real/tls/operator_files.hpp"

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

    // Blocks for the files. `peer`: what this process calls itself when it dials; nil: nothing.
    static std::shared_ptr<const Context> make_from_files(Side side, const OperatorFiles& files, const core::Uuid& peer,
                                                          std::string& error);

    // A connection that begins its handshake. Null if memory is short.
    SslPtr connection(bool dials, Protocol protocol) const;
    // The other end must have a certificate for this host, a name or a numeric address. Before the handshake.
    static bool expect_host(SSL& ssl, const std::string& host);
    // How many connections were accepted so far, and how many of them with a ticket of an earlier one.
    struct Accepted {
        long all = 0, resumed = 0;
    };
    Accepted accepted() const;
    bool is_from_files() const { return is_from_files_; }
    const KeyHash& own_key() const { return own_key_; }  // of make_from_files()
    // Of connection(): chosen in the handshake.
    static Protocol protocol_of(const SSL& ssl);

private:
    Context() = default;

    ContextPtr context_;
    KeyHash pinned_{};
    bool is_from_files_ = false;
    KeyHash own_key_{};
    std::string own_name_;  // sent by a dialler; empty: none
};

// Why a handshake failed, as a sentence with its remedy.
std::string explain_failure(const SSL& ssl, const std::string& reason, bool is_from_files);
// The same for a connection that was open at this end: `reason` is of OpenSSL.
std::string explain_alert(const std::string& reason);

}  // namespace pccl::real::tls
