// What gets through: the clocks of operations and of edges, and what is given up when nothing more does.
//
// Progress is a slice that lands for the first time, its acknowledgement, or more bytes of one than ever landed before.
// Frame headers, heartbeats, dials and copies that are sent again renew no clock here, so each wait ends: the sender gives
// up an edge that takes slices and answers none, the receiver an operation to which nothing new comes.
#include "core/all_reduce/exchange.hpp"
#include "core/base/assert.hpp"
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

// An operation gets nothing new for so many peer time-outs: it fails, whoever is to blame.
namespace {
constexpr int starved_for_good = 10;
// As often may each other operation of the neighbour get a slice while one of them gets none.
constexpr std::uint64_t rounds_passed_over = 8;
// The predecessor lives, does not wait itself, and nothing new comes from it.
constexpr int starved = 3;
// The edge to the successor: in peer time-outs, together below `starved`, so that the edge is named before the operation
// is given up. A link that swallows slices is silent for one time-out before it is dialled again.
constexpr int unanswered = 2;
constexpr std::uint32_t lost_at_least = 2;
// Counted at most once in an eighth of a peer time-out, so that a path that breaks each copy at once is found out as soon as
// one that lets none through.
constexpr std::uint32_t fruitless_max = 12;
// Each landing of a slice that breaks off gives back what it counted, so often: then parts of the slice count no more.
constexpr std::uint8_t landings_given_back = 3;
}  // namespace

void Exchange::slice_landed(Operation& op, std::uint32_t bytes) {
    op.received_bytes += bytes;
    op.landed_most = std::max(op.landed_most, op.received_bytes);
    Arrivals& arrivals = arrivals_[op.id.predecessor];
    arrivals.longest_wait = std::max(arrivals.longest_wait, turn_.now - op.landed_at);
    op.landed_at = arrivals.at = turn_.now;
    op.landed_before = ++arrivals.slices;
}

// What came of the slice is lost, and the same bytes count when they come again.
void Exchange::landing_broke(Operation& op, Half& half, std::uint32_t arrived) {
    if (half.broken >= landings_given_back) return;
    ++half.broken;
    op.landed_most = std::max(op.received_bytes, op.landed_most - std::min<std::uint64_t>(op.landed_most, arrived));
}

Exchange::Arrivals Exchange::arrivals_from(const Uuid& predecessor) const {
    const auto found = arrivals_.find(predecessor);
    return found == arrivals_.end() ? Arrivals{} : found->second;
}

// A part of a frame has arrived. The sender is told now and then: a slice on a slow link can take longer than the patience
// with a stripe. Whether that is progress of a slice that was lost before, the sender decides (Operation::Lost::most): the
// filler of a frame that was given up has counted here like bytes of the slice.
void Exchange::payload_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.receiving.op != 0 && link.receiving.dropped) return discarded_moved(id, link, arrived);
    if (link.receiving.op != 0 && link.receiving.phase == 2) return sync_.chunk_moved(link, arrived);
    if (link.purpose != Purpose::incoming || link.receiving.op == 0 || link.receiving.phase > 1 ||
        arrived <= link.arrived)
        return;
    link.arrived = arrived;
    const auto found = ops_.find(link.receiving.op);
    // What lands in the reserve is not led away when its operation ends.
    if (link.receiving.cell != Operation::none && reserves_.contains(link.remote) &&
        (found != ops_.end() ? found->second->decided : link.receiving.op <= settled_ops_))
        arrivals_[link.remote].filler_at = turn_.now;
    // Also into the reserve, where a slice is that began before this peer had its memory.
    if (found != ops_.end() && found->second->prepared && link.receiving.slice < found->second->slices()) {
        Operation& op = *found->second;
        std::uint64_t landed = op.received_bytes;
        for (const auto& [other_id, other] : links_) {
            const Transfer& transfer = other.receiving;
            if (transfer.op == op.id.id && transfer.phase <= 1 && !transfer.dropped) landed += other.arrived;
        }
        if (landed > op.landed_most) {
            op.landed_most = landed;
            Arrivals& arrivals = arrivals_[op.id.predecessor];
            arrivals.longest_wait = std::max(arrivals.longest_wait, turn_.now - op.landed_at);
            op.landed_at = arrivals.at = turn_.now;
        }
    }
    if (turn_.now - link.told_moving < turn_.timeouts.peer / 8) return;
    PROBE(slice_takes_long);
    tell_moving(id, link);
}

