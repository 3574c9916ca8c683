// What reaches a driver: items from the queue, and what the network reports.
#include "core/base/assert.hpp"
#include "net-sim/driver.hpp"
#include "net-sim/world.hpp"

#include <algorithm>
#include <memory>

namespace pccl::sim {

using namespace core;

void Driver::handle(const Item& item) {
    switch (item.kind) {
    case ItemKind::timer: return give(Timer{});
    case ItemKind::opened: {
        Link* link = find(item.a);
        if (link == nullptr || link->closing) return;
        link->opened = true;
        return give(LinkOpened{item.a, world_.network_.own_source(link->connection, link->side)});
    }
    case ItemKind::refused: {
        Link* link = find(item.a);
        if (link == nullptr) return;
        ended_far_end_ = far_end(item.a);
        world_.network_.close(link->connection, link->side, false);
        drop(*link);
        tidy();
        return give(LinkRefused{item.a, item.b != 0 ? "timed out" : "refused"});
    }
    case ItemKind::accepted: {
        const auto connection = static_cast<std::uint32_t>(item.b);
        const std::uint32_t from = world_.network_.peer_of(connection, 1);
        if (stopped_ || (world_.is_master(node_) && world_.revoked(from)))
            return world_.network_.close(connection, 1, false);
        found_last_ = nullptr;
        auto& link = links_[item.a] = std::make_unique<Link>(item.a, connection, 1, limits_);
        link->opened = true;
        if (world_.recorder_ != nullptr) world_.recorder_->link_begins(connection, 1, node_);
        return give(LinkAccepted{item.a, world_.network_.seen_source(connection), identity_of(from, connection)});
    }
    case ItemKind::payload_sent: {
        Link* link = find(item.a);
        if (link == nullptr || link->closing) return;
        buffers_.unlock(Use::send, link->id);
        PayloadSent sent{link->id, link->sending.cancelled ? 0 : link->sending.what.checksum, link->sending.cancelled};
        link->sending.active = false;
        if (!link->sending.withdrawn) carried_.sent(link->sending.what.header);
        give(sent);
        if (Link* still = find(item.a)) pump(*still);
        return tidy();
    }
    case ItemKind::allocated: --allocating_; return give(BufferAllocated{item.a, item.b != 0});
    case ItemKind::computed: return finish_compute(item.a);
    case ItemKind::persisted:
        if (world_.nodes_[node_].disk_failed) return give(RecordFailed{item.a, "the disk refuses the record"});
        return give(RecordPersisted{item.a});
    case ItemKind::flush_over:
        if (Link* link = find(item.a)) {
            world_.network_.close(link->connection, link->side, false);
            drop(*link);
        }
        return tidy();
    default: return;
    }
}

bool Driver::has_spoken_on(std::uint32_t connection) const {
    return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
        return entry.second->connection == connection && !entry.second->closing && entry.second->control_left != 0;
    });
}

bool Driver::forwards() const {
    const PeerMachine* const peer = machine_->peer();
    return peer != nullptr && peer->in_run() && peer->statistics().operations_running != 0;
}

void Driver::dial_met(LinkId id, std::uint32_t connection) {
    Link* link = find(id);
    ASSERT(link != nullptr && !link->opened);
    if (world_.recorder_ != nullptr) world_.recorder_->link_ends(world_.now_, link->connection, link->side);
    link->connection = connection;
    link->side = 1;
    if (world_.recorder_ != nullptr) world_.recorder_->link_begins(connection, 1, node_);
}

void Driver::link_ended(LinkId id, const char* reason) {
    Link* link = find(id);
    if (link == nullptr) return;
    const bool told = link->closing;
    const bool opened = link->opened;
    ended_far_end_ = far_end(id);
    drop(*link);
    tidy();
    if (told) return;
    if (opened) {
        give(LinkClosed{id, reason});
    } else {
        give(LinkRefused{id, reason});
    }
    tidy();
}

void Driver::room_made(LinkId id) {
    Link* link = find(id);
    if (link == nullptr || !link->encoder.has_output()) return;
    pump(*link);
    tidy();
}

}  // namespace pccl::sim
