#include "net-sim/network.hpp"

#include "core/base/assert.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace pccl::sim {

namespace {
constexpr std::size_t greeting_bytes = 400;
constexpr Duration delay_noted = 50 * core::millisecond;
// Bit in the length of an arriving segment: it has passed the downlink of its target.
constexpr std::uint64_t passed_downlink = 1ull << 63;
// A sender waits until this many bytes of its window are free.
std::size_t worthwhile(std::size_t window) { return window / 32 + 1; }

Duration transmission(std::uint64_t bytes, std::int64_t rate) {
    return static_cast<Duration>(bytes) * core::second / rate;
}
}  // namespace

Endpoint endpoint_of(std::uint32_t node, std::uint16_t port) {
    Endpoint endpoint;
    endpoint.port = port;
    endpoint.address[0] = 10;
    endpoint.address[1] = 9;
    endpoint.address[2] = static_cast<std::uint8_t>(node >> 8);
    endpoint.address[3] = static_cast<std::uint8_t>(node & 0xff);
    return endpoint;
}

std::uint32_t node_of(const Endpoint& endpoint) {
    if (endpoint.is_v6 || endpoint.address[0] != 10 || endpoint.address[1] != 9) return no_node;
    return (static_cast<std::uint32_t>(endpoint.address[2]) << 8) | endpoint.address[3];
}

std::int64_t NetworkParameters::rate_least() const {
    std::int64_t least = rate_low;
    for (const std::int64_t rate : {down_low, flow_rate}) {
        if (rate != 0) least = std::min(least, rate);
    }
    return least;
}

void Network::draw_from(std::uint64_t seed) {
    latencies_ = Draw(mix(seed, 1));
    segments_ = Draw(mix(seed, 2));
    faults_ = Draw(mix(seed, 3));
    losses_ = Draw(mix(seed, 4));
}

void Network::start(std::uint32_t nodes, const NetworkParameters& parameters, std::uint64_t seed) {
    parameters_ = parameters;
    congested_ = parameters.loses_packets();
    nodes_ = nodes;
    draw_from(seed);
    blocks_.assign(static_cast<std::size_t>(nodes) * nodes, 0);
    base_latency_.resize(static_cast<std::size_t>(nodes) * nodes);
    if (parameters.regions.empty()) {
        for (Duration& latency : base_latency_)
            latency = latencies_.log_uniform(parameters.latency_low, parameters.latency_high);
    } else {
        std::size_t row = 1;
        while (row * row < parameters.region_latency.size()) ++row;
        ASSERT(parameters.region_latency.size() == row * row);
        ASSERT(*std::max_element(parameters.regions.begin(), parameters.regions.end()) < row);
        const auto region = [&](std::uint32_t node) {
            return node < parameters.regions.size() ? parameters.regions[node] : 0;
        };
        for (std::uint32_t from = 0; from < nodes; ++from) {
            for (std::uint32_t to = 0; to < nodes; ++to)
                base_latency_[from * nodes + to] = parameters.region_latency[region(from) * row + region(to)];
        }
        if (!parameters.region_rate.empty()) {
            ASSERT(parameters.region_rate.size() == row * row);
            pair_rate_.resize(static_cast<std::size_t>(nodes) * nodes);
            pair_free_.assign(pair_rate_.size(), 0);
            for (std::uint32_t from = 0; from < nodes; ++from) {
                for (std::uint32_t to = 0; to < nodes; ++to)
                    pair_rate_[from * nodes + to] = parameters.region_rate[region(from) * row + region(to)];
            }
        }
    }
    rate_.resize(nodes);
    for (std::int64_t& rate : rate_) rate = latencies_.log_uniform(parameters.rate_low, parameters.rate_high);
    down_rate_.assign(nodes, 0);
    if (parameters.down_high > 0) {
        for (std::int64_t& rate : down_rate_) rate = latencies_.log_uniform(parameters.down_low, parameters.down_high);
    }
    uplink_free_.assign(nodes, 0);
    names_.resize(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) names_[node] = node;
    addresses_ = names_;
    hidden_.assign(nodes, false);
    hidden_from_master_.assign(nodes, false);
    downlink_free_.assign(nodes, 0);
    translators_.start(nodes);
}

