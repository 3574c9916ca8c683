#include "harness/real/bridge.hpp"

#include "core/base/format.hpp"
#include "harness/fault_pairs.hpp"
#include "harness/oracles.hpp"
#include "harness/real/child_process.hpp"
#include "harness/real/facts.hpp"
#include "harness/real/proxy.hpp"
#include "harness/real/signal_watch.hpp"
#include "harness/scenario_text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <unistd.h>

namespace pccl::harness {

using namespace core;

namespace {

constexpr Duration machine_patience = 20 * second;  // for steps that take milliseconds unless the machine is stuck

Instant monotonic() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Instant>(time.tv_sec) * second + time.tv_nsec;
}

class RealRun {
public:
    RealRun(const Scenario& scenario, const BridgeOptions& options)
        : scenario_(scenario), options_(options), proxy_(nodes(), scenario.world.network, scenario.seed),
          peers_(nodes()), paused_(nodes(), 0), touched_(nodes(), false) {}

    BridgeVerdict run() {
        if (prepare() && start_master(0) && hear_master()) {
            begin_script();
            loop();
        }
        finish();
        return std::move(verdict_);
    }

private:
    enum class Step : std::uint8_t {
        start_peer,
        restart_master,
        begin_fault,
        end_fault,
        silence,
        speak,
        faults_end,
        stop,
        deadline
    };
    struct Item {
        Step step = Step::start_peer;
        std::uint64_t value = 0;  // node or fault
    };
    struct Peer {  // the process of a node
        ChildProcess child;
        std::size_t number = 0;  // of its facts file, from 1
        bool expected_to_die = false;
    };
    struct Armed {
        std::uint64_t fault = 0;
        bool with_master = false;  // counts the proxy's pieces with the master, else those between peers
        bool fired = false;
    };

    std::uint32_t nodes() const { return static_cast<std::uint32_t>(scenario_.peers.size() + 1); }
    Instant now() const { return monotonic() - origin_; }
    void schedule(Instant at, Step step, std::uint64_t value = 0) { script_.emplace(at, Item{step, value}); }
    std::string path(const std::string& name) const { return formatted("{}/{}", verdict_.logs, name); }
    std::string facts_path(std::size_t number) const { return path(formatted("facts.{}", number)); }

    bool machine_error(std::string text) {
        if (verdict_.machine_error.empty()) verdict_.machine_error = std::move(text);
        return false;
    }
    void violate(std::string oracle, std::string reason) {
        if (verdict_.violation.oracle.empty()) verdict_.violation = {std::move(oracle), std::move(reason)};
    }

    // --- beginning ---------------------------------------------------------------------------------------------------
    bool prepare() {
        for (const char* program : {"pccl-master", "bridge-peer"}) {
            if (::access((options_.programs + program).c_str(), X_OK) != 0)
                return machine_error(
                    formatted("{}{} is missing; build the target {}", options_.programs, program, program));
        }
        std::error_code error;
        std::string folder = (std::filesystem::temp_directory_path(error) / "pccl-bridge-XXXXXX").string();
        if (error || ::mkdtemp(folder.data()) == nullptr)
            return machine_error("cannot make a folder for logs: " + std::string(std::strerror(errno)));
        verdict_.logs = folder;
        std::FILE* file = std::fopen(path("scenario").c_str(), "w");
        if (file == nullptr) return machine_error("cannot write " + path("scenario"));
        const std::string text = to_text(scenario_);
        const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
        if (std::fclose(file) != 0 || !written) return machine_error("cannot write " + path("scenario"));
        std::string reason;
        return proxy_.open(reason) || machine_error(reason);
    }

    std::vector<std::string> environment() const {
        std::vector<std::string> list = {
            formatted("PCCL_PEER_TIMEOUT_MS={}", scenario_.timeouts.peer / millisecond),
            formatted("PCCL_MASTER_TIMEOUT_MS={}", scenario_.timeouts.master / millisecond),
            formatted("PCCL_MAX_CONCURRENT_COLLECTIVE_OPS={}", scenario_.limits.concurrent_ops)};
        if (std::getenv("PCCL_LOG_LEVEL") == nullptr) list.push_back("PCCL_LOG_LEVEL=INFO");
        return list;
    }

