// Options of sockets, and connections that take time.
#include "net-real/exchange.hpp"
#include "net-real/sockets.hpp"
#include "net-real/streams/tcp_stream.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace pccl;
using namespace pccl::real;

TEST_CASE("the congestion control follows from the path") {
    const auto chosen = [](bool loopback, core::Duration round_trip, Traffic traffic = Traffic::payload) {
        const char* name = congestion_control_for(traffic, loopback, round_trip);
        return std::string(name == nullptr ? "the system's" : name);
    };
    CHECK(chosen(true, 0) == "cubic");
    CHECK(chosen(true, core::second) == "cubic");
    CHECK(chosen(false, 0) == "the system's");  // the round trip is not known
    CHECK(chosen(false, 4 * core::millisecond) == "the system's");
    CHECK(chosen(false, 5 * core::millisecond) == "bbr");
    CHECK(chosen(false, 300 * core::millisecond) == "bbr");
    CHECK(chosen(false, 300 * core::millisecond, Traffic::control) == "cubic");
}

TEST_CASE("an exchange waits for a connection that is not made at once, as on every path but loopback") {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener, 0) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    core::Endpoint target;
    target.address = {127, 0, 0, 1};
    target.port = ntohs(address.sin_port);
    // Nobody accepts: when the queue of the listener is full, the system does not answer further dials.
    std::vector<int> others;
    std::string error;
    int last = -1;
    while (last < 0) {
        REQUIRE(others.size() < 16);
        const int dialled = dial(target, std::nullopt, error);
        REQUIRE(dialled >= 0);
        pollfd one{dialled, POLLOUT, 0};
        if (::poll(&one, 1, 200) == 0)
            last = dialled;
        else
            others.push_back(dialled);
    }
    std::thread accepts([&] {
        for (std::size_t i = 0; i <= others.size(); ++i) {
            pollfd one{listener, POLLIN, 0};
            ::poll(&one, 1, 60'000);
            core::Endpoint remote;
            close_socket(accept_from(listener, remote));
        }
    });
    const Exchange::Stop no_stop;
    Exchange exchange(std::make_unique<TcpStream>(last), no_stop, 60 * core::second);
    const bool opened = exchange.open(error);
    INFO(error);
    CHECK(opened);
    for (const int descriptor : others) close_socket(descriptor);
    accepts.join();
    ::close(listener);
}
