// Whom a certificate of a secure run names.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

namespace pccl::real::tls {

struct CertificateName {
    bool is_master = false;
    core::Uuid peer;                     // nil: the master
    std::string name;                    // by the operator; see is_name()
    std::string invitation;              // id of the invitation
    std::optional<core::GroupId> group;  // the only one that the peer may join
    // Of an operator's own PKI (operator_keys.hpp). Then `peer` is what the other end calls itself, which fits its key;
    // or, if it accepted the connection, only the last key_bytes bytes are known. nil: what it says does not fit.
    bool by_key = false;
    std::string serial = {};  // of such a certificate: hexadecimal digits without leading zeros

    static constexpr std::size_t serial_bytes_max = 20;  // RFC 5280, 4.1.2.2
    static constexpr std::size_t key_bytes = 10;
    // Whether the other end may be this peer.
    bool is_peer(const core::Uuid& wanted) const {
        if (is_master || peer.is_nil()) return false;
        return by_key ? std::equal(peer.bytes.end() - key_bytes, peer.bytes.end(), wanted.bytes.end() - key_bytes)
                      : peer == wanted;
    }
};

}  // namespace pccl::real::tls
