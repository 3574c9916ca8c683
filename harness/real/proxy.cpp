#include "harness/real/proxy.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pccl::harness {

using namespace core;

namespace {

constexpr std::size_t read_bytes_max = 65'536;
constexpr int reads_per_turn = 4;
constexpr int accepts_per_turn = 32;
constexpr Duration split_gap = 100 * microsecond;  // between the parts of a read that is split

sockaddr_in native(const std::string& address, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    ::inet_pton(AF_INET, address.c_str(), &result.sin_addr);
    return result;
}

void set_flag(int descriptor, int level, int name) {
    const int on = 1;
    ::setsockopt(descriptor, level, name, &on, sizeof on);
}

Descriptor bound_socket(const std::string& address, std::uint16_t port) {
    Descriptor result(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!result.is_open()) return result;
    set_flag(result.number(), SOL_SOCKET, SO_REUSEADDR);
    const sockaddr_in local = native(address, port);
    if (::bind(result.number(), reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0) return result;
    return Descriptor();
}

std::uint16_t local_port(int descriptor) {
    sockaddr_in local{};
    socklen_t length = sizeof local;
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length);
    return ntohs(local.sin_port);
}

std::string loopback(unsigned third, std::uint32_t node) { return formatted("127.0.{}.{}", third, node + 1); }

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

std::string process_address(std::uint32_t node) { return loopback(1, node); }
std::string front_address(std::uint32_t node) { return loopback(2, node); }

Proxy::Proxy(std::uint32_t nodes, const sim::NetworkParameters& parameters, std::uint64_t seed)
    : nodes_(nodes), parameters_(parameters), blocks_(std::size_t{nodes} * nodes, 0),
      base_latency_(std::size_t{nodes} * nodes), rate_(nodes), down_rate_(nodes, 0), uplink_free_(nodes, 0),
      downlink_free_(nodes, 0), latencies_(sim::mix(seed, 1)), segments_(sim::mix(seed, 2)), faults_(sim::mix(seed, 3)),
      fronts_(nodes) {
    for (Duration& latency : base_latency_)
        latency = latencies_.log_uniform(parameters.latency_low, parameters.latency_high);
    for (std::int64_t& rate : rate_) rate = latencies_.log_uniform(parameters.rate_low, parameters.rate_high);
    if (parameters.down_high > 0) {
        for (std::int64_t& rate : down_rate_) rate = latencies_.log_uniform(parameters.down_low, parameters.down_high);
    }
}

bool Proxy::open(std::string& error) {
    for (std::uint32_t node = 0; node < nodes_; ++node) {
        Front& front = fronts_[node];
        for (int attempt = 0; attempt < 100 && !front.listener.is_open(); ++attempt) {
            front.reservation = bound_socket(front_address(node), 0);
            if (!front.reservation.is_open()) break;
            front.port = local_port(front.reservation.number());
            // The process will need the same port on its own address.
            if (!bound_socket(process_address(node), front.port).is_open()) continue;
            static_cast<void>(listen(front, node));
        }
        if (!front.listener.is_open()) {
            error = formatted(
                "cannot listen on {}: {}; the addresses 127.0.1.* and 127.0.2.* of the loopback device are needed",
                front_address(node), std::strerror(errno));
            return false;
        }
    }
    return true;
}

bool Proxy::listen(Front& front, std::uint32_t node) {
    Descriptor listener = bound_socket(front_address(node), front.port);
    if (!listener.is_open() || ::listen(listener.number(), 512) != 0) return false;
    front.listener = std::move(listener);
    return true;
}

Duration Proxy::travel(std::uint32_t from, std::uint32_t to) {
    const Duration base = base_latency_[pair(from, to)];
    Duration time = base;
    if (parameters_.jitter_per_mille != 0) time += latencies_.between(0, base * parameters_.jitter_per_mille / 1000);
    if (parameters_.tail_per_million != 0 && latencies_.chance(parameters_.tail_per_million))
        time += latencies_.log_uniform(millisecond, parameters_.tail_max);
    return time;
}

Proxy::Connection* Proxy::find(std::uint64_t number) {
    const auto found = std::lower_bound(connections_.begin(), connections_.end(), number,
                                        [](const Connection& c, std::uint64_t n) { return c.number < n; });
    return found != connections_.end() && found->number == number ? &*found : nullptr;
}
const Proxy::Connection* Proxy::find(std::uint64_t number) const { return const_cast<Proxy*>(this)->find(number); }

// --- the loop --------------------------------------------------------------------------------------------------------

bool Proxy::may_send(const Connection& c, std::uint32_t side) const {
    const Pipe& pipe = c.pipes[side];
    return c.state == State::open && !c.vanishing && !pipe.stalled && !pipe.ended &&
           c.sides[side ^ 1].descriptor.is_open() && !blocked(c.sides[side].node, c.sides[side ^ 1].node);
}

void Proxy::watch(std::vector<pollfd>& set) {
    watched_from_ = set.size();
    watched_.clear();
    for (const Front& front : fronts_) {
        set.push_back(pollfd{front.listener.is_open() ? front.listener.number() : -1, POLLIN, 0});
        watched_.push_back({});
    }
    for (const Connection& c : connections_) {
        for (std::uint32_t side = 0; side < 2; ++side) {
            const Side& end = c.sides[side];
            if (!end.descriptor.is_open()) continue;
            short events = 0;
            if (c.state == State::dialing && side == 1) {
                events = POLLOUT;
            } else {
                if (!end.read_ended && (c.vanishing || c.pipes[side].bytes < c.window)) events |= POLLIN;
                if (c.pipes[side ^ 1].write_full && may_send(c, side ^ 1)) events |= POLLOUT;
            }
            // Even if no event is requested, poll() would report a hang-up again and again.
            if (events == 0) continue;
            set.push_back(pollfd{end.descriptor.number(), events, 0});
            watched_.push_back({c.number, side});
        }
    }
}

Instant Proxy::next_deadline(Instant now) const {
    Instant next = never;
    const auto consider = [&](Instant at) { next = std::min(next, std::max(at, now)); };
    for (const Connection& c : connections_) {
        for (std::uint32_t side = 0; side < 2; ++side) {
            if (c.sides[side].reset_at != never) consider(c.sides[side].reset_at);
            const Pipe& pipe = c.pipes[side];
            if (!may_send(c, side) || pipe.write_full) continue;
            if (!pipe.pieces.empty()) {
                consider(pipe.pieces.front().due);
            } else if (pipe.end != End::none) {
                consider(pipe.end_due);
            }
        }
        if (c.state == State::arriving && !blocked(c.sides[0].node, c.sides[1].node) &&
            !blocked(c.sides[1].node, c.sides[0].node))
            consider(c.dial_at);
        if (c.close_at != never) consider(c.close_at);
    }
    return next;
}

void Proxy::turn(const std::vector<pollfd>& set, Instant now) {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
        const short events = set[watched_from_ + i].revents;
        if (events == 0) continue;
        if (i < fronts_.size()) {
            accept_all(static_cast<std::uint32_t>(i), now);
            continue;
        }
        Connection* c = find(watched_[i].connection);
        const std::uint32_t side = watched_[i].side;
        if (c == nullptr || !c->sides[side].descriptor.is_open()) continue;
        if (c->state == State::dialing && side == 1) {
            dialled(*c, now);
            continue;
        }
        if ((events & POLLOUT) != 0) c->pipes[side ^ 1].write_full = false;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(*c, side, now);
    }
    for (Connection& c : connections_) on_time(c, now);
    std::erase_if(connections_, [](const Connection& c) {
        return c.state == State::done || (!c.sides[0].descriptor.is_open() && !c.sides[1].descriptor.is_open());
    });
}

