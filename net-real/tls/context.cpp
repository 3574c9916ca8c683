#include "net-real/tls/context.hpp"

#include "core/base/format.hpp"
#include "net-real/tls/sessions.hpp"

#include <cstring>
#include <string_view>

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

namespace pccl::real::tls {

namespace {

constexpr unsigned char link_alpn[] = "\x09pccl-link";
constexpr unsigned char enrolment_alpn[] = "\x0apccl-enrol";
constexpr long ticket_seconds = 300;

std::string_view alpn_of(Protocol protocol) {
    if (protocol == Protocol::enrolment)
        return {reinterpret_cast<const char*>(enrolment_alpn), sizeof enrolment_alpn - 1};
    return {reinterpret_cast<const char*>(link_alpn), sizeof link_alpn - 1};
}

// `data`: non-null if this end takes enrolments.
int choose_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                    unsigned int in_length, void* data) {
    const std::string_view offered(reinterpret_cast<const char*>(in), in_length);
    const bool takes_enrolments = data != nullptr;
    for (const Protocol protocol : {Protocol::link, Protocol::enrolment}) {
        if (protocol == Protocol::enrolment && !takes_enrolments) continue;
        const std::string_view wanted = alpn_of(protocol);
        // The list has one entry when our own client sends it. A longer one is of a stranger.
        if (offered != wanted) continue;
        *out = in + 1;
        *out_length = static_cast<unsigned char>(wanted.size() - 1);
        // Only enrolment works without a certificate of the client.
        if (protocol == Protocol::link) SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// The chain must contain the certificate of the authority with the right key. Everything else is checked against it.
int verify_newcomer(X509_STORE_CTX* check, void* data) {
    const auto& pinned = *static_cast<const KeyHash*>(data);
    X509* authority = nullptr;
    STACK_OF(X509)* chain = X509_STORE_CTX_get0_untrusted(check);
    for (int i = 0; i < sk_X509_num(chain); ++i) {
        X509* candidate = sk_X509_value(chain, i);
        const auto hash = hash_of_key(*candidate);
        if (hash && CRYPTO_memcmp(hash->data(), pinned.data(), pinned.size()) == 0) authority = candidate;
    }
    if (authority == nullptr) {
        X509_STORE_CTX_set_error(check, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN);
        return 0;
    }
    STACK_OF(X509)* trusted = sk_X509_new_null();
    if (trusted == nullptr || sk_X509_push(trusted, authority) == 0) {
        sk_X509_free(trusted);
        X509_STORE_CTX_set_error(check, X509_V_ERR_OUT_OF_MEM);
        return 0;
    }
    X509_STORE_CTX_set0_trusted_stack(check, trusted);
    const int verified = X509_verify_cert(check);
    sk_X509_free(trusted);
    return verified;
}

// Tickets of connections that were made with one are not kept, so each chain of trust is at most ticket_seconds old.
int keep_session(SSL* ssl, SSL_SESSION* session) {
    const auto* place = static_cast<const SessionPlace*>(SSL_get_app_data(ssl));
    if (place == nullptr || place->sessions == nullptr || SSL_session_reused(ssl) == 1) return 0;
    try {
        SSL_SESSION_up_ref(session);
        place->sessions->keep(place->peer, place->since, SessionPtr(session));
    } catch (const std::bad_alloc&) {
    }
    return 0;
}

ContextPtr make_context(std::string& error) {
    begin_use();
    ContextPtr context(SSL_CTX_new(TLS_method()));
    if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                                "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
        SSL_CTX_set1_groups_list(context.get(), "X25519:P-256") != 1) {
        error = "OpenSSL: " + take_error();
        return nullptr;
    }
    SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    // A ticket is for further connections of an edge, which are made soon. TlsStream::open() checks the lifetimes of
    // certificates again. Contexts have different keys for tickets, so a renewal ends the old tickets.
    static constexpr unsigned char name[] = "pccl";
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context.get(), keep_session);
    SSL_CTX_set_session_id_context(context.get(), name, sizeof name - 1);
    SSL_CTX_set_timeout(context.get(), ticket_seconds);
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // SSL_read() returns after a message without data, so that TlsStream can bound these.
    SSL_CTX_clear_mode(context.get(), SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_max_cert_list(context.get(), 16 << 10);
    return context;
}

}  // namespace

std::shared_ptr<const Context> Context::make(Side side, const Credentials& credentials, std::string& error) {
    std::shared_ptr<Context> made(new Context);
    made->context_ = make_context(error);
    if (made->context_ == nullptr) return nullptr;
    SSL_CTX* const context = made->context_.get();
    X509_STORE* const store = SSL_CTX_get_cert_store(context);
    if (SSL_CTX_use_certificate(context, credentials.certificate.get()) != 1 ||
        SSL_CTX_use_PrivateKey(context, credentials.key.get()) != 1 || SSL_CTX_check_private_key(context) != 1 ||
        SSL_CTX_add1_chain_cert(context, credentials.authority.get()) != 1 ||
        X509_STORE_add_cert(store, credentials.authority.get()) != 1) {
        error = "key and certificate cannot be used: " + take_error();
        return nullptr;
    }
    // Both ends accept connections, so each may be a server or a client of TLS.
    static char takes_enrolments;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, side == Side::master ? &takes_enrolments : nullptr);
    if (side == Side::peer) SSL_CTX_set_num_tickets(context, 1);
    return made;
}

