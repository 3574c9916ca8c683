// Links between nodes: ordered byte streams with latency, shared uplinks and downlinks, a bounded amount in flight, and faults.
//
// Bytes written are cut into segments; a segment leaves when the node's uplink and the flow's own rate allow it and arrives
// after the latency of the directed pair, or later where the target's downlink is busy, never before an earlier one of the
// same stream. Its acknowledgement takes the way back and makes room in the window then, so a flow alone runs at
// window / round trip. A lost packet comes later, and so does all behind it; its sender has less on its way from then on.
// While a direction is blocked (partition, clog) segments wait and come in one burst afterwards, as
// retransmission does. A stream can vanish (half-open): bytes go nowhere and nothing is acknowledged. The network knows no
// frames and no machines; it calls its Receiver.
#pragma once

#include "net-sim/congestion.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/event_queue.hpp"
#include "net-sim/stream.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace pccl::sim {

using core::Endpoint;
using core::LinkId;

inline constexpr std::uint16_t listen_port = 48149;

Endpoint endpoint_of(std::uint32_t node, std::uint16_t port = listen_port);
// Addresses at which nobody ever answers: one refuses dials, one swallows them.
inline constexpr std::uint32_t dead_name = 0xfffe, silent_name = 0xffff;
// One that refuses dials until the master is there in place of its first address.
inline constexpr std::uint32_t spare_name = 0xfffd;
std::uint32_t node_of(const Endpoint& endpoint);  // no_node: not an address of this network

struct NetworkParameters {
    Duration latency_low = core::millisecond, latency_high = core::millisecond;  // base per directed pair, log-uniform
    std::uint32_t jitter_per_mille = 0;                                          // of the base latency
    std::uint32_t tail_per_million = 0;  // chance of a segment that is late by up to tail_max
    Duration tail_max = 0;
    std::int64_t rate_low = 1'000'000'000, rate_high = 1'000'000'000;  // bytes per second and node, log-uniform
    std::int64_t down_low = 0, down_high = 0;                          // the same for what a node receives; 0: no limit
    std::int64_t flow_rate = 0;                              // bytes per second of one stream; 0: no limit of its own
    std::int64_t window_low = 65'536, window_high = 65'536;  // bytes in flight per stream
    // Explicit latencies instead of drawn ones: the region of each node (0 for those behind the last), and one-way latencies from region to region (row by
    // row, the diagonal is the latency within a region).
    std::vector<std::uint32_t> regions;
    std::vector<Duration> region_latency;
    // Likewise bytes per second from node to node, for all streams between them; empty or 0: no limit.
    std::vector<std::int64_t> region_rate;
    std::uint32_t split_per_million = 0;      // chance that a write is cut into several segments
    std::uint32_t tiny_read_per_million = 0;  // chance that a read is handed over byte by byte (or in small pieces)
    std::uint32_t refuse_per_million = 0;     // of dials, while chaos lasts; so are the next two
    std::uint32_t black_hole_per_million = 0;
    std::uint32_t accept_close_per_million = 0;
    // Of packets, while chaos lasts: what is lost comes a round trip or a time-out later, and its sender has less in flight
    // from then on (CongestionWindow).
    std::uint32_t loss_per_million = 0;
    Duration queue_max = 0;  // likewise lost: what would wait longer for its node's uplink; 0: all waits

    bool loses_packets() const { return loss_per_million != 0 || queue_max != 0; }
    // Whether something happens by itself that keeps connections from being made.
    bool fails_dials() const {
        return refuse_per_million + black_hole_per_million + accept_close_per_million + loss_per_million != 0;
    }
    // Nothing more goes wrong by itself.
    void stop_faults();

    std::int64_t rate_least() const;  // of a node's sending, its receiving and one stream
};

// A dial that the network itself made fail (the parameters *_per_million).
struct DialFault {
    std::uint32_t from = 0, to = 0;
    Instant at = 0;
    bool swallowed = false;  // never answered
};

// What was late by itself between two nodes: no fault is needed for it. Bytes wait for a full window, for a shared uplink or
// downlink, or they are among the few that travel very long.
struct Delay {
    enum class Kind : std::uint8_t {
        late,    // what was sent in that time came later than on an idle path, by `longest` at most
        silent,  // nothing came, though something was sent before
        opening  // a dial was not answered
    };
    Kind kind = Kind::late;
    std::uint32_t from = 0, to = 0;
    Instant since = 0, until = 0;
    Duration longest = 0;
};

// What a directed pair of nodes does to their streams as long as it lasts: connections open, and each one fails in the
// same way again. 0: not.
struct Impairment {
    std::size_t swallows_above = 0;  // a longer write, and all behind it, never arrives: a path that drops long packets
    std::uint64_t breaks_after = 0;  // bytes written in this direction, then the connection is reset
    std::uint32_t damages = 0;       // by content: one of so many windows of 4 bytes has a bit flipped behind it
    std::uint32_t resets = 0;        // by content: one of so many such windows resets the connection
    std::uint32_t pattern = 0;       // which windows
};

