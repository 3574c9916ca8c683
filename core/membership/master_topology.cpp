// The master's rings: which edges are wanted, which are marked, who can be admitted, and what each peer has to dial.
#include "core/base/assert.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/probe.hpp"
#include "core/membership/master_core.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
constexpr std::size_t marks_counted = 64;
// Members with which a newcomer is tried, one after the other, before it is said that it cannot be reached.
constexpr std::uint32_t anchors_tried = 3;
constexpr std::size_t searches_max = 4;
}  // namespace

bool MasterCore::present(const Uuid& uuid) const {
    if (joiners_.contains(uuid)) return true;
    const auto session = sessions_.find(uuid);
    return session != sessions_.end() && session->second.link != 0 && session->second.resumed;
}

std::optional<Endpoint> MasterCore::endpoint_of(const Uuid& uuid) const {
    const auto member = state_.members.find(uuid);
    if (member != state_.members.end()) return member->second.endpoint;
    const auto joiner = joiners_.find(uuid);
    if (joiner != joiners_.end()) return joiner->second.endpoint;
    return std::nullopt;
}

std::optional<Secret> MasterCore::link_key_of(const Uuid& uuid) const {
    const auto session = sessions_.find(uuid);
    if (session != sessions_.end()) return session->second.link_key;
    const auto joiner = joiners_.find(uuid);
    if (joiner != joiners_.end()) return joiner->second.link_key;
    return std::nullopt;
}

// With what `from` proves to the target who it is.
template <class Target>
void MasterCore::add_pass(const Uuid& from, Target& target) const {
    const auto key = link_key_of(uuid_of(target.peer()));
    if (!key) return;
    const LinkPass pass = link_pass(*key, from);
    target.set_pass_hello(to_bytes(pass.hello));
    target.set_pass_welcome(to_bytes(pass.welcome));
}
template void MasterCore::add_pass(const Uuid& from, proto::DialTarget& target) const;
template void MasterCore::add_pass(const Uuid& from, proto::SyncHolder& target) const;

bool MasterCore::ring_usable(const GroupState& group) const {
    for (std::size_t i = 0; i < group.ring.size(); ++i) {
        if (!edges_.up(group.ring[i], group.ring[(i + 1) % group.ring.size()])) return false;
    }
    return true;
}

// The plan of whom it is to dial waits for a record: it cannot know of it.
bool MasterCore::plan_held(const Uuid& uuid) const {
    const auto session = sessions_.find(uuid);
    const auto joiner = joiners_.find(uuid);
    const auto link = links_.find(session != sessions_.end() ? session->second.link
                                                             : (joiner != joiners_.end() ? joiner->second.link : 0));
    return link != links_.end() && link->second.plans_held != 0;
}

// True once the edge has been down for longer than `grace` although both of its ends are here. Marks it each time its
// quarantine has run out.
bool MasterCore::edge_failed_long(const Uuid& from, const Uuid& to, Duration grace) {
    wanted_[from].insert(to);
    const EdgeTable::Edge edge = edges_.want(from, to, now_);
    if (edges_.stuck(from, to, now_)) return present(from) && present(to);
    if (edge.up || !present(from) || !present(to)) return false;
    if (plan_held(from)) {
        PROBE(plan_waits_for_the_disk);
        return false;
    }
    // One that is still being dialled gets the full time; one that failed before gets more each time, so that a network
    // slower than the grace cannot make the ring change for ever.
    const Duration patience = (edge.reported_down ? grace : config_.timeouts.peer) << std::min(edge.failures, 3u);
    if (now_ - edge.down_since <= patience) return false;
    if (!edges_.marked(from, to, now_)) {
        PROBE(edge_marked);
        // Long enough to find out about some more edges with the same patience, and about more the more of them there are:
        // else bad ones, each tried while the time of others runs out, would change the ring for ever.
        // What newcomers cannot reach concerns nobody else.
        const auto member = [&](const Uuid& uuid) { return state_.members.contains(uuid); };
        const auto counts = [&](const Uuid& a, const Uuid& b) {
            const bool own = (!member(from) && (a == from || b == from)) || (!member(to) && (a == to || b == to));
            return own || (member(a) && member(b));
        };
        const auto more = static_cast<Duration>(std::min(edges_.marks(now_, counts), marks_counted));
        edges_.mark(from, to, now_ + (8 + 2 * more) * patience);
        log(LogLevel::warn, "peer " + short_name(from) + " cannot reach peer " + short_name(to));
    }
    return true;
}

