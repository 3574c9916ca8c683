// Log lines of the runtime: one line each, `ISO-8601-UTC-ms LEVEL who text`, to standard error (log_writer.hpp) or to a
// sink.
//
// `who` is the first 8 hex digits of a peer's identity, or `master`, or `pccl` for the library itself. A line (level,
// who and text) that repeats within 10 s is counted instead of printed. Its next printed line shows the count.
// PCCL_LOG_LEVEL sets the lowest level that is printed (default WARN). Thread-safe, never throws.
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pccl::real {

enum class Severity : std::uint8_t { trace, debug, info, warn, err, fatal, none };

// Gets the finished line without its line end. Called from any thread; the library holds no lock.
using LogSink = std::function<void(Severity, const std::string& line)>;

const char* to_text(Severity severity);
bool parse_severity(std::string_view text, Severity& severity);
Severity severity_of(core::LogLevel level);

// The lowest severity that is printed. The first call reads PCCL_LOG_LEVEL.
Severity log_threshold();
void set_log_threshold(Severity severity);
// The format of lines from now on. json: one object per line, {"time", "level", "who", "text"}. If lines were
// suppressed, "repeated" is their number.
enum class LogFormat : std::uint8_t { text, json };
void set_log_format(LogFormat format);
inline bool log_enabled(Severity severity) { return severity >= log_threshold() && severity != Severity::none; }

// Empty `sink`: standard error.
void log_line(Severity severity, std::string_view who, std::string_view text, const LogSink& sink = {});

}  // namespace pccl::real
