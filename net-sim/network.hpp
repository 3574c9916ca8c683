// Connections between nodes: ordered byte streams with latency, shared uplinks and downlinks, a window, and faults.
//
// A write is one segment, or is cut into several. A segment leaves when the node's uplink and the stream's own rate
// allow it. It arrives after the latency of the directed pair, or later if the target's downlink is busy, but never
// before an earlier segment of the same stream. Its acknowledgement travels back and only then frees room in the
// window, so a single stream runs at window / round trip.
//
// A lost packet arrives late, as if it was resent, and so does everything behind it. The sender's congestion window
// shrinks. While a direction is blocked by a fault, its segments wait; afterwards they arrive in one burst, as after a
// retransmission. If a stream vanishes (half-open), its bytes are dropped and never acknowledged.
//
// The network must not depend on frames or machines; it calls its Receiver.
#pragma once

#include "net-sim/congestion.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/event_queue.hpp"
#include "net-sim/stream.hpp"
#include "net-sim/translators.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pccl::sim {

using core::Endpoint;
using core::LinkId;

inline constexpr std::uint16_t listen_port = 48149;

Endpoint endpoint_of(std::uint32_t node, std::uint16_t port = listen_port);
// Arguments of endpoint_of() for addresses without a listener: dead_name refuses dials, silent_name never answers them.
inline constexpr std::uint32_t dead_name = 0xfffe, silent_name = 0xffff;
// The same for an address that refuses dials until the master moves there from its first address.
inline constexpr std::uint32_t spare_name = 0xfffd;
// The inverse of endpoint_of(). After a fault has moved addresses, another node may have this one. no_node: not an
// address of this network.
std::uint32_t node_of(const Endpoint& endpoint);

// Where there are two bounds (*_low, *_high), a value between them is drawn log-uniformly.
struct NetworkParameters {
    Duration latency_low = core::millisecond, latency_high = core::millisecond;  // one way, per directed pair
    std::uint32_t jitter_per_mille = 0;  // at most this part of the latency is added to each segment
    std::uint32_t tail_per_million = 0;  // chance that a segment is late by up to tail_max
    Duration tail_max = 0;
    std::int64_t rate_low = 1'000'000'000, rate_high = 1'000'000'000;  // bytes per second of an uplink
    std::int64_t down_low = 0, down_high = 0;                          // the same for a downlink; 0: no limit
    std::int64_t flow_rate = 0;                              // bytes per second of one stream; 0: no limit of its own
    std::int64_t window_low = 65'536, window_high = 65'536;  // bytes in flight per stream
    // Explicit latencies instead of drawn ones. `regions`: the region of each node (0 for nodes beyond its end).
    // `region_latency`: one-way latencies between regions, one row per sending region; the diagonal is the latency
    // within a region.
    std::vector<std::uint32_t> regions;
    std::vector<Duration> region_latency;
    // Bytes per second from node to node, in the same form, for all streams between them. Empty or 0: no limit.
    std::vector<std::int64_t> region_rate;
    std::uint32_t split_per_million = 0;      // chance that a write is cut into several segments
    std::uint32_t tiny_read_per_million = 0;  // chance that a read is delivered byte by byte (or in small pieces)
    // Chances of a dial, until stop_faults(): it is refused, never answered, or accepted and closed again.
    std::uint32_t refuse_per_million = 0;
    std::uint32_t black_hole_per_million = 0;
    std::uint32_t accept_close_per_million = 0;
    // Chance of a packet, until stop_faults(). A lost packet arrives at least one round trip or one time-out later, and
    // the sender's CongestionWindow shrinks.
    std::uint32_t loss_per_million = 0;
    Duration queue_max = 0;  // packets that would wait longer for the uplink are lost too; 0: no limit

    bool loses_packets() const { return loss_per_million != 0 || queue_max != 0; }
    // True if dials may fail although no fault of the scenario concerns them.
    bool fails_dials() const {
        return refuse_per_million + black_hole_per_million + accept_close_per_million + loss_per_million != 0;
    }
    // Switches random failures, losses and very long latencies off.
    void stop_faults();

