#include "harness/oracles.hpp"

#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/intervals.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace pccl::harness {

using namespace core;

namespace {

std::string text(const Ledger& ledger, const VoteFact& f) {
    const Attributes& a = f.completion.attributes;
    return formatted("{} {} {} {} worlds {}/{} groups {}/{}{}", ledger.name(f.life), to_text(f.kind),
                     when(f.begin, f.end), f.end == open_end ? "unanswered" : sim::to_text(f.completion.result),
                     a.global_world, a.group_world, a.groups, a.largest_group, f.completion.pending ? " pending" : "");
}

// World sizes must count every certain member, and no peer that certainly was not accepted yet. Returns what is wrong.
std::string miscounted(const Ledger& ledger, const Intervals& own_life, const VoteFact& own, Excuses& excuses) {
    // The next update of this member needed the votes of all peers that this one had accepted. So a peer whose connect
    // returned only after that next update was not among them.
    Instant next_end = open_end;
    own_life.all([&](std::size_t i) {
        const VoteFact& later = ledger.votes[i];
        if (later.kind == CallKind::update_topology && later.begin >= own.end && succeeded(later))
            next_end = std::min(next_end, later.end);
    });
    const GroupId group = ledger.lives[own.life].group;
    std::uint32_t sure = 0, sure_in_group = 0, possible = 0, possible_in_group = 0;
    std::set<std::string> sure_gangs, possible_gangs;
    for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
        const Life& l = ledger.lives[life];
        // If the journal lost the records of this call, the master may have continued an older run that had ended
        // before the call. `l` may then be a member of that run.
        const auto another_run = [&] {
            return excuses.forgotten(own.begin, own.end, l.member_until, ledger.lives[own.life].member_until);
        };
        if (life == own.life ||
            (l.connected_at <= own.begin && l.member_until >= own.end && !l.liar && !another_run())) {
            ++sure;
            sure_in_group += l.group == group ? 1 : 0;
            if (!l.gang.none()) sure_gangs.insert(l.gang.name);
        }
        // A peer that was accepted and removed before it knew, or died in connect, may have been a member all the same.
        const auto in_question = [&] {
            if (l.asked_at >= own.end || excuses.counted_until(l.gone_at) < own.begin) return false;
            return l.connected_at == core::never || l.connected_at <= next_end || l.lost ||
                   l.member_until <= l.connected_at ||
                   excuses.forgotten(own.begin, own.end, l.connected_at, ledger.lives[own.life].member_until) ||
                   excuses.cut_off(l.node, own.begin, next_end);
        };
        if (in_question()) {
            ++possible;
            possible_in_group += l.group == group ? 1 : 0;
            if (!l.gang.none()) possible_gangs.insert(l.gang.name);
        }
    }
    const auto strangers = static_cast<std::uint32_t>(std::count_if(
        ledger.stranger_hellos.begin(), ledger.stranger_hellos.end(), [&](const Ledger::StrangerHello& hello) {
            return hello.at < own.end && excuses.counted_until(hello.last_said) >= own.begin;
        }));
    possible += strangers;
    possible_in_group += strangers;
    const Attributes& a = own.completion.attributes;
    const std::string range =
        formatted(" (sure {}/{}, possible {}/{})", sure, sure_in_group, possible, possible_in_group);
    if (a.global_world < sure || a.group_world < sure_in_group) return "fewer than the members" + range;
    if (a.global_world > possible || a.group_world > possible_in_group) return "more than were accepted" + range;
    if (a.gangs < sure_gangs.size() || (a.gangs > possible_gangs.size() && strangers == 0))
        return formatted("{} gangs (sure {}, possible {})", a.gangs, sure_gangs.size(), possible_gangs.size());
    return {};
}

