// An operator's own PKI in a folder: an authority, and certificates with any names and lifetimes.
#pragma once

#include "net-real/tests/temporary_folder.hpp"
#include "net-real/tls/certificates.hpp"
#include "net-real/tls/operator_files.hpp"

#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace pccl::real {

class OwnPki {
public:
    OwnPki() {
        std::string error;
        key_ = tls::make_key(error);
        require(key_ != nullptr, error);
        authority_ = begin("authority of " + folder_.path(), *key_, -60, 86'400);
        X509_set_issuer_name(authority_.get(), X509_get_subject_name(authority_.get()));
        extend(*authority_, NID_basic_constraints, "critical,CA:TRUE");
        extend(*authority_, NID_key_usage, "critical,keyCertSign,cRLSign");
        require(X509_sign(authority_.get(), key_.get(), EVP_sha256()) != 0, "no signature");
        write("ca.pem", tls::to_pem(*authority_));
    }
    OwnPki(const OwnPki&) = delete;

    struct Wish {
        std::string hosts = {};  // as in openssl.cnf: "DNS:a.example,IP:127.0.0.1"; empty: none
        std::time_t from = 0;    // seconds from now
        std::time_t until = 3600;
        std::string key_of = {};  // another certificate of this PKI with the same key; empty: a new key
    };
    // Files with the certificate of this name; a second call for the same name replaces them.
    tls::OperatorFiles make(const std::string& name) { return make(name, Wish{}); }
    tls::OperatorFiles make(const std::string& name, const Wish& wish) {
        std::string error;
        const std::string key_file = folder_.path() + "/" + (wish.key_of.empty() ? name : wish.key_of) + ".key";
        if (wish.key_of.empty()) write(name + ".key", tls::to_pem(*tls::make_key(error)));
        std::ifstream in(key_file);
        const tls::KeyPtr key =
            tls::key_from_pem(std::string(std::istreambuf_iterator<char>(in), {}), error);
        require(key != nullptr, error);
        const tls::CertificatePtr certificate = begin(name, *key, wish.from - 60, wish.until);
        X509_set_issuer_name(certificate.get(), X509_get_subject_name(authority_.get()));
        if (!wish.hosts.empty()) extend(*certificate, NID_subject_alt_name, wish.hosts);
        require(X509_sign(certificate.get(), key_.get(), EVP_sha256()) != 0, "no signature");
        write(name + ".pem", tls::to_pem(*certificate));
        return {folder_.path() + "/ca.pem", folder_.path() + "/" + name + ".pem", key_file};
    }
    // From now on the file of authorities has a list with this certificate in it.
    void revoke(const std::string& name) {
        std::ifstream in(folder_.path() + "/" + name + ".pem");
        std::string error;
        const tls::CertificatePtr bad =
            tls::certificate_from_pem(std::string(std::istreambuf_iterator<char>(in), {}), error);
        require(bad != nullptr, error);
        X509_CRL* const list = X509_CRL_new();
        X509_REVOKED* const entry = X509_REVOKED_new();
        ASN1_TIME* const time = ASN1_TIME_set(nullptr, std::time(nullptr) - 60);
        ASN1_TIME* const next = ASN1_TIME_set(nullptr, std::time(nullptr) + 3600);
        X509_CRL_set_version(list, 1);
        X509_CRL_set_issuer_name(list, X509_get_subject_name(authority_.get()));
        X509_CRL_set1_lastUpdate(list, time);
        X509_CRL_set1_nextUpdate(list, next);
        X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(bad.get()));
        X509_REVOKED_set_revocationDate(entry, time);
        X509_CRL_add0_revoked(list, entry);
        X509_CRL_sign(list, key_.get(), EVP_sha256());
        const tls::BioPtr memory(BIO_new(BIO_s_mem()));
        PEM_write_bio_X509_CRL(memory.get(), list);
        char* data = nullptr;
        const long bytes = BIO_get_mem_data(memory.get(), &data);
        write("ca.pem", tls::to_pem(*authority_) + std::string(data, static_cast<std::size_t>(bytes)));
        ASN1_TIME_free(time);
        ASN1_TIME_free(next);
        X509_CRL_free(list);
    }

private:
    static void require(bool holds, const std::string& what) {
        if (!holds) throw std::runtime_error("own PKI: " + what);
    }
    // Times are in seconds from now.
    tls::CertificatePtr begin(const std::string& name, EVP_PKEY& key, std::time_t from, std::time_t until) {
        const std::time_t now = std::time(nullptr);
        tls::CertificatePtr certificate(X509_new());
        X509_set_version(certificate.get(), X509_VERSION_3);
        ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial_);
        ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now + from);
        ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now + until);
        X509_set_pubkey(certificate.get(), &key);
        X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
        return certificate;
    }
    static void extend(X509& certificate, int kind, const std::string& value) {
        X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
        require(extension != nullptr && X509_add_ext(&certificate, extension, -1) == 1, "no extension");
        X509_EXTENSION_free(extension);
    }
    void write(const std::string& name, const std::string& text) {
        std::ofstream(folder_.path() + "/" + name, std::ios::trunc) << text;
    }
    TemporaryFolder folder_;
    tls::KeyPtr key_;
    tls::CertificatePtr authority_;
    long serial_ = 0;
};

}  // namespace pccl::real