std::string MasterCore::edge_text(const std::pair<Uuid, Uuid>& edge) const {
    const bool stuck = edges_.stuck(edge.first, edge.second, now_);
    return stuck ? "what peer " + short_name(edge.first) + " sends to peer " + short_name(edge.second) +
                       " does not get through"
                 : "peer " + short_name(edge.first) + " cannot reach peer " + short_name(edge.second);
}

// Said by the source in an operation that both ends take part in: only a neighbour can be accused, and only by the peer that
// sends to it. It is proof only if the target's link to the master is open since before the operation: else the target may
// have got the start late, or not at all. Without proof the operation fails too, and the next one over this edge decides.
void MasterCore::on_stuck(OpId id, const RunningOp& op, const Uuid& from, const Uuid& to) {
    for (std::size_t i = 0; i < op.members.size(); ++i) {
        if (op.members[i].uuid != from || op.members[(i + 1) % op.members.size()].uuid != to) continue;
        if (from == to || !state_.members.contains(to) || edges_.stuck(from, to, now_)) return;
        if (!present(to) || id <= sessions_.at(to).resumed_after) {
            PROBE(stuck_without_proof);
            return;
        }
        PROBE(edge_marked_stuck);
        edges_.mark_stuck(from, to, now_, 16 * config_.timeouts.peer);
        log(LogLevel::warn, edge_text({from, to}) + ", although it can be connected");
        topology_dirty_ = true;
        return;
    }
}

void MasterCore::maintain_topology() {
    if (now_ != looked_at_) admission_turn_ += searches_max;
    looked_at_ = now_;
    wanted_.clear();
    std::vector<GroupId> groups;
    for (const auto& [id, group] : state_.groups) groups.push_back(id);
    for (const GroupId id : groups) maintain_ring(id);
    plan_joiners();
    maintain_edges_of_operations();
    edges_.release_unwanted(wanted_, now_, config_.timeouts.edge_grace());
    send_plans();
}

// What was begun on an earlier ring goes on over its edges; who was to be dialled may have another address by now. No ring is
// led around an edge that is in none any more, so what needs one that stays down ends here.
void MasterCore::maintain_edges_of_operations() {
    const std::vector<SeatState>* done = nullptr;
    std::string failed;  // of these members
    std::vector<std::pair<OpId, std::string>> over;
    for (const auto& [id, op] : state_.ops) {
        const auto same = [](const SeatState& a, const SeatState& b) { return a.uuid == b.uuid; };
        if (done == nullptr || !std::ranges::equal(*done, op.members, same)) {
            done = &op.members;
            failed = failed_edge(op);
        }
        if (!failed.empty()) over.emplace_back(id, failed);
    }
    if (!over.empty()) PROBE(aborted_over_edge);
    for (const auto& [id, why] : over) decide_op(id, Result::rank_connection_lost, why);
}

std::string MasterCore::failed_edge(const RunningOp& op) {
    const auto group = state_.groups.find(op.group);
    const std::vector<Uuid> ring = group == state_.groups.end() ? std::vector<Uuid>{} : group->second.ring;
    std::string failed;
    for (std::size_t i = 0; i < op.members.size(); ++i) {
        const Uuid& from = op.members[i].uuid;
        const Uuid& to = op.members[(i + 1) % op.members.size()].uuid;
        if (!state_.members.contains(from) || !state_.members.contains(to)) continue;
        wanted_[from].insert(to);
        const auto at = std::find(ring.begin(), ring.end(), from);
        const bool on_the_ring = at != ring.end() && (at + 1 == ring.end() ? ring.front() : at[1]) == to;
        if (!on_the_ring && edge_failed_long(from, to, config_.timeouts.edge_grace())) failed = edge_text({from, to});
    }
    return failed;
}

