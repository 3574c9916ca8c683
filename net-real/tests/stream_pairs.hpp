// Both ends of a stream in one process, of each kind.
#pragma once

#include "net-real/sockets.hpp"
#include "net-real/streams/shared_stream.hpp"
#include "net-real/streams/tcp_stream.hpp"
#include "net-real/tests/tls_fixtures.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>

namespace pccl::real {

enum class StreamKind { tcp, shared, tls };

inline const char* name_of(StreamKind kind) {
    return kind == StreamKind::tcp ? "tcp" : kind == StreamKind::tls ? "tls" : "shared";
}

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

inline core::Endpoint loopback_endpoint(std::uint16_t port = 0) {
    core::Endpoint endpoint;
    endpoint.address[0] = 127;
    endpoint.address[3] = 1;
    endpoint.port = port;
    return endpoint;
}

// The wait of a test for a descriptor. A hang guard, no measurement.
inline void wait_until(int descriptor, short events) {
    pollfd one{descriptor, events, 0};
    REQUIRE(::poll(&one, 1, 60'000) > 0);
}

inline void wait_for(Stream& stream, Stream::Wait readiness) {
    if (readiness == Stream::Wait::now) return;
    wait_until(stream.descriptor(), readiness == Stream::Wait::readable ? POLLIN : POLLOUT);
    stream.woken();
}

// Opens both ends of a connection in one thread. True: both are open.
inline bool finish_both(Stream& a, Stream& b, std::string& reason_a, std::string& reason_b) {
    auto state_a = Stream::Opening::waiting, state_b = Stream::Opening::waiting;
    for (int i = 0; i < 100'000; ++i) {
        if (state_a == Stream::Opening::waiting) state_a = a.open(reason_a);
        if (state_b == Stream::Opening::waiting) state_b = b.open(reason_b);
        if (state_a == Stream::Opening::failed) a.close();
        if (state_b == Stream::Opening::failed) b.close();
        if (state_a != Stream::Opening::waiting && state_b != Stream::Opening::waiting)
            return state_a == Stream::Opening::open && state_b == Stream::Opening::open;
        pollfd both[] = {{a.descriptor(), POLLIN, 0}, {b.descriptor(), POLLIN, 0}};
        ::poll(both, 2, 1);
    }
    return false;
}

// Calls open() until the stream is open or has failed.
inline Stream::Opening finish_opening(Stream& stream, std::string& reason) {
    for (;;) {
        const Stream::Opening progress = stream.open(reason);
        if (progress != Stream::Opening::waiting) return progress;
        wait_for(stream, stream.opening_wait());
    }
}

struct UnixPair {
    int a = -1;
    int b = -1;
    UnixPair() {
        int both[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
        a = both[0];
        b = both[1];
    }
};

struct StreamPair {
    SharedMemoryUse use{0, std::uint64_t{1} << 30};
    std::unique_ptr<Stream> a;
    std::unique_ptr<Stream> b;

    // `bytes`: about how much fits between the two ends; a power of two.
    StreamPair(StreamKind kind, std::size_t bytes) {
        if (kind == StreamKind::shared) {
            const UnixPair sockets;
            std::string reason;
            a = SharedStream::dialled(sockets.a, loopback_endpoint(), bytes, use, reason);
            b = SharedStream::accepted(sockets.b, use);
            INFO(reason);
            REQUIRE(a != nullptr);
            REQUIRE(b->open(reason) == Stream::Opening::waiting);
            REQUIRE(a->open(reason) == Stream::Opening::open);
            REQUIRE(b->open(reason) == Stream::Opening::open);
            return;
        }
        std::uint16_t port = 0;
        std::string error;
        ListenRequest request;
        request.address = loopback_endpoint();
        const int listener = listen_on(request, port, error);
        REQUIRE(listener >= 0);
        const int dialled = dial(loopback_endpoint(port), std::nullopt, error);
        REQUIRE(dialled >= 0);
        wait_until(listener, POLLIN);
        core::Endpoint remote;
        const int accepted = accept_from(listener, remote);
        REQUIRE(accepted >= 0);
        close_socket(listener);
        const int buffer = static_cast<int>(bytes);
        for (const int one : {dialled, accepted}) ::setsockopt(one, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        if (kind == StreamKind::tls) {
            const TlsRun run;
            a = TlsStream::dialled(dialled, run.peer(1), tls::Protocol::link);
            b = TlsStream::accepted(accepted, run.peer(2));
            std::string reason;
            REQUIRE(finish_both(*a, *b, reason, reason));
            return;
        }
        a = std::make_unique<TcpStream>(dialled);
        b = std::make_unique<TcpStream>(accepted);
        std::string reason;
        REQUIRE(finish_opening(*a, reason) == Stream::Opening::open);
        a->apply(SocketOptions{});
        b->apply(SocketOptions{});
    }
};

}  // namespace pccl::real
