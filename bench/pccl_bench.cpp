// pccl-bench: speed and memory of the library on this machine, compared with the bare ring in the same run.
//
// Without options it runs the suite of figures that have a target. With --sizes it prints a table of those sizes. Exit
// status: 0 measured, 1 something could not be measured, 2 usage. A missed target is printed, but it is no error: the
// machine may be the cause, and the ratio to the bare ring shows whether it is.
#include "bare_ring.hpp"
#include "harness/real/child_process.hpp"
#include "statistics.hpp"
#include "suite.hpp"
#include "worker.hpp"

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>

namespace {

using namespace pccl::bench;

bool as_json = false;
bool all_measured = true;

void print_heading() {
    if (as_json) return;
    std::printf("%5s %9s %-5s %4s %5s | %9s %9s %9s | %7s %7s | %8s %8s | %9s %8s %6s\n", "peers", "size", "place",
                "tags", "runs", "median ms", "min ms", "max ms", "algbw", "busbw", "CPU s/GB", "over MiB", "bare ring",
                "CPU s/GB", "ratio");
}

void print_row(const Row& row) {
    const RowRequest& request = row.request;
    all_measured = all_measured && row.error.empty();
    const double ratio = row.ring_median_ms > 0 ? row.median_ms / row.ring_median_ms : 0;
    // As in nccl-tests: algbw is the bytes of the buffers over time, busbw is algbw times 2 (n - 1) / n.
    const double gigabytes = static_cast<double>(request.bytes) * request.tags * 1e-9;
    const double algorithm_bandwidth = row.median_ms > 0 ? gigabytes / (row.median_ms * 1e-3) : 0;
    const double bus_bandwidth = algorithm_bandwidth * 2 * (request.peers - 1) / request.peers;
    if (as_json) {
        std::printf("{\"row\":\"all_reduce\",\"peers\":%u,\"bytes\":%zu,\"in_place\":%s,\"tags\":%u,\"iterations\":%u,"
                    "\"median_ms\":%.4f,\"min_ms\":%.4f,\"max_ms\":%.4f,\"algbw_gb_s\":%.4f,\"busbw_gb_s\":%.4f,"
                    "\"cpu_s_per_gb\":%.3f,\"extra_mib\":%.2f,\"bare_ring_ms\":%.4f,\"bare_ring_cpu_s_per_gb\":%.3f,"
                    "\"ratio\":%.3f,\"error\":\"%s\"}\n",
                    request.peers, request.bytes, request.in_place ? "true" : "false", request.tags, request.iterations,
                    row.median_ms, row.min_ms, row.max_ms, algorithm_bandwidth, bus_bandwidth, row.cpu_seconds_per_gb,
                    row.extra_mib, row.ring_median_ms, row.ring_cpu_seconds_per_gb, ratio, row.error.c_str());
    } else {
        std::printf("%5u %9s %-5s %4u %5u | ", request.peers, size_text(request.bytes).c_str(),
                    request.in_place ? "in" : "out", request.tags, request.iterations);
        if (row.error.empty()) {
            std::printf("%9.3f %9.3f %9.3f | %7.3f %7.3f | %8.2f %8.1f | %9.3f %8.2f %6.2f\n", row.median_ms,
                        row.min_ms, row.max_ms, algorithm_bandwidth, bus_bandwidth, row.cpu_seconds_per_gb,
                        row.extra_mib, row.ring_median_ms, row.ring_cpu_seconds_per_gb, ratio);
        } else {
            std::printf("not measured: %s\n", row.error.c_str());
        }
    }
    std::fflush(stdout);
}

void print_figure(const Figure& figure) {
    all_measured = all_measured && figure.error.empty();
    const bool held = figure.at_least ? figure.measured >= figure.target : figure.measured <= figure.target;
    const char* verdict = !figure.error.empty() ? "not measured" : held ? "held" : "MISSED";
    const double ratio = figure.bare_ring > 0 ? figure.measured / figure.bare_ring : 0;
    if (as_json) {
        std::string remark;
        for (const char c : figure.error + figure.remark)
            if (c != '"' && c != '\\' && c >= ' ') remark += c;
        std::printf(
            "{\"figure\":\"%s\",\"unit\":\"%s\",\"target\":%g,\"measured\":%.4f,\"bare_ring\":%.4f,\"ratio\":%.3f,"
            "\"verdict\":\"%s\",\"remark\":\"%s\"}\n",
            figure.name.c_str(), figure.unit.c_str(), figure.target, figure.measured, figure.bare_ring, ratio, verdict,
            remark.c_str());
    } else {
        std::printf("%-62s target %s %g %s, measured %.3f", figure.name.c_str(),
                    figure.at_least ? ">=" : "<=", figure.target, figure.unit.c_str(), figure.measured);
        if (ratio > 0) std::printf(", bare ring %.3f (x %.2f)", figure.bare_ring, ratio);
        std::printf(": %s", verdict);
        const std::string& remark = figure.error.empty() ? figure.remark : figure.error;
        if (!remark.empty()) std::printf(" (%s)", remark.c_str());
        std::printf("\n");
    }
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Speed and memory of PCCL on this machine, beside a bare ring in the same run.\n"
                 "Without --sizes: the figures the project holds itself to, each with its target."};
    std::vector<std::string> sizes;
    RowRequest request;
    SuiteOptions suite;
    bool in_place = false, out_of_place = false;
    std::string role;
    unsigned rank = 0, world = 0, connections = 0;
    MasterPlace master;
    app.add_option("--peers", request.peers, "number of peer processes")
        ->check(CLI::Range(2, 64))
        ->capture_default_str();
    app.add_option("--sizes", sizes, "bytes of one operation, e.g. 4K,1M,64M,256M")->delimiter(',');
    app.add_flag("--in-place", in_place, "send and receive buffer are one");
    app.add_flag("--out-of-place", out_of_place, "two buffers (with neither flag: both ways)");
    app.add_option("--concurrency", request.tags, "operations at a time")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--iterations", request.iterations, "0: by size")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    app.add_option("--idle-seconds", suite.idle_seconds, "suite: how long idle CPU is watched")
        ->check(CLI::Range(1, 600))
        ->capture_default_str();
    app.add_option("--seeds", suite.simulator_seeds, "suite: seeds the simulator runs")
        ->check(CLI::Range(1, 10'000'000))
        ->capture_default_str();
    app.add_flag("--json", as_json, "JSON lines instead of a table");
    app.add_option("--role", role)->group("");
    app.add_option("--rank", rank)->group("");
    app.add_option("--world", world)->group("");
    app.add_option("--master-host", master.host)->group("");
    app.add_option("--master-port", master.port)->group("");
    app.add_option("--connections", connections)->group("");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (role == "peer") return run_peer(rank, world, master, connections);
    if (role == "master") return run_master(master.host);

    if (sizes.empty()) {
        print_heading();
        run_suite(suite, print_row, print_figure);
        return all_measured ? 0 : 1;
    }
    std::vector<std::size_t> bytes(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (!parse_size(sizes[i], bytes[i]) || bytes[i] < sizeof(float)) {
            std::fprintf(stderr, "pccl-bench: not a size: %s\n", sizes[i].c_str());
            return 2;
        }
    }
    print_heading();
    for (const std::size_t size : bytes) {
        for (const bool in : {false, true}) {
            if (in ? out_of_place && !in_place : in_place && !out_of_place) continue;
            request.bytes = size;
            request.in_place = in;
            print_row(measure_row(request));
        }
    }
    return all_measured ? 0 : 1;
}
