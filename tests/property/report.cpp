// What reports promise, for many seeds: the JSON is valid whatever the texts contain, slices of a track do not overlap,
// and messages travel between nodes and forward in time. Recording must not change a run.
#include "harness/report/report.hpp"
#include "harness/report/json.hpp"
#include "tests/property/json_reader.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

using namespace pccl;
using namespace pccl::harness;
using json_reader::Value;
using sim::Recorder;

namespace {

struct Recorded {
    Scenario scenario;
    Observation observation;
    Verdict verdict;
    std::string replay;
    explicit Recorded(std::uint64_t seed, std::uint64_t entries_max = 100'000)
        : scenario(generate(seed)), verdict(report::run_recorded(scenario, {}, observation, entries_max)),
          replay("sim-run --seed " + std::to_string(seed)) {}
    report::Subject subject() const { return report::Subject{scenario, verdict, observation, replay}; }
};

std::string data_of(const std::string& page) {
    const std::string mark = "<script type=\"application/json\" id=\"data\">";
    const std::size_t begin = page.find(mark);
    REQUIRE(begin != std::string::npos);
    return page.substr(begin + mark.size(), page.find("</script>", begin) - begin - mark.size());
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// Under how many names a node was a member, one after the other.
std::size_t names_of(const Recorder& recorder, std::uint32_t node) {
    return static_cast<std::size_t>(std::count_if(recorder.names().begin(), recorder.names().end(),
                                                  [&](const auto& name) { return name.second == node; }));
}

// "12.345" microseconds are 12345 ns.
std::int64_t nanoseconds(const Value& value) {
    std::string digits = value.text;
    const std::size_t dot = digits.find('.');
    REQUIRE(dot + 4 == digits.size());
    digits.erase(dot, 1);
    return std::stoll(digits);
}

}  // namespace

TEST_CASE("a recorded run is the same run") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const Recorded recorded(seed);
        CHECK(recorded.verdict.trace_hash == run(recorded.scenario).trace_hash);
    }
}

TEST_CASE("messages travel forward in time to another node, and every arrival is an event of its target") {
    std::uint64_t arrived = 0, lost = 0, matched = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const Recorded recorded(seed);
        const Recorder& recorder = recorded.observation.recorder;
        CAPTURE(seed);
        bool good = true;
        for (const Recorder::Message& m : recorder.messages()) {
            // A newcomer may be told to dial the peer that had its own address before. Then it reaches itself.
            good &= m.from != m.to || names_of(recorder, m.from) > 1;
            good &= m.from < recorded.observation.nodes.size() && m.to < recorded.observation.nodes.size();
            if (m.fate == Recorder::Fate::arrived || m.fate == Recorder::Fate::lost) good &= m.sent <= m.ended;
            arrived += m.fate == Recorder::Fate::arrived ? 1 : 0;
            lost += m.fate == Recorder::Fate::lost ? 1 : 0;
            if (m.arrived_step == Recorder::none) continue;
            const Recorder::Step& step = recorder.steps()[m.arrived_step];
            const std::string& text = recorder.texts()[step.event];
            good &= m.fate == Recorder::Fate::arrived && step.node == m.to && step.at == m.ended;
            // The event contains the text of the sender, so first in, first out holds.
            const bool bulk = m.kind == Recorder::Kind::bulk;
            good &= bulk ? text.starts_with("payload on") : text.find(recorder.texts()[m.text]) != std::string::npos;
            ++matched;
        }
        CHECK(good);
    }
    CHECK(arrived > 50'000);
    CHECK(lost > 100);
    CHECK(matched > 50'000);
}

TEST_CASE("the Perfetto trace is valid, its slices do not overlap and its flows go forward") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(seed);
        const Value trace = json_reader::read(report::to_perfetto(recorded.subject()));
        struct Slice {
            std::int64_t begin, end;
        };
        std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Slice>> tracks;
        std::map<std::int64_t, std::int64_t> sent;
        bool good = true;
        for (const Value& event : trace["traceEvents"].items) {
            const std::string& phase = event["ph"].text;
            if (phase == "M") continue;
            const std::int64_t at = nanoseconds(event["ts"]);
            if (phase == "X") {
                const std::int64_t duration = nanoseconds(event["dur"]);
                good &= at >= 0 && duration >= 0;
                tracks[{event["pid"].number(), event["tid"].number()}].push_back({at, at + duration});
            } else if (phase == "s") {
                good &= sent.emplace(event["id"].number(), at).second;
            } else if (phase == "f") {
                const auto from = sent.find(event["id"].number());
                good &= from != sent.end() && from->second <= at;
            } else {
                CHECK(phase == "i");
            }
        }
        CHECK(good);
        for (auto& [name, slices] : tracks) {
            std::stable_sort(slices.begin(), slices.end(), [](const Slice& x, const Slice& y) {
                return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
            });
            for (std::size_t i = 1; i < slices.size(); ++i) {
                if (slices[i].begin >= slices[i - 1].end) continue;
                FAIL("process " << name.first << " track " << name.second << ": a slice begins at " << slices[i].begin
                                << " ns, before the end of the one before at " << slices[i - 1].end);
            }
        }
    }
}

