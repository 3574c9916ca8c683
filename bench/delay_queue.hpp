// What a path does to packets: latency, rates, a bounded queue and loss. No input and output here: bytes and the time
// are arguments, so a test can look at each decision.
//
// A packet begins with a PacketHead and may hold many TCP segments (gso). It is IPv4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

namespace pccl::bench {

// virtio_net_hdr of <linux/virtio_net.h>, which is no C++: what stands before a packet of a TUN device.
struct PacketHead {
    std::uint8_t flags;
    std::uint8_t gso_type;  // 0: one segment
    std::uint16_t hdr_len;
    std::uint16_t gso_size;  // payload of a segment
    std::uint16_t csum_start;
    std::uint16_t csum_offset;
};
static_assert(sizeof(PacketHead) == 10);

struct PathOptions {
    std::int64_t latency_ns = 0;            // one way
    double flow_bytes_per_second = 0;       // of each 5-tuple and direction; 0: no limit
    double interface_bytes_per_second = 0;  // of all that leaves a peer; 0: no limit
    std::int64_t queue_ns = 50'000'000;     // longest wait for the rates
    double loss = 0;                        // chance of a segment
    std::int64_t stall_ns = 0;              // one flow that carries data is held for so long, then another one; 0: none
    std::uint64_t seed = 1;
};

struct PathCounters {
    std::uint64_t segments = 0, bytes = 0;  // accepted
    std::uint64_t lost_random = 0, lost_queue = 0;
};

struct Delayed {
    std::int64_t due = 0;
    std::uint64_t order = 0;  // packets that are due at the same time keep their order
    std::size_t target = 0;
    std::vector<std::uint8_t> bytes;
};

class DelayQueue {
public:
    explicit DelayQueue(const PathOptions& options);

    // Takes a packet that left peer `from` at `now`. What is no IPv4 packet to one of the `peers` is ignored.
    void accept(const std::uint8_t* packet, std::size_t bytes, std::size_t from, std::size_t peers, std::int64_t now);
    std::int64_t next_due() const { return waiting_.empty() ? -1 : waiting_.top().due; }
    Delayed take();
    const PathCounters& counters() const { return counters_; }

private:
    struct Later {
        bool operator()(const Delayed& a, const Delayed& b) const {
            return a.due != b.due ? a.due > b.due : a.order > b.order;
        }
    };
    // A virtual clock: when the last byte so far has left. -1 if `wire_bytes` more would wait too long.
    std::int64_t pass(std::int64_t& free_at, double rate, std::size_t wire_bytes, std::int64_t now) const;
    std::uint64_t draw_gap();  // segments until the next loss
    // When the stall of its flow ends; 0: it is not held.
    std::int64_t held_until(std::uint64_t flow, std::size_t data, std::int64_t now);
    void push(std::vector<std::uint8_t> bytes, std::int64_t departs, std::size_t target);

    PathOptions options_;
    PathCounters counters_;
    std::mt19937_64 random_;
    std::uint64_t until_loss_;
    std::uint64_t order_ = 0;
    std::uint64_t stalled_ = 0;  // the flow that is held, or was last
    std::int64_t stalled_until_ = 0;
    std::unordered_map<std::uint64_t, std::int64_t> flows_;  // hash of the 5-tuple: its virtual clock
    std::array<std::int64_t, 256> interfaces_{};
    std::priority_queue<Delayed, std::vector<Delayed>, Later> waiting_;
};

// The segments [first, first + count) of a packet with several. Lengths, sequence number, flags and the checksum of the
// IP header are those of a packet that the sender could have sent. The checksum of TCP stays partial.
std::vector<std::uint8_t> cut_segments(const std::uint8_t* packet, std::size_t bytes, std::size_t first,
                                       std::size_t count);

// How late packets were: counts per power of 2^(1/4) microseconds.
class Lateness {
public:
    void add(std::int64_t nanoseconds);
    double quantile_us(double part) const;
    double max_us() const { return static_cast<double>(max_ns_) / 1e3; }

private:
    std::array<std::uint64_t, 128> counts_{};
    std::uint64_t all_ = 0;
    std::int64_t max_ns_ = 0;
};

}  // namespace pccl::bench
