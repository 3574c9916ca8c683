#include "net-real/port_mapping.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/sockets.hpp"
#include "net-real/workers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <span>
#include <sstream>
#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr std::uint16_t router_port = 5351;
constexpr std::uint32_t lifetime_s = 3600;
constexpr core::Duration first_wait = 250 * core::millisecond;  // doubled with each repetition (RFC 6886, 3.1)
constexpr core::Duration renewal_time = 2 * core::second;
constexpr std::uint8_t ask_address = 0, ask_tcp_port = 2, answer_flag = 128;

// The gateway of the default route for IPv4. Nothing: there is none.
std::optional<in_addr> default_gateway() {
    std::ifstream table("/proc/net/route");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::istringstream words(line);
        std::string interface;
        std::uint32_t target = 1, gateway = 0, flags = 0;
        constexpr std::uint32_t up_by_gateway = 3;
        words >> interface >> std::hex >> target >> gateway >> flags;
        if (words && target == 0 && gateway != 0 && (flags & up_by_gateway) == up_by_gateway) return in_addr{gateway};
    }
    return std::nullopt;
}

std::uint32_t number(std::span<const std::uint8_t> bytes) {
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    return value;
}

const char* text_of(std::uint32_t result) {
    switch (result) {
    case 1: return "the router does not know this version of NAT-PMP";
    case 2: return "the router has port mapping switched off";
    case 3: return "the router has no outer address";
    case 4: return "the router has no port left";
    default: return "the router refuses";
    }
}

// A socket on which only the router is heard.
class Router {
public:
    ~Router() { close_socket(socket_); }
    Router() = default;
    Router(const Router&) = delete;

    bool open(std::string& why) {
        const auto gateway = default_gateway();
        if (!gateway) {
            why = "no default route for IPv4";
            return false;
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(router_port);
        address.sin_addr = *gateway;
        {
            const std::lock_guard lock(descriptors::guard());
            socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            if (socket_ >= 0) descriptors::track(socket_);
        }
        if (socket_ >= 0 && ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            return true;
        why = std::string("socket to the router: ") + std::strerror(errno);
        return false;
    }
    void send(std::span<const std::uint8_t> request) {
        static_cast<void>(::send(socket_, request.data(), request.size(), MSG_NOSIGNAL));
    }
    // Repeats the request until its answer comes. `answer` is as long as a good one. False: `why`.
    bool ask(std::span<const std::uint8_t> request, std::span<std::uint8_t> answer, core::Instant until,
             std::string& why) {
        for (core::Duration wait = first_wait;; wait *= 2) {
            send(request);
            const core::Instant repeat_at = std::min(EventLoop::now() + wait, until);
            for (;;) {
                const core::Duration left = repeat_at - EventLoop::now();
                pollfd one{socket_, POLLIN, 0};
                if (left <= 0 || ::poll(&one, 1, static_cast<int>(left / core::millisecond) + 1) <= 0) break;
                std::array<std::uint8_t, 64> datagram{};
                const ssize_t got = ::recv(socket_, datagram.data(), datagram.size(), 0);
                if (got < 0 && errno == ECONNREFUSED) {
                    why = "the router does not speak NAT-PMP";
                    return false;
                }
                // A result is at the same place in every answer; a refusal may be shorter than what was asked for.
                if (got < 8 || datagram[0] != 0 || datagram[1] != (request[1] | answer_flag)) continue;
                if (const std::uint32_t result = number({datagram.data() + 2, 2}); result != 0) {
                    why = text_of(result);
                    return false;
                }
                if (static_cast<std::size_t>(got) < answer.size()) continue;
                std::copy_n(datagram.begin(), answer.size(), answer.begin());
                return true;
            }
            if (EventLoop::now() >= until) {
                why = "the router does not answer NAT-PMP";
                return false;
            }
        }
    }

private:
    int socket_ = -1;
};

bool ask_outer_address(Router& router, core::Instant until, core::Endpoint& outer, std::string& why) {
    const std::array<std::uint8_t, 2> request{0, ask_address};
    std::array<std::uint8_t, 12> answer{};
    if (!router.ask(request, answer, until, why)) return false;
    outer = {};
    std::copy_n(answer.begin() + 8, 4, outer.address.begin());
    if (outer.address != core::Endpoint{}.address) return true;
    why = "the router has no outer address";
    return false;
}

std::array<std::uint8_t, 12> port_request(std::uint16_t port, std::uint16_t wished, std::uint32_t lifetime) {
    std::array<std::uint8_t, 12> request{0, ask_tcp_port};
    const auto put = [&request](std::size_t at, std::uint32_t value, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i)
            request[at + i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
    };
    put(4, port, 2);
    put(6, wished, 2);
    put(8, lifetime, 4);
    return request;
}

}  // namespace

std::optional<core::Endpoint> outer_address_of_router(core::Duration limit, std::string& why) {
    Router router;
    core::Endpoint outer;
    if (router.open(why) && ask_outer_address(router, EventLoop::now() + limit, outer, why)) return outer;
    return std::nullopt;
}

// ---- PortMapping -------------------------------------------------------------------------------------------------

class PortMapping::Keeper {
public:
    Keeper(std::uint16_t port, Log log) : port_(port), log_(std::move(log)) {}
    ~Keeper() {
        {
            const std::lock_guard lock(mutex_);
            stops_ = true;
        }
        wakeup_.notify_all();
        if (thread_.joinable()) thread_.join();
        if (outer_.port != 0) router_.send(port_request(port_, 0, 0));
    }
    Keeper(const Keeper&) = delete;

