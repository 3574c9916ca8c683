#include "core/topology/joiners.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/topology/ring_search.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>

namespace pccl::core {

namespace {

// A newcomer is tried with this many members, one after the other, before it counts as unreachable.
constexpr std::uint32_t anchors_tried = 3;
constexpr std::size_t searches_max = 4;
// A newcomer behind a translator is turned away after so many turns in which it was not reached.
constexpr std::uint32_t turns_in_vain = 1;

}  // namespace

// Each newcomer takes a connection at the member before it and at the member behind it. Those are often the same
// members for all newcomers, so a newcomer counts as two connections.
std::size_t Joiners::newcomers_at_a_time(const std::vector<Uuid>& ring) const {
    constexpr std::uint32_t a_few = 64;
    if (ring.empty()) return joiners_.size();
    std::uint32_t least = ~std::uint32_t{0};
    for (const Uuid& uuid : {ring.front(), ring.back()}) {
        const std::uint32_t told = roster_.newcomer_links(uuid);
        least = std::min(least, told == 0 ? a_few : told);
    }
    return std::max<std::size_t>(least / 2, 1);
}

void Joiners::comes_last(const Uuid& uuid, Joiner& joiner) {
    PROBE(joiner_unreachable);
    joiner.told_unreachable = joiner.behind = true;
    joiner.moved = turn_.now;
    proto::MasterMessage message;
    message.mutable_notice()->set_warn(true);
    message.mutable_notice()->set_text(
        formatted("cannot be admitted yet: the members and this peer ({}{}) cannot connect to each other; open the "
                  "port or set an address that the others can reach",
                  to_text(joiner.endpoint),
                  joiner.location.translated ? ", translated from " + to_text(joiner.location.local) : std::string()));
    roster_.say(uuid, std::move(message));
}

// Unreachable newcomers come last, so that they do not keep others waiting. But others may come for ever, so each
// unreachable newcomer gets a turn now and then. The turns are so short that together they take a quarter of the time.
// While a newcomer is connected, no turn begins: the connected one keeps its place until the next update admits it,
// because updates may come at the pace of the turns.
// A newcomer that cannot be admitted keeps its place for some turns only, whatever it reports about its connections.
void Joiners::take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list) {
    constexpr Duration turns_of_a_place = 8;
    const Duration turn = turn_.timeouts.peer;
    const auto members = state_.groups.find(group);
    const bool open = members != state_.groups.end() && edges_.ring_up(members->second.ring);
    const auto overdue = [&](const Joiner& joiner) {
        return open && !joiner.told_unreachable && joiner.placed != never &&
               turn_.now - joiner.placed > turns_of_a_place * turn;
    };
    const std::int64_t unreachable = std::count_if(
        list.begin(), list.end(), [&](const auto& entry) { return joiners_.at(entry.second).told_unreachable; });
    if (unreachable == 0 &&
        std::none_of(list.begin(), list.end(), [&](const auto& entry) { return overdue(joiners_.at(entry.second)); }))
        return;
    std::vector<Uuid> ring;
    std::vector<Uuid> connected = admissible(group, ring);
    // The founder of a group needs no connection, so being admissible is no evidence that others reach it.
    if (!state_.groups.contains(group) && connected.size() == 1 && list.size() > 1) connected.clear();
    for (const auto& [order, uuid] : list) {
        Joiner& joiner = joiners_.at(uuid);
        if (!joiner.told_unreachable && !overdue(joiner)) continue;
        if (std::find(connected.begin(), connected.end(), uuid) != connected.end()) {
            joiner.told_unreachable = joiner.behind = false;
            joiner.in_vain = 0;
            joiner.placed = turn_.now;
        } else if (!joiner.told_unreachable) {
            comes_last(uuid, joiner);
        } else if (joiner.behind ? connected.empty() && turn_.now - joiner.moved >= 4 * unreachable * turn
                                 : turn_.now - joiner.moved >= turn) {
            if (joiner.behind) PROBE(joiner_tried_again);
            if (!joiner.behind) ++joiner.in_vain;
            joiner.behind = !joiner.behind;
            joiner.moved = turn_.now;
        }
    }
}

