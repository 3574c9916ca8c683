#include "harness/expectations.hpp"

#include "core/base/format.hpp"
#include "harness/triggers.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace pccl::harness {

using namespace core;

namespace {

// Values of Expectation::what: these, then triggers.
enum class Number : std::uint32_t { committed, aborted, removed, removed_early, removed_ms, simulated_ms, count };
constexpr std::size_t expectations_max = 100;
constexpr auto numbers = static_cast<std::uint32_t>(Number::count);
constexpr std::array<const char*, numbers> names = {"committed",     "aborted",    "removed",
                                                    "removed-early", "removed-ms", "simulated-ms"};

std::uint64_t counted(std::uint32_t what, const Scenario& s, const Verdict& v) {
    if (what >= numbers) {
        const std::uint32_t trigger = what - numbers;
        return is_effect(trigger) ? v.effects[trigger - 1] : v.probes[trigger - phases_last - 1];
    }
    switch (static_cast<Number>(what)) {
    case Number::committed: return v.counters.committed;
    case Number::aborted: return v.counters.aborted;
    case Number::removed: return v.removals.size();
    case Number::removed_early:
        return static_cast<std::uint64_t>(std::count_if(v.removals.begin(), v.removals.end(),
                                                        [&](Instant at) { return at <= s.chaos_end + s.stop_after; }));
    case Number::removed_ms:
        return v.removals.empty() ? 0 : static_cast<std::uint64_t>(v.removals.back() / millisecond);
    case Number::simulated_ms: return static_cast<std::uint64_t>(v.simulated / millisecond);
    case Number::count: break;
    }
    return 0;
}

std::string name_of(std::uint32_t what) { return what < numbers ? names[what] : trigger_name(what - numbers); }

std::optional<std::uint32_t> named(std::string_view name) {
    for (std::uint32_t i = 0; i < numbers; ++i) {
        if (name == names[i]) return i;
    }
    const std::optional<std::uint32_t> trigger = trigger_named(name);
    if (!trigger || is_phase(*trigger)) return std::nullopt;
    return numbers + *trigger;
}

}  // namespace

void read_expectation(ScenarioReader& reader, Scenario& scenario) {
    const std::string_view name = reader.word();
    const std::optional<std::uint32_t> what = named(name);
    if (!what)
        return reader.fail("committed, aborted, removed, removed-early, removed-ms, simulated-ms, an effect or a probe",
                           name);
    Expectation expected{*what};
    if (const auto least = reader.unsigned_number(reader.word(), "a number", 0)) expected.least = *least;
    if (const std::string_view word = reader.word(); !word.empty()) {
        if (const auto most = reader.unsigned_number(word, "a number", 0)) expected.most = *most;
    }
    if (scenario.expectations.size() >= expectations_max)
        return reader.fail(formatted("at most {} expectations", expectations_max), "one more");
    scenario.expectations.push_back(expected);
}

std::string to_text(const Expectation& expected) {
    const std::string text = formatted("expect {} {}", name_of(expected.what), expected.least);
    return expected.most == Expectation::any ? text : formatted("{} {}", text, expected.most);
}

Expectation nobody_removed() { return {static_cast<std::uint32_t>(Number::removed), 0, 0}; }

Expectation removals(std::uint64_t members) {
    return {static_cast<std::uint32_t>(Number::removed_early), members, members};
}

Expectation no_aborts() { return {static_cast<std::uint32_t>(Number::aborted), 0, 0}; }

Expectation ends_until(Instant latest) {
    return {static_cast<std::uint32_t>(Number::simulated_ms), 0, static_cast<std::uint64_t>(latest / millisecond)};
}

sim::Violation check_expectations(const Scenario& scenario, const Verdict& verdict) {
    for (const Expectation& expected : scenario.expectations) {
        const std::uint64_t found = counted(expected.what, scenario, verdict);
        if (found < expected.least || found > expected.most)
            return {"expect", formatted("{} is {}, and the scenario expects {}", name_of(expected.what), found,
                                        expected.most == Expectation::any
                                            ? formatted("at least {}", expected.least)
                                            : formatted("{} to {}", expected.least, expected.most))};
    }
    return {};
}

}  // namespace pccl::harness
