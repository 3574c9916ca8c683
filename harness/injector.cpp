#include "harness/injector.hpp"

#include "core/base/format.hpp"
#include "harness/fault_pairs.hpp"
#include "harness/fault_refs.hpp"
#include "harness/hostile.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::effect_index;
using sim::mix;

namespace {

constexpr std::uint32_t strangers_max = 12;

constexpr std::uint64_t by_pattern = 1ull << 32;

// What an edge does while the fault lasts. `value` also determines how rare the windows of a pattern are.
sim::Impairment impairment_of(const Fault& fault) {
    sim::Impairment how;
    const auto rarity = static_cast<std::uint32_t>(64u << ((fault.value >> 40) & 7));
    how.pattern = static_cast<std::uint32_t>(fault.value);
    if (fault.kind == FaultKind::swallow)
        how.swallows_above = std::max<std::size_t>(fault.value, 1);
    else if (fault.kind == FaultKind::garble)
        how.damages = rarity;
    else if (fault.value < by_pattern)
        how.breaks_after = std::max<std::uint64_t>(fault.value, 1);
    else
        how.resets = rarity;
    return how;
}

// Whether the fault lasts for its duration, or its node comes back after it.
bool spans_time(FaultKind kind) {
    switch (kind) {
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::corrupt:
    case FaultKind::hostile:
    case FaultKind::replayed_hello:
    case FaultKind::roam:
    case FaultKind::clock_jump: return false;
    default: return true;
    }
}

bool by_stranger(FaultKind kind) { return kind == FaultKind::hostile || kind == FaultKind::replayed_hello; }

}  // namespace

Injector::Injector(sim::World& world, const Scenario& scenario, Processes& processes, Excuses& excuses)
    : world_(world), scenario_(scenario), processes_(processes), excuses_(excuses), draw_(mix(scenario.seed, 910)),
      faults_(scenario.faults), progress_(faults_.size()), triggers_(world, faults_, fault_begins),
      frozen_(nodes() + 1, false), stranger_links_(scenario.faults.size()), liars_(world, scenario.seed) {
    for (const Fault& fault : scenario.faults) {
        if (by_stranger(fault.kind)) world.network().keep_greetings();
        if (fault.kind == FaultKind::revoke) world.authenticate_all();  // no other run has certificates
    }
}

std::uint32_t Injector::nodes_for(const Scenario& scenario) {
    const auto strangers = std::count_if(scenario.faults.begin(), scenario.faults.end(),
                                         [](const Fault& fault) { return by_stranger(fault.kind); });
    return strangers_from(scenario) + std::min(static_cast<std::uint32_t>(strangers), strangers_max);
}

void Injector::schedule() { triggers_.schedule(); }

Instant Injector::within_chaos(Duration duration) const {
    return std::min(world_.now() + duration, std::max(scenario_.chaos_end, world_.now()));
}

void Injector::schedule_end(const Fault& fault, std::uint64_t index) {
    if (!fault.forever) world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
}

// For a fault without a rule of its own: the node may be lost until well after the fault has healed. A fault of the
// master concerns every peer.
void Injector::touch(const Fault& fault, std::uint32_t node, Excuse excuse) {
    const Instant end = end_of(fault);
    excuses_.touch(excuse, index_of(fault), logical(node), world_.now(),
                   end == never ? never : end + 2 * scenario_.timeouts.peer + scenario_.timeouts.grace());
}

void Injector::apart(const Fault& fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until,
                     Duration gives_up) {
    excuses_.apart(index_of(fault), logical(a), logical(b), from, until, gives_up);
}

// Calls `change` for each directed pair that the fault separates. The two nodes of the master are on one side.
template <class Change>
void Injector::each_pair(const Fault& fault, Change change) {
    for (std::uint32_t from = 0; from <= nodes(); ++from) {
        for (std::uint32_t to = 0; to <= nodes(); ++to) {
            if (separates(fault, nodes(), logical(from), logical(to))) change(from, to);
        }
    }
}