// The rest of a slice that nobody wants any more: until it has ended nothing else comes over this connection, neither what the
// neighbour would send nor its words that it waits itself. It ends: such a frame is not begun anew.
void Exchange::discarded_moved(LinkId id, Link& link, std::uint32_t arrived) {
    if (link.purpose != Purpose::incoming || link.receiving.phase > 1 || arrived <= link.arrived) return;
    link.arrived = arrived;
    if (reserves_.contains(link.remote)) arrivals_[link.remote].filler_at = turn_.now;
    if (turn_.now - link.told_moving >= turn_.timeouts.peer / 8) tell_moving(id, link);
}

// The rest of a chunk that nobody wants any more, on a slow path: what the neighbour has to say of reductions waits behind it,
// and this connection is ours to open anew.
void Exchange::reopen_filled_links() {
    std::map<Uuid, LinkId> filled;  // one of each edge
    for (const auto& [id, link] : links_) {
        const Transfer& rest = link.receiving;
        if (link.purpose == Purpose::outgoing && rest.op != 0 && rest.phase == 2 && rest.dropped &&
            link.sending.op == 0 && turn_.now - link.frame_began > turn_.timeouts.peer / 8)
            filled.emplace(link.remote, id);
    }
    for (const auto& [target, id] : filled) {
        Link& link = links_.at(id);
        close_on_purpose(id, link);
        link.renewed = true;
        links_.lost(id, "opened anew: a chunk that is not wanted any more filled it", false);
    }
}

void Exchange::tell_moving(LinkId id, Link& link) {
    link.told_moving = turn_.now;
    wire::FlowWord word;
    word.kind = wire::FlowKind::moving;
    word.op = link.receiving.op;
    word.slice = link.receiving.slice;
    word.phase = static_cast<std::uint8_t>(link.receiving.phase);
    word.value = link.arrived;
    turn_.add(SendFlow{id, word});
}

// Time in which this peer did not run, or could not hear what was decided: nobody is blamed for it.
void Exchange::leave_out(Duration time) {
    const auto later = [&](Instant& clock) { clock = std::min(turn_.now, clock + time); };
    for (auto& [id, op] : ops_) {
        for (Instant* clock : {&op->landed_at, &op->answered_at, &op->prepared_at, &op->waits_since, &op->sated_at,
                               &op->credit_at, &op->successor_unaware_at, &op->predecessor_unaware_at})
            later(*clock);
        for (auto& [slice, lost] : op->lost) {
            later(lost.since);
            later(lost.queued_at);
            later(lost.left_at);
        }
    }
    for (auto& [target, edge] : edges_) later(edge.answered_at);
    for (auto& [remote, arrivals] : arrivals_) {
        later(arrivals.at);
        later(arrivals.filler_at);
        later(arrivals.starved_at);
    }
}

void Exchange::neighbour_started(const Uuid& neighbour, OpId last) {
    for (auto entry = ops_.upper_bound(last); entry != ops_.end(); ++entry) {
        Operation& op = *entry->second;
        if (op.id.successor != neighbour && op.id.predecessor != neighbour) continue;
        PROBE(neighbour_unaware);
        if (op.id.successor == neighbour) op.successor_unaware_at = turn_.now;
        if (op.id.predecessor == neighbour) op.predecessor_unaware_at = turn_.now;
    }
}

