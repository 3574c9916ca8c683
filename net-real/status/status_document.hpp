// A master's status as it is served: as JSON for programs, as a few lines for people.
//
// Times are milliseconds before the moment of the document. Peers are named by their first 8 hex digits. The document
// contains no text that a peer has sent.
#pragma once

#include "core/master_status.hpp"

#include <string>

namespace pccl::real {

// `security`: how the run is protected: none, tls, or tls-without-data.
std::string status_json(const core::MasterStatus& status, core::Instant now, const char* security);
std::string status_text(const core::MasterStatus& status, core::Instant now, const char* security);

}  // namespace pccl::real
