// The master as spectators, tests and the simulator see it: its status, hashes of its state, leftovers, and a text for
// people. Nothing here changes what the master decides.
#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/master_core.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <tuple>

namespace pccl::core {

namespace {

bool is_run_wide(proto::VoteKind kind) {
    return kind == proto::VOTE_UPDATE_TOPOLOGY || kind == proto::VOTE_PEERS_PENDING ||
           kind == proto::VOTE_OPTIMIZE_TOPOLOGY;
}

}  // namespace

// ---- for spectators ------------------------------------------------------------------------------------------------

std::optional<Tag> MasterCore::tag_of(const BallotKey& key) const {
    if (key.kind == proto::VOTE_START) return key.id;
    const auto op = key.kind == proto::VOTE_END ? state_.ops.find(key.id) : state_.ops.end();
    return op == state_.ops.end() ? std::nullopt : std::optional<Tag>(op->second.tag);
}

MasterStatus MasterCore::status() const {
    MasterStatus status;
    status.run = state_.run_id;
    status.incarnation = state_.incarnation;
    status.epoch = state_.epoch;
    status.decisions = state_.last_index;
    status.started = began_;
    if (registry_.in_grace()) status.grace_until = registry_.grace_until();
    if (decisions_.unwritten_since() != never) status.journal_waits = decisions_.unwritten_since();
    status.stopped = stopped_;
    status.optimizes = optimizer_.surveys();
    status.tests_running = static_cast<std::uint32_t>(optimizer_.tests());
    status.admitted = tallies_.admitted();
    status.removed = tallies_.removed();
    status.frames_refused = links_.refused_frames();
    status.strangers = static_cast<std::uint32_t>(links_.strangers());
    status.removals.assign(tallies_.removals().begin(), tallies_.removals().end());
    add_peers(status);
    add_gangs(status);
    for (const auto& [id, group] : state_.groups) status.groups.push_back(status_of(id, group));
    add_votes(status);
    return status;
}

void MasterCore::add_peers(MasterStatus& status) const {
    std::map<Uuid, MasterStatus::Call> waiting;  // built in one pass over all votes, as a removal does
    for (const auto& [key, ballot] : ballots_.all()) {
        for (const auto& [uuid, cast] : ballot.votes()) {
            const auto [call, first] = waiting.try_emplace(uuid);
            if (first)
                call->second = {to_text(key.kind), tag_of(key), cast.at, 0};
            else
                ++call->second.others;
        }
    }
    const auto heard = [&](LinkId id, Instant otherwise) {
        const Link* link = links_.find(id);
        return link == nullptr ? otherwise : link->last_received;
    };
    for (const auto& [uuid, member] : state_.members) {
        MasterStatus::Peer peer;
        peer.uuid = uuid;
        peer.endpoint = member.endpoint;
        peer.group = member.group;
        peer.synced = member.synced;
        peer.gang = member.gang.name;
        peer.place = member.gang.place;
        peer.host = member.host;
        peer.state = MasterStatus::PeerState::absent;
        if (const auto session = registry_.sessions().find(uuid); session != registry_.sessions().end()) {
            peer.since = session->second.since;
            peer.heard = heard(session->second.link, session->second.absent_since);
            if (session->second.link != 0) {
                peer.state =
                    session->second.resumed ? MasterStatus::PeerState::member : MasterStatus::PeerState::resuming;
            }
        }
        if (const auto call = waiting.find(uuid); call != waiting.end()) peer.call = call->second;
        status.peers.push_back(std::move(peer));
    }
    for (const auto& [uuid, joiner] : joiners_.all()) {
        MasterStatus::Peer peer;
        peer.uuid = uuid;
        peer.endpoint = joiner.endpoint;
        peer.group = joiner.group;
        peer.state = joiner.told_unreachable ? MasterStatus::PeerState::unreachable : MasterStatus::PeerState::joining;
        peer.gang = joiner.gang.name;
        peer.place = joiner.gang.place;
        peer.host = joiner.host;
        peer.since = joiner.since;
        peer.heard = heard(joiner.link, joiner.since);
        status.peers.push_back(std::move(peer));
    }
}

void MasterCore::add_gangs(MasterStatus& status) const {
    for (const auto& [name, places] : state_.gangs) {
        const auto size = static_cast<std::uint32_t>(places.size());
        status.gangs.push_back({name, size, true, false, size, {}, {}});
    }
    for (const auto& [name, places] : joiners_.gangs().all()) {
        MasterStatus::Gang gang;
        gang.name = name;
        gang.size = places.size;
        gang.awaits_former = state_.gangs.contains(name);
        gang.taken = static_cast<std::uint32_t>(places.holders.size());
        const std::size_t listed = turn_.limits.members_named;
        for (std::uint32_t place = 0; place < places.size; ++place) {
            const auto holder = places.holders.find(place);
            if (holder == places.holders.end()) {
                if (gang.missing.size() < listed) gang.missing.push_back(place);
            } else if (joiners_.find(holder->second)->unreached && gang.unreachable.size() < listed) {
                gang.unreachable.push_back(place);
            }
        }
        status.gangs.push_back(std::move(gang));
    }
}

MasterStatus::Group MasterCore::status_of(GroupId id, const GroupState& group) const {
    MasterStatus::Group to;
    to.id = id;
    to.ring = group.ring;
    to.expected_revision = group.expected;
    to.running = group.running_ops;
    for (std::size_t i = 0; i < group.ring.size(); ++i) {
        const Uuid& next = group.ring[(i + 1) % group.ring.size()];
        MasterStatus::Edge edge;
        edge.up = rings_.edges().up(group.ring[i], next);
        if (const auto* known = optimizer_.bandwidths().find(group.ring[i], next)) {
            edge.bytes_per_second = known->bytes_per_second;
            edge.measured = known->measured;
        }
        to.edges.push_back(edge);
    }
    for (const auto& [op_id, op] : state_.ops) {
        if (to.operations.size() == turn_.limits.operations_listed) break;
        if (op.group != id) continue;
        MasterStatus::Operation operation{op_id, op.tag, static_cast<std::uint32_t>(op.members.size()), {}, 0};
        if (const Tallies::Begun* begun = tallies_.of_operation(op_id)) {
            operation.started = begun->at;
            operation.bytes = begun->bytes;
        }
        to.operations.push_back(operation);
    }
    if (group.sync) {
        to.sync = MasterStatus::Sync{group.sync->revision, static_cast<std::uint32_t>(group.sync->members.size()),
                                     static_cast<std::uint32_t>(group.sync->holders.size())};
    }
    to.tally = tallies_.of_group(id);
    return to;
}

void MasterCore::add_votes(MasterStatus& status) const {
    using Entry = std::map<BallotKey, Ballot>::value_type;
    std::vector<const Entry*> open;
    for (const Entry& entry : ballots_.all()) open.push_back(&entry);
    status.votes_open = open.size();
    const std::size_t listed = std::min<std::size_t>(open.size(), turn_.limits.votes_listed);
    std::partial_sort(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(listed), open.end(),
                      [](const Entry* a, const Entry* b) {
                          return std::tie(a->second.opened, a->first) < std::tie(b->second.opened, b->first);
                      });
    open.resize(listed);
    for (const Entry* entry : open) {
        const auto& [key, ballot] = *entry;
        MasterStatus::Vote vote;
        vote.kind = to_text(key.kind);
        if (!is_run_wide(key.kind)) vote.group = key.group;
        vote.tag = tag_of(key);
        vote.opened = ballot.opened;
        vote.changed = ballot.changed;
        vote.voted = static_cast<std::uint32_t>(ballot.votes().size());
        vote.waits_for = ballot.missing(electors_of(state_, key));
        vote.missing = static_cast<std::uint32_t>(vote.waits_for.size());
        if (vote.waits_for.size() > turn_.limits.members_named) vote.waits_for.resize(turn_.limits.members_named);
        status.votes.push_back(std::move(vote));
    }
}

// ---- for tests -----------------------------------------------------------------------------------------------------

std::uint64_t MasterCore::abstract_state() const {
    bool kinds[7] = {};
    for (const auto& [key, ballot] : ballots_.all()) kinds[std::min(static_cast<unsigned>(key.kind), 6u)] = true;
    std::size_t absent = 0, resuming = 0, fewest_holders = 3;
    for (const auto& [uuid, session] : registry_.sessions()) {
        absent += session.link == 0 ? 1 : 0;
        resuming += session.link != 0 && !session.resumed ? 1 : 0;
    }
    bool sync = false, unusable = false;
    for (const auto& [id, group] : state_.groups) {
        sync |= group.sync.has_value();
        unusable |= !rings_.edges().ring_up(group.ring);
        if (group.sync) fewest_holders = std::min(fewest_holders, group.sync->holders.size());
    }
    Packed state;
    // phase
    state.flags(registry_.in_grace(), sync, !state_.ops.empty(), optimizer_.surveys(), !joiners_.empty(), absent != 0,
                unusable, !decisions_.all_durable());
    state.count(state_.members.size(), 3);
    state.count(joiners_.size(), 2);
    state.count(absent, 2);
    state.count(resuming, 2);
    state.count(links_.strangers(), 2);
    state.count(state_.ops.size(), 2);
    state.count(state_.groups.size(), 2);
    state.count(state_.kept().size(), 1);
    state.count(fewest_holders, 2);
    state.flags(kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], kinds[5], kinds[6]);
    state.flags(operations_.starts_wait(), !rounds_.keys().empty(), optimizer_.searches(), links_.holds(),
                decisions_.complained(), stopped_);
    return state.word();
}

