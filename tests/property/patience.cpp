// Waits that must end, and members that must stay, in schedules that no oracle can judge: a long run breaks no promise
// by itself, and a member that a fault touched may be lost. Here, each schedule decides what must happen.
#include "harness/run.hpp"
#include "harness/scenario_text.hpp"
#include "harness/settle.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

struct Removal {
    Instant at = 0;
    std::string reason;
};

struct Played {
    Verdict verdict;
    std::vector<Removal> removals;  // by the master, without members that left
    int told_unreachable = 0;       // notices of the master to newcomers that cannot be admitted yet
};

Scenario read(const std::string& name) {
    std::ifstream file(std::string(PCCL_PATIENCE) + "/" + name + ".scenario");
    std::stringstream text;
    text << file.rdbuf();
    ScenarioError error;
    const auto scenario = parse_scenario(text.str(), error);
    INFO("line " << error.line << ": " << error.expected);
    REQUIRE(scenario);
    return *scenario;
}

Played play(const std::string& name) {
    const Scenario scenario = read(name);
    char* lines = nullptr;
    std::size_t length = 0;
    RunOptions options;
    options.trace = open_memstream(&lines, &length);
    Played played;
    played.verdict = run(scenario, options);
    std::fclose(options.trace);
    std::istringstream trace(std::string(lines, length));
    std::free(lines);
    for (std::string line; std::getline(trace, line);) {
        played.told_unreachable += line.find("master     send control") != std::string::npos &&
                                   line.find("cannot be admitted yet") != std::string::npos;
        const auto at = line.find(" removed: ");
        if (line.find("master     log: peer ") == std::string::npos || at == std::string::npos) continue;
        const std::string reason = line.substr(at + 10);
        if (reason == "left the run") continue;
        played.removals.push_back({static_cast<Instant>(std::strtod(line.c_str(), nullptr) * 1e6), reason});
    }
    INFO(played.verdict.violation.oracle << " " << played.verdict.violation.reason);
    CHECK(played.verdict.held());
    return played;
}

}  // namespace

TEST_CASE("a vote that is declared again after a resume does not renew the limit on votes") {
    const Played played = play("vote-declared-again");
    REQUIRE(played.removals.size() == 1);
    CHECK(played.removals[0].at < 10 * second);
}

TEST_CASE("the limit on votes passes beside a master that stutters") {
    const Played played = play("limit-on-votes-beside-a-master-that-stutters");
    REQUIRE(played.removals.size() == 1);
    CHECK(played.removals[0].at < 40 * second);
}

TEST_CASE("the limit on votes passes beside a master that never runs for a whole tick") {
    const Played played = play("hang-beside-a-master-that-never-ticks");
    REQUIRE(played.removals.size() == 1);
    CHECK(played.removals[0].at < 100 * second);
}

TEST_CASE("a master that stutters notices a death") {
    const Played played = play("death-beside-a-master-that-stutters");
    REQUIRE(played.removals.size() == 1);
    CHECK(played.removals[0].at < 10 * second);
}

TEST_CASE("links that closed long before and behind a pause of the master are no death") {
    CHECK(play("closed-long-before-a-pause").removals.empty());
}

TEST_CASE("a member whose welcome waits for the disk stays, though its link flapped before") {
    CHECK(play("flaps-before-the-disk-hangs").removals.empty());
}

TEST_CASE("a call for many tags that fails each time ends") {
    const Played played = play("no-memory-for-many-tags");
    CHECK(played.verdict.simulated < 20 * second);
    CHECK(played.verdict.counters.committed == 0);
}

TEST_CASE("edges that open and break at once do not hold up the start of a reduction") {
    CHECK(play("edges-that-open-and-break").verdict.simulated < 20 * second);
}

TEST_CASE("a synchronization does not wait for ever for the memory of a receiver") {
    const Played played = play("memory-that-does-not-come");
    CHECK(played.verdict.probes[static_cast<std::size_t>(Probe::sync_no_memory_in_time)] > 0);
}

TEST_CASE("tags of one call that do not fit beside each other are all reduced") {
    CHECK(play("many-tags-that-do-not-fit-together").verdict.counters.committed == 128);
}

TEST_CASE("the wait of a welcome for the disk does not count against the limit on votes") {
    CHECK(play("welcome-waits-within-the-limit-on-votes").removals.empty());
}

TEST_CASE("a vote that was cast in time is in time, however long it travels") {
    CHECK(play("vote-travels-past-the-limit").removals.empty());
}

TEST_CASE("the way of an answer does not count against the limit on votes") {
    CHECK(play("answer-travels-past-the-limit").removals.empty());
}

