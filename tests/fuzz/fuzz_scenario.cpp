// The bytes decide what the generator draws, and the run must hold. Guided by coverage of the core, this finds
// schedules that random seeds do not find.
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace pccl::harness;
    GeneratorOptions options;
    options.peers_max = 4;
    Scenario scenario = generate_from({data, size}, options);
    // Many short runs reach more than a few long ones.
    for (PeerPlan& peer : scenario.peers) peer.turns = peer.turns % 4 + 1;
    RunOptions bounded;
    // For each five seconds in which programs work. The longest runs then take half of libFuzzer's ten seconds.
    bounded.items_max = 10'000;
    const Verdict verdict = run(scenario, bounded);
    if (verdict.held() || verdict.violation.oracle == "bounded") return 0;
    std::fprintf(stderr, "%s: %s\n%s", verdict.violation.oracle.c_str(), verdict.violation.reason.c_str(),
                 to_text(scenario).c_str());
    std::abort();
}