template <class Change>
void Injector::each_from(std::uint32_t node, Change change) {
    for (std::uint32_t to = 0; to <= nodes(); ++to) {
        if (to != node) change(node, to);
    }
}

void Injector::network_split(const Fault& fault, std::uint64_t index) {
    sim::Network& network = world_.network();
    // If the fault lasts longer than this, streams give up within this time, because nothing is acknowledged.
    const Duration patience = second + static_cast<Duration>(fault.value % 30) * second;
    const bool gives_up = fault.kind != FaultKind::clog && (fault.duration > patience || fault.forever);
    each_pair(fault, [&](std::uint32_t from, std::uint32_t to) {
        network.block(from, to);
        apart(fault, from, to, world_.now(), end_of(fault), gives_up ? 0 : never);
    });
    if (gives_up) {
        each_pair(fault, [&](std::uint32_t from, std::uint32_t to) {
            if (from < to) network.give_up_between(from, to, patience);
        });
    }
    schedule_end(fault, index);
}

// Peers lose their connections to the node and cannot dial it again. Only this node may be lost for it: it is the one that
// nobody reaches.
void Injector::port_closes(const Fault& fault, std::uint64_t index) {
    sim::Network& network = world_.network();
    const std::uint32_t node = peer_of(fault);
    network.close_port(node, (fault.b & 1) != 0);
    for (const std::uint32_t connection : network.established()) {
        const std::uint32_t acceptor = network.peer_of(connection, 0), dialler = network.peer_of(connection, 1);
        if (acceptor != node || world_.is_master(dialler)) continue;
        network.reset(connection);
        excuses_.closed(index, logical(acceptor), logical(dialler), world_.now());
    }
    const Instant until = end_of(fault);
    // A dial that was swallowed is repeated only some time later.
    const Duration again = scenario_.timeouts.dial + 2 * scenario_.timeouts.redial_max;
    excuses_.touch(Excuse::no_ring, index, node, world_.now(), until == never ? never : until + again);
    for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge, Excuse::unreachable})
        excuses_.hardship(excuse, index, node, world_.now(), until);
    schedule_end(fault, index);
}

// The connections that the fault chooses from. `there`: the node at which its trigger happened, plus one.
std::vector<std::uint32_t> Injector::aimed_at(const Fault& fault, std::uint32_t there) {
    sim::Network& network = world_.network();
    const auto aimed = [&](std::vector<std::uint32_t> open) {
        std::erase_if(open, [&](std::uint32_t connection) {
            const std::uint32_t acceptor = network.peer_of(connection, 0), dialler = network.peer_of(connection, 1);
            const auto is_master = [this](std::uint32_t node) { return node == 0 || node == nodes(); };
            return ((fault.b & aim_control) != 0 && !is_master(dialler) && !is_master(acceptor)) ||
                   ((fault.b & aim_named) != 0 && logical(dialler) != fault.a % nodes() &&
                    logical(acceptor) != fault.a % nodes()) ||
                   ((fault.b & aim_there) != 0 && dialler + 1 != there && acceptor + 1 != there) ||
                   ((fault.b & aim_accepted) != 0 && acceptor + 1 != there) ||
                   ((fault.b & aim_dialled) != 0 && dialler + 1 != there);
        });
        return open;
    };
    // Prefers connections with bytes in flight, if there are any.
    std::vector<std::uint32_t> open = aimed(((fault.value >> 40) & 3) != 0 ? network.busy() : network.established());
    return open.empty() ? aimed(network.established()) : open;
}

