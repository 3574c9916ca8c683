// One request and one answer over HTTP/1.1, on a connection of their own.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/port_mapping/router.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace pccl::real::upnp {

inline constexpr std::size_t header_bytes_max = 8u << 10, body_bytes_max = 64u << 10;

struct HttpAnswer {
    unsigned status = 0;
    std::string body;  // at most body_bytes_max
};

// `request` is complete and asks for the end of the connection. False: `why` says why.
bool http_ask(const core::Endpoint& target, std::string_view request, const Patience& patience, HttpAnswer& answer,
              std::string& why);

}  // namespace pccl::real::upnp