// A stripe on which nothing was acknowledged or taken for long, while another one works: its slices go there.
void Exchange::requeue_stalled() {
    for (auto& [target, edge] : edges_) {
        // On a slow path the words come late: what came late before may do so again, and of stripes that share the path none
        // may have stalled that seem to.
        const auto held_stalled = std::count_if(edge.stripes.begin(), edge.stripes.end(), [this](const Stripe& stripe) {
            const auto link = links_.find(stripe.link);
            return link != links_.end() && link->second.stalled;
        });
        const Duration least = turn_.timeouts.peer / 4;
        const Duration patience =
            std::min(std::max(2 * edge.latest_word, least << std::min<long>(held_stalled, 2)), 4 * least);
        bool moving = false;
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            moving = moving || (link != links_.end() && link->second.stage == Stage::open &&
                                (turn_.now - link->second.last_progress <= patience || link->second.sending.op == 0));
        }
        if (!moving) continue;
        bool moved = false;
        for (const Stripe& stripe : edge.stripes) {
            const auto it = links_.find(stripe.link);
            if (it == links_.end() || it->second.stage != Stage::open) continue;
            Link& link = it->second;
            // Of what was sent on it nothing may be left that could be answered. It gets another chance.
            if (link.stalled && link.sending.op == 0 && turn_.now - link.stalled_at > 3 * turn_.timeouts.peer) {
                PROBE(stalled_stripe_tried_again);
                link.stalled = false;
                link.last_progress = turn_.now;
            }
            if (turn_.now - link.last_progress <= patience) continue;
            if (!link.stalled) link.silent_since = link.last_progress;
            link.last_progress = turn_.now;
            for (auto& [op_id, op] : ops_) {
                if (op->decided || op->id.successor != target) continue;
                for (int phase = 0; phase < 2; ++phase) {
                    for (std::uint32_t slice = 0; slice < op->slices(); ++slice) {
                        const Half& half = op->half(phase, slice);
                        if (half.out_link != it->first) continue;
                        if (half.out == OutState::sending) {
                            PROBE(stalled_send_cancelled);
                            link.sending.dropped = true;
                            turn_.add(CancelSend{it->first});
                        } else if (half.out != OutState::sent) {
                            continue;
                        }
                        if (op->lost_again(phase, slice, turn_.now, turn_.timeouts.peer / 8))
                            op->lost.at({phase, slice}).stalled_on = it->first;
                        link.stalled = moved = true;
                        link.stalled_at = turn_.now;
                        PROBE(stalled_slice_again);
                    }
                }
            }
        }
        if (moved) pump_edge(target);
    }
}

// A word about what was sent on this stripe. One that stalled carries after all: nothing was lost with it.
void Exchange::stripe_moves(LinkId id, Link& link, Edge& edge) {
    edge.latest_word = std::max(edge.latest_word, turn_.now - (link.stalled ? link.silent_since : link.last_progress));
    if (!link.stalled) return;
    PROBE(stalled_stripe_moves);
    link.stalled = false;
    for (auto& [op_id, op] : ops_) {
        if (op->id.successor != link.remote) continue;
        for (auto& [slice, lost] : op->lost) {
            if (lost.stalled_on != id) continue;
            ASSERT(lost.times > 0);
            lost.stalled_on = 0;
            --lost.times;
            lost.fruitless -= std::min(lost.fruitless, 1u);
        }
    }
}

// What the predecessor may send was told on one link, and that may swallow it: where nothing comes, it is told on all of
// them. The word is cumulative, so a copy does no harm. Each copy waits twice as long as the one before it, and a tick
// repeats one operation for each predecessor: many that all wait behind a slow uplink would fill it with copies, and nothing
// else would get through.
void Exchange::repeat_ready() {
    constexpr std::uint32_t doublings_max = 6;
    std::map<Uuid, Operation*> longest;
    const auto quiet_since = [](const Operation& op) { return std::max(op.landed_at, op.repeated_at); };
    for (const auto& [id, op] : ops_) {
        if (!op->prepared || op->decided || op->finals == op->slices()) continue;
        if (op->landed_at > op->repeated_at) op->repeats = 0;
        const Duration patience = (turn_.timeouts.peer / 16) << std::min(op->repeats, doublings_max);
        if (turn_.now - quiet_since(*op) < patience) continue;
        const auto reserve = reserves_.find(op->id.predecessor);
        if (reserve == reserves_.end() || reserve->second.links.size() < 2) continue;
        Operation*& chosen = longest[op->id.predecessor];
        if (chosen == nullptr || quiet_since(*op) < quiet_since(*chosen)) chosen = op.get();
    }
    for (const auto& [predecessor, op] : longest) {
        PROBE(ready_told_on_all_links);
        op->repeated_at = turn_.now;
        ++op->repeats;
        for (const LinkId link : reserves_.at(predecessor).links) send_flow(link, predecessor, ready_word(*op));
    }
}