enum class Reach : std::uint8_t { listening, refusing, silent };

// What the network needs from the world and tells it.
class Receiver {
public:
    virtual ~Receiver() = default;
    virtual Reach reach(std::uint32_t node, std::uint16_t port) = 0;
    virtual std::uint64_t incarnation(std::uint32_t node) = 0;
    virtual bool paused(std::uint32_t node) = 0;
    virtual void defer(std::uint32_t node, const Item& item) = 0;  // again when the node goes on
    virtual LinkId next_accepted_link(std::uint32_t node) = 0;
    virtual void bytes_arrived(std::uint32_t node, LinkId link, std::span<const Piece> pieces) = 0;
    virtual void link_ended(std::uint32_t node, LinkId link, const char* reason) = 0;
    virtual void room_made(std::uint32_t node, LinkId link) = 0;
};

class Network {
public:
    Network(EventQueue& queue, const Instant& now, Receiver& receiver)
        : queue_(queue), now_(now), receiver_(receiver) {}

    void start(std::uint32_t nodes, const NetworkParameters& parameters, std::uint64_t seed);
    void draw_from(std::uint64_t seed);
    void stop_faults() { parameters_.stop_faults(); }

    // --- used by drivers -------------------------------------------------------------------------------------------
    std::uint32_t dial(std::uint32_t node, LinkId link, const Endpoint& target);  // the connection; side 0 dials
    // What may be written now. 0 until a worthwhile part of the window is free, as senders avoid tiny segments.
    std::size_t room(std::uint32_t connection, std::uint32_t side);
    // Receiver::room_made is wanted, once, when there is room again.
    void want_room(std::uint32_t connection, std::uint32_t side);
    // `ready`: since when the first of these bytes waited for room; now, if it did not.
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros, Instant ready);
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros = {}) {
        write(connection, side, bytes, zeros, now_);
    }
    // The side is gone. `gracefully`: what was written arrives first.
    void close(std::uint32_t connection, std::uint32_t side, bool gracefully);
    bool tiny_read() { return segments_.chance(parameters_.tiny_read_per_million); }
    Draw& segments() { return segments_; }

    // --- used by World::dispatch -----------------------------------------------------------------------------------
    void handle(const Item& item);

    // --- faults ----------------------------------------------------------------------------------------------------
    void block(std::uint32_t from, std::uint32_t to);
    void unblock(std::uint32_t from, std::uint32_t to);
    bool blocked(std::uint32_t from, std::uint32_t to) const { return blocks_[from * nodes_ + to] != 0; }
    void impair(std::uint32_t from, std::uint32_t to, const Impairment& how);
    void repair(std::uint32_t from, std::uint32_t to) { impairments_.erase({from, to}); }
    // What TCP does when nothing is acknowledged for long: each end between the two gives up by itself, some time within.
    void give_up_between(std::uint32_t a, std::uint32_t b, Duration within);
    // A process is gone. With reset the others learn it; without, their bytes go nowhere until somebody is there again.
    void node_gone(std::uint32_t node, bool with_reset);
    // Established connections, as choices for faults.
    std::vector<std::uint32_t> established() const;
    std::vector<std::uint32_t> busy() const;                       // those with bytes on their way
    void stall(std::uint32_t connection, std::uint32_t side);      // one stream stops,
    void go_on(std::uint32_t connection, std::uint32_t side);      // then everything comes at once
    void reset(std::uint32_t connection);                          // both ends see it, bytes in flight are lost
    void end_early(std::uint32_t connection, std::uint32_t side);  // a part of what is in flight, then the end
    void half_open(std::uint32_t connection, bool one_side_knows, std::uint32_t side);
    // Flips one bit of what side sends and has not arrived; false when nothing is on its way.
    bool corrupt(std::uint32_t connection, std::uint32_t side, std::uint64_t where);
    // Whether what arrives at this side may not be what was sent.
    bool tainted(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].pipes[side ^ 1].tainted;
    }
    bool open_end(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].opened && connections_[connection].ends[side].open;
    }
    // From now on who dials `name` reaches `node`.
    void rename(std::uint32_t name, std::uint32_t node) { names_[name] = node; }
    // From its first address to the spare one, or back. Connections are not touched.
    void move_master() { master_at_spare_ = !master_at_spare_; }
    // The node has another address; nobody reaches it at the one before. Its connections are not touched.
    void move_away(std::uint32_t node);
    Endpoint address_of(std::uint32_t node) const { return endpoint_of(addresses_[node]); }
    // Its dials come from an address at which nobody reaches it, as behind a gateway that forwards its listener only. Or only
    // those to the master do, as of a node with a network for the data.
    void hide(std::uint32_t node, bool from_master_only);
    Endpoint dials_from(std::uint32_t node, std::uint32_t to) const;
    // What the node said first on its connections to another one, while greetings are kept.
    void keep_greetings() { keep_greetings_ = true; }
    std::vector<std::uint8_t> greeting(std::uint32_t from, std::uint32_t to) const;
    const std::vector<DialFault>& dial_faults() const { return dial_faults_; }
    const std::vector<Delay>& delays() const { return delays_; }
    // The latest that one of the nodes [1, nodes) said to another one of them, or to `to` if that is one of them.
    std::vector<std::uint8_t> greeting_among(std::uint32_t nodes, std::uint32_t to) const;
    std::uint32_t peer_of(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].ends[side ^ 1].node;
    }
    Duration latency(std::uint32_t from, std::uint32_t to) const { return base_latency_[from * nodes_ + to]; }

