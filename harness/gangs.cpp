#include "harness/gangs.hpp"

#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "harness/facts.hpp"
#include "harness/oracles.hpp"

#include <algorithm>
#include <set>

namespace pccl::harness {

using namespace core;

std::string GangRecords::wrong(const proto::Record& record) {
    // A master that starts may lack the last records.
    if (record.has_run() || record.has_incarnation()) members_.clear();
    const proto::Decision& decision = record.decision();
    if (decision.has_topology()) return admitted(decision.topology());
    return decision.has_removal() ? removed(decision.removal()) : std::string();
}

std::string GangRecords::admitted(const proto::TopologyDecision& topology) {
    std::map<std::string, std::pair<std::uint32_t, std::set<std::uint32_t>>> gangs;
    for (const proto::MemberRecord& member : topology.admitted()) {
        if (!member.has_gang()) continue;
        const Gang gang = gang_of(member.gang());
        const bool former = std::any_of(members_.begin(), members_.end(), [&](const auto& other) {
            return other.second.name == gang.name && !gangs.contains(gang.name);
        });
        if (former) return formatted("a decision admits gang {}, and members have its name", gang.name);
        members_[uuid_of(member.uuid())] = gang;
        auto& [size, places] = gangs[gang.name];
        size = gang.size;
        places.insert(gang.place);
    }
    for (const auto& [name, gang] : gangs) {
        const auto& [size, places] = gang;
        if (places.size() != size || *places.rbegin() + 1 != size)
            return formatted("a decision admits {} places of gang {}, which has {}", places.size(), name, size);
    }
    return {};
}

std::string GangRecords::removed(const proto::RemovalDecision& removal) {
    std::set<std::uint32_t> places;
    Gang gang;
    const auto take = [&](const std::string& uuid) {
        const auto member = members_.find(uuid_of(uuid));
        if (member == members_.end()) return;
        gang = member->second;
        places.insert(gang.place);
        members_.erase(member);
    };
    take(removal.uuid());
    for (const std::string& mate : removal.mates()) take(mate);
    if (gang.none() || places.size() == gang.size) return {};
    return formatted("a decision removes {} places of gang {}, which has {}", places.size(), gang.name, gang.size);
}

std::vector<std::vector<std::uint32_t>> lives_at_places(const Ledger& ledger, const Excuses& excuses,
                                                        std::uint32_t life, Instant from, Instant until) {
    const Gang& gang = ledger.lives[life].gang;
    std::vector<std::vector<std::uint32_t>> places(std::min(gang.size, 64u));
    for (std::uint32_t other = 0; other < ledger.lives.size(); ++other) {
        const Life& l = ledger.lives[other];
        if (l.gang.name != gang.name || l.gang.size != gang.size || l.gang.place >= places.size()) continue;
        if (l.gang.place == gang.place && other != life) continue;
        if (l.asked_at <= until && excuses.counted_until(l.gone_at) >= from) places[l.gang.place].push_back(other);
    }
    return places;
}

namespace {

bool all_taken(const std::vector<std::vector<std::uint32_t>>& places) {
    return std::none_of(places.begin(), places.end(), [](const auto& lives) { return lives.empty(); });
}

// Whether somebody may have been pending at some time between the two instants.
bool somebody_waited(const Ledger& ledger, const Excuses& excuses, Instant from, Instant until) {
    for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
        const Life& l = ledger.lives[life];
        if (l.asked_at > until || excuses.counted_until(l.gone_at) < from) continue;
        if (l.connected_at != never && l.connected_at < from) continue;
        if (l.gang.none() || all_taken(lives_at_places(ledger, excuses, life, from, until))) return true;
    }
    return false;
}

template <class Fact>
bool good(const Fact& fact) {
    return fact.end != open_end && fact.completion.result == Result::success;
}

}  // namespace

sim::Violation check_gangs(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    if (!has_gangs(scenario)) return {};
    const auto in_part = [&](std::uint32_t life, Instant begin, Instant end) {
        if (ledger.lives[life].gang.none() || all_taken(lives_at_places(ledger, excuses, life, begin, end)))
            return false;
        // A stranger that repeats what a member had said has its place.
        return replaying_strangers(ledger, excuses, begin, end) == 0 || !excuses.use(Excuse::copied_token);
    };
    const auto check = [&](const auto& facts, const char* what) -> std::string {
        for (const auto& fact : facts) {
            if (good(fact) && in_part(fact.life, fact.begin, fact.end))
                return formatted("{} of {} [{} us .. {} us] succeeded, and a place of its gang was empty", what,
                                 ledger.name(fact.life), fact.begin / microsecond, fact.end / microsecond);
        }
        return {};
    };
    for (const std::string& wrong : {check(ledger.votes, "a call"), check(ledger.launches, "a collective"),
                                     check(ledger.syncs, "a synchronization")}) {
        if (!wrong.empty()) return {"gang", wrong};
    }
    if (!ledger.stranger_hellos.empty()) return {};
    for (const VoteFact& vote : ledger.votes) {
        if (vote.kind == CallKind::are_peers_pending && good(vote) && vote.completion.pending &&
            !somebody_waited(ledger, excuses, vote.begin, vote.end))
            return {"gang",
                    formatted("{} was told [{} us .. {} us] that peers are pending, and only a part of a gang was",
                              ledger.name(vote.life), vote.begin / microsecond, vote.end / microsecond)};
    }
    return {};
}

}  // namespace pccl::harness