bool Injector::connection_fault(const Fault& fault, std::uint64_t index, std::uint32_t there) {
    sim::Network& network = world_.network();
    const std::vector<std::uint32_t> open = aimed_at(fault, there);
    if (open.empty()) return false;
    const std::uint32_t connection = open[fault.value % open.size()];
    const std::uint32_t side = (fault.value >> 32) & 1;
    const bool one_knows = ((fault.value >> 33) & 1) != 0;
    switch (fault.kind) {
    case FaultKind::stall:
        stalled_.push_back(Stall{index, connection});
        network.stall(connection, side);
        schedule_end(fault, index);
        break;
    case FaultKind::reset: network.reset(connection); break;
    case FaultKind::end_early: network.end_early(connection, side); break;
    case FaultKind::half_open: network.half_open(connection, one_knows, side); break;
    case FaultKind::corrupt:
        if (!network.corrupt(connection, side, fault.value >> 8) &&
            !network.corrupt(connection, side ^ 1, fault.value >> 8))
            return false;
        break;
    default: break;
    }
    const std::uint32_t a = logical(network.peer_of(connection, 0)), b = logical(network.peer_of(connection, 1));
    progress_[index].hit = Scene{a, b};
    if (fault.kind == FaultKind::stall)
        apart(fault, a, b, world_.now(), end_of(fault));
    else if (fault.kind == FaultKind::half_open)
        excuses_.half_open(index, a, b, world_.now());
    else
        excuses_.closed(index, a, b, world_.now());
    if (fault.kind == FaultKind::corrupt) {
        for (const std::uint32_t node : {a, b}) {
            excuses_.hardship(Excuse::stuck_edge, index, node, world_.now(), world_.now());
            excuses_.hardship(Excuse::unreachable, index, node, world_.now(), world_.now());
        }
    }
    note(index, {network.peer_of(connection, 0)}, {network.peer_of(connection, 1)});
    return true;
}

void Injector::begin(std::uint64_t index_and_node) {
    if (!chaos_) return;
    const std::uint64_t index = index_and_node & 0xffffffffu;
    if (!find_place(index)) return;
    const Fault& fault = faults_[index];
    const bool begun = carry_out(index, static_cast<std::uint32_t>(index_and_node >> 32));
    if (progress_[index].again >= fault.again) return;
    ++progress_[index].again;
    if (fault.each) {
        progress_[index].placed = false;  // it may happen at another node
        return triggers_.arm_again(index);
    }
    const Duration lasts = begun && spans_time(fault.kind) ? fault.duration : 0;
    world_.schedule_script(world_.now() + lasts + fault.every, fault_begins, index_and_node);
}

// Chooses the nodes of a fault that happens where its trigger, or the fault before it, happened. False: it cannot
// happen there.
bool Injector::find_place(std::uint64_t index) {
    Fault& fault = faults_[index];
    if (fault.place == FaultPlace::named || progress_[index].placed) return true;
    progress_[index].placed = true;
    const Scene& scene = triggers_.scene_of(index);
    const auto known = [&](std::uint32_t node) { return node <= nodes() ? logical(node) : sim::no_node; };
    std::uint32_t here = known(scene.here), there = known(scene.there);
    if (here == sim::no_node) here = fault.a % nodes();
    // If no other node was involved: the master or, if the first node is the master, a peer.
    if (there == sim::no_node || there == here) there = here != 0 ? 0 : peer_of(fault);
    if (fault.place == FaultPlace::there) std::swap(here, there);
    switch (fault.kind) {
    case FaultKind::partition: fault.a = 1u << here % 31; return here < 31;
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer:
    case FaultKind::slow_compute:
    case FaultKind::hang:
    case FaultKind::liar:
    case FaultKind::revoke:
    case FaultKind::replayed_hello:
    case FaultKind::roam: fault.a = here != 0 ? here : there; return true;
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap:
        if (here == 0 || there == 0) return false;
        break;
    default: break;
    }
    fault.a = here;
    if (names_two(fault.kind)) fault.b = there;
    if (chooses_a_connection(fault.kind)) fault.b = (fault.b & aim_control) | aim_named;
    return true;
}

