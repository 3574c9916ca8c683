// The one queue of the simulator, totally ordered by (time, sequence): who is scheduled first runs first.
//
// Items are plain numbers; what they mean is decided by World::dispatch. No priorities, no cancellation: whoever receives
// an item checks whether it is still of interest (incarnation, generation).
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pccl::sim {

using core::Duration;
using core::Instant;

inline constexpr std::uint32_t no_node = 0xffffffffu;

enum class ItemKind : std::uint32_t {
    // of a node; held back while the node is paused, dropped when its process is another one
    timer,
    opened,
    refused,
    accepted,
    payload_sent,
    allocated,
    computed,
    persisted,
    flush_over,
    application,
    // of a connection
    arrive,
    end,
    syn,
    release,
    give_up,
    room,
    // of the script (faults, the end of chaos)
    script,
};

struct Item {
    Instant time = 0;
    std::uint64_t sequence = 0;
    ItemKind kind = ItemKind::script;
    std::uint32_t node = no_node;
    std::uint64_t incarnation = 0;  // of the node, or generation of the pipe
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};

class EventQueue {
public:
    EventQueue() { heap_.reserve(256); }

    void push(Item item) {
        item.sequence = ++sequence_;
        heap_.push_back(item);
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    bool empty() const { return heap_.empty(); }
    std::size_t size() const { return heap_.size(); }
    Instant next_time() const { return heap_.empty() ? core::never : heap_.front().time; }
    Item pop() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const Item item = heap_.back();
        heap_.pop_back();
        return item;
    }

private:
    static bool later(const Item& left, const Item& right) {
        return left.time != right.time ? left.time > right.time : left.sequence > right.sequence;
    }
    std::vector<Item> heap_;
    std::uint64_t sequence_ = 0;
};

}  // namespace pccl::sim