void Joiners::plan() {
    if (turn_.now != planned_at_) admission_turn_ += searches_max;
    planned_at_ = turn_.now;
    const Duration grace = turn_.timeouts.edge_grace();
    std::map<GroupId, std::vector<std::pair<std::uint64_t, Uuid>>> by_group;
    for (const auto& [uuid, joiner] : joiners_) by_group[joiner.group].emplace_back(joiner.order, uuid);
    for (auto& [id, list] : by_group) {
        std::vector<Uuid> base;
        const auto group = state_.groups.find(id);
        if (group != state_.groups.end()) base = group->second.ring;
        take_turns(id, list);
        std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
            const bool a_last = joiners_.at(a.second).behind;
            const bool b_last = joiners_.at(b.second).behind;
            return a_last != b_last ? b_last : a < b;
        });
        if (const std::size_t most = newcomers_at_a_time(base); list.size() > most) {
            PROBE(newcomers_take_turns);
            // Its turn begins only when the newcomers before it have had theirs.
            for (auto waits = list.begin() + static_cast<std::ptrdiff_t>(most); waits != list.end(); ++waits) {
                Joiner& joiner = joiners_.at(waits->second);
                if (joiner.told_unreachable && !joiner.behind) joiner.moved = turn_.now;
                joiner.placed = never;
            }
            list.resize(most);
        }
        for (const auto& [order, uuid] : list) {
            Joiner& joiner = joiners_.at(uuid);
            if (joiner.placed == never) joiner.placed = turn_.now;
        }
        std::vector<Uuid> order = base;
        for (const auto& [registered, uuid] : list) order.push_back(uuid);
        // Two members between which the newcomer can be. They must differ if there is more than one member: otherwise
        // no ring would contain the newcomer and all the others.
        const auto reached = [&](const Uuid& from, const Uuid& to) { return !rings_.marked(from, to); };
        const std::vector<Uuid> anchors = base.empty() ? std::vector<Uuid>{order.front()} : base;
        const auto between = [&](const Uuid& newcomer) -> std::optional<std::pair<Uuid, Uuid>> {
            for (auto from = anchors.rbegin(); from != anchors.rend(); ++from) {
                if (!reached(*from, newcomer)) continue;
                for (const Uuid& to : anchors) {
                    if ((to != *from || anchors.size() == 1) && reached(newcomer, to)) return std::pair{*from, to};
                }
            }
            return std::nullopt;
        };
        // Placing the newcomer between two members that can connect with it may leave the others without a ring. So
        // this function takes its neighbours from a ring through all of them.
        std::size_t searches = 0;
        const auto place = [&](const Uuid& newcomer) -> std::optional<std::pair<Uuid, Uuid>> {
            const auto at = between(newcomer);
            if (base.empty() || !at || *at == std::pair{base.back(), base.front()} || ++searches > searches_max)
                return at;
            std::vector<Uuid> candidate = base;
            candidate.push_back(newcomer);
            const auto ring = choose_ring(candidate, [&](const Uuid& a, const Uuid& b) { return rings_.marked(a, b); });
            if (!ring) return at;
            const auto found = std::find(ring->begin(), ring->end(), newcomer);
            return std::pair{found == ring->begin() ? ring->back() : found[-1],
                             found + 1 == ring->end() ? ring->front() : found[1]};
        };
        // Other members may reach a newcomer that these members cannot reach.
        const auto others_left = [&](const Uuid& newcomer) {
            return !base.empty() && edges_.distinct_marks(newcomer, base, turn_.now) < anchors_tried &&
                   between(newcomer);
        };
        const auto connected = [&](const Uuid& newcomer) {
            const auto from = [&](const Uuid& member) { return edges_.up(member, newcomer); };
            const auto to = [&](const Uuid& member) { return edges_.up_at_both_ends(newcomer, member); };
            return std::any_of(base.begin(), base.end(), from) && std::any_of(base.begin(), base.end(), to);
        };
        const auto want = [&](const Uuid& from, const Uuid& to) {
            if (from == to) return;
            if (!rings_.edge_failed_long(from, to, grace)) return;
            const auto a = joiners_.find(from), b = joiners_.find(to);
            const bool both_wait = a != joiners_.end() && b != joiners_.end();
            // If both ends are newcomers, neither is to blame, because each is tried with the members too. If there are
            // no members, the newcomer that fails with more of the others is to blame.
            if (both_wait && !base.empty()) return;
            const auto worse = [&] {
                const std::uint32_t of_a = edges_.distinct_marks(from, order, turn_.now);
                const std::uint32_t of_b = edges_.distinct_marks(to, order, turn_.now);
                return of_a != of_b ? (of_a > of_b ? a : b) : (a->second.order > b->second.order ? a : b);
            };
            for (const Uuid& end : both_wait ? std::vector<Uuid>{worse()->first} : std::vector<Uuid>{from, to}) {
                const auto joiner = joiners_.find(end);
                if (joiner == joiners_.end() || joiner->second.told_unreachable) continue;
                if (others_left(end) || connected(end)) {
                    PROBE(joiner_tries_other_members);
                    continue;
                }
                comes_last(end, joiner->second);
            }
        };
        // Wants the newcomers as a chain behind the ring, and each one alone between two members that can connect with
        // it.
        for (std::size_t i = base.empty() ? 0 : base.size() - 1; i < order.size(); ++i) {
            want(order[i], order[(i + 1) % order.size()]);
        }
        for (const auto& entry : list) {
            const Uuid& uuid = entry.second;
            Joiner& joiner = joiners_.at(uuid);
            const auto [from, to] = place(uuid).value_or(std::pair{anchors.back(), anchors.front()});
            want(from, uuid);
            want(uuid, to);
            if (entry != list.front()) continue;
            // The first newcomer keeps its two members for a while. Otherwise another newcomer that is admitted and
            // leaves again, faster than this one connects, would move its place each time and keep it out for ever.
            const auto member = [&](const Uuid& anchor) { return state_.members.contains(anchor); };
            if (!member(joiner.reached_from) || !member(joiner.reaches) ||
                turn_.now - joiner.anchored > turn_.timeouts.peer) {
                joiner.reached_from = from;
                joiner.reaches = to;
                joiner.anchored = turn_.now;
            }
            if (!member(joiner.reached_from) || !member(joiner.reaches)) continue;
            if (joiner.reached_from != from || joiner.reaches != to) PROBE(joiner_keeps_its_place);
            want(joiner.reached_from, uuid);
            want(uuid, joiner.reaches);
        }
    }
}

