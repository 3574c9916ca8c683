#include "core/topology/joiners.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/topology/ring_search.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace pccl::core {

namespace {

// A newcomer is tried with this many members, one after the other, before it counts as unreachable.
constexpr std::uint32_t anchors_tried = 3;
constexpr std::size_t searches_max = 4;
constexpr std::size_t together_max = 8;  // newcomers for which a ring with several of them is searched
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

// The newcomer and, if it is in a complete gang, the others of its gang: they are admitted together.
std::vector<Uuid> Joiners::unit_of(const Uuid& uuid) const {
    const Joiner& joiner = joiners_.at(uuid);
    if (joiner.gang.none() || !gangs_.complete_with(uuid, joiner.gang)) return {uuid};
    std::vector<Uuid> unit;
    for (const auto& [place, holder] : gangs_.find(joiner.gang.name)->holders) unit.push_back(holder);
    return unit;
}

// The newcomer whose clocks are those of the unit.
Joiners::Joiner& Joiners::lead_of(const Uuid& uuid) { return joiners_.at(unit_of(uuid).front()); }

void Joiners::set_behind(const Uuid& uuid, bool told_unreachable, bool behind) {
    for (const Uuid& each : unit_of(uuid)) {
        Joiner& joiner = joiners_.at(each);
        joiner.told_unreachable = told_unreachable;
        joiner.behind = behind;
        joiner.unreached = joiner.unreached && told_unreachable;
    }
}

void Joiners::comes_last(const Uuid& uuid) {
    PROBE(joiner_unreachable);
    set_behind(uuid, true, true);
    lead_of(uuid).moved = turn_.now;
    Joiner& unreached = joiners_.at(uuid);
    unreached.unreached = true;
    const std::string where =
        to_text(unreached.endpoint) + (unreached.location.is_translated()
                                           ? ", translated from " + to_text(unreached.location.inside)
                                           : std::string());
    const std::vector<Uuid> unit = unit_of(uuid);
    if (unit.size() > 1) PROBE(gang_unreachable);
    for (const Uuid& each : unit) {
        proto::MasterMessage message;
        message.mutable_notice()->set_warn(true);
        if (each == uuid)
            message.mutable_notice()->set_text(
                formatted("cannot be admitted yet: the members and this peer ({}) cannot connect to each other; open "
                          "the port or set an address that the others can reach",
                          where));
        else
            message.mutable_notice()->set_text(
                formatted("gang '{}' cannot be admitted yet: the members and its place {} ({}) cannot connect to each "
                          "other",
                          unreached.gang.name, unreached.gang.place, where));
        roster_.say(each, std::move(message));
    }
}

// Unreachable newcomers come last, so that they do not keep others waiting. But others may come for ever, so each
// unreachable newcomer gets a turn now and then. The turns are so short that together they take a quarter of the time.
// While a newcomer is connected, no turn begins: the connected one keeps its place until the next update admits it,
// because updates may come at the pace of the turns.
// A newcomer that cannot be admitted keeps its place for some turns only, whatever it reports about its connections.
void Joiners::take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list,
                         std::optional<Admissions>& now) {
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
    std::vector<Uuid> ring, connected;
    if (gangs_.empty()) {
        connected = admissible(group, ring, {});
    } else {
        if (!now) now = admissible();
        if (const auto found = now->find(group); found != now->end()) connected = found->second.admitted;
    }
    // The founder of a group needs no connection, so being admissible is no evidence that others reach it.
    if (!state_.groups.contains(group) && connected.size() == 1 && list.size() > 1) connected.clear();
    for (const auto& [order, uuid] : list) {
        Joiner& joiner = joiners_.at(uuid);
        if (&joiner != &lead_of(uuid)) continue;  // its gang is judged as a whole
        if (!joiner.told_unreachable && !overdue(joiner)) continue;
        if (std::find(connected.begin(), connected.end(), uuid) != connected.end()) {
            set_behind(uuid, false, false);
            joiner.in_vain = 0;
            joiner.placed = turn_.now;
        } else if (!joiner.told_unreachable) {
            comes_last(uuid);
        } else if (joiner.behind ? connected.empty() && turn_.now - joiner.moved >= 4 * unreachable * turn
                                 : turn_.now - joiner.moved >= turn) {
            if (joiner.behind) PROBE(joiner_tried_again);
            if (!joiner.behind) ++joiner.in_vain;
            set_behind(uuid, true, !joiner.behind);
            joiner.moved = turn_.now;
        }
    }
}

