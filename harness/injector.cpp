#include "harness/injector.hpp"

#include "harness/fault_pairs.hpp"
#include "harness/hostile.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::effect_index;
using sim::mix;

namespace {

constexpr std::uint32_t strangers_max = 3;

// Whether the stranger of a `hostile` fault comes in numbers and says nothing.
bool is_crowd(const Fault& fault) { return ((fault.value >> 50) & 3) == 0; }

// Whether it waits to be admitted and lies about members all the time.
bool is_lying_newcomer(const Fault& fault) {
    return fault.kind == FaultKind::hostile && ((fault.value >> 50) & 3) == 1;
}

constexpr std::uint64_t by_pattern = 1ull << 32;

// What an edge does for as long as the fault lasts. How rare the windows of a pattern are is drawn from `value`, too.
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

// A process that was told to end does so at the latest.
constexpr Duration stops_within = second;

bool by_stranger(FaultKind kind) { return kind == FaultKind::hostile || kind == FaultKind::replayed_hello; }

}  // namespace

Injector::Injector(sim::World& world, const Scenario& scenario, Processes& processes, Excuses& excuses)
    : world_(world), scenario_(scenario), processes_(processes), excuses_(excuses), draw_(mix(scenario.seed, 910)),
      frozen_(nodes() + 1, false), stranger_links_(scenario.faults.size()) {
    for (const Fault& fault : scenario.faults) {
        if (by_stranger(fault.kind)) world.network().keep_greetings();
    }
}

std::uint32_t Injector::nodes_for(const Scenario& scenario) {
    const auto strangers = std::count_if(scenario.faults.begin(), scenario.faults.end(),
                                         [](const Fault& fault) { return by_stranger(fault.kind); });
    return strangers_from(scenario) + std::min(static_cast<std::uint32_t>(strangers), strangers_max);
}

void Injector::schedule() {
    for (std::size_t i = 0; i < scenario_.faults.size(); ++i) {
        const Fault& fault = scenario_.faults[i];
        if (fault.trigger == 0) {
            world_.schedule_script(fault.at, fault_begins, i);
        } else {
            world_.arm(sim::Trigger{fault.trigger - 1, fault.trigger_count, fault.at, fault_begins, i});
        }
    }
}

Instant Injector::within_chaos(Duration duration) const {
    return std::min(world_.now() + duration, std::max(scenario_.chaos_end, world_.now()));
}

void Injector::schedule_end(const Fault& fault, std::uint64_t index) {
    if (!fault.forever) world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
}

// A fault with no rule of its own: the node may be lost until it has long healed. What happens to the master happens to
// everybody.
void Injector::touch(const Fault& fault, std::uint32_t node, Excuse excuse) {
    const Instant end = end_of(fault);
    excuses_.touch(excuse, index_of(fault), logical(node), world_.now(),
                   end == never ? never : end + 2 * scenario_.timeouts.peer + scenario_.timeouts.grace());
}

void Injector::apart(const Fault& fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until,
                     Duration gives_up) {
    excuses_.apart(index_of(fault), logical(a), logical(b), from, until, gives_up);
}

// Calls `change` for each directed pair that the fault separates. The two places of the master are on one side.
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
    // Some streams give up when nothing is acknowledged for long: within this time, where it lasts longer.
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

