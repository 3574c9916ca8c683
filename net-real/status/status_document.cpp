#include "net-real/status/status_document.hpp"

#include "core/base/format.hpp"
#include "core/wire/frame.hpp"
#include "include/pccl.h"
#include "net-real/remedies.hpp"

#include <boost/json/src.hpp>  // the library's definitions; only this file uses it

#include <algorithm>
#include <string_view>

namespace pccl::real {

namespace json = boost::json;
using core::Duration;
using core::Instant;
using core::MasterStatus;

namespace {

std::string version() {
    return core::formatted("{}.{}.{}", PCCL_VERSION_MAJOR, PCCL_VERSION_MINOR, PCCL_VERSION_PATCH);
}

std::int64_t ms_since(Instant then, Instant now) { return std::max<Duration>(now - then, 0) / core::millisecond; }

const char* to_text(MasterStatus::PeerState state) {
    switch (state) {
    case MasterStatus::PeerState::joining: return "joining";
    case MasterStatus::PeerState::unreachable: return "unreachable";
    case MasterStatus::PeerState::member: return "member";
    case MasterStatus::PeerState::resuming: return "resuming";
    case MasterStatus::PeerState::absent: return "absent";
    }
    return "unknown";
}

template <class T>
json::value or_null(const std::optional<T>& value) {
    return value ? json::value(*value) : json::value(nullptr);
}

json::value to_json(const MasterStatus::Peer& peer, Instant now) {
    json::value waits = nullptr;
    if (peer.call) {
        waits = {{"vote", peer.call->kind},
                 {"tag", or_null(peer.call->tag)},
                 {"for_ms", ms_since(peer.call->since, now)},
                 {"others", peer.call->others}};
    }
    return {{"peer", core::short_name(peer.uuid)},
            {"address", core::to_text(peer.endpoint)},
            {"group", peer.group},
            {"state", to_text(peer.state)},
            {"since_ms", ms_since(peer.since, now)},
            {"heard_ms", ms_since(peer.heard, now)},
            {"synced", peer.synced},
            {"gang", peer.gang.empty() ? json::value(nullptr) : json::value(peer.gang)},
            {"place", peer.gang.empty() ? json::value(nullptr) : json::value(peer.place)},
            {"host", peer.host == 0 ? json::value(nullptr) : json::value(core::formatted("{:x}", peer.host))},
            {"waits", std::move(waits)}};
}

json::value to_json(const MasterStatus::Group& group, Instant now) {
    json::array ring, edges, operations;
    for (std::size_t i = 0; i < group.ring.size(); ++i) {
        ring.emplace_back(core::short_name(group.ring[i]));
        if (i >= group.edges.size()) continue;
        const MasterStatus::Edge& edge = group.edges[i];
        const bool measured = edge.bytes_per_second != 0;
        edges.push_back({{"from", core::short_name(group.ring[i])},
                         {"to", core::short_name(group.ring[(i + 1) % group.ring.size()])},
                         {"up", edge.up},
                         {"bytes_per_second", measured ? json::value(edge.bytes_per_second) : json::value(nullptr)},
                         {"measured_ms", measured ? json::value(ms_since(edge.measured, now)) : json::value(nullptr)}});
    }
    for (const MasterStatus::Operation& op : group.operations) {
        operations.push_back(
            {{"id", op.id},
             {"tag", op.tag},
             {"world", op.world},
             {"running_ms", op.started ? json::value(ms_since(*op.started, now)) : json::value(nullptr)},
             {"bytes", op.bytes != 0 ? json::value(op.bytes) : json::value(nullptr)}});
    }
    json::value sync = nullptr;
    if (group.sync) {
        sync = {{"revision", group.sync->revision}, {"members", group.sync->members}, {"holders", group.sync->holders}};
    }
    const MasterStatus::Tally& tally = group.tally;
    return {{"id", group.id},
            {"ring", std::move(ring)},
            {"edges", std::move(edges)},
            {"expected_revision", group.expected_revision},
            {"running", group.running},
            {"operations", std::move(operations)},
            {"sync", std::move(sync)},
            {"tally",
             {{"started", tally.started},
              {"committed", tally.committed},
              {"aborted", tally.aborted},
              {"refused", tally.refused},
              {"committed_bytes", tally.committed_bytes},
              {"syncs", tally.syncs}}}};
}

json::value to_json(const MasterStatus::Vote& vote, Instant now) {
    json::array waits_for;
    for (const core::Uuid& uuid : vote.waits_for) waits_for.emplace_back(core::short_name(uuid));
    return {{"vote", vote.kind},
            {"group", or_null(vote.group)},
            {"tag", or_null(vote.tag)},
            {"open_ms", ms_since(vote.opened, now)},
            {"changed_ms", ms_since(vote.changed, now)},
            {"voted", vote.voted},
            {"missing", vote.missing},
            {"waits_for", std::move(waits_for)}};
}

json::array to_json(const std::vector<std::uint32_t>& places) { return json::array(places.begin(), places.end()); }

json::value to_json(const MasterStatus::Gang& gang) {
    return {{"name", gang.name},
            {"size", gang.size},
            {"admitted", gang.admitted},
            {"awaits_former", gang.awaits_former},
            {"taken", gang.taken},
            {"missing", to_json(gang.missing)},
            {"unreachable", to_json(gang.unreachable)}};
}

std::string places_text(const std::vector<std::uint32_t>& places) {
    std::string text = places.size() == 1 ? "place" : "places";
    for (const std::uint32_t place : places) text += core::formatted(" {}", place);
    return text;
}

// What a gang waits for.
std::string text_of(const MasterStatus::Gang& gang) {
    const std::string head = core::formatted("gang {}: {} of {} places taken, ", gang.name, gang.taken, gang.size);
    if (!gang.missing.empty())
        return core::formatted("{}waits for {}{}\n", head, places_text(gang.missing),
                               gang.missing.size() < gang.size - gang.taken ? " and more" : "");
    if (gang.awaits_former) return head + "waits until the former members of this name are gone\n";
    if (!gang.unreachable.empty())
        return core::formatted("{}the members cannot connect to {}\n", head, places_text(gang.unreachable));
    return head + "waits for the next update of the topology\n";
}

const char* state_of(const MasterStatus& status) {
    return status.stopped ? "stopped" : status.grace_until ? "resuming" : "serving";
}

std::size_t members_of(const MasterStatus& status) {
    std::size_t members = 0;
    for (const MasterStatus::Group& group : status.groups) members += group.ring.size();
    return members;
}

std::string rate_text(std::uint64_t bytes_per_second) {
    return bytes_per_second == 0 ? "" : core::formatted(" ({} MB/s)", bytes_per_second / 1'000'000);
}

}  // namespace

std::string status_json(const MasterStatus& status, Instant now, const char* security) {
    json::array groups, gangs, peers, votes, removals;
    for (const auto& gang : status.gangs) gangs.push_back(to_json(gang));
    for (const auto& group : status.groups) groups.push_back(to_json(group, now));
    for (const auto& peer : status.peers) peers.push_back(to_json(peer, now));
    for (const auto& vote : status.votes) votes.push_back(to_json(vote, now));
    for (const auto& removal : status.removals) {
        removals.push_back({{"peer", core::short_name(removal.uuid)},
                            {"reason", told(removal.cause)},
                            {"ago_ms", ms_since(removal.at, now)}});
    }
    const json::value document = {
        {"version", version()},
        {"protocol_version", core::wire::protocol_version},
        {"run", core::short_name(status.run)},
        {"incarnation", status.incarnation},
        {"state", state_of(status)},
        {"security", security},
        {"uptime_ms", ms_since(status.started, now)},
        {"journal_waits_ms",
         status.journal_waits ? json::value(ms_since(*status.journal_waits, now)) : json::value(nullptr)},
        {"epoch", status.epoch},
        {"decisions", status.decisions},
        {"members", members_of(status)},
        {"admitted", status.admitted},
        {"removed", status.removed},
        {"strangers", status.strangers},
        {"frames_refused", status.frames_refused},
        {"optimizing", status.optimizes},
        {"tests_running", status.tests_running},
        {"groups", std::move(groups)},
        {"gangs", std::move(gangs)},
        {"peers", std::move(peers)},
        {"votes_open", status.votes_open},
        {"votes", std::move(votes)},
        {"removals", std::move(removals)},
    };
    return json::serialize(document) + "\n";
}

std::string status_text(const MasterStatus& status, Instant now, const char* security) {
    const auto seconds = [&](Instant then) { return core::formatted("{} s", ms_since(then, now) / 1000); };
    const std::size_t members = members_of(status);
    std::string text =
        core::formatted("pccl-master {}, run {}, incarnation {}, security {}, {} for {}\n{} member{}, {} "
                        "wait to be admitted, epoch {}\n",
                        version(), core::short_name(status.run), status.incarnation, security, state_of(status),
                        seconds(status.started), members, members == 1 ? "" : "s",
                        status.peers.size() - std::min(members, status.peers.size()), status.epoch);
    if (status.journal_waits && now - *status.journal_waits >= core::second)
        text += core::formatted("the disk of the journal has not answered for {}: every call waits for it\n",
                                seconds(*status.journal_waits));
    for (const MasterStatus::Group& group : status.groups) {
        text += core::formatted("group {}: revision {}, {} running, {} committed, {} aborted\n  ring", group.id,
                                group.expected_revision, group.running, group.tally.committed, group.tally.aborted);
        for (std::size_t i = 0; i < group.ring.size(); ++i) {
            text += core::formatted(" {}{}", core::short_name(group.ring[i]),
                                    group.edges[i].up ? " >" + rate_text(group.edges[i].bytes_per_second) : " x");
        }
        text += "\n";
    }
    if (const auto gangs = std::count_if(status.gangs.begin(), status.gangs.end(),
                                         [](const MasterStatus::Gang& gang) { return gang.admitted; });
        gangs != 0)
        text += core::formatted("{} gangs are members\n", gangs);
    for (const MasterStatus::Gang& gang : status.gangs) {
        if (!gang.admitted) text += text_of(gang);
    }
    for (const MasterStatus::Vote& vote : status.votes) {
        text += core::formatted("vote '{}', open for {}, waits for", vote.kind, seconds(vote.opened));
        for (const core::Uuid& uuid : vote.waits_for) text += " " + core::short_name(uuid);
        if (vote.missing > vote.waits_for.size())
            text += core::formatted(" and {} more", vote.missing - vote.waits_for.size());
        text += vote.missing == 0 ? " a place\n" : "\n";
    }
    for (const MasterStatus::Removal& removal : status.removals) {
        text += core::formatted("peer {} went {} ago: {}\n", core::short_name(removal.uuid), seconds(removal.at),
                                told(removal.cause));
    }
    return text + "all of it, as JSON: /status\n";
}

}  // namespace pccl::real
