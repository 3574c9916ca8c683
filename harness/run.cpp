#include "harness/run.hpp"

#include "core/base/assert.hpp"
#include "harness/oracles.hpp"

#include <algorithm>
#include <csetjmp>
#include <memory>

namespace pccl::harness {

using namespace core;
using sim::effect_index;
using sim::mix;

namespace {

enum Script : std::uint64_t {
    start_process = 0,
    process_finished = 1,
    fault_begins = 2,
    fault_ends = 3,
    chaos_ends = 4,
    stop_flag = 5,
    start_the_master = 6
};

class Runner final : public sim::Director {
public:
    Runner(const Scenario& scenario, const RunOptions& options)
        : scenario_(scenario), world_(nodes(), scenario.world, scenario.seed, *this), processes_(nodes()),
          draw_(mix(scenario.seed, 900)) {
        world_.trace().write_to(options.trace);
        world_.trace().keep_hashes(options.keep_hashes);
        items_max_ = options.items_max;
        touched_.assign(nodes(), false);
        cut_.assign(nodes(), 0);
    }

    Verdict run() {
        world_.schedule_script(0, start_the_master, 0);
        for (std::uint32_t node = 1; node < nodes(); ++node) schedule_start(node, scenario_.peers[node - 1].start);
        for (std::size_t i = 0; i < scenario_.faults.size(); ++i) {
            const Fault& fault = scenario_.faults[i];
            if (fault.trigger == 0) {
                world_.schedule_script(fault.at, fault_begins, i);
            } else {
                world_.arm(sim::Trigger{fault.trigger - 1, fault.trigger_count, fault.at, fault_begins, i});
            }
        }
        world_.schedule_script(scenario_.chaos_end, chaos_ends, 0);
        world_.schedule_script(scenario_.chaos_end + scenario_.stop_after, stop_flag, 0);
        world_.run(scenario_.chaos_end + scenario_.stop_after + scenario_.patience, items_max_);
        if (!world_.violated() && !all_done()) world_.violate("progress", who_waits());
        if (!world_.violated()) look_back();
        return verdict();
    }

    Verdict verdict() {
        Verdict v;
        v.violation = world_.violation();
        v.trace_hash = world_.trace().hash();
        v.events = world_.trace().events();
        v.simulated = world_.now();
        v.counters = counters_;
        v.faults = injected_;
        v.effects = world_.effects_counted();
        v.machine_bytes_most = world_.machine_bytes_most();
        v.hashes = world_.trace().hashes();
        return v;
    }
    sim::World& world() { return world_; }

    // --- Director ------------------------------------------------------------------------------------------------------
    void completed(std::uint32_t node, Ticket ticket, const Completion& completion) override {
        if (processes_[node] != nullptr) processes_[node]->completed(ticket, completion);
    }
    void attributes_set(std::uint32_t node, const Attributes& attributes) override {
        if (processes_[node] != nullptr) processes_[node]->attributes_set(attributes);
    }
    void application_item(std::uint32_t node, std::uint64_t a, std::uint64_t) override {
        Process* process = processes_[node].get();
        if (process == nullptr) return;
        if (a == 0) {
            process->start();
        } else {
            process->resume(a);
        }
    }
    void aimed_crash(std::uint32_t node, std::uint64_t token) override {
        const Fault& fault = scenario_.faults[token];
        ++injected_[static_cast<std::size_t>(fault.kind)];
        process_gone(node, fault);
    }
    void script_item(std::uint64_t a, std::uint64_t b) override {
        switch (a) {
        case start_process: return begin_process(static_cast<std::uint32_t>(b));
        case process_finished: {
            const auto node = static_cast<std::uint32_t>(b);
            if (processes_[node] == nullptr || !processes_[node]->finished()) return;
            world_.end_process(node, true);
            processes_[node].reset();
            if (all_done()) world_.stop();
            return;
        }
        case fault_begins: return begin_fault(b);
        case fault_ends: return end_fault(b);
        case chaos_ends:
            chaos_ = false;
            world_.stop_faults();
            world_.disarm();
            world_.trace().line(world_.now(), sim::no_node, "faults stop");
            return;
        case stop_flag:
            stopping_ = true;
            world_.trace().line(world_.now(), sim::no_node, "applications are told to end");
            if (all_done()) world_.stop();
            return;
        case start_the_master: return begin_master();
        default: return;
        }
    }

private:
    std::uint32_t nodes() const { return static_cast<std::uint32_t>(scenario_.peers.size() + 1); }

