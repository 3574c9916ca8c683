// Faults that follow another fault or a phase of the protocol. They must begin when and where the scenario says, and
// must stay tied to the right fault while scenarios are shrunk.
#include "harness/fault_refs.hpp"
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

// Three members that reduce and synchronize. Nothing else happens unless a test adds it.
Scenario calm(std::uint64_t seed) {
    Scenario s;
    s.seed = seed;
    s.peers.resize(3);
    for (PeerPlan& plan : s.peers) plan.turns = 60;
    s.world.network.latency_low = s.world.network.latency_high = 2 * millisecond;
    s.timeouts.peer = 2 * second;
    s.chaos_end = 3 * second;
    s.stop_after = 100 * millisecond;
    s.patience = 120 * second;
    return s;
}

Fault at_phase(FaultKind kind, Phase phase, std::uint32_t count) {
    Fault f;
    f.kind = kind;
    f.trigger = trigger_of(phase);
    f.trigger_count = count;
    f.duration = 50 * millisecond;
    f.value = 2;  // a crashed peer is started again
    return f;
}

struct Seen {
    Verdict verdict;
    std::vector<FaultSpan> faults;
};

Seen played(const Scenario& scenario) {
    Observation observation;
    RunOptions options;
    options.observation = &observation;
    Seen seen{run(scenario, options), observation.faults};
    INFO(to_text(scenario) << seen.verdict.violation.oracle << ": " << seen.verdict.violation.reason);
    REQUIRE(seen.verdict.held());
    return seen;
}

}  // namespace

TEST_CASE("a fault begins so long behind another one took effect, or has ended") {
    Scenario s = calm(1);
    Fault first;
    first.kind = FaultKind::pause;
    first.at = 100 * millisecond;
    first.duration = 200 * millisecond;
    first.a = 2;
    Fault second = first;
    second.follows = 1;
    second.at = 7 * millisecond;
    second.duration = 20 * millisecond;
    second.a = 3;
    Fault third = second;
    third.behind_its_end = true;
    third.place = FaultPlace::here;
    s.faults = {first, second, third};
    const Seen seen = played(s);
    REQUIRE(seen.faults.size() == 3);
    CHECK(seen.faults[1].begin == 107 * millisecond);
    CHECK(seen.faults[1].nodes == std::vector<std::uint32_t>{3});
    CHECK(seen.faults[2].begin == 307 * millisecond);
    CHECK(seen.faults[2].nodes == std::vector<std::uint32_t>{2});
    CHECK(seen.verdict.second_faults.behind_faults == 2);
}

TEST_CASE("a fault comes again") {
    Scenario s = calm(2);
    Fault reset;
    reset.kind = FaultKind::reset;
    reset.at = 50 * millisecond;
    reset.a = 2;
    reset.b = aim_control | aim_named;
    reset.again = 4;
    reset.every = 80 * millisecond;
    s.faults = {reset};
    const Seen seen = played(s);
    CHECK(seen.verdict.faults[static_cast<std::size_t>(FaultKind::reset)] == 5);
    CHECK(seen.verdict.second_faults.repeated == 4);
    for (const FaultSpan& fault : seen.faults)
        CHECK(std::set<std::uint32_t>{fault.nodes[0], fault.others[0]} == std::set<std::uint32_t>{0, 2});
}

TEST_CASE("every phase is reached, and a fault can happen there at both ends") {
    std::set<std::uint32_t> never;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(Phase::count); ++i) {
        const auto phase = static_cast<Phase>(i);
        std::uint64_t reached = 0;
        for (std::uint64_t seed = 1; seed <= 40 && reached == 0; ++seed) {
            Scenario s = calm(seed);
            s.workload.optimize_per_mille = 500;
            s.workload.drift_per_mille = 500;
            s.workload.visit_per_mille = 200;
            s.peers[2].start = 50 * millisecond;
            // Pages of hashes, and more requests than are served at a time.
            s.limits.chunk_bytes = 64;
            s.limits.hashes_first = s.limits.chunk_requests_max = 1;
            s.workload.own_entries_per_mille = 500;
            if (phase == Phase::key_request || phase == Phase::keys) s.workload.schema_per_mille = 500;
            Fault cause;
            cause.kind = seed % 2 == 0 ? FaultKind::crash_master : FaultKind::crash_peer;
            if (seed % 5 == 4) cause.kind = FaultKind::pause;
            if (seed % 7 == 3) cause.kind = FaultKind::stop_master;
            cause.at = 100 * millisecond;
            cause.duration = seed % 5 == 4 ? second : 30 * millisecond;
            cause.a = 1;
            cause.value = 3;
            Fault f = at_phase(FaultKind::pause, phase, 1);
            f.place = seed % 3 == 0 ? FaultPlace::there : FaultPlace::here;
            f.duration = millisecond;
            s.faults = {cause, f};
            reached += played(s).verdict.second_faults.at_phases;
        }
        INFO(trigger_name(trigger_of(phase)));
        CHECK(reached != 0);
    }
}

