// The router of the default route, and conversations with it. Each has a deadline, and can be stopped before it.
#pragma once

#include "core/base/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace pccl::real {

struct Router {
    core::Endpoint address;     // IPv4, port 0
    core::Endpoint own;         // the address of this host from which it reaches the router, port 0
    bool is_neighbour = false;  // `address` is within the network of `own`
};

// Nothing: `why` says why.
std::optional<Router> find_router(std::string& why);

struct Patience {
    core::Instant until = 0;
    std::function<bool()> stop;  // asked every 50 ms by the waiting thread; may be empty

    bool is_over() const;
    Patience at_most(core::Duration limit) const;  // from now on
};

// False: the patience is over first.
bool wait_for(int descriptor, short events, const Patience& patience);

// "192.168.1.1", without the port.
std::string host_text(const core::Endpoint& endpoint);

// Integers of the protocols of routers: the most significant byte first.
std::uint32_t read_number(std::span<const std::uint8_t> bytes);
void write_number(std::span<std::uint8_t> bytes, std::uint32_t value);

// UDP to one port of the router. Only datagrams from there arrive.
class RouterSocket {
public:
    RouterSocket() = default;
    ~RouterSocket();
    RouterSocket(const RouterSocket&) = delete;
    RouterSocket& operator=(const RouterSocket&) = delete;

    // Opens the socket once. False: `why` says why.
    bool open(const core::Endpoint& target, std::string& why);
    core::Endpoint local() const;
    void send(std::span<const std::uint8_t> request);
    // Repeats the request, after 250 ms and then after twice the time before, until `takes` takes a datagram. Those
    // that it does not take are counted and ignored. False: `why` says why.
    bool ask(std::span<const std::uint8_t> request, const std::function<bool(std::span<const std::uint8_t>)>& takes,
             const Patience& patience, std::string& why);

private:
    int socket_ = -1;
};

}  // namespace pccl::real