    void schedule_start(std::uint32_t node, Instant at) {
        ++starts_;
        world_.schedule_script(at, start_process, node);
    }

    void begin_process(std::uint32_t node) {
        --starts_;
        if (world_.alive(node)) return;
        PeerConfig config;
        config.seed = mix(scenario_.seed, mix(1000 + node, ++process_count_));
        config.master = sim::endpoint_of(0);
        config.group = scenario_.peers[node - 1].group;
        config.stripes = scenario_.peers[node - 1].stripes;
        config.listen_port = sim::listen_port;
        config.limits = scenario_.limits;
        config.timeouts = scenario_.timeouts;
        world_.start_peer(node, config);
        processes_[node] =
            std::make_unique<Process>(world_, scenario_, ledger_, counters_, stopping_, tickets_, node, process_count_);
        world_.schedule_application(node, 0, 0, 0);
    }

    void begin_master() {
        if (world_.alive(0)) return;
        MasterConfig config;
        config.seed = mix(scenario_.seed, mix(2000, ++master_count_));
        config.limits = scenario_.limits;
        config.timeouts = scenario_.timeouts;
        world_.start_master(config);
    }

    Instant within_chaos(Duration duration) const {
        return std::min(world_.now() + duration, std::max(scenario_.chaos_end, world_.now()));
    }

    void process_gone(std::uint32_t node, const Fault& fault) {
        processes_[node].reset();
        touch(node);
        if (node == 0) {
            world_.schedule_script(within_chaos(fault.duration), start_the_master, 0);
        } else if ((fault.value & 2) != 0 && !stopping_) {
            schedule_start(node, within_chaos(fault.duration));
        }
        if (all_done()) world_.stop();
    }

    // Calls `change` for each directed pair that the fault separates.
    template <class Change>
    void each_pair(const Fault& fault, Change change) {
        const std::uint32_t a = fault.a % nodes();
        const std::uint32_t b = fault.b % nodes();
        for (std::uint32_t from = 0; from < nodes(); ++from) {
            for (std::uint32_t to = 0; to < nodes(); ++to) {
                if (from == to) continue;
                bool cut = false;
                switch (fault.kind) {
                case FaultKind::partition: cut = ((fault.a >> from) & 1u) != ((fault.a >> to) & 1u); break;
                case FaultKind::one_way: cut = from == a && to == b; break;
                case FaultKind::cut_pair: cut = (from == a && to == b) || (from == b && to == a); break;
                case FaultKind::clog: cut = from == a; break;
                default: break;
                }
                if (cut) change(from, to);
            }
        }
    }