// The connections that the fault chooses from. `there`: the node at which its trigger happened, plus one.
std::vector<std::uint32_t> Injector::aimed_at(const Fault& fault, std::uint32_t there) {
    sim::Network& network = world_.network();
    const auto aimed = [&](std::vector<std::uint32_t> open) {
        std::erase_if(open, [&](std::uint32_t connection) {
            const std::uint32_t dialler = network.peer_of(connection, 0), acceptor = network.peer_of(connection, 1);
            const auto is_master = [this](std::uint32_t node) { return node == 0 || node == nodes(); };
            return ((fault.b & aim_control) != 0 && !is_master(dialler) && !is_master(acceptor)) ||
                   ((fault.b & aim_there) != 0 && dialler + 1 != there && acceptor + 1 != there) ||
                   ((fault.b & aim_accepted) != 0 && acceptor + 1 != there);
        });
        return open;
    };
    // Rather one with bytes on their way, where there is one.
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

bool Injector::master_crash(const Fault& fault) {
    const std::uint32_t node = world_.master();
    if (!world_.alive(node)) return false;
    excuses_.master_away(index_of(fault), world_.now(), end_of(fault));
    world_.end_process(node, (fault.value & 1) != 0, fault.kind == FaultKind::torn_write);
    if (fault.kind == FaultKind::older_journal || fault.kind == FaultKind::empty_journal) {
        touch(fault, 0, Excuse::lost_journal);
        const Instant written =
            world_.forget_records(fault.kind == FaultKind::empty_journal ? ~std::size_t{0} : fault.b);
        if (written != never) excuses_.records_lost(written, world_.now());
    }
    processes_.process_gone(0, fault);
    return true;
}

// The first master lives on, cut off from the journal; what of it anybody still hears is drawn per peer.
bool Injector::two_masters(const Fault& fault) {
    const std::uint32_t old = world_.master();
    const std::uint32_t next = old == 0 ? nodes() : 0;
    if (!world_.alive(old)) return false;
    for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge})
        excuses_.hardship(excuse, index_of(fault), every_peer, world_.now(), scenario_.chaos_end);
    // The first one goes on until its disk refuses a record, at the end of chaos at the latest.
    excuses_.touch(Excuse::copied_token, index_of(fault), every_peer, world_.now(),
                   scenario_.chaos_end + 2 * scenario_.timeouts.peer + scenario_.timeouts.grace());
    if (world_.alive(next)) world_.end_process(next, true);
    world_.hand_over_journal(next);
    processes_.begin_master();
    sim::Network& network = world_.network();
    for (const std::uint32_t connection : network.established()) {
        const bool control = network.peer_of(connection, 0) == old || network.peer_of(connection, 1) == old;
        if (control && ((fault.value >> (connection % 60)) & 1) != 0) network.reset(connection);
    }
    return true;
}

// What somebody outside of the run can know of it and of the node.
Knowledge Injector::what_is_known(std::uint32_t target) {
    Knowledge known = learn(world_.network().greeting_among(nodes(), target));
    const auto& payloads = world_.payloads_to(target);
    known.payloads.assign(payloads.begin(), payloads.end());
    return known;
}

// Connections that say nothing, more and more of them.
void Injector::crowd_comes(const Fault& fault, std::uint64_t index) {
    Stranger& stranger = stranger_links_[index];
    if (stranger.said++ >= std::max(fault.b % 40, 1u)) return;
    const std::uint32_t first = strangers_from(scenario_);
    const std::uint32_t own = first + static_cast<std::uint32_t>(index % (nodes_for(scenario_) - first));
    for (std::uint64_t i = draw_.number(1, 20); i-- != 0;)
        world_.network().dial(own, 0, sim::endpoint_of(fault.a % nodes()));
    world_.schedule_script(world_.now() + draw_.log_uniform(millisecond, second), fault_goes_on, index);
}