// Nothing is left to do here until the predecessor's bytes come.
bool Exchange::waits_for_input(const Operation& op) const {
    if (!op.prepared || op.decided || op.end_serial != 0 || op.computes != 0) return false;
    for (int phase = 0; phase < 2; ++phase) {
        for (std::uint32_t slice = 0; slice < op.slices(); ++slice) {
            const OutState out = op.half(phase, slice).out;
            if (out != OutState::idle && out != OutState::acknowledged) return false;
        }
    }
    return true;
}

// Whether slices leave for the successor, or would, and nothing of them gets through. An edge that is not connected is the
// master's to judge, unless it keeps connecting in vain: such connections may break so soon that no tick finds one open.
bool Exchange::successor_stuck(const Operation& op) const {
    const Duration peer = turn_.timeouts.peer;
    const auto edge = edges_.find(op.id.successor);
    if (edge == edges_.end()) return false;
    const bool open = !open_links_to(op.id.successor).empty();
    const Instant answered = edge->second.answered_at;
    const auto connects_in_vain = [&](Instant since) {
        if (edge->second.opened_before <= since) return false;
        PROBE(edge_connects_in_vain);
        return true;
    };
    // Its words that it is ready, and for how much, take the same connections, the other way. That it is ready for nothing
    // more can have its reasons, unless its words break each connection.
    // Who says for ever that it was told nothing is judged in the end.
    const Instant aware_since =
        std::clamp(op.successor_unaware_at, op.prepared_at, op.prepared_at + starved_for_good * peer);
    // Another copy of what broke off gets the time to come as far as the best one did, twice.
    Duration again = 0;
    for (const auto& [slice, lost] : op.lost) again = std::max(again, 2 * lost.took);
    const auto unready = [&](Instant since) { return !op.neighbour_ready && turn_.now - since > 5 * peer / 2; };
    const bool not_ready = (open && unready(std::max(aware_since, edge->second.opened))) ||
                           (unready(aware_since) && connects_in_vain(aware_since));
    const Instant idle_since = std::max({aware_since, answered, op.sated_at, op.credit_at});
    const bool no_credit = turn_.now - idle_since > std::max(5 * peer / 2, again) && connects_in_vain(idle_since);
    if (op.wants_to_send() && (not_ready || no_credit)) return true;
    if (!op.unanswered()) return false;
    // One of which no copy is under way waits for those that are, or for a connection; and one may wait on its connection
    // behind another one that moves.
    const bool in_vain = std::any_of(op.lost.begin(), op.lost.end(), [&](const auto& entry) {
        const auto& [key, lost] = entry;
        if (lost.fruitless >= fruitless_max && turn_.now - aware_since > 3 * peer / 2) return true;
        const Half& half = op.half(key.first, key.second);
        const auto link = links_.find(half.out_link);
        if (lost.times < lost_at_least || half.out == OutState::queued || link == links_.end()) return false;
        const Instant moved = std::max({lost.since, aware_since, link->second.answered_at});
        return turn_.now - moved > std::max(3 * peer / 2, again);  // or behind one that comes as far as before
    });
    if (in_vain) return true;
    // The time in which there was no connection is the master's to judge, too.
    const Instant since = std::max({op.waits_since, answered, aware_since});
    const Duration patience = std::max(unanswered * peer, again);
    if (open && turn_.now - std::max(since, edge->second.opened) > patience) return true;
    return turn_.now - since > patience && connects_in_vain(since);
}

// Operations take turns on the way here: one that waits for its turn behind others is not starved. What comes for them is
// counted, so that a neighbour that passes one of them over is found out after a few rounds.
bool Exchange::waits_for_turn(const Operation& op, const Arrivals& arrivals) const {
    if (turn_.now - arrivals.at > starved * turn_.timeouts.peer) return false;
    ASSERT(arrivals.slices >= op.landed_before);
    return arrivals.slices - op.landed_before <= rounds(ops_.size());
}

// So many slices of others go before one of an operation that is not passed over.
std::uint64_t Exchange::rounds(std::size_t operations) const {
    return rounds_passed_over * std::max<std::uint64_t>(turn_.limits.concurrent_ops, operations);
}