    void begin_fault(std::uint64_t index) {
        if (!chaos_) return;
        const Fault& fault = scenario_.faults[index];
        if (fault.kind != FaultKind::aimed_master && fault.kind != FaultKind::aimed_peer) {
            world_.trace().line(world_.now(), sim::no_node,
                                std::string("FAULT ") + to_text(fault.kind) + " a " + std::to_string(fault.a) + " b " +
                                    std::to_string(fault.b));
        }
        sim::Network& network = world_.network();
        const bool with_reset = (fault.value & 1) != 0;
        switch (fault.kind) {
        case FaultKind::partition:
        case FaultKind::one_way:
        case FaultKind::cut_pair:
        case FaultKind::clog: {
            each_pair(fault, [&](std::uint32_t from, std::uint32_t to) {
                network.block(from, to);
                touch(from);
                touch(to);
            });
            // Some streams give up when nothing is acknowledged for long.
            const Duration patience = second + static_cast<Duration>(fault.value % 30) * second;
            if (fault.kind != FaultKind::clog && fault.duration > patience) {
                each_pair(fault, [&](std::uint32_t from, std::uint32_t to) {
                    if (from < to) network.give_up_between(from, to, patience);
                });
            }
            world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
            break;
        }
        case FaultKind::reset:
        case FaultKind::end_early:
        case FaultKind::half_open:
        case FaultKind::stall: {
            // Rather one with bytes on their way, where there is one.
            std::vector<std::uint32_t> open = ((fault.value >> 40) & 3) != 0 ? network.busy() : network.established();
            if (open.empty()) open = network.established();
            if (open.empty()) return;
            const std::uint32_t connection = open[fault.value % open.size()];
            if (fault.kind == FaultKind::stall) {
                stalled_.emplace_back(index, connection);
                network.stall(connection, (fault.value >> 32) & 1);
                world_.schedule_script(within_chaos(fault.duration), fault_ends, index);
            }
            if (fault.kind == FaultKind::reset) network.reset(connection);
            if (fault.kind == FaultKind::end_early) network.end_early(connection, (fault.value >> 32) & 1);
            const std::uint32_t side = (fault.value >> 32) & 1;
            const bool one_knows = ((fault.value >> 33) & 1) != 0;
            if (fault.kind == FaultKind::half_open) network.half_open(connection, one_knows, side);
            // An end that knows that its link is gone opens another one; only who does not know is silent for long.
            const bool known =
                fault.kind == FaultKind::reset || fault.kind == FaultKind::end_early ||
                (fault.kind == FaultKind::half_open && one_knows && network.peer_of(connection, side ^ 1) != 0);
            cut_connection(network.peer_of(connection, 0), network.peer_of(connection, 1), known);
            break;
        }
        case FaultKind::crash_peer: {
            const std::uint32_t node = 1 + (fault.a - 1) % (nodes() - 1);
            if (!world_.alive(node)) return;
            world_.end_process(node, with_reset);
            process_gone(node, fault);
            break;
        }
        case FaultKind::crash_master:
            if (!world_.alive(0)) return;
            world_.end_process(0, with_reset);
            process_gone(0, fault);
            break;
        case FaultKind::aimed_peer: {
            static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<SendPayload>(),
                                                effect_index<Complete>(),    effect_index<ReceivePayload>(),
                                                effect_index<Compute>(),     effect_index<SendFlow>()};
            world_.arm(1 + (fault.a - 1) % (nodes() - 1),
                       sim::AimedCrash{kinds[(fault.value >> 8) % 6], fault.b, with_reset, index});
            return;  // counted when it fires
        }
        case FaultKind::aimed_master: {
            static const std::size_t kinds[] = {effect_index<SendControl>(), effect_index<Persist>()};
            world_.arm(0, sim::AimedCrash{kinds[(fault.value >> 8) % 2], fault.b, with_reset, index});
            return;
        }
        case FaultKind::pause: {
            const std::uint32_t node = fault.a % nodes();
            if (!world_.alive(node)) return;
            touch(node);
            world_.pause(node, within_chaos(fault.duration) - world_.now());
            break;
        }
        }
        ++injected_[static_cast<std::size_t>(fault.kind)];
    }

    void end_fault(std::uint64_t index) {
        const Fault& fault = scenario_.faults[index];
        world_.trace().line(world_.now(), sim::no_node, std::string("healed: ") + to_text(fault.kind));
        for (const auto& [number, connection] : stalled_) {
            if (number == index) world_.network().go_on(connection, (fault.value >> 32) & 1);
        }
        each_pair(fault, [&](std::uint32_t from, std::uint32_t to) { world_.network().unblock(from, to); });
    }

    bool all_done() const {
        if (starts_ != 0) return false;
        return std::all_of(processes_.begin(), processes_.end(),
                           [](const auto& process) { return process == nullptr; });
    }

    std::string who_waits() {
        std::string text = "not everybody came to an end:\n";
        for (const auto& process : processes_) {
            if (process != nullptr)
                text += "  " + sim::Trace::name(process->node()) + " waits for " + process->waits_for() + "\n";
        }
        return text + world_.explain();
    }

    // A fault that could explain why this node lost its membership. What happens to the master happens to everybody.
    void touch(std::uint32_t node) {
        if (node == 0) touched_.assign(nodes(), true);
        touched_[node] = true;
    }

    // A lost control link alone is resumed and a lost data link is dialled again; both together look like a death.
    void cut_connection(std::uint32_t a, std::uint32_t b, bool known) {
        for (const std::uint32_t node : {a, b}) {
            if (node == 0) continue;
            cut_[node] |= a == 0 || b == 0 ? 1 : 2;
            if (!known || cut_[node] == 3) touch(node);
        }
    }