void MasterCore::maintain_ring(GroupId id) {
    const Duration grace = config_.timeouts.edge_grace();
    const std::vector<Uuid> ring = state_.groups.at(id).ring;
    if (ring.size() < 2) return;
    std::vector<std::pair<Uuid, Uuid>> failed;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const Uuid& from = ring[i];
        const Uuid& to = ring[(i + 1) % ring.size()];
        if (edge_failed_long(from, to, grace)) failed.emplace_back(from, to);
    }
    if (failed.empty()) return;
    const auto forbidden = [&](const Uuid& a, const Uuid& b) { return edges_.marked(a, b, now_); };
    const auto other = choose_ring(ring, forbidden);
    if (other && *other != ring) {
        PROBE(ring_led_around);
        proto::Decision decision;
        decision.mutable_ring()->set_group(id);
        for (const Uuid& uuid : *other) decision.mutable_ring()->add_order(to_bytes(uuid));
        append(decision);
        log(LogLevel::warn,
            "the ring of group " + std::to_string(id) + " was led around: " + edge_text(failed.front()));
        std::vector<std::pair<OpId, std::string>> over;
        for (const auto& [op_id, op] : state_.ops) {
            if (op.group != id) continue;
            for (std::size_t i = 0; i < op.members.size(); ++i) {
                const std::pair edge(op.members[i].uuid, op.members[(i + 1) % op.members.size()].uuid);
                if (forbidden(edge.first, edge.second)) {
                    over.emplace_back(op_id, edge_text(edge));
                    break;
                }
            }
        }
        if (!over.empty()) PROBE(aborted_over_edge);
        for (const auto& [op_id, why] : over) decide_op(op_id, Result::rank_connection_lost, why);
        topology_dirty_ = examine_all_ = true;
        return;
    }
    if (other) return;
    if (edges_.try_again(ring, now_, 64 * config_.timeouts.peer)) {
        topology_dirty_ = true;
        return;
    }
    // No ring without a marked edge: after the full time one end of such an edge has to go.
    for (const auto& [from, to] : failed) {
        const EdgeTable::Edge* edge = edges_.find(from, to);
        const bool long_enough =
            edges_.stuck(from, to, now_) || (edge != nullptr && now_ - edge->down_since > config_.timeouts.peer);
        if (!long_enough) continue;
        const bool may_wait = !edges_.stuck(from, to, now_) && now_ - edge->down_since <= 2 * config_.timeouts.peer;
        // The target has it open: the word of the source is on its way, or soon late.
        if (edge->incoming_up && may_wait) {
            PROBE(no_ring_but_open);
            continue;
        }
        // An end that the master itself has not heard for a while may be the cause: its silence decides, soon. One that does
        // not hear the master closes its link soon, and is told again whom to dial.
        const auto quiet = [&](const Uuid& uuid) {
            const Link& link = links_.at(sessions_.at(uuid).link);
            return now_ - link.last_received > config_.timeouts.peer / 2 || (deaf(link) && may_wait);
        };
        if (quiet(from) || quiet(to)) PROBE(no_ring_quiet_end);
        if (quiet(from) || quiet(to)) continue;
        PROBE(no_ring_victim);
        const std::uint32_t marks_from = edges_.distinct_marks(from, ring, now_);
        const std::uint32_t marks_to = edges_.distinct_marks(to, ring, now_);
        const bool from_younger = state_.members.at(from).seniority > state_.members.at(to).seniority;
        const Uuid victim = marks_from != marks_to ? (marks_from > marks_to ? from : to) : (from_younger ? from : to);
        remove(victim, "no ring exists that contains it: " + edge_text({from, to}));
        return;
    }
}

// Each newcomer costs the member before it and the one behind it a connection, and those are often the same members.
std::size_t MasterCore::newcomers_at_a_time(const std::vector<Uuid>& ring) const {
    constexpr std::uint32_t a_few = 64;
    if (ring.empty()) return joiners_.size();
    std::uint32_t least = ~std::uint32_t{0};
    for (const Uuid& uuid : {ring.front(), ring.back()}) {
        const std::uint32_t told = sessions_.at(uuid).newcomer_links;
        least = std::min(least, told == 0 ? a_few : told);
    }
    return std::max<std::size_t>(least / 2, 1);
}

