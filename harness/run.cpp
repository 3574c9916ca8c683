#include "harness/run.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/journal/journal.hpp"
#include "core/wire/causes.hpp"
#include "core/wire/convert.hpp"
#include "harness/collectives.hpp"
#include "harness/even_world.hpp"
#include "harness/expectations.hpp"
#include "harness/gangs.hpp"
#include "harness/injector.hpp"
#include "harness/never.hpp"
#include "harness/numbers.hpp"
#include "harness/one_fault.hpp"
#include "harness/oracles.hpp"
#include "harness/rings.hpp"
#include "harness/sends.hpp"
#include "harness/simulated_world.hpp"
#include "harness/stillness.hpp"
#include "harness/vote_warnings.hpp"

#include <algorithm>
#include <csetjmp>
#include <memory>
#include <set>

namespace pccl::harness {

using namespace core;
using sim::mix;

namespace {

class Runner final : public sim::Director, public Processes {
public:
    Runner(const Scenario& scenario, const RunOptions& options)
        : scenario_(scenario), world_(Injector::nodes_for(scenario), Injector::strangers_from(scenario), scenario.world,
                                      scenario.seed, *this),
          reach_(options.reach), program_world_(world_, process_finished, options.reach), excuses_(scenario),
          numbers_(world_, scenario), rings_(world_, scenario), warnings_(world_, scenario, shared_.ledger),
          processes_(nodes()), injector_(world_, scenario, *this, excuses_), stillness_(scenario),
          seed_(scenario.seed) {
        world_.trace().write_to(options.trace);
        world_.trace().keep_hashes(options.keep_hashes);
        // Programs work as long as there are faults, and while they wait for others.
        const Duration busy = scenario.chaos_end + scenario.patience / 4;
        items_max_ = options.items_max * (1 + static_cast<std::uint64_t>(busy / (5 * core::second)));
        explain_at_ = options.explain_at;
        redraw_at_ = options.redraw_at;
        redraw_seed_ = options.redraw_seed;
        observation_ = options.observation;
        ledger_ = options.ledger;
        if (observation_ != nullptr) {
            world_.attach(&observation_->recorder);
            injector_.watch(&observation_->faults);
        }
        world_.watch(options.status);
        if (options.coverage != nullptr) {
            options.coverage->begin(nodes());
            world_.watch(options.coverage);
            injector_.cover(options.coverage);
        }
        shared_.goals.assign(nodes(), false);
        if (scenario.claim == Claim::core) {
            for (const std::uint32_t node : scenario.core) shared_.goals[node] = true;
        }
        shared_.core = shared_.goals;
        excuses_.refuse(options.refused);
        lie_ = options.lie;
        if (lie_ == Lie::ring_dearer) rings_.lie();
        if (lie_ == Lie::voter_named) warnings_.lie();
        if (lie_ == Lie::goes_round) stillness_.lie();
        if (lie_ == Lie::kept_at_rest) world_.lie(sim::Untruth::kept_at_rest);
        if (lie_ == Lie::record_lost) world_.lie(sim::Untruth::record_lost);
        if (lie_ == Lie::damage_borne) world_.lie(sim::Untruth::damage_borne);
        if (lie_ == Lie::snapshot_lost) world_.lie(sim::Untruth::snapshot_lost);
        if (lie_ == Lie::begin_untold) numbers_.lie();
        checkpoints_.resize(nodes());
    }

    Verdict run() {
        world_.schedule_script(0, start_the_master, 0);
        for (std::uint32_t node = 1; node < nodes(); ++node) schedule_start(node, scenario_.peers[node - 1].start);
        injector_.schedule();
        explain_at_the_end_ = explain_at_ == never;
        if (redraw_at_ >= 0) world_.schedule_script(redraw_at_, draw_anew, 0);
        if (explain_at_ >= 0 && !explain_at_the_end_) world_.schedule_script(explain_at_, explain_now, 0);
        world_.schedule_script(scenario_.chaos_end, chaos_ends, 0);
        world_.schedule_script(scenario_.chaos_end + scenario_.stop_after, stop_flag, 0);
        world_.run(scenario_.chaos_end + scenario_.stop_after + 3 * scenario_.patience, items_max_);
        if (!world_.violated() && !all_done()) world_.violate("progress", who_waits());
        if (!world_.violated()) look_back();
        return verdict();
    }

