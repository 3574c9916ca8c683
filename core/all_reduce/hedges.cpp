#include "core/all_reduce/hedges.hpp"

#include "core/base/probe.hpp"

#include <algorithm>

namespace pccl::core {

Instant Hedges::silent_since(const Link& link) const {
    if (link.stage != Link::Stage::open || link.stalled || link.left_at < link.nothing_out_at) return never;
    return std::max(link.left_at, link.answered_at);
}

void Hedges::plan(const Uuid& target, Flow& flow, bool idle) {
    flow.hedge_at = never;
    const Stripes::Edge* edge = stripes_.find(target);
    if (!idle || edge == nullptr || !flow.is_far(turn_.limits)) return;
    const bool in_flight = std::any_of(reductions_.all().begin(), reductions_.all().end(), [&](const auto& entry) {
        return entry.second->id.successor == target && !entry.second->decided && entry.second->in_flight != 0;
    });
    if (!in_flight) return;
    for (const Stripes::Stripe& stripe : edge->stripes) {
        const auto link = links_.find(stripe.link);
        if (link == links_.end()) continue;
        const Instant since = silent_since(link->second);
        if (since == never) continue;
        const Instant due = since + flow.answer_time.patience();
        // One that is late without a word on another stripe is looked at again when such a word comes.
        if (due > turn_.now || flow.answered_at > since) flow.hedge_at = std::min(flow.hedge_at, due);
    }
}

Instant Hedges::next() const {
    Instant at = never;
    for (const auto& [target, flow] : flows_) at = std::min(at, flow.hedge_at);
    return at;
}

// Whether a slice is in flight on the stripe that may leave again. What is larger than any slice that was measured may
// take longer than those.
bool Hedges::owes(const Uuid& target, LinkId id, const Flow& flow) const {
    bool any = false;
    for (const auto& [key, op] : reductions_.all()) {
        if (op->decided || op->ahead || !op->neighbour_ready || op->in_flight == 0 || op->id.successor != target)
            continue;
        op->each_in_flight_on(id, [&, op = op.get()](int, std::uint32_t slice) {
            any = any || op->wire_length(slice) <= flow.answer_time.bytes;
        });
    }
    return any;
}

void Hedges::can_answer(const Uuid& target) {
    const Stripes::Edge* edge = stripes_.find(target);
    for (std::size_t i = 0; edge != nullptr && i < edge->stripes.size(); ++i) {
        if (const auto link = links_.find(edge->stripes[i].link); link != links_.end())
            link->second.left_at = std::max(link->second.left_at, turn_.now);
    }
}

std::vector<Hedges::Late> Hedges::late() {
    std::vector<Late> found;
    for (auto& [target, flow] : flows_) {
        if (turn_.now < flow.hedge_at) continue;
        const Stripes::Edge* edge = stripes_.find(target);
        const Duration patience = flow.answer_time.patience();
        bool any = false;
        for (std::size_t i = 0; edge != nullptr && i < edge->stripes.size(); ++i) {
            const LinkId id = edge->stripes[i].link;
            const auto link = links_.find(id);
            if (link == links_.end()) continue;
            const Instant since = silent_since(link->second);
            if (since == never || turn_.now - since < patience || flow.answered_at <= since) continue;
            if (!owes(target, id, flow)) {
                link->second.nothing_out_at = turn_.now;
                continue;
            }
            PROBE(slice_hedged);
            found.push_back({target, id});
            any = true;
        }
        if (any) ++flow.answer_time.hedges;
        plan(target, flow, !any);  // else the idle stripes get slices, which plans anew
    }
    return found;
}

}  // namespace pccl::core