// The same on the way to the successor: nothing new can come for an operation whose own slices wait behind those of others.
bool Exchange::waits_to_leave(const Operation& op) const {
    const auto found = edges_.find(op.id.successor);
    if (found == edges_.end() || (!op.wants_to_send() && !op.unanswered())) return false;
    const Edge& edge = found->second;
    if (turn_.now - edge.answered_at > starved * turn_.timeouts.peer) return false;
    return edge.answers - std::min(edge.answers, op.answered_before) <= rounds(ops_.size());
}

// Why the operation is given up for want of input; empty: it is not. A neighbour that waits for its own upstream is not to
// blame and gets far more time, so that a fault is charged where it is.
std::string Exchange::starved_reason(const Operation& op) const {
    if (op.end_serial != 0) return {};
    const Duration peer = turn_.timeouts.peer;
    const std::string name = short_name(op.id.predecessor);
    const Arrivals arrivals = arrivals_from(op.id.predecessor);
    // Who sends what it has over a narrow path gets nothing new meanwhile. Half of all slices pass the narrowest edge of the
    // ring when those behind it have all but the last. With many operations a round of what goes to others may take longer
    // still: as long as something came after all, something may come again.
    const Instant moved = std::max(op.landed_at, op.answered_at);
    const Duration patience = starved_for_good * peer + std::max(moved - op.prepared_at, 2 * arrivals.longest_wait);
    if (turn_.now - std::max(moved, arrivals.filler_at) > patience && !waits_for_turn(op, arrivals) &&
        !waits_to_leave(op))
        return "nothing new came from peer " + name + " for very long";
    const auto reserve = reserves_.find(op.id.predecessor);
    // Without any link from it, the edge is judged, not the neighbour's silence.
    if (reserve == reserves_.end() || arrivals.starved || reserve->second.links.empty()) return {};
    const Instant since =
        std::max({op.landed_at, arrivals.at, arrivals.filler_at, arrivals.starved_at, op.predecessor_unaware_at});
    if (turn_.now - since <= starved * peer || !waits_for_input(op) || waits_to_leave(op)) return {};
    return "peer " + name + " lives and sends nothing";
}

void Exchange::judge_progress() {
    for (const auto& [id, op] : ops_) {
        if (!op->wants_to_send()) op->sated_at = turn_.now;
    }
    if (!session_.master_open())
        return;  // the start may not have reached everybody: judged when the master is there again
    std::vector<OpId> stuck;
    std::vector<std::pair<OpId, std::string>> without_input;
    for (const auto& [id, op] : ops_) {
        if (!op->prepared || op->decided || op->given_up) continue;
        if (successor_stuck(*op)) {
            stuck.push_back(id);
        } else if (std::string reason = starved_reason(*op); !reason.empty()) {
            without_input.emplace_back(id, std::move(reason));
        }
    }
    for (const OpId id : stuck) give_up_edge(*ops_.at(id));
    for (const auto& [id, reason] : without_input) {
        PROBE(starved_operation_given_up);
        vote_end(*ops_.at(id), false, reason);
    }
}

// A vote that takes back an earlier one: all final bytes are here, but the successor gets them not from this peer.
void Exchange::give_up_edge(Operation& op) {
    PROBE(edge_stuck);
    if (op.end_serial != 0) PROBE(edge_stuck_after_vote);
    const std::string name = short_name(op.id.successor);
    turn_.log(LogLevel::warn,
              "what is sent to peer " + name +
                  " does not get through, although it can be connected; look for a firewall that inspects "
                  "contents, a wrong path MTU, or faulty memory on the way");
    op.given_up = true;
    session_.close_vote(op.end_serial);
    proto::Vote vote = end_vote(op, false, "what it sends to peer " + name + " does not get through");
    vote.set_stuck(to_bytes(op.id.successor));
    op.end_serial = session_.cast(vote);
}

// ---- time ----------------------------------------------------------------------------------------------------------

void Exchange::forget_predecessors() {
    // Predecessors come and go. Without a connection and an operation nothing of one is needed.
    std::erase_if(arrivals_, [&](const auto& entry) {
        return !reserves_.contains(entry.first) && std::none_of(ops_.begin(), ops_.end(), [&](const auto& op) {
            return op.second->id.predecessor == entry.first;
        });
    });
}

