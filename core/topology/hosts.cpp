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
    std::size_t runs = 0, alone = 0;  // members whose host is not known are alone
    for (std::uint32_t p = 0; p < world; ++p) {
        if (hosts[p] == 0 || hosts[p] != hosts[(p + 1) % world]) ++runs;
        if (hosts[p] == 0)
            ++alone;
        else
            of_host[hosts[p]].push_back(p);
    }
    if (runs <= of_host.size() + alone) return {};
    std::vector<std::uint32_t> order;
    for (std::uint32_t p = 0; p < world; ++p) {
        if (hosts[p] == 0) {
            order.push_back(p);
            continue;
        }
        const std::vector<std::uint32_t> members = std::exchange(of_host[hosts[p]], {});
        order.insert(order.end(), members.begin(), members.end());
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
        const std::vector<Uuid>& ring = state_.groups.at(id).ring;
        for (const Edge& edge : edges_within(ring, ends_of(ring))) wanted.insert(edge);
    }
    return wanted;
}

std::vector<Hosts::Edge> Hosts::edges_within(const std::vector<Uuid>& ring,
                                             const std::vector<std::uint32_t>& host_ends) {
    if (host_ends.empty()) return {};
    RunningOp whole;  // an operation of all members
    for (const Uuid& uuid : ring) whole.members.push_back({uuid, 0, 0});
    whole.way = RunningOp::Way::hierarchical;
    whole.host_ends = host_ends;
    return whole.edges_beside_the_ring();
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

void Hosts::take_up() {
    for (const auto& [id, group] : state_.groups) chosen_.insert(id);
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