TEST_CASE("the page holds the run as valid JSON and nothing from a network") {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(seed);
        const std::string page = report::to_html(recorded.subject());
        const Value data = json_reader::read(data_of(page));
        CHECK(data["steps"]["at"].items.size() == recorded.observation.recorder.steps().size());
        CHECK(data["messages"]["sent"].items.size() == recorded.observation.recorder.messages().size());
        CHECK(data["operations"].items.size() == recorded.observation.ledger.launches.size());
        CHECK(data["held"].yes == recorded.verdict.held());
        CHECK(page.find("http:") == std::string::npos);
        CHECK(page.find("https:") == std::string::npos);
        CHECK(page.find("src=") == std::string::npos);
    }
}

TEST_CASE("texts of a run cannot leave their place in the page") {
    Recorded recorded(7);
    recorded.replay = "</script><script>alert(\"1\")</script><!-- \x01 \xff \xc3\xa9 \\ \n";
    recorded.verdict.violation = {"value", recorded.replay};
    const std::string page = report::to_html(recorded.subject());
    CHECK(count(page, "<script") == 2);
    CHECK(count(page, "</script") == 2);
    const Value data = json_reader::read(data_of(page));
    CHECK(data["reason"].text == "</script><script>alert(\"1\")</script><!-- \x01 ? \xc3\xa9 \\ \n");
    const Value trace = json_reader::read(report::to_perfetto(recorded.subject()));
    CHECK(trace["otherData"]["replay"].text == data["reason"].text);
}

TEST_CASE("a long run is cut, and says so; what led to a violation is kept") {
    const Recorded whole(7);
    const std::uint64_t entries = whole.observation.recorder.entries();
    REQUIRE_FALSE(whole.observation.recorder.truncated());

    Observation first;
    (void)report::run_recorded(whole.scenario, {}, first, 500);
    CHECK(first.recorder.truncated());
    CHECK(first.recorder.entries() == entries);
    CHECK(first.recorder.steps().size() + first.recorder.effects().size() + first.recorder.messages().size() == 500);
    CHECK(first.recorder.steps().front().at == whole.observation.recorder.steps().front().at);

    // The same run with a promise broken at its end: more items than allowed.
    RunOptions options;
    options.items_max = 200;
    Observation last;
    const Verdict broken = report::run_recorded(whole.scenario, options, last, 500);
    REQUIRE(broken.violation.oracle == "bounded");
    CHECK(last.recorder.truncated());
    CHECK(last.recorder.steps().size() + last.recorder.effects().size() + last.recorder.messages().size() <= 500);
    CHECK(last.recorder.bounds().skip + 500 == last.recorder.entries());
    CHECK(last.recorder.steps().front().at > first.recorder.steps().back().at);
    const report::Subject subject{whole.scenario, broken, last, "sim-run --seed 7"};
    CHECK(json_reader::read(data_of(report::to_html(subject)))["truncated"].yes);
}
