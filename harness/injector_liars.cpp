// The fault of a member that lies.
#include "harness/injector.hpp"

namespace pccl::harness {

using namespace core;

void Injector::liar_begins(const Fault& fault, std::uint64_t index) {
    const std::uint32_t node = peer_of(fault);
    liars_.begin(node, static_cast<std::uint32_t>(fault.value >> 8), fault.b);
    world_.set(&liars_);
    liar_spans_.push_back({node, world_.now(), open_end});
    // It holds up its group, and more than one neighbour may be blamed for it.
    for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge, Excuse::unreachable})
        excuses_.hardship(excuse, index, node, world_.now(), end_of(fault));
    schedule_end(fault, index);
}

// Its machine is not what the others take it for, so its process ends too.
void Injector::liar_ends(const Fault& fault, std::uint64_t index) {
    const std::uint32_t node = peer_of(fault);
    liars_.end(node);
    for (Ledger::Liar& span : liar_spans_) {
        if (span.node == node) span.until = std::min(span.until, world_.now());
    }
    if (!world_.alive(node)) return;
    world_.end_process(node, (fault.value & 1) != 0);
    peer_gone(index, node);
}

void Injector::tell_of_liars(Ledger& ledger) const {
    ledger.liars = liar_spans_;
    ledger.false_votes = liars_.false_votes();
    for (const Liars::FalseBytes& bytes : liars_.false_bytes()) ledger.false_bytes.emplace_back(bytes.node, bytes.at);
    for (Life& life : ledger.lives) {
        for (const Ledger::Liar& span : liar_spans_) {
            if (span.node == life.node && span.from < life.gone_at && life.asked_at < span.until) life.liar = true;
        }
    }
}

}  // namespace pccl::harness