// False: nothing could happen, or the fault takes effect later.
bool Injector::carry_out(std::uint64_t index, std::uint32_t there) {
    const Fault& fault = faults_[index];
    if (stopping_ != nullptr && concerns_the_journal(fault.kind)) return false;  // there is no journal any more
    if (fault.kind != FaultKind::aimed_master && fault.kind != FaultKind::aimed_peer) {
        world_.trace().line(world_.now(), sim::no_node,
                            formatted("FAULT {} a {} b {}", to_text(fault.kind), fault.a, fault.b));
    }
    const bool with_reset = (fault.value & 1) != 0;
    switch (fault.kind) {
    case FaultKind::partition:
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog:
    case FaultKind::interface: network_split(fault, index); break;
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::corrupt:
    case FaultKind::stall:
        if (!connection_fault(fault, index, there)) return false;
        break;
    case FaultKind::crash_peer: {
        const std::uint32_t node = peer_of(fault);
        if (!world_.alive(node)) return false;
        world_.end_process(node, with_reset);
        peer_gone(index, node);
        break;
    }
    case FaultKind::crash_master:
    case FaultKind::torn_write:
    case FaultKind::older_journal:
    case FaultKind::empty_journal:
        if (!master_crash(fault)) return false;
        break;
    case FaultKind::aimed_peer: {
        static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<SendPayload>(),
                                            effect_index<Complete>(),    effect_index<ReceivePayload>(),
                                            effect_index<Compute>(),     effect_index<SendFlow>()};
        world_.arm(peer_of(fault), sim::AimedCrash{kinds[(fault.value >> 8) % 6], fault.b, with_reset, index});
        return false;  // counted when it fires
    }
    case FaultKind::aimed_master: {
        static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<Persist>()};
        world_.arm(world_.master(), sim::AimedCrash{kinds[(fault.value >> 8) % 2], fault.b, with_reset, index});
        return false;
    }
    case FaultKind::pause: {
        if ((fault.b & 1) != 0) {
            // All nodes stop together, so no member may be lost for it.
            const Instant until = within_chaos(fault.duration);
            for (std::uint32_t node = 0; node <= nodes(); ++node) {
                if (world_.alive(node)) world_.pause(node, until - world_.now());
            }
            standstill_until_ = std::max(standstill_until_, until);
            processes_.all_frozen(until);
            excuses_.standstill(world_.now(), until);
            break;
        }
        const std::uint32_t node = fault.a % nodes();
        if (!world_.alive(played_by(node))) return false;
        if (node == 0)
            excuses_.master_away(index, world_.now(), end_of(fault));
        else
            excuses_.asleep(index, node, world_.now(), end_of(fault));
        if (fault.forever) frozen_[node] = true;
        world_.pause(played_by(node), fault.forever
                                          ? scenario_.chaos_end + scenario_.stop_after + 100 * scenario_.patience
                                          : within_chaos(fault.duration) - world_.now());
        break;
    }
    case FaultKind::two_masters:
        if (!two_masters(fault)) return false;
        break;
    case FaultKind::full_disk:
        if (!world_.alive(world_.master()) || halting_ != nullptr) return false;
        halting_ = &fault;
        world_.fail_disk(true);
        break;
    case FaultKind::slow_disk:
        world_.slow_disk(static_cast<Duration>(fault.value % 10'000) * millisecond);
        // A welcome needs a durable record. A peer that waits for it so long dials again, which makes another record.
        if (static_cast<Duration>(fault.value % 10'000) * millisecond >= scenario_.timeouts.peer / 4)
            excuses_.master_away(index, world_.now(), within_chaos(fault.duration));
        excuses_.slow_records(index, world_.now(),
                              within_chaos(fault.duration) + static_cast<Duration>(fault.value % 10'000) * millisecond);
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    case FaultKind::stuck_disk:
        if (!world_.alive(world_.master()) || disk_hangs_) return false;
        stuck_ = &fault;
        disk_hangs_ = true;
        world_.hang_disk();
        excuses_.slow_records(index, world_.now(), within_chaos(fault.duration));
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    case FaultKind::slow_compute: {
        const auto factor = 1 + static_cast<std::uint32_t>(fault.value % 1000);
        world_.set_compute_factor(peer_of(fault), factor);
        // Computes that have begun stay slow.
        const Instant until = within_chaos(fault.duration) + factor * scenario_.world.compute_max;
        for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge, Excuse::unreachable})
            excuses_.hardship(excuse, index, peer_of(fault), world_.now(), until);
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    }
    case FaultKind::hang:
        if (fault.forever) frozen_[peer_of(fault)] = idlers_last_ = true;
        processes_.hang(peer_of(fault), fault.forever
                                            ? scenario_.chaos_end + scenario_.stop_after + 100 * scenario_.patience
                                            : within_chaos(fault.duration));
        break;
    case FaultKind::closed_port: port_closes(fault, index); break;
    case FaultKind::roam: {
        const std::uint32_t node = peer_of(fault);
        sim::Network& network = world_.network();
        network.move_away(node);
        for (const std::uint32_t connection : network.established()) {
            const std::uint32_t a = network.peer_of(connection, 0), b = network.peer_of(connection, 1);
            if (a != node && b != node) continue;
            network.half_open(connection, (fault.value & 1) != 0, a == node ? 1 : 0);
            excuses_.half_open(index, logical(a), logical(b), world_.now());
        }
        break;
    }
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap: {
        const std::uint32_t from = peer_of(fault), to = 1 + (fault.b - 1) % (nodes() - 1);
        if (from == to) return false;
        for (const std::uint32_t node : {from, to}) {
            touch(fault, node, Excuse::no_ring);
            for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge, Excuse::unreachable})
                excuses_.hardship(excuse, index, node, world_.now(), end_of(fault));
        }
        world_.network().impair(from, to, impairment_of(fault));
        schedule_end(fault, index);
        break;
    }
    case FaultKind::stop_master:
        if (!stop_the_master(fault, index)) return false;
        break;
    case FaultKind::flap:
        if (fault.a % nodes() == fault.b % nodes()) return false;
        link_flaps(fault, true);
        schedule_end(fault, index);
        break;
    case FaultKind::clock_jump: clock_jumps(fault); break;
    case FaultKind::revoke:
        if (!revoke(fault, index)) return false;
        break;
    case FaultKind::liar:
        if (liars_.lies(peer_of(fault))) return false;
        liar_begins(fault, index);
        break;
    case FaultKind::swizzle:
    case FaultKind::hostile:
    case FaultKind::replayed_hello: go_on(index); break;
    }
    took_effect(fault);
    note(index);
    return true;
}