    // If the scenario kills the master, it keeps a journal, and comes back at the port that it had.
    bool start_master(std::uint16_t port) {
        std::vector<std::string> arguments = {options_.programs + "pccl-master", "--listen",
                                              formatted("{}:{}", process_address(0), port)};
        const bool dies = std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                                      [](const Fault& fault) { return fault.kind == FaultKind::crash_master; });
        if (dies) arguments.insert(arguments.end(), {"--state-dir", path("state")});
        return start(master_, arguments, environment(), path("master.log"), false);
    }

    // Standard error goes to the end of the file `log`.
    bool start(ChildProcess& child, const std::vector<std::string>& arguments, std::vector<std::string> variables,
               const std::string& log, bool output_to_log) {
        const Descriptor file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        if (!file.is_open()) return machine_error("cannot write " + log);
        try {
            child = ChildProcess::start(arguments, {std::move(variables), file.number(), output_to_log});
        } catch (const std::system_error& error) {
            return machine_error(formatted("cannot start {}: {}", arguments[0], error.what()));
        }
        return true;
    }

    bool hear_master() {
        const Instant give_up = monotonic() + machine_patience;
        std::optional<std::string> line;
        while (!(line = master_.read_line(std::chrono::milliseconds(0)))) {
            if (interrupted()) return false;
            if (master_.output() < 0 || monotonic() >= give_up)
                return machine_error("pccl-master did not say where it listens" +
                                     std::string(master_.reap() ? ": " + master_.how_it_ended() : ""));
            std::vector<pollfd> set = {{master_.output(), POLLIN, 0}};
            signals_.wait(set, 100 * millisecond);
        }
        master_port_ = static_cast<std::uint16_t>(std::atoi(line->c_str() + line->rfind(':') + 1));
        proxy_.set_master_port(master_port_);
        return true;
    }

    // A peer that dials before the master listens is refused and retries. A master that cannot start exits, and reap()
    // notices.
    void restart_master() {
        if (master_.running() && !master_.reap()) return schedule(now() + millisecond, Step::restart_master);
        proxy_.node_starts(0);
        start_master(master_port_);
        master_killed_ = false;
    }

    void begin_script() {
        origin_ = monotonic();
        for (std::uint32_t node = 1; node < nodes(); ++node) {
            ++starts_;
            schedule(scenario_.peers[node - 1].start, Step::start_peer, node);
        }
        for (std::uint64_t i = 0; i < scenario_.faults.size(); ++i) {
            const Fault& fault = scenario_.faults[i];
            if (fault.trigger == 0) {
                schedule(fault.at, Step::begin_fault, i);
            } else {
                armed_.push_back(Armed{i, fault.trigger - 1 == sim::effect_index<SendControl>()});
            }
        }
        const Instant stop = scenario_.chaos_end + scenario_.stop_after;
        schedule(scenario_.chaos_end, Step::faults_end);
        schedule(stop, Step::stop);
        schedule(stop + scenario_.patience, Step::deadline);
    }

    // --- the loop ----------------------------------------------------------------------------------------------------
    bool interrupted() {
        verdict_.interrupted_by = SignalWatch::asked_to_end();
        return verdict_.interrupted_by != 0;
    }

    void loop() {
        std::vector<pollfd> set;
        while (!over_ && !interrupted() && verdict_.machine_error.empty()) {
            while (!script_.empty() && script_.begin()->first <= now() && !over_) {
                const Item item = script_.begin()->second;
                script_.erase(script_.begin());
                play(item);
            }
            fire_triggers();
            reap();
            if (over_) break;
            report_progress();
            set.clear();
            proxy_.watch(set);
            const Instant present = now();
            const Instant next = std::min(
                {script_.empty() ? never : script_.begin()->first, proxy_.next_deadline(present), present + second});
            signals_.wait(set, std::max<Duration>(next - present, 0));
            proxy_.turn(set, now());
        }
    }

