#include "delay_queue.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <netinet/in.h>

namespace pccl::bench {

namespace {

constexpr std::size_t prefix = sizeof(PacketHead);

std::uint32_t load(const std::uint8_t* at, unsigned bytes) {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | at[i];
    return value;
}

void store(std::uint8_t* at, unsigned bytes, std::uint32_t value) {
    for (unsigned i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> 8 * (bytes - 1 - i));
}

// Where the parts of a packet are, from the begin of its PacketHead.
struct Layout {
    bool valid = false;
    bool tcp = false;
    std::size_t transport = 0, payload = 0, end = 0;
    std::size_t segment_bytes = 0;  // payload of each segment but the last
    std::size_t segments = 1;
    std::uint64_t flow = 0;
    std::uint32_t target = 0;
};

Layout look_at(const std::uint8_t* packet, std::size_t bytes) {
    Layout layout;
    if (bytes < prefix + 20 || packet[prefix] >> 4 != 4) return layout;
    const std::uint8_t* ip = packet + prefix;
    PacketHead header;
    std::memcpy(&header, packet, prefix);
    layout.transport = prefix + (ip[0] & 15u) * 4u;
    layout.end = bytes;
    layout.payload = layout.transport;
    layout.target = load(ip + 16, 4);
    const std::uint8_t protocol = ip[9];
    std::uint64_t ports = 0;
    if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && bytes >= layout.transport + 8)
        ports = load(packet + layout.transport, 4);
    layout.flow = ((std::uint64_t{load(ip + 12, 4)} << 32 | layout.target) * 0x9e3779b97f4a7c15u) ^
                  ((ports << 8 | protocol) * 0xc2b2ae3d27d4eb4fu);
    layout.tcp = protocol == IPPROTO_TCP && bytes >= layout.transport + 20;
    if (layout.tcp) layout.payload = layout.transport + (packet[layout.transport + 12] >> 4) * 4u;
    if (layout.payload > bytes) return layout;
    if (layout.tcp && header.gso_type != 0 && header.gso_size != 0) {
        layout.segment_bytes = header.gso_size;
        layout.segments = std::max<std::size_t>((bytes - layout.payload + header.gso_size - 1) / header.gso_size, 1);
    }
    layout.valid = true;
    return layout;
}

}  // namespace

std::vector<std::uint8_t> cut_segments(const std::uint8_t* packet, std::size_t bytes, std::size_t first,
                                       std::size_t count) {
    const Layout layout = look_at(packet, bytes);
    if (layout.segments == 1) return {packet, packet + bytes};
    const std::size_t begin = layout.payload + first * layout.segment_bytes;
    const std::size_t end = std::min(begin + count * layout.segment_bytes, bytes);
    std::vector<std::uint8_t> cut(packet, packet + layout.payload);
    cut.insert(cut.end(), packet + begin, packet + end);

    std::uint8_t* ip = cut.data() + prefix;
    std::uint8_t* tcp = cut.data() + layout.transport;
    store(tcp + 4, 4, load(tcp + 4, 4) + static_cast<std::uint32_t>(first * layout.segment_bytes));
    constexpr std::uint8_t fin_and_push = 0x09, congestion_window_reduced = 0x80;
    if (end != bytes) tcp[13] = static_cast<std::uint8_t>(tcp[13] & ~fin_and_push);
    if (first != 0) tcp[13] = static_cast<std::uint8_t>(tcp[13] & ~congestion_window_reduced);
    store(ip + 2, 2, static_cast<std::uint32_t>(cut.size() - prefix));
    store(ip + 4, 2, load(ip + 4, 2) + static_cast<std::uint32_t>(first));
    store(ip + 10, 2, 0);
    std::uint32_t sum = 0;
    for (const std::uint8_t* at = ip; at < tcp; at += 2) sum += load(at, 2);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    store(ip + 10, 2, ~sum);
    if (cut.size() - layout.payload <= layout.segment_bytes) {
        PacketHead header;
        std::memcpy(&header, cut.data(), prefix);
        header.gso_type = 0;
        header.gso_size = 0;
        std::memcpy(cut.data(), &header, prefix);
    }
    return cut;
}

DelayQueue::DelayQueue(const PathOptions& options) : options_(options), random_(options.seed) {
    until_loss_ = draw_gap();
}