std::vector<Uuid> Joiners::admissible(GroupId id, std::vector<Uuid>& ring) const {
    const auto group = state_.groups.find(id);
    ring = group == state_.groups.end() ? std::vector<Uuid>{} : group->second.ring;
    // The first newcomer of a group without members founds it, so unreachable newcomers come last.
    std::vector<std::pair<std::pair<bool, std::uint64_t>, Uuid>> list;
    for (const auto& [uuid, joiner] : joiners_) {
        if (joiner.group == id) list.push_back({{joiner.behind, joiner.order}, uuid});
    }
    std::sort(list.begin(), list.end());
    const auto forbidden = [&](const Uuid& a, const Uuid& b) {
        if (rings_.marked(a, b)) return true;
        // A newcomer's report about a connection counts only if the other end reports it too.
        if (!state_.members.contains(a)) return !edges_.up_at_both_ends(a, b);
        return !state_.members.contains(b) && !edges_.up(a, b);
    };
    // If the ring can stay as it is, only the newcomer's two edges are checked. No ring is searched for a newcomer that
    // nobody reaches or that reaches nobody. With a thousand members, a search for each newcomer would cost too much.
    bool chain = true;
    for (std::size_t i = 0; i + 1 < ring.size() && chain; ++i) chain = !forbidden(ring[i], ring[i + 1]);
    std::vector<Uuid> admitted;
    const auto appended = [&](const Uuid& newcomer) {
        if (!ring.empty() && (!chain || forbidden(ring.back(), newcomer) || forbidden(newcomer, ring.front())))
            return false;
        ring.push_back(newcomer);
        admitted.push_back(newcomer);
        return true;
    };
    std::vector<Uuid> elsewhere;  // may fit elsewhere than at the end of the ring
    for (const auto& entry : list) {
        const Uuid& newcomer = entry.second;
        if (appended(newcomer)) continue;
        const auto from = [&](const Uuid& a) { return !forbidden(a, newcomer); };
        const auto to = [&](const Uuid& a) { return !forbidden(newcomer, a); };
        if (std::any_of(ring.begin(), ring.end(), from) && std::any_of(ring.begin(), ring.end(), to))
            elsewhere.push_back(newcomer);
    }
    // A search that finds nothing takes long. Each look allows a few of them, and later looks begin with other
    // newcomers.
    std::size_t in_vain = 0;
    for (std::size_t i = 0; i < elsewhere.size() && in_vain < searches_max; ++i) {
        const Uuid& newcomer = elsewhere[(admission_turn_ + i) % elsewhere.size()];
        if (appended(newcomer)) continue;
        std::vector<Uuid> candidate = ring;
        candidate.push_back(newcomer);
        const auto with = choose_ring(candidate, forbidden);
        if (!with) {
            PROBE(joiner_not_admissible);
            ++in_vain;
            continue;
        }
        ring = *with;
        chain = true;  // the ring that was found has no forbidden edge
        admitted.push_back(newcomer);
    }
    return admitted;
}