    void play(const Item& item) {
        const auto node = static_cast<std::uint32_t>(item.value);
        switch (item.step) {
        case Step::start_peer: return start_peer(node);
        case Step::restart_master: return restart_master();
        case Step::begin_fault: return begin_fault(item.value);
        case Step::end_fault: return end_fault(item.value);
        case Step::silence:
        case Step::speak: return silence(node, item.step == Step::silence);
        case Step::faults_end:
            chaos_ = false;
            armed_.clear();
            return proxy_.stop_faults();
        case Step::stop:
            stopping_ = true;
            for (Peer& peer : peers_) peer.child.end_input();
            return check_over();
        case Step::deadline:
            late_ = true;
            over_ = true;
            return;
        }
    }

    void start_peer(std::uint32_t node) {
        Peer& peer = peers_[node];
        if (peer.expected_to_die && peer.child.running() && !peer.child.reap())
            return schedule(now() + millisecond, Step::start_peer, node);  // the killed one is not gone yet
        --starts_;
        if (peer.child.running() || stopping_) return check_over();
        proxy_.node_starts(node);
        peer.number = ++verdict_.processes;
        peer.expected_to_die = false;
        std::vector<std::string> variables = environment();
        variables.push_back("PCCL_BIND_ADDRESS=" + process_address(node));
        variables.push_back(formatted("PCCL_PORT_RANGE={}", proxy_.port(node)));
        if (const std::uint32_t host = scenario_.peers[node - 1].host; host != 0)
            variables.push_back(formatted("PCCL_HOST=host {}", host));
        // Creates an empty file, because a process may die before it has opened its facts.
        std::FILE* facts = std::fopen(facts_path(peer.number).c_str(), "w");
        if (facts == nullptr) return void(machine_error("cannot write " + facts_path(peer.number)));
        std::fclose(facts);
        const std::string log = path(formatted("node{}.process{}.log", node, peer.number));
        start(peer.child,
              {options_.programs + "bridge-peer", "--scenario", path("scenario"), "--node", std::to_string(node),
               "--number", std::to_string(peer.number), "--master",
               formatted("{}:{}", front_address(0), proxy_.port(0)), "--facts", facts_path(peer.number), "--origin",
               std::to_string(origin_)},
              std::move(variables), log, true);
    }

    void fire_triggers() {
        for (Armed& armed : armed_) {
            const Fault& fault = scenario_.faults[armed.fault];
            const std::uint64_t seen = armed.with_master ? proxy_.pieces_with_master() : proxy_.pieces_between_peers();
            if (armed.fired || seen < fault.trigger_count) continue;
            armed.fired = true;
            schedule(now() + fault.at, Step::begin_fault, armed.fault);
        }
    }

    void reap() {
        bool ended = false;
        for (std::uint32_t node = 1; node < nodes(); ++node) {
            Peer& peer = peers_[node];
            if (!peer.child.running() || !peer.child.reap()) continue;
            ended = true;
            if (peer.child.status().value_or(0) != 0 && !peer.expected_to_die)
                violate("process", formatted("the process of node {} ended with {}", node, peer.child.how_it_ended()));
        }
        if (master_.running() && master_.reap() && !master_killed_) {
            violate("process", "the master ended with " + master_.how_it_ended());
            over_ = true;
        }
        if (ended) check_over();
    }

    void check_over() {
        over_ = over_ || (starts_ == 0 && std::none_of(peers_.begin(), peers_.end(),
                                                       [](const Peer& peer) { return peer.child.running(); }));
    }

