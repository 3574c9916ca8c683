// The parent's side: starts a master and peers (this same program in its hidden roles) and sends them commands.
#include "suite.hpp"

#include "bare_ring.hpp"
#include "harness/real/child_process.hpp"
#include "statistics.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace pccl::bench {

using harness::ChildProcess;
using namespace std::chrono_literals;

namespace {

constexpr double mebibyte = 1024.0 * 1024.0;

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// A master and its peers. The destructor ends them all.
class Run {
public:
    Run(unsigned world, const std::vector<std::string>& extra_environment = {}) {
        const std::string program = harness::program_directory() + "pccl-bench";
        std::vector<std::string> environment = extra_environment;
        environment.push_back("PCCL_PORT_RANGE=0");
        master_ = ChildProcess::start({program, "--role", "master"}, {environment});
        const std::string port = answer(master_, "port", 10'000);
        for (unsigned rank = 0; rank < world; ++rank) {
            peers_.push_back(ChildProcess::start({program, "--role", "peer", "--rank", std::to_string(rank), "--world",
                                                  std::to_string(world), "--master-port", port},
                                                 {environment}));
        }
        for (auto& peer : peers_) answer(peer, "ready", 20'000);
    }

    // Ends the run in order: all peers leave it and exit.
    void quit() {
        for (auto& peer : peers_)
            if (peer.running()) peer.write_line("quit");
        for (auto& peer : peers_)
            if (peer.running() && !peer.wait(10s)) throw std::runtime_error("a peer did not leave within 10 s");
    }

    void tell_all(const std::string& command) {
        for (auto& peer : peers_) peer.write_line(command);
    }

    // Returns the rest of the line that starts with `word`. Throws if another line comes, or none in time.
    static std::string answer(ChildProcess& process, const std::string& word, int timeout_ms) {
        const auto line = process.read_line(std::chrono::milliseconds(timeout_ms));
        if (!line)
            throw std::runtime_error("no '" + word + "' from a process within " + std::to_string(timeout_ms) + " ms");
        if (line->compare(0, word.size(), word) != 0)
            throw std::runtime_error("'" + *line + "' instead of '" + word + "'");
        return line->size() > word.size() ? line->substr(word.size() + 1) : "";
    }

    ChildProcess& master() { return master_; }
    std::vector<ChildProcess>& peers() { return peers_; }

private:
    ChildProcess master_;
    std::vector<ChildProcess> peers_;
};

unsigned default_iterations(std::size_t bytes) {
    if (bytes <= 64 * 1024) return 500;
    if (bytes <= 4 * 1024 * 1024) return 100;
    if (bytes <= 64 * 1024 * 1024) return 20;
    return 10;
}

void measure(Row& row) {
    const RowRequest& request = row.request;
    const double gigabytes = static_cast<double>(request.bytes) * request.tags * request.iterations * 1e-9;

    RingOptions ring;
    ring.peers = request.peers;
    ring.bytes = request.bytes * request.tags;
    ring.in_place = request.in_place;
    ring.iterations = request.iterations;
    const RingMeasurement bare = measure_bare_ring(ring);
    if (bare.completed) {
        row.ring_median_ms = median(bare.times_ms);
        row.ring_cpu_seconds_per_gb = bare.cpu_seconds / gigabytes;
    }

    Run run(request.peers);
    std::ostringstream command;
    command << "reduce " << request.bytes << ' ' << (request.in_place ? 1 : 0) << ' ' << request.tags << " 2 "
            << request.iterations;
    run.tell_all(command.str());
    std::vector<double> times;
    for (auto& peer : run.peers()) {
        std::istringstream words(Run::answer(peer, "reduced", 120'000));
        int code = -1;
        double cpu_seconds = 0, extra_bytes = 0;
        std::size_t count = 0;
        words >> code >> cpu_seconds >> extra_bytes >> count;
        if (code != 0) throw std::runtime_error("all-reduce failed with code " + std::to_string(code));
        for (double time = 0; words >> time;) times.push_back(time);
        row.cpu_seconds_per_gb += cpu_seconds / gigabytes;
        row.extra_mib = std::max(row.extra_mib, extra_bytes / mebibyte);
    }
    run.quit();
    std::sort(times.begin(), times.end());
    row.median_ms = median(times);
    row.min_ms = times.empty() ? 0 : times.front();
    row.max_ms = times.empty() ? 0 : times.back();
}

double largest_memory(Run& run) {
    double largest = 0;
    run.tell_all("memory");
    for (auto& peer : run.peers()) largest = std::max(largest, std::stod(Run::answer(peer, "memory", 10'000)));
    return largest;
}

void run_operations(Run& run, const std::string& command) {
    run.tell_all(command);
    for (auto& peer : run.peers()) {
        if (std::stoi(Run::answer(peer, "reduced", 60'000)) != 0) throw std::runtime_error("an all-reduce failed");
    }
}

Figure memory_growth() {
    Figure figure{"memory growth over 1,000 operations of 64 KiB", "MiB", 1.0, false, 0, 0, "", "2 peers, in place"};
    Run run(2);
    run_operations(run, "reduce 65536 1 1 0 100");
    const double before = largest_memory(run);
    run_operations(run, "reduce 65536 1 1 0 1000");
    figure.measured = std::max(0.0, largest_memory(run) - before) / mebibyte;
    run.quit();
    return figure;
}

Figure idle_cpu(unsigned seconds) {
    Figure figure{"CPU of an idle peer or master", "% of a core", 0.1, false, 0, 0, "", ""};
    Run run(2);
    run_operations(run, "reduce 65536 1 1 0 10");
    sleep_ms(500);
    std::map<std::string, pid_t> processes{{"master", run.master().pid()}};
    for (std::size_t i = 0; i < run.peers().size(); ++i) processes["peer " + std::to_string(i)] = run.peers()[i].pid();
    std::map<std::string, double> before;
    for (const auto& [name, process] : processes) before[name] = process_cpu_seconds(process);
    sleep_ms(static_cast<int>(seconds) * 1000);
    for (const auto& [name, process] : processes) {
        const double percent = (process_cpu_seconds(process) - before[name]) / seconds * 100;
        figure.measured = std::max(figure.measured, percent);
        char text[64];
        std::snprintf(text, sizeof text, "%s%s %.3f", figure.remark.empty() ? "" : ", ", name.c_str(), percent);
        figure.remark += text;
    }
    figure.remark += "; over " + std::to_string(seconds) + " s";
    run.quit();
    return figure;
}

// Sends the signal to the last of 4 peers in the middle of a 256 MiB operation. `measured` becomes the time until the
// slowest survivor returned; `remark` gives the time of the retry. False if the operation ended before the signal.
bool hit_one_peer(int signal_number, int delay_ms, const std::vector<std::string>& environment, int limit_ms,
                  Figure& figure) {
    Run run(4, environment);
    auto& victim = run.peers().back();
    run.tell_all("faulty 268435456");
    for (auto& peer : run.peers()) Run::answer(peer, "begin", 30'000);
    sleep_ms(delay_ms);
    const std::int64_t hit_ns = monotonic_ns();
    victim.signal(signal_number);
    double slowest_return = 0, slowest_retry = 0;
    int attempts = 0;
    for (auto& peer : run.peers()) {
        if (&peer == &victim) continue;
        std::istringstream end(Run::answer(peer, "end", limit_ms));
        int code = 0;
        std::int64_t at = 0;
        end >> code >> at;
        if (code == 0) return false;  // finished before it was hit
        slowest_return = std::max(slowest_return, static_cast<double>(at - hit_ns) * 1e-9);
        std::istringstream retry(Run::answer(peer, "retried", 60'000));
        int world = 0, right = 0;
        retry >> code >> at >> world >> right >> attempts;
        if (code != 0) throw std::runtime_error("the retry failed with code " + std::to_string(code));
        if (right != 1) throw std::runtime_error("the retry gave a wrong sum: inputs were not restored");
        if (world != 3) throw std::runtime_error("world size after the fault is " + std::to_string(world));
        slowest_retry = std::max(slowest_retry, static_cast<double>(at - hit_ns) * 1e-9);
    }
    figure.measured = slowest_return;
    char text[96];
    std::snprintf(text, sizeof text, "hit %d ms after its start; retry done after %.2f s, attempts %d", delay_ms,
                  slowest_retry, attempts);
    figure.remark = text;
    victim.kill_and_reap();
    run.quit();
    return true;
}

void hit_in_the_middle(int signal_number, const std::vector<std::string>& environment, int limit_ms, Figure& figure) {
    for (const int delay_ms : {120, 60, 30, 200, 10}) {
        if (hit_one_peer(signal_number, delay_ms, environment, limit_ms, figure)) return;
    }
    throw std::runtime_error("the operation was always over before the signal");
}

// Measures a synchronization of equal state against a plain read of it, and the time in which one peer receives all of
// it.
void shared_state(Figure& hashing, Figure& transfer) {
    Run run(2);
    run.tell_all("state 268435456 5");
    double hash_seconds = 0, read_seconds = 0;
    std::vector<double> times;
    for (auto& peer : run.peers()) {
        std::istringstream words(Run::answer(peer, "state", 120'000));
        int code = -1;
        double hashed = 0, read = 0;
        words >> code >> hashed >> read;
        if (code != 0) throw std::runtime_error("a synchronization failed with code " + std::to_string(code));
        hash_seconds += hashed;
        read_seconds += read;
        for (double time = 0; words >> time;) times.push_back(time);
    }
    run.quit();
    std::sort(times.begin(), times.end());
    hashing.measured = read_seconds / hash_seconds;
    transfer.measured = median(times);
    char text[96];
    std::snprintf(text, sizeof text, "%.1f ms of CPU for 256 MiB, plain reads %.1f ms", hash_seconds / 2 * 1e3,
                  read_seconds / 2 * 1e3);
    hashing.remark = text;
    std::snprintf(text, sizeof text, "median of %zu, %.3f to %.3f", times.size(), times.front(), times.back());
    transfer.remark = text;
}

Figure simulator_speed(unsigned seeds) {
    Figure figure{"simulator, release build, default mix", "seeds/s", 100, true, 0, 0, "", ""};
    const std::string program = harness::program_directory() + "sim-run";
    if (access(program.c_str(), X_OK) != 0) throw std::runtime_error(program + " is not there");
    // One process: the target is per core.
    ChildProcess simulator =
        ChildProcess::start({program, "--jobs", "1", "--seeds", "1.." + std::to_string(seeds)}, {});
    const std::int64_t start = monotonic_ns();
    const std::int64_t limit_ns = 300'000'000'000;
    std::string last_line;
    std::string summary;
    while (auto line = simulator.read_line(60s)) {
        if (monotonic_ns() - start > limit_ns) throw std::runtime_error("sim-run took more than 300 s");
        if (line->find("seeds/s") != std::string::npos) summary = *line;
        if (!line->empty()) last_line = *line;
    }
    const auto status = simulator.wait(1s);
    if (!status || *status != 0) throw std::runtime_error("sim-run failed or was silent; last line: " + last_line);
    figure.measured = seeds / (static_cast<double>(monotonic_ns() - start) * 1e-9);
    figure.remark = summary;
    return figure;
}

// Measures one figure. If that fails, the figure holds the reason, and the suite goes on.
template <class Function>
void attempt(Figure figure, void (*print)(const Figure&), const Function& function) {
    try {
        figure = function(figure);
    } catch (const std::exception& error) {
        figure.error = error.what();
    }
    print(figure);
}

}  // namespace

Row measure_row(RowRequest request) {
    if (request.iterations == 0) request.iterations = default_iterations(request.bytes);
    Row row;
    row.request = request;
    try {
        measure(row);
    } catch (const std::exception& error) {
        row.error = error.what();
    }
    return row;
}

void run_suite(const SuiteOptions& options, void (*print_row)(const Row&), void (*print_figure)(const Figure&)) {
    std::vector<Row> rows;
    for (const RowRequest& request : {RowRequest{2, 4096, false, 1, 0}, RowRequest{2, 1 << 20, false, 1, 0},
                                      RowRequest{2, 64 << 20, false, 1, 0}, RowRequest{2, 256 << 20, false, 1, 0},
                                      RowRequest{2, 256 << 20, true, 1, 0}, RowRequest{4, 256 << 20, false, 1, 0},
                                      RowRequest{4, 256 << 20, true, 1, 0}, RowRequest{2, 8 << 20, true, 8, 0}}) {
        rows.push_back(measure_row(request));
        print_row(rows.back());
    }
    const auto row_time = [&](const char* name, const Row& row, double target_ms) {
        print_figure({name, "ms", target_ms, false, row.median_ms, row.ring_median_ms, row.error, "median"});
    };
    row_time("4 KiB, 2 peers", rows[0], 0.6);
    row_time("256 MiB, 2 peers, out of place", rows[3], 150);
    row_time("256 MiB, 2 peers, in place", rows[4], 150);
    print_figure(
        {"memory over the buffers, 256 MiB out of place", "MiB", 32, false, rows[3].extra_mib, 0, rows[3].error, ""});
    print_figure({"memory over the buffers, 256 MiB in place", "MiB", 256 + 32, false, rows[4].extra_mib, 0,
                  rows[4].error, "one copy and what out of place may take"});
    attempt({"memory growth over 1,000 operations", "MiB", 1, false, 0, 0, "", ""}, print_figure,
            [](const Figure&) { return memory_growth(); });
    attempt({"CPU of an idle peer or master", "% of a core", 0.1, false, 0, 0, "", ""}, print_figure,
            [&](const Figure&) { return idle_cpu(options.idle_seconds); });
    attempt({"SIGKILL of 1 of 4, 256 MiB: survivors return", "s", 0.5, false, 0, 0, "", ""}, print_figure,
            [](Figure figure) {
                hit_in_the_middle(SIGKILL, {}, 30'000, figure);
                return figure;
            });
    attempt({"SIGSTOP of 1 of 4, 256 MiB, 2 s peer timeout: survivors return", "s", 3.0, false, 0, 0, "", ""},
            print_figure, [](Figure figure) {
                hit_in_the_middle(SIGSTOP, {"PCCL_PEER_TIMEOUT_MS=2000"}, 30'000, figure);
                return figure;
            });
    Figure hashing{"sync of equal state: its speed over that of plain reads, per core", "", 0.8, true, 0, 0, "", ""};
    Figure transfer{"256 MiB of shared state to one peer", "s", 0.4, false, 0, 0, "", ""};
    try {
        shared_state(hashing, transfer);
    } catch (const std::exception& error) {
        hashing.error = transfer.error = error.what();
    }
    print_figure(hashing);
    print_figure(transfer);
    attempt({"simulator, release build, default mix", "seeds/s", 100, true, 0, 0, "", ""}, print_figure,
            [&](const Figure&) { return simulator_speed(options.simulator_seeds); });
}

}  // namespace pccl::bench
