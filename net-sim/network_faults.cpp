// Network faults: blocked directions, connections that break, paths that lose or damage bytes.
#include "net-sim/network.hpp"

#include <algorithm>
#include <cstring>

namespace pccl::sim {

void NetworkParameters::stop_faults() {
    tail_per_million = 0;
    refuse_per_million = black_hole_per_million = accept_close_per_million = 0;
    loss_per_million = 0;
    queue_max = 0;
}

void Network::impair(std::uint32_t from, std::uint32_t to, const Impairment& how) { impairments_[{from, to}] = how; }

namespace {
// Calls `found` with the position of each window of 4 bytes that the pattern selects, one in `rarity`.
template <class Found>
void match(std::span<const std::uint8_t> bytes, std::uint32_t pattern, std::uint32_t rarity, Found found) {
    for (std::size_t i = 0; i + 4 <= bytes.size(); ++i) {
        std::uint32_t window = 0;
        std::memcpy(&window, bytes.data() + i, sizeof window);
        if (mix(pattern, window) % rarity == 0) found(i);
    }
}
}  // namespace

// True if bytes that are written now never arrive, because of the pair's impairment.
bool Network::impaired(std::uint32_t connection, std::uint32_t side, std::span<const std::uint8_t> bytes,
                       std::size_t length) {
    Connection& c = connections_[connection];
    const auto found = impairments_.find({c.ends[side].node, c.ends[side ^ 1].node});
    if (found == impairments_.end()) return false;
    const Impairment& how = found->second;
    Pipe& pipe = c.pipes[side];
    pipe.written += length;
    pipe.swallowed = pipe.swallowed || (how.swallows_above != 0 && length > how.swallows_above);
    bool breaks = how.breaks_after != 0 && pipe.written > how.breaks_after;
    if (how.resets != 0) match(bytes, how.pattern, how.resets, [&](std::size_t) { breaks = true; });
    if (breaks) reset(connection);
    return breaks || pipe.swallowed;
}

// Flips bits of the bytes written last. Equal content gets equal flips.
void Network::damage(std::uint32_t connection, std::uint32_t side, std::size_t length) {
    Connection& c = connections_[connection];
    const auto found = impairments_.find({c.ends[side].node, c.ends[side ^ 1].node});
    if (found == impairments_.end() || found->second.damages == 0) return;
    const std::span<std::uint8_t> bytes = c.pipes[side].stream.real_bytes().last(length);
    match(bytes, found->second.pattern, found->second.damages, [&](std::size_t at) {
        bytes[at + 3] ^= 0x10;
        c.pipes[side].tainted = true;
    });
}

void Network::block(std::uint32_t from, std::uint32_t to) { ++blocks_[from * nodes_ + to]; }

void Network::unblock(std::uint32_t from, std::uint32_t to) {
    std::uint8_t& count = blocks_[from * nodes_ + to];
    if (count == 0 || --count != 0) return;
    // Retransmission resumes after a while, at a different time for each stream.
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        Connection& c = connections_[i];
        for (std::uint32_t side = 0; side < 2; ++side) {
            Pipe& pipe = c.pipes[side];
            const bool this_way = c.ends[side].node == from && c.ends[side ^ 1].node == to && !pipe.held.empty();
            const bool back = c.ends[side].node == to && c.ends[side ^ 1].node == from && pipe.acknowledged_later != 0;
            if ((!this_way && !back) || pipe.release_scheduled) continue;
            pipe.release_scheduled = true;
            schedule(now_ + latencies_.log_uniform(core::millisecond, 400 * core::millisecond), ItemKind::release,
                     no_node, 0, i * 2ull + side, 0);
        }
    }
}

void Network::release(const Item& item) {
    Connection& c = connections_[item.a / 2];
    const auto side = static_cast<std::uint32_t>(item.a % 2);
    Pipe& pipe = c.pipes[side];
    pipe.release_scheduled = false;
    const std::uint32_t from = c.ends[side].node;
    const std::uint32_t to = c.ends[side ^ 1].node;
    if (pipe.acknowledged_later != 0 && !blocked(to, from)) {
        const std::size_t length = pipe.acknowledged_later;
        pipe.acknowledged_later = 0;
        pipe.in_flight -= std::min(pipe.in_flight, length);
        wake_when_room(static_cast<std::uint32_t>(item.a / 2), side);
    }
    if (pipe.held.empty() || pipe.stalled || blocked(from, to)) return;
    std::vector<Item> burst;
    burst.swap(pipe.held);
    for (const Item& segment : burst) handle(segment);
}

void Network::give_up(const Item& item) {
    const auto index = static_cast<std::uint32_t>(item.a / 2);
    const auto side = static_cast<std::uint32_t>(item.a % 2);
    Connection& c = connections_[index];
    End& target = c.ends[side];
    const std::uint32_t other = c.ends[side ^ 1].node;
    const bool at_once = item.b != 0;
    if (!target.open || (!at_once && !blocked(target.node, other) && !blocked(other, target.node))) return;
    if (receiver_.paused(target.node)) {
        receiver_.defer(target.node, item);
        return;
    }
    end(index, side, at_once ? "connection reset" : "connection timed out", item.b == 2);
    // Must follow end(), which drops what this end had sent. The reset reaches the other end after the blockade.
    if (!at_once && c.ends[side ^ 1].open) send_end(index, side, false, 0);
}

void Network::give_up_between(std::uint32_t a, std::uint32_t b, Duration within) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        Connection& c = connections_[i];
        const bool between =
            (c.ends[0].node == a && c.ends[1].node == b) || (c.ends[0].node == b && c.ends[1].node == a);
        if (!between || !open_between(c)) continue;
        for (std::uint32_t side = 0; side < 2; ++side) {
            schedule(now_ + faults_.between(core::millisecond, within), ItemKind::give_up, no_node, 0, i * 2ull + side,
                     0);
        }
    }
}

