#include "core/topology/hosts.hpp"

#include "core/base/format.hpp"
#include "core/base/host_span.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

std::vector<std::uint32_t> host_ends_of(std::span<const std::uint64_t> hosts) {
    const auto world = static_cast<std::uint32_t>(hosts.size());
    if (std::find(hosts.begin(), hosts.end(), 0) != hosts.end()) return {};
    std::vector<std::uint32_t> ends;
    for (std::uint32_t p = 0; p < world; ++p) {
        if (hosts[p] != hosts[(p + 1) % world]) ends.push_back(p);
    }
    return ends.size() >= 2 && ends.size() < world ? ends : std::vector<std::uint32_t>{};
}

std::vector<std::uint32_t> grouped_by_host(std::span<const std::uint64_t> hosts) {
    const auto world = static_cast<std::uint32_t>(hosts.size());
    std::map<std::uint64_t, std::vector<std::uint32_t>> of_host;
    std::vector<std::uint64_t> in_order;  // of their first members
    std::uint64_t alone = 0;              // names for members whose host is not known
    std::uint32_t changes = 0;
    for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint64_t host = hosts[p];
        if (host == 0 || host != hosts[(p + 1) % world]) ++changes;
        const auto [entry, anew] = of_host.try_emplace(host);
        if (host != 0 && anew) in_order.push_back(host);
        if (host != 0) entry->second.push_back(p);
        if (host == 0) ++alone;
    }
    if (changes <= in_order.size() + alone) return {};
    std::vector<std::uint32_t> order;
    std::map<std::uint64_t, bool> placed;
    for (std::uint32_t p = 0; p < world; ++p) {
        if (hosts[p] == 0) {
            order.push_back(p);
        } else if (!std::exchange(placed[hosts[p]], true)) {
            const auto& members = of_host.at(hosts[p]);
            order.insert(order.end(), members.begin(), members.end());
        }
    }
    return order;
}

std::vector<std::uint64_t> Hosts::hosts_of(const std::vector<Uuid>& ring) const {
    std::vector<std::uint64_t> hosts;
    hosts.reserve(ring.size());
    for (const Uuid& uuid : ring) hosts.push_back(state_.members.at(uuid).host);
    return hosts;
}

std::set<Hosts::Edge> Hosts::maintain() {
    std::set<Edge> wanted;
    std::vector<GroupId> groups;
    for (const auto& [id, group] : state_.groups) groups.push_back(id);
    for (const GroupId id : groups) {
        if (!chosen_.contains(id) && regroup(id, wanted)) agenda_.topology = agenda_.everything = true;
        RunningOp whole;  // an operation of all members
        for (const Uuid& uuid : state_.groups.at(id).ring) whole.members.push_back({uuid, 0, 0});
        whole.host_ends = ends_of(state_.groups.at(id).ring);
        if (whole.host_ends.empty()) continue;
        whole.way = RunningOp::Way::hierarchical;
        for (const Edge& edge : whole.edges_beside_the_ring()) wanted.insert(edge);
    }
    return wanted;
}

bool Hosts::regroup(GroupId id, std::set<Edge>& wanted) {
    const std::vector<Uuid> ring = state_.groups.at(id).ring;
    const std::vector<std::uint32_t> order = grouped_by_host(hosts_of(ring));
    if (order.empty()) {
        wanted_since_.erase(id);
        return false;
    }
    const Instant since = wanted_since_.try_emplace(id, turn_.now).first->second;
    if (turn_.now - since > 2 * turn_.timeouts.peer) {
        PROBE(hosts_left_apart);
        chosen_.insert(id);
        return false;
    }
    bool works = true;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Uuid& from = ring[order[i]];
        const Uuid& to = ring[order[(i + 1) % order.size()]];
        if (rings_.marked(from, to)) return false;
        works = works && rings_.edges().up(from, to);
        wanted.emplace(from, to);
    }
    if (!works) return false;
    PROBE(ring_grouped_by_host);
    proto::Decision decision;
    decision.mutable_ring()->set_group(id);
    for (const std::uint32_t at : order) decision.mutable_ring()->add_order(to_bytes(ring[at]));
    decisions_.append(decision);
    turn_.log(LogLevel::info, formatted("the ring of group {} has the members of each host side by side now", id));
    return true;
}

void Hosts::decided(const proto::Decision& decision) {
    if (decision.has_ring()) chosen_.insert(decision.ring().group());
    if (decision.has_topology() && decision.topology().admitted_size() > 0) {
        for (const proto::RingRecord& ring : decision.topology().rings()) {
            chosen_.erase(ring.group());
            wanted_since_.erase(ring.group());
        }
    }
    const auto is_gone = [&](GroupId group) { return !state_.groups.contains(group); };
    std::erase_if(chosen_, is_gone);
    std::erase_if(wanted_since_, [&](const auto& entry) { return is_gone(entry.first); });
}

std::size_t Hosts::of_no_group() const {
    return static_cast<std::size_t>(
        std::count_if(chosen_.begin(), chosen_.end(), [&](GroupId group) { return !state_.groups.contains(group); }));
}

}  // namespace pccl::core
