// HOST:PORT as people write it, to the address structure of the C interface.
//
// HOST is an IPv4 address, an IPv6 address in brackets, or a name that the system resolves (IPv4 preferred).
#pragma once

#include "include/pccl.h"

#include <string>

namespace pccl_master {

struct ListenAddress {
    std::string host;  // as it was written
    ccoip_socket_address_t address{};
};

// False with the reason in `error` if `text` does not name an address.
bool parse_listen_address(const std::string& text, ListenAddress& listen, std::string& error);

}  // namespace pccl_master