proto::LinkMessage Exchange::heartbeat() const {
    // Without the master this peer may not know of an operation that its neighbours have begun.
    const bool starved = !session_.master_open() || std::any_of(ops_.begin(), ops_.end(), [&](const auto& entry) {
        return waits_for_input(*entry.second);
    });
    proto::LinkMessage message;
    message.set_heartbeat(starved);
    message.set_started(highest_op_);
    return message;
}

void Exchange::tick() {
    requeue_stalled();
    repeat_ready();
    reopen_filled_links();
    judge_progress();
}

// ---- observation ---------------------------------------------------------------------------------------------------

void Exchange::mix_into(const std::function<void(std::uint64_t)>& mix) const {
    for (const auto& [id, op] : ops_) {
        mix(id);
        mix(op->finals);
        mix(op->digest);
        mix(op->granted);
        mix(op->used);
        mix(op->computes);
        mix(op->sent_bytes);
    }
}

void Exchange::describe_operations(Packed& state) const {
    state.count(ops_.size(), 2);
    bool unprepared = false, unready = false, decided = false, given_up = false, ended = false, lost = false;
    for (const auto& [id, op] : ops_) {
        unprepared |= !op->prepared;
        unready |= !op->neighbour_ready;
        decided |= op->decided;
        given_up |= op->given_up;
        ended |= op->end_serial != 0;
        lost |= !op->lost.empty();
    }
    state.flags(unprepared, unready, decided, given_up, ended, lost);
}

void Exchange::describe_edges(Packed& state) const {
    state.count(edges_.size(), 2);
    bool closed = false, stalled = false, reported_down = false;
    for (const auto& [target, edge] : edges_) {
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            closed |= stripe.link == 0;
            stalled |= link != links_.end() && link->second.stalled;
        }
        reported_down |= edge.report == Edge::Report::down;
    }
    bool early = false, starved = false;
    for (const auto& [remote, reserve] : reserves_) early |= !reserve.slices.empty();
    for (const auto& [remote, arrivals] : arrivals_) starved |= arrivals.starved;
    state.flags(closed, stalled, reported_down, early, starved);
}

void Exchange::count_edges(PeerStatistics& now) const {
    for (const auto& [target, edge] : edges_) {
        PeerStatistics::Edge& told = now.edges.emplace_back();
        told.peer = target;
        told.connections = static_cast<std::uint32_t>(edge.stripes.size());
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            told.connections_open += link != links_.end() && link->second.stage == Stage::open ? 1 : 0;
        }
    }
}

std::string Exchange::explain_operations() const {
    std::string text;
    for (const auto& [id, op] : ops_) {
        text += ", op " + std::to_string(id & 0xFFFFFFFF) + " finals " + std::to_string(op->finals) + "/" +
                std::to_string(op->slices()) + " credit " + std::to_string(op->free_credit()) +
                (op->neighbour_ready ? "" : " neighbour not ready") + (op->prepared ? "" : " not prepared") +
                (op->decided ? " decided" : "") + " computes " + std::to_string(op->computes);
    }
    return text;
}

std::string Exchange::explain_edges() const {
    std::string text;
    for (const auto& [target, edge] : edges_) {
        std::size_t open = 0;
        for (const Stripe& stripe : edge.stripes) {
            const auto link = links_.find(stripe.link);
            open += link != links_.end() && link->second.stage == Stage::open ? 1 : 0;
        }
        text +=
            ", edge to " + short_name(target) + " " + std::to_string(open) + "/" + std::to_string(edge.stripes.size());
    }
    return text;
}

std::string Exchange::leftovers() const {
    // Memory that was asked for is freed when it comes.
    const auto reserves = std::count_if(reserves_.begin(), reserves_.end(), [](const auto& entry) {
        return entry.second.buffer == 0 || entry.second.usable;
    });
    return name_leftovers({{"edges", edges_.size()},
                           {"arrivals", arrivals_.size()},
                           {"reserves", static_cast<std::size_t>(reserves)},
                           {"callers", callers_.size()},
                           {"pages of a plan", static_cast<std::size_t>(plan_pages_.targets_size())}});
}

}  // namespace pccl::core