    std::int64_t rate_least() const;  // the lowest rate of an uplink, a downlink or one stream, bytes per second
};

// A dial that failed by a random failure of the network (the parameters *_per_million).
struct DialFault {
    std::uint32_t from = 0, to = 0;
    Instant at = 0;
    bool swallowed = false;  // true: never answered; false: refused, or closed at once
};

// A delay of at least about 50 ms between two nodes. Oracles accept its consequences. Reasons: a full window, a busy
// uplink or downlink, a lost packet, a very long latency; for `opening` also a blocked path.
struct Delay {
    enum class Kind : std::uint8_t {
        late,    // bytes sent in this time arrived later than on an idle path, by at most `longest`
        silent,  // nothing arrived in this time, although bytes had been sent before
        opening  // a dial was not answered in this time
    };
    Kind kind = Kind::late;
    std::uint32_t from = 0, to = 0;
    Instant since = 0, until = 0;
    Duration longest = 0;
};

// A defect of the path from one node to another. Connections can be opened, but each one fails again in the same way. 0
// switches a kind of failure off. `damages` and `resets` depend on the content: they look at each 4 successive bytes
// of a write and select some values by a hash with `pattern`. So a retry with the same content fails again.
struct Impairment {
    std::size_t swallows_above = 0;  // longer writes and all bytes after them are lost: a path that drops long packets
    std::uint64_t breaks_after = 0;  // after this many bytes written in this direction, the connection is reset
    std::uint32_t damages = 0;       // one in this many values has a bit flipped
    std::uint32_t resets = 0;        // one in this many values resets the connection
    std::uint32_t pattern = 0;
};

// How a node answers a dial: it accepts, refuses, or does not answer.
enum class Reach : std::uint8_t { listening, refusing, silent };

