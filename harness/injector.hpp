// Carries out a scenario's faults in the simulated world, and records what they touched.
//
// A fault begins at its time or after its trigger. It heals at the end of chaos at the latest, unless it lasts for
// ever. Excuses records what faults do to nodes and links.
#pragma once

#include "harness/coverage.hpp"
#include "harness/excuses.hpp"
#include "harness/hostile.hpp"
#include "harness/ledger.hpp"
#include "harness/liars.hpp"
#include "harness/observation.hpp"
#include "harness/scenario.hpp"
#include "harness/triggers.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace pccl::harness {

// What the script items of a run mean (first number of World::schedule_script).
enum Script : std::uint64_t {
    start_process = 0,
    process_finished = 1,
    fault_begins = 2,
    fault_ends = 3,
    fault_goes_on = 4,
    chaos_ends = 5,
    stop_flag = 6,
    start_the_master = 7,
    patience_over = 8,
    explain_now = 9,
    draw_anew = 10,
    look_around = 11,
    look_at_ring = 12,
};

// Effects of faults on processes. The run implements them, because it owns the processes.
class Processes {
public:
    virtual ~Processes() = default;
    // The process of a node has ended. A peer may be started again. The master is started again after the fault's
    // duration.
    virtual void process_gone(std::uint32_t node, const Fault& fault) = 0;
    virtual void hang(std::uint32_t node, Instant until) = 0;
    virtual void all_frozen(Instant until) = 0;
    // Starts a master with the journal as it is.
    virtual void begin_master() = 0;
};

class Injector {
public:
    Injector(sim::World& world, const Scenario& scenario, Processes& processes, Excuses& excuses);

    // The number of nodes that a scenario needs: the master, the peers, a second master, strangers.
    static std::uint32_t nodes_for(const Scenario& scenario);
    static std::uint32_t strangers_from(const Scenario& scenario) {
        return static_cast<std::uint32_t>(scenario.peers.size()) + 2;
    }

    // Records there what happens, for a report.
    void watch(std::vector<FaultSpan>* spans) { spans_ = spans; }

    void cover(Coverage* coverage) { coverage_ = coverage; }

    void draw_from(std::uint64_t seed) {
        draw_ = sim::Draw(sim::mix(seed, 910));
        liars_.draw_from(seed);
    }
    // Null if no fault waits for a probe.
    Triggers* hears_probes() { return triggers_.wants_probes() ? &triggers_ : nullptr; }

    void schedule();
    // In the upper half: the node at which the fault's trigger happened, plus one.
    void begin(std::uint64_t index_and_node);
    void end(std::uint64_t index);
    void go_on(std::uint64_t index_and_step);
    void aimed_crash(std::uint32_t node, std::uint64_t index);
    void master_halted(std::uint32_t node);
    void chaos_over();

