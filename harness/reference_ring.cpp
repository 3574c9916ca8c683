#include "harness/reference_ring.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace pccl::harness {
namespace {

using namespace sim;

class Rings final : public Receiver {
public:
    Rings(const NetworkParameters& parameters, const ReferenceRing& ring)
        : ring_(ring), network_(queue_, now_, *this), ends_(std::size_t{ring.peers} * ring.operations) {
        network_.start(ring.peers, parameters, 1);
    }

    Duration run() {
        for (std::uint32_t i = 0; i < ends_.size(); ++i) {
            ends_[i].connection = network_.dial(peer_of(i), i, endpoint_of((peer_of(i) + 1) % ring_.peers));
        }
        Instant begin = 0;
        while (!queue_.empty()) {
            const Item item = queue_.pop();
            now_ = item.time;
            if (item.kind == ItemKind::accepted) {
                // `from` is the End that dialled. Its successor in the same operation receives on the accepted link.
                const auto from = static_cast<std::uint32_t>(item.b);
                receives_[item.a] = from - peer_of(from) + (peer_of(from) + 1) % ring_.peers;
            } else if (item.kind == ItemKind::opened) {
                if (++opened_ < ends_.size()) continue;
                begin = now_;
                for (std::uint32_t i = 0; i < ends_.size(); ++i) begin_step(i);
            } else {
                network_.handle(item);
            }
        }
        return last_ - begin;
    }

    // --- Receiver ----------------------------------------------------------------------------------------------------
    Reach reach(std::uint32_t, std::uint16_t) override { return Reach::listening; }
    std::uint64_t incarnation(std::uint32_t) override { return 0; }
    bool paused(std::uint32_t) override { return false; }
    void defer(std::uint32_t, const Item&) override {}
    LinkId next_accepted_link(std::uint32_t) override { return accepted_++; }
    void dial_met(std::uint32_t, LinkId, std::uint32_t) override {}
    void bytes_arrived(std::uint32_t, LinkId link, std::span<const Piece> pieces) override {
        const std::uint32_t index = receives_.at(link);
        End& end = ends_[index];
        for (const Piece& piece : pieces) end.arrived += piece.length;
        while (end.received < steps() && end.arrived >= part_received(index, end.received)) {
            end.arrived -= part_received(index, end.received);
            ++end.received;
            last_ = now_;
        }
        advance(index);
    }
    void link_ended(std::uint32_t, LinkId, const char*) override {}
    void room_made(std::uint32_t, LinkId link) override {
        pump(static_cast<std::uint32_t>(link));
        advance(static_cast<std::uint32_t>(link));
    }

private:
    // One peer in one operation.
    struct End {
        std::uint32_t connection = 0;  // to the successor
        std::uint32_t step = 0;
        std::uint64_t left = 0;  // bytes of the step's part that are not written yet
        std::uint32_t received = 0;
        std::uint64_t arrived = 0;  // bytes of the next part
    };

    std::uint32_t peer_of(std::uint32_t index) const { return index % ring_.peers; }
    std::uint32_t steps() const { return 2 * (ring_.peers - 1); }
    std::uint64_t part_bytes(std::uint32_t part) const {
        const std::uint64_t elements = ring_.bytes / 4;
        return (elements * (part + 1) / ring_.peers - elements * part / ring_.peers) * 4;
    }
    std::uint64_t part_sent(std::uint32_t index, std::uint32_t step) const {
        return part_bytes((peer_of(index) + 2 * ring_.peers - step) % ring_.peers);
    }
    std::uint64_t part_received(std::uint32_t index, std::uint32_t step) const {
        return part_bytes((peer_of(index) + 2 * ring_.peers - step - 1) % ring_.peers);
    }

    void begin_step(std::uint32_t index) {
        ends_[index].left = part_sent(index, ends_[index].step);
        pump(index);
    }
    // The barrier: the next step begins when the part of this step was sent and the other part was received.
    void advance(std::uint32_t index) {
        End& end = ends_[index];
        while (end.left == 0 && end.step + 1 < steps() && end.received > end.step) {
            ++end.step;
            begin_step(index);
        }
    }
    void pump(std::uint32_t index) {
        End& end = ends_[index];
        while (end.left != 0) {
            const std::uint64_t room = network_.room(end.connection, 0);
            const ZeroRun part{0, std::min<std::uint64_t>({room, end.left, segment_bytes})};
            if (part.length == 0) return network_.want_room(end.connection, 0);
            end.left -= part.length;
            network_.write(end.connection, 0, {}, std::span(&part, 1));
        }
    }

    static constexpr std::uint64_t segment_bytes = 64u << 10;

    ReferenceRing ring_;
    EventQueue queue_;
    Instant now_ = 0;
    Network network_;
    std::vector<End> ends_;  // operation after operation
    std::unordered_map<LinkId, std::uint32_t> receives_;
    LinkId accepted_ = 0;
    std::size_t opened_ = 0;
    Instant last_ = 0;
};

}  // namespace

sim::Duration reference_ring_time(const sim::NetworkParameters& network, const ReferenceRing& ring) {
    return Rings(network, ring).run();
}

}  // namespace pccl::harness