// One thing said each time; the next one follows after a while.
void Injector::stranger_speaks(const Fault& fault, std::uint64_t index) {
    Stranger& stranger = stranger_links_[index];
    sim::Network& network = world_.network();
    const std::uint32_t first = strangers_from(scenario_);
    const std::uint32_t own = first + static_cast<std::uint32_t>(index % (nodes_for(scenario_) - first));
    const bool replay = fault.kind == FaultKind::replayed_hello;
    if (fault.kind == FaultKind::hostile && is_crowd(fault)) return crowd_comes(fault, index);
    if (stranger.said >= std::max(fault.b % 40, 1u)) return;
    Duration wait = 0;
    if (!stranger.dialled || !network.open_end(stranger.connection, 0) || draw_.chance(150'000)) {
        // Where a link is closed on it, it tries again.
        if (stranger.dialled) network.close(stranger.connection, 0, draw_.chance(500'000));
        const std::uint32_t target = replay || is_lying_newcomer(fault) ? 0 : fault.a % nodes();
        stranger.registered = false;
        stranger.connection = network.dial(own, 0, sim::endpoint_of(target));
        stranger.dialled = true;
        wait = 2 * network.latency(own, target) + millisecond;
        ++stranger.said;  // a closed door counts too
    } else {
        const bool liar = is_lying_newcomer(fault);
        std::string newcomer;
        const std::vector<std::uint8_t> bytes =
            replay ? network.greeting(1 + (fault.a - 1) % (nodes() - 1), world_.master())
            : liar ? newcomer_lies(draw_, own, what_is_known(0), stranger.registered, newcomer)
                   : hostile_bytes(draw_, own, fault.a % nodes() == 0, what_is_known(fault.a % nodes()), newcomer);
        stranger.registered = liar;
        if (replay || !newcomer.empty()) {
            stranger_hellos_.push_back({world_.now(), world_.now(), newcomer});
            hello_of_.push_back(index);
        }
        for (std::size_t i = 0; i < hello_of_.size(); ++i) {
            if (hello_of_[i] == index) stranger_hellos_[i].last_said = world_.now();
        }
        if (replay) touch(fault, 1 + (fault.a - 1) % (nodes() - 1), Excuse::copied_token);
        if (!bytes.empty()) network.write(stranger.connection, 0, bytes);
        ++stranger.said;
        wait = draw_.log_uniform(100 * microsecond, second);
    }
    world_.schedule_script(world_.now() + wait, fault_goes_on, index);
}

void Injector::begin(std::uint64_t index_and_node) {
    if (!chaos_) return;
    const std::uint64_t index = index_and_node & 0xffffffffu;
    const auto there = static_cast<std::uint32_t>(index_and_node >> 32);
    const Fault& fault = scenario_.faults[index];
    if (stopping_ != nullptr && concerns_the_journal(fault.kind)) return;  // there is none any more
    if (fault.kind != FaultKind::aimed_master && fault.kind != FaultKind::aimed_peer) {
        world_.trace().line(world_.now(), sim::no_node,
                            std::string("FAULT ") + to_text(fault.kind) + " a " + std::to_string(fault.a) + " b " +
                                std::to_string(fault.b));
    }
    const bool with_reset = (fault.value & 1) != 0;
    switch (fault.kind) {
    case FaultKind::partition:
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog: network_split(fault, index); break;
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::corrupt:
    case FaultKind::stall:
        if (!connection_fault(fault, index, there)) return;
        break;
    case FaultKind::crash_peer: {
        const std::uint32_t node = peer_of(fault);
        if (!world_.alive(node)) return;
        world_.end_process(node, with_reset);
        processes_.process_gone(node, fault);
        break;
    }
    case FaultKind::crash_master:
    case FaultKind::torn_write:
    case FaultKind::older_journal:
    case FaultKind::empty_journal:
        if (!master_crash(fault)) return;
        break;
    case FaultKind::aimed_peer: {
        static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<SendPayload>(),
                                            effect_index<Complete>(),    effect_index<ReceivePayload>(),
                                            effect_index<Compute>(),     effect_index<SendFlow>()};
        world_.arm(peer_of(fault), sim::AimedCrash{kinds[(fault.value >> 8) % 6], fault.b, with_reset, index});
        return;  // counted when it fires
    }
    case FaultKind::aimed_master: {
        static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<Persist>()};
        world_.arm(world_.master(), sim::AimedCrash{kinds[(fault.value >> 8) % 2], fault.b, with_reset, index});
        return;
    }
    case FaultKind::pause: {
        if ((fault.b & 1) != 0) {
            // Nobody is behind the others: nobody may be lost for it.
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
        if (!world_.alive(played_by(node))) return;
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
        if (!two_masters(fault)) return;
        break;
    case FaultKind::full_disk:
        if (!world_.alive(world_.master()) || halting_ != nullptr) return;
        halting_ = &fault;
        world_.fail_disk(true);
        break;
    case FaultKind::slow_disk:
        world_.slow_disk(static_cast<Duration>(fault.value % 10'000) * millisecond);
        // A welcome rests on a record. Who waits for it for so long dials again, which makes another record.
        if (static_cast<Duration>(fault.value % 10'000) * millisecond >= scenario_.timeouts.peer / 4)
            excuses_.master_away(index, world_.now(), within_chaos(fault.duration));
        excuses_.slow_records(index, world_.now(),
                              within_chaos(fault.duration) + static_cast<Duration>(fault.value % 10'000) * millisecond);
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    case FaultKind::stuck_disk:
        if (!world_.alive(world_.master()) || disk_hangs_) return;
        stuck_ = &fault;
        disk_hangs_ = true;
        world_.hang_disk();
        excuses_.slow_records(index, world_.now(), within_chaos(fault.duration));
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    case FaultKind::slow_compute: {
        const auto factor = 1 + static_cast<std::uint32_t>(fault.value % 1000);
        world_.set_compute_factor(peer_of(fault), factor);
        // What has begun goes on as slowly.
        const Instant until = within_chaos(fault.duration) + factor * scenario_.world.compute_max;
        for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge, Excuse::unreachable})
            excuses_.hardship(excuse, index, peer_of(fault), world_.now(), until);
        world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
        break;
    }
    case FaultKind::hang: processes_.hang(peer_of(fault), within_chaos(fault.duration)); break;
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
        if (from == to) return;
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
        if (!stop_the_master(fault, index)) return;
        break;
    case FaultKind::swizzle:
    case FaultKind::hostile:
    case FaultKind::replayed_hello: go_on(index); break;
    }
    took_effect(fault);
    note(index);
}

void Injector::took_effect(const Fault& fault) {
    ++injected_[static_cast<std::size_t>(fault.kind)];
    if (coverage_ != nullptr) coverage_->fault(fault.kind, world_.now(), end_of(fault));
}

// Faults of several steps. The step is in the upper half.
void Injector::go_on(std::uint64_t index_and_step) {
    const std::uint64_t index = index_and_step & 0xffffffffu;
    const std::uint64_t step = index_and_step >> 32;
    const Fault& fault = scenario_.faults[index];
    if (fault.kind != FaultKind::swizzle) {
        if (chaos_) stranger_speaks(fault, index);
        return;
    }
    const std::vector<std::uint32_t> nodes = swizzled_nodes(fault, this->nodes());
    if (step == 0) {
        // All times are known from the start: silent one by one in the first half, back in an order of their own.
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
    const Fault& fault = scenario_.faults[index];
    world_.trace().line(world_.now(), sim::no_node, std::string("healed: ") + to_text(fault.kind));
    if (fault.kind == FaultKind::slow_disk) return world_.slow_disk(0);
    if (fault.kind == FaultKind::stop_master) return master_stops(index);
    if (fault.kind == FaultKind::stuck_disk) return disk_answers_again(fault);
    if (fault.kind == FaultKind::slow_compute) return world_.set_compute_factor(peer_of(fault), 1);
    if (impairs_an_edge(fault.kind)) return world_.network().repair(peer_of(fault), 1 + (fault.b - 1) % (nodes() - 1));
    for (const Stall& stall : stalled_) {
        if (stall.fault == index) world_.network().go_on(stall.connection, (fault.value >> 32) & 1);
    }
    each_pair(fault, [&](std::uint32_t from, std::uint32_t to) { world_.network().unblock(from, to); });
}

void Injector::aimed_crash(std::uint32_t node, std::uint64_t index) {
    const Fault& fault = scenario_.faults[index];
    took_effect(fault);
    note(index, {node}, {});
    if (node == world_.master() && stopping_ != nullptr) {
        excuses_.stop_was_cut_short();
        return run_is_over(*stopping_);
    }
    if (node == world_.master()) excuses_.master_away(index, world_.now(), end_of(fault));
    if (node != 0 && node != nodes()) return processes_.process_gone(node, fault);
    if (node == world_.master()) processes_.process_gone(0, fault);
}

void Injector::free_disk() {
    disk_hangs_ = false;
    world_.free_disk();
}

// Nobody waits for a disk for ever: where it has not come back by itself, the operator ends the master.
void Injector::disk_answers_again(const Fault& fault) {
    const std::uint32_t node = world_.master();
    if (disk_hangs_ && chaos_ && (fault.value & stuck_until_killed) != 0 && world_.alive(node)) {
        world_.end_process(node, (fault.value & 1) != 0);
        start_again(fault);
    }
    free_disk();
}

// Not one whose journal another master has taken over, or whose disk is about to stop it.
bool Injector::stop_the_master(const Fault& fault, std::uint64_t index) {
    const std::uint32_t node = world_.master(), other = node == 0 ? nodes() : 0;
    if (!world_.alive(node) || world_.alive(other) || halting_ != nullptr || world_.paused(node)) return false;
    stopping_ = &fault;
    stopping_until_ = world_.now() + stops_within;
    excuses_.master_stopped(index_of(fault), world_.now(), stopping_until_ + fault.duration);
    world_.shut_down_master();
    master_stops(index);
    return true;
}

// Its process ends when it has told everybody, or after a while.
void Injector::master_stops(std::uint64_t index) {
    const std::uint32_t node = world_.master();
    if (stopping_ == nullptr) return;
    if (world_.alive(node) && world_.driver(node)->flushing() && world_.now() < stopping_until_)
        return world_.schedule_script(world_.now() + 5 * millisecond, fault_ends, index);
    // A path that is full for so long: what waited for it is lost.
    if (world_.now() + 5 * millisecond >= stopping_until_) excuses_.stop_was_cut_short();
    if (world_.alive(node)) world_.end_process(node, true);
    run_is_over(scenario_.faults[index]);
}

void Injector::run_is_over(const Fault& fault) {
    stopping_ = nullptr;
    world_.forget_records(~std::size_t{0});
    excuses_.master_away(index_of(fault), world_.now(), end_of(fault));
    processes_.process_gone(0, fault);
}

// Nobody begins to run while everything stands still.
void Injector::process_began(std::uint32_t node) {
    if (world_.now() < standstill_until_) world_.pause(node, standstill_until_ - world_.now());
}

// The master that stopped for its disk, after the `b` ms that its supervisor takes.
void Injector::start_again(const Fault& fault) {
    Fault supervisor = fault;
    supervisor.duration = static_cast<Duration>(fault.b % 10'000 + 1) * millisecond;
    excuses_.master_away(index_of(fault), world_.now(), within_chaos(supervisor.duration));
    if ((fault.value & stuck_next_answers) != 0) free_disk();
    processes_.process_gone(0, supervisor);
}

// Its disk failed, or was silent for the limit: it said nothing more. The one that lost its journal to another master does
// not come back.
void Injector::master_halted(std::uint32_t node) {
    world_.trace().line(world_.now(), node, "the master stops: its records cannot be written");
    if (node != world_.master()) return;
    if (stopping_ != nullptr) {
        excuses_.stop_was_cut_short();
        return run_is_over(*stopping_);
    }
    if (halting_ == nullptr) {
        if (stuck_ != nullptr) return start_again(*stuck_);
        // A slow disk was slower than the limit.
        Fault slow;
        slow.kind = FaultKind::slow_disk;
        slow.duration = second;
        excuses_.master_away(no_fault, world_.now(), within_chaos(slow.duration));
        return processes_.process_gone(0, slow);
    }
    const Fault& fault = *halting_;
    excuses_.master_away(index_of(fault), world_.now(), end_of(fault));
    halting_ = nullptr;
    world_.fail_disk(false);
    if (!fault.forever) processes_.process_gone(0, fault);
}

// --- for reports ---------------------------------------------------------------------------------------------------------

void Injector::note(std::uint64_t index) {
    if (spans_ == nullptr) return;
    const Fault& fault = scenario_.faults[index];
    std::vector<std::uint32_t> nodes, others;
    const std::uint32_t a = fault.a % this->nodes(), b = fault.b % this->nodes();
    switch (fault.kind) {
    case FaultKind::reset:
    case FaultKind::end_early:
    case FaultKind::half_open:
    case FaultKind::corrupt:
    case FaultKind::stall: return;  // noted with the ends of the connection
    case FaultKind::partition:
        for (std::uint32_t node = 0; node < this->nodes(); ++node)
            (in_mask(fault.a, node) ? nodes : others).push_back(played_by(node));
        break;
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap: nodes = {peer_of(fault)}, others = {1 + (fault.b - 1) % (this->nodes() - 1)}; break;
    case FaultKind::one_way:
    case FaultKind::cut_pair:
        nodes = {played_by(a)};
        if (b != a) others = {played_by(b)};
        break;
    case FaultKind::clog:
    case FaultKind::pause:
    case FaultKind::hostile: nodes = {played_by(a)}; break;
    case FaultKind::crash_peer:
    case FaultKind::slow_compute:
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
    const Fault& fault = scenario_.faults[index];
    FaultSpan span;
    span.index = index;
    span.kind = fault.kind;
    span.begin = span.end = world_.now();
    switch (fault.kind) {
    case FaultKind::partition:
    case FaultKind::one_way:
    case FaultKind::cut_pair:
    case FaultKind::clog:
    case FaultKind::stall:
    case FaultKind::pause:
    case FaultKind::slow_disk:
    case FaultKind::stuck_disk:
    case FaultKind::slow_compute:
    case FaultKind::hang:
    case FaultKind::swallow:
    case FaultKind::garble:
    case FaultKind::snap:
    case FaultKind::swizzle: span.end = fault.forever ? never : within_chaos(fault.duration); break;
    default: break;  // a moment
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
    world_.trace().line(world_.now(), sim::no_node, "faults stop");
}

}  // namespace pccl::harness
