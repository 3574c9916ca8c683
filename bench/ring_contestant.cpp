// One peer of the bare ring as a process of its own, for networks other than loopback (contest.hpp has its commands).
//
// It prints "port N", reads "next ADDRESS PORT", connects to its successor, accepts its predecessor, and prints "ready".
// With several connections, the vector is cut into as many parts, and each part is a ring of its own.
#include "contest.hpp"
#include "ring_peer.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <netinet/in.h>
#include <sstream>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace pccl::bench;

// A part of a vector below this size is not worth a connection.
constexpr std::size_t part_bytes_min = 64 * 1024;

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw std::runtime_error("not an address: " + host);
    return address;
}

struct Connections {
    std::vector<int> previous, next;
};

Connections connect_ring(const std::string& host, unsigned count, const std::string& congestion_control) {
    sockaddr_in address = address_of(host, 0);
    socklen_t length = sizeof address;
    const int listener = ring_socket(congestion_control);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
        throw std::runtime_error("cannot listen at " + host);
    std::cout << "port " << ntohs(address.sin_port) << std::endl;
    std::string line, word, next_host;
    std::uint16_t next_port = 0;
    std::getline(std::cin, line);
    if (!(std::istringstream(line) >> word >> next_host >> next_port) || word != "next")
        throw std::runtime_error("'" + line + "' instead of 'next'");
    const sockaddr_in next_address = address_of(next_host, next_port);
    Connections made;
    // A connection carries its index, because they may be accepted in another order.
    for (unsigned i = 0; i < count; ++i) {
        made.next.push_back(ring_socket(congestion_control));
        const auto index = static_cast<unsigned char>(i);
        if (connect(made.next.back(), reinterpret_cast<const sockaddr*>(&next_address), sizeof next_address) != 0 ||
            send(made.next.back(), &index, 1, MSG_NOSIGNAL) != 1)
            throw std::runtime_error("cannot connect to " + next_host);
    }
    made.previous.assign(count, -1);
    for (unsigned i = 0; i < count; ++i) {
        const int accepted = accept(listener, nullptr, nullptr);
        unsigned char index = 0;
        if (accepted < 0 || recv(accepted, &index, 1, MSG_WAITALL) != 1 || index >= count)
            throw std::runtime_error("a connection failed");
        made.previous[index] = accepted;
    }
    close(listener);
    for (const auto* sockets : {&made.previous, &made.next})
        for (const int socket : *sockets) prepare_ring_socket(socket);
    return made;
}

// Runs the rings of all parts at once, in this thread. False: a connection failed, or nothing moved for 60 s.
bool run_all(std::vector<RingPeer>& rings) {
    std::vector<bool> done(rings.size());
    std::vector<pollfd> fds(2 * rings.size());
    while (true) {
        bool moved = false, all_done = true;
        for (std::size_t i = 0; i < rings.size(); ++i) {
            if (done[i]) continue;
            const RingPeer::Progress progress = rings[i].advance();
            if (progress == RingPeer::Progress::failed) return false;
            done[i] = progress == RingPeer::Progress::done;
            all_done = all_done && done[i];
            moved = moved || progress == RingPeer::Progress::moved;
        }
        if (all_done) return true;
        if (moved) continue;
        for (std::size_t i = 0; i < rings.size(); ++i) {
            if (done[i])
                fds[2 * i].fd = fds[2 * i + 1].fd = -1;
            else
                rings[i].wanted(&fds[2 * i]);
        }
        if (poll(fds.data(), fds.size(), 60'000) <= 0 && errno != EINTR) return false;
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"One peer of the bare ring, for ./dev bench."};
    unsigned rank = 0, world = 2, connections = 1;
    std::string host = "127.0.0.1", congestion_control;
    app.add_option("--rank", rank)->required();
    app.add_option("--world", world)->required()->check(CLI::Range(2, 64));
    app.add_option("--address", host, "where it listens")->capture_default_str();
    app.add_option("--connections", connections)->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--congestion-control", congestion_control, "of TCP; empty: the system's default");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        const Connections made = connect_ring(host, connections, congestion_control);
        std::vector<float> scratch(connections * ring_segment_bytes / sizeof(float));
        std::cout << "ready" << std::endl;
        obey_commands(std::cin, std::cout, rank, world, [&](float* send, float* receive, std::size_t elements) {
            const std::size_t parts =
                std::clamp<std::size_t>(elements * sizeof(float) / part_bytes_min, 1, connections);
            std::vector<RingPeer> rings;
            for (std::size_t i = 0; i < parts; ++i) {
                const std::size_t begin = elements * i / parts, end = elements * (i + 1) / parts;
                rings.emplace_back(rank, world, end - begin, made.previous[i], made.next[i], receive + begin,
                                   send + begin, scratch.data() + i * ring_segment_bytes / sizeof(float));
            }
            return run_all(rings);
        });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ring_contestant: %s\n", error.what());
        return 1;
    }
    return 0;
}
