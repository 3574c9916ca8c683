#include "core/state_sync/election.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace pccl::core {

namespace {

// The winning value among candidates: highest rank, then most common, then the value of the longest accepted member.
Hash128 popular(const std::vector<const Candidate*>& candidates, const std::map<Uuid, Hash128>& value_of) {
    const bool any_synced =
        std::any_of(candidates.begin(), candidates.end(), [](const Candidate* c) { return c->synced; });
    struct Support {
        std::uint32_t votes = 0;
        std::uint64_t eldest = ~0ull;
    };
    std::map<Hash128, Support> support;
    for (const Candidate* candidate : candidates) {
        if (any_synced && !candidate->synced) PROBE(sync_newcomers_outranked);
        if (any_synced && !candidate->synced) continue;
        Support& entry = support[value_of.at(candidate->uuid)];
        ++entry.votes;
        entry.eldest = std::min(entry.eldest, candidate->seniority);
    }
    ASSERT(!support.empty());
    const auto best = std::max_element(support.begin(), support.end(), [](const auto& a, const auto& b) {
        if (a.second.votes != b.second.votes) return a.second.votes < b.second.votes;
        return a.second.eldest > b.second.eldest;
    });
    return best->first;
}

// One election. A removed candidate has an entry in `causes_`; the others are in `staying_`.
class Count {
public:
    Count(std::vector<Candidate> sorted, std::uint64_t expected) : sorted_(std::move(sorted)), revision_(expected) {
        if (expected == 0) {
            for (const Candidate& candidate : sorted_) revision_ = std::max(revision_, candidate.revision);
            if (revision_ != 0) PROBE(sync_starts_above_zero);
        }
        for (const Candidate& candidate : sorted_) staying_.push_back(&candidate);
        for (const Candidate& candidate : sorted_) {
            schema_[candidate.uuid] = candidate.schema;
            content_[candidate.uuid] = candidate.content;
        }
    }

    Election run() {
        if (std::all_of(sorted_.begin(), sorted_.end(), [](const Candidate& c) { return receives_only(c); })) {
            PROBE(sync_all_receive);
            return refuse([](std::uint64_t own) { return make_cause<CauseKind::all_receive>(own); });
        }
        if (!remove([&](const Candidate& c) { return c.revision > revision_; },
                    [&](const Candidate& c) {
                        PROBE(sync_revision_ahead);
                        return make_cause<CauseKind::revision_ahead>(c.revision, revision_);
                    }))
            return refuse(
                [&](std::uint64_t own) { return make_cause<CauseKind::nobody_has_revision>(revision_, own); });
        const bool enforced =
            std::any_of(staying_.begin(), staying_.end(), [](const Candidate* c) { return enforces(*c); });
        if (enforced && !remove([](const Candidate& c) { return !enforces(c); },
                                [](const Candidate& c) {
                                    PROBE(sync_strategies_mixed);
                                    return make_cause<CauseKind::strategies_mixed>(receives_only(c) ? "RECEIVE_ONLY"
                                                                                                    : "SEND_ONLY");
                                }))
            return refuse(
                [&](std::uint64_t own) { return make_cause<CauseKind::nobody_enforces_revision>(revision_, own); });
        if (!remove([&](const Candidate& c) { return sends_only(c) && c.revision < revision_; },
                    [&](const Candidate& c) {
                        PROBE(sync_outdated_sender);
                        return make_cause<CauseKind::sender_behind>(c.revision, revision_);
                    }))
            return refuse_for_want_of_offers();
        std::vector<const Candidate*> offering = offers();
        if (offering.empty()) return refuse_for_want_of_offers();
        const Hash128 schema = popular(offering, schema_);
        model_ = (*std::ranges::find_if(offering, [&](const Candidate* c) { return c->schema == schema; }))->uuid;
        if (!remove([&](const Candidate& c) { return schema_.at(c.uuid) != schema; },
                    [&](const Candidate& c) {
                        PROBE(sync_schema_differs);
                        differ_.insert(c.uuid);
                        return make_cause<CauseKind::schema_differs>(c.difference);
                    }))
            return refuse([&](std::uint64_t) { return make_cause<CauseKind::gang_schemas_differ>(); });
        // A sender with other content takes its gang along, and with it perhaps the winner. Then the rest is counted.
        for (const Candidate* winner = nullptr;;) {
            offering = offers();
            if (offering.empty()) return refuse_for_want_of_offers();
            if (winner != nullptr && std::find(offering.begin(), offering.end(), winner) != offering.end())
                return deal_out(*winner);
            const Hash128 content = popular(offering, content_);
            winner = *std::find_if(offering.begin(), offering.end(),
                                   [&](const Candidate* c) { return c->content == content; });
            if (!remove([&](const Candidate& c) { return sends_only(c) && c.content != content; },
                        [&](const Candidate&) {
                            PROBE(sync_senders_differ);
                            return make_cause<CauseKind::senders_differ>();
                        }))
                return refuse([&](std::uint64_t) { return make_cause<CauseKind::senders_differ>(); });
        }
    }

private:
    static bool receives_only(const Candidate& c) { return c.strategy == SyncStrategy::receive_only; }
    static bool sends_only(const Candidate& c) { return c.strategy == SyncStrategy::send_only; }
    static bool enforces(const Candidate& c) { return c.strategy == SyncStrategy::enforce_popular; }

