#include "harness/oracles.hpp"

#include "core/base/format.hpp"
#include "harness/intervals.hpp"
#include "harness/reference.hpp"
#include "harness/reference_election.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace pccl::harness {

using namespace core;

const char* to_text(CallKind kind) {
    static constexpr const char* names[] = {"connect", "update_topology", "are_peers_pending", "launch",  "await",
                                            "sync",    "leave",           "reduce_many",       "optimize"};
    return names[static_cast<std::size_t>(kind)];
}

std::string Ledger::name(std::uint32_t life) const {
    return formatted("process {} (life {})", lives[life].process, life);
}

namespace {

bool succeeded(const Completion& c, Instant end) { return end != open_end && c.result == Result::success; }

std::string when(Instant begin, Instant end) {
    return formatted("[{} us .. {}]", begin / microsecond,
                     end == open_end ? "open" : formatted("{} us", end / microsecond));
}

std::string text(const Ledger& ledger, const LaunchFact& f) {
    return formatted("{} tag {} type {} op {}{} count {} {} {} world {}", ledger.name(f.life), f.tag,
                     static_cast<unsigned>(f.shape.type), static_cast<unsigned>(f.shape.op),
                     sim::to_text(f.shape.quantization), f.shape.count, when(f.begin, f.end),
                     f.end == open_end ? "unanswered" : sim::to_text(f.completion.result), f.completion.world);
}

// For two facts about one operation: whether the master lost the outcome that the first member had received, before it
// sent the outcome to the second one.
template <class Fact>
bool forgotten(Excuses& excuses, const Ledger& ledger, const Fact& one, const Fact& other) {
    const Fact& first = one.end <= other.end ? one : other;
    return excuses.forgotten(std::max(one.begin, other.begin), first.end, std::max(one.end, other.end),
                             ledger.lives[first.life].member_until);
}

// Searches for the set of launches that took part in a successful operation.
class AttemptSearch {
public:
    AttemptSearch(const Scenario& scenario, const Ledger& ledger, Excuses& excuses, std::vector<bool>& settled)
        : scenario_(scenario), ledger_(ledger), excuses_(excuses), settled_(settled) {
        for (std::size_t i = 0; i < ledger.launches.size(); ++i) {
            const LaunchFact& fact = ledger.launches[i];
            if (fact.collective.kind == CollectiveKind::send) continue;
            by_tag_[{fact.group, fact.tag}].add(i, fact.begin, counts_until(fact));
        }
    }

    sim::Violation check(std::size_t index) {
        const LaunchFact& own = ledger_.launches[index];
        candidates_.clear();
        by_process_.clear();
        ranked_.clear();
        by_tag_.at({own.group, own.tag}).near(own.begin, own.end, [&](std::size_t i) {
            const LaunchFact& other = ledger_.launches[i];
            if (i == index || other.process == own.process || other.shape != own.shape ||
                other.collective.kind != CollectiveKind::all_reduce ||
                counts_until(other) <= own.begin)
                return;
            ranked_.push_back(Ranked{other.process, rank(own, i), i});
        });
        // Launches with the same outcome and the same bytes come first. If several sets explain the value, the run gets
        // the benefit of the doubt.
        std::sort(ranked_.begin(), ranked_.end());
        for (const Ranked& candidate : ranked_) candidates_.push_back(candidate.launch);
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            if (i == 0 || process_of(i) != process_of(i - 1)) by_process_.push_back(i);
        }
        by_process_.push_back(candidates_.size());
        if (own.completion.world > by_process_.size() && takes_part_uninvited(own)) return {};
        if (own.completion.world < 2 || own.completion.world > by_process_.size()) {
            return {"membership", formatted("{}, but only {} other processes had launched it", text(ledger_, own),
                                            by_process_.size() - 1)};
        }
        chosen_ = {index};
        inputs_ = {&own.input};
        tries_ = 0;
        complaint_ = {};
        if (those_who_agree(own) || search(0, own) || tries_ >= tries_max) return {};
        if (!complaint_.oracle.empty()) return complaint_;
        // A vote of before that a liar repeated waits for the others.
        if (takes_part_uninvited(own, own.begin - scenario_.timeouts.vote)) return {};
        std::string reason =
            formatted("{}: the result is not the operation over any {} of these inputs:", text(ledger_, own),
                      own.completion.world);
        for (const std::size_t i : candidates_) reason += "\n    " + text(ledger_, ledger_.launches[i]);
        return {"value", reason};
    }

private:
    static constexpr std::uint64_t tries_max = 20'000;
    struct Ranked {
        std::uint32_t process = 0;
        int rank = 0;
        std::size_t launch = 0;
        friend auto operator<=>(const Ranked&, const Ranked&) = default;
    };

