// Owners of OpenSSL objects, the text of its last error, and the end of the library in this process.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace pccl::real::tls {

// To be called before the first use of OpenSSL. The process may end while threads of this library still use TLS, so
// OpenSSL must not free its tables at exit. If the host has used OpenSSL before, OpenSSL frees them nevertheless:
// then see before_cleanup().
void begin_use();
// `stop` runs when OpenSSL is about to free its tables. When it returns, no thread may use TLS. Must not throw.
void before_cleanup(void (*stop)());
// True: OpenSSL has freed its tables. The objects that are left cannot be released any more.
bool was_cleaned_up();

template <auto release>
struct Release {
    template <class Object>
    void operator()(Object* object) const {
        if (!was_cleaned_up()) release(object);
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
