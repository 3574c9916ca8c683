// A user-space network with the faults of a scenario. All connections between the processes of a real run pass through
// it.
//
// Node n has two loopback addresses. Its process listens and dials at 127.0.1.<n+1>. Everybody else knows it by its
// front address 127.0.2.<n+1>, where the proxy listens on the same port. The source address identifies the caller, the
// listener the callee. The proxy dials onwards from the front address of the caller, so the master sees only front
// addresses and passes them on.
//
// The proxy reads bytes up to a window, delays them (latency of the directed pair, shared uplink, blocked directions)
// and writes them to the other side. It has one thread and no clock: the caller polls and passes the time in.
#pragma once

#include "harness/real/descriptor.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/network.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

namespace pccl::harness {

using core::Duration;
using core::Instant;

std::string process_address(std::uint32_t node);  // 127.0.1.<n+1>
std::string front_address(std::uint32_t node);    // 127.0.2.<n+1>
inline constexpr std::uint32_t proxy_nodes_max = 200;

class Proxy {
public:
    // Draws its latencies and rates from the seed, like the simulated network.
    Proxy(std::uint32_t nodes, const sim::NetworkParameters& parameters, std::uint64_t seed);

    // Reserves a port for each node. False: see `error`.
    bool open(std::string& error);
    std::uint16_t port(std::uint32_t node) const { return fronts_[node].port; }
    void set_master_port(std::uint16_t port) { master_port_ = port; }

    // --- one turn of the caller's loop -------------------------------------------------------------------------------
    void watch(std::vector<pollfd>& set);  // appends to `set`; entries must keep their place until turn()
    Instant next_deadline(Instant now) const;
    void turn(const std::vector<pollfd>& set, Instant now);

    // --- faults ------------------------------------------------------------------------------------------------------
    void block(std::uint32_t from, std::uint32_t to) { ++blocks_[pair(from, to)]; }
    void unblock(std::uint32_t from, std::uint32_t to) {
        if (blocks_[pair(from, to)] != 0) --blocks_[pair(from, to)];
    }
    void stop_faults();
    // The process of a node is about to die. With reset, its system resets its links. Without, nothing arrives from it
    // any more.
    void node_dies(std::uint32_t node, bool with_reset);
    void node_starts(std::uint32_t node);
    // Connections by number, for the faults below. They stay valid until the next turn.
    std::vector<std::uint64_t> established() const;
    std::vector<std::uint64_t> busy() const;
    std::uint32_t node_of(std::uint64_t connection, std::uint32_t side) const;
    void stall(std::uint64_t connection, std::uint32_t side, bool on);
    void reset(std::uint64_t connection, Instant now);
    void end_early(std::uint64_t connection, std::uint32_t side, Instant now);
    void half_open(std::uint64_t connection, bool one_side_knows, std::uint32_t side);
    // Flips a bit of the bytes that the side has sent and the proxy still holds. False: it holds none.
    bool corrupt(std::uint64_t connection, std::uint32_t side, std::uint64_t choice);

    // --- what it saw -------------------------------------------------------------------------------------------------
    std::uint64_t pieces_between_peers() const { return pieces_between_peers_; }
    std::uint64_t pieces_with_master() const { return pieces_with_master_; }
    std::uint64_t bytes_forwarded() const { return bytes_forwarded_; }
    std::size_t connections() const { return connections_.size(); }

private:
    enum class State : std::uint8_t { arriving, dialing, open, swallowed, done };
    enum class End : std::uint8_t { none, orderly, reset };
    struct Front {
        std::uint16_t port = 0;
        Descriptor reservation;  // keeps the port while nobody listens
        Descriptor listener;
        bool silent = false;  // dials are not answered
    };
    struct Piece {
        Instant due = 0;
        std::string bytes;
        std::size_t sent = 0;
    };
    struct Pipe {  // from sides[i] to sides[i ^ 1]
        std::deque<Piece> pieces;
        std::size_t bytes = 0;
        Instant last_due = 0;
        Instant flow_free = 0;
        End end = End::none;  // comes after the pieces
        Instant end_due = 0;
        bool ended = false;  // passed on to the other side
        bool stalled = false;
        bool write_full = false;
    };
    struct Side {
        std::uint32_t node = 0;
        Descriptor descriptor;
        bool read_ended = false;
        Instant reset_at = core::never;
    };
    struct Connection {
        std::uint64_t number = 0;
        Side sides[2];
        Pipe pipes[2];
        State state = State::arriving;
        bool vanishing = false;  // bytes are dropped
        std::size_t window = 0;
        Instant dial_at = 0;
        Instant close_at = core::never;  // accepted, then closed again
    };
    struct Watched {  // parallel to what watch() appended
        std::uint64_t connection = 0;
        std::uint32_t side = 0;
    };

    std::size_t pair(std::uint32_t from, std::uint32_t to) const { return std::size_t{from} * nodes_ + to; }
    bool blocked(std::uint32_t from, std::uint32_t to) const { return blocks_[pair(from, to)] != 0; }
    Duration travel(std::uint32_t from, std::uint32_t to);
    bool listen(Front& front, std::uint32_t node);
    Connection* find(std::uint64_t number);
    const Connection* find(std::uint64_t number) const;

    void accept_all(std::uint32_t node, Instant now);
    void dial(Connection& connection, Instant now);
    void dialled(Connection& connection, Instant now);
    void receive(Connection& connection, std::uint32_t side, Instant now);
    void queue(Connection& connection, std::uint32_t side, std::string bytes, Instant now);
    void queue_end(Connection& connection, std::uint32_t side, End end, Instant now);
    void send(Connection& connection, std::uint32_t side, Instant now);
    void deliver_end(Connection& connection, std::uint32_t side);
    void on_time(Connection& connection, Instant now);
    bool may_send(const Connection& connection, std::uint32_t side) const;

    std::uint32_t nodes_;
    sim::NetworkParameters parameters_;
    std::vector<std::uint32_t> blocks_;
    std::vector<Duration> base_latency_;
    std::vector<std::int64_t> rate_, down_rate_;  // bytes per second and node; 0: no limit
    std::vector<Instant> uplink_free_, downlink_free_;
    sim::Draw latencies_, segments_, faults_;
    std::vector<Front> fronts_;
    std::uint16_t master_port_ = 0;
    std::deque<Connection> connections_;  // in the order of their numbers
    std::uint64_t last_number_ = 0;
    std::size_t watched_from_ = 0;
    std::vector<Watched> watched_;
    std::uint64_t pieces_between_peers_ = 0;
    std::uint64_t pieces_with_master_ = 0;
    std::uint64_t bytes_forwarded_ = 0;
};

}  // namespace pccl::harness