void Joiners::plan() {
    if (turn_.now != planned_at_) admission_turn_ += searches_max;
    planned_at_ = turn_.now;
    for (const std::string& name : gangs_.give_free_places()) complete_gang(name);
    const Duration grace = turn_.timeouts.edge_grace();
    std::map<GroupId, std::vector<std::pair<std::uint64_t, Uuid>>> by_group;
    for (const auto& [uuid, joiner] : joiners_) {
        if (takes_part(uuid, joiner)) by_group[joiner.group].emplace_back(joiner.order, uuid);
    }
    std::optional<Admissions> now;
    for (auto& [id, list] : by_group) {
        std::vector<Uuid> base;
        const auto group = state_.groups.find(id);
        if (group != state_.groups.end()) base = group->second.ring;
        take_turns(id, list, now);
        std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
            const bool a_last = joiners_.at(a.second).behind;
            const bool b_last = joiners_.at(b.second).behind;
            return a_last != b_last ? b_last : a < b;
        });
        const std::size_t most_apart = newcomers_at_a_time(base);
        std::size_t most = most_apart;
        if (const std::string first = joiners_.at(list.front().second).gang.name; !first.empty()) {
            // A gang is admitted as a whole, so all its places in this group are tried together. Those that are too many
            // for the members are tried in the chain only, which costs the members no connections.
            const auto rest = std::stable_partition(list.begin(), list.end(), [&](const auto& entry) {
                return joiners_.at(entry.second).gang.name == first;
            });
            most = std::max(most, static_cast<std::size_t>(rest - list.begin()));
        }
        if (list.size() > most) {
            PROBE(newcomers_take_turns);
            // Its turn begins only when the newcomers before it have had theirs. A gang waits as a whole.
            for (auto waits = list.begin() + static_cast<std::ptrdiff_t>(most); waits != list.end(); ++waits) {
                Joiner& joiner = joiners_.at(waits->second);
                if (joiner.told_unreachable && !joiner.behind) lead_of(waits->second).moved = turn_.now;
                for (const Uuid& each : unit_of(waits->second)) joiners_.at(each).placed = never;
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
                comes_last(end);
            }
        };
        // Wants the newcomers as a chain behind the ring, and each one alone between two members that can connect with
        // it. Newcomers that reach few members may fit only together and in another order: that of a ring through all.
        const std::size_t behind = base.empty() ? 0 : base.size() - 1;
        const auto next = [&](std::size_t i) { return order[(i + 1) % order.size()]; };
        const auto broken = [&] {
            for (std::size_t i = behind; i < order.size(); ++i) {
                if (!reached(order[i], next(i))) return true;
            }
            return false;
        };
        if (!base.empty() && list.size() > 1 && list.size() <= together_max && broken()) {
            if (const auto ring = choose_ring(order, [&](const Uuid& a, const Uuid& b) { return !reached(a, b); })) {
                PROBE(newcomers_in_another_order);
                for (std::size_t i = 0; i < ring->size(); ++i) {
                    const Uuid &from = (*ring)[i], &to = (*ring)[(i + 1) % ring->size()];
                    if (joiners_.contains(from) || joiners_.contains(to)) want(from, to);
                }
            }
        }
        for (std::size_t i = behind; i < order.size(); ++i) want(order[i], next(i));
        for (std::size_t i = 0; i < std::min(most_apart, list.size()); ++i) {
            const auto& entry = list[i];
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

// A gang is left out of all groups if one of its places cannot be admitted. The rings are made anew without it, because
// other newcomers may be in them only thanks to it. Each round leaves out a further gang, or is the last one.
Joiners::Admissions Joiners::admissible() const {
    Names left_out;
    for (;;) {
        Admissions now;
        std::map<std::string, std::size_t> places;
        for (const GroupId id : groups()) {
            Admission admission;
            admission.admitted = admissible(id, admission.ring, left_out);
            for (const Uuid& uuid : admission.admitted) ++places[joiners_.at(uuid).gang.name];
            if (!admission.admitted.empty()) now.emplace(id, std::move(admission));
        }
        bool again = false;
        for (const auto& [name, gang] : gangs_.all()) {
            if (!gangs_.complete(name) || left_out.contains(name) || places[name] == gang.size) continue;
            again = again || places[name] != 0;
            left_out.insert(name);
        }
        if (!again) return now;
        PROBE(gang_left_out);
    }
}

Joiners::Admissions Joiners::everybody() const {
    std::map<GroupId, std::vector<std::pair<std::uint64_t, Uuid>>> by_group;
    for (const auto& [uuid, joiner] : joiners_) {
        if (takes_part(uuid, joiner)) by_group[joiner.group].emplace_back(joiner.order, uuid);
    }
    Admissions all;
    for (auto& [id, list] : by_group) {
        std::sort(list.begin(), list.end());
        Admission& admission = all[id];
        for (const auto& [order, uuid] : list) admission.admitted.push_back(uuid);
        admission.ring = admission.admitted;
    }
    return all;
}

std::vector<Uuid> Joiners::admissible(GroupId id, std::vector<Uuid>& ring, const Names& left_out) const {
    const auto group = state_.groups.find(id);
    ring = group == state_.groups.end() ? std::vector<Uuid>{} : group->second.ring;
    // The first newcomer of a group without members founds it, so unreachable newcomers come last.
    std::vector<std::pair<std::pair<bool, std::uint64_t>, Uuid>> list;
    for (const auto& [uuid, joiner] : joiners_) {
        if (joiner.group == id && takes_part(uuid, joiner) && !left_out.contains(joiner.gang.name))
            list.push_back({{joiner.behind, joiner.order}, uuid});
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
    // With a search for a ring.
    const auto joined = [&](const std::vector<Uuid>& newcomers) {
        std::vector<Uuid> candidate = ring;
        candidate.insert(candidate.end(), newcomers.begin(), newcomers.end());
        const auto with = choose_ring(candidate, forbidden);
        if (!with) return false;
        ring = *with;
        chain = true;  // the ring that was found has no forbidden edge
        admitted.insert(admitted.end(), newcomers.begin(), newcomers.end());
        return true;
    };
    std::vector<Uuid> elsewhere;  // may fit elsewhere than at the end of the ring
    std::vector<Uuid> waiting;    // the first of those that are not appended
    for (const auto& entry : list) {
        const Uuid& newcomer = entry.second;
        if (appended(newcomer)) continue;
        if (waiting.size() < together_max) waiting.push_back(newcomer);
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
        if (appended(newcomer) || joined({newcomer})) continue;
        PROBE(joiner_not_admissible);
        ++in_vain;
    }
    // Some newcomers fit only together: a member reaches the first one, and only the last one reaches a member.
    std::erase_if(waiting, [&](const Uuid& a) { return std::find(ring.begin(), ring.end(), a) != ring.end(); });
    const auto connected = [&](const Uuid& newcomer) {
        const auto has = [&](const auto& allowed) {
            return std::any_of(ring.begin(), ring.end(), allowed) ||
                   std::any_of(waiting.begin(), waiting.end(),
                               [&](const Uuid& other) { return other != newcomer && allowed(other); });
        };
        return has([&](const Uuid& a) { return !forbidden(a, newcomer); }) &&
               has([&](const Uuid& a) { return !forbidden(newcomer, a); });
    };
    std::vector<Uuid> together;
    std::copy_if(waiting.begin(), waiting.end(), std::back_inserter(together), connected);
    if (together.size() < 2 || joined(together) || together.size() == 2) return admitted;
    // Two of them, each time another two.
    const std::size_t turn = admission_turn_ / searches_max;
    const std::size_t first = turn % together.size();
    const std::size_t step = 1 + turn / together.size() % (together.size() - 1);
    joined({together[first], together[(first + step) % together.size()]});
    return admitted;
}

bool Joiners::any_admissible() const {
    if (!gangs_.empty()) return !admissible().empty();
    const std::vector<GroupId> all = groups();
    std::vector<Uuid> ring;
    return std::any_of(all.begin(), all.end(), [&](GroupId id) { return !admissible(id, ring, {}).empty(); });
}

std::vector<GroupId> Joiners::groups() const {
    std::set<GroupId> groups;
    for (const auto& [uuid, joiner] : joiners_) groups.insert(joiner.group);
    return {groups.begin(), groups.end()};
}

std::size_t Joiners::taking_part() const { return joiners_.size() - gangs_.waiting(); }

Joiners::Joiner& Joiners::add(const Uuid& uuid) {
    Joiner& joiner = joiners_[uuid];
    joiner.order = ++registration_order_;
    joiner.since = turn_.now;
    return joiner;
}

void Joiners::erase(const Uuid& uuid) {
    const auto joiner = joiners_.find(uuid);
    if (joiner == joiners_.end()) return;
    if (!joiner->second.gang.none()) gangs_.leave(uuid, joiner->second.gang);
    joiners_.erase(joiner);
}

void Joiners::enter_gang(const Uuid& uuid) {
    Joiner& joiner = joiners_.at(uuid);
    joiner.asked = joiner.misses_since = turn_.now;
    if (gangs_.enter(uuid, joiner.gang)) complete_gang(joiner.gang.name);
}

// Its newcomers begin to connect with members. They have the same place in the order of each group: otherwise two gangs
// could wait for each other, each with a newcomer before the other's.
void Joiners::complete_gang(const std::string& name) {
    PROBE(gang_complete);
    ++registration_order_;
    for (const auto& [place, uuid] : gangs_.find(name)->holders) {
        Joiner& joiner = joiners_.at(uuid);
        joiner.order = registration_order_;
        joiner.told_unreachable = joiner.behind = joiner.unreached = joiner.told_missing = false;
        joiner.placed = joiner.misses_since = never;
    }
    turn_.log(LogLevel::info, formatted("gang '{}' is complete", name));
}

// Why a newcomer of a gang must not wait any longer; empty: it may. Another peer that has its place may be an earlier
// process with the same place, which died. A message that comes long after this newcomer asked proves that it lives.
Cause Joiners::why_turned_away(const Uuid& uuid, Joiner& joiner) {
    if (gangs_.complete_with(uuid, joiner.gang)) return {};
    const auto other = gangs_.other_at(uuid, joiner.gang);
    if (other && roster_.present(*other) &&
        turn_.now - roster_.silence_of(*other) > joiner.asked + turn_.timeouts.quiet()) {
        PROBE(gang_place_taken);
        return make_cause<CauseKind::gang_place_taken>(*other, joiner.gang.place, joiner.gang.name);
    }
    const auto missing = gangs_.find(joiner.gang.name)->first_missing();
    if (!missing) {
        PROBE(gang_awaits_former);
        joiner.misses_since = never;
        return {};
    }
    if (joiner.misses_since == never) joiner.misses_since = turn_.now;
    const Duration waited = turn_.now - joiner.misses_since;
    if (joiner.gang_patience != 0 && waited > joiner.gang_patience) {
        PROBE(gang_patience_over);
        return make_cause<CauseKind::gang_incomplete>(joiner.gang.name, waited / millisecond, *missing);
    }
    if (waited > turn_.timeouts.vote_warn && !std::exchange(joiner.told_missing, true)) {
        proto::MasterMessage message;
        message.mutable_notice()->set_warn(true);
        message.mutable_notice()->set_text(formatted("gang '{}' has waited {} s for its place {}", joiner.gang.name,
                                                     waited / second, *missing));
        roster_.say(uuid, std::move(message));
    }
    return {};
}

bool Joiners::reports_too_much(const Uuid& uuid) {
    const auto joiner = joiners_.find(uuid);
    return joiner != joiners_.end() && ++joiner->second.reports > turn_.limits.joiner_reports_at_once;
}

void Joiners::tick() {
    std::vector<std::pair<Uuid, Cause>> turned_away;
    for (auto& [uuid, joiner] : joiners_) {
        joiner.reports = 0;
        // What a translator lets through does not change by waiting, as a network that is down does. Of a gang, the place
        // that cannot be reached is the one to judge.
        const bool judged = joiner.gang.none() || joiner.unreached;
        if (joiner.location.is_translated() && judged && lead_of(uuid).in_vain >= turns_in_vain) {
            PROBE(joiner_turned_away);
            turned_away.emplace_back(uuid, make_cause<CauseKind::no_way_through>(
                                               to_text(joiner.endpoint), to_text(joiner.location.inside), tried(uuid)));
            continue;
        }
        if (joiner.gang.none()) continue;
        Cause why = why_turned_away(uuid, joiner);
        if (!why.empty()) turned_away.emplace_back(uuid, std::move(why));
    }
    for (const auto& [uuid, why] : turned_away) roster_.turn_away(uuid, why);
}

// The peers with which the newcomer could not connect, for its error message.
std::string Joiners::tried(const Uuid& newcomer) const {
    constexpr std::size_t named_most = 4;
    std::string text;
    std::size_t count = 0;
    for (const Uuid& other : edges_.tried_with(newcomer)) {
        const auto addresses = roster_.addresses_for(newcomer, other);
        if (!addresses || ++count > named_most) continue;
        text += formatted("{}peer {} at {}{}", text.empty() ? "" : ", ", short_name(other), to_text(addresses->usual),
                          roster_.is_translated(other) ? " (translated too)" : "");
    }
    if (count > named_most) text += formatted(" and {} more", count - named_most);
    return text.empty() ? "no other peer" : text;
}

void Joiners::disk_hung(Duration time) { slept(Sleep{turn_.now, time, false}); }

void Joiners::slept(const Sleep& sleep) {
    for (auto& [uuid, joiner] : joiners_) {
        if (joiner.placed != never) sleep.leave_out(joiner.placed);
        sleep.leave_out(joiner.asked);
        if (joiner.misses_since != never) sleep.leave_out(joiner.misses_since);
    }
}

void Joiners::check() const {
    for (const auto& [uuid, joiner] : joiners_) {
        ASSERT(!state_.members.contains(uuid));
        ASSERT(joiner.link != 0 && joiner.order <= registration_order_);
        ASSERT(!joiner.behind || joiner.told_unreachable);
    }
    gangs_.check();
    for (const auto& [name, gang] : gangs_.all()) {
        for (const auto& [place, uuid] : gang.holders)
            ASSERT((joiners_.at(uuid).gang == Gang{name, gang.size, place}));
        for (const auto& [place, uuid] : gang.claims) ASSERT(joiners_.at(uuid).gang.place == place);
    }
}

}  // namespace pccl::core
