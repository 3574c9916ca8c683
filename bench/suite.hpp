// What pccl-bench measures: rows of a table (one size, one number of peers), and the single figures of the default
// suite.
//
// Each row runs in new processes, so that memory kept by one row is not counted in the next.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pccl::bench {

struct RowRequest {
    unsigned peers = 2;
    std::size_t bytes = 4096;  // of one operation
    bool in_place = true;
    unsigned tags = 1;        // operations at a time
    unsigned iterations = 0;  // 0: by size
};

struct Row {
    RowRequest request;
    std::string error;  // empty if measured
    double median_ms = 0, min_ms = 0, max_ms = 0;
    double cpu_seconds_per_gb = 0;  // user and system of all peers, over the bytes of one peer's buffers
    double extra_mib = 0;           // highest peak memory of a peer, minus its buffers and its memory before
    double ring_median_ms = 0;      // of the bare ring with as many bytes, run just before; 0 if it failed
    double ring_cpu_seconds_per_gb = 0;
};

Row measure_row(RowRequest request);

// One figure with its target, as printed.
struct Figure {
    std::string name;
    std::string unit;
    double target = 0;      // 0: none
    bool at_least = false;  // the target is a lower bound
    double measured = 0;
    double bare_ring = 0;  // 0: does not apply
    std::string error;     // empty if measured
    std::string remark;
};

struct SuiteOptions {
    unsigned idle_seconds = 20;
    unsigned simulator_seeds = 2000;
};

// Prints each row and each figure as soon as it is measured.
void run_suite(const SuiteOptions& options, void (*print_row)(const Row&), void (*print_figure)(const Figure&));

}  // namespace pccl::bench