    void report_progress() {
        if (!options_.progress || now() < reported_ + second) return;
        reported_ = now();
        const auto running =
            std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.child.running(); });
        std::fprintf(stderr, "\r%3lld s  processes %lld  connections %zu  forwarded %.1f MiB  faults %llu of %zu%s   ",
                     static_cast<long long>(now() / second), static_cast<long long>(running), proxy_.connections(),
                     static_cast<double>(proxy_.bytes_forwarded()) / 1048576.0,
                     static_cast<unsigned long long>(injected_), scenario_.faults.size(), stopping_ ? "  ending" : "");
        std::fflush(stderr);
    }

    // --- faults ------------------------------------------------------------------------------------------------------
    Instant within_chaos(Duration duration) const {
        return std::min(now() + duration, std::max(scenario_.chaos_end, now()));
    }

    template <class Change>
    void each_pair(const Fault& fault, Change change) {
        for (std::uint32_t from = 0; from < nodes(); ++from) {
            for (std::uint32_t to = 0; to < nodes(); ++to) {
                if (separates(fault, nodes(), from, to)) change(from, to);
            }
        }
    }

    void begin_fault(std::uint64_t index) {
        if (!chaos_) return;
        const Fault& fault = scenario_.faults[index];
        const std::uint32_t peer = 1 + (fault.a + nodes() - 2) % (nodes() - 1);
        switch (fault.kind) {
        case FaultKind::partition:
        case FaultKind::one_way:
        case FaultKind::cut_pair:
        case FaultKind::clog:
        case FaultKind::interface:
            each_pair(fault, [&](std::uint32_t from, std::uint32_t to) {
                proxy_.block(from, to);
                touch(from);
                touch(to);
            });
            schedule(within_chaos(fault.duration), Step::end_fault, index);
            break;
        case FaultKind::reset:
        case FaultKind::end_early:
        case FaultKind::half_open:
        case FaultKind::corrupt:
        case FaultKind::stall:
            if (!hurt_connection(index)) return;
            break;
        case FaultKind::crash_peer:
            if (!peers_[peer].child.running()) return;
            crash(peer, fault);
            break;
        case FaultKind::crash_master:
            if (!master_.running() || master_killed_) return;
            crash_master(fault);
            break;
        case FaultKind::pause: {
            const std::uint32_t node = fault.a % nodes();
            const ChildProcess& child = node == 0 ? master_ : peers_[node].child;
            if (!child.running() || (node == 0 && master_killed_)) return;
            touch(node);
            ++paused_[node];
            child.signal(SIGSTOP);
            schedule(within_chaos(fault.duration), Step::end_fault, index);
            break;
        }
        case FaultKind::hang: {
            const std::int64_t until = within_chaos(fault.duration);
            peers_[peer].child.write({reinterpret_cast<const char*>(&until), sizeof until});
            break;
        }
        case FaultKind::swizzle: swizzle(index); break;
        default: return;  // not playable, see playable.cpp
        }
        ++injected_;
        ++verdict_.faults[static_cast<std::size_t>(fault.kind)];
    }

    // The nodes fall silent one by one in the first half, and come back in a random order in the second half.
    void swizzle(std::uint64_t index) {
        const Fault& fault = scenario_.faults[index];
        const std::vector<std::uint32_t> silent = swizzled_nodes(fault, nodes());
        const Duration half = (within_chaos(fault.duration) - now()) / 2;
        sim::Draw draw(sim::mix(scenario_.seed, sim::mix(911, index)));
        for (std::size_t i = 0; i < silent.size(); ++i) {
            touch(silent[i]);
            for (std::uint32_t to = 0; to < nodes(); ++to) touch(to);
            schedule(now() + half * static_cast<Duration>(i) / static_cast<Duration>(silent.size()), Step::silence,
                     silent[i]);
            schedule(now() + half + draw.between(0, half), Step::speak, silent[i]);
        }
    }
    void silence(std::uint32_t node, bool on) {
        for (std::uint32_t to = 0; to < nodes(); ++to) {
            if (to == node) continue;
            if (on) proxy_.block(node, to);
            if (!on) proxy_.unblock(node, to);
        }
    }

    // False: there is no connection to damage. The connection and the damage follow from the same bits as in the
    // simulator.
    bool hurt_connection(std::uint64_t index) {
        const Fault& fault = scenario_.faults[index];
        std::vector<std::uint64_t> open = ((fault.value >> 40) & 3) != 0 ? proxy_.busy() : proxy_.established();
        if (open.empty()) open = proxy_.established();
        if (open.empty()) return false;
        const std::uint64_t connection = open[fault.value % open.size()];
        const std::uint32_t side = (fault.value >> 32) & 1;
        const std::uint32_t nodes_of[] = {proxy_.node_of(connection, 0), proxy_.node_of(connection, 1)};
        switch (fault.kind) {
        case FaultKind::corrupt:
            if (!proxy_.corrupt(connection, side, fault.value >> 8) &&
                !proxy_.corrupt(connection, side ^ 1, fault.value >> 8))
                return false;
            break;
        case FaultKind::reset: proxy_.reset(connection, now()); break;
        case FaultKind::end_early: proxy_.end_early(connection, side, now()); break;
        case FaultKind::half_open: proxy_.half_open(connection, ((fault.value >> 33) & 1) != 0, side); break;
        default:
            proxy_.stall(connection, side, true);
            stalled_[index] = connection;
            schedule(within_chaos(fault.duration), Step::end_fault, index);
            break;
        }
        touch(nodes_of[0]);
        touch(nodes_of[1]);
        return true;
    }

    void crash(std::uint32_t node, const Fault& fault) {
        Peer& peer = peers_[node];
        touch(node);
        peer.expected_to_die = true;
        peer.child.signal(SIGKILL);
        paused_[node] = 0;
        proxy_.node_dies(node, (fault.value & 1) != 0);
        if ((fault.value & 2) == 0 || stopping_) return;
        ++starts_;
        schedule(within_chaos(fault.duration), Step::start_peer, node);
    }

    // The master comes back with all that it promised, and the members resume. So this is no reason for a loss, unless
    // the master is away too long in total, or data links break as well: a member that loses both kinds of links may be
    // taken for dead.
    void crash_master(const Fault& fault) {
        const Instant back = within_chaos(fault.duration);
        master_away_ += back - now() + 5 * second + scenario_.timeouts.handshake;
        const bool others_cut = std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& other) {
            return other.kind != FaultKind::crash_master && other.kind != FaultKind::crash_peer &&
                   other.kind != FaultKind::hang;
        });
        if (others_cut || master_away_ >= scenario_.timeouts.master) touch(0);
        master_killed_ = true;
        master_.signal(SIGKILL);
        paused_[0] = 0;
        proxy_.node_dies(0, (fault.value & 1) != 0);
        schedule(back, Step::restart_master);
    }

    void end_fault(std::uint64_t index) {
        const Fault& fault = scenario_.faults[index];
        each_pair(fault, [&](std::uint32_t from, std::uint32_t to) { proxy_.unblock(from, to); });
        if (fault.kind == FaultKind::stall) proxy_.stall(stalled_[index], (fault.value >> 32) & 1, false);
        if (fault.kind == FaultKind::pause) {
            const std::uint32_t node = fault.a % nodes();
            if (paused_[node] != 0 && --paused_[node] == 0) (node == 0 ? master_ : peers_[node].child).signal(SIGCONT);
        }
    }

    // --- the end -----------------------------------------------------------------------------------------------------
    void touch(std::uint32_t node) {
        if (node == 0) touched_.assign(nodes(), true);
        touched_[node] = true;
    }

    void finish() {
        verdict_.took = now();
        verdict_.bytes_forwarded = proxy_.bytes_forwarded();
        std::vector<bool> was_running;
        for (Peer& peer : peers_) {
            was_running.push_back(peer.child.running());
            peer.child.kill_and_reap();
        }
        if (options_.progress && reported_ != 0) std::fputs("\n", stderr);
        if (verdict_.interrupted_by == 0 && verdict_.machine_error.empty()) {
            stop_master();
            if (verdict_.machine_error.empty()) judge(was_running);
        }
        master_.kill_and_reap();
        if (verdict_.held() || verdict_.interrupted_by != 0) {
            std::error_code ignored;
            if (!verdict_.logs.empty()) std::filesystem::remove_all(verdict_.logs, ignored);
            verdict_.logs.clear();
        }
    }

    void stop_master() {
        if (!master_.running() || master_killed_) return;
        master_.signal(SIGCONT);
        master_.signal(SIGTERM);
        const Instant give_up = monotonic() + machine_patience;
        while (!master_.reap()) {
            if (monotonic() >= give_up) return violate("progress", "the master did not end after SIGTERM");
            std::vector<pollfd> none;
            signals_.wait(none, 100 * millisecond);
        }
        if (master_.status().value_or(0) != 0) violate("process", "the master ended with " + master_.how_it_ended());
    }

    void judge(const std::vector<bool>& was_running) {
        std::vector<ProcessFacts> all;
        for (std::size_t number = 1; number <= verdict_.processes; ++number) {
            std::optional<ProcessFacts> facts = read_facts(facts_path(number));
            if (!facts) return void(machine_error("cannot read " + facts_path(number)));
            verdict_.counters += facts->counters;
            all.push_back(std::move(*facts));
        }
        if (late_) {
            std::string text = "not everybody came to an end:";
            for (std::uint32_t node = 1; node < nodes(); ++node) {
                if (!was_running[node]) continue;
                const ProcessFacts& facts = all[peers_[node].number - 1];
                text += formatted("\n  node {} (process {}) {}", node, peers_[node].number,
                                  facts.waits_in.empty() ? "is in no call of the library"
                                                         : formatted("waits in {} since {} ms", facts.waits_in,
                                                                     facts.waits_since / millisecond));
            }
            violate("progress", text);
        }
        for (const ProcessFacts& facts : all) {
            if (!facts.violation.oracle.empty()) violate(facts.violation.oracle, facts.violation.reason);
        }
        const Ledger ledger = merge_facts(all);
        check_losses(ledger);
        Excuses excuses(scenario_);
        // `excuses` does not contain what the proxy did, so blames can be judged only if there was no fault.
        if (const sim::Violation blame = check_blames(scenario_, ledger, excuses);
            scenario_.faults.empty() && !blame.oracle.empty())
            violate(blame.oracle, blame.reason);
        for (const auto check : {check_reduces, check_syncs, check_votes}) {
            const sim::Violation violation = check(scenario_, ledger, excuses);
            if (!violation.oracle.empty()) violate(violation.oracle, violation.reason);
        }
    }

    // No member may be removed or give up without a fault that touched it.
    void check_losses(const Ledger& ledger) {
        const sim::NetworkParameters& n = scenario_.world.network;
        if (n.tail_per_million != 0 || n.fails_dials() || n.rate_low < 1'000'000 || scenario_.timeouts.master < second)
            return;
        for (std::uint32_t life = 0; life < ledger.lives.size(); ++life) {
            const Life& l = ledger.lives[life];
            if (l.lost && !l.refused_revision && !touched_[l.node])
                violate("membership",
                        formatted("{} on node {} was lost, though no fault touched it", ledger.name(life), l.node));
        }
    }

    const Scenario& scenario_;
    const BridgeOptions& options_;
    SignalWatch signals_;
    Proxy proxy_;
    ChildProcess master_;
    std::vector<Peer> peers_;  // by node; the first is unused
    std::vector<std::uint32_t> paused_;
    std::vector<bool> touched_;
    std::multimap<Instant, Item> script_;  // equal times in the order of scheduling
    std::vector<Armed> armed_;
    std::map<std::uint64_t, std::uint64_t> stalled_;  // from fault to connection
    BridgeVerdict verdict_;
    Instant origin_ = monotonic();
    Instant reported_ = 0;
    std::uint64_t injected_ = 0;
    Duration master_away_ = 0;  // sum over all its deaths, with the time to resume after each
    std::uint32_t starts_ = 0;
    std::uint16_t master_port_ = 0;
    bool master_killed_ = false;  // and not started again yet
    bool chaos_ = true;
    bool stopping_ = false;
    bool late_ = false;
    bool over_ = false;
};

}  // namespace

BridgeVerdict run_real(const Scenario& scenario, const BridgeOptions& options) {
    if (scenario.peers.size() >= proxy_nodes_max) {
        BridgeVerdict verdict;
        verdict.machine_error = formatted("at most {} peers can be played for real", proxy_nodes_max - 1);
        return verdict;
    }
    return RealRun(scenario, options).run();
}

}  // namespace pccl::harness