void Network::schedule(Instant time, ItemKind kind, std::uint32_t node, std::uint64_t incarnation, std::uint64_t a,
                       std::uint64_t b) {
    Item item;
    item.time = time;
    item.kind = kind;
    item.node = node;
    item.incarnation = incarnation;
    item.a = a;
    item.b = b;
    queue_.push(item);
}

Duration Network::travel(std::uint32_t from, std::uint32_t to) {
    const Duration base = base_latency_[from * nodes_ + to];
    Duration time = base;
    if (parameters_.jitter_per_mille != 0) {
        time += latencies_.between(0, base * parameters_.jitter_per_mille / 1000);
    }
    if (parameters_.tail_per_million != 0 && latencies_.chance(parameters_.tail_per_million)) {
        time += latencies_.log_uniform(core::millisecond, parameters_.tail_max);
    }
    return time;
}

// --- opening ---------------------------------------------------------------------------------------------------------

std::uint32_t Network::dial(std::uint32_t node, LinkId link, const Endpoint& target, std::uint16_t source_port) {
    const auto index = static_cast<std::uint32_t>(connections_.size());
    connections_.emplace_back();
    Connection& c = connections_.back();
    c.window = static_cast<std::size_t>(latencies_.log_uniform(parameters_.window_low, parameters_.window_high));
    c.ends[0] = End{node, receiver_.incarnation(node), link, true};
    c.port = source_port != 0 ? source_port : static_cast<std::uint16_t>(32'768 + index % 28'000);
    if (translators_.behind(node)) c.source = translators_.dials(node, own_source(index, 0), target, now_);
    std::uint32_t to = node_of(target);
    if (Translators::is_outer(target)) {
        c.target = target;
        to = translators_.any_node_of(target);
    }
    if (to == silent_name || (c.target.port == 0 && to < nodes_ && !translators_.in_one_network(node, to))) {
        c.ends[1].node = node;  // nobody
        return index;
    }
    if (to == 0 || to == spare_name)
        to = (to == spare_name) == master_at_spare_ ? names_[0] : no_node;
    else
        to = to < names_.size() ? names_[to] : no_node;
    if (to == no_node) {
        schedule(now_, ItemKind::refused, node, c.ends[0].incarnation, link, 0);
        return index;
    }
    c.ends[1].node = to;
    c.dialled = now_;
    const Instant arrival = now_ + travel(node, to) + lost_at_dial();
    note_opening(c, arrival);
    schedule(arrival, ItemKind::syn, no_node, target.port, index, 0);
    return index;
}

