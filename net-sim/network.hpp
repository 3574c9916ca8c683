// Links between nodes: ordered byte streams with latency, shared uplinks and downlinks, a window, and faults.
//
// Written bytes are cut into segments. A segment leaves when the node's uplink and the stream's own rate allow it. It
// arrives after the latency of the directed pair, or later if the target's downlink is busy, never before an earlier
// segment of the same stream. Its acknowledgement travels back and only then frees room in the window, so a single
// stream runs at window / round trip. A lost packet arrives later, and so does everything behind it; its sender has
// fewer bytes in flight afterwards. While a direction is blocked (partition, clog), segments wait and arrive in one
// burst afterwards, as after a retransmission. A stream can vanish (half-open): its bytes are dropped and never
// acknowledged. The network must not depend on frames or machines; it calls its Receiver.
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
// Addresses without a listener: dead_name refuses dials, silent_name never answers them.
inline constexpr std::uint32_t dead_name = 0xfffe, silent_name = 0xffff;
// An address that refuses dials until the master moves there from its first address.
inline constexpr std::uint32_t spare_name = 0xfffd;
std::uint32_t node_of(const Endpoint& endpoint);  // no_node: not an address of this network

struct NetworkParameters {
    Duration latency_low = core::millisecond, latency_high = core::millisecond;  // base per directed pair, log-uniform
    std::uint32_t jitter_per_mille = 0;                                          // of the base latency
    std::uint32_t tail_per_million = 0;  // chance that a segment is late by up to tail_max
    Duration tail_max = 0;
    std::int64_t rate_low = 1'000'000'000, rate_high = 1'000'000'000;  // bytes per second of an uplink, log-uniform
    std::int64_t down_low = 0, down_high = 0;                          // the same for a downlink; 0: no limit
    std::int64_t flow_rate = 0;                              // bytes per second of one stream; 0: no limit of its own
    std::int64_t window_low = 65'536, window_high = 65'536;  // bytes in flight per stream
    // Explicit latencies instead of drawn ones. `regions`: the region of each node (0 for nodes beyond its end).
    // `region_latency`: one-way latencies from region to region, row by row; the diagonal is the latency within a
    // region.
    std::vector<std::uint32_t> regions;
    std::vector<Duration> region_latency;
    // Bytes per second from node to node in the same form, for all streams between them. Empty or 0: no limit.
    std::vector<std::int64_t> region_rate;
    std::uint32_t split_per_million = 0;      // chance that a write is cut into several segments
    std::uint32_t tiny_read_per_million = 0;  // chance that a read is delivered byte by byte (or in small pieces)
    std::uint32_t refuse_per_million = 0;     // of dials, until chaos ends; also the next two
    std::uint32_t black_hole_per_million = 0;
    std::uint32_t accept_close_per_million = 0;
    // Of packets, until chaos ends. A lost packet arrives one round trip or one time-out later, and its sender has
    // fewer bytes in flight afterwards (CongestionWindow).
    std::uint32_t loss_per_million = 0;
    Duration queue_max = 0;  // packets that would wait longer for the uplink are lost too; 0: none

    bool loses_packets() const { return loss_per_million != 0 || queue_max != 0; }
    // True if dials may fail without a scripted fault.
    bool fails_dials() const {
        return refuse_per_million + black_hole_per_million + accept_close_per_million + loss_per_million != 0;
    }
    // Switches the random failures off.
    void stop_faults();

    std::int64_t rate_least() const;  // the lowest rate of an uplink, a downlink or one stream
};

// A dial that failed by a random failure of the network (the parameters *_per_million).
struct DialFault {
    std::uint32_t from = 0, to = 0;
    Instant at = 0;
    bool swallowed = false;  // never answered
};

// A delay between two nodes that needs no fault. Bytes wait for a full window or for a shared uplink or downlink, or
// they are among the few segments with a very long latency.
struct Delay {
    enum class Kind : std::uint8_t {
        late,    // bytes sent in that time came later than on an idle path, by at most `longest`
        silent,  // nothing arrived, though bytes had been sent before
        opening  // a dial was not answered
    };
    Kind kind = Kind::late;
    std::uint32_t from = 0, to = 0;
    Instant since = 0, until = 0;
    Duration longest = 0;
};

// What a directed pair of nodes does to its streams while the impairment lasts. Connections open, and each one fails
// again in the same way. 0 switches a kind off.
struct Impairment {
    std::size_t swallows_above = 0;  // longer writes and all bytes after them are lost: a path that drops long packets
    std::uint64_t breaks_after = 0;  // after this many bytes written in this direction, the connection is reset
    std::uint32_t damages = 0;       // by content: one in this many windows of 4 bytes has a bit flipped
    std::uint32_t resets = 0;        // by content: one in this many such windows resets the connection
    std::uint32_t pattern = 0;       // selects the windows
};

enum class Reach : std::uint8_t { listening, refusing, silent };