    bool begin(core::Duration limit, std::string& why) {
        const core::Instant until = EventLoop::now() + limit;
        if (!router_.open(why) || !ask_outer_address(router_, until, outer_, why)) return false;
        if (!map(port_, until, outer_.port, why)) return false;
        const SignalsBlocked blocked;
        thread_ = std::thread([this] {
            name_this_thread("pccl-port");
            keep();
        });
        return true;
    }
    const core::Endpoint& outer() const { return outer_; }

private:
    // Sets life_s_ too.
    bool map(std::uint16_t wished, core::Instant until, std::uint16_t& given, std::string& why) {
        std::array<std::uint8_t, 16> answer{};
        if (!router_.ask(port_request(port_, wished, lifetime_s), answer, until, why)) return false;
        if (number({answer.data() + 8, 2}) != port_) {
            why = "the router has answered for another port";
            return false;
        }
        given = static_cast<std::uint16_t>(number({answer.data() + 10, 2}));
        life_s_ = std::clamp<std::uint32_t>(number({answer.data() + 12, 4}), 2, 86'400);
        if (given != 0) return true;
        why = "the router has given no port";
        return false;
    }
    void keep() {
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                wakeup_.wait_for(lock, std::chrono::seconds(life_s_ / 2), [this] { return stops_; });
                if (stops_) return;
            }
            std::uint16_t given = 0;
            std::string why;
            if (!map(outer_.port, EventLoop::now() + renewal_time, given, why))
                log_(Severity::warn, "the port of the router could not be renewed, and is asked for again: " + why);
            else if (given != outer_.port)
                log_(Severity::warn, core::formatted("the router now forwards its port {} and not {}: others cannot "
                                                     "dial this peer any more until it is started again",
                                                     given, outer_.port));
        }
    }

    const std::uint16_t port_;
    const Log log_;
    Router router_;
    core::Endpoint outer_;
    std::uint32_t life_s_ = lifetime_s;
    std::mutex mutex_;
    std::condition_variable wakeup_;
    bool stops_ = false;  // under mutex_
    std::thread thread_;
};

PortMapping::PortMapping(std::unique_ptr<Keeper> keeper) : keeper_(std::move(keeper)) {}
PortMapping::~PortMapping() = default;

std::unique_ptr<PortMapping> PortMapping::ask(std::uint16_t port, core::Duration limit, Log log, std::string& why) {
    auto keeper = std::make_unique<Keeper>(port, std::move(log));
    if (!keeper->begin(limit, why)) return nullptr;
    return std::unique_ptr<PortMapping>(new PortMapping(std::move(keeper)));
}

const core::Endpoint& PortMapping::outer() const { return keeper_->outer(); }

}  // namespace pccl::real
