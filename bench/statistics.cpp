// Reads /proc, which has two things that getrusage lacks: a peak that can be reset, and the CPU time of other processes
// in nanoseconds.
#include "statistics.hpp"

#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace pccl::bench {

std::int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

double median(const std::vector<double>& sorted) {
    if (sorted.empty()) return 0;
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

std::string size_text(std::size_t bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB"};
    std::size_t unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return std::to_string(bytes) + " " + units[unit];
}

bool parse_size(const std::string& text, std::size_t& bytes) {
    std::size_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || value == 0) return false;
    unsigned shift = 0;
    if (rest != end) {
        switch (*rest) {
        case 'k':
        case 'K': shift = 10; break;
        case 'm':
        case 'M': shift = 20; break;
        case 'g':
        case 'G': shift = 30; break;
        default: return false;
        }
        if (rest + 1 != end) return false;
    }
    if (value > (std::size_t{1} << 40) >> shift) return false;
    bytes = value << shift;
    return true;
}

namespace {
std::size_t status_field_bytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::size_t kibibytes = 0;
        if (word == name && status >> kibibytes) return kibibytes * 1024;
    }
    return 0;
}
}  // namespace

std::size_t resident_bytes() { return status_field_bytes("VmRSS:"); }

std::size_t peak_resident_bytes() { return status_field_bytes("VmHWM:"); }

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

double process_cpu_seconds(pid_t process) {
    std::error_code error;
    std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process) + "/task", error);
    if (error) return -1;
    double seconds = 0;
    for (const auto& task : tasks) {
        std::ifstream file(task.path() / "schedstat");
        double nanoseconds = 0;
        if (file >> nanoseconds) seconds += nanoseconds * 1e-9;
    }
    return seconds;
}

}  // namespace pccl::bench
