// The only queue of the simulator, totally ordered by (time, sequence): of two items with the same time, the one that
// was pushed first runs first.
//
// Items are plain numbers; World::dispatch gives them a meaning. There are no priorities and no cancellation. The
// receiver of an item checks whether it is still relevant (incarnation, generation).
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
    // Items of a node: deferred while the node is paused, dropped if its process was replaced.
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
    // Items of a connection.
    arrive,
    end,
    syn,
    release,
    give_up,
    room,
    // Items of the script (faults, the end of chaos), and the end of a node's pause.
    script,
};

struct Item {
    Instant time = 0;
    std::uint64_t sequence = 0;
    ItemKind kind = ItemKind::script;
    std::uint32_t node = no_node;
    std::uint64_t incarnation = 0;  // of the node; generation of the pipe; port of a syn
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};

class EventQueue {
public:
    EventQueue() { heap_.reserve(256); }

    void push(Item item) {
        item.sequence = ++sequence_;
        heap_.push_back(item);
        std::push_heap(heap_.begin(), heap_.end(), Later{});
    }
    bool empty() const { return heap_.empty(); }
    std::size_t size() const { return heap_.size(); }
    Instant next_time() const { return heap_.empty() ? core::never : heap_.front().time; }
    Item pop() {
        std::pop_heap(heap_.begin(), heap_.end(), Later{});
        const Item item = heap_.back();
        heap_.pop_back();
        return item;
    }

private:
    struct Later {  // a type, so that the heap's loops contain its code
        bool operator()(const Item& left, const Item& right) const {
            return left.time != right.time ? left.time > right.time : left.sequence > right.sequence;
        }
    };
    std::vector<Item> heap_;
    std::uint64_t sequence_ = 0;
};

}  // namespace pccl::sim
