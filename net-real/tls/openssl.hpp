// Owners of OpenSSL objects, and the text of its last error.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace pccl::real::tls {

template <auto release>
struct Release {
    template <class Object>
    void operator()(Object* object) const {
        release(object);
    }
};

using KeyPtr = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Release<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, Release<X509_REQ_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Release<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, Release<SSL_free>>;
using SessionPtr = std::unique_ptr<SSL_SESSION, Release<SSL_SESSION_free>>;
using BioPtr = std::unique_ptr<BIO, Release<BIO_free_all>>;

// The reason of the oldest error in this thread's queue, which is emptied. "" if there is none.
std::string take_error();

}  // namespace pccl::real::tls