// Whether another member was in another call during this update. If the update is the first call of a newcomer, and the
// members that admitted it wait for its vote in another call, the master answers the update for the newcomer alone. A
// member that lies may have said that it waits so.
bool answered_alone(const Ledger& ledger, const VoteFact& own, const Excuses& excuses) {
    const GroupId group = ledger.lives[own.life].group;
    const auto waits = [&](const auto& fact) {
        return fact.life != own.life && ledger.lives[fact.life].group == group &&
               overlap(own.begin, own.end, fact.begin, counted_until(ledger, fact, excuses));
    };
    return std::any_of(ledger.launches.begin(), ledger.launches.end(), waits) ||
           std::any_of(ledger.syncs.begin(), ledger.syncs.end(), waits) ||
           std::any_of(ledger.votes.begin(), ledger.votes.end(), [&](const VoteFact& fact) {
               return fact.life != own.life &&
                      (fact.kind == CallKind::are_peers_pending || fact.kind == CallKind::optimize) &&
                      overlap(own.begin, own.end, fact.begin, counted_until(ledger, fact, excuses));
           }) ||
           ledger.lied(own.begin, own.end);
}

}  // namespace

sim::Violation check_votes(const Scenario&, const Ledger& ledger, Excuses& excuses) {
    const std::vector<Intervals> votes = by_life(ledger, ledger.votes);
    std::vector<Instant> first_call(ledger.lives.size(), open_end);
    const auto called = [&](std::uint32_t life, Instant at) { first_call[life] = std::min(first_call[life], at); };
    // A synchronization votes only when its state is hashed. Another thread may have called the update before that, so
    // the time of the answer counts.
    for (const SyncFact& sync : ledger.syncs) called(sync.life, sync.answered);
    // A member that is alone in its group refuses a launch by itself: the master does not hear of it.
    for (const LaunchFact& launch : ledger.launches) {
        if (launch.group_world >= 2 || launch.completion.result != Result::too_few_peers)
            called(launch.life, launch.begin);
    }
    for (std::size_t i = 0; i < ledger.votes.size(); ++i) {
        const VoteFact& own = ledger.votes[i];
        if (own.kind == CallKind::connect || ledger.lives[own.life].liar) continue;
        const bool first_of_life = own.begin < first_call[own.life];
        called(own.life, own.begin);
        if (!succeeded(own)) continue;
        const Attributes& a = own.completion.attributes;
        if (a.group_world > a.global_world || a.largest_group > a.global_world || a.groups > a.global_world ||
            a.largest_group < a.group_world) {
            return {"membership", "impossible world sizes: " + text(ledger, own)};
        }
        const Life& life = ledger.lives[own.life];
        if (ledger.attributes_read_late && a.global_world == 1 && life.lost && life.member_until <= own.end &&
            excuses.use(Excuse::departed))
            continue;
        if (own.kind == CallKind::update_topology) {
            const std::string wrong = miscounted(ledger, votes[own.life], own, excuses);
            if (!wrong.empty()) return {"membership", formatted("{}: {}", wrong, text(ledger, own))};
            if (first_of_life && answered_alone(ledger, own, excuses) && excuses.use(Excuse::early_update)) continue;
        }
        for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
            const Life& member = ledger.lives[life];
            if (life == own.life || member.connected_at > own.begin || member.member_until < own.end || member.liar)
                continue;
            const VoteFact* near = nullptr;
            bool good = false;
            votes[life].near(own.begin, own.end, [&](std::size_t k) {
                const VoteFact& other = ledger.votes[k];
                if (other.kind != own.kind || !overlap(own.begin, own.end, other.begin, other.end)) return;
                near = &other;
                const Attributes& b = other.completion.attributes;
                if (other.end == open_end) good = true;
                if (!succeeded(other)) return;
                good =
                    good || (other.completion.pending == own.completion.pending && a.global_world == b.global_world &&
                             a.groups == b.groups && a.largest_group == b.largest_group && a.gangs == b.gangs);
            });
            if (!good && !(near != nullptr ? forgotten(excuses, ledger, own, *near)
                                           : excuses.forgotten(own.begin, own.end, member.member_until,
                                                               ledger.lives[own.life].member_until))) {
                return {"membership",
                        formatted("a member was told something else:\n    {}\n    {}", text(ledger, own),
                                  near != nullptr ? text(ledger, *near) : ledger.name(life) + " did not call it then")};
            }
        }
    }
    return {};
}

}  // namespace pccl::harness
