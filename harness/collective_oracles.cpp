// Oracles for collectives other than an all-reduce. A success tells who took part, so it is known whose inputs count.
#include "core/base/format.hpp"
#include "harness/collectives.hpp"
#include "harness/facts.hpp"
#include "harness/intervals.hpp"
#include "harness/reference.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace pccl::harness {

using namespace core;

namespace {

std::string text(const Ledger& ledger, const LaunchFact& f) {
    return formatted("{} {} tag {} type {} op {} count {} piece {} {} {} world {}", ledger.name(f.life),
                     sim::to_text(f.collective.kind), f.tag, static_cast<unsigned>(f.shape.type),
                     static_cast<unsigned>(f.shape.op), f.shape.count, f.collective.count, when(f.begin, f.end),
                     f.end == open_end ? "unanswered" : sim::to_text(f.completion.result), f.completion.world);
}

class CollectiveCheck {
public:
    CollectiveCheck(const Scenario& scenario, const Ledger& ledger, Excuses& excuses)
        : scenario_(scenario), ledger_(ledger), excuses_(excuses) {
        for (std::size_t i = 0; i < ledger.launches.size(); ++i) {
            const LaunchFact& fact = ledger.launches[i];
            if (fact.collective.kind == CollectiveKind::send) continue;
            by_tag_[{fact.group, fact.tag}].add(i, fact.begin, counts_until(fact));
        }
        // A master without the record of an admission admits the member anew, as the youngest one.
        keeps_order_ = std::none_of(scenario.faults.begin(), scenario.faults.end(),
                                    [](const Fault& f) { return concerns_the_journal(f.kind); });
    }

    sim::Violation success(const LaunchFact& own) {
        const Completion& c = own.completion;
        const auto wrong = [&](std::string what) {
            return sim::Violation{"membership", formatted("{}: {}", what, text(ledger_, own))};
        };
        if (c.members.size() != c.world || c.world < 2) return wrong("not as many members as the world");
        const Uuid self = peer_of(own);
        if (c.index >= c.members.size() || c.members[c.index].peer != self ||
            (told_by_launch(own.collective.kind) && c.members[c.index].count != own.collective.count))
            return wrong("its own index names another member or another count");
        std::set<Uuid> distinct;
        for (const Completion::Part& member : c.members) distinct.insert(member.peer);
        if (distinct.size() != c.members.size()) return wrong("one member has two indices");
        if (const Uuid& root = own.collective.root; !root.is_nil() && !distinct.contains(root))
            return wrong("the root did not take part");
        candidates_.assign(c.members.size(), {});
        for (std::size_t i = 0; i < c.members.size(); ++i) {
            if (i == c.index)
                candidates_[i] = {&own};
            else
                find_candidates(own, c.members[i], candidates_[i]);
            if (candidates_[i].empty() && may_be_a_liar(ledger_, c.members[i].peer)) candidates_[i] = {nullptr};
            if (candidates_[i].empty())
                return wrong(formatted("peer {} with {} elements had not launched it", short_name(c.members[i].peer),
                                       c.members[i].count));
        }
        chosen_.clear();
        complaint_ = {};
        tries_ = 0;
        if (search(own) || tries_ >= tries_max) return {};
        if (!complaint_.oracle.empty()) return complaint_;
        std::string reason = formatted("{}: its bytes are not those of its members:", text(ledger_, own));
        for (const auto& of_one : candidates_) {
            for (const LaunchFact* fact : of_one) reason += fact == nullptr ? "" : "\n    " + text(ledger_, *fact);
        }
        return {"value", reason};
    }

