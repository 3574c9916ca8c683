// The oracle for sends. Each end is judged by the launches of the other one that were open at the same time.
#include "core/base/format.hpp"
#include "core/numeric/types.hpp"
#include "harness/facts.hpp"
#include "harness/intervals.hpp"
#include "harness/sends.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pccl::harness {

using namespace core;

namespace {

class SendCheck {
public:
    SendCheck(const Ledger& ledger, Excuses& excuses) : ledger_(ledger), excuses_(excuses) {
        for (std::size_t i = 0; i < ledger.launches.size(); ++i) {
            const LaunchFact& fact = ledger.launches[i];
            if (fact.collective.kind == CollectiveKind::send) by_name_[name_of(fact)].add(i, fact.begin, until(fact));
        }
    }

    sim::Violation success(const LaunchFact& own) {
        const Completion& c = own.completion;
        const auto wrong = [&](const char* oracle, const std::string& what) {
            return sim::Violation{oracle, formatted("{}: {}", what, text(own))};
        };
        const bool gives = is_sender(own);
        if (c.world != 2 || c.members.size() != 2 || c.members[0].peer != own.collective.root ||
            c.members[1].peer != own.collective.target || c.index != (gives ? 0u : 1u))
            return wrong("membership", "a send does not name its two ends");
        const std::uint64_t count = c.members[0].count;
        if (c.members[1].count != count || (gives ? count != own.collective.count : count > own.collective.capacity))
            return wrong("membership", "a send names another count");
        sim::Violation complaint;
        bool found = false;
        each_other_end(own, [&](const LaunchFact& other) {
            if (found || other.shape != own.shape) return;
            if (gives ? other.collective.capacity < count : other.collective.count != count) return;
            complaint = agree(gives ? own : other, gives ? other : own, own, other);
            found = complaint.oracle.empty();
        });
        if (found) return {};
        const Uuid& far = gives ? own.collective.target : own.collective.root;
        if (may_be_a_liar(ledger_, far) && excuses_.use(Excuse::liar)) return {};
        return complaint.oracle.empty() ? wrong("membership", "the other end had not launched it") : complaint;
    }

    // Whether a failure is explained by the other end.
    sim::Violation failure(const LaunchFact& own) {
        const Completion& c = own.completion;
        const auto says = [&](CauseKind kind) { return c.cause.has(kind); };
        bool differs = false, too_long = false;
        each_other_end(own, [&](const LaunchFact& other) {
            differs = differs || other.shape != own.shape;
            const LaunchFact& gives = is_sender(own) ? own : other;
            const LaunchFact& takes = is_sender(own) ? other : own;
            too_long = too_long || gives.collective.count > takes.collective.capacity;
        });
        const char* why = nullptr;
        const Uuid& far = is_sender(own) ? own.collective.target : own.collective.root;
        if (says(CauseKind::shapes_differ) && !differs) why = "both ends launched the same type";
        if (says(CauseKind::room_too_small) && !too_long) why = "the receiver has room";
        if (says(CauseKind::other_end_not_member)) {
            if (c.result != Result::rank_connection_lost) why = "it can be tried again";
            if (std::any_of(ledger_.lives.begin(), ledger_.lives.end(), [&](const Life& life) {
                    return life.peer == far && life.group == own.group && life.connected_at <= own.begin &&
                           life.member_until >= own.end;
                }))
                why = "it was one all the time";
        }
        if (says(CauseKind::root_not_member) || says(CauseKind::send_to_itself) || says(CauseKind::pieces_too_large) ||
            says(CauseKind::group_changed) || says(CauseKind::results_differ) || says(CauseKind::slices_differ) ||
            says(CauseKind::too_many_pieces) || says(CauseKind::vote_of_unknown_type) ||
            says(CauseKind::vote_input_misfits))
            why = "no program does that";
        if (why == nullptr || (liar_beside(ledger_, excuses_, own.begin, own.end) && excuses_.use(Excuse::liar)))
            return {};
        return {"progress", formatted("{}, though {}: {}", to_text(c.cause), why, text(own))};
    }

private:
    using Name = std::tuple<GroupId, Uuid, Uuid, Tag>;
    static Name name_of(const LaunchFact& fact) {
        return {fact.group, fact.collective.root, fact.collective.target, fact.tag};
    }
    bool is_sender(const LaunchFact& fact) const { return ledger_.lives[fact.life].peer == fact.collective.root; }