    // A vote that carries its input counts until the master knows that the caller has gone.
    Instant counts_until(const LaunchFact& fact) const {
        const std::uint64_t bytes = fact.shape.count * element_bytes(fact.shape.type);
        const bool open = bytes <= scenario_.limits.vote_input_bytes_max && !succeeded(fact.completion, fact.end) &&
                          fact.end != open_end && ledger_.departed(fact.life, fact.completion, fact.end);
        return open ? open_end : fact.end;
    }
    std::uint32_t process_of(std::size_t candidate) const { return ledger_.launches[candidates_[candidate]].process; }
    int rank(const LaunchFact& own, std::size_t i) const {
        const LaunchFact& other = ledger_.launches[i];
        if (succeeded(other.completion, other.end))
            return other.output == own.output && other.completion.world == own.completion.world ? 0 : 2;
        return other.end == open_end || ledger_.departed(other.life, other.completion, other.end) ? 1 : 3;
    }

    // Tries the set that is nearly always right before any search: all launches with the same answer. Among a thousand
    // launches, a few dead ones would otherwise use up all tries.
    bool those_who_agree(const LaunchFact& own) {
        std::size_t others = 0;
        const auto agrees = [&](std::size_t i) {
            return ranked_[by_process_[i]].rank == 0;  // the best one of each process comes first
        };
        for (std::size_t i = 0; i + 1 < by_process_.size(); ++i) others += agrees(i) ? 1 : 0;
        if (others + 1 != own.completion.world) return false;
        for (std::size_t i = 0; i + 1 < by_process_.size(); ++i) {
            if (!agrees(i)) continue;
            chosen_.push_back(candidates_[by_process_[i]]);
            inputs_.push_back(&ledger_.launches[chosen_.back()].input);
        }
        if (fits(own)) return true;
        chosen_.resize(1);
        inputs_.resize(1);
        return false;
    }

    // True if a consistent set was found. complaint_ keeps what is wrong with the first set that has the right value.
    bool search(std::size_t process, const LaunchFact& own) {
        const std::size_t need = own.completion.world - chosen_.size();
        if (need == 0) return fits(own);
        if (by_process_.size() - 1 - process < need) return false;
        for (std::size_t i = by_process_[process]; i < by_process_[process + 1]; ++i) {
            if (++tries_ >= tries_max) return false;
            chosen_.push_back(candidates_[i]);
            inputs_.push_back(&ledger_.launches[candidates_[i]].input);
            const bool found = search(process + 1, own);
            if (found) return true;
            chosen_.pop_back();
            inputs_.pop_back();
        }
        return search(process + 1, own);
    }

    bool fits(const LaunchFact& own) {
        const bool exact = scenario_.workload.exact;
        // Symbolic payload has no content to compare.
        if (!scenario_.world.symbolic && (!is_result(own.shape, exact, inputs_, own.output, 4) ||
                                          !is_result(own.shape, exact, inputs_, own.output, own.shape.count)) &&
            !falsified(own))
            return false;
        for (const std::size_t i : chosen_) {
            const LaunchFact& other = ledger_.launches[i];
            if (ledger_.lives[other.life].liar) continue;
            if (succeeded(other.completion, other.end)) {
                const bool same = other.output == own.output;
                if (same && other.completion.world == own.completion.world) continue;
                // A reduction in a vote whose decision is lost is decided again by those who have not received it.
                if (forgotten(excuses_, ledger_, own, other)) continue;
                return same ? complain("membership", own, other, "world sizes differ")
                            : complain("parity", own, other, "bytes differ");
            } else if (other.end != open_end &&
                       (excuses_.refuses(Excuse::departed) ||
                        !ledger_.departed(other.life, other.completion, other.end)) &&
                       !forgotten(excuses_, ledger_, own, other)) {
                return complain("one-outcome", own, other, "one succeeded, the other failed");
            }
        }
        for (const std::size_t i : chosen_) {
            const LaunchFact& other = ledger_.launches[i];
            if (ledger_.lives[other.life].liar) continue;
            if (succeeded(other.completion, other.end))
                settled_[i] = settled_[i] || other.output == own.output;
            else if (other.end != open_end && ledger_.departed(other.life, other.completion, other.end))
                excuses_.use(Excuse::departed);
        }
        return true;
    }