    // Whether a refusal is explained by what members launched at that time.
    sim::Violation refusal(const LaunchFact& own) {
        const Completion& c = own.completion;
        const auto says = [&](CauseKind kind) { return c.cause.has(kind); };
        std::vector<const LaunchFact*> others;
        by_tag_.at({own.group, own.tag}).near(own.begin - excuses_.seat_kept(), own.end, [&](std::size_t i) {
            const LaunchFact& other = ledger_.launches[i];
            // The vote of one that has left or aborted counts until the master has heard of it.
            const bool lingers = other.end != open_end && ledger_.departed(other.life, other.completion, other.end);
            if (other.begin < own.end && (lingers || counts_until(other) > own.begin)) others.push_back(&other);
        });
        const auto any = [&](auto differs) {
            return std::any_of(others.begin(), others.end(), [&](const LaunchFact* other) { return differs(*other); });
        };
        const char* why = nullptr;
        if (says(CauseKind::shapes_differ)) {
            if (!any([&](const LaunchFact& other) {
                    return other.shape != own.shape || other.collective.kind != own.collective.kind ||
                           other.collective.root != own.collective.root;
                }))
                why = "all launched the same";
        } else if (const Cause* small = c.cause.find(CauseKind::room_too_small)) {
            const std::uint64_t room = small->numbers[0], comes = small->numbers[1];
            std::uint64_t most = 0;
            for (const LaunchFact* other : others) most += largest_piece(*other);
            if (room >= comes || comes > most ||
                std::none_of(others.begin(), others.end(), [&](const LaunchFact* other) {
                    return peer_of(*other) == small->peers[0] && other->collective.capacity == room;
                }))
                why = "that peer has room";
        } else if (says(CauseKind::pieces_too_large)) {
            const bool to_root = own.collective.kind == CollectiveKind::gather;
            std::uint64_t sum = 0, least = to_root ? open_end : own.collective.capacity;
            for (const LaunchFact* other : others) {
                sum += other->collective.count;
                if (!to_root || peer_of(*other) == own.collective.root)
                    least = std::min(least, other->collective.capacity);
            }
            if (sum <= least) why = "all pieces fit";
        } else if (says(CauseKind::pieces_misfit)) {
            std::map<std::uint32_t, std::uint64_t> pieces;
            std::uint64_t sum = 0;
            bool once = true;
            for (const LaunchFact* other : others) {
                once = pieces.emplace(other->process, other->collective.count).second && once;
                sum += other->collective.count;
            }
            // Some of them may not have taken part.
            const bool all_told = std::all_of(others.begin(), others.end(), [&](const LaunchFact* other) {
                return other->end != open_end && other->completion.cause == c.cause;
            });
            if (once && all_told && sum == own.shape.count)
                why = "the pieces are the whole";
            else if (once && all_told &&
                     any([&](const LaunchFact& other) { return chosen_for(other) != others.size(); }))
                why = "a piece was chosen for another size of the group";
        } else if (says(CauseKind::root_not_member)) {
            if (std::any_of(ledger_.lives.begin(), ledger_.lives.end(), [&](const Life& life) {
                    return life.peer == own.collective.root && life.group == own.group &&
                           life.connected_at <= own.begin && life.member_until >= own.end;
                }))
                why = "the root was a member all the time";
        } else if (const Cause* changed = c.cause.find(CauseKind::group_changed)) {
            if (c.result != Result::rank_connection_lost)
                why = "it can be tried again";
            else if (!any([&](const LaunchFact& other) {
                         return peer_of(other) == changed->peers[0] && chosen_for(other) == changed->numbers[0] &&
                                changed->numbers[0] != changed->numbers[1];
                     }))
                why = "that peer knew another world";
        } else if (says(CauseKind::too_many_members)) {
            // Counts for all pairs are longer than a list of members.
            const bool pairs = own.collective.kind == CollectiveKind::all_to_all;
            if (scenario_.peers.size() < (pairs ? 20u : 50u)) why = "there are not so many";
        } else if (says(CauseKind::no_such_collective) || says(CauseKind::gather_in_place) ||
                   says(CauseKind::only_all_reduce_quantized) || says(CauseKind::counts_misfit) ||
                   says(CauseKind::too_many_counts) || says(CauseKind::too_many_pieces) ||
                   says(CauseKind::vote_input_misfits) ||
                   says(CauseKind::vote_of_unknown_type) || says(CauseKind::vote_too_large)) {
            why = "no program does that";
        }
        if (why == nullptr) return {};
        // Or a member lied about what it launched.
        if (liar_beside(ledger_, excuses_, own.begin, own.end) && excuses_.use(Excuse::liar)) return {};
        // Or a stranger repeated what a member had launched before.
        if (replaying_strangers(ledger_, excuses_, own.begin, own.end) != 0 && excuses_.use(Excuse::copied_token))
            return {};
        return {"progress", formatted("{}, though {}: {}", to_text(c.cause), why, text(ledger_, own))};
    }

private:
    static constexpr std::uint64_t tries_max = 2'000;

