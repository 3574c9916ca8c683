// bare_ring: prints the cost of the bare streamed ring on this machine, for one size and number of peers.
#include "bare_ring.hpp"
#include "statistics.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

int main(int argc, char** argv) {
    CLI::App app{"Time of an all-reduce (f32 sum) over a bare TCP ring on loopback, without any library."};
    pccl::bench::RingOptions options;
    std::string size = "256M";
    bool out_of_place = false;
    bool json = false;
    app.add_option("--peers", options.peers, "number of processes")->check(CLI::Range(2, 64))->capture_default_str();
    app.add_option("--size", size, "bytes, with K, M or G")->capture_default_str();
    app.add_option("--iterations", options.iterations)->check(CLI::Range(1, 1'000'000))->capture_default_str();
    app.add_option("--timeout", options.timeout_seconds, "seconds for all")->capture_default_str();
    app.add_option("--congestion-control", options.congestion_control, "of TCP; empty: the system's default")
        ->capture_default_str();
    app.add_flag("--out-of-place", out_of_place);
    app.add_flag("--json", json, "print one JSON line");
    app.failure_message(CLI::FailureMessage::help);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (!pccl::bench::parse_size(size, options.bytes)) {
        std::fprintf(stderr, "bare_ring: not a size: %s\n", size.c_str());
        return 2;
    }
    options.in_place = !out_of_place;
    const auto result = pccl::bench::measure_bare_ring(options);
    if (!result.completed) {
        std::fprintf(stderr, "bare_ring: %s\n", result.error.c_str());
        return 1;
    }
    const double gigabytes = static_cast<double>(options.bytes) * options.iterations * 1e-9;
    const char* format =
        json ? "{\"program\":\"bare_ring\",\"peers\":%u,\"bytes\":%zu,\"in_place\":%s,\"median_ms\":%.4f,\"min_ms\":%."
               "4f,"
               "\"max_ms\":%.4f,\"cpu_s_per_gb\":%.3f,\"extra_mib\":%.1f}\n"
             : "peers %u  bytes %zu  in place %s  median %.3f ms  min %.3f ms  max %.3f ms  CPU %.2f s/GB  "
               "memory over the buffers %.1f MiB\n";
    std::printf(format, options.peers, options.bytes, options.in_place ? "true" : "false",
                pccl::bench::median(result.times_ms), result.times_ms.front(), result.times_ms.back(),
                result.cpu_seconds / gigabytes, static_cast<double>(result.extra_bytes) / 1048576.0);
    return 0;
}
