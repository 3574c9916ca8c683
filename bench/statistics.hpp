// Helpers of the benchmarks: clock, median, sizes as text, memory and CPU time of a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace pccl::bench {

std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: comparable between the processes of one machine

double median(const std::vector<double>& sorted);  // of values in ascending order; 0 if there are none

// "4 KiB", "256 MiB": the largest unit that divides the size, up to GiB.
std::string size_text(std::size_t bytes);
// Reads "4K", "64M", "1G" (powers of 1024) or "4096". False if it is none of these, 0, or more than 1 TiB.
bool parse_size(const std::string& text, std::size_t& bytes);

// Resident memory of the calling process, in bytes. The peak is the highest value since the last reset.
std::size_t resident_bytes();
std::size_t peak_resident_bytes();
void reset_peak_resident();

// CPU seconds that the running threads of a process have used so far. Threads that have ended do not count. -1 if the
// process is gone.
double process_cpu_seconds(pid_t process);

}  // namespace pccl::bench