// Connections of the two nodes break each time that they come up again, whichever side writes.
void Injector::link_flaps(const Fault& fault, bool begins) {
    const std::uint32_t a = fault.a % nodes(), b = fault.b % nodes();
    if (begins) apart(fault, a, b, world_.now(), end_of(fault), 0);
    sim::Impairment how;
    how.breaks_after = std::max<std::uint64_t>(fault.value, 1);
    for (std::uint32_t from = 0; from <= nodes(); ++from) {
        for (std::uint32_t to = 0; to <= nodes(); ++to) {
            const std::uint32_t x = logical(from), y = logical(to);
            if ((x != a || y != b) && (x != b || y != a)) continue;
            if (begins)
                world_.network().impair(from, to, how);
            else
                world_.network().repair(from, to);
        }
    }
}

void Injector::clock_jumps(const Fault& fault) {
    const std::uint32_t node = played_by(fault.a % nodes());
    world_.jump_clock(node, fault.duration);
    if (logical(node) == 0) excuses_.master_clock_jump(world_.now(), fault.duration);
}

void Injector::took_effect(const Fault& fault) {
    first_at_ = std::min(first_at_, world_.now());
    ++injected_[static_cast<std::size_t>(fault.kind)];
    progress_[index_of(fault)].happened = true;
    if (progress_[index_of(fault)].again != 0)
        ++second_.repeated;
    else if (fault.follows != 0)
        ++second_.behind_faults;
    else if (fault.trigger > effects_last)
        ++second_.at_phases;
    if (coverage_ != nullptr) coverage_->fault(fault.kind, world_.now(), end_of(fault));
    triggers_.began(index_of(fault), scene_of(fault), spans_time(fault.kind) ? end_of(fault) : world_.now());
}

