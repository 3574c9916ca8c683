#include "net-real/sockets.hpp"

#include "core/base/format.hpp"
#include "core/topology/address_rules.hpp"
#include "net-real/descriptors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

namespace pccl::real {

namespace {

std::string last_error(const char* what) { return core::formatted("{}: {}", what, std::strerror(errno)); }

socklen_t to_native(const core::Endpoint& endpoint, sockaddr_storage& out) {
    std::memset(&out, 0, sizeof out);
    if (endpoint.is_v6) {
        auto& address = reinterpret_cast<sockaddr_in6&>(out);
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(endpoint.port);
        std::memcpy(&address.sin6_addr, endpoint.address.data(), 16);
        return sizeof address;
    }
    auto& address = reinterpret_cast<sockaddr_in&>(out);
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    std::memcpy(&address.sin_addr, endpoint.address.data(), 4);
    return sizeof address;
}

// IPv4 addresses that a dual-stack listener sees as IPv6 are converted to IPv4.
core::Endpoint from_native(const sockaddr_storage& in) {
    core::Endpoint endpoint;
    if (in.ss_family == AF_INET) {
        const auto& address = reinterpret_cast<const sockaddr_in&>(in);
        endpoint.port = ntohs(address.sin_port);
        std::memcpy(endpoint.address.data(), &address.sin_addr, 4);
    } else if (in.ss_family == AF_INET6) {
        const auto& address = reinterpret_cast<const sockaddr_in6&>(in);
        endpoint.port = ntohs(address.sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
            std::memcpy(endpoint.address.data(), address.sin6_addr.s6_addr + 12, 4);
        } else {
            endpoint.is_v6 = true;
            std::memcpy(endpoint.address.data(), &address.sin6_addr, 16);
        }
    }
    return endpoint;
}

constexpr const char* unpaced = "cubic";

void set_congestion_control(int descriptor, std::string_view name) {
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

std::string congestion_control_of(int descriptor) {
    std::array<char, 32> name{};
    socklen_t length = sizeof name;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {};
    return std::string(name.data(), ::strnlen(name.data(), name.size()));
}

// The system's, as the first socket of this process had it.
const std::string& system_congestion_control(int descriptor) {
    static const std::string name = congestion_control_of(descriptor);
    return name;
}

// Before listen() or connect(). A connection that began with a control that paces is paced for ever, whatever it changes
// to. Accepted connections begin as their listener does.
void begin_unpaced(int descriptor) {
    system_congestion_control(descriptor);
    set_congestion_control(descriptor, unpaced);
}

int open_socket(int family) {
    const std::lock_guard lock(descriptors::guard());
    const int descriptor = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor >= 0) descriptors::track(descriptor);
    return descriptor;
}

void set_flag(int descriptor, int level, int name, int value) {
    ::setsockopt(descriptor, level, name, &value, sizeof value);
}

int listen_once(const std::optional<core::Endpoint>& address, std::uint16_t port) {
    core::Endpoint local;
    if (address)
        local = *address;
    else
        local.is_v6 = true;
    local.port = port;
    const int descriptor = open_socket(local.is_v6 ? AF_INET6 : AF_INET);
    if (descriptor < 0) return -1;
    set_flag(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    begin_unpaced(descriptor);
    // The wildcard accepts IPv4 too, so that peers of both families use one listener.
    if (local.is_v6) set_flag(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, local.address != core::Endpoint{}.address ? 1 : 0);
    sockaddr_storage native;
    const socklen_t length = to_native(local, native);
    if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&native), length) == 0 && ::listen(descriptor, 512) == 0) {
        return descriptor;
    }
    const int saved = errno;
    close_socket(descriptor);
    errno = saved;
    return -1;
}

}  // namespace

int listen_on(const ListenRequest& request, std::uint16_t& port, std::string& error) {
    std::optional<core::Endpoint> address = request.address;
    for (std::uint32_t candidate = request.port_first; candidate <= request.port_last; ++candidate) {
        int descriptor = listen_once(address, static_cast<std::uint16_t>(candidate));
        if (descriptor < 0 && !address && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
            address = core::Endpoint{};  // a host without IPv6
            descriptor = listen_once(address, static_cast<std::uint16_t>(candidate));
        }
        if (descriptor >= 0) {
            sockaddr_storage local{};
            socklen_t length = sizeof local;
            ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length);
            port = from_native(local).port;
            // Now, and not before it was bound: else it could share the port of another listener of this user.
            if (request.is_dialled_from) set_flag(descriptor, SOL_SOCKET, SO_REUSEPORT, 1);
            return descriptor;
        }
        if (errno != EADDRINUSE && errno != EACCES) break;
    }
    core::Endpoint shown = address.value_or(core::Endpoint{});
    shown.port = request.port_first;
    error = "cannot listen on " + core::to_text(shown);
    if (request.port_last != request.port_first) error += core::formatted(" to port {}", request.port_last);
    error += ": " + std::string(std::strerror(errno));
    if (errno == EADDRNOTAVAIL) error += "; this host does not have that address";
    if (errno == EADDRINUSE || errno == EACCES) error += request.remedy;
    return -1;
}

