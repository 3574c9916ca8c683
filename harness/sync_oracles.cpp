#include "harness/oracles.hpp"

#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/intervals.hpp"
#include "harness/reference_election.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace pccl::harness {

using namespace core;

namespace {

std::string text(const Ledger& ledger, const SyncFact& f) {
    static constexpr const char* strategies[] = {"enforcing", "receiving only", "sending only"};
    return formatted("{} sync {} of revision {} {} {} revision {}", ledger.name(f.life),
                     strategies[static_cast<std::size_t>(f.strategy)], f.revision, when(f.begin, f.end),
                     f.end == open_end ? "unanswered" : sim::to_text(f.completion.result), f.completion.revision);
}

// Synchronizations by life and by group. For each one also the previous success of its life, and for each success the
// next.
struct SyncIndex {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    explicit SyncIndex(const Ledger& ledger)
        : lives(by_life(ledger, ledger.syncs)), before(ledger.syncs.size(), none), behind(ledger.syncs.size(), none) {
        std::vector<std::size_t> last(ledger.lives.size(), none);
        for (std::size_t i = 0; i < ledger.syncs.size(); ++i) {
            const SyncFact& fact = ledger.syncs[i];
            groups[fact.group].add(i, fact.begin, fact.end);
            before[i] = last[fact.life];
            if (!succeeded(fact)) continue;
            if (last[fact.life] != none) behind[last[fact.life]] = i;
            last[fact.life] = i;
        }
    }
    // Whether the life completed a sync before this one.
    bool synced_before(std::size_t sync) const { return before[sync] != none; }

    std::vector<Intervals> lives;
    std::map<GroupId, Intervals> groups;
    std::vector<std::size_t> before;
    std::vector<std::size_t> behind;  // only of successes
};
bool speaks_of_increment(const SyncFact& fact) {
    const Cause& cause = fact.completion.cause;
    return cause.has(CauseKind::revision_ahead) || cause.has(CauseKind::sender_behind) ||
           cause.has(CauseKind::nobody_has_revision);
}

// A call that began after the loss does not count: it only repeats the reason.
bool removed_by_revision(const Ledger& ledger, const SyncFact& fact) {
    const Life& life = ledger.lives[fact.life];
    return life.lost && fact.begin <= life.lost_at && speaks_of_increment(fact) &&
           fact.completion.cause.has(CauseKind::removed) && !fact.completion.cause.has(CauseKind::gang_lost);
}

}  // namespace

// Whether a member that had given up, but that the master still counted, voted for this content.
static bool unknown_voter_had(const Ledger& ledger, const SyncIndex& index, const SyncFact& own, Excuses& excuses) {
    bool had = false;
    index.groups.at(own.group).near(own.begin - excuses.seat_kept(), own.end, [&](std::size_t k) {
        const SyncFact& other = ledger.syncs[k];
        had = had || (&other != &own && other.before == own.after && other.strategy != SyncStrategy::receive_only &&
                      other.end <= own.begin && own.begin < counted_until(ledger, other, excuses));
    });
    return had && excuses.use(Excuse::unknown_voter);
}

static bool cast_in(const Ledger& ledger, const Ledger::FalseVote& vote, const SyncFact& fact) {
    return vote.node == ledger.lives[fact.life].node && vote.at >= fact.begin && vote.at <= fact.end;
}

// Whether a liar offered its content, in the vote of this call, as one of that revision. Its program had submitted
// another revision or strategy.
static const Ledger::FalseVote* offered_falsely(const Ledger& ledger, const SyncFact& fact, std::uint64_t revision,
                                                Instant until) {
    const auto offers = [&](const Ledger::FalseVote& vote) {
        return !vote.again && cast_in(ledger, vote, fact) && vote.at <= until && vote.revision == revision &&
               vote.strategy != SyncStrategy::receive_only;
    };
    const auto vote = std::find_if(ledger.false_votes.begin(), ledger.false_votes.end(), offers);
    return vote == ledger.false_votes.end() ? nullptr : &*vote;
}

// Whether the member itself cast a vote that is not its program's: in this call, or since `before` began, its last one.
// The master takes a vote that comes before its call for that of the call, also if both name one revision.
static bool voted_falsely(const Ledger& ledger, const SyncFact& own, const SyncFact& before) {
    return std::any_of(ledger.false_votes.begin(), ledger.false_votes.end(), [&](const Ledger::FalseVote& vote) {
        return vote.node == ledger.lives[own.life].node && vote.at >= before.begin && vote.at <= own.end;
    });
}