bool Joiners::any_admissible() const {
    const std::vector<GroupId> all = groups();
    std::vector<Uuid> ring;
    return std::any_of(all.begin(), all.end(), [&](GroupId id) { return !admissible(id, ring).empty(); });
}

std::vector<GroupId> Joiners::groups() const {
    std::set<GroupId> groups;
    for (const auto& [uuid, joiner] : joiners_) groups.insert(joiner.group);
    return {groups.begin(), groups.end()};
}

std::vector<Uuid> Joiners::in_order(GroupId group) const {
    std::vector<std::pair<std::uint64_t, Uuid>> list;
    for (const auto& [uuid, joiner] : joiners_) {
        if (joiner.group == group) list.emplace_back(joiner.order, uuid);
    }
    std::sort(list.begin(), list.end());
    std::vector<Uuid> order;
    for (const auto& [at, uuid] : list) order.push_back(uuid);
    return order;
}

Joiners::Joiner& Joiners::add(const Uuid& uuid) {
    Joiner& joiner = joiners_[uuid];
    joiner.order = ++registration_order_;
    joiner.since = turn_.now;
    return joiner;
}

bool Joiners::reports_too_much(const Uuid& uuid) {
    const auto joiner = joiners_.find(uuid);
    return joiner != joiners_.end() && ++joiner->second.reports > turn_.limits.joiner_reports_at_once;
}

void Joiners::tick() {
    std::vector<std::pair<Uuid, Cause>> hopeless;
    for (auto& [uuid, joiner] : joiners_) {
        joiner.reports = 0;
        // What a translator lets through does not change by waiting, as a network that is down does.
        if (joiner.location.translated && joiner.in_vain >= turns_in_vain)
            hopeless.emplace_back(uuid, make_cause<CauseKind::no_way_through>(
                                            to_text(joiner.endpoint), to_text(joiner.location.local), tried(uuid)));
    }
    for (const auto& [uuid, cause] : hopeless) {
        PROBE(joiner_turned_away);
        roster_.turn_away(uuid, cause);
    }
}

// The peers with which the newcomer could not connect, for its error message.
std::string Joiners::tried(const Uuid& newcomer) const {
    constexpr std::size_t named_most = 4;
    std::string text;
    std::size_t count = 0;
    for (const Uuid& other : edges_.tried_with(newcomer)) {
        const auto endpoint = roster_.endpoint_for(newcomer, other);
        if (!endpoint || ++count > named_most) continue;
        text += formatted("{}peer {} at {}{}", text.empty() ? "" : ", ", short_name(other), to_text(*endpoint),
                          roster_.is_translated_for(newcomer, other) ? " (translated too)" : "");
    }
    if (count > named_most) text += formatted(" and {} more", count - named_most);
    return text.empty() ? "no other peer" : text;
}

void Joiners::disk_hung(Duration time) { slept(Sleep{turn_.now, time, false}); }

void Joiners::slept(const Sleep& sleep) {
    for (auto& [uuid, joiner] : joiners_) {
        if (joiner.placed != never) sleep.leave_out(joiner.placed);
    }
}

void Joiners::check() const {
    for (const auto& [uuid, joiner] : joiners_) {
        ASSERT(!state_.members.contains(uuid));
        ASSERT(joiner.link != 0 && joiner.order <= registration_order_);
        ASSERT(!joiner.behind || joiner.told_unreachable);
    }
}

}  // namespace pccl::core