TEST_CASE("memory that takes longer than a holder may be silent is held against no holder of a state") {
    const Played played = play("memory-takes-longer-than-holders-may-be-silent");
    CHECK(played.verdict.probes[static_cast<std::size_t>(Probe::sync_holder_given_up)] == 0);
}

TEST_CASE("a master that never runs for a whole tick notices a death") {
    const Played played = play("death-beside-a-master-that-never-ticks");
    REQUIRE(played.removals.size() == 1);
    CHECK(played.removals[0].at < 60 * second);
}

TEST_CASE("tags that take turns on a slow and steady path all come through") {
    const Played few = play("tags-take-turns-on-a-slow-path");
    CHECK(few.verdict.counters.committed == 32);
    CHECK(few.verdict.counters.aborted == 0);
    const Played many = play("many-tags-at-a-megabit");
    CHECK(many.verdict.counters.committed == 256);
    CHECK(many.verdict.counters.aborted == 0);
}

TEST_CASE("whoever connects while the disk of the master hangs is let in when it answers") {
    const Played played = play("welcome-waits-for-the-disk");
    CHECK(played.verdict.probes[static_cast<std::size_t>(Probe::lost_in_connect)] == 0);
    CHECK(played.removals.empty());
}

TEST_CASE("a member that comes back just before the grace ends has its time to declare what it waits for") {
    CHECK(play("declares-at-the-end-of-the-grace").removals.empty());
}

TEST_CASE("a member that is left alone while it is away dials nobody when it is back") {
    CHECK(play("left-alone-while-away").verdict.effects[sim::effect_index<OpenLink>()] < 40);
}

TEST_CASE("a newcomer that all reach is not told that nobody does") {
    CHECK(play("newcomer-beside-one-that-nobody-reaches")
              .verdict.probes[static_cast<std::size_t>(Probe::joiner_unreachable)] < 10);
}

TEST_CASE("stripes that one end holds to be open make place for those that the other one dials anew") {
    CHECK(play("stripes-that-one-end-holds-to-be-open").removals.empty());
}

TEST_CASE("a part that takes long to leave, and slices that come late, are no reason to give up") {
    for (const char* name : {"part-takes-long-to-leave", "far-behind-the-narrow-edge"}) {
        const Played played = play(name);
        CHECK(played.verdict.counters.aborted == 0);
        CHECK(played.verdict.counters.committed > 0);
    }
}

TEST_CASE("tags of a member with a slow uplink leave in turn, and all come through") {
    const Played played = play("slow-uplink-of-one-with-many-tags");
    CHECK(played.verdict.counters.aborted == 0);
    CHECK(played.verdict.counters.committed == 240);
}

TEST_CASE("chunks of a holder that trickles are asked of one that has nothing to do") {
    CHECK(play("one-holder-trickles").verdict.simulated < 200 * second);
}

TEST_CASE("an edge that its target holds to be open is waited for") {
    CHECK(play("open-before-its-source-says-so").removals.size() == 1);  // of the member that died
}

TEST_CASE("an edge that carried nothing in an earlier ring is tried before a member has to go") {
    const Played played = play("stuck-in-an-earlier-ring");
    CHECK(played.verdict.probes[static_cast<std::size_t>(Probe::stuck_edge_tried_again)] != 0);
    CHECK(played.removals.empty());
}

TEST_CASE("an edge that was down in an earlier ring is tried before a member has to go") {
    CHECK(play("down-in-an-earlier-ring").removals.empty());
}

TEST_CASE("a connection that its own end opens anew is no word of a death") {
    CHECK(play("opened-anew-beside-a-lost-control-link").removals.empty());
}

TEST_CASE("an outage behind copies that broke off is not counted against the edge") {
    CHECK(play("outage-behind-copies-that-broke").removals.empty());
}

TEST_CASE("a newcomer that registers again while the disk hangs keeps its connections") {
    CHECK(play("newcomer-registers-again-while-the-disk-hangs").told_unreachable == 0);
}

TEST_CASE("a member that copies what it received is in a call, however long the others wait for the next one") {
    CHECK(play("copies-longer-than-the-limit-on-votes").removals.empty());
}

TEST_CASE("a newcomer that some members reach is not told again and again that it cannot be reached") {
    CHECK(play("newcomer-that-three-members-cannot-reach").told_unreachable <= 1);
}

TEST_CASE("a drawn way is wide enough for the words of all operations that run at once") {
    Scenario scenario = read("words-fill-a-narrow-way");
    CHECK(!run(scenario, {}).held());
    settle(scenario);
    CHECK(run(scenario, {}).held());
}

TEST_CASE("the patience of a drawn run counts the rounds of operations that wait for each other") {
    Scenario scenario = read("many-tags-one-after-another-around-a-large-ring");
    settle(scenario);
    CHECK(scenario.patience > 700 * second);
}
