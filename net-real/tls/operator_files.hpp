// Where the certificates of an operator's own PKI are. All are in PEM.
#pragma once

#include <string>

namespace pccl::real::tls {

struct OperatorFiles {
    std::string authorities;  // certificates that are trusted; with CRLs, certificates are checked against these
    std::string certificate;  // of this process, with the certificates between it and an authority
    std::string key;          // without a pass phrase
    bool any() const { return !authorities.empty() || !certificate.empty() || !key.empty(); }
};

}  // namespace pccl::real::tls