// If it is known who took part: the winning content must be one that may win, and strategies must be respected.
static sim::Violation check_election(const Ledger& ledger, const SyncIndex& index, std::size_t own_index,
                                     Excuses& excuses) {
    const SyncFact& own = ledger.syncs[own_index];
    const auto complain = [&](const char* what, const SyncFact* other) {
        return sim::Violation{"election", formatted("{}:\n    {}{}", what, text(ledger, own),
                                                    other == nullptr ? "" : "\n    " + text(ledger, *other))};
    };
    if (const char* broken = broken_strategy(own)) return complain(broken, nullptr);
    std::vector<Submission> group, unknown;
    const char* broken = nullptr;
    const SyncFact* partner = nullptr;
    const auto submitted = [&](std::size_t k) {
        const SyncFact& fact = ledger.syncs[k];
        const Life& life = ledger.lives[fact.life];
        const bool veteran = index.synced_before(k);
        return Submission{&fact, fact.revision, fact.strategy, veteran, life.asked_at, life.connected_at};
    };
    index.groups.at(own.group).near(own.begin - excuses.seat_kept(), own.end, [&](std::size_t k) {
        const SyncFact& other = ledger.syncs[k];
        if (!overlap(own.begin, own.end, other.begin, counted_until(ledger, other, excuses))) return;
        if (!succeeded(other)) {
            // It may have taken part, and died or been removed before the others got the outcome. A member that failed
            // and stayed did not take part, unless the master lost the outcome that it had sent to that member.
            const Life& life = ledger.lives[other.life];
            if (other.end == open_end || (life.lost && ledger.gone_by(other.life, other.end)) ||
                ledger.departed(other.life, other.completion, other.end) || life.liar ||
                forgotten(excuses, ledger, own, other))
                unknown.push_back(submitted(k));
            return;
        }
        if (other.completion.revision != own.completion.revision) return;
        if (ledger.gone_by(own.life, other.begin) || ledger.gone_by(other.life, own.begin) ||
            ledger.lives[other.life].liar) {
            unknown.push_back(submitted(k));
            return;
        }
        if (const char* rule = broken_strategy(own, other)) {
            broken = rule;
            partner = &other;
        }
        group.push_back(submitted(k));
    });
    if (broken != nullptr) return complain(broken, partner);
    if (may_win(group, own.completion.revision, own.after)) return {};
    const auto some_explain = [&] {
        return may_win_with_some(group, unknown, own.completion.revision, own.after) &&
               excuses.use(Excuse::unknown_voter);
    };
    if (some_explain()) return {};
    // Or a liar took part with another revision than that of its program (any one may be the first of a group), or with
    // another strategy.
    std::vector<Submission> said = unknown;
    bool lied = false;
    for (Submission& member : said) {
        const Ledger::FalseVote* vote = offered_falsely(ledger, *member.fact, own.completion.revision, own.end);
        if (vote == nullptr) continue;
        member.revision = vote->revision;
        member.strategy = vote->strategy;
        lied = true;
    }
    if (lied && may_win_with_some(group, said, own.completion.revision, own.after) && excuses.use(Excuse::liar))
        return {};
    // Or the journal lost one of two outcomes, and with it who took part in that one.
    bool any = false;
    std::erase_if(group, [&](const Submission& member) {
        if (member.fact == &own || !forgotten(excuses, ledger, own, *member.fact)) return false;
        unknown.push_back(member);
        return any = true;
    });
    if (!any || (!may_win(group, own.completion.revision, own.after) && !some_explain()))
        return complain("a content won that is not the one to win", nullptr);
    return {};
}