std::uint64_t DelayQueue::draw_gap() {
    if (options_.loss <= 0) return std::numeric_limits<std::uint64_t>::max();
    const double u = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    return static_cast<std::uint64_t>(std::log(u) / std::log1p(-options_.loss));
}

std::int64_t DelayQueue::pass(std::int64_t& free_at, double rate, std::size_t wire_bytes, std::int64_t now) const {
    if (rate <= 0) return now;
    const std::int64_t begin = std::max(free_at, now);
    if (begin - now > options_.queue_ns) return -1;
    free_at = begin + static_cast<std::int64_t>(static_cast<double>(wire_bytes) / rate * 1e9);
    return free_at;
}

std::int64_t DelayQueue::held_until(std::uint64_t flow, std::size_t data, std::int64_t now) {
    constexpr std::size_t data_least = 1000;  // acknowledgements and votes are smaller
    if (options_.stall_ns == 0) return 0;
    if (now >= stalled_until_ && data >= data_least && flow != stalled_) {
        stalled_ = flow;
        stalled_until_ = now + options_.stall_ns;
    }
    return flow == stalled_ && now < stalled_until_ ? stalled_until_ : 0;
}

void DelayQueue::push(std::vector<std::uint8_t> bytes, std::int64_t departs, std::size_t target) {
    waiting_.push({departs + options_.latency_ns, order_++, target, std::move(bytes)});
}

void DelayQueue::accept(const std::uint8_t* packet, std::size_t bytes, std::size_t from, std::size_t peers,
                        std::int64_t now) {
    const Layout layout = look_at(packet, bytes);
    const std::size_t target = (layout.target & 255) - 1;
    if (!layout.valid || layout.target >> 8 != 0x0a6300 || target >= peers) return;
    std::int64_t& flow = flows_[layout.flow];
    const std::size_t head = layout.payload - prefix;
    // Runs of segments that survive stay together, as one packet.
    std::size_t run_begin = 0;
    std::int64_t departs = now;
    const std::int64_t held = held_until(layout.flow, bytes - layout.payload, now);
    const auto end_run = [&](std::size_t end) {
        if (end > run_begin) {
            if (end - run_begin == layout.segments)
                push({packet, packet + bytes}, departs, target);
            else
                push(cut_segments(packet, bytes, run_begin, end - run_begin), departs, target);
        }
        run_begin = end + 1;
    };
    for (std::size_t i = 0; i < layout.segments; ++i) {
        const std::size_t data =
            layout.segments == 1 ? bytes - layout.payload
                                 : std::min(layout.segment_bytes, bytes - layout.payload - i * layout.segment_bytes);
        if (until_loss_-- == 0) {
            until_loss_ = draw_gap();
            ++counters_.lost_random;
            end_run(i);
            continue;
        }
        const std::int64_t left_flow = pass(flow, options_.flow_bytes_per_second, head + data, now);
        const std::int64_t left = left_flow < 0 ? -1
                                                : pass(interfaces_[from], options_.interface_bytes_per_second,
                                                       head + data, std::max(left_flow, now));
        if (left < 0) {
            ++counters_.lost_queue;
            end_run(i);
            continue;
        }
        departs = std::max(left, held);
        ++counters_.segments;
        counters_.bytes += head + data;
    }
    end_run(layout.segments);
}

Delayed DelayQueue::take() {
    // The queue is a heap; its top may be moved from because it is removed at once.
    Delayed top = std::move(const_cast<Delayed&>(waiting_.top()));
    waiting_.pop();
    return top;
}

void Lateness::add(std::int64_t nanoseconds) {
    const double us = std::max(static_cast<double>(nanoseconds) / 1e3, 1.0);
    const auto bucket = static_cast<std::size_t>(std::log2(us) * 4);
    ++counts_[std::min(bucket, counts_.size() - 1)];
    ++all_;
    max_ns_ = std::max(max_ns_, nanoseconds);
}

double Lateness::quantile_us(double part) const {
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        seen += counts_[i];
        if (static_cast<double>(seen) >= part * static_cast<double>(all_) && seen != 0)
            return std::min(std::exp2(static_cast<double>(i + 1) / 4), max_us());
    }
    return 0;
}

}  // namespace pccl::bench
