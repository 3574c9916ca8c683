#include "net-real/tls/certificates.hpp"

#include "core/base/format.hpp"
#include "net-real/tls/invitation.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace pccl::real::tls {

namespace {

constexpr std::time_t authority_life = std::time_t{10} * 365 * 86'400;
// The authority is made once, maybe before the clock of its host is right. Certificates that it issues are not valid so
// early: a peer whose clock is wrong must fail at the master, and not later at the other peers.
constexpr std::time_t authority_tolerance = 86'400;
constexpr std::string_view peer_prefix = "pccl:peer:";
constexpr std::string_view run_prefix = "pccl:run:";
constexpr std::string_view invitation_prefix = "pccl:invitation:";
constexpr std::string_view group_prefix = "pccl:group:";
constexpr std::string_view master_uri = "pccl:master";
constexpr std::size_t run_digits = 32;

bool failed(std::string& error, const char* what) {
    const std::string reason = take_error();
    error = reason.empty() ? what : core::formatted("{}: {}", what, reason);
    return false;
}

template <class Write>
std::string pem_by(const Write& write) {
    const BioPtr memory(BIO_new(BIO_s_mem()));
    if (memory == nullptr || write(memory.get()) != 1) return {};
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(memory.get(), &data);
    return {data, static_cast<std::size_t>(bytes)};
}

BioPtr reader_of(std::string_view text) {
    if (text.size() > INT_MAX) return nullptr;
    return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Never asks for a pass phrase on the terminal.
int no_password(char*, int, int, void*) { return -1; }

bool add_extension(X509& certificate, X509& issuer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    if (extension == nullptr) return false;
    const bool added = X509_add_ext(&certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

bool set_common_name(X509_NAME* name, const std::string& text) {
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()), -1, 0) == 1;
}

// Everything but names, extensions and the signature.
CertificatePtr begin_certificate(EVP_PKEY& subject, const Lifetime& life) {
    CertificatePtr certificate(X509_new());
    unsigned char serial[16];
    if (certificate == nullptr || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
    serial[0] &= 0x7F;  // positive
    BIGNUM* number = BN_bin2bn(serial, sizeof serial, nullptr);
    const bool numbered =
        number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) != nullptr;
    BN_free(number);
    if (!numbered || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
        ASN1_TIME_set(X509_getm_notBefore(certificate.get()), life.from) == nullptr ||
        ASN1_TIME_set(X509_getm_notAfter(certificate.get()), life.until) == nullptr ||
        X509_set_pubkey(certificate.get(), &subject) != 1)
        return nullptr;
    return certificate;
}

std::string run_uri(X509& authority) {
    const auto hash = hash_of_key(authority);
    if (!hash) return {};
    return std::string(run_prefix) + to_hex(*hash).substr(0, run_digits);
}

std::string uuid_text(const core::Uuid& uuid) { return to_hex(uuid.bytes); }

std::time_t seconds_of(const ASN1_TIME* time) {
    std::tm parts{};
    if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return 0;
    return ::timegm(&parts);
}

}  // namespace

std::string to_hex(std::span<const std::uint8_t> bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text.push_back(digits[byte >> 4]);
        text.push_back(digits[byte & 15]);
    }
    return text;
}

bool is_name(std::string_view text) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-' || c == '#';
    };
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

KeyPtr make_key(std::string& error) {
    begin_use();
    KeyPtr key(EVP_EC_gen("P-256"));
    if (key == nullptr) failed(error, "cannot make a key");
    return key;
}

std::string to_pem(EVP_PKEY& key) {
    return pem_by([&](BIO* out) { return PEM_write_bio_PrivateKey(out, &key, nullptr, nullptr, 0, nullptr, nullptr); });
}

std::string to_pem(X509& certificate) {
    return pem_by([&](BIO* out) { return PEM_write_bio_X509(out, &certificate); });
}

std::string to_der(X509& certificate) {
    unsigned char* bytes = nullptr;
    const int length = i2d_X509(&certificate, &bytes);
    if (length <= 0) return {};
    std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
    OPENSSL_free(bytes);
    return der;
}

