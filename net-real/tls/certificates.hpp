// Keys (EC P-256) and certificates of a secure run, and what a certificate names.
//
// An authority signs two kinds of certificates: one of the master, and those of peers. A peer's certificate names one
// peer id. Names are URIs in subjectAltName: `pccl:run:HEX` in both, `pccl:master` or `pccl:peer:UUID`, and for a peer
// `pccl:invitation:ID` and, if its invitation is for one group, `pccl:group:N`. The common name is the name that the
// operator gave. Nothing here blocks or keeps state. Times are seconds since the epoch.
#pragma once

#include "net-real/tls/certificate_name.hpp"
#include "net-real/tls/openssl.hpp"

#include <array>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pccl::real::tls {

using KeyHash = std::array<std::uint8_t, 32>;  // SHA-256 of a public key (SubjectPublicKeyInfo, DER)

struct Lifetime {
    std::time_t from = 0;
    std::time_t until = 0;
};
// A certificate is valid a little before it was made: clocks differ.
inline constexpr std::time_t clock_tolerance = 5 * 60;

// 1 to 64 letters, digits, dots, underscores, hyphens and number signs.
bool is_name(std::string_view text);

// All of these return null (or nothing) and set `error` if OpenSSL fails or the input is malformed.
KeyPtr make_key(std::string& error);
std::string to_pem(EVP_PKEY& key);
std::string to_pem(X509& certificate);
std::string to_der(X509& certificate);
KeyPtr key_from_pem(const std::string& pem, std::string& error);
CertificatePtr certificate_from_pem(const std::string& pem, std::string& error);
CertificatePtr certificate_from_der(std::string_view der, std::string& error);
std::optional<KeyHash> hash_of_key(X509& certificate);

CertificatePtr make_authority(EVP_PKEY& key, std::time_t now, std::string& error);
// `subject`: the public key to certify.
CertificatePtr issue(EVP_PKEY& authority_key, X509& authority, EVP_PKEY& subject, const CertificateName& name,
                     const Lifetime& life, std::string& error);
// A certificate signing request (DER). It proves that the sender has the private key; the names in it are not used.
std::string make_request(EVP_PKEY& key, std::string& error);
KeyPtr key_of_request(std::string_view der, std::string& error);

// Nothing: the certificate is not one of this scheme.
std::optional<CertificateName> name_of(X509& certificate);
// Of a certificate of an operator's PKI. `claimed`: the peer id that the other end gives itself, in hexadecimal digits;
// null: it does not give any.
CertificateName name_by_key(X509& certificate, const char* claimed);
Lifetime lifetime_of(X509& certificate);

std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace pccl::real::tls