    Verdict verdict() {
        if (explain_at_the_end_ || (explain_at_ >= 0 && explanation_.empty())) explanation_ = explain();
        Verdict v;
        v.violation = world_.violation();
        v.trace_hash = world_.trace().hash();
        v.events = world_.trace().events();
        v.simulated = world_.now();
        v.counters = shared_.counters;
        v.faults = injector_.injected();
        v.second_faults = injector_.second_faults();
        v.excuses = excuses_.used();
        v.reduce_time = reduce_time();
        v.effects = world_.effects_counted();
        v.machine_bytes_most = world_.machine_bytes_most();
        v.removals = removals_;
        v.hashes = world_.trace().hashes();
        v.explanation = explanation_;
        v.stillness = stillness_.most_needed();
        if (ledger_ != nullptr) *ledger_ = shared_.ledger;
        if (observation_ != nullptr) {
            observation_->ledger = shared_.ledger;
            observation_->nodes.clear();
            for (std::uint32_t node = 0; node < Injector::nodes_for(scenario_); ++node)
                observation_->nodes.push_back(world_.trace().name_of(node));
        }
        return v;
    }
    sim::World& world() { return world_; }
    Triggers* hears_probes() { return injector_.hears_probes(); }

    // --- Director ----------------------------------------------------------------------------------------------------
    void completed(std::uint32_t node, Ticket ticket, const Completion& completion) override {
        if (processes_[node] != nullptr) processes_[node]->completed(ticket, completion);
    }
    void told(std::uint32_t node, const Command& command, const Completion& completion) override {
        if (injector_.lied(node)) return;
        if (lie_ == Lie::update_not_counted && std::get_if<CommandUpdateTopology>(&command) != nullptr)
            numbers_.told(node, command, completion);
        if (lie_ == Lie::warned_again) logged("vote 'update topology' has waited 9 s for peer 1 (in no call)");
        if (lie_ == Lie::voter_named)
            logged(formatted("vote 'update topology' has waited 0 s for {} (in no call)",
                             short_name(world_.driver(node)->machine().peer()->uuid())));
        if (lie_ == Lie::sizes_apart && std::get_if<CommandAwait>(&command) != nullptr) {
            Completion apart = completion;
            ++apart.attributes.groups;
            return numbers_.told(node, command, apart);
        }
        if (lie_ == Lie::launched_less && std::get_if<CommandLaunch>(&command) != nullptr) {
            Command less = command;
            std::get<CommandLaunch>(less).shape.count = 0;
            return numbers_.told(node, less, completion);
        }
        if (lie_ == Lie::optimized_alone && std::get_if<CommandOptimizeTopology>(&command) != nullptr) {
            Completion alone = completion;
            alone.attributes.global_world = 1;
            return numbers_.told(node, command, alone);
        }
        if (lie_ == Lie::unexplained) return numbers_.told(node, command, failure(Result::invalid_usage, {}));
        if (lie_ != Lie::status_of_before) return numbers_.told(node, command, completion);
        Completion later = completion;
        later.epoch += 1'000;
        numbers_.told(node, command, later);
    }
    void recorded(const std::string& bytes) override {
        if (scenario_.expectations.empty() && !has_gangs(scenario_)) return;
        proto::Record record;
        if (JournalReader(std::span(&bytes, 1)).next(record) != JournalReader::Step::record) return;
        // Of two masters, the decisions of one do not count.
        const bool one_master = std::none_of(scenario_.faults.begin(), scenario_.faults.end(),
                                             [](const Fault& f) { return f.kind == FaultKind::two_masters; });
        if (const std::string wrong = gangs_.wrong(record); one_master && !wrong.empty()) world_.violate("gang", wrong);
        if (!record.decision().has_removal()) return;
        const auto mates = static_cast<std::uint64_t>(record.decision().removal().mates_size());
        const bool left = cause_of(record.decision().cause()).kind == CauseKind::left ||
                          left_unheard(record.decision().removal().uuid());
        if (left && mates == 0) return;
        removals_.insert(removals_.end(), mates + (left ? 0 : 1), world_.now());
    }
    // A process that ends loses what its narrow window does not take, perhaps also the word that it leaves.
    bool left_unheard(const std::string& bytes) {
        constexpr std::int64_t narrow = 16'384;
        Uuid peer;
        if (scenario_.world.network.window_low > narrow || !read(bytes, peer)) return false;
        const bool left = std::any_of(shared_.ledger.lives.begin(), shared_.ledger.lives.end(), [&](const Life& life) {
            return life.peer == peer && life.leaves_at <= world_.now();
        });
        return left && excuses_.use(Excuse::narrow_path);
    }
    void logged(const std::string& text) override {
        rings_.logged(text);
        warnings_.logged(text, injector_.first_at());
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
    void aimed_crash(std::uint32_t node, std::uint64_t token) override { injector_.aimed_crash(node, token); }
    void halted(std::uint32_t node) override { injector_.master_halted(node); }
    void script_item(std::uint64_t a, std::uint64_t b) override {
        switch (a) {
        case start_process: return begin_process(static_cast<std::uint32_t>(b));
        case process_finished: {
            const auto node = static_cast<std::uint32_t>(b);
            if (processes_[node] == nullptr || !processes_[node]->finished()) return;
            if (const std::uint64_t held =
                    world_.driver(node)->buffers().machine_bytes() + (lie_ == Lie::held_at_rest ? 1 : 0);
                held != 0 && !world_.driver(node)->allocating()) {
                world_.violate("at-rest",
                               formatted("{} has left the run and holds {} bytes", sim::Trace::name(node), held));
                return;
            }
            world_.end_process(node, true);
            if (observation_ != nullptr) observation_->recorder.explain_end(node, "its program came to its end");
            processes_[node].reset();
            if (all_done()) world_.stop();
            return;
        }
        case fault_begins: return injector_.begin(b);
        case fault_ends: return injector_.end(b);
        case fault_goes_on: return injector_.go_on(b);
        case chaos_ends:
            world_.check_replay(master_config());
            injector_.chaos_over();
            return look();
        case stop_flag: return stop_applications();
        case patience_over: return end_patience();
        case start_the_master: return begin_master();
        case explain_now: explanation_ = explain(); return;
        case look_at_ring: return rings_.look_at(static_cast<GroupId>(b), members_that_lied());
        case draw_anew: return draw_from(redraw_seed_);
        case look_around: return look();
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
        config.seed = mix(seed_, mix(1000 + node, ++process_count_));
        while (!process_seeds_.insert(config.seed).second) config.seed = mix(config.seed, 1);
        const PeerPlan& plan = scenario_.peers[node - 1];
        static constexpr std::uint32_t names[] = {0, sim::dead_name, sim::silent_name,
                                                  sim::spare_name};  // by MasterAddress
        config.master = sim::endpoint_of(names[static_cast<std::size_t>(plan.masters.front())]);
        for (std::size_t i = 1; i < plan.masters.size(); ++i)
            config.other_masters.push_back(sim::endpoint_of(names[static_cast<std::size_t>(plan.masters[i])]));
        config.group = plan.group;
        config.gang = plan.gang;
        config.gang_patience = plan.gang_patience;
        config.host = plan.host == 0 ? 0 : mix(plan.host, 0x686f7374);
        config.stripes = plan.stripes;
        config.listen_port = sim::listen_port;
        if (plan.advertises || plan.two_interfaces) {
            config.has_advertised = true;
            config.advertised = sim::endpoint_of(node);
            if (plan.translator == sim::Translator::none) world_.network().hide(node, !plan.advertises);
        }
        if (plan.translator != sim::Translator::none) {
            sim::Translators& translators = world_.network().translators();
            translators.put_behind(node, plan.translator, plan.site, plan.lan);
            if (plan.advertises) config.advertised = translators.forward(node, sim::listen_port);
        }
        config.limits = scenario_.limits;
        if (scenario_.uneven_limits && node % 2 == 0) {
            config.limits.eager_bytes *= 4;
            config.limits.pairwise_bytes_max /= 4;  // what leaves ahead is then cut otherwise than the start says
            config.limits.concurrent_ops += 2;
            config.limits.control_bytes_max *= 4;
        } else if (scenario_.uneven_limits) {
            config.limits.control_bytes_max = std::max(control_bytes_least, config.limits.control_bytes_max / 2);
            config.limits.key_bytes_max =
                std::min(config.limits.key_bytes_max, config.limits.control_bytes_max - key_overhead);
        }
        config.timeouts = scenario_.timeouts;
        // The master's value is valid for all. Not where times were chosen so that something happens.
        const std::uint64_t own = scenario_.expectations.empty() ? mix(scenario_.seed, mix(861, node)) % 8 : 2;
        if (own == 0) config.timeouts.peer *= 4;
        if (own == 1) config.timeouts.peer /= 4;
        if (reach_ != nullptr) reach_->peer(config);
        world_.start_peer(node, config);
        processes_[node] = std::make_unique<Process>(program_world_, scenario_, shared_, node, process_count_);
        if (seed_ != scenario_.seed) processes_[node]->draw_from(seed_);
        processes_[node]->lie(lie_);
        processes_[node]->keep(&checkpoints_[node]);
        world_.schedule_application(node, 0, 0, 0);
        injector_.process_began(node);
    }

    void draw_from(std::uint64_t seed) {
        seed_ = seed;
        world_.draw_from(seed);
        injector_.draw_from(seed);
        for (const auto& process : processes_) {
            if (process != nullptr) process->draw_from(seed);
        }
    }

    MasterConfig master_config() {
        MasterConfig config;
        config.seed = mix(seed_, mix(2000, master_count_));
        config.limits = scenario_.limits;
        config.timeouts = scenario_.timeouts;
        return config;
    }

    // --- Processes ---------------------------------------------------------------------------------------------------
    void begin_master() override {
        if (world_.alive(world_.master())) return;
        ++master_count_;
        rings_.master_began();
        warnings_.master_began();
        if (reach_ != nullptr) reach_->master(master_config());
        world_.start_master(master_config());
        injector_.process_began(world_.master());
    }

    void process_gone(std::uint32_t node, const Fault& fault) override {
        if (observation_ != nullptr) {
            observation_->recorder.explain_end(node == 0 ? world_.master() : node,
                                               formatted("killed by {}{}", to_text(fault.kind),
                                                         (fault.value & 1) != 0 ? "" : ", its machine falls silent"));
        }
        if (node != 0 && processes_[node] != nullptr) {
            processes_[node]->life_ended();
            processes_[node].reset();
        }
        if (node == 0) {
            if (!fault.forever) world_.schedule_script(injector_.within_chaos(fault.duration), start_the_master, 0);
        } else if (((fault.value & 2) != 0 || (shared_.core[node] && shared_.goal_open())) && !shared_.stopping) {
            schedule_start(node, injector_.within_chaos(fault.duration));
        }
        if (all_done()) world_.stop();
    }

    void hang(std::uint32_t node, Instant until) override {
        if (processes_[node] != nullptr) processes_[node]->hang(until);
    }

    void all_frozen(Instant until) override {
        for (const auto& process : processes_) {
            if (process != nullptr) process->frozen(until);
        }
    }

    // All identities of nodes that have lied.
    std::vector<Uuid> members_that_lied() const {
        std::vector<Uuid> liars;
        for (const Life& life : shared_.ledger.lives)
            if (injector_.lied(life.node)) liars.push_back(life.peer);
        return liars;
    }

    bool all_done() const {
        if (starts_ != 0) return false;
        return std::all_of(processes_.begin(), processes_.end(),
                           [this](const auto& process) { return process == nullptr || is_excused(*process); });
    }

    // A lasting fault keeps its calls waiting. Newcomers wait for members that update the topology: if only liars are left,
    // or members whose programs never call again, none does.
    bool is_excused(const Process& process) const {
        return injector_.frozen(process.node()) ||
               ((injector_.liars_last() || injector_.idlers_last()) && process.only_connects());
    }

    // The limit on votes ends no wait for a program that never calls again if no member votes.
    bool core_waits_for_idlers() const {
        return injector_.idlers_last() &&
               std::all_of(scenario_.core.begin(), scenario_.core.end(), [this](std::uint32_t node) {
                   return processes_[node] == nullptr || processes_[node]->only_connects();
               });
    }

    // A thread of it ends this wait when the applications are told to end.
    bool may_wait_for_gang(const Process& process) const {
        return !shared_.stopping && process.only_connects() && !scenario_.peers[process.node() - 1].gang.none();
    }

    // Tells the applications to end, but only when each node of the core has done a collective that began after the
    // faults.
    void stop_applications() {
        const bool late = world_.now() > scenario_.chaos_end + scenario_.stop_after + scenario_.patience;
        if (late && core_waits_for_idlers()) shared_.goals.assign(nodes(), false);
        const bool open = shared_.goal_open();
        if (open && late) {
            std::string nodes;
            for (std::uint32_t node = 1; node < shared_.goals.size(); ++node) {
                if (shared_.goals[node]) nodes += " " + sim::Trace::name(node);
            }
            return world_.violate(
                "progress",
                formatted("faults have stopped, and no collective came to success on{}:\n{}", nodes, who_waits()));
        }
        if (open) return world_.schedule_script(world_.now() + 20 * millisecond, stop_flag, 0);
        shared_.stopping = true;
        shared_.work_over(world_.now());
        world_.trace().line(world_.now(), sim::no_node, "applications are told to end");
        world_.schedule_script(world_.now() + scenario_.patience, patience_over, 0);
        if (all_done()) world_.stop();
    }

    // An edge that loses data for ever lets a chunk of shared state through now and then. So does a member that still
    // lies about what it asks for or serves. The master keeps a synchronization with progress. So patience starts again
    // at each chunk that arrives. run() limits the sum.
    void end_patience() {
        if (all_done()) return;
        const Instant until = world_.chunk_landed() + scenario_.patience;
        if ((only_impairs_edges(scenario_) || injector_.liars_last()) && until > world_.now())
            return world_.schedule_script(until, patience_over, 0);
        world_.violate("progress", who_waits());
    }

    // After the faults, looks regularly whether anything still makes progress.
    void look() {
        const Counters& c = shared_.counters;
        const std::uint64_t progress = mix(c.committed + c.syncs + c.updates + c.optimized + c.connects,
                                           mix(world_.effects_counted()[sim::effect_index<Compute>()],
                                               static_cast<std::uint64_t>(world_.chunk_landed())));
        const bool calls_wait = std::any_of(processes_.begin(), processes_.end(), [this](const auto& process) {
            return process != nullptr && process->in_a_call() && !is_excused(*process) && !may_wait_for_gang(*process);
        });
        if (stillness_.look(world_.now(), calls_wait, progress, world_.situation())) {
            return world_.violate("progress", formatted("nobody gets any further since {} ms, and the machines were in "
                                                        "the same situation at {} ms:\n{}",
                                                        stillness_.since() / millisecond,
                                                        stillness_.situation_was() / millisecond, explain_calls()));
        }
        world_.schedule_script(world_.now() + stillness_.look_every(), look_around, 0);
    }

    Duration reduce_time() const {
        Instant launched = 0, returned = 0;
        for (const LaunchFact& fact : shared_.ledger.launches) {
            if (fact.end == open_end || fact.completion.result != Result::success) continue;
            launched = std::max(launched, fact.begin);
            returned = std::max(returned, fact.end);
        }
        return returned - launched;
    }

    std::string who_waits() { return "not everybody came to an end:\n" + explain_calls(); }

    std::string explain() {
        std::string text = formatted("at {} ms\n{}", world_.now() / millisecond, explain_calls());
        if (all_done()) text += "  every application has come to an end\n";
        return text;
    }

    std::string explain_calls() {
        std::string text;
        for (const auto& process : processes_) {
            if (process != nullptr)
                text += formatted("  {} waits for {}\n", sim::Trace::name(process->node()), process->waits_for());
        }
        return text + world_.explain();
    }

    void look_back() {
        // A program that stands still for ever never learns that its machine has lost the run. Its life ends here.
        for (std::uint32_t node = 1; node < nodes(); ++node) {
            if (processes_[node] != nullptr && !processes_[node]->finished() && world_.paused(node))
                processes_[node]->life_ended();
        }
        shared_.ledger.stranger_hellos = injector_.stranger_hellos();
        shared_.ledger.disturbed_at = injector_.first_at();
        injector_.tell_of_liars(shared_.ledger);
        injector_.tell_of_revocations(shared_.ledger);
        tamper(shared_.ledger, lie_);
        for (const sim::DialFault& dial : world_.network().dial_faults())
            excuses_.dial_failed(injector_.logical(dial.from), injector_.logical(dial.to), dial.at, dial.swallowed);
        for (std::uint32_t from = 0; from <= scenario_.peers.size(); ++from) {
            for (std::uint32_t to = 0; to <= scenario_.peers.size(); ++to)
                excuses_.path(from, to, world_.network().latency(from, to));
        }
        for (const sim::Delay& delay : world_.network().delays()) {
            const std::uint32_t from = injector_.logical(delay.from), to = injector_.logical(delay.to);
            switch (delay.kind) {
            case sim::Delay::Kind::late: excuses_.late(from, to, delay.since, delay.until, delay.longest); break;
            case sim::Delay::Kind::silent: excuses_.silent(from, to, delay.since, delay.until); break;
            case sim::Delay::Kind::opening: excuses_.dial_late(from, to, delay.since, delay.until); break;
            }
        }
        if (const sim::Violation lost = check_losses(scenario_, shared_.ledger, excuses_); !lost.oracle.empty())
            return world_.violate(lost.oracle, lost.reason);
        if (const sim::Violation refused = check_refusals(scenario_, shared_.ledger, excuses_); !refused.oracle.empty())
            return world_.violate(refused.oracle, refused.reason);
        if (const sim::Violation late = check_revocations(scenario_, shared_.ledger); !late.oracle.empty())
            return world_.violate(late.oracle, late.reason);
        world_.check_replay(master_config());
        if (world_.violated()) return;
        for (const auto check :
             {check_reduces, check_collectives, check_sends, check_syncs, check_votes, check_blames, check_gangs}) {
            const sim::Violation violation = check(scenario_, shared_.ledger, excuses_);
            if (!violation.oracle.empty()) return world_.violate(violation.oracle, violation.reason);
        }
        if (const sim::Violation late = check_admissions(scenario_, shared_.ledger, excuses_); !late.oracle.empty())
            return world_.violate(late.oracle, late.reason);
        if (const sim::Violation none = check_pending(scenario_, shared_.ledger, excuses_); !none.oracle.empty())
            return world_.violate(none.oracle, none.reason);
        if (const sim::Violation late = check_vote_limit(scenario_, shared_.ledger, excuses_); !late.oracle.empty())
            return world_.violate(late.oracle, late.reason);
        if (const sim::Violation failed = check_steadiness(scenario_, shared_.ledger); !failed.oracle.empty())
            return world_.violate(failed.oracle, failed.reason);
        if (const sim::Violation again = check_detours(scenario_, shared_.ledger); !again.oracle.empty())
            return world_.violate(again.oracle, again.reason);
        if (const sim::Violation wrong = check_numbers(scenario_, shared_.ledger); !wrong.oracle.empty())
            return world_.violate(wrong.oracle, wrong.reason);
        constexpr std::uint64_t reserves_most = 4;  // with memory at once, see core/all_reduce/predecessors.hpp
        // A machine may hold slots, one undo copy per started operation and per synchronized state, and early slices.
        const Limits& l = scenario_.limits;
        std::uint64_t operations =
            l.scratch_bytes + std::uint64_t{l.min_slots} * l.slice_bytes * (l.concurrent_ops + 1) +
            2ull * (l.concurrent_ops + 1) * 8 *
                (std::uint64_t{scenario_.workload.elements_max} * scenario_.workload.elements_times + 2);
        if (l.operation_bytes_max != 0) operations = std::min(operations, l.operation_bytes_max);
        const std::uint64_t most = world_.machine_bytes_most() + (lie_ == Lie::memory_most ? 1ull << 40 : 0);
        const std::uint64_t bound =
            (1u << 16) + operations + std::uint64_t{l.eager_bytes} * (scenario_.uneven_limits ? 4 : 1) * reserves_most +
            (2ull * 8 * (scenario_.workload.state_elements_max + 1) + 64) * scenario_.workload.entries +
            std::uint64_t{l.chunk_bytes} * (l.chunks_in_flight + l.hashes_in_flight + 2);
        if (most > bound) {
            world_.violate("bounded", formatted("a machine held {} bytes, more than {}", most, bound));
        }
    }

    const Scenario& scenario_;
    sim::World world_;
    Reach* reach_;
    SimulatedWorld program_world_;
    Excuses excuses_;
    Numbers numbers_;
    Rings rings_;
    Shared shared_;
    VoteWarnings warnings_;
    std::vector<std::unique_ptr<Process>> processes_;
    Injector injector_;
    Stillness stillness_;
    std::uint32_t process_count_ = 0;
    std::set<std::uint64_t> process_seeds_;  // all used ones: two processes must never be the same peer
    std::uint32_t master_count_ = 0;
    GangRecords gangs_;
    std::vector<Instant> removals_;  // noted for expectations alone
    std::uint32_t starts_ = 0;
    std::uint64_t items_max_ = 0;
    std::uint64_t seed_;
    Instant redraw_at_ = -1;
    std::uint64_t redraw_seed_ = 0;
    Instant explain_at_ = -1;
    bool explain_at_the_end_ = false;
    std::string explanation_;
    Observation* observation_ = nullptr;
    Ledger* ledger_ = nullptr;
    Lie lie_ = Lie::none;
    std::vector<Checkpoint> checkpoints_;  // per node
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

std::array<std::uint64_t, probe_count> probe_hits;

Coverage* covering = nullptr;
Triggers* waiting = nullptr;  // faults that wait for a probe

void on_probe(Probe probe) {
    ++probe_hits[static_cast<std::size_t>(probe)];
    if (covering != nullptr) covering->hit(probe);
    if (waiting != nullptr) waiting->hit(probe);
}

Verdict with_probes(Verdict verdict) {
    verdict.probes = probe_hits;
    waiting = nullptr;
    if (covering != nullptr) covering->end(probe_hits);
    covering = nullptr;
    return verdict;
}

Verdict run_once(const Scenario& scenario, const RunOptions& options) {
    set_assertion_handler(&on_broken_assertion);
    set_probe_handler(&on_probe);
    probe_hits.fill(0);
    covering = options.coverage;
    // Volatile, because its value is needed after longjmp.
    Runner* volatile runner = new Runner(scenario, options);
    waiting = runner->hears_probes();
    if (setjmp(broken_jump) == 0) {
        Verdict verdict = with_probes(runner->run());
        delete runner;
        return verdict;
    }
    // longjmp left frames of the core in the middle of their work. No machine of this world is called again, and the
    // world is not freed.
    runner->world().violate("assertion", formatted("{} at {}:{}", broken.expression, broken.file, broken.line));
    return with_probes(runner->verdict());
}

Verdict run_and_compare(const Scenario& scenario, const RunOptions& options) {
    const bool one_fault = has_one_fault(scenario);
    const bool even = !one_fault && is_even(scenario);
    if (!one_fault && (!even || !has_equal_paths(scenario))) {
        Verdict verdict = run_once(scenario, options);
        if (even && verdict.held()) verdict.violation = check_healing(verdict);
        return verdict;
    }
    Ledger seen, seen_then;
    RunOptions first = options, second;
    if (first.ledger == nullptr) first.ledger = &seen;
    second.ledger = &seen_then;
    Verdict verdict = run_once(scenario, first);
    if (!verdict.held()) return verdict;
    verdict.violation = run_once(one_fault ? without_faults(scenario) : with_more_patience(scenario), second).violation;
    if (verdict.held())
        verdict.violation =
            one_fault ? check_delay(scenario, *first.ledger, seen_then) : check_waiting(*first.ledger, seen_then);
    return verdict;
}

}  // namespace

Verdict run(const Scenario& scenario, const RunOptions& options) {
    Verdict verdict = run_and_compare(scenario, options);
    if (options.lie == Lie::state_lost) ++verdict.probes[static_cast<std::size_t>(Probe::sync_vote_lost)];
    if (options.lie == Lie::given_up_by_master) ++verdict.probes[static_cast<std::size_t>(Probe::direct_given_up)];
    if (verdict.held()) verdict.violation = check_never(scenario, verdict);
    if (verdict.held()) verdict.violation = check_expectations(scenario, verdict);
    return verdict;
}

Verdict run_twice(const Scenario& scenario, Coverage* coverage) {
    RunOptions options;
    options.keep_hashes = true;
    options.coverage = coverage;
    Verdict first = run(scenario, options);
    const Verdict second = run(scenario, options);
    if (!first.held()) return first;
    const std::size_t common = std::min(first.hashes.size(), second.hashes.size());
    for (std::size_t i = 0; i < common; ++i) {
        if (first.hashes[i] == second.hashes[i]) continue;
        first.violation = {"determinism", formatted("event {} of {} differs between two runs", i + 1, first.events)};
        return first;
    }
    if (first.hashes.size() != second.hashes.size())
        first.violation = {"determinism",
                           formatted("one run has {} events, the other {}", first.hashes.size(), second.hashes.size())};
    return first;
}

}  // namespace pccl::harness
