// Whom a certificate of a secure run names.
#pragma once

#include "core/base/ids.hpp"

#include <optional>
#include <string>

namespace pccl::real::tls {

struct CertificateName {
    bool is_master = false;
    core::Uuid peer;                     // nil: the master
    std::string name;                    // by the operator; see is_name()
    std::string invitation;              // id of the invitation
    std::optional<core::GroupId> group;  // the only one that the peer may join
};

}  // namespace pccl::real::tls
