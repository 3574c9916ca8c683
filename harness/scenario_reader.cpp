#include "harness/scenario_reader.hpp"

#include "core/base/format.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

std::string duration_text(Duration d) {
    struct Scale {
        Duration unit;
        const char* name;
    };
    static constexpr Scale scales[] = {{second, "s"}, {millisecond, "ms"}, {microsecond, "us"}, {1, "ns"}};
    for (const Scale& scale : scales) {
        if (d < scale.unit && scale.unit != 1) continue;
        std::string text = std::to_string(d / scale.unit);
        if (Duration rest = d % scale.unit; rest != 0) {
            std::string fraction = std::to_string(scale.unit + rest).substr(1);
            fraction.erase(fraction.find_last_not_of('0') + 1);
            text += "." + fraction;
        }
        return text + scale.name;
    }
    return "0ns";
}

std::string value_text(Unit unit, std::int64_t value) {
    switch (unit) {
    case Unit::duration: return duration_text(value);
    case Unit::flag: return value != 0 ? "yes" : "no";
    case Unit::number: return std::to_string(value);
    }
    return {};
}

bool ScenarioReader::next_line() {
    if (failed_ || (rest_.empty() && line_ != 0)) return false;
    ++line_;
    const std::size_t end = rest_.find('\n');
    current_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    if (!current_.empty() && current_.back() == '\r') current_.remove_suffix(1);
    if (const std::size_t comment = current_.find('#'); comment != std::string_view::npos)
        current_ = current_.substr(0, comment);
    at_ = 0;
    return true;
}

std::string_view ScenarioReader::word() {
    while (at_ < current_.size() && (current_[at_] == ' ' || current_[at_] == '\t')) ++at_;
    word_at_ = at_;
    while (at_ < current_.size() && current_[at_] != ' ' && current_[at_] != '\t') ++at_;
    return current_.substr(word_at_, at_ - word_at_);
}

void ScenarioReader::fail(const std::string& expected, std::string_view found, std::size_t inside) {
    if (failed_) return;
    failed_ = true;
    error_.line = line_;
    error_.column = static_cast<std::uint32_t>(word_at_ + inside + 1);
    std::string shown;
    for (const char c : found.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
    error_.expected = formatted("expected {}{}", expected,
                                found.empty() ? ", found the end of the line" : formatted(", found \"{}\"", shown));
}

void ScenarioReader::fail_as_a_whole(const char* expected) {
    failed_ = true;
    error_ = {line_, 1, formatted("expected {} in the scenario as a whole", expected)};
}

std::optional<std::uint64_t> ScenarioReader::unsigned_number(std::string_view text, const char* what,
                                                             std::size_t inside, std::uint64_t most) {
    std::uint64_t value = 0;
    bool good = !text.empty() && text.size() <= 20;
    for (const char c : text) {
        if (c < '0' || c > '9' || !good) {
            good = false;
            break;
        }
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) good = false;
        value = value * 10 + digit;
    }
    if (good && value <= most) return value;
    fail(most == std::numeric_limits<std::uint64_t>::max() ? what : formatted("{} of at most {}", what, most), text,
         inside);
    return std::nullopt;
}

std::optional<std::int64_t> ScenarioReader::value(Unit unit, std::string_view text, std::int64_t least,
                                                  std::int64_t most, std::size_t inside) {
    std::optional<std::int64_t> value;
    if (unit == Unit::flag) {
        if (text == "yes") return 1;
        if (text == "no") return 0;
        fail("yes or no", text, inside);
        return std::nullopt;
    }
    if (unit == Unit::duration) {
        value = duration(text);
    } else if (!text.empty() && text.size() <= 18 &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        std::int64_t v = 0;
        for (const char c : text) v = v * 10 + (c - '0');
        value = v;
    }
    if (value && *value >= least && *value <= most) return value;
    fail(formatted("{} from {} to {}", unit == Unit::duration ? "a duration such as 1.5ms" : "a whole number",
                   value_text(unit, least), value_text(unit, most)),
         text, inside);
    return std::nullopt;
}

std::optional<std::int64_t> ScenarioReader::duration(std::string_view text) {
    std::size_t digits = 0;
    while (digits < text.size() && ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) ++digits;
    const std::string_view unit = text.substr(digits), number = text.substr(0, digits);
    Duration scale = 0;
    if (unit == "s") scale = second;
    if (unit == "ms") scale = millisecond;
    if (unit == "us") scale = microsecond;
    if (unit == "ns") scale = 1;
    if (scale == 0 || number.empty() || number.size() > 20) return std::nullopt;
    std::int64_t value = 0;
    Duration fraction = 0;
    for (const char c : number) {
        if (c == '.') {
            if (fraction != 0) return std::nullopt;
            fraction = scale;
        } else if (fraction == 0) {
            value = value * 10 + (c - '0') * scale;
            if (value > 100 * hour) return std::nullopt;
        } else {
            if (fraction % 10 != 0) return std::nullopt;  // finer than a nanosecond
            fraction /= 10;
            value += (c - '0') * fraction;
        }
    }
    return value;
}

NamedValue named_value(std::string_view word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return {{}, word, 0};
    return {word.substr(0, equals), word.substr(equals + 1), equals + 1};
}

}  // namespace pccl::harness
