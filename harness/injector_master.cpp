// Faults of the master: its crashes, its journal, its disk, and its stop on purpose.
#include "harness/injector.hpp"

namespace pccl::harness {

using namespace core;

namespace {

// A process that was told to end is ended after this time.
constexpr Duration stops_within = second;

}  // namespace

// Whether the master restarts at its other address, as on another host that has the journal. Only if each peer has both
// addresses.
bool Injector::master_moves(const Fault& fault) const {
    const auto knows = [](const PeerPlan& plan) {
        return std::find(plan.masters.begin(), plan.masters.end(), MasterAddress::spare) != plan.masters.end();
    };
    return fault.kind == FaultKind::crash_master && ((fault.value >> 40) & 1) != 0 &&
           std::all_of(scenario_.peers.begin(), scenario_.peers.end(), knows);
}

bool Injector::master_crash(const Fault& fault) {
    const std::uint32_t node = world_.master();
    if (!world_.alive(node)) return false;
    const bool moves = master_moves(fault);
    if (moves) excuses_.master_moves();
    excuses_.master_away(index_of(fault), world_.now(), end_of(fault));
    world_.end_process(node, (fault.value & 1) != 0, fault.kind == FaultKind::torn_write);
    if (moves) world_.network().move_master();
    if (fault.kind == FaultKind::older_journal || fault.kind == FaultKind::empty_journal) {
        touch(fault, 0, Excuse::lost_journal);
        const Instant written =
            world_.forget_records(fault.kind == FaultKind::empty_journal ? ~std::size_t{0} : fault.b);
        if (written != never) excuses_.records_lost(written, world_.now());
    }
    processes_.process_gone(0, fault);
    return true;
}

// The first master lives on, cut off from the journal. For each of its connections it is drawn whether it is reset.
bool Injector::two_masters(const Fault& fault) {
    const std::uint32_t old = world_.master();
    const std::uint32_t next = old == 0 ? nodes() : 0;
    if (!world_.alive(old)) return false;
    for (const Excuse excuse : {Excuse::starved, Excuse::stuck_edge})
        excuses_.hardship(excuse, index_of(fault), every_peer, world_.now(), scenario_.chaos_end);
    // The first master goes on until its disk refuses a record, at the end of chaos at the latest.
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

void Injector::free_disk() {
    disk_hangs_ = false;
    world_.free_disk();
}

// The end of a stuck disk. With stuck_until_killed the operator kills the master if its disk still hangs: nobody waits
// for a disk for ever.
void Injector::disk_answers_again(const Fault& fault) {
    const std::uint32_t node = world_.master();
    if (disk_hangs_ && chaos_ && (fault.value & stuck_until_killed) != 0 && world_.alive(node)) {
        world_.end_process(node, (fault.value & 1) != 0);
        start_again(fault);
    }
    free_disk();
}

// Not a master whose journal another one has taken over, or whose full disk is about to stop it.
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

// Ends the master's process when it has told everybody, or after `stops_within`.
void Injector::master_stops(std::uint64_t index) {
    const std::uint32_t node = world_.master();
    if (stopping_ == nullptr) return;
    if (world_.alive(node) && world_.driver(node)->flushing() && world_.now() < stopping_until_)
        return world_.schedule_script(world_.now() + 5 * millisecond, fault_ends, index);
    // A path was full for that long. What waited for it is lost.
    if (world_.now() + 5 * millisecond >= stopping_until_) excuses_.stop_was_cut_short();
    if (world_.alive(node)) world_.end_process(node, true);
    run_is_over(faults_[index]);
}

void Injector::run_is_over(const Fault& fault) {
    stopping_ = nullptr;
    world_.forget_records(~std::size_t{0});
    excuses_.master_away(index_of(fault), world_.now(), end_of(fault));
    processes_.process_gone(0, fault);
}

// Restarts a master that stopped because of its disk, after the `b` ms that its supervisor takes.
void Injector::start_again(const Fault& fault) {
    Fault supervisor = fault;
    supervisor.duration = static_cast<Duration>(fault.b % 10'000 + 1) * millisecond;
    excuses_.master_away(index_of(fault), world_.now(), within_chaos(supervisor.duration));
    if ((fault.value & stuck_next_answers) != 0) free_disk();
    processes_.process_gone(0, supervisor);
}

// The master stopped itself, because its disk failed or did not answer for the limit. It sent nothing more. A master
// that lost its journal to another one does not come back.
void Injector::master_halted(std::uint32_t node) {
    world_.trace().line(world_.now(), node, "the master stops: its records cannot be written");
    if (node != world_.master()) return;
    if (stopping_ != nullptr) {
        excuses_.stop_was_cut_short();
        return run_is_over(*stopping_);
    }
    if (halting_ == nullptr) {
        if (stuck_ != nullptr) return start_again(*stuck_);
        // A slow disk exceeded the limit.
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

}  // namespace pccl::harness