void Network::syn(const Item& item) {
    Connection& c = connections_[item.a];
    const End& dialler = c.ends[0];
    if (!dialler.open || c.accepted) return;
    auto port = static_cast<std::uint16_t>(item.incarnation);
    bool let_in = true;
    std::optional<std::uint32_t> other;  // a dial that this one meets
    if (c.target.port != 0) {
        const Endpoint source = seen_source(static_cast<std::uint32_t>(item.a));
        const auto inward = translators_.inward(source, c.target, now_);
        if (inward) other = dial_between(inward->first, inward->second, source);
        let_in = inward && (other || inward->second == listen_port);
        if (let_in) std::tie(c.ends[1].node, port) = *inward;
    }
    const std::uint32_t to = c.ends[1].node;
    Reach reach = !let_in ? Reach::silent : other ? Reach::listening : receiver_.reach(to, port);
    if (const auto closed = closed_ports_.find(to); let_in && !other && closed != closed_ports_.end())
        reach = closed->second ? Reach::refusing : Reach::silent;
    const bool swallowed = c.attempts == 0 && faults_.chance(parameters_.black_hole_per_million);
    if (swallowed) {
        c.attempts = 100;  // no later attempt succeeds
        dial_faults_.push_back(DialFault{dialler.node, to, now_, true});
    }
    if (blocked(dialler.node, to) || blocked(to, dialler.node) || reach == Reach::silent || c.attempts >= 100) {
        ++c.attempts;
        if (c.attempts % 100 > 6) {
            schedule(now_, ItemKind::refused, dialler.node, dialler.incarnation, dialler.link, 1);
            return;
        }
        const Duration wait = core::second << (c.attempts % 100 - 1);
        if (blocked(dialler.node, to) || blocked(to, dialler.node)) note_opening(c, now_ + wait);
        schedule(now_ + wait, ItemKind::syn, no_node, item.incarnation, item.a, 0);
        return;
    }
    const bool refused = reach != Reach::refusing && faults_.chance(parameters_.refuse_per_million);
    if (refused) dial_faults_.push_back(DialFault{dialler.node, to, now_, false});
    if (reach == Reach::refusing || refused) {
        schedule(now_ + travel(to, dialler.node), ItemKind::refused, dialler.node, dialler.incarnation, dialler.link,
                 0);
        return;
    }
    if (other) return meet(static_cast<std::uint32_t>(item.a), *other);
    const bool close_again = faults_.chance(parameters_.accept_close_per_million);
    if (close_again) dial_faults_.push_back(DialFault{dialler.node, to, now_, false});
    accept(static_cast<std::uint32_t>(item.a), close_again);
}

void Network::accept(std::uint32_t index, bool close_again) {
    Connection& c = connections_[index];
    End& dialler = c.ends[0];
    End& listener = c.ends[1];
    c.accepted = true;
    c.opened = true;
    const Duration back = travel(listener.node, dialler.node) + lost_at_dial();
    schedule(now_ + back, ItemKind::opened, dialler.node, dialler.incarnation, dialler.link, index);
    note_opening(c, now_ + back);
    // Bytes of the listener must not arrive before the dialler's link is open.
    c.pipes[1].last_arrival = now_ + back;
    if (close_again) {
        send_end(index, 1, true, faults_.log_uniform(core::microsecond, core::second));
        return;
    }
    listener.incarnation = receiver_.incarnation(listener.node);
    listener.link = receiver_.next_accepted_link(listener.node);
    listener.open = true;
    schedule(now_, ItemKind::accepted, listener.node, listener.incarnation, listener.link, index);
}

// A dial from this port of the node to `target` that nothing has answered yet.
std::optional<std::uint32_t> Network::dial_between(std::uint32_t node, std::uint16_t port,
                                                   const Endpoint& target) const {
    for (std::size_t i = connections_.size(); i-- > 0;) {
        const Connection& c = connections_[i];
        const End& dialler = c.ends[0];
        if (dialler.node == node && c.port == port && c.target == target && dialler.open && !c.accepted)
            return static_cast<std::uint32_t>(i);
    }
    return std::nullopt;
}

// Two dials become one connection (simultaneous open): `index`, whose packet has reached the other dialler. That one
// answers, and knows of the connection when the answer to this has come back.
void Network::meet(std::uint32_t index, std::uint32_t other) {
    Connection& c = connections_[index];
    End& waiting = connections_[other].ends[0];
    c.accepted = c.opened = true;
    c.ends[1] = waiting;
    c.port_met = connections_[other].port;
    waiting.open = false;
    receiver_.dial_met(waiting.node, waiting.link, index);
    const Instant first = now_ + travel(waiting.node, c.ends[0].node) + lost_at_dial();
    const Instant second = first + travel(c.ends[0].node, waiting.node) + lost_at_dial();
    schedule(first, ItemKind::opened, c.ends[0].node, c.ends[0].incarnation, c.ends[0].link, index);
    schedule(second, ItemKind::opened, waiting.node, waiting.incarnation, waiting.link, index);
    note_opening(c, first);
    note_opening(connections_[other], second);
    // Bytes must not arrive before the link is open there.
    c.pipes[1].last_arrival = first;
    c.pipes[0].last_arrival = second;
}

