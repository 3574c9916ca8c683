// The system calls for sockets: addresses, options, listeners, dials. Every descriptor made here is non-blocking,
// close-on-exec and tracked (see descriptors.hpp). close_socket() closes it.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>

struct sockaddr;

namespace pccl::real {

// What a connection is for.
enum class Traffic : std::uint8_t { control, payload };

struct SocketOptions {
    core::Duration user_timeout = 0;  // 0: the system's
    std::string congestion_control;   // empty: what congestion_control_for() says
    Traffic traffic = Traffic::payload;
};

// The congestion control that suits a connection, if the kernel has it; null: the system's. Controls that pace cost a
// third of the speed on loopback, and they pace a connection that has carried little as if it were slow: control frames
// of some KiB take longer. On long paths, all but bbr give up their window whenever a connection was idle for a moment
// (net.ipv4.tcp_slow_start_after_idle), and those with payload are between two operations.
const char* congestion_control_for(Traffic traffic, bool loopback, core::Duration round_trip);

struct ListenRequest {
    std::optional<core::Endpoint> address;  // none, or [::]: every address, IPv4 and IPv6
    std::uint16_t port_first = 0;           // 0: any free port
    std::uint16_t port_last = 0;
    const char* remedy = "";       // for the message: what to do if no port of the range is free
    bool is_dialled_from = false;  // connections may be dialled from its port; no other process can listen there
};

// -1 and `error` when no port of the range could be bound.
int listen_on(const ListenRequest& request, std::uint16_t& port, std::string& error);
// A descriptor whose connection is in progress or already established, or -1 and `error`. `source_port`: the local
// port, if it is free for this target, even if this process listens on it (see share_port); 0: any.
int dial(const core::Endpoint& target, const std::optional<core::Endpoint>& source, std::string& error,
         std::uint16_t source_port = 0);
// This end's address; port 0: not known.
core::Endpoint local_address(int descriptor);
// The address as a certificate names it: without port and brackets.
std::string certificate_host(const core::Endpoint& endpoint);
// Empty if the dial succeeded, else the cause.
std::string dial_result(int descriptor);
// False: not an internet address.
bool read_native(const sockaddr& address, core::Endpoint& endpoint);
// A descriptor, or -1 with errno set.
int accept_from(int listener, core::Endpoint& remote);
void apply_options(int descriptor, const SocketOptions& options);
void apply_user_timeout(int descriptor, core::Duration user_timeout);
// Limits the unsent bytes in the kernel, so that control frames do not wait behind much payload.
void limit_unsent(int descriptor, int bytes);
void close_socket(int descriptor);

}  // namespace pccl::real