TEST_CASE("an aimed crash at something said dies in place of saying it") {
    Scenario s = calm(5);
    s.faults = {at_phase(FaultKind::aimed_master, Phase::start_told, 2)};
    Observation observation;
    RunOptions options;
    options.observation = &observation;
    const Verdict verdict = run(s, options);
    REQUIRE(verdict.held());
    CHECK(verdict.faults[static_cast<std::size_t>(FaultKind::aimed_master)] == 1);
    // The first member received the start from the first process of the master, the others only from the next one.
    CHECK(verdict.probes[static_cast<std::size_t>(Probe::told_again_at_resume)] != 0);
    CHECK(verdict.probes[static_cast<std::size_t>(Probe::master_restarted)] != 0);
}

TEST_CASE("a clock that jumps forward costs nobody its seat") {
    for (std::uint32_t node = 0; node <= 3; ++node) {
        for (const Duration by : {100 * millisecond, 600 * millisecond, 1'900 * millisecond, 20 * second}) {
            Scenario s = calm(40 + node);
            s.timeouts.master = 30 * second;
            Fault f;
            f.kind = FaultKind::clock_jump;
            f.at = 100 * millisecond;
            f.a = node;
            f.duration = by;
            s.faults = {f};
            CHECK(played(s).verdict.counters.lost == 0);
        }
    }
}

TEST_CASE("who takes a fault away keeps its followers, or takes them with it") {
    std::vector<Fault> faults(5);
    for (std::size_t i = 0; i < faults.size(); ++i) {
        faults[i].a = static_cast<std::uint32_t>(i);
        faults[i].at = static_cast<Instant>(5 - i) * millisecond;
    }
    faults[2].follows = 2;
    faults[3].follows = 3;
    faults[4].follows = 1;
    REQUIRE(references_hold(faults));
    std::vector<Fault> left = faults;
    remove_faults(
        left, [](const Fault& f) { return f.a == 1; }, Followers::go);
    REQUIRE(left.size() == 2);
    CHECK(left[1].follows == 1);
    left = faults;
    remove_faults(
        left, [](const Fault& f) { return f.a == 1; }, Followers::stay);
    REQUIRE(left.size() == 4);
    CHECK(left[1].follows == 0);
    CHECK(left[1].at == 7 * millisecond);
    CHECK(left[2].follows == 2);
    left = faults;
    sort_by_time(left);
    REQUIRE(references_hold(left));
    for (const Fault& f : left) {
        if (f.follows != 0) CHECK(left[f.follows - 1].a == faults[f.a].follows - 1);
    }
    faults[1].follows = 4;  // a cycle
    CHECK_FALSE(references_hold(faults));
    faults[1].follows = 9;
    CHECK_FALSE(references_hold(faults));
}

TEST_CASE("what second faults say survives its text, and what makes no sense is refused") {
    const std::string head = "pccl-scenario 1\npeer\npeer\n";
    ScenarioError error;
    const auto read = parse_scenario(head + "fault pause at=1ms\n"
                                            "fault reset at=2ms follows=1:end node=there again=3 every=4ms\n"
                                            "fault crash-peer after=start-told*2 node=here\n"
                                            "fault crash-peer after=grace_ran_out*1\n",
                                     error);
    REQUIRE(read.has_value());
    CHECK(read->faults[1].follows == 1);
    CHECK(read->faults[1].behind_its_end);
    CHECK(read->faults[1].place == FaultPlace::there);
    CHECK(read->faults[1].again == 3);
    CHECK(read->faults[2].trigger == trigger_of(Phase::start_told));
    CHECK(read->faults[3].trigger == trigger_of(Probe::grace_ran_out));
    const auto again = parse_scenario(to_text(*read), error);
    REQUIRE(again.has_value());
    CHECK(to_text(*again) == to_text(*read));
    for (const char* wrong : {"fault reset follows=2\n", "fault reset follows=1\n", "fault reset follows=0\n",
                              "fault reset follows=1:start\n", "fault reset node=nowhere\n",
                              "fault reset after=tea*1\n", "fault pause\nfault reset after=grace*1 follows=1\n"}) {
        INFO(wrong);
        CHECK_FALSE(parse_scenario(head + wrong, error).has_value());
    }
    // Each name has only one meaning.
    std::set<std::string> names;
    for (std::uint32_t trigger = 1; trigger <= phases_last; ++trigger)
        CHECK(names.insert(trigger_name(trigger)).second);
    for (const ProbeText& probe : probe_texts) {
        INFO(probe.name);
        CHECK(trigger_named(probe.name).value_or(0) > phases_last);
    }
}