Endpoint Network::own_source(std::uint32_t connection, std::uint32_t side) const {
    const Connection& c = connections_[connection];
    Endpoint own = address_of(c.ends[side].node);
    own.port = side == 0 ? c.port : c.port_met;
    return own;
}

Endpoint Network::seen_source(std::uint32_t connection) const {
    const Connection& c = connections_[connection];
    if (c.source.port != 0) return c.source;
    Endpoint seen = dials_from(c.ends[0].node, c.ends[1].node);
    seen.port = c.port;
    return seen;
}

// --- bytes -----------------------------------------------------------------------------------------------------------

// Applies the acknowledgements that have arrived by now: they make room.
void Network::settle(Pipe& pipe) const {
    while (pipe.acknowledged_head < pipe.acknowledgements.size() &&
           pipe.acknowledgements[pipe.acknowledged_head].at <= now_) {
        const std::size_t length = pipe.acknowledgements[pipe.acknowledged_head++].length;
        pipe.in_flight -= std::min(pipe.in_flight, length);
        if (congested_) pipe.congestion.acknowledged(length);
    }
    if (pipe.acknowledged_head == pipe.acknowledgements.size()) {
        pipe.acknowledgements.clear();
        pipe.acknowledged_head = 0;
    } else if (pipe.acknowledged_head > 64 && pipe.acknowledged_head > pipe.acknowledgements.size() / 2) {
        pipe.acknowledgements.erase(pipe.acknowledgements.begin(),
                                    pipe.acknowledgements.begin() +
                                        static_cast<std::ptrdiff_t>(pipe.acknowledged_head));
        pipe.acknowledged_head = 0;
    }
}

std::size_t Network::window_of(const Connection& c, const Pipe& pipe) const {
    return congested_ ? std::min(c.window, pipe.congestion.bytes()) : c.window;
}

std::size_t Network::room(std::uint32_t connection, std::uint32_t side) {
    Connection& c = connections_[connection];
    Pipe& pipe = c.pipes[side];
    settle(pipe);
    const std::size_t window = window_of(c, pipe);
    if (pipe.in_flight >= window) return 0;
    const std::size_t room = window - pipe.in_flight;
    return pipe.in_flight != 0 && room < worthwhile(window) ? 0 : room;
}

void Network::want_room(std::uint32_t connection, std::uint32_t side) {
    connections_[connection].pipes[side].wants_room = true;
    wake_when_room(connection, side);
}

// Schedules the wake-up at the acknowledgement that makes enough room, if it is on its way already.
void Network::wake_when_room(std::uint32_t connection, std::uint32_t side) {
    Connection& c = connections_[connection];
    Pipe& pipe = c.pipes[side];
    if (!pipe.wants_room || pipe.wake_scheduled) return;
    settle(pipe);
    std::size_t in_flight = pipe.in_flight;
    const std::size_t window = window_of(c, pipe);
    const auto enough = [&] { return in_flight == 0 || in_flight + worthwhile(window) <= window; };
    Instant at = now_;
    for (std::size_t i = pipe.acknowledged_head; !enough() && i < pipe.acknowledgements.size(); ++i) {
        in_flight -= std::min(in_flight, pipe.acknowledgements[i].length);
        at = pipe.acknowledgements[i].at;
    }
    if (!enough()) return;
    // Until a late acknowledgement arrives, the sender is silent.
    if (at > now_) note_delay(c, side, now_, pipe.last_arrival, at + latency(c.ends[side].node, c.ends[side ^ 1].node));
    pipe.wake_scheduled = true;
    schedule(at, ItemKind::room, no_node, 0, connection * 2ull + side, 0);
}

void Network::wake(const Item& item) {
    const End& sender = connections_[item.a / 2].ends[item.a % 2];
    Pipe& pipe = connections_[item.a / 2].pipes[item.a % 2];
    if (sender.open && receiver_.paused(sender.node)) return receiver_.defer(sender.node, item);
    pipe.wake_scheduled = false;
    if (!pipe.wants_room || !sender.open) return;
    pipe.wants_room = false;
    receiver_.room_made(sender.node, sender.link);
}