    bool is_a_liar(const LaunchFact* fact) const { return fact == nullptr || ledger_.lives[fact->life].liar; }

    // Whether one of the chosen members sent false bytes, of which nobody else can tell that they are false; or a stranger
    // took the seat of one, and repeated an earlier vote with its input. The others must agree all the same.
    bool falsified(const LaunchFact& own) const {
        const auto by = [&](const LaunchFact* fact) {
            return fact == nullptr || sent_false_bytes(ledger_, ledger_.lives[fact->life].node, own.end);
        };
        if (std::any_of(chosen_.begin(), chosen_.end(), by) && excuses_.use(Excuse::liar)) return true;
        const auto replaced = [&](const LaunchFact* fact) {
            return fact != nullptr && !succeeded(*fact) && ledger_.departed(fact->life, fact->completion, fact->end);
        };
        return std::any_of(chosen_.begin(), chosen_.end(), replaced) &&
               replaying_strangers(ledger_, excuses_, own.begin, own.end) != 0 && excuses_.use(Excuse::copied_token);
    }

    Uuid peer_of(const LaunchFact& fact) const { return ledger_.lives[fact.life].peer; }

    // A vote counts until the master knows that the caller has gone. The others need no data of it in a barrier, or if the
    // vote carries its input.
    Instant counts_until(const LaunchFact& fact) const {
        const bool open = !succeeded(fact) && fact.end != open_end &&
                          ledger_.departed(fact.life, fact.completion, fact.end);
        return open ? open_end : fact.end;
    }

    // The size of the group for which the launch chose its pieces, as its vote says it.
    static std::uint32_t chosen_for(const LaunchFact& fact) {
        const bool votes_its_group =
            fact.collective.world == 0 && fact.collective.kind == CollectiveKind::reduce_scatter;
        return votes_its_group ? fact.group_world : fact.collective.world;
    }

    // The count of a member in a completion is the one that it launched.
    static bool told_by_launch(CollectiveKind kind) {
        return kind != CollectiveKind::scatter && kind != CollectiveKind::all_to_all;
    }

    // Elements that this launch has for the member with that index.
    static std::uint64_t piece_for(const LaunchFact& fact, std::size_t index) {
        const Collective& c = fact.collective;
        return c.counts.empty() ? c.count : index < c.counts.size() ? c.counts[index] : 0;
    }
    static std::uint64_t largest_piece(const LaunchFact& fact) {
        const Collective& c = fact.collective;
        return c.counts.empty() ? c.count : *std::max_element(c.counts.begin(), c.counts.end());
    }

    // Both name the same members. In an all_to_all each was told what it got itself.
    static bool same_members(const LaunchFact& one, const LaunchFact& other) {
        const auto& a = one.completion.members;
        const auto& b = other.completion.members;
        if (one.collective.kind != CollectiveKind::all_to_all) return a == b;
        return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                          [](const auto& x, const auto& y) { return x.peer == y.peer; });
    }

    int rank(const LaunchFact& own, const LaunchFact& other) const {
        if (succeeded(other)) return same_members(own, other) ? 0 : 2;
        return other.end == open_end || ledger_.departed(other.life, other.completion, other.end) ? 1 : 3;
    }

    void find_candidates(const LaunchFact& own, const Completion::Part& member,
                         std::vector<const LaunchFact*>& candidates) const {
        by_tag_.at({own.group, own.tag}).near(own.begin, own.end, [&](std::size_t i) {
            const LaunchFact& other = ledger_.launches[i];
            if (other.collective.kind == own.collective.kind && other.collective.root == own.collective.root &&
                other.shape == own.shape && peer_of(other) == member.peer && launched(own, other, member.count) &&
                counts_until(other) > own.begin)
                candidates.push_back(&other);
        });
        std::stable_sort(candidates.begin(), candidates.end(),
                         [&](const LaunchFact* a, const LaunchFact* b) { return rank(own, *a) < rank(own, *b); });
    }

