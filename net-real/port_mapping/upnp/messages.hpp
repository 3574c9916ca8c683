// The texts of UPnP's Internet Gateway Device: searches, descriptions and commands. Everything that comes from the
// network is any bytes, and is only believed as far as it stays with the router.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pccl::real::upnp {

// At the router.
struct Place {
    std::uint16_t port = 0;
    std::string path;  // begins with a slash; visible ASCII only
};

// `to`: as in the header of the request, with the port.
std::string search_request(std::string_view to);
// Where the description is. Nothing: the datagram is no answer to a search, or names another host than the router.
std::optional<Place> read_found(std::string_view datagram, const core::Endpoint& router);
// Of a URL that must be on the router.
std::optional<Place> read_url(std::string_view url, const core::Endpoint& router);

// What connects the router with the outside.
struct Service {
    std::string type;
    Place control;
};

// Those of a description that was read from `from`; at most two. The others are left out, and those that are not on
// the router.
std::vector<Service> read_description(const std::string& description, const Place& from, const core::Endpoint& router);

std::string page_request(const core::Endpoint& router, const Place& page);
using Arguments = std::vector<std::pair<const char*, std::string>>;  // values need no escapes
std::string command_request(const core::Endpoint& router, const Service& service, const char* command,
                            const Arguments& arguments);

// The answer to a command.
class Reply {
public:
    explicit Reply(const std::string& body);
    std::string text(const char* name) const;  // empty: it has no such value
    std::optional<std::uint32_t> number(const char* name) const;
    std::optional<core::Endpoint> address(const char* name) const;  // IPv4, and not 0

private:
    std::vector<std::pair<std::string, std::string>> values_;
};

// Errors of commands.
enum Error : std::uint32_t {
    no_such_entry = 714,
    conflict = 718,
    same_port_needed = 724,
    only_permanent = 725,
    conflict_with_other = 729,
};
std::string error_text(std::uint32_t error);

}  // namespace pccl::real::upnp