    // Whether a liar may have taken part in it by a vote that its program did not ask for, with any input, and that it
    // sent at `since` or later; or a stranger that replays what a member sent. The other members must agree.
    bool takes_part_uninvited(const LaunchFact& own, Instant since = 0) {
        std::set<std::uint32_t> liars;
        for (const auto& [node, at] : ledger_.false_bytes) {
            if (at >= since && at <= own.end) liars.insert(node);
        }
        const auto replays = static_cast<std::size_t>(std::count_if(
            ledger_.stranger_hellos.begin(), ledger_.stranger_hellos.end(), [&](const Ledger::StrangerHello& hello) {
                return hello.name.empty() && hello.at < own.end && excuses_.counted_until(hello.last_said) >= own.begin;
            }));
        const std::size_t uninvited = liars.size() + replays;
        if (uninvited == 0 || own.completion.world > by_process_.size() + uninvited) return false;
        for (const std::size_t i : candidates_) {
            const LaunchFact& other = ledger_.launches[i];
            if (!ledger_.lives[other.life].liar && succeeded(other.completion, other.end) && other.begin < own.end &&
                own.begin < other.end && other.output != own.output)
                return false;
        }
        return excuses_.use(liars.empty() ? Excuse::copied_token : Excuse::liar);
    }

    // Whether one of the chosen members sent false bytes for it, of which nobody else can tell that they are false. The
    // others must agree all the same.
    bool falsified(const LaunchFact& own) {
        return std::any_of(chosen_.begin(), chosen_.end(),
                           [&](std::size_t i) {
                               const std::uint32_t node = ledger_.lives[ledger_.launches[i].life].node;
                               return std::any_of(ledger_.false_bytes.begin(), ledger_.false_bytes.end(),
                                                  [&](const auto& bytes) {
                                                      return bytes.first == node && bytes.second <= own.end;
                                                  });
                           }) &&
               excuses_.use(Excuse::liar);
    }

    bool complain(const char* oracle, const LaunchFact& own, const LaunchFact& other, const char* what) {
        if (complaint_.oracle.empty())
            complaint_ = {oracle, formatted("{}:\n    {}\n    {}", what, text(ledger_, own), text(ledger_, other))};
        return false;
    }

    const Scenario& scenario_;
    const Ledger& ledger_;
    Excuses& excuses_;
    std::vector<bool>& settled_;
    std::map<std::pair<GroupId, Tag>, Intervals> by_tag_;
    std::vector<Ranked> ranked_;
    std::vector<std::size_t> candidates_;
    std::vector<std::size_t> by_process_;  // first index of each process in candidates_, and the end
    std::vector<std::size_t> chosen_;
    std::vector<const std::vector<std::uint8_t>*> inputs_;
    std::uint64_t tries_ = 0;
    sim::Violation complaint_;
};

std::string text(const Ledger& ledger, const SyncFact& f) {
    static constexpr const char* strategies[] = {"enforcing", "receiving only", "sending only"};
    return formatted("{} sync {} of revision {} {} {} revision {}", ledger.name(f.life),
                     strategies[static_cast<std::size_t>(f.strategy)], f.revision, when(f.begin, f.end),
                     f.end == open_end ? "unanswered" : sim::to_text(f.completion.result), f.completion.revision);
}