// What the network needs of the world and reports to it. World implements it.
class Receiver {
public:
    virtual ~Receiver() = default;
    virtual Reach reach(std::uint32_t node, std::uint16_t port) = 0;
    virtual std::uint64_t incarnation(std::uint32_t node) = 0;
    virtual bool paused(std::uint32_t node) = 0;
    virtual void defer(std::uint32_t node, const Item& item) = 0;  // deliver it again when the node resumes
    virtual LinkId next_accepted_link(std::uint32_t node) = 0;
    // The dial is side 1 of this connection now. That it is open is told later.
    virtual void dial_met(std::uint32_t node, LinkId link, std::uint32_t connection) = 0;
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
    // Returns the index of the connection. Its side 0 is the dialler, side 1 the target. If two dials meet, they become
    // one connection, see Receiver::dial_met().
    // `source_port`: the local port; 0: any.
    std::uint32_t dial(std::uint32_t node, LinkId link, const Endpoint& target, std::uint16_t source_port = 0);
    // The own address of an end that dialled, and the one that the target of side 0 sees.
    Endpoint own_source(std::uint32_t connection, std::uint32_t side) const;
    Endpoint seen_source(std::uint32_t connection) const;
    Translators& translators() { return translators_; }
    // How many bytes may be written now. While a window is almost full this is 0, because senders avoid tiny segments.
    std::size_t room(std::uint32_t connection, std::uint32_t side);
    // Requests one call of Receiver::room_made as soon as room() is not 0.
    void want_room(std::uint32_t connection, std::uint32_t side);
    // `ready`: since when the oldest of these bytes has waited for room, or now. Used only to record delays.
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros, Instant ready);
    void write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
               std::span<const ZeroRun> zeros = {}) {
        write(connection, side, bytes, zeros, now_);
    }
    // Closes this side. `gracefully`: bytes written before still arrive. Otherwise they are lost.
    void close(std::uint32_t connection, std::uint32_t side, bool gracefully);
    bool tiny_read() { return segments_.chance(parameters_.tiny_read_per_million); }
    Draw& segments() { return segments_; }

    // --- used by World::dispatch -----------------------------------------------------------------------------------
    void handle(const Item& item);

    // --- faults ----------------------------------------------------------------------------------------------------
    // Blocks one direction until unblock() was called as often as block().
    void block(std::uint32_t from, std::uint32_t to);
    void unblock(std::uint32_t from, std::uint32_t to);
    bool blocked(std::uint32_t from, std::uint32_t to) const { return blocks_[from * nodes_ + to] != 0; }
    void impair(std::uint32_t from, std::uint32_t to, const Impairment& how);
    void repair(std::uint32_t from, std::uint32_t to) { impairments_.erase({from, to}); }
    // From now on dials to the node are refused (`refuses`) or never answered.
    void close_port(std::uint32_t node, bool refuses) { closed_ports_[node] = refuses; }
    void open_port(std::uint32_t node) { closed_ports_.erase(node); }
    // Makes each end of the connections between the two nodes give up at a random time up to `within`, if the path is
    // still blocked then. TCP does so when nothing is acknowledged for long.
    void give_up_between(std::uint32_t a, std::uint32_t b, Duration within);
    // The process of the node has ended. `with_reset`: the other ends are notified. Otherwise they notice nothing, and
    // their bytes get no answer, until a new process of the node answers them with a reset.
    void node_gone(std::uint32_t node, bool with_reset);
    // Connections that both ends hold. Faults choose from them.
    std::vector<std::uint32_t> established() const;
    std::vector<std::uint32_t> busy() const;                       // those with bytes in flight
    void stall(std::uint32_t connection, std::uint32_t side);      // the stream from this side stops
    void go_on(std::uint32_t connection, std::uint32_t side);      // ends a stall: all held bytes arrive at once
    void reset(std::uint32_t connection);                          // both ends notice; bytes in flight are lost
    void end_early(std::uint32_t connection, std::uint32_t side);  // part of the bytes in flight, then the end
    // All bytes are lost from now on, and neither end notices. With `one_side_knows`, `side` sees a reset.
    void half_open(std::uint32_t connection, bool one_side_knows, std::uint32_t side);
    // Flips one bit, chosen by `where`, of the bytes in flight from `side`. False if no real byte is in flight.
    bool corrupt(std::uint32_t connection, std::uint32_t side, std::uint64_t where);
    // True if a fault has changed bytes on their way to this side.
    bool tainted(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].pipes[side ^ 1].tainted;
    }
    // True if the connection was accepted and this side has not ended.
    bool open_end(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].opened && connections_[connection].ends[side].open;
    }
    // From now on, dials to endpoint_of(name) reach `node`.
    void rename(std::uint32_t name, std::uint32_t node) { names_[name] = node; }
    // Moves the master from its first address to the spare one, or back. Connections stay open.
    void move_master() { master_at_spare_ = !master_at_spare_; }
    // Gives the node another address. The old one reaches no node. Connections stay open.
    void move_away(std::uint32_t node);
    Endpoint address_of(std::uint32_t node) const { return endpoint_of(addresses_[node]); }
    // Dials of the node then come from an address that reaches no node, as behind a gateway that forwards only the
    // node's listening port. `from_master_only`: only its dials to the master do, as for a node with a separate network
    // for data.
    void hide(std::uint32_t node, bool from_master_only);
    // The address that `to` sees if `node` dials it.
    Endpoint dials_from(std::uint32_t node, std::uint32_t to) const;
    // From now on, the network keeps greetings: the first 400 bytes of each dialler.
    void keep_greetings() { keep_greetings_ = true; }
    // The greeting of the latest connection that `from` dialled to `to`. Empty: none was kept.
    std::vector<std::uint8_t> greeting(std::uint32_t from, std::uint32_t to) const;
    const std::vector<DialFault>& dial_faults() const { return dial_faults_; }
    const std::vector<Delay>& delays() const { return delays_; }
    // The latest greeting between two nodes in [1, nodes). If `to` is such a node: the latest one to `to`.
    std::vector<std::uint8_t> greeting_among(std::uint32_t nodes, std::uint32_t to) const;
    // The node at the other side.
    std::uint32_t peer_of(std::uint32_t connection, std::uint32_t side) const {
        return connections_[connection].ends[side ^ 1].node;
    }
    // One way, without jitter.
    Duration latency(std::uint32_t from, std::uint32_t to) const { return base_latency_[from * nodes_ + to]; }