    // Whether a member, on the way from one to the other, sent other bytes than it had.
    bool falsified(const LaunchFact& takes) {
        const auto falsifies = [&](const Life& life) {
            return life.group == takes.group && sent_false_bytes(ledger_, life.node, takes.end);
        };
        return std::any_of(ledger_.lives.begin(), ledger_.lives.end(), falsifies) && excuses_.use(Excuse::liar);
    }

    std::string text(const LaunchFact& f) const {
        return formatted("{} {} tag {} between {} and {} type {} count {} room {} [{} us .. {}] {}",
                         ledger_.name(f.life), is_sender(f) ? "send" : "receive", f.tag, short_name(f.collective.root),
                         short_name(f.collective.target), static_cast<unsigned>(f.shape.type), f.collective.count,
                         f.collective.capacity, f.begin / microsecond,
                         f.end == open_end ? "open" : formatted("{} us", f.end / microsecond),
                         f.end == open_end ? "unanswered" : sim::to_text(f.completion.result));
    }

    // A vote counts until the master knows that the caller has gone.
    Instant until(const LaunchFact& fact) const {
        const bool gone = !succeeded(fact) && fact.end != open_end &&
                          ledger_.departed(fact.life, fact.completion, fact.end);
        return gone ? open_end : fact.end;
    }

    template <class Visit>
    void each_other_end(const LaunchFact& own, Visit visit) const {
        by_name_.at(name_of(own)).near(own.begin, own.end, [&](std::size_t i) {
            const LaunchFact& other = ledger_.launches[i];
            if (other.begin < own.end && until(other) > own.begin && is_sender(other) != is_sender(own)) visit(other);
        });
    }

    sim::Violation agree(const LaunchFact& gives, const LaunchFact& takes, const LaunchFact& own,
                         const LaunchFact& other) {
        const auto complain = [&](const char* oracle, const char* what) {
            return sim::Violation{oracle, formatted("{}:\n    {}\n    {}", what, text(own), text(other))};
        };
        const std::size_t bytes = gives.collective.count * element_bytes(gives.shape.type);
        const auto& got = takes.output;
        if (succeeded(takes) && (got.size() != bytes || !std::equal(got.begin(), got.end(), gives.input.begin())) &&
            !falsified(takes))
            return complain("value", "the receiver has other bytes than were sent");
        if (other.end == open_end || succeeded(other)) return {};
        if (!excuses_.refuses(Excuse::departed) && ledger_.departed(other.life, other.completion, other.end)) {
            excuses_.use(Excuse::departed);
            return {};
        }
        const LaunchFact& first = own.end <= other.end ? own : other;
        if (excuses_.forgotten(std::max(own.begin, other.begin), first.end, std::max(own.end, other.end),
                               ledger_.lives[first.life].member_until))
            return {};
        return complain("one-outcome", "one end succeeded, the other failed");
    }

    const Ledger& ledger_;
    Excuses& excuses_;
    std::map<Name, Intervals> by_name_;
};

}  // namespace

sim::Violation check_sends(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    if (scenario.workload.sends_per_mille == 0) return {};
    SendCheck check(ledger, excuses);
    for (const LaunchFact& fact : ledger.launches) {
        if (fact.collective.kind != CollectiveKind::send || fact.end == open_end || ledger.lives[fact.life].liar)
            continue;
        const sim::Violation violation =
            fact.completion.result == Result::success ? check.success(fact) : check.failure(fact);
        if (!violation.oracle.empty()) return violation;
    }
    return {};
}

}  // namespace pccl::harness