sim::Violation check_syncs(const Scenario&, const Ledger& ledger, Excuses& excuses) {
    const SyncIndex index(ledger);
    for (std::size_t i = 0; i < ledger.syncs.size(); ++i) {
        const SyncFact& own = ledger.syncs[i];
        if (own.end != open_end && own.completion.result == Result::invalid_usage && !ledger.lives[own.life].lost) {
            const SyncFact* before = index.synced_before(i) ? &ledger.syncs[index.before[i]] : nullptr;
            // A sync also fails if the state could not be received; its message differs then.
            const bool refused = speaks_of_increment(own);
            // A gang whose other place is ahead would go as a whole, and perhaps nobody else holds the revision.
            if (refused && ledger.lives[own.life].gang.none() && before != nullptr && before->completion.revision + 1 == own.revision &&
                !(voted_falsely(ledger, own, *before) && excuses.use(Excuse::liar))) {
                return {"revision", formatted("the next revision was refused:\n    {}\n    {}: {}",
                                              text(ledger, *before), text(ledger, own), to_text(own.completion.cause))};
            }
        }
        // If a member is removed for its revision, a member with the expected revision must stay.
        if (own.end != open_end && removed_by_revision(ledger, own)) {
            bool somebody_stays = false;
            for (const SyncFact& other : ledger.syncs) {
                if (&other == &own || other.group != own.group || other.begin >= own.end) continue;
                // The vote of a member that gave up, or aborted, counts until the master notices that it is gone.
                const bool gave_up = other.end != open_end && other.completion.result != Result::success;
                if ((gave_up ? excuses.counted_until(other.end) : other.end) <= own.begin) continue;
                somebody_stays = somebody_stays || !removed_by_revision(ledger, other);
            }
            if (!somebody_stays)
                return {"revision", formatted("the rule of revisions removed every member:\n    {}: {}",
                                              text(ledger, own), to_text(own.completion.cause))};
        }
        if (!succeeded(own) || ledger.lives[own.life].liar) continue;
        const bool receives_only = own.strategy == SyncStrategy::receive_only;
        bool known_content = own.after == own.before && !receives_only;
        bool known_own_content = own.own_after == own.own_before;
        bool from_a_veteran = known_content;
        const bool veteran = index.synced_before(i);
        if (veteran && own.own_after != own.own_before)
            return {"value", "a member that had synchronised before received entries that may differ:\n    " +
                                 text(ledger, own)};
        bool false_offer = false, false_offer_of_a_veteran = false;
        const SyncFact* other_content = nullptr;
        const SyncFact* other_schema = nullptr;
        index.groups.at(own.group).near(own.begin, own.end, [&](std::size_t k) {
            const SyncFact& other = ledger.syncs[k];
            if (k == i || other_content != nullptr || !overlap(own.begin, own.end, other.begin, other.end)) return;
            if (other.before == own.after && other.strategy != SyncStrategy::receive_only) {
                known_content = true;
                if (index.synced_before(k)) from_a_veteran = true;
            } else if (other.before == own.after &&
                       offered_falsely(ledger, other, own.completion.revision, own.end) != nullptr) {
                false_offer = true;
                if (index.synced_before(k)) false_offer_of_a_veteran = true;
            }
            if (other.own_before == own.own_after) known_own_content = true;
            if (other.process == own.process || ledger.lives[other.life].liar ||
                !succeeded(other))
                return;
            // A removed peer may read its answer late. By then the group may have ended and begun again at revision 0.
            if (ledger.gone_by(own.life, other.begin) || ledger.gone_by(other.life, own.begin)) return;
            if (other.completion.revision == own.completion.revision && other.schema != own.schema &&
                !forgotten(excuses, ledger, own, other))
                other_schema = &other;
            // An older journal lacks the outcome that one of them got.
            if (other.completion.revision == own.completion.revision && other.after != own.after &&
                !forgotten(excuses, ledger, own, other))
                other_content = &other;
        });
        if (other_schema != nullptr)
            return {"schema", formatted("one revision, two schemas:\n    {}\n    {}", text(ledger, own),
                                        text(ledger, *other_schema))};
        if (other_content != nullptr) {
            return {"parity", formatted("one revision, two contents:\n    {}\n    {}", text(ledger, own),
                                        text(ledger, *other_content))};
        }
        if (!known_content && !(false_offer && excuses.use(Excuse::liar)) &&
            !unknown_voter_had(ledger, index, own, excuses))
            return {"value", "a content that nobody had:\n    " + text(ledger, own)};
        if (!known_own_content)
            return {"value", "entries that may differ, with a content that nobody had:\n    " + text(ledger, own)};
        if (veteran && !receives_only && own.revision == own.completion.revision && !from_a_veteran &&
            !(false_offer_of_a_veteran && excuses.use(Excuse::liar))) {
            return {"value",
                    "the state of a member that had synchronised before was replaced by that of newcomers:\n    " +
                        text(ledger, own)};
        }
        const sim::Violation elected = check_election(ledger, index, i, excuses);
        if (!elected.oracle.empty()) return elected;
        // The next success of the same life must have the next revision.
        if (index.behind[i] != SyncIndex::none) {
            const SyncFact& next = ledger.syncs[index.behind[i]];
            if (next.completion.revision != own.completion.revision + 1) {
                return {"revision",
                        formatted("two successes in a row:\n    {}\n    {}", text(ledger, own), text(ledger, next))};
            }
        }
        // Every peer of the group that was a member throughout must have this outcome too.
        for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
            const Life& member = ledger.lives[life];
            if (life == own.life || member.group != own.group || member.connected_at > own.begin ||
                member.member_until < own.end || member.liar)
                continue;
            const SyncFact* failed = nullptr;
            bool good = false;
            index.lives[life].near(own.begin, own.end, [&](std::size_t k) {
                const SyncFact& other = ledger.syncs[k];
                if (!overlap(own.begin, own.end, other.begin, other.end)) return;
                if (succeeded(other) ? other.completion.revision == own.completion.revision
                                                           : other.end == open_end)
                    good = true;
                if (other.end != open_end && !succeeded(other)) failed = &other;
            });
            // An older journal lacks outcomes. It may also lack the removal of a member that does not know of it yet.
            if (!good && !(failed != nullptr ? forgotten(excuses, ledger, own, *failed)
                                             : excuses.forgotten(own.begin, own.end, member.member_until,
                                                                 ledger.lives[own.life].member_until))) {
                return {
                    "one-outcome",
                    formatted("a member did not see this success:\n    {}\n    {}", text(ledger, own),
                              failed != nullptr ? text(ledger, *failed) : ledger.name(life) + " called no sync then")};
            }
        }
    }
    return {};
}

}  // namespace pccl::harness