void Proxy::on_time(Connection& c, Instant now) {
    for (Side& side : c.sides) {
        if (side.reset_at > now) continue;
        side.reset_at = never;
        side.descriptor.close_with_reset();
    }
    if (c.close_at <= now) {
        for (Side& side : c.sides) side.descriptor.close();
        return;
    }
    if (c.state == State::arriving && c.dial_at <= now && !blocked(c.sides[0].node, c.sides[1].node) &&
        !blocked(c.sides[1].node, c.sides[0].node)) {
        dial(c, now);
    }
    for (std::uint32_t side = 0; side < 2; ++side) send(c, side, now);
}

// --- opening ---------------------------------------------------------------------------------------------------------

void Proxy::accept_all(std::uint32_t node, Instant now) {
    for (int i = 0; i < accepts_per_turn; ++i) {
        sockaddr_in remote{};
        socklen_t length = sizeof remote;
        Descriptor accepted(::accept4(fronts_[node].listener.number(), reinterpret_cast<sockaddr*>(&remote), &length,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!accepted.is_open()) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            return;
        }
        // Other programs of this machine are no nodes and are refused.
        const std::uint32_t address = ntohl(remote.sin_addr.s_addr);
        const std::uint32_t from = (address & 0xffu) - 1;
        if ((address >> 8) != 0x7f0001u || from >= nodes_ || from == node) {
            accepted.close_with_reset();
            continue;
        }
        set_flag(accepted.number(), IPPROTO_TCP, TCP_NODELAY);
        Connection c;
        c.number = ++last_number_;
        c.sides[0].node = from;
        c.sides[1].node = node;
        c.sides[0].descriptor = std::move(accepted);
        c.window = static_cast<std::size_t>(latencies_.log_uniform(parameters_.window_low, parameters_.window_high));
        c.dial_at = now + travel(from, node);
        if (faults_.chance(parameters_.refuse_per_million)) {
            c.sides[0].reset_at = c.dial_at;
            c.state = State::swallowed;
            c.vanishing = true;
        } else if (fronts_[node].silent || faults_.chance(parameters_.black_hole_per_million)) {
            c.state = State::swallowed;
            c.vanishing = true;
        } else if (faults_.chance(parameters_.accept_close_per_million)) {
            c.close_at = c.dial_at + faults_.log_uniform(microsecond, second);
        }
        connections_.push_back(std::move(c));
    }
}