    std::vector<const Candidate*> offers() const {
        std::vector<const Candidate*> offering;
        for (const Candidate* candidate : staying_) {
            if (!receives_only(*candidate) && candidate->revision == revision_) offering.push_back(candidate);
        }
        return offering;
    }

    Election refuse_for_want_of_offers() const {
        PROBE(sync_nobody_sends);
        return refuse([&](std::uint64_t own) { return make_cause<CauseKind::nobody_sends_revision>(revision_, own); });
    }

    // Returns false and removes nobody if no member with the expected revision would be left.
    template <class Who, class Why>
    bool remove(const Who& who, const Why& why) {
        std::set<std::string> gangs;
        for (const Candidate* c : staying_) {
            if (!c->gang.empty() && who(*c)) gangs.insert(c->gang);
        }
        const auto leaves = [&](const Candidate& c) { return who(c) || gangs.contains(c.gang); };
        const bool some_left = std::any_of(staying_.begin(), staying_.end(),
                                           [&](const Candidate* c) { return c->revision == revision_ && !leaves(*c); });
        if (!some_left) return false;
        std::erase_if(staying_, [&](const Candidate* c) {
            if (!leaves(*c)) return false;
            if (who(*c)) causes_[c->uuid] = why(*c);
            return true;
        });
        return true;
    }

    Verdict verdict_of(const Candidate& candidate) const {
        Verdict verdict;
        verdict.uuid = candidate.uuid;
        const auto cause = causes_.find(candidate.uuid);
        if (cause == causes_.end()) return verdict;
        verdict.removed = true;
        verdict.result = Result::invalid_usage;
        verdict.cause = cause->second;
        verdict.schema_differs = differ_.contains(candidate.uuid);
        return verdict;
    }

    // `why`: the cause for a member that submitted the revision `own`.
    template <class Why>
    Election refuse(const Why& why) const {
        PROBE(sync_refused_all);
        Election election;
        election.revision = revision_;
        election.failed = true;
        election.model = model_;
        for (const Candidate& candidate : sorted_) {
            Verdict verdict = verdict_of(candidate);
            if (!verdict.removed) {
                verdict.result = Result::invalid_usage;
                verdict.cause = why(candidate.revision);
            }
            election.verdicts.push_back(std::move(verdict));
        }
        return election;
    }

    Election deal_out(const Candidate& winner) const {
        Election election;
        election.revision = revision_;
        election.winner = election.model = winner.uuid;
        election.content = winner.content;
        for (const Candidate& candidate : sorted_) {
            Verdict verdict = verdict_of(candidate);
            if (!verdict.removed) {
                const bool holds = candidate.content == winner.content;
                if (holds && !receives_only(candidate)) election.holders.push_back(candidate.uuid);
                if (candidate.revision < revision_) PROBE(sync_outdated_member);
                if (!sends_only(candidate)) {
                    verdict.receives = !holds;
                    // A member receives entries that may differ once: before its first completed sync, from a member
                    // that has completed one.
                    verdict.receives_unequal = winner.unequal && winner.synced && !candidate.synced;
                    if (verdict.receives_unequal) PROBE(sync_any_content);
                }
            }
            election.verdicts.push_back(std::move(verdict));
        }
        return election;
    }

    std::vector<Candidate> sorted_;  // longest accepted first
    std::uint64_t revision_;
    std::vector<const Candidate*> staying_;
    std::map<Uuid, Cause> causes_;
    std::map<Uuid, Hash128> schema_, content_;
    Uuid model_;             // has the elected schema
    std::set<Uuid> differ_;  // removed because their schema is another one
};

}  // namespace

Election elect(const std::vector<Candidate>& candidates, std::uint64_t expected) {
    ASSERT(!candidates.empty());
    std::vector<Candidate> sorted = candidates;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.seniority < b.seniority; });
    return Count(std::move(sorted), expected).run();
}

}  // namespace pccl::core