void MasterCore::comes_last(Joiner& joiner) {
    PROBE(joiner_unreachable);
    joiner.told_unreachable = joiner.behind = true;
    joiner.moved = now_;
    proto::MasterMessage message;
    message.mutable_notice()->set_warn(true);
    message.mutable_notice()->set_text("cannot be admitted yet: the members and this peer (" +
                                       to_text(joiner.endpoint) +
                                       ") cannot connect to each other; open the port or set an address that the "
                                       "others can reach");
    say(joiner.link, message);
}

// Those that could not be reached come last: they do not keep others waiting. But others may come for ever, so each has a
// turn now and then, short enough that all of them together take a quarter of the time. Who is connected already keeps its
// place until the next update lets it in: updates may come at the pace of the turns.
// Whatever it says of its connections, a newcomer that cannot be let in has its place for some turns only.
void MasterCore::take_turns(GroupId group, const std::vector<std::pair<std::uint64_t, Uuid>>& list) {
    constexpr Duration turns_of_a_place = 8;
    const Duration turn = config_.timeouts.peer;
    const auto members = state_.groups.find(group);
    const bool open = members != state_.groups.end() && ring_usable(members->second);
    const auto overdue = [&](const Joiner& joiner) {
        return open && !joiner.told_unreachable && joiner.placed != never &&
               now_ - joiner.placed > turns_of_a_place * turn;
    };
    const std::int64_t unreachable = std::count_if(
        list.begin(), list.end(), [&](const auto& entry) { return joiners_.at(entry.second).told_unreachable; });
    if (unreachable == 0 &&
        std::none_of(list.begin(), list.end(), [&](const auto& entry) { return overdue(joiners_.at(entry.second)); }))
        return;
    std::vector<Uuid> ring;
    std::vector<Uuid> connected = admissible(group, ring);
    // The founder of a group is let in unconnected: that says nothing of whether others reach it.
    if (!state_.groups.contains(group) && connected.size() == 1 && list.size() > 1) connected.clear();
    for (const auto& [order, uuid] : list) {
        Joiner& joiner = joiners_.at(uuid);
        if (!joiner.told_unreachable && !overdue(joiner)) continue;
        if (std::find(connected.begin(), connected.end(), uuid) != connected.end()) {
            joiner.told_unreachable = joiner.behind = false;
            joiner.placed = now_;
        } else if (!joiner.told_unreachable) {
            comes_last(joiner);
        } else if (joiner.behind ? connected.empty() && now_ - joiner.moved >= 4 * unreachable * turn
                                 : now_ - joiner.moved >= turn) {
            if (joiner.behind) PROBE(joiner_tried_again);
            joiner.behind = !joiner.behind;
            joiner.moved = now_;
        }
    }
}