std::shared_ptr<const Context> Context::make_newcomer(const KeyHash& authority, std::optional<std::time_t> clock,
                                                      std::string& error) {
    std::shared_ptr<Context> made(new Context);
    made->context_ = make_context(error);
    if (made->context_ == nullptr) return nullptr;
    made->pinned_ = authority;
    SSL_CTX_set_verify(made->context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(made->context_.get(), verify_newcomer, &made->pinned_);
    if (clock) X509_VERIFY_PARAM_set_time(SSL_CTX_get0_param(made->context_.get()), *clock);
    return made;
}

std::shared_ptr<const Context> Context::make_from_files(Side side, const OperatorFiles& files, const core::Uuid& peer,
                                                        std::string& error) {
    std::shared_ptr<Context> made(new Context);
    made->context_ = make_context(error);
    if (made->context_ == nullptr) return nullptr;
    SSL_CTX* const context = made->context_.get();
    ERR_clear_error();
    const auto failed = [&error](const std::string& file, const char* what) {
        error = core::formatted("{}: {}: {}", file, what, take_error());
        return nullptr;
    };
    // Never asks for a pass phrase on the terminal.
    SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
    if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
        return failed(files.certificate, "no certificate can be read");
    if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
        return failed(files.key, "not the private key of the certificate, or it has a pass phrase");
    X509_STORE* const store = SSL_CTX_get_cert_store(context);
    X509_LOOKUP* const lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (lookup == nullptr || X509_load_cert_crl_file(lookup, files.authorities.c_str(), X509_FILETYPE_PEM) < 1)
        return failed(files.authorities, "no certificate of an authority can be read");
    const STACK_OF(X509_OBJECT)* const objects = X509_STORE_get0_objects(store);
    for (int i = 0; i < sk_X509_OBJECT_num(objects); ++i) {
        if (X509_OBJECT_get_type(sk_X509_OBJECT_value(objects, i)) == X509_LU_CRL)
            X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    }
    const auto key = hash_of_key(*SSL_CTX_get0_certificate(context));
    if (!key) return failed(files.certificate, "the key of the certificate cannot be used");
    made->own_key_ = *key;
    made->is_from_files_ = true;
    if (!peer.is_nil()) made->own_name_ = to_hex(peer.bytes);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    if (side == Side::peer) SSL_CTX_set_num_tickets(context, 1);
    return made;
}

Context::Accepted Context::accepted() const {
    // The hits are those of both directions. TLS counts a connection that it accepted when the handshake is complete.
    return {SSL_CTX_sess_accept_good(context_.get()), SSL_CTX_sess_hits(context_.get())};
}

bool Context::expect_host(SSL& ssl, const std::string& host) {
    X509_VERIFY_PARAM* const rules = SSL_get0_param(&ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) == 1) return true;
    ERR_clear_error();
    return X509_VERIFY_PARAM_set1_host(rules, host.c_str(), 0) == 1;
}

SslPtr Context::connection(bool dials, Protocol protocol) const {
    SslPtr ssl(SSL_new(context_.get()));
    if (ssl == nullptr) return nullptr;
    if (!dials) {
        SSL_set_accept_state(ssl.get());
        return ssl;
    }
    SSL_set_connect_state(ssl.get());
    const std::string_view offer = alpn_of(protocol);
    if (SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(offer.data()),
                            static_cast<unsigned>(offer.size())) != 0)
        return nullptr;
    if (!own_name_.empty() && SSL_set_tlsext_host_name(ssl.get(), own_name_.c_str()) != 1) return nullptr;
    return ssl;
}

Protocol Context::protocol_of(const SSL& ssl) {
    const unsigned char* chosen = nullptr;
    unsigned int length = 0;
    SSL_get0_alpn_selected(&ssl, &chosen, &length);
    const std::string_view name(reinterpret_cast<const char*>(chosen), length);
    for (const Protocol protocol : {Protocol::link, Protocol::enrolment}) {
        if (name == alpn_of(protocol).substr(1)) return protocol;
    }
    return Protocol::none;
}

std::string explain_alert(const std::string& reason) {
    const auto has = [&reason](const char* part) { return reason.find(part) != std::string::npos; };
    // The last one: it knows an authority of the same name, but with another key.
    if (!has("alert") || (!has("certificate") && !has("unknown ca") && !has("decrypt error"))) return reason;
    return reason + ": the other end has refused the certificate of this one; its log says why";
}

std::string explain_failure(const SSL& ssl, const std::string& reason, bool is_from_files) {
    switch (SSL_get_verify_result(&ssl)) {
    case X509_V_OK: break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
    case X509_V_ERR_CERT_HAS_EXPIRED: {
        char now[32] = {};
        const std::time_t seconds = std::time(nullptr);
        std::tm parts{};
        ::gmtime_r(&seconds, &parts);
        std::strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", &parts);
        return core::formatted(
            "wrong clock, or an old certificate: the certificate of the other end is {} by the clock "
            "of this host, which shows {}; set the clocks of both hosts",
            SSL_get_verify_result(&ssl) == X509_V_ERR_CERT_NOT_YET_VALID ? "not valid yet" : "expired", now);
    }
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "the certificate of the other end is not for this host: the master needs one with the name or address "
               "that peers dial, or with that of PCCL_TLS_MASTER_NAME";
    case X509_V_ERR_CERT_REVOKED:
        return "certificate revoked: the certificate of the other end is in a CRL of PCCL_TLS_CA";
    default:
        if (is_from_files)
            return core::formatted("the certificate of the other end is not accepted: {}; it must be signed by an "
                                   "authority of PCCL_TLS_CA, for clients and servers",
                                   X509_verify_cert_error_string(SSL_get_verify_result(&ssl)));
        return core::formatted("authority of another run: the certificate of the other end is not signed by the "
                               "authority of this run ({}); use an invitation of the master at this address",
                               X509_verify_cert_error_string(SSL_get_verify_result(&ssl)));
    }
    return "TLS handshake: " + (reason.empty() ? "the other end closed the connection" : explain_alert(reason));
}

}  // namespace pccl::real::tls
