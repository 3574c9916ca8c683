// Helpers of the programs in this folder: clocks, medians, sizes as text, memory and CPU of a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace pccl::bench {

std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: one clock for all processes of a machine

double median(const std::vector<double>& sorted);  // 0 if empty

std::string size_text(std::size_t bytes);                      // 4 KiB, 256 MiB
bool parse_size(const std::string& text, std::size_t& bytes);  // "4K", "64M", "1G", "4096"

// Memory of the calling process, in bytes. The peak is the highest value since the last reset.
std::size_t resident_bytes();
std::size_t peak_resident_bytes();
void reset_peak_resident();

// CPU time in seconds of all living threads of a process since they started; -1 if the process is gone.
double process_cpu_seconds(pid_t process);

}  // namespace pccl::bench
