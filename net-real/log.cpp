#include "net-real/log.hpp"

#include "core/base/format.hpp"
#include "net-real/log_callback.hpp"
#include "net-real/log_writer.hpp"

#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <pthread.h>
#include <utility>

namespace pccl::real {

namespace {

constexpr std::array<const char*, 7> names{"TRACE", "DEBUG", "INFO", "WARN", "ERR", "FATAL", "NONE"};
constexpr auto repeat_window = std::chrono::seconds(10);
constexpr std::size_t remembered_max = 256;
constexpr int unknown_threshold = -1;

struct Remembered {
    std::chrono::steady_clock::time_point first;
    std::uint64_t repeats = 0;
};

struct Logger {
    std::atomic<int> threshold{unknown_threshold};
    std::atomic<LogFormat> format{LogFormat::text};
    std::mutex mutex;
    std::map<std::string, Remembered, std::less<>> recent;
};

// Never destroyed: threads of the library may log while the process ends. A fork waits for the lock; otherwise the
// child could inherit a lock whose owner it does not have.
Logger& logger() {
    static Logger* const the_one = [] {
        auto* made = new Logger;
        static Logger* for_fork = made;
        ::pthread_atfork([] { for_fork->mutex.lock(); }, [] { for_fork->mutex.unlock(); },
                         [] { for_fork->mutex.unlock(); });
        return made;
    }();
    return *the_one;
}

// When the library is loaded. A child that was forked while another thread made it would wait for that thread for ever.
[[gnu::constructor]] void make_logger() { logger(); }

std::string timestamp() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    return core::formatted("{}.{:03}Z", date, ms % 1000);
}

// Remote text may hold any byte. What is not UTF-8 becomes a question mark, so that the JSON is always valid.
std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80                   ? 1
                                   : lead >= 0xF0 && lead < 0xF5 ? 4
                                   : lead >= 0xE0 && lead < 0xF0 ? 3
                                   : lead >= 0xC2 && lead < 0xE0 ? 2
                                                                 : 0;
        bool good = length != 0 && i + length <= text.size();
        for (std::size_t k = 1; good && k < length; ++k)
            good = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
        if (!good) {
            out += '?';
            ++i;
            continue;
        }
        if (lead == '"' || lead == '\\') out += '\\';
        out.append(text.substr(i, length));
        i += length;
    }
    return out + '"';
}

std::string compose(Severity severity, std::string_view who, std::string_view text, std::uint64_t hidden) {
    if (logger().format.load(std::memory_order_relaxed) == LogFormat::json) {
        return core::formatted("{{\"time\":\"{}\",\"level\":\"{}\",\"who\":{},\"text\":{}{}}}", timestamp(),
                               to_text(severity), quoted(who), quoted(text),
                               hidden > 0 ? core::formatted(",\"repeated\":{}", hidden) : "");
    }
    std::string line = core::formatted("{} {} {} {}", timestamp(), to_text(severity), who, text);
    if (hidden > 0) line += core::formatted(" (and {} times before, not shown)", hidden);
    return line;
}

void emit(Severity severity, std::string line, const LogSink& sink) {
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';  // remote text must not forge lines
    }
    if (sink) {
        sink(severity, line);
        return;
    }
    if (give_to_callback(severity, line)) return;
    line += '\n';
    write_to_stderr(std::move(line));
}

// 0: print. 1: suppress, it repeats. n > 1: print; it was suppressed n - 1 times since it was last printed.
std::uint64_t count_repeat(const std::string& key) {
    auto& state = logger();
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(state.mutex);
    const auto found = state.recent.find(key);
    if (found != state.recent.end()) {
        if (now - found->second.first < repeat_window) {
            ++found->second.repeats;
            return 1;
        }
        const std::uint64_t repeats = found->second.repeats;
        found->second = {now, 0};
        return repeats == 0 ? 0 : repeats + 1;
    }
    if (state.recent.size() >= remembered_max) {
        for (auto it = state.recent.begin(); it != state.recent.end();) {
            const bool is_old = now - it->second.first >= repeat_window;
            it = is_old ? state.recent.erase(it) : std::next(it);
        }
        if (state.recent.size() >= remembered_max) state.recent.clear();
    }
    state.recent.emplace(key, Remembered{now, 0});
    return 0;
}

}  // namespace

const char* to_text(Severity severity) { return names[static_cast<std::size_t>(severity)]; }

bool parse_severity(std::string_view text, Severity& severity) {
    std::string upper(text);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (upper != names[i]) continue;
        severity = static_cast<Severity>(i);
        return true;
    }
    return false;
}

Severity severity_of(core::LogLevel level) {
    switch (level) {
    case core::LogLevel::trace: return Severity::trace;
    case core::LogLevel::debug: return Severity::debug;
    case core::LogLevel::info: return Severity::info;
    case core::LogLevel::warn: return Severity::warn;
    case core::LogLevel::error: return Severity::err;
    }
    return Severity::info;
}

Severity log_threshold() {
    auto& threshold = logger().threshold;
    const int known = threshold.load(std::memory_order_relaxed);
    if (known != unknown_threshold) return static_cast<Severity>(known);
    Severity chosen = Severity::warn;
    const char* text = std::getenv("PCCL_LOG_LEVEL");
    const bool is_bad = text != nullptr && *text != '\0' && !parse_severity(text, chosen);
    int expected = unknown_threshold;
    const bool is_first = threshold.compare_exchange_strong(expected, static_cast<int>(chosen));
    if (is_first && is_bad) {
        log_line(Severity::warn, "pccl",
                 core::formatted(
                     "PCCL_LOG_LEVEL={} is not one of TRACE, DEBUG, INFO, WARN, ERR, FATAL, NONE; WARN is used", text));
    }
    return static_cast<Severity>(threshold.load(std::memory_order_relaxed));
}

void set_log_threshold(Severity severity) {
    logger().threshold.store(static_cast<int>(severity), std::memory_order_relaxed);
}

void set_log_format(LogFormat format) { logger().format.store(format, std::memory_order_relaxed); }

void log_line(Severity severity, std::string_view who, std::string_view text, const LogSink& sink) {
    try {
        if (!log_enabled(severity)) return;
        const std::uint64_t repeats = count_repeat(core::formatted("{} {} {}", to_text(severity), who, text));
        if (repeats == 1) return;
        emit(severity, compose(severity, who, text, repeats > 1 ? repeats - 1 : 0), sink);
    } catch (...) {
        // A line that cannot be written must have no other effect.
    }
}

}  // namespace pccl::real