template <class Fact>
std::vector<Intervals> by_life(const Ledger& ledger, const std::vector<Fact>& facts) {
    std::vector<Intervals> index(ledger.lives.size());
    for (std::size_t i = 0; i < facts.size(); ++i) index[facts[i].life].add(i, facts[i].begin, facts[i].end);
    return index;
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
            if (!succeeded(fact.completion, fact.end)) continue;
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

bool overlap(Instant begin, Instant end, Instant other_begin, Instant other_end) {
    return begin < other_end && other_begin < end;
}

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
        if (later.kind == CallKind::update_topology && later.begin >= own.end && succeeded(later.completion, later.end))
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

// Until when the vote of this call may count. If the member gave up in this call and no later call succeeded, its vote
// counts until the master notices that it is gone.
template <class Fact>
Instant counted_until(const Ledger& ledger, const Fact& fact, const Excuses& excuses) {
    const bool gave_up = !succeeded(fact.completion, fact.end) && ledger.gone_by(fact.life, fact.end);
    return gave_up && fact.end != open_end ? fact.end + excuses.seat_kept() : fact.end;
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

sim::Violation check_reduces(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    std::vector<bool> settled(ledger.launches.size(), false);
    AttemptSearch search(scenario, ledger, excuses, settled);
    for (std::size_t i = 0; i < ledger.launches.size(); ++i) {
        const LaunchFact& fact = ledger.launches[i];
        if (settled[i] || !succeeded(fact.completion, fact.end) || fact.shape.count == 0 ||
            ledger.lives[fact.life].liar || fact.collective.kind != CollectiveKind::all_reduce)
            continue;
        sim::Violation violation = search.check(i);
        if (!violation.oracle.empty()) return violation;
    }
    return {};
}

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
        return cast_in(ledger, vote, fact) && vote.at <= until && vote.revision == revision &&
               vote.strategy != SyncStrategy::receive_only;
    };
    const auto vote = std::find_if(ledger.false_votes.begin(), ledger.false_votes.end(), offers);
    return vote == ledger.false_votes.end() ? nullptr : &*vote;
}

// Whether the member itself named another revision than its program.
static bool false_revision(const Ledger& ledger, const SyncFact& own) {
    return std::any_of(ledger.false_votes.begin(), ledger.false_votes.end(), [&](const Ledger::FalseVote& vote) {
        return cast_in(ledger, vote, own) && vote.revision != own.revision;
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
        if (!succeeded(other.completion, other.end)) {
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
            if (refused && before != nullptr && before->completion.revision + 1 == own.revision &&
                !(false_revision(ledger, own) && excuses.use(Excuse::liar))) {
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
        if (!succeeded(own.completion, own.end) || ledger.lives[own.life].liar) continue;
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
                !succeeded(other.completion, other.end))
                return;
            // A removed peer may read its answer late. By then the group may have ended and begun again at revision 0.
            if (ledger.gone_by(own.life, other.begin) || ledger.gone_by(other.life, own.begin)) return;
            // An older journal lacks the outcome that one of them got.
            if (other.completion.revision == own.completion.revision && other.after != own.after &&
                !forgotten(excuses, ledger, own, other))
                other_content = &other;
        });
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
                if (succeeded(other.completion, other.end) ? other.completion.revision == own.completion.revision
                                                           : other.end == open_end)
                    good = true;
                if (other.end != open_end && !succeeded(other.completion, other.end)) failed = &other;
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

sim::Violation check_votes(const Scenario&, const Ledger& ledger, Excuses& excuses) {
    const std::vector<Intervals> votes = by_life(ledger, ledger.votes);
    std::vector<Instant> first_call(ledger.lives.size(), open_end);
    const auto called = [&](std::uint32_t life, Instant at) { first_call[life] = std::min(first_call[life], at); };
    // A synchronization votes only when its state is hashed. Another thread may have called the update before that, so
    // the time of the answer counts.
    for (const SyncFact& sync : ledger.syncs) called(sync.life, sync.answered);
    for (const LaunchFact& launch : ledger.launches) called(launch.life, launch.begin);
    for (std::size_t i = 0; i < ledger.votes.size(); ++i) {
        const VoteFact& own = ledger.votes[i];
        if (own.kind == CallKind::connect || ledger.lives[own.life].liar) continue;
        const bool first_of_life = own.begin < first_call[own.life];
        called(own.life, own.begin);
        if (!succeeded(own.completion, own.end)) continue;
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
                if (!succeeded(other.completion, other.end)) return;
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
