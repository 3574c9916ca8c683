#include "net-real/port_mapping/router.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>

#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr int poll_ms = 50;
constexpr core::Duration first_wait = 250 * core::millisecond;
// PCP allows datagrams of 1100 bytes. A longer one is cut off, and then of no use.
constexpr std::size_t datagram_bytes_max = 1101;

std::optional<core::Endpoint> default_gateway() {
    std::ifstream table("/proc/net/route");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::istringstream words(line);
        std::string interface;
        std::uint32_t target = 1, gateway = 0, flags = 0;
        constexpr std::uint32_t up_by_gateway = 3;
        words >> interface >> std::hex >> target >> gateway >> flags;
        if (!words || target != 0 || gateway == 0 || (flags & up_by_gateway) != up_by_gateway) continue;
        core::Endpoint found;
        std::memcpy(found.address.data(), &gateway, sizeof gateway);  // network order already
        return found;
    }
    return std::nullopt;
}

sockaddr_in native(const core::Endpoint& endpoint) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    std::memcpy(&address.sin_addr, endpoint.address.data(), 4);
    return address;
}

std::uint32_t v4_bits(const sockaddr* address) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr;
}

bool within_own_network(const core::Endpoint& own, const core::Endpoint& other) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return false;
    const std::uint32_t own_bits = native(own).sin_addr.s_addr, other_bits = native(other).sin_addr.s_addr;
    bool within = false;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || one->ifa_netmask == nullptr) continue;
        if (v4_bits(one->ifa_addr) != own_bits) continue;
        within = within || ((own_bits ^ other_bits) & v4_bits(one->ifa_netmask)) == 0;
    }
    ::freeifaddrs(list);
    return within;
}

}  // namespace

bool Patience::is_over() const { return EventLoop::now() >= until || (stop && stop()); }

Patience Patience::at_most(core::Duration limit) const { return {std::min(until, EventLoop::now() + limit), stop}; }

bool wait_for(int descriptor, short events, const Patience& patience) {
    while (!patience.is_over()) {
        const core::Duration left = patience.until - EventLoop::now();
        pollfd one{descriptor, events, 0};
        const int timeout = static_cast<int>(std::clamp<core::Duration>(left / core::millisecond + 1, 1, poll_ms));
        if (::poll(&one, 1, timeout) > 0) return true;
    }
    return false;
}

std::string host_text(const core::Endpoint& endpoint) {
    const std::string text = core::to_text(endpoint);
    return text.substr(0, text.rfind(':'));
}

std::uint32_t read_number(std::span<const std::uint8_t> bytes) {
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    return value;
}

void write_number(std::span<std::uint8_t> bytes, std::uint32_t value) {
    for (std::size_t i = bytes.size(); i-- > 0; value >>= 8) bytes[i] = static_cast<std::uint8_t>(value);
}

std::optional<Router> find_router(std::string& why) {
    const auto gateway = default_gateway();
    if (!gateway) {
        why = "no default route for IPv4";
        return std::nullopt;
    }
    core::Endpoint target = *gateway;
    target.port = 9;  // nothing is sent
    RouterSocket probe;
    if (!probe.open(target, why)) return std::nullopt;
    Router router{*gateway, probe.local(), false};
    router.own.port = 0;
    router.is_neighbour = within_own_network(router.own, router.address);
    return router;
}

// ---- RouterSocket ------------------------------------------------------------------------------------------------

RouterSocket::~RouterSocket() { close_socket(socket_); }

bool RouterSocket::open(const core::Endpoint& target, std::string& why) {
    if (socket_ >= 0) return true;
    {
        const std::lock_guard lock(descriptors::guard());
        socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (socket_ >= 0) descriptors::track(socket_);
    }
    const sockaddr_in address = native(target);
    if (socket_ >= 0 && ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return true;
    why = std::string("socket to the router: ") + std::strerror(errno);
    close_socket(socket_);
    socket_ = -1;
    return false;
}

core::Endpoint RouterSocket::local() const { return local_address(socket_); }

void RouterSocket::send(std::span<const std::uint8_t> request) {
    static_cast<void>(::send(socket_, request.data(), request.size(), MSG_NOSIGNAL));
}

bool RouterSocket::ask(std::span<const std::uint8_t> request,
                       const std::function<bool(std::span<const std::uint8_t>)>& takes, const Patience& patience,
                       std::string& why) {
    std::uint64_t ignored = 0;
    std::array<std::uint8_t, datagram_bytes_max> datagram;
    for (core::Duration wait = first_wait; !patience.is_over(); wait *= 2) {
        send(request);
        const Patience turn = patience.at_most(wait);
        while (wait_for(socket_, POLLIN, turn)) {
            const ssize_t got = ::recv(socket_, datagram.data(), datagram.size(), 0);
            if (got < 0 && errno == ECONNREFUSED) {
                why = "the router does not speak it";
                return false;
            }
            if (got < 0) continue;
            if (takes({datagram.data(), static_cast<std::size_t>(got)})) return true;
            ++ignored;
        }
    }
    why = "the router does not answer";
    if (ignored != 0) why += core::formatted(" ({} datagrams from it were no answers, and are ignored)", ignored);
    return false;
}

}  // namespace pccl::real