void Proxy::dial(Connection& c, Instant now) {
    const std::uint32_t target = c.sides[1].node;
    const std::uint16_t port = target == 0 ? master_port_ : fronts_[target].port;
    Descriptor out(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (out.is_open()) {
        set_flag(out.number(), IPPROTO_TCP, TCP_NODELAY);
        set_flag(out.number(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
        const sockaddr_in local = native(front_address(c.sides[0].node), 0);
        const sockaddr_in remote = native(process_address(target), port);
        if (::bind(out.number(), reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0 &&
            (::connect(out.number(), reinterpret_cast<const sockaddr*>(&remote), sizeof remote) == 0 ||
             errno == EINPROGRESS)) {
            c.sides[1].descriptor = std::move(out);
            c.state = State::dialing;
            return;
        }
    }
    c.sides[0].reset_at = now + travel(target, c.sides[0].node);
    c.state = State::swallowed;
    c.vanishing = true;
}

void Proxy::dialled(Connection& c, Instant now) {
    int code = 0;
    socklen_t length = sizeof code;
    ::getsockopt(c.sides[1].descriptor.number(), SOL_SOCKET, SO_ERROR, &code, &length);
    if (code == 0) {
        c.state = State::open;
        return;
    }
    c.sides[1].descriptor.close();
    c.sides[0].reset_at = now + travel(c.sides[1].node, c.sides[0].node);
    c.state = State::swallowed;
    c.vanishing = true;
}

// --- bytes -----------------------------------------------------------------------------------------------------------

void Proxy::receive(Connection& c, std::uint32_t side, Instant now) {
    Side& from = c.sides[side];
    if (from.read_ended) return;
    for (int i = 0; i < reads_per_turn; ++i) {
        std::string bytes(read_bytes_max, '\0');
        const ssize_t count = ::recv(from.descriptor.number(), bytes.data(), bytes.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && would_block()) return;
        if (count <= 0) {
            from.read_ended = true;
            if (c.vanishing) {
                from.descriptor.close();
            } else {
                queue_end(c, side, count == 0 ? End::orderly : End::reset, now);
                if (count < 0) from.descriptor.close();
            }
            return;
        }
        if (c.vanishing) continue;
        bytes.resize(static_cast<std::size_t>(count));
        bytes_forwarded_ += bytes.size();
        ++(c.sides[0].node == 0 || c.sides[1].node == 0 ? pieces_with_master_ : pieces_between_peers_);
        queue(c, side, std::move(bytes), now);
        if (c.pipes[side].bytes >= c.window) return;
    }
}

void Proxy::queue(Connection& c, std::uint32_t side, std::string bytes, Instant now) {
    Pipe& pipe = c.pipes[side];
    const std::uint32_t from = c.sides[side].node, to = c.sides[side ^ 1].node;
    const auto transmission = [&](std::int64_t rate) { return static_cast<Duration>(bytes.size()) * second / rate; };
    Instant departure = uplink_free_[from] = std::max(uplink_free_[from], now) + transmission(rate_[from]);
    if (parameters_.flow_rate != 0) {
        pipe.flow_free = std::max(pipe.flow_free, now) + transmission(parameters_.flow_rate);
        departure = std::max(departure, pipe.flow_free);
    }
    Instant due = std::max(departure + travel(from, to), pipe.last_due);
    if (down_rate_[to] != 0) {
        // An idle downlink adds no delay: its transmission begins with the first byte, not with the last one.
        const Duration own = transmission(down_rate_[to]);
        due = downlink_free_[to] = std::max(due - own, downlink_free_[to]) + own;
    }
    pipe.bytes += bytes.size();
    while (bytes.size() > 1 && segments_.chance(parameters_.split_per_million)) {
        const auto cut =
            static_cast<std::size_t>(segments_.log_uniform(1, static_cast<std::int64_t>(bytes.size()) - 1));
        pipe.pieces.push_back(Piece{due, bytes.substr(0, cut)});
        bytes.erase(0, cut);
        due += split_gap;
    }
    pipe.last_due = due;
    pipe.pieces.push_back(Piece{due, std::move(bytes)});
}

void Proxy::queue_end(Connection& c, std::uint32_t side, End end, Instant now) {
    Pipe& pipe = c.pipes[side];
    pipe.end = end;
    pipe.end_due = std::max(now + travel(c.sides[side].node, c.sides[side ^ 1].node), pipe.last_due);
    if (c.state != State::open) {
        // The other side was not connected yet.
        for (Side& any : c.sides) any.descriptor.close();
        c.state = State::done;
    }
}

void Proxy::send(Connection& c, std::uint32_t side, Instant now) {
    Pipe& pipe = c.pipes[side];
    if (!may_send(c, side) || pipe.write_full) return;
    Side& to = c.sides[side ^ 1];
    while (!pipe.pieces.empty() && pipe.pieces.front().due <= now) {
        Piece& piece = pipe.pieces.front();
        const ssize_t count = ::send(to.descriptor.number(), piece.bytes.data() + piece.sent,
                                     piece.bytes.size() - piece.sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && would_block()) {
            pipe.write_full = true;
            return;
        }
        if (count < 0) {
            // The receiver is gone. Its last bytes are read first; then its end is passed on.
            if (!to.read_ended) receive(c, side ^ 1, now);
            if (!to.read_ended) {
                to.read_ended = true;
                queue_end(c, side ^ 1, End::reset, now);
            } else if (c.pipes[side ^ 1].end == End::orderly) {
                c.pipes[side ^ 1].end = End::reset;
                c.pipes[side ^ 1].ended = false;
                c.pipes[side ^ 1].end_due =
                    std::max(now + travel(to.node, c.sides[side].node), c.pipes[side ^ 1].last_due);
            }
            to.descriptor.close();
            pipe.pieces.clear();
            pipe.bytes = 0;
            return;
        }
        piece.sent += static_cast<std::size_t>(count);
        pipe.bytes -= static_cast<std::size_t>(count);
        if (piece.sent == piece.bytes.size()) pipe.pieces.pop_front();
    }
    if (pipe.pieces.empty() && pipe.end != End::none && pipe.end_due <= now) deliver_end(c, side);
}

void Proxy::deliver_end(Connection& c, std::uint32_t side) {
    Pipe& pipe = c.pipes[side];
    Side& to = c.sides[side ^ 1];
    pipe.ended = true;
    if (pipe.end == End::reset) {
        to.descriptor.close_with_reset();
        c.sides[side].descriptor.close();
        return;
    }
    ::shutdown(to.descriptor.number(), SHUT_WR);
    // Both directions have ended now, or the other descriptor is already closed.
    if (!c.pipes[side ^ 1].ended && c.sides[side].descriptor.is_open()) return;
    for (Side& any : c.sides) any.descriptor.close();
}

// --- faults ----------------------------------------------------------------------------------------------------------

void Proxy::stop_faults() { parameters_.stop_faults(); }

void Proxy::node_dies(std::uint32_t node, bool with_reset) {
    if (with_reset) {
        fronts_[node].listener.close();
        return;
    }
    fronts_[node].silent = true;
    for (Connection& c : connections_) {
        for (Side& side : c.sides) {
            if (side.node != node) continue;
            c.vanishing = true;
            side.descriptor.close();
        }
    }
}

void Proxy::node_starts(std::uint32_t node) {
    Front& front = fronts_[node];
    if (!front.listener.is_open()) static_cast<void>(listen(front, node));
    if (!front.silent) return;
    front.silent = false;
    // The restarted system does not know the old connections and resets them.
    for (Connection& c : connections_) {
        if (c.vanishing && (c.sides[0].node == node || c.sides[1].node == node)) {
            for (Side& side : c.sides) side.descriptor.close_with_reset();
        }
    }
}

std::vector<std::uint64_t> Proxy::established() const {
    std::vector<std::uint64_t> result;
    for (const Connection& c : connections_) {
        if (c.state == State::open && !c.vanishing && c.sides[0].descriptor.is_open() &&
            c.sides[1].descriptor.is_open() && !c.sides[0].read_ended && !c.sides[1].read_ended)
            result.push_back(c.number);
    }
    return result;
}

std::vector<std::uint64_t> Proxy::busy() const {
    std::vector<std::uint64_t> result;
    for (const std::uint64_t number : established()) {
        const Connection* c = find(number);
        if (c->pipes[0].bytes != 0 || c->pipes[1].bytes != 0) result.push_back(number);
    }
    return result;
}

std::uint32_t Proxy::node_of(std::uint64_t number, std::uint32_t side) const {
    const Connection* c = find(number);
    return c == nullptr ? 0 : c->sides[side].node;
}

void Proxy::stall(std::uint64_t number, std::uint32_t side, bool on) {
    if (Connection* c = find(number)) c->pipes[side].stalled = on;
}

void Proxy::reset(std::uint64_t number, Instant now) {
    Connection* c = find(number);
    if (c == nullptr) return;
    c->vanishing = true;
    for (Side& side : c->sides) side.reset_at = now + faults_.log_uniform(microsecond, 300 * millisecond);
}

void Proxy::end_early(std::uint64_t number, std::uint32_t side, Instant now) {
    Connection* c = find(number);
    if (c == nullptr) return;
    Pipe& pipe = c->pipes[side];
    auto left = static_cast<std::size_t>(faults_.below(pipe.bytes + 1));
    std::deque<Piece> kept;
    pipe.bytes = 0;
    for (Piece& piece : pipe.pieces) {
        if (left == 0) break;
        piece.bytes.resize(std::min(piece.bytes.size(), piece.sent + left));
        left -= piece.bytes.size() - piece.sent;
        pipe.bytes += piece.bytes.size() - piece.sent;
        kept.push_back(std::move(piece));
    }
    pipe.pieces = std::move(kept);
    queue_end(*c, side, End::orderly, now);
    c->sides[side].read_ended = true;
    c->sides[side].descriptor.close_with_reset();
}

bool Proxy::corrupt(std::uint64_t number, std::uint32_t side, std::uint64_t choice) {
    Connection* c = find(number);
    if (c == nullptr || c->pipes[side].bytes == 0) return false;
    std::size_t at = choice / 8 % c->pipes[side].bytes;
    for (Piece& piece : c->pipes[side].pieces) {
        const std::size_t left = piece.bytes.size() - piece.sent;
        if (at < left) {
            char& byte = piece.bytes[piece.sent + at];
            byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1u << (choice % 8)));
            return true;
        }
        at -= left;
    }
    return false;
}

void Proxy::half_open(std::uint64_t number, bool one_side_knows, std::uint32_t side) {
    Connection* c = find(number);
    if (c == nullptr) return;
    c->vanishing = true;
    if (one_side_knows) c->sides[side].descriptor.close_with_reset();
}

}  // namespace pccl::harness