    // Whether `other` can be the launch for which `own` was told this count.
    bool launched(const LaunchFact& own, const LaunchFact& other, std::uint64_t count) const {
        switch (own.collective.kind) {
        case CollectiveKind::scatter: {
            if (peer_of(other) != own.collective.root) return other.collective.capacity >= count;
            const auto& members = own.completion.members;
            for (std::size_t i = 0; i < members.size(); ++i) {
                if (piece_for(other, i) != members[i].count) return false;
            }
            return other.collective.world == members.size();
        }
        case CollectiveKind::all_to_all:
            return other.collective.world == own.completion.members.size() &&
                   piece_for(other, own.completion.index) == count;
        default: return other.collective.count == count;
        }
    }

    // `output` has `bytes` of `input`, from its byte `first` on, at `at`; moves `at` behind them.
    static bool holds(const std::vector<std::uint8_t>& output, std::size_t& at, const std::vector<std::uint8_t>& input,
                      std::size_t first, std::size_t bytes) {
        if (bytes > output.size() - at || first + bytes > input.size()) return false;
        if (bytes != 0 && std::memcmp(output.data() + at, input.data() + first, bytes) != 0) return false;
        at += bytes;
        return true;
    }

    bool search(const LaunchFact& own) {
        const std::size_t index = chosen_.size();
        if (index == candidates_.size()) {
            ++tries_;
            return (has_value(own) || falsified(own)) && agree(own);
        }
        for (const LaunchFact* candidate : candidates_[index]) {
            if (tries_ >= tries_max) return false;
            chosen_.push_back(candidate);
            if (search(own)) return true;
            chosen_.pop_back();
        }
        return false;
    }

    // The result, computed from the inputs of the chosen launches, which are in the order of indices.
    bool has_value(const LaunchFact& own) const {
        if (std::find(chosen_.begin(), chosen_.end(), nullptr) != chosen_.end()) return false;
        const std::size_t element = element_bytes(own.shape.type);
        const std::vector<std::uint8_t>& output = own.output;
        if (output.size() != result_bytes(own, peer_of(own))) return false;
        switch (own.collective.kind) {
        case CollectiveKind::gather:
            if (output.empty()) return true;
            [[fallthrough]];
        case CollectiveKind::all_gather: {
            std::size_t at = 0;
            return std::all_of(chosen_.begin(), chosen_.end(), [&](const LaunchFact* member) {
                return holds(output, at, member->input, 0, member->collective.count * element);
            });
        }
        case CollectiveKind::scatter: {
            std::size_t at = 0;
            const auto count = [&](std::size_t i) { return own.completion.members[i].count; };
            return std::any_of(chosen_.begin(), chosen_.end(), [&](const LaunchFact* member) {
                return peer_of(*member) == own.collective.root &&
                       holds(output, at, member->input, before(own, *member, count) * element, output.size());
            });
        }
        case CollectiveKind::all_to_all: {
            std::size_t at = 0;
            return std::all_of(chosen_.begin(), chosen_.end(), [&](const LaunchFact* member) {
                const auto count = [&](std::size_t i) { return piece_for(*member, i); };
                return holds(output, at, member->input, before(own, *member, count) * element,
                             piece_for(*member, own.completion.index) * element);
            });
        }
        case CollectiveKind::broadcast:
            return std::any_of(chosen_.begin(), chosen_.end(), [&](const LaunchFact* member) {
                return peer_of(*member) == own.collective.root &&
                       (output.empty() || std::memcmp(output.data(), member->input.data(), output.size()) == 0);
            });
        case CollectiveKind::reduce:
            return output.empty() || is_reduction(own.shape, output, [](const LaunchFact&) { return std::size_t{0}; });
        case CollectiveKind::reduce_scatter: {
            const auto count = [&](std::size_t i) { return chosen_[i]->collective.count; };
            ReduceShape piece = own.shape;
            piece.count = own.collective.count;
            return is_reduction(piece, output,
                                [&](const LaunchFact& member) { return before(own, member, count) * element; });
        }
        default: return true;
        }
    }

    // Elements that lie before the piece for the member of `own` in the input of another one. `count`: of each index.
    template <class Count>
    static std::size_t before(const LaunchFact& own, const LaunchFact& member, const Count& count) {
        std::size_t elements = 0;
        for (const std::size_t index : piece_places(member.collective, own.completion.members.size())) {
            if (index == own.completion.index) break;
            elements += count(index);
        }
        return elements;
    }