void MasterCore::plan_joiners() {
    const Duration grace = std::min(2 * second, config_.timeouts.peer / 4);
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
            // A turn begins when those before it have had theirs.
            for (auto waits = list.begin() + static_cast<std::ptrdiff_t>(most); waits != list.end(); ++waits) {
                Joiner& joiner = joiners_.at(waits->second);
                if (joiner.told_unreachable && !joiner.behind) joiner.moved = now_;
                joiner.placed = never;
            }
            list.resize(most);
        }
        for (const auto& [order, uuid] : list) {
            Joiner& joiner = joiners_.at(uuid);
            if (joiner.placed == never) joiner.placed = now_;
        }
        std::vector<Uuid> order = base;
        for (const auto& [registered, uuid] : list) order.push_back(uuid);
        // The members between whom it can be: two different ones, where there are, or it would be in no ring with the others.
        const auto reached = [&](const Uuid& from, const Uuid& to) { return !edges_.marked(from, to, now_); };
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
        // Two members that can connect with it may leave the others without a ring: it is where a ring goes through it.
        std::size_t searches = 0;
        const auto place = [&](const Uuid& newcomer) -> std::optional<std::pair<Uuid, Uuid>> {
            const auto at = between(newcomer);
            if (base.empty() || !at || *at == std::pair{base.back(), base.front()} || ++searches > searches_max)
                return at;
            std::vector<Uuid> candidate = base;
            candidate.push_back(newcomer);
            const auto ring =
                choose_ring(candidate, [&](const Uuid& a, const Uuid& b) { return edges_.marked(a, b, now_); });
            if (!ring) return at;
            const auto found = std::find(ring->begin(), ring->end(), newcomer);
            return std::pair{found == ring->begin() ? ring->back() : found[-1],
                             found + 1 == ring->end() ? ring->front() : found[1]};
        };
        // Some members may not reach a newcomer that others do reach.
        const auto others_left = [&](const Uuid& newcomer) {
            return !base.empty() && edges_.distinct_marks(newcomer, base, now_) < anchors_tried && between(newcomer);
        };
        const auto connected = [&](const Uuid& newcomer) {
            const auto from = [&](const Uuid& member) { return edges_.up(member, newcomer); };
            const auto to = [&](const Uuid& member) { return edges_.up_at_both_ends(newcomer, member); };
            return std::any_of(base.begin(), base.end(), from) && std::any_of(base.begin(), base.end(), to);
        };
        const auto want = [&](const Uuid& from, const Uuid& to) {
            if (from == to) return;
            if (!edge_failed_long(from, to, grace)) return;
            const auto a = joiners_.find(from), b = joiners_.find(to);
            const bool both_wait = a != joiners_.end() && b != joiners_.end();
            // Of two that wait neither is to blame, as each is tried with the members too. Where there are none, it is the
            // one that fails with more of the others.
            if (both_wait && !base.empty()) return;
            const auto worse = [&] {
                const std::uint32_t of_a = edges_.distinct_marks(from, order, now_);
                const std::uint32_t of_b = edges_.distinct_marks(to, order, now_);
                return of_a != of_b ? (of_a > of_b ? a : b) : (a->second.order > b->second.order ? a : b);
            };
            for (const Uuid& end : both_wait ? std::vector<Uuid>{worse()->first} : std::vector<Uuid>{from, to}) {
                const auto joiner = joiners_.find(end);
                if (joiner == joiners_.end() || joiner->second.told_unreachable) continue;
                if (others_left(end) || connected(end)) {
                    PROBE(joiner_tries_other_members);
                    continue;
                }
                comes_last(joiner->second);
            }
        };
        // As a chain behind the ring, and each one alone between two members that can connect with it.
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
            // The first keeps what it has for a while: another one that is admitted and gone again, faster than this one
            // connects, would keep it out for ever.
            const auto member = [&](const Uuid& anchor) { return state_.members.contains(anchor); };
            if (!member(joiner.reached_from) || !member(joiner.reaches) ||
                now_ - joiner.anchored > config_.timeouts.peer) {
                joiner.reached_from = from;
                joiner.reaches = to;
                joiner.anchored = now_;
            }
            if (!member(joiner.reached_from) || !member(joiner.reaches)) continue;
            if (joiner.reached_from != from || joiner.reaches != to) PROBE(joiner_keeps_its_place);
            want(joiner.reached_from, uuid);
            want(uuid, joiner.reaches);
        }
    }
}

