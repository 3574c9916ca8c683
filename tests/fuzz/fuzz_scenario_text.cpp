// Any text is read as a scenario, or refused with a position. A scenario that was read is the same after it is written
// and read.
#include "harness/scenario_text.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

[[noreturn]] void broken(const char* what) {
    std::fprintf(stderr, "scenario text: %s\n", what);
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace pccl::harness;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    ScenarioError error;
    const auto scenario = parse_scenario(text, error);
    if (!scenario) {
        if (error.line == 0 || error.column == 0 || error.expected.rfind("expected ", 0) != 0)
            broken("no reason given");
        return 0;
    }
    const std::string written = to_text(*scenario);
    const auto again = parse_scenario(written, error);
    if (!again) broken("refuses its own text");
    if (to_text(*again) != written) broken("is not what was written");
    return 0;
}
