// Reads lines, words and values of a scenario's text, and keeps the position of the first error. The settings, and the
// lines of peers and faults, are in scenario_text.cpp.
#pragma once

#include "harness/scenario_text.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pccl::harness {

constexpr std::int64_t hour = 3600 * core::second;

enum class Unit : std::uint8_t { number, duration, flag };

std::string duration_text(core::Duration duration);  // exact: 1500000 is 1.5ms
std::string value_text(Unit unit, std::int64_t value);

// Cuts a line into words and keeps their columns. Only the first error is kept.
class ScenarioReader {
public:
    ScenarioReader(std::string_view text, ScenarioError& error) : rest_(text), error_(error) {}

    bool next_line();
    std::string_view word();
    // Reports an error in the last word, `inside` characters after its start.
    void fail(const std::string& expected, std::string_view found, std::size_t inside = 0);
    void fail_as_a_whole(const char* expected);
    bool failed() const { return failed_; }

    std::optional<std::uint64_t> unsigned_number(std::string_view text, const char* what, std::size_t inside,
                                                 std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

    std::optional<std::int64_t> value(Unit unit, std::string_view text, std::int64_t least, std::int64_t most,
                                      std::size_t inside);

private:
    static std::optional<std::int64_t> duration(std::string_view text);

    std::string_view rest_, current_;
    ScenarioError& error_;
    std::uint32_t line_ = 0;
    std::size_t at_ = 0, word_at_ = 0;
    bool failed_ = false;
};

// A `name=value` word. The name is empty if there is no `=`.
struct NamedValue {
    std::string_view name, value;
    std::size_t value_at = 0;
};
NamedValue named_value(std::string_view word);

}  // namespace pccl::harness