void Network::move_away(std::uint32_t node) {
    names_[addresses_[node]] = no_node;
    addresses_[node] = static_cast<std::uint32_t>(names_.size());
    names_.push_back(node);
}

void Network::hide(std::uint32_t node, bool from_master_only) {
    (from_master_only ? hidden_from_master_ : hidden_)[node] = true;
}

Endpoint Network::dials_from(std::uint32_t node, std::uint32_t to) const {
    constexpr std::uint32_t gateway = 0x8000;
    const bool hides = hidden_[node] || (to == 0 && hidden_from_master_[node]);
    return hides ? endpoint_of(gateway | node) : address_of(node);
}

void Network::node_gone(std::uint32_t node, bool with_reset) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        Connection& c = connections_[i];
        for (std::uint32_t side = 0; side < 2; ++side) {
            if (c.ends[side].node != node || !c.ends[side].open) continue;
            c.ends[side].open = false;
            Pipe& pipe = c.pipes[side];
            if (with_reset) {
                if (c.accepted && c.ends[side ^ 1].open && !pipe.vanishing) {
                    send_end(static_cast<std::uint32_t>(i), side, faults_.chance(500'000), 0);
                }
            } else if (faults_.chance(500'000)) {
                lose_bytes(pipe);  // bytes in flight may arrive or not
            }
        }
    }
}

std::vector<std::uint32_t> Network::established() const {
    std::vector<std::uint32_t> result;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        const Connection& c = connections_[i];
        if (open_between(c) && !c.pipes[0].vanishing) result.push_back(static_cast<std::uint32_t>(i));
    }
    return result;
}

std::vector<std::uint32_t> Network::busy() const {
    std::vector<std::uint32_t> result;
    for (const std::uint32_t i : established()) {
        const Connection& c = connections_[i];
        if (!c.pipes[0].stream.empty() || !c.pipes[1].stream.empty()) result.push_back(i);
    }
    return result;
}

void Network::stall(std::uint32_t connection, std::uint32_t side) {
    connections_[connection].pipes[side].stalled = true;
}

void Network::go_on(std::uint32_t connection, std::uint32_t side) {
    Pipe& pipe = connections_[connection].pipes[side];
    pipe.stalled = false;
    if (pipe.held.empty() || pipe.release_scheduled) return;
    pipe.release_scheduled = true;
    schedule(now_, ItemKind::release, no_node, 0, connection * 2ull + side, 0);
}

void Network::reset(std::uint32_t connection) {
    Connection& c = connections_[connection];
    for (std::uint32_t side = 0; side < 2; ++side) {
        lose_bytes(c.pipes[side]);
        c.pipes[side].vanishing = true;  // bytes written before an end notices must not arrive
        schedule(now_ + faults_.log_uniform(core::microsecond, 300 * core::millisecond), ItemKind::give_up, no_node, 0,
                 connection * 2ull + side, 1);
    }
}

void Network::end_early(std::uint32_t connection, std::uint32_t side) {
    Connection& c = connections_[connection];
    Pipe& pipe = c.pipes[side];
    const auto part = static_cast<std::size_t>(faults_.below(pipe.stream.size() + 1));
    Stream kept = std::move(pipe.stream);
    kept.truncate(part);
    lose_bytes(pipe);
    pipe.stream = std::move(kept);
    if (pipe.last_arrival < now_) pipe.last_arrival = now_;
    if (part != 0)
        schedule(pipe.last_arrival, ItemKind::arrive, no_node, pipe.generation, connection * 2ull + side, part);
    pipe.end_sent = false;
    send_end(connection, side, true, 0);
    Item noticed;
    noticed.time = now_;
    noticed.kind = ItemKind::give_up;
    noticed.a = connection * 2ull + side;
    noticed.b = 2;  // bytes that were sent still arrive
    give_up(noticed);
}

bool Network::corrupt(std::uint32_t connection, std::uint32_t side, std::uint64_t where) {
    Pipe& pipe = connections_[connection].pipes[side];
    const std::span<std::uint8_t> waiting = pipe.stream.real_bytes();
    if (waiting.empty() || pipe.vanishing) return false;
    waiting[where / 8 % waiting.size()] ^= static_cast<std::uint8_t>(1u << where % 8);
    pipe.tainted = true;
    return true;
}

std::vector<std::uint8_t> Network::greeting(std::uint32_t from, std::uint32_t to) const {
    for (std::size_t i = connections_.size(); i-- != 0;) {
        const Connection& c = connections_[i];
        if (c.ends[0].node == from && c.ends[1].node == to && !c.greeting.empty()) return c.greeting;
    }
    return {};
}

std::vector<std::uint8_t> Network::greeting_among(std::uint32_t nodes, std::uint32_t to) const {
    const auto among = [nodes](std::uint32_t node) { return node > 0 && node < nodes; };
    for (std::size_t i = connections_.size(); i-- != 0;) {
        const Connection& c = connections_[i];
        const std::uint32_t target = c.ends[1].node;
        if (among(c.ends[0].node) && among(target) && (!among(to) || target == to) && !c.greeting.empty())
            return c.greeting;
    }
    return {};
}

void Network::half_open(std::uint32_t connection, bool one_side_knows, std::uint32_t side) {
    Connection& c = connections_[connection];
    for (Pipe& pipe : c.pipes) {
        lose_bytes(pipe);
        pipe.vanishing = true;
    }
    if (one_side_knows) schedule(now_, ItemKind::give_up, no_node, 0, connection * 2ull + side, 1);
}

}  // namespace pccl::sim