private:
    struct End {
        std::uint32_t node = 0;
        std::uint64_t incarnation = 0;
        LinkId link = 0;
        bool open = false;  // its process has not closed it and has seen no end of it
    };
    static constexpr std::size_t no_delay = ~std::size_t{0};
    struct Acknowledgement {
        Instant at = 0;  // when it arrives at the sender
        std::size_t length = 0;
    };
    struct Pipe {  // pipes[i] leads from ends[i] to ends[i ^ 1]
        Stream stream;
        std::size_t in_flight = 0;  // written and not acknowledged
        CongestionWindow congestion;
        std::vector<Acknowledgement> acknowledgements;  // on their way back; the first one is at acknowledged_head
        std::size_t acknowledged_head = 0;
        std::size_t acknowledged_later = 0;  // bytes that arrived while the way back was blocked
        bool wants_room = false;
        bool wake_scheduled = false;  // an ItemKind::room is in the queue
        Instant flow_free = 0;        // when the stream's own rate allows the next byte
        Instant downlink_end = 0;     // when the last segment of this stream that waits for the downlink has passed it
        Instant last_arrival = 0;
        std::size_t last_delay = no_delay;  // index in delays_, of Kind::late
        std::uint64_t generation = 1;       // grows when the bytes in flight are lost; their items are then ignored
        bool vanishing = false;             // further bytes are lost
        bool end_sent = false;
        bool stalled = false;
        bool tainted = false;            // a fault has changed bytes
        bool swallowed = false;          // an impairment drops all further bytes
        std::uint64_t written = 0;       // bytes written while impaired
        std::vector<Item> held;          // segments that wait while the direction is blocked or the stream stalled
        bool release_scheduled = false;  // an ItemKind::release is in the queue
    };
    struct Connection {
        End ends[2];
        Pipe pipes[2];
        std::size_t window = 0;      // bytes, without the congestion window
        std::uint32_t attempts = 0;  // dials that got no answer; from 100 on none ever gets one
        Instant dialled = 0;
        Endpoint target;         // only if it is a translator
        Endpoint source;         // as the target sees it; only if the dialler is behind a translator
        std::uint16_t port = 0;      // of the dialler
        std::uint16_t port_met = 0;  // of side 1, if it dialled too
        bool accepted = false;
        bool opened = false;
        std::vector<std::uint8_t> greeting;  // first bytes from side 0
    };

    Duration travel(std::uint32_t from, std::uint32_t to);
    void schedule(Instant time, ItemKind kind, std::uint32_t node, std::uint64_t incarnation, std::uint64_t a,
                  std::uint64_t b);
    void syn(const Item& item);
    void accept(std::uint32_t index, bool close_again);
    std::optional<std::uint32_t> dial_between(std::uint32_t node, std::uint16_t port, const Endpoint& target) const;
    void meet(std::uint32_t index, std::uint32_t other);
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
    std::map<std::uint32_t, bool> closed_ports_;  // closed nodes; true: they refuse dials, false: never answer
    std::vector<Duration> base_latency_;
    std::vector<std::int64_t> rate_, down_rate_, pair_rate_;
    std::vector<Instant> uplink_free_, downlink_free_, pair_free_;
    std::deque<Connection> connections_;  // a deque: references stay valid while a callback dials
    std::vector<std::uint8_t> reading_;   // the bytes that arrive now, and in pieces_ with the zeros between them
    std::vector<std::uint32_t> names_;    // by argument of endpoint_of(): the node that dials reach; no_node: none
    bool master_at_spare_ = false;
    std::vector<std::uint32_t> addresses_;  // by node: its address
    std::vector<bool> hidden_, hidden_from_master_;
    Translators translators_;
    std::vector<DialFault> dial_faults_;
    std::vector<Delay> delays_;
    bool keep_greetings_ = false;
    std::vector<Piece> pieces_;
    bool congested_ = false;  // congestion windows apply: packets may be lost, or could be until stop_faults()
    Draw latencies_{0}, segments_{0}, faults_{0}, losses_{0};
};

}  // namespace pccl::sim