KeyPtr key_from_pem(const std::string& pem, std::string& error) {
    begin_use();
    const BioPtr in = reader_of(pem);
    KeyPtr key(in == nullptr ? nullptr : PEM_read_bio_PrivateKey(in.get(), nullptr, no_password, nullptr));
    if (key == nullptr) failed(error, "not a private key");
    return key;
}

CertificatePtr certificate_from_pem(const std::string& pem, std::string& error) {
    begin_use();
    const BioPtr in = reader_of(pem);
    CertificatePtr certificate(in == nullptr ? nullptr : PEM_read_bio_X509(in.get(), nullptr, no_password, nullptr));
    if (certificate == nullptr) failed(error, "not a certificate");
    return certificate;
}

CertificatePtr certificate_from_der(std::string_view der, std::string& error) {
    begin_use();
    const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
    CertificatePtr certificate(der.size() > INT_MAX ? nullptr
                                                    : d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
    if (certificate == nullptr) failed(error, "not a certificate");
    return certificate;
}

std::optional<KeyHash> hash_of_key(X509& certificate) {
    unsigned char* bytes = nullptr;
    const int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(&certificate), &bytes);
    if (length <= 0) return std::nullopt;
    KeyHash hash;
    const bool ok =
        EVP_Digest(bytes, static_cast<std::size_t>(length), hash.data(), nullptr, EVP_sha256(), nullptr) == 1;
    OPENSSL_free(bytes);
    return ok ? std::optional(hash) : std::nullopt;
}

CertificatePtr make_authority(EVP_PKEY& key, std::time_t now, std::string& error) {
    CertificatePtr certificate = begin_certificate(key, {now - authority_tolerance, now + authority_life});
    if (certificate == nullptr || !set_common_name(X509_get_subject_name(certificate.get()), "PCCL run authority") ||
        X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) != 1 ||
        !add_extension(*certificate, *certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(*certificate, *certificate, NID_key_usage, "critical,keyCertSign") ||
        !add_extension(*certificate, *certificate, NID_subject_key_identifier, "hash") ||
        X509_sign(certificate.get(), &key, EVP_sha256()) == 0) {
        failed(error, "cannot make the certificate of the authority");
        return nullptr;
    }
    return certificate;
}