    bool chaos() const { return chaos_; }
    Instant within_chaos(Duration duration) const;
    // The master may run on two nodes. Excuses use node 0 for both.
    std::uint32_t logical(std::uint32_t node) const { return node == nodes() ? 0 : node; }
    void process_began(std::uint32_t node);
    // Stopped for ever, or a member that still lies: its calls need not return.
    bool frozen(std::uint32_t node) const { return frozen_[node] || liars_.lies(node); }
    // Whether a program never calls again while its machine goes on.
    bool idlers_last() const { return idlers_last_; }
    bool liars_last() const { return !chaos_ && liars_.any(); }
    // What such a node saw says nothing about the promises.
    bool lied(std::uint32_t node) const { return liars_.lied(node); }
    void tell_of_liars(Ledger& ledger) const;
    void tell_of_revocations(Ledger& ledger) const;
    const std::vector<Ledger::StrangerHello>& stranger_hellos() const { return stranger_hellos_; }
    Instant first_at() const { return first_at_; }  // never: no fault has taken effect
    const std::array<std::uint64_t, fault_kinds>& injected() const { return injected_; }
    const SecondFaults& second_faults() const { return second_; }

private:
    std::uint32_t nodes() const { return static_cast<std::uint32_t>(scenario_.peers.size() + 1); }
    std::uint32_t peer_of(const Fault& fault) const { return 1 + (fault.a - 1) % (nodes() - 1); }
    // The node whose process plays this node of the scenario: the master may have moved to its second node.
    std::uint32_t played_by(std::uint32_t node) const { return node == 0 ? world_.master() : node; }
    std::size_t index_of(const Fault& fault) const { return static_cast<std::size_t>(&fault - faults_.data()); }
    bool find_place(std::uint64_t index);
    bool carry_out(std::uint64_t index, std::uint32_t there);
    void clock_jumps(const Fault& fault);
    void liar_begins(const Fault& fault, std::uint64_t index);
    void liar_ends(const Fault& fault, std::uint64_t index);
    bool revoke(const Fault& fault, std::uint64_t index);
    void revoked_a_while_ago(std::uint64_t index);
    void peer_gone(std::uint64_t index, std::uint32_t node);
    void link_flaps(const Fault& fault, bool begins);
    Instant end_of(const Fault& fault) const { return fault.forever ? core::never : within_chaos(fault.duration); }
    void touch(const Fault& fault, std::uint32_t node, Excuse excuse = Excuse::other_loss);
    void apart(const Fault& fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until,
               Duration gives_up = core::never);
    template <class Change>
    void each_pair(const Fault& fault, Change change);
    template <class Change>
    void each_from(std::uint32_t node, Change change);
    void port_closes(const Fault& fault, std::uint64_t index);
    void network_split(const Fault& fault, std::uint64_t index);
    std::vector<std::uint32_t> aimed_at(const Fault& fault, std::uint32_t there);
    bool connection_fault(const Fault& fault, std::uint64_t index, std::uint32_t there);
    bool master_crash(const Fault& fault);
    bool master_moves(const Fault& fault) const;
    bool two_masters(const Fault& fault);
    void free_disk();
    void disk_answers_again(const Fault& fault);
    void start_again(const Fault& fault);
    bool stop_the_master(const Fault& fault, std::uint64_t index);
    void master_stops(std::uint64_t index);
    void run_is_over(const Fault& fault);
    Knowledge what_is_known(std::uint32_t target);
    void crowd_comes(const Fault& fault, std::uint64_t index);
    void stranger_speaks(const Fault& fault, std::uint64_t index);
    void schedule_end(const Fault& fault, std::uint64_t index);
    void took_effect(const Fault& fault);
    Scene scene_of(const Fault& fault) const;
    void note(std::uint64_t index);
    void note(std::uint64_t index, std::vector<std::uint32_t> nodes, std::vector<std::uint32_t> others);

    sim::World& world_;
    const Scenario& scenario_;
    Processes& processes_;
    Excuses& excuses_;
    sim::Draw draw_;
    std::vector<Fault> faults_;  // the scenario's, with the nodes that were chosen when they began
    struct Progress {
        std::uint32_t again = 0;  // the number of repetitions so far
        bool placed = false;
        bool happened = false;  // it took effect at least once
        Scene hit;  // the ends of the connection that it hit
    };
    std::vector<Progress> progress_;
    Triggers triggers_;
    std::array<std::uint64_t, fault_kinds> injected_{};
    SecondFaults second_;
    std::vector<bool> frozen_;
    bool idlers_last_ = false;
    Instant standstill_until_ = 0;  // of all nodes
    struct Stall {
        std::uint64_t fault;
        std::uint32_t connection;
    };
    std::vector<Stall> stalled_;
    struct Stranger {
        std::uint32_t connection = 0;
        bool dialled = false;
        bool registered = false;  // has sent a hello on this connection
        std::uint32_t said = 0;
    };
    std::vector<Stranger> stranger_links_;  // per fault
    const Fault* halting_ = nullptr;        // the full disk that is going to stop the master
    const Fault* stuck_ = nullptr;          // the fault of the last disk that did not answer
    bool disk_hangs_ = false;
    const Fault* stopping_ = nullptr;  // the stop for which the master is about to end
    Instant stopping_until_ = 0;
    std::vector<Ledger::StrangerHello> stranger_hellos_;
    Liars liars_;
    std::vector<Ledger::Liar> liar_spans_;
    std::vector<Ledger::Revocation> revocations_;
    std::vector<core::Uuid> names_then_;  // of the nodes, when the last certificate was revoked
    std::set<core::Uuid> told_;           // whom the master told of that
    Instant first_at_ = open_end;
    std::vector<std::uint64_t> hello_of_;  // the index of the fault of each of them
    std::vector<FaultSpan>* spans_ = nullptr;
    Coverage* coverage_ = nullptr;
    bool chaos_ = true;
};

}  // namespace pccl::harness