std::uint64_t MasterCore::state_hash() const {
    std::uint64_t hash = 0x9E3779B97F4A7C15ull;
    const auto mix = [&hash](std::uint64_t value) {
        hash = (hash ^ value) * 0xBF58476D1CE4E5B9ull;
        hash ^= hash >> 29;
    };
    mix(state_.last_index);
    mix(state_.chain);
    mix(state_.epoch);
    mix(state_.incarnation);
    mix(state_.members.size());
    mix(state_.ops.size());
    mix(state_.kept().size());
    mix(decisions_.durable_sequence());
    mix(decisions_.last_sequence());
    mix(links_.size());
    mix(joiners_.size());
    mix(optimizer_.bandwidths().size());
    if (optimizer_.surveys()) mix(optimizer_.tests() + 1);
    for (const auto& [name, places] : joiners_.gangs().all()) mix(places.holders.size());
    for (const auto& [id, group] : state_.groups) {
        mix(id);
        mix(group.expected);
        mix(group.ring.size());
    }
    for (const auto& [key, ballot] : ballots_.all()) {
        mix(static_cast<std::uint64_t>(key.kind));
        mix(key.id);
        mix(ballot.votes().size());
    }
    return hash;
}

std::string MasterCore::leftovers() const {
    const auto known = [&](const Uuid& uuid) { return state_.members.contains(uuid) || joiners_.contains(uuid); };
    const auto gone = [&](const auto& entry) { return !state_.members.contains(entry.first); };
    std::size_t votes = 0, without_electors = 0;
    for (const auto& [key, ballot] : ballots_.all()) {
        without_electors += electors_of(state_, key).empty() ? 1 : 0;
        votes += static_cast<std::size_t>(std::count_if(ballot.votes().begin(), ballot.votes().end(), gone));
        votes += ballot.empty() ? 1 : 0;
    }
    const auto without_group = [&](const auto& table) {
        return static_cast<std::size_t>(std::count_if(
            table.begin(), table.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
    };
    const auto strange_wanted = std::count_if(rings_.wanted().begin(), rings_.wanted().end(),
                                              [&](const auto& entry) { return !known(entry.first); });
    return name_leftovers({{"sessions of nobody", static_cast<std::size_t>(std::count_if(
                                                      registry_.sessions().begin(), registry_.sessions().end(), gone))},
                           {"clocks of nobody", patience_.strange(known) + unfinished_.strange(known)},
                           {"edges of nobody", rings_.edges().strange(known)},
                           {"direct edges of nobody", direct_.strange(known)},
                           {"bandwidths of nobody", optimizer_.bandwidths().strange(known)},
                           {"votes of nobody", votes},
                           {"ballots of nobody", without_electors},
                           {"wanted edges of nobody", static_cast<std::size_t>(strange_wanted)},
                           {"edges to holders of no synchronization", holder_edges_.over()},
                           {"key lists of no group", without_group(rounds_.keys().all())},
                           {"recalls of no round", rounds_.recalls_of_no_group()},
                           {"starts of no group", operations_.starts_of_no_group()},
                           {"searches of no group", optimizer_.searches_of_no_group()},
                           {"surveys of no call", optimizer_.outlives_its_ballot() ? 1u : 0u},
                           {"shares of no group", optimizer_.shares_of_no_group()},
                           {"chosen rings of no group", hosts_.of_no_group()}});
}

std::string MasterCore::explain() const {
    std::string text = formatted("master: {} members, {} joiners, epoch {}{}", state_.members.size(), joiners_.size(),
                                 state_.epoch, registry_.in_grace() ? ", in grace" : "");
    for (const auto& [id, group] : state_.groups) {
        text += formatted("; group {} ring", id);
        for (std::size_t i = 0; i < group.ring.size(); ++i) {
            const Uuid& a = group.ring[i];
            const bool up = rings_.edges().up(a, group.ring[(i + 1) % group.ring.size()]);
            text += formatted(" {}{}", short_name(a), up ? ">" : "x");
        }
        text += formatted(" revision {} running {}", group.expected, group.running_ops);
        if (group.sync) text += " in sync";
    }
    if (optimizer_.surveys()) text += formatted("; optimizes, {} bandwidth tests run", optimizer_.tests());
    for (const auto& [name, places] : joiners_.gangs().all())
        text += formatted("; gang {} waits, {} of {} are there", name, places.holders.size(), places.size);
    for (const auto& [uuid, session] : registry_.sessions()) {
        if (session.link == 0)
            text += formatted("; {} absent", short_name(uuid));
        else if (!session.resumed)
            text += formatted("; {} resuming", short_name(uuid));
    }
    for (const auto& [key, ballot] : ballots_.all()) {
        text += formatted("; {} {} waits for", to_text(key.kind), key.id);
        const auto missing = ballot.missing(electors_of(state_, key));
        for (const Uuid& uuid : missing) text += " " + short_name(uuid);
        if (missing.empty()) text += " nobody";
    }
    return text;
}

void MasterCore::check() const {
    if (stopped_) return;
    ballots_.check();
    decisions_.check();
    links_.check();
    rings_.edges().check();
    holder_edges_.check();
    registry_.check();
    joiners_.check();
    tallies_.check();
    patience_.check();
    operations_.check();
    for (const auto& [key, ballot] : ballots_.all()) {
        for (const auto& [uuid, cast] : ballot.votes()) ASSERT(state_.members.contains(uuid));
    }
}

}  // namespace pccl::core