    // `first_of`: where the reduced part of the input of a member begins, in bytes.
    template <class First>
    bool is_reduction(const ReduceShape& shape, const std::vector<std::uint8_t>& output, const First& first_of) const {
        std::vector<std::vector<std::uint8_t>> parts;
        std::vector<const std::vector<std::uint8_t>*> inputs;
        parts.reserve(chosen_.size());
        for (const LaunchFact* member : chosen_) {
            const std::size_t first = first_of(*member);
            if (member->input.size() < first + output.size()) return false;
            const auto begin = member->input.begin() + static_cast<std::ptrdiff_t>(first);
            parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(output.size()));
            inputs.push_back(&parts.back());
        }
        return is_result(shape, scenario_.workload.exact, inputs, output, shape.count);
    }

    bool agree(const LaunchFact& own) {
        const bool shared = gives_all_the_same(own.collective.kind);
        std::vector<const LaunchFact*> departed;
        for (const LaunchFact* other : chosen_) {
            if (other == &own || is_a_liar(other)) continue;
            const Completion& c = other->completion;
            if (succeeded(*other)) {
                const bool same = same_members(own, *other);
                if (same && (!shared || other->output == own.output)) continue;
                // As for an all-reduce: the decision is lost, and those who have not received it decided again.
                if (forgotten(excuses_, ledger_, own, *other)) continue;
                return same ? complain("parity", own, *other, "bytes differ")
                            : complain("membership", own, *other, "other members were named");
            } else if (other->end != open_end) {
                const bool gone = !excuses_.refuses(Excuse::departed) && ledger_.departed(other->life, c, other->end);
                if (gone)
                    departed.push_back(other);
                else if (!forgotten(excuses_, ledger_, own, *other))
                    return complain("one-outcome", own, *other, "one succeeded, the other failed");
            }
        }
        for (std::size_t i = 0; keeps_order_ && i < chosen_.size(); ++i) {
            for (std::size_t k = i + 1; k < chosen_.size(); ++k) {
                if (is_a_liar(chosen_[i]) || is_a_liar(chosen_[k])) continue;
                if (ledger_.lives[chosen_[k]->life].connected_at < ledger_.lives[chosen_[i]->life].asked_at)
                    return complain("membership", *chosen_[i], *chosen_[k], "a member has an index below an older one");
            }
        }
        for (std::size_t i = 0; i < departed.size(); ++i) excuses_.use(Excuse::departed);
        return true;
    }

    bool complain(const char* oracle, const LaunchFact& own, const LaunchFact& other, const char* what) {
        if (complaint_.oracle.empty())
            complaint_ = {oracle, formatted("{}:\n    {}\n    {}", what, text(ledger_, own), text(ledger_, other))};
        return false;
    }

    const Scenario& scenario_;
    const Ledger& ledger_;
    Excuses& excuses_;
    bool keeps_order_ = true;
    std::map<std::pair<GroupId, Tag>, Intervals> by_tag_;
    std::vector<std::vector<const LaunchFact*>> candidates_;  // by index
    std::vector<const LaunchFact*> chosen_;
    std::uint64_t tries_ = 0;
    sim::Violation complaint_;
};

}  // namespace

sim::Violation check_collectives(const Scenario& scenario, const Ledger& ledger, Excuses& excuses) {
    // A call for many tags launches none of them, and its cause is that of any tag.
    if (scenario.workload.collectives_per_mille == 0 || scenario.workload.many_window != 0) return {};
    CollectiveCheck check(scenario, ledger, excuses);
    for (const LaunchFact& fact : ledger.launches) {
        if (fact.end == open_end || fact.collective.kind == CollectiveKind::send || ledger.lives[fact.life].liar)
            continue;
        sim::Violation violation;
        if (fact.completion.result != Result::success)
            violation = check.refusal(fact);
        else if (fact.collective.kind != CollectiveKind::all_reduce)
            violation = check.success(fact);
        if (!violation.oracle.empty()) return violation;
    }
    return {};
}

}  // namespace pccl::harness
