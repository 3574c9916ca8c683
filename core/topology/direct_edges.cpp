#include "core/topology/direct_edges.hpp"

#include "core/base/probe.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
constexpr std::uint32_t failure_doubles_max = 6;
}  // namespace

bool DirectEdges::usable(GroupId id, const std::vector<Edge>& edges) {
    Group& group = groups_[id];
    bool all_up = true;
    for (const Edge& edge : edges) {
        group.used_at.insert_or_assign(edge, turn_.now);
        const bool wanted = rings_.wants(edge.first, edge.second);
        if (!wanted) agenda_.topology = true;
        all_up =
            all_up && wanted && rings_.edges().up(edge.first, edge.second) && !rings_.marked(edge.first, edge.second);
    }
    if (!all_up) PROBE(direct_edge_not_up);
    if (turn_.now < group.not_before) PROBE(direct_after_a_failure);
    return all_up && turn_.now >= group.not_before;
}

void DirectEdges::ended(GroupId id, bool failed) {
    const auto group = groups_.find(id);
    if (group == groups_.end()) return;
    if (!failed) {
        group->second.failures = 0;
        return;
    }
    PROBE(direct_failed);
    const std::uint32_t doubles = std::min(group->second.failures++, failure_doubles_max);
    group->second.not_before = turn_.now + (turn_.timeouts.stuck_mark() << doubles);
}

void DirectEdges::maintain(std::set<Edge> wanted) {
    for (auto group = groups_.begin(); group != groups_.end();) {
        const auto is_member = [&](const Uuid& peer) {
            const auto member = state_.members.find(peer);
            return member != state_.members.end() && member->second.group == group->first;
        };
        std::erase_if(group->second.used_at, [&](const auto& entry) {
            const bool idle = turn_.now - entry.second > turn_.timeouts.direct_idle();
            if (idle) PROBE(direct_edge_idle);
            return idle || !is_member(entry.first.first) || !is_member(entry.first.second);
        });
        for (const auto& [edge, used_at] : group->second.used_at) wanted.insert(edge);
        const bool over = group->second.used_at.empty() && group->second.not_before <= turn_.now;
        group = over ? groups_.erase(group) : std::next(group);
    }
    rings_.want_direct(wanted);
}

}  // namespace pccl::core
