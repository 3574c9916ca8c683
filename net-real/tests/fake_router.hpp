// A router on loopback that is played by a test.
#pragma once

#include "net-real/event_loop.hpp"
#include "net-real/port_mapping/router.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pccl::real {

using Bytes = std::vector<std::uint8_t>;

inline core::Endpoint v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::uint16_t port = 0) {
    core::Endpoint endpoint;
    endpoint.address = {a, b, c, d};
    endpoint.port = port;
    return endpoint;
}

inline Patience patience(core::Duration limit = 20 * core::second) { return {EventLoop::now() + limit, {}}; }

template <class Array>
Bytes bytes_of(const Array& array) {
    return {array.begin(), array.end()};
}

// `answers` gets each request, and says what is sent back.
class FakeRouter {
public:
    using Answers = std::function<std::vector<Bytes>(const Bytes& request)>;
    explicit FakeRouter(Answers answers) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof own;
        REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
        REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length) == 0);
        port = ntohs(own.sin_port);
        thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
    }
    ~FakeRouter() {
        stops_ = true;
        thread_.join();
        ::close(socket_);
    }
    FakeRouter(const FakeRouter&) = delete;

    Router router() const { return {v4(127, 0, 0, 1), v4(127, 0, 0, 1), true}; }
    std::uint16_t port = 0;

private:
    void serve(const Answers& answers) {
        while (!stops_) {
            pollfd one{socket_, POLLIN, 0};
            if (::poll(&one, 1, 20) <= 0) continue;
            Bytes request(2048);
            sockaddr_in from{};
            socklen_t length = sizeof from;
            const ssize_t got =
                ::recvfrom(socket_, request.data(), request.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
            if (got < 0) continue;
            request.resize(static_cast<std::size_t>(got));
            for (const Bytes& answer : answers(request))
                ::sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&from), length);
        }
    }
    int socket_;
    std::atomic<bool> stops_{false};
    std::thread thread_;
};

}  // namespace pccl::real