CertificatePtr issue(EVP_PKEY& authority_key, X509& authority, EVP_PKEY& subject, const CertificateName& name,
                     const Lifetime& life, std::string& error) {
    std::string uris = "URI:" + run_uri(authority);
    if (name.is_master) {
        uris += core::formatted(",URI:{}", master_uri);
    } else {
        uris += core::formatted(",URI:{}{},URI:{}{}", peer_prefix, uuid_text(name.peer), invitation_prefix,
                                name.invitation);
        if (name.group) uris += core::formatted(",URI:{}{}", group_prefix, *name.group);
    }
    if (!is_name(name.name) || (!name.is_master && !is_name(name.invitation))) {
        error = "a name has characters that are not allowed";
        return nullptr;
    }
    CertificatePtr certificate = begin_certificate(subject, life);
    if (certificate == nullptr || !set_common_name(X509_get_subject_name(certificate.get()), name.name) ||
        X509_set_issuer_name(certificate.get(), X509_get_subject_name(&authority)) != 1 ||
        !add_extension(*certificate, authority, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(*certificate, authority, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(*certificate, authority, NID_ext_key_usage, "serverAuth,clientAuth") ||
        !add_extension(*certificate, authority, NID_subject_alt_name, uris) ||
        X509_sign(certificate.get(), &authority_key, EVP_sha256()) == 0) {
        failed(error, "cannot make a certificate");
        return nullptr;
    }
    return certificate;
}

std::string make_request(EVP_PKEY& key, std::string& error) {
    const RequestPtr request(X509_REQ_new());
    unsigned char* bytes = nullptr;
    int length = 0;
    if (request == nullptr || X509_REQ_set_pubkey(request.get(), &key) != 1 ||
        X509_REQ_sign(request.get(), &key, EVP_sha256()) == 0 || (length = i2d_X509_REQ(request.get(), &bytes)) <= 0) {
        failed(error, "cannot make a certificate signing request");
        return {};
    }
    std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
    OPENSSL_free(bytes);
    return der;
}

KeyPtr key_of_request(std::string_view der, std::string& error) {
    constexpr std::size_t request_max = 4096;
    const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
    const RequestPtr request(der.size() > request_max ? nullptr
                                                      : d2i_X509_REQ(nullptr, &bytes, static_cast<long>(der.size())));
    KeyPtr key(request == nullptr ? nullptr : X509_REQ_get_pubkey(request.get()));
    if (key == nullptr || X509_REQ_verify(request.get(), key.get()) != 1) {
        failed(error, "the certificate signing request is malformed");
        return nullptr;
    }
    // Other keys could be large, and slow for everybody who checks their signatures.
    char group[64] = {};
    std::size_t written = 0;
    if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_EC ||
        EVP_PKEY_get_group_name(key.get(), group, sizeof group, &written) != 1 ||
        std::strcmp(group, "prime256v1") != 0) {
        take_error();
        error = "the key of the certificate signing request is not one of EC P-256";
        return nullptr;
    }
    return key;
}

std::optional<CertificateName> name_of(X509& certificate) {
    CertificateName found;
    auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
    bool malformed = names == nullptr;
    bool in_run = false;
    for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
        const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names, i);
        if (entry->type != GEN_URI) continue;
        const ASN1_IA5STRING* uri = entry->d.uniformResourceIdentifier;
        std::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                              static_cast<std::size_t>(ASN1_STRING_length(uri)));
        const auto rest_of = [&](std::string_view prefix) { return text.substr(prefix.size()); };
        if (text == master_uri) {
            found.is_master = true;
        } else if (text.starts_with(peer_prefix)) {
            if (!found.peer.is_nil() || !read_hex(rest_of(peer_prefix), found.peer.bytes)) malformed = true;
        } else if (text.starts_with(run_prefix)) {
            in_run = true;
        } else if (text.starts_with(invitation_prefix)) {
            found.invitation = rest_of(invitation_prefix);
        } else if (text.starts_with(group_prefix)) {
            core::GroupId group = 0;
            const std::string_view digits = rest_of(group_prefix);
            const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), group);
            malformed = malformed || status != std::errc{} || end != digits.data() + digits.size();
            found.group = group;
        }
    }
    GENERAL_NAMES_free(names);
    char common[65] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), NID_commonName, common, sizeof common);
    take_error();
    found.name = common;
    if (malformed || !in_run || found.is_master == !found.peer.is_nil()) return std::nullopt;
    return found;
}

namespace {

// Hexadecimal digits without leading zeros.
std::string serial_of(const X509& certificate) {
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(&certificate);
    const std::string digits =
        to_hex({ASN1_STRING_get0_data(serial), static_cast<std::size_t>(ASN1_STRING_length(serial))});
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

}  // namespace

CertificateName name_by_key(X509& certificate, const char* claimed) {
    CertificateName found;
    found.by_key = true;
    const auto hash = hash_of_key(certificate);
    if (!hash) return found;
    char common[65] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), NID_commonName, common, sizeof common);
    take_error();
    // It goes into log lines.
    found.name = is_name(common) ? common : "key " + to_hex(*hash).substr(0, 8);
    found.serial = serial_of(certificate);
    std::copy_n(hash->begin(), CertificateName::key_bytes, found.peer.bytes.end() - CertificateName::key_bytes);
    if (claimed == nullptr) return found;
    core::Uuid peer;
    found.peer = read_hex(claimed, peer.bytes) && found.is_peer(peer) ? peer : core::Uuid{};
    return found;
}

Lifetime lifetime_of(X509& certificate) {
    return {seconds_of(X509_get0_notBefore(&certificate)), seconds_of(X509_get0_notAfter(&certificate))};
}

}  // namespace pccl::real::tls