void Network::write(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
                    std::span<const ZeroRun> zeros, Instant ready) {
    Connection& c = connections_[connection];
    Pipe& pipe = c.pipes[side];
    if (keep_greetings_ && side == 0 && c.greeting.size() < greeting_bytes) {
        const std::size_t part = std::min(greeting_bytes - c.greeting.size(), bytes.size());
        c.greeting.insert(c.greeting.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    }
    std::size_t left = bytes.size();
    for (const ZeroRun& run : zeros) left += run.length;
    pipe.in_flight += left;
    // Once its end is in flight, the stream is closed. A paused node notices that late and may still write until then.
    if (pipe.vanishing || pipe.end_sent) return;
    if (!impairments_.empty() && impaired(connection, side, bytes, left)) return;
    if (pipe.swallowed) return;  // a stream cannot have a gap, even if the path was repaired
    pipe.stream.append(bytes, zeros);
    if (!impairments_.empty()) damage(connection, side, bytes.size());
    const std::uint32_t from = c.ends[side].node;
    const std::uint32_t to = c.ends[side ^ 1].node;
    std::uint32_t cuts = segments_.chance(parameters_.split_per_million) ? segments_.number(1, 3) : 0;
    while (left != 0) {
        std::size_t part = left;
        if (cuts != 0 && left > 1) {
            part = segments_.chance(200'000) ? 1 : 1 + static_cast<std::size_t>(segments_.below(left - 1));
            --cuts;
        }
        left -= part;
        // A segment waits for three rates: the node's uplink, the path between the two nodes, and the stream's own
        // limit. All streams of the node share the uplink; all streams between the two nodes share the path.
        uplink_free_[from] = std::max(uplink_free_[from], now_) + transmission(part, rate_[from]);
        Instant departure = uplink_free_[from];
        if (!pair_rate_.empty() && pair_rate_[from * nodes_ + to] != 0) {
            Instant& free = pair_free_[from * nodes_ + to];
            free = std::max(free, now_) + transmission(part, pair_rate_[from * nodes_ + to]);
            departure = std::max(departure, free);
        }
        if (parameters_.flow_rate != 0) {
            pipe.flow_free = std::max(pipe.flow_free, now_) + transmission(part, parameters_.flow_rate);
            departure = std::max(departure, pipe.flow_free);
        }
        if (congested_) departure += lost(c, side, part);
        const Instant arrival = std::max(departure + travel(from, to), pipe.last_arrival);
        note_delay(c, side, ready, pipe.last_arrival, arrival);
        pipe.last_arrival = arrival;
        schedule(arrival, ItemKind::arrive, no_node, pipe.generation, connection * 2ull + side, part);
    }
}

// How much later these bytes arrive because packets of them are lost.
Duration Network::lost(Connection& c, std::uint32_t side, std::size_t bytes) {
    if (!parameters_.loses_packets()) return 0;
    Pipe& pipe = c.pipes[side];
    const std::uint32_t from = c.ends[side].node;
    const Duration round_trip = latency(from, c.ends[side ^ 1].node) + latency(c.ends[side ^ 1].node, from);
    const auto packets = static_cast<std::uint32_t>(std::min<std::size_t>(CongestionWindow::packets(bytes), 64));
    const auto again = [&](std::uint32_t of) {
        return losses_.chance(std::min(of * parameters_.loss_per_million, 900'000u));
    };
    const bool queue_full = parameters_.queue_max != 0 && uplink_free_[from] - now_ > parameters_.queue_max;
    if (!queue_full && !again(packets)) return 0;
    // If enough bytes are in flight, the sender detects the loss after a round trip. Otherwise, and for each loss of
    // the resent packet, it needs a time-out.
    constexpr std::size_t telling = 4 * CongestionWindow::packet;
    bool by_time_out = pipe.in_flight < telling;
    Duration time_out = std::max(200 * core::millisecond, 2 * round_trip);
    Duration late = by_time_out ? time_out : round_trip;
    for (int times = 0; times < 5 && again(1); ++times) {
        by_time_out = true;
        late += time_out;
        time_out *= 2;
    }
    pipe.congestion.lost(now_, round_trip, by_time_out);
    return late;
}

// A packet that opens a connection is resent after one second, then after two more, and so on.
Duration Network::lost_at_dial() {
    if (parameters_.loss_per_million == 0) return 0;
    Duration late = 0;
    for (Duration next = core::second; next <= 4 * core::second && losses_.chance(parameters_.loss_per_million);
         next *= 2)
        late += next;
    return late;
}

// ---- delays ----------------------------------------------------------------------------------------------------------

// Records the delay of a dial that takes until `until` or longer.
void Network::note_opening(const Connection& c, Instant until) {
    const std::uint32_t from = c.ends[0].node;
    const std::uint32_t to = c.ends[1].node;
    const Duration expected = 2 * (latency(from, to) + latency(to, from));
    if (until - c.dialled < expected + delay_noted) return;
    delays_.push_back(Delay{Delay::Kind::opening, from, to, c.dialled, until, until - c.dialled});
}

// Records that bytes which could leave at `ready` arrive at `arrival`. All earlier bytes of the stream had arrived by
// `before`.
void Network::note_delay(Connection& c, std::uint32_t side, Instant ready, Instant before, Instant arrival) {
    const std::uint32_t from = c.ends[side].node;
    const std::uint32_t to = c.ends[side ^ 1].node;
    const Duration longest = arrival - ready - latency(from, to) * (1000 + parameters_.jitter_per_mille) / 1000;
    if (longest < delay_noted) return;
    const Instant quiet = std::max(ready, before);
    if (arrival - quiet - latency(from, to) > delay_noted)
        delays_.push_back(Delay{Delay::Kind::silent, from, to, quiet, arrival, arrival - quiet});
    // Delays that follow each other directly are one delay.
    std::size_t& last = c.pipes[side].last_delay;
    if (last != no_delay && delays_[last].until >= ready) {
        delays_[last].until = std::max(delays_[last].until, arrival);
        delays_[last].longest = std::max(delays_[last].longest, longest);
        return;
    }
    last = delays_.size();
    delays_.push_back(Delay{Delay::Kind::late, from, to, ready, arrival, longest});
}

void Network::handle(const Item& item) {
    if (item.kind == ItemKind::syn) return syn(item);
    if (item.kind == ItemKind::release) return release(item);
    if (item.kind == ItemKind::give_up) return give_up(item);
    if (item.kind == ItemKind::room) return wake(item);
    Connection& c = connections_[item.a / 2];
    const auto side = static_cast<std::uint32_t>(item.a % 2);
    Pipe& pipe = c.pipes[side];
    if (item.incarnation != pipe.generation) return;  // lost with a reset
    const End& target = c.ends[side ^ 1];
    const std::uint32_t from = c.ends[side].node;
    if (pipe.vanishing) return;
    // Items that were deferred by a pause have a node. They are in its kernel already, so they pass no network any
    // more.
    if (item.node == no_node && (pipe.stalled || blocked(from, target.node) || !pipe.held.empty())) {
        hold(pipe, item);
        return;
    }
    if (item.node == no_node && waits_for_downlink(item, pipe, target.node)) return;
    if (target.open && receiver_.paused(target.node)) {
        Item received = item;
        received.node = target.node;
        receiver_.defer(target.node, received);
        return;
    }
    if (item.kind == ItemKind::end) {
        end(static_cast<std::uint32_t>(item.a / 2), side ^ 1,
            item.b != 0 ? "connection reset" : "closed by the remote end", false);
    } else {
        arrive(item, c, pipe, side);
    }
}

// Segments that have passed the downlink come before the others in the stream.
void Network::hold(Pipe& pipe, const Item& item) {
    auto place = pipe.held.end();
    if (item.kind == ItemKind::arrive && (item.b & passed_downlink) != 0) {
        place = std::find_if(pipe.held.begin(), pipe.held.end(), [](const Item& other) {
            return other.kind != ItemKind::arrive || (other.b & passed_downlink) == 0;
        });
    }
    pipe.held.insert(place, item);
}

// All bytes that arrive at a node pass its downlink, in the order of arrival. True: the item was rescheduled.
bool Network::waits_for_downlink(const Item& item, Pipe& pipe, std::uint32_t target) {
    if (down_rate_[target] == 0) return false;
    Instant until = pipe.downlink_end;
    std::uint64_t b = item.b;
    if (item.kind == ItemKind::arrive) {
        if ((item.b & passed_downlink) != 0) return false;
        // The first byte arrived before the last one, so an idle downlink adds no delay.
        const Duration own = transmission(item.b, down_rate_[target]);
        until = std::max(now_, std::max(now_ - own, downlink_free_[target]) + own);
        downlink_free_[target] = until;
        b |= passed_downlink;
    }
    if (until <= now_) return false;
    if (item.kind == ItemKind::arrive) note_delay(connections_[item.a / 2], item.a % 2, now_, pipe.downlink_end, until);
    pipe.downlink_end = until;
    schedule(until, item.kind, no_node, item.incarnation, item.a, b);
    return true;
}

void Network::arrive(const Item& item, Connection& c, Pipe& pipe, std::uint32_t side) {
    const End target = c.ends[side ^ 1];
    const auto length = static_cast<std::size_t>(item.b & ~passed_downlink);
    // A copy, because the receiver's reaction may clear the stream.
    pipe.stream.take(length, reading_, pieces_);
    if (!target.open) {
        // This end is closed. A running host answers with a reset, a dead one does not answer.
        if (receiver_.reach(target.node, listen_port) != Reach::silent && c.ends[side].open) {
            send_end(static_cast<std::uint32_t>(item.a / 2), side ^ 1, false, 0);
        }
        return;
    }
    receiver_.bytes_arrived(target.node, target.link, pieces_);
    if (item.incarnation != pipe.generation || pipe.vanishing) return;
    if (blocked(target.node, c.ends[side].node)) {
        pipe.acknowledged_later += length;
        return;
    }
    Instant back = now_ + travel(target.node, c.ends[side].node);
    if (!pipe.acknowledgements.empty()) back = std::max(back, pipe.acknowledgements.back().at);
    pipe.acknowledgements.push_back(Acknowledgement{back, length});
    wake_when_room(static_cast<std::uint32_t>(item.a / 2), side);
}

// --- closing ---------------------------------------------------------------------------------------------------------

void Network::lose_bytes(Pipe& pipe) {
    ++pipe.generation;
    pipe.held.clear();
    pipe.stream.clear();
}

void Network::send_end(std::uint32_t index, std::uint32_t side, bool in_order, Duration extra) {
    Connection& c = connections_[index];
    Pipe& pipe = c.pipes[side];
    if (pipe.end_sent) return;
    pipe.end_sent = true;
    Instant arrival = now_ + extra + travel(c.ends[side].node, c.ends[side ^ 1].node);
    if (!in_order) lose_bytes(pipe);
    if (in_order && arrival < pipe.last_arrival) arrival = pipe.last_arrival;
    note_delay(c, side, now_, pipe.last_arrival, arrival);
    pipe.last_arrival = arrival;
    schedule(arrival, ItemKind::end, no_node, pipe.generation, index * 2ull + side, in_order ? 0 : 1);
}

void Network::close(std::uint32_t connection, std::uint32_t side, bool gracefully) {
    Connection& c = connections_[connection];
    if (!c.ends[side].open) return;
    c.ends[side].open = false;
    if (!c.accepted || !c.ends[side ^ 1].open || c.pipes[side].vanishing) return;
    send_end(connection, side, gracefully, 0);
}

void Network::end(std::uint32_t index, std::uint32_t to_side, const char* reason, bool keep_sent) {
    End& target = connections_[index].ends[to_side];
    if (!target.open) return;
    target.open = false;
    if (!keep_sent) lose_bytes(connections_[index].pipes[to_side]);
    receiver_.link_ended(target.node, target.link, reason);
}

}  // namespace pccl::sim