// The nodes at which followers of this fault take place.
Scene Injector::scene_of(const Fault& fault) const {
    if (chooses_a_connection(fault.kind)) return progress_[index_of(fault)].hit;
    if (names_two(fault.kind)) return {fault.a % nodes(), fault.b % nodes()};
    if (names_a_node(fault.kind)) return {fault.a % nodes(), sim::no_node};
    return {0, sim::no_node};
}

// The next step of a fault with several steps. The number of the step is in the upper half.
void Injector::go_on(std::uint64_t index_and_step) {
    const std::uint64_t index = index_and_step & 0xffffffffu;
    const std::uint64_t step = index_and_step >> 32;
    const Fault& fault = faults_[index];
    if (fault.kind == FaultKind::revoke) return revoked_a_while_ago(index);
    if (fault.kind != FaultKind::swizzle) {
        if (chaos_ || fault.forever) stranger_speaks(fault, index);
        return;
    }
    const std::vector<std::uint32_t> nodes = swizzled_nodes(fault, this->nodes());
    if (step == 0) {
        // All times are fixed at the start. The nodes fall silent one by one in the first half, and come back in
        // another order in the second half.
        const Duration whole = within_chaos(fault.duration) - world_.now();
        for (std::uint64_t i = 0; i < nodes.size(); ++i) {
            const Duration off = whole / 2 * static_cast<Duration>(i) / static_cast<Duration>(nodes.size());
            const Duration on =
                whole / 2 + static_cast<Duration>(draw_.below(static_cast<std::uint64_t>(whole / 2) + 1));
            world_.schedule_script(world_.now() + off, fault_goes_on, index | (2 * i + 1) << 32);
            world_.schedule_script(world_.now() + on, fault_goes_on, index | (2 * i + 2) << 32);
            for (std::uint32_t to = 0; to <= this->nodes(); ++to)
                apart(fault, nodes[i], to, world_.now() + off, world_.now() + on);
        }
        return;
    }
    const std::uint32_t node = nodes[(step - 1) / 2];
    each_from(node, [&](std::uint32_t from, std::uint32_t to) {
        if (step % 2 == 1) {
            world_.network().block(from, to);
        } else {
            world_.network().unblock(from, to);
        }
    });
}

void Injector::end(std::uint64_t index) {
    const Fault& fault = faults_[index];
    world_.trace().line(world_.now(), sim::no_node, std::string("healed: ") + to_text(fault.kind));
    if (fault.kind == FaultKind::slow_disk) return world_.slow_disk(0);
    if (fault.kind == FaultKind::stop_master) return master_stops(index);
    if (fault.kind == FaultKind::stuck_disk) return disk_answers_again(fault);
    if (fault.kind == FaultKind::flap) return link_flaps(fault, false);
    if (fault.kind == FaultKind::closed_port) return world_.network().open_port(peer_of(fault));
    if (fault.kind == FaultKind::liar) return liar_ends(fault, index);
    if (fault.kind == FaultKind::slow_compute) return world_.set_compute_factor(peer_of(fault), 1);
    if (impairs_an_edge(fault.kind)) return world_.network().repair(peer_of(fault), 1 + (fault.b - 1) % (nodes() - 1));
    for (const Stall& stall : stalled_) {
        if (stall.fault == index) world_.network().go_on(stall.connection, (fault.value >> 32) & 1);
    }
    std::erase_if(stalled_, [index](const Stall& stall) { return stall.fault == index; });
    each_pair(fault, [&](std::uint32_t from, std::uint32_t to) { world_.network().unblock(from, to); });
}

// A peer may die without a reset and come back at its address. Its control link is found broken late, when a heartbeat
// reaches the new process, which does not know the link. Its seat is kept for a peer time-out from then on, and edges
// to it may be given up before.
void Injector::peer_gone(std::uint64_t index, std::uint32_t node) {
    const Fault& fault = faults_[index];
    if ((fault.value & 1) == 0) excuses_.hardship(Excuse::stuck_edge, index, node, world_.now(), world_.now());
    processes_.process_gone(node, fault);
}