    // Nobody is removed, or gives up, without a reason.
    void check_losses() {
        const sim::NetworkParameters& n = scenario_.world.network;
        const Duration slow =
            n.latency_high + n.latency_high * n.jitter_per_mille / 1000 + 2 * scenario_.world.timer_late_max;
        if (n.tail_per_million != 0 || n.refuse_per_million != 0 || n.black_hole_per_million != 0 ||
            n.accept_close_per_million != 0)
            return;
        if (slow > scenario_.timeouts.peer / 4 || n.rate_low < 1'000'000) return;
        if (scenario_.timeouts.master < second) return;  // then any cut of a control link is final
        for (std::uint32_t life = 0; life < ledger_.lives.size(); ++life) {
            const Life& l = ledger_.lives[life];
            if (l.lost && !l.refused_revision && !touched_[l.node]) {
                return world_.violate("membership", ledger_.name(life) + " on " + sim::Trace::name(l.node) +
                                                        " was lost, though no fault touched it: " + l.reason);
            }
        }
    }

    void look_back() {
        check_losses();
        if (world_.violated()) return;
        for (const auto check : {check_reduces, check_syncs, check_votes}) {
            const sim::Violation violation = check(scenario_, ledger_);
            if (!violation.oracle.empty()) return world_.violate(violation.oracle, violation.reason);
        }
        // What the machine may hold: slots, one undo copy per started operation and per synchronised state, early slices.
        const Limits& l = scenario_.limits;
        const std::uint64_t bound =
            (1u << 16) + l.scratch_bytes + std::uint64_t{l.min_slots} * l.slice_bytes * (l.concurrent_ops + 1) +
            2ull * (l.concurrent_ops + 1) * 8 * (scenario_.workload.elements_max + 2) +
            std::uint64_t{l.eager_bytes} * (nodes() + 1) + 2ull * 8 * 301 * scenario_.workload.entries +
            std::uint64_t{l.chunk_bytes} * (l.chunks_in_flight + l.hashes_in_flight + 2);
        if (world_.machine_bytes_most() > bound) {
            world_.violate("bounded", "a machine held " + std::to_string(world_.machine_bytes_most()) +
                                          " bytes, more than " + std::to_string(bound));
        }
    }

    const Scenario& scenario_;
    sim::World world_;
    std::vector<std::unique_ptr<Process>> processes_;
    sim::Draw draw_;
    Ledger ledger_;
    Counters counters_;
    std::array<std::uint64_t, fault_kinds> injected_{};
    Ticket tickets_ = 0;
    std::uint32_t process_count_ = 0;
    std::uint32_t master_count_ = 0;
    std::uint32_t starts_ = 0;
    std::uint64_t items_max_ = 0;
    std::vector<bool> touched_;
    std::vector<int> cut_;                                          // per node: 1 control links, 2 data links were cut
    std::vector<std::pair<std::uint64_t, std::uint32_t>> stalled_;  // fault and connection
    bool chaos_ = true;
    bool stopping_ = false;
};

struct Broken {
    const char* expression = nullptr;
    const char* file = nullptr;
    int line = 0;
};
thread_local std::jmp_buf broken_jump;
thread_local Broken broken;

void on_broken_assertion(const char* expression, const char* file, int line) {
    broken = Broken{expression, file, line};
    std::longjmp(broken_jump, 1);
}

}  // namespace

Verdict run(const Scenario& scenario, const RunOptions& options) {
    set_assertion_handler(&on_broken_assertion);
    // Volatile: its value is needed behind longjmp.
    Runner* volatile runner = new Runner(scenario, options);
    if (setjmp(broken_jump) == 0) {
        Verdict verdict = runner->run();
        delete runner;
        return verdict;
    }
    // Frames of the core were left in the middle of their work: nothing of this world is touched again, not even freed.
    runner->world().violate("assertion",
                            std::string(broken.expression) + " at " + broken.file + ":" + std::to_string(broken.line));
    return runner->verdict();
}

Verdict run_twice(const Scenario& scenario) {
    RunOptions options;
    options.keep_hashes = true;
    Verdict first = run(scenario, options);
    const Verdict second = run(scenario, options);
    if (!first.held()) return first;
    const std::size_t common = std::min(first.hashes.size(), second.hashes.size());
    for (std::size_t i = 0; i < common; ++i) {
        if (first.hashes[i] == second.hashes[i]) continue;
        first.violation = {"determinism", "event " + std::to_string(i + 1) + " of " + std::to_string(first.events) +
                                              " differs between two runs"};
        return first;
    }
    if (first.hashes.size() != second.hashes.size())
        first.violation = {"determinism", "one run has " + std::to_string(first.hashes.size()) + " events, the other " +
                                              std::to_string(second.hashes.size())};
    return first;
}

}  // namespace pccl::harness