// The joiners of a group that can be admitted now, and the ring with them: each edge of a joiner is up.
std::vector<Uuid> MasterCore::admissible(GroupId id, std::vector<Uuid>& ring) const {
    const auto group = state_.groups.find(id);
    ring = group == state_.groups.end() ? std::vector<Uuid>{} : group->second.ring;
    // The first of a group without members founds it, so those that could not be reached come last.
    std::vector<std::pair<std::pair<bool, std::uint64_t>, Uuid>> list;
    for (const auto& [uuid, joiner] : joiners_) {
        if (joiner.group == id) list.push_back({{joiner.behind, joiner.order}, uuid});
    }
    std::sort(list.begin(), list.end());
    const auto forbidden = [&](const Uuid& a, const Uuid& b) {
        if (edges_.marked(a, b, now_)) return true;
        // What a newcomer says of its connection to a member has to be said by the member, too.
        if (!state_.members.contains(a)) return !edges_.up_at_both_ends(a, b);
        return !state_.members.contains(b) && !edges_.up(a, b);
    };
    // Of a ring that can stay as it is only the newcomer's two edges are looked at, and nothing is searched for one that
    // nobody reaches or that reaches nobody: with a thousand members a search for each of them is out of question.
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
    std::vector<Uuid> elsewhere;  // not at the end of the ring
    for (const auto& entry : list) {
        const Uuid& newcomer = entry.second;
        if (appended(newcomer)) continue;
        const auto from = [&](const Uuid& a) { return !forbidden(a, newcomer); };
        const auto to = [&](const Uuid& a) { return !forbidden(newcomer, a); };
        if (std::any_of(ring.begin(), ring.end(), from) && std::any_of(ring.begin(), ring.end(), to))
            elsewhere.push_back(newcomer);
    }
    // A search that finds nothing is a long one: a few for each look, and others at each tick.
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
        chain = true;  // what the search has found is allowed
        admitted.push_back(newcomer);
    }
    return admitted;
}

bool MasterCore::any_admissible() const {
    std::set<GroupId> groups;
    for (const auto& [uuid, joiner] : joiners_) groups.insert(joiner.group);
    std::vector<Uuid> ring;
    return std::any_of(groups.begin(), groups.end(), [&](GroupId id) { return !admissible(id, ring).empty(); });
}

// Moves joiners into `topology` and gives them sessions. `all`: nobody is left to be reached from, everyone comes in.
void MasterCore::add_admissions(proto::TopologyDecision& topology, bool all) {
    std::set<GroupId> groups;
    for (const auto& [uuid, joiner] : joiners_) groups.insert(joiner.group);
    std::map<GroupId, std::uint32_t> size;
    for (const auto& [id, group] : state_.groups) size[id] = static_cast<std::uint32_t>(group.ring.size());
    for (const GroupId id : groups) {
        std::vector<Uuid> ring, admitted;
        if (all) {
            std::vector<std::pair<std::uint64_t, Uuid>> list;
            for (const auto& [uuid, joiner] : joiners_) {
                if (joiner.group == id) list.emplace_back(joiner.order, uuid);
            }
            std::sort(list.begin(), list.end());
            for (const auto& [order, uuid] : list) admitted.push_back(uuid);
            ring = admitted;
        } else {
            admitted = admissible(id, ring);
        }
        if (admitted.empty()) continue;
        auto* record = topology.add_rings();
        record->set_group(id);
        for (const Uuid& uuid : ring) record->add_order(to_bytes(uuid));
        size[id] = static_cast<std::uint32_t>(ring.size());
        for (const Uuid& uuid : admitted) {
            const Joiner joiner = joiners_.at(uuid);
            auto* member = topology.add_admitted();
            member->set_uuid(to_bytes(uuid));
            member->set_group(id);
            write(joiner.endpoint, *member->mutable_address());
            member->set_token(joiner.token);
            member->set_concurrent_ops(joiner.concurrent_ops);
            Session& session = sessions_[uuid];
            session.link = joiner.link;
            session.generation = joiner.generation;
            session.resumed = true;
            session.plan = joiner.plan;
            session.link_key = joiner.link_key;
            session.newcomer_links = joiner.newcomer_links;
            session.since = session.free_since = now_;
            session.resumed_after = last_id();
            links_.at(joiner.link).stage = Link::Stage::member;
            joiners_.erase(uuid);
            edges_.admitted(uuid);
            log(LogLevel::info, "peer " + short_name(uuid) + " admitted to group " + std::to_string(id));
        }
    }
    auto* sizes = topology.mutable_sizes();
    sizes->set_epoch(state_.epoch + (topology.admitted_size() > 0 ? 1 : 0));
    for (const auto& [id, count] : size) {
        if (count == 0) continue;
        auto* entry = sizes->add_groups();
        entry->set_group(id);
        entry->set_size(count);
    }
}

void MasterCore::admit_orphans() {
    if (!state_.members.empty() || joiners_.empty()) return;
    PROBE(orphans_admitted);
    proto::Decision decision;
    add_admissions(*decision.mutable_topology(), true);
    append(decision);
    topology_dirty_ = examine_all_ = true;
}