void Injector::aimed_crash(std::uint32_t node, std::uint64_t index) {
    const Fault& fault = faults_[index];
    took_effect(fault);
    note(index, {node}, {});
    if (node == world_.master() && stopping_ != nullptr) {
        excuses_.stop_was_cut_short();
        return run_is_over(*stopping_);
    }
    if (node == world_.master()) excuses_.master_away(index, world_.now(), end_of(fault));
    if (node != 0 && node != nodes()) return peer_gone(index, node);
    if (node == world_.master()) processes_.process_gone(0, fault);
}

// A process that starts during a standstill is paused until its end.
void Injector::process_began(std::uint32_t node) {
    if (world_.now() < standstill_until_) world_.pause(node, standstill_until_ - world_.now());
}

// --- for reports -----------------------------------------------------------------------------------------------------

void Injector::note(std::uint64_t index) {
    if (spans_ == nullptr) return;
    const Fault& fault = faults_[index];
    std::vector<std::uint32_t> nodes, others;
    const std::uint32_t a = fault.a % this->nodes(), b = fault.b % this->nodes();
    switch (fault.kind) {
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::corrupt:
    case FaultKind::stall: return;  // recorded with the ends of the connection
    case FaultKind::partition:
        for (std::uint32_t node = 0; node < this->nodes(); ++node)
            (in_mask(fault.a, node) ? nodes : others).push_back(played_by(node));
        break;
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap: nodes = {peer_of(fault)}, others = {1 + (fault.b - 1) % (this->nodes() - 1)}; break;
    case FaultKind::one_way:
    case FaultKind::flap:
    case FaultKind::cut_pair:
        nodes = {played_by(a)};
        if (b != a) others = {played_by(b)};
        break;
    case FaultKind::clog:
    case FaultKind::pause:
    case FaultKind::clock_jump:
    case FaultKind::hostile: nodes = {played_by(a)}; break;
    case FaultKind::interface:
        nodes = {played_by(a)};
        for (std::uint32_t node = 0; node < this->nodes(); ++node) {
            if (separates(fault, this->nodes(), a, node)) others.push_back(played_by(node));
        }
        break;
    case FaultKind::crash_peer:
    case FaultKind::slow_compute:
    case FaultKind::closed_port:
    case FaultKind::revoke:
    case FaultKind::liar:
    case FaultKind::hang: nodes = {peer_of(fault)}; break;
    case FaultKind::swizzle:
        for (const std::uint32_t node : swizzled_nodes(fault, this->nodes())) nodes.push_back(played_by(node));
        break;
    default: nodes = {world_.master()};
    }
    note(index, std::move(nodes), std::move(others));
}

void Injector::note(std::uint64_t index, std::vector<std::uint32_t> nodes, std::vector<std::uint32_t> others) {
    if (spans_ == nullptr) return;
    const Fault& fault = faults_[index];
    FaultSpan span;
    span.index = index;
    span.kind = fault.kind;
    span.begin = span.end = world_.now();
    switch (fault.kind) {
    case FaultKind::partition:
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog:
    case FaultKind::interface:
    case FaultKind::stall:
    case FaultKind::pause:
    case FaultKind::slow_disk:
    case FaultKind::stuck_disk:
    case FaultKind::slow_compute:
    case FaultKind::closed_port:
    case FaultKind::liar:
    case FaultKind::hang:
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap:
    case FaultKind::flap:
    case FaultKind::swizzle: span.end = fault.forever ? never : within_chaos(fault.duration); break;
    default: break;  // without duration
    }
    span.nodes = std::move(nodes);
    span.others = std::move(others);
    spans_->push_back(std::move(span));
}

void Injector::chaos_over() {
    chaos_ = false;
    const std::uint32_t old = world_.master() == 0 ? nodes() : 0;
    if (world_.alive(old)) world_.end_process(old, true);
    if (halting_ != nullptr && world_.alive(world_.master())) {
        world_.fail_disk(false);
        halting_ = nullptr;
    }
    disk_hangs_ = false;
    world_.stop_faults();
    world_.disarm();
    triggers_.disarm();
    world_.trace().line(world_.now(), sim::no_node, "faults stop");
}

}  // namespace pccl::harness