// The network's interface to the world.
class Receiver {
public:
    virtual ~Receiver() = default;
    virtual Reach reach(std::uint32_t node, std::uint16_t port) = 0;
    virtual std::uint64_t incarnation(std::uint32_t node) = 0;
    virtual bool paused(std::uint32_t node) = 0;
    virtual void defer(std::uint32_t node, const Item& item) = 0;  // deliver it again when the node resumes
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
    // How many bytes may be written now. 0 until a worthwhile part of the window is free, as senders avoid tiny
    // segments.
    std::size_t room(std::uint32_t connection, std::uint32_t side);
    // Requests one call of Receiver::room_made, when there is room again.
    void want_room(std::uint32_t connection, std::uint32_t side);
    // `ready`: the time since which the first of these bytes has waited for room, or now.
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros, Instant ready);
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros = {}) {
        write(connection, side, bytes, zeros, now_);
    }
    // Closes this side. `gracefully`: bytes that were written before still arrive.
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
    // From now on the node takes no more dials: they are refused, or never answered.
    void close_port(std::uint32_t node, bool refuses) { closed_ports_[node] = refuses; }
    void open_port(std::uint32_t node) { closed_ports_.erase(node); }
    // Makes each end of the connections between the two nodes give up at a random time up to `within`, if the path is
    // still blocked then. TCP does so when nothing is acknowledged for long.
    void give_up_between(std::uint32_t a, std::uint32_t b, Duration within);
    // A process has ended. With reset, the far ends are notified. Without, their bytes are lost until a process runs
    // there again.
    void node_gone(std::uint32_t node, bool with_reset);
    // Established connections, from which faults choose.
    std::vector<std::uint32_t> established() const;
    std::vector<std::uint32_t> busy() const;                       // those with bytes in flight
    void stall(std::uint32_t connection, std::uint32_t side);      // one stream stops
    void go_on(std::uint32_t connection, std::uint32_t side);      // and goes on: all held bytes arrive at once
    void reset(std::uint32_t connection);                          // both ends notice; bytes in flight are lost
    void end_early(std::uint32_t connection, std::uint32_t side);  // part of the bytes in flight, then the end
    void half_open(std::uint32_t connection, bool one_side_knows, std::uint32_t side);
    // Flips one bit of the bytes in flight from `side`. False if nothing is in flight.
    bool corrupt(std::uint32_t connection, std::uint32_t side, std::uint64_t where);
    // True if bytes that arrive at this side may differ from those sent.
    bool tainted(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].pipes[side ^ 1].tainted;
    }
    bool open_end(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].opened && connections_[connection].ends[side].open;
    }
    // From now on, dials to `name` reach `node`.
    void rename(std::uint32_t name, std::uint32_t node) { names_[name] = node; }
    // Moves the master from its first address to the spare one, or back. Connections stay open.
    void move_master() { master_at_spare_ = !master_at_spare_; }
    // Gives the node another address. The old one reaches no node. Connections stay open.
    void move_away(std::uint32_t node);
    Endpoint address_of(std::uint32_t node) const { return endpoint_of(addresses_[node]); }
    // Makes dials of the node come from an address that reaches no node, as behind a gateway that forwards only its
    // listener. `from_master_only`: only its dials to the master, as for a node with a separate network for data.
    void hide(std::uint32_t node, bool from_master_only);
    Endpoint dials_from(std::uint32_t node, std::uint32_t to) const;
    // The first bytes that `from` sent on its latest connection to `to`. Kept only after keep_greetings().
    void keep_greetings() { keep_greetings_ = true; }
    std::vector<std::uint8_t> greeting(std::uint32_t from, std::uint32_t to) const;
    const std::vector<DialFault>& dial_faults() const { return dial_faults_; }
    const std::vector<Delay>& delays() const { return delays_; }
    // The latest greeting between two of the nodes [1, nodes). If `to` is one of them, only greetings to it count.
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
        std::vector<Acknowledgement> acknowledgements;  // on their way back; the first one is at acknowledged_head
        std::size_t acknowledged_head = 0;
        std::size_t acknowledged_later = 0;  // bytes that arrived while the way back was blocked
        bool wants_room = false;
        bool wake_scheduled = false;
        Instant flow_free = 0;     // when the stream's own rate allows the next byte
        Instant downlink_end = 0;  // when this stream's last waiting segment is through the downlink
        Instant last_arrival = 0;
        std::size_t last_delay = no_delay;  // index in delays_, of Kind::late
        std::uint64_t generation = 1;
        bool vanishing = false;
        bool end_sent = false;
        bool stalled = false;
        bool tainted = false;
        bool swallowed = false;     // an impairment drops all further bytes
        std::uint64_t written = 0;  // bytes written while impaired
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
        std::vector<std::uint8_t> greeting;  // first bytes of side 0
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
    std::map<std::uint32_t, bool> closed_ports_;  // by node: whether it refuses dials
    std::vector<Duration> base_latency_;
    std::vector<std::int64_t> rate_, down_rate_, pair_rate_;
    std::vector<Instant> uplink_free_, downlink_free_, pair_free_;
    std::deque<Connection> connections_;  // a deque: references stay valid while a callback dials
    std::vector<std::uint8_t> reading_;
    std::vector<std::uint32_t> names_;  // node reached at each address; no_node: none
    bool master_at_spare_ = false;
    std::vector<std::uint32_t> addresses_;  // of each node
    std::vector<bool> hidden_, hidden_from_master_;
    std::vector<DialFault> dial_faults_;
    std::vector<Delay> delays_;
    bool keep_greetings_ = false;
    std::vector<Piece> pieces_;
    bool congested_ = false;  // packets may be lost, or could be until chaos ended
    Draw latencies_{0}, segments_{0}, faults_{0}, losses_{0};
};

}  // namespace pccl::sim