// Whom `uuid` is to dial, and who may dial it, but for those names.
proto::DialPlan MasterCore::dial_plan(const Uuid& uuid, const std::vector<Uuid>& callers, const PlanNames& but) const {
    const auto left_out = [&](bool calls, const Uuid& peer) {
        return !but.empty() && but.contains({calls, to_bytes(peer)});
    };
    proto::DialPlan plan;
    const auto own = endpoint_of(uuid);
    if (const auto wanted = wanted_.find(uuid); wanted != wanted_.end() && own) {
        for (const Uuid& other : wanted->second) {
            const auto endpoint = endpoint_of(other);
            if (!endpoint || !may_dial(*own, *endpoint) || left_out(false, other)) continue;
            auto* target = plan.add_targets();
            target->set_peer(to_bytes(other));
            write(*endpoint, *target->mutable_address());
            add_pass(uuid, *target);
            target->set_single(joiners_.contains(uuid) || joiners_.contains(other));
        }
    }
    for (const Uuid& caller : callers) {
        if (!left_out(true, caller)) plan.add_callers(to_bytes(caller));
    }
    return plan;
}

void MasterCore::say_plan(LinkId link, const proto::DialPlan& plan) {
    const int page_max = static_cast<int>(wire::items_per_page(links_.at(link).control_bytes, wire::dial_target_bytes));
    int target = 0, caller = 0;
    do {
        proto::MasterMessage message;
        proto::DialPlan& page = *message.mutable_plan();
        for (; target < plan.targets_size() && page.targets_size() < page_max; ++target)
            *page.add_targets() = plan.targets(target);
        for (; caller < plan.callers_size() && page.targets_size() + page.callers_size() < page_max; ++caller)
            page.add_callers(plan.callers(caller));
        page.set_more(target < plan.targets_size() || caller < plan.callers_size());
        if (page.more()) PROBE(plan_in_pages);
        say(link, message);
    } while (target < plan.targets_size() || caller < plan.callers_size());
}

void MasterCore::send_plans() {
    std::map<Uuid, std::vector<Uuid>> callers;
    for (const auto& [uuid, joiner] : joiners_) {
        const auto wanted = wanted_.find(uuid);
        if (wanted == wanted_.end()) continue;
        for (const Uuid& other : wanted->second) callers[other].push_back(uuid);
    }
    const auto names = [](const proto::DialPlan& plan) {
        PlanNames all;
        for (const std::string& caller : plan.callers()) all.emplace(true, caller);
        for (const proto::DialTarget& target : plan.targets()) all.emplace(false, target.peer());
        return all;
    };
    const auto send = [&](const Uuid& uuid, LinkId id, std::optional<std::string>& last) {
        Link& link = links_.at(id);
        const proto::DialPlan plan = dial_plan(uuid, callers[uuid], {});
        std::string encoded = encode(plan);
        const bool waits = link.plans_held != 0 && last;
        if (last == encoded && (waits || link.unnamed.empty())) return;
        if (waits) {
            // One at a time: while a disk hangs they would pile up. Who is not named in between, and later again, is somebody
            // whose connections are not known any more: they begin anew.
            PROBE(plan_waits_for_the_disk);
            proto::DialPlan told;
            const bool own_words = told.ParseFromString(*last);
            ASSERT(own_words);
            const PlanNames still = names(plan);
            for (const auto& name : names(told)) {
                if (!still.contains(name)) link.unnamed.insert(name);
            }
            return;
        }
        if (const PlanNames unnamed = std::exchange(link.unnamed, {}); !unnamed.empty()) {
            if (const proto::DialPlan before = dial_plan(uuid, callers[uuid], unnamed); encode(before) != encoded)
                say_plan(id, before);
        }
        last = std::move(encoded);
        say_plan(id, plan);
    };
    for (auto& [uuid, session] : sessions_) {
        if (session.link != 0) send(uuid, session.link, session.plan);
    }
    for (auto& [uuid, joiner] : joiners_) send(uuid, joiner.link, joiner.plan);
}

}  // namespace pccl::core