private:
    struct End {
        std::uint32_t node = 0;
        std::uint64_t incarnation = 0;
        LinkId link = 0;
        bool open = false;  // its driver holds it
    };
    static constexpr std::size_t no_delay = ~std::size_t{0};
    struct Acknowledgement {
        Instant at = 0;
        std::size_t length = 0;
    };
    struct Pipe {  // from ends[i] to ends[i ^ 1]
        Stream stream;
        std::size_t in_flight = 0;
        CongestionWindow congestion;
        std::vector<Acknowledgement> acknowledgements;  // on their way back, from acknowledged_head on
        std::size_t acknowledged_head = 0;
        std::size_t acknowledged_later = 0;  // arrived, but the way back is blocked
        bool wants_room = false;
        bool wake_scheduled = false;
        Instant flow_free = 0;     // when the flow's own rate lets the next byte leave
        Instant downlink_end = 0;  // of the last segment that waited for the target's downlink
        Instant last_arrival = 0;
        std::size_t last_delay = no_delay;  // in delays_, of Kind::late
        std::uint64_t generation = 1;
        bool vanishing = false;
        bool end_sent = false;
        bool stalled = false;
        bool tainted = false;
        bool swallowed = false;     // by an impairment: nothing more arrives
        std::uint64_t written = 0;  // while impaired
        std::vector<Item> held;
        bool release_scheduled = false;
    };
    struct Connection {
        End ends[2];
        Pipe pipes[2];
        std::size_t window = 0;
        std::uint32_t attempts = 0;
        Instant dialled = 0;
        bool accepted = false;
        bool opened = false;
        std::vector<std::uint8_t> greeting;  // of side 0
    };

    Duration travel(std::uint32_t from, std::uint32_t to);
    void schedule(Instant time, ItemKind kind, std::uint32_t node, std::uint64_t incarnation, std::uint64_t a,
                  std::uint64_t b);
    void syn(const Item& item);
    void accept(std::uint32_t index, bool close_again);
    bool waits_for_downlink(const Item& item, Pipe& pipe, std::uint32_t target);
    void hold(Pipe& pipe, const Item& item);
    void arrive(const Item& item, Connection& connection, Pipe& pipe, std::uint32_t side);
    bool impaired(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
                  std::size_t length);
    void damage(std::uint32_t connection, std::uint32_t side, std::size_t length);
    void settle(Pipe& pipe) const;
    std::size_t window_of(const Connection& c, const Pipe& pipe) const;
    Duration lost(Connection& c, std::uint32_t side, std::size_t bytes);
    Duration lost_at_dial();
    void wake_when_room(std::uint32_t connection, std::uint32_t side);
    void wake(const Item& item);
    void end(std::uint32_t index, std::uint32_t to_side, const char* reason, bool keep_sent);
    void give_up(const Item& item);
    void send_end(std::uint32_t index, std::uint32_t side, bool in_order, Duration extra);
    void release(const Item& item);
    void lose_bytes(Pipe& pipe);
    void note_opening(const Connection& connection, Instant until);
    void note_delay(Connection& connection, std::uint32_t side, Instant ready, Instant before, Instant arrival);
    bool open_between(const Connection& c) const { return c.opened && c.ends[0].open && c.ends[1].open; }

    EventQueue& queue_;
    const Instant& now_;
    Receiver& receiver_;
    NetworkParameters parameters_;
    std::uint32_t nodes_ = 0;
    std::vector<std::uint8_t> blocks_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Impairment> impairments_;
    std::vector<Duration> base_latency_;
    std::vector<std::int64_t> rate_, down_rate_, pair_rate_;
    std::vector<Instant> uplink_free_, downlink_free_, pair_free_;
    std::deque<Connection> connections_;  // references stay good while a callback dials
    std::vector<std::uint8_t> reading_;
    std::vector<std::uint32_t> names_;  // who is reached under an address; no_node: nobody
    bool master_at_spare_ = false;
    std::vector<std::uint32_t> addresses_;  // of each node
    std::vector<bool> hidden_, hidden_from_master_;
    std::vector<DialFault> dial_faults_;
    std::vector<Delay> delays_;
    bool keep_greetings_ = false;
    std::vector<Piece> pieces_;
    bool congested_ = false;  // packets are lost, or were
    Draw latencies_{0}, segments_{0}, faults_{0}, losses_{0};
};

}  // namespace pccl::sim