bool read_native(const sockaddr& address, core::Endpoint& endpoint) {
    if (address.sa_family != AF_INET && address.sa_family != AF_INET6) return false;
    sockaddr_storage native{};
    std::memcpy(&native, &address, address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    endpoint = from_native(native);
    return true;
}

namespace {

// -1 and errno.
int dial_from(const core::Endpoint& target, const std::optional<core::Endpoint>& source, std::uint16_t source_port,
              const char*& what) {
    what = "socket";
    const int descriptor = open_socket(target.is_v6 ? AF_INET6 : AF_INET);
    if (descriptor < 0) return -1;
    begin_unpaced(descriptor);
    const auto failed = [&](const char* call) {
        what = call;
        const int saved = errno;
        close_socket(descriptor);
        errno = saved;
        return -1;
    };
    sockaddr_storage native;
    const bool has_source = source && source->is_v6 == target.is_v6 && source->address != core::Endpoint{}.address;
    if (has_source || source_port != 0) {
        core::Endpoint local = has_source ? *source : core::Endpoint{};
        local.is_v6 = target.is_v6;
        local.port = source_port;
        if (source_port == 0) {
            set_flag(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        } else {
            set_flag(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
            set_flag(descriptor, SOL_SOCKET, SO_REUSEPORT, 1);
        }
        const socklen_t length = to_native(local, native);
        if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&native), length) != 0) return failed("bind");
    }
    const socklen_t length = to_native(target, native);
    if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&native), length) != 0 && errno != EINPROGRESS &&
        errno != EINTR)
        return failed("connect");
    return descriptor;
}

}  // namespace

int dial(const core::Endpoint& target, const std::optional<core::Endpoint>& source, std::string& error,
         std::uint16_t source_port) {
    const char* what = "";
    int descriptor = dial_from(target, source, source_port, what);
    // The port may be in use, or an earlier connection between the same two ports is not forgotten yet.
    if (descriptor < 0 && source_port != 0) descriptor = dial_from(target, source, 0, what);
    if (descriptor < 0) error = last_error(what);
    return descriptor;
}

core::Endpoint local_address(int descriptor) {
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) != 0) return {};
    return from_native(local);
}

std::string certificate_host(const core::Endpoint& endpoint) {
    const std::string text = core::to_text(endpoint);
    return endpoint.is_v6 ? text.substr(1, text.rfind(']') - 1) : text.substr(0, text.rfind(':'));
}

std::string dial_result(int descriptor) {
    int code = 0;
    socklen_t length = sizeof code;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) != 0) return last_error("connect");
    if (code != 0) return std::string("connect: ") + std::strerror(code);
    sockaddr_storage local{}, remote{};
    socklen_t local_length = sizeof local, remote_length = sizeof remote;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&remote), &remote_length) != 0) {
        return last_error("connect");
    }
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &local_length);
    // A dial to an unused local port can connect to itself, if the system picks the same port as its source.
    const core::Endpoint own = from_native(local);  // none: a socket of another family, as tests use
    if (own != core::Endpoint{} && own == from_native(remote))
        return "connect: nobody listens there (connected to itself)";
    return {};
}

int accept_from(int listener, core::Endpoint& remote) {
    sockaddr_storage native{};
    socklen_t length = sizeof native;
    const std::lock_guard lock(descriptors::guard());
    const int descriptor =
        ::accept4(listener, reinterpret_cast<sockaddr*>(&native), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) return -1;
    descriptors::track(descriptor);
    remote = from_native(native);
    return descriptor;
}

namespace {

// As the handshake measured it; 0: unknown.
core::Duration round_trip_of(int descriptor) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
    return info.tcpi_rtt * core::microsecond;
}

}  // namespace

void apply_user_timeout(int descriptor, core::Duration user_timeout) {
    set_flag(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::min<core::Duration>(user_timeout / core::millisecond, 1 << 30)));
}

void apply_options(int descriptor, const SocketOptions& options) {
    set_flag(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
    if (options.user_timeout > 0) apply_user_timeout(descriptor, options.user_timeout);
    if (!options.congestion_control.empty()) {
        set_congestion_control(descriptor, options.congestion_control);
        return;
    }
    sockaddr_storage remote{};
    socklen_t length = sizeof remote;
    const bool loopback = ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&remote), &length) == 0 &&
                          core::is_loopback(from_native(remote));
    const char* suitable = congestion_control_for(options.traffic, loopback, round_trip_of(descriptor));
    set_congestion_control(descriptor, suitable != nullptr ? suitable : system_congestion_control(descriptor));
}

const char* congestion_control_for(Traffic traffic, bool loopback, core::Duration round_trip) {
    constexpr core::Duration long_path = 5 * core::millisecond;
    if (loopback || traffic == Traffic::control) return unpaced;
    return round_trip >= long_path ? "bbr" : nullptr;
}

void limit_unsent(int descriptor, int bytes) { set_flag(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes); }

void close_socket(int descriptor) {
    if (descriptor < 0) return;
    const std::lock_guard lock(descriptors::guard());
    descriptors::untrack(descriptor);
    ::close(descriptor);
}

}  // namespace pccl::real
