#include "core/topology/holder_edges.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

bool HolderEdges::told(const Uuid& receiver, OpId sync, const std::vector<Uuid>& holders) {
    Asked now{sync, {}};
    std::ranges::copy_if(holders, std::back_inserter(now.holders),
                         [&](const Uuid& holder) { return rings_.offered(receiver, holder); });
    std::ranges::sort(now.holders);
    if (now.holders.empty()) return false;
    const auto before = asked_.find(receiver);
    if (before != asked_.end() && before->second.sync == sync && before->second.holders == now.holders) return false;
    PROBE(holder_offered);
    asked_[receiver] = std::move(now);
    return true;
}

// The group of the receiver still runs the synchronization.
bool HolderEdges::runs(const Uuid& receiver, const Asked& asked) const {
    const auto member = state_.members.find(receiver);
    if (member == state_.members.end()) return false;
    const auto group = state_.groups.find(member->second.group);
    return group != state_.groups.end() && group->second.sync && group->second.sync->id == asked.sync;
}

void HolderEdges::maintain() {
    std::erase_if(asked_, [&](const auto& entry) { return !runs(entry.first, entry.second); });
    for (const auto& [receiver, asked] : asked_) {
        for (const Uuid& holder : asked.holders) {
            if (state_.members.contains(holder)) rings_.want(receiver, holder);
        }
    }
}

std::size_t HolderEdges::over() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(asked_, [&](const auto& entry) { return !runs(entry.first, entry.second); }));
}

void HolderEdges::check() const {
    for (const auto& [receiver, asked] : asked_) ASSERT(asked.sync != 0 && !asked.holders.empty());
}

}  // namespace pccl::core
