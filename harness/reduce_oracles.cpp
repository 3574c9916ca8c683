#include "harness/oracles.hpp"

#include "core/base/format.hpp"
#include "harness/facts.hpp"
#include "harness/intervals.hpp"
#include "harness/reference.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace pccl::harness {

using namespace core;

namespace {

std::string text(const Ledger& ledger, const LaunchFact& f) {
    return formatted("{} tag {} type {} op {}{} count {} {} {} world {}", ledger.name(f.life), f.tag,
                     static_cast<unsigned>(f.shape.type), static_cast<unsigned>(f.shape.op),
                     sim::to_text(f.shape.quantization), f.shape.count, when(f.begin, f.end),
                     f.end == open_end ? "unanswered" : sim::to_text(f.completion.result), f.completion.world);
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
        if (takes_part_uninvited(own, oldest_vote(own))) return {};
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
        const bool open = bytes <= scenario_.limits.vote_input_bytes_max && !succeeded(fact) &&
                          fact.end != open_end && ledger_.departed(fact.life, fact.completion, fact.end);
        return open ? open_end : fact.end;
    }
    std::uint32_t process_of(std::size_t candidate) const { return ledger_.launches[candidates_[candidate]].process; }
    int rank(const LaunchFact& own, std::size_t i) const {
        const LaunchFact& other = ledger_.launches[i];
        if (succeeded(other))
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
        const bool explained =
            scenario_.world.symbolic || (is_result(own.shape, exact, inputs_, own.output, 4) &&
                                         is_result(own.shape, exact, inputs_, own.output, own.shape.count));
        if (!explained && !falsified(own)) return false;
        // Any bytes fit a set with a liar in it, so another launch of the set may be of another operation.
        const auto contradicted = [&](const char* oracle, const LaunchFact& other, const char* what) {
            return explained ? complain(oracle, own, other, what) : false;
        };
        for (const std::size_t i : chosen_) {
            const LaunchFact& other = ledger_.launches[i];
            if (ledger_.lives[other.life].liar) continue;
            if (succeeded(other)) {
                const bool same = other.output == own.output;
                if (same && other.completion.world == own.completion.world) continue;
                // A reduction in a vote whose decision is lost is decided again by those who have not received it.
                if (forgotten(excuses_, ledger_, own, other)) continue;
                return same ? contradicted("membership", other, "world sizes differ")
                            : contradicted("parity", other, "bytes differ");
            } else if (other.end != open_end &&
                       (excuses_.refuses(Excuse::departed) ||
                        !ledger_.departed(other.life, other.completion, other.end)) &&
                       !forgotten(excuses_, ledger_, own, other)) {
                return contradicted("one-outcome", other, "one succeeded, the other failed");
            }
        }
        for (const std::size_t i : chosen_) {
            const LaunchFact& other = ledger_.launches[i];
            if (ledger_.lives[other.life].liar) continue;
            if (succeeded(other))
                settled_[i] = settled_[i] || other.output == own.output;
            else if (other.end != open_end && ledger_.departed(other.life, other.completion, other.end))
                excuses_.use(Excuse::departed);
        }
        return true;
    }

    // A vote that a liar repeats waits until the others call. The last operation with this tag took all votes that were
    // older than its launch, so only younger ones can wait for this one.
    Instant oldest_vote(const LaunchFact& own) const {
        Instant since = 0;
        for (const LaunchFact& other : ledger_.launches) {
            const bool same = other.process == own.process && other.group == own.group && other.tag == own.tag;
            if (same && succeeded(other) && other.end <= own.begin) since = std::max(since, other.begin);
        }
        return since;
    }

    // Whether a liar may have taken part in it by a vote that its program did not ask for, with any input, and that it
    // sent at `since` or later, or before it died if the master still counts it; or a stranger that replays what a member
    // sent. The other members must agree.
    bool takes_part_uninvited(const LaunchFact& own, Instant since = 0) {
        const auto counts_still = [&](std::uint32_t node, Instant at) {
            return std::any_of(ledger_.lives.begin(), ledger_.lives.end(), [&](const Life& life) {
                return life.node == node && life.asked_at <= at && at <= life.gone_at && life.gone_at <= own.begin &&
                       excuses_.counted_until(life.gone_at) >= own.begin;
            });
        };
        std::set<std::uint32_t> liars;
        for (const auto& [node, at] : ledger_.false_bytes) {
            if (at <= own.end && (at >= since || counts_still(node, at))) liars.insert(node);
        }
        const std::size_t uninvited = liars.size() + replaying_strangers(ledger_, excuses_, own.begin, own.end);
        if (uninvited == 0 || own.completion.world > by_process_.size() + uninvited) return false;
        // A member that stands still hears of the outcome later than the others.
        Instant decided = own.end;
        for (const std::size_t i : candidates_) {
            const LaunchFact& other = ledger_.launches[i];
            if (rank(own, i) == 0 && own.begin < other.end) decided = std::min(decided, other.end);
        }
        for (const std::size_t i : candidates_) {
            const LaunchFact& other = ledger_.launches[i];
            // This one took part in an earlier operation, and learned of its success late.
            if (settled_[i] && other.completion.world != own.completion.world) continue;
            if (!ledger_.lives[other.life].liar && succeeded(other) && other.begin < decided &&
                own.begin < other.end && other.output != own.output)
                return false;
        }
        return excuses_.use(liars.empty() ? Excuse::copied_token : Excuse::liar);
    }

    // Whether one of the chosen members sent false bytes for it, of which nobody else can tell that they are false. The
    // others must agree all the same.
    bool falsified(const LaunchFact& own) {
        const auto by = [&](std::size_t i) {
            return sent_false_bytes(ledger_, ledger_.lives[ledger_.launches[i].life].node, own.end);
        };
        return std::any_of(chosen_.begin(), chosen_.end(), by) && excuses_.use(Excuse::liar);
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

}  // namespace

sim::Violation check_reduces(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    std::vector<bool> settled(ledger.launches.size(), false);
    AttemptSearch search(scenario, ledger, excuses, settled);
    for (std::size_t i = 0; i < ledger.launches.size(); ++i) {
        const LaunchFact& fact = ledger.launches[i];
        if (settled[i] || !succeeded(fact) || fact.shape.count == 0 ||
            ledger.lives[fact.life].liar || fact.collective.kind != CollectiveKind::all_reduce)
            continue;
        sim::Violation violation = search.check(i);
        if (!violation.oracle.empty()) return violation;
    }
    return {};
}

}  // namespace pccl::harness
