#include "core/base/format.hpp"
#include "harness/report/report.hpp"
#include "harness/scenario_text.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>

namespace pccl::harness::report {

using namespace core;

namespace {

using Recorder = sim::Recorder;

// When the process of `node` that ran at `at` ended, at the latest the end of the run.
Instant end_of_process(const Subject& subject, std::uint32_t node, Instant at) {
    for (const Recorder::Life& life : subject.observation.recorder.lives()) {
        if (life.node == node && life.begin <= at && at <= life.end)
            return std::min(life.end, subject.verdict.simulated);
    }
    return subject.verdict.simulated;
}

// The times of a fact, in the form in which oracles put them into a reason.
std::string time_in_reason(Instant begin, Instant end) {
    return formatted("[{} us .. {}]", begin / microsecond,
                     end == open_end ? "open" : formatted("{} us", end / microsecond));
}
template <class Fact>
bool concerned(const Subject& subject, const Fact& fact) {
    const Ledger& ledger = subject.observation.ledger;
    const std::string& reason = subject.verdict.violation.reason;
    if (reason.find(ledger.name(fact.life)) == std::string::npos) return false;
    if (reason.find(" us .. ") != std::string::npos)
        return reason.find(time_in_reason(fact.begin, fact.end)) != std::string::npos;
    // The reason names a membership, but no call. Then the calls that failed at its loss are concerned.
    return ledger.lives[fact.life].lost && fact.end != open_end && fact.completion.result != Result::success &&
           fact.end > ledger.lives[fact.life].member_until;
}

std::string answer_text(Result result, const std::string& message) {
    return std::string(sim::to_text(result)) + (message.empty() ? "" : ": " + message);
}

void sort_by_begin(std::vector<Bar>& bars) {
    std::stable_sort(bars.begin(), bars.end(), [](const Bar& x, const Bar& y) { return x.begin < y.begin; });
}

template <class Kind>
bool is(const Recorder::Call& call) {
    return call.command == Command(Kind{}).index();
}

std::string nodes_text(const Subject& subject, const std::vector<std::uint32_t>& nodes) {
    std::string text;
    for (const std::uint32_t node : nodes) text += (text.empty() ? "" : " ") + subject.observation.nodes[node];
    return text;
}

}  // namespace

Verdict run_recorded(const Scenario& scenario, const RunOptions& options, Observation& observation,
                     std::uint64_t entries_max) {
    Recorder::Bounds bounds;
    bounds.entries_max = entries_max;
    observation = Observation{};
    observation.recorder = Recorder(bounds);
    RunOptions recorded = options;
    recorded.observation = &observation;
    Verdict verdict = run(scenario, recorded);
    if (observation.recorder.truncated() && !verdict.held()) {
        bounds.skip = observation.recorder.entries() - entries_max;
        observation = Observation{};
        observation.recorder = Recorder(bounds);
        recorded.trace = nullptr;
        verdict = run(scenario, recorded);
    }
    for (FaultSpan& fault : observation.faults) fault.end = std::min(fault.end, verdict.simulated);
    return verdict;
}

std::vector<Bar> calls(const Subject& subject) {
    const Ledger& ledger = subject.observation.ledger;
    std::vector<Bar> bars;
    for (const Recorder::Call& call : subject.observation.recorder.calls()) {
        Bar bar;
        bar.node = call.node;
        bar.begin = call.begin;
        bar.label = call.text;
        if (call.end == never) {
            bar.end = end_of_process(subject, call.node, call.begin);
            bar.outcome = Outcome::unanswered;
            bar.detail = "not answered";
        } else {
            bar.end = call.end;
            bar.outcome = call.result == Result::success ? Outcome::success : Outcome::failed;
            bar.detail = answer_text(call.result, call.message);
        }
        const auto same = [&](const auto& fact) {
            return ledger.lives[fact.life].node == call.node && fact.begin == call.begin && concerned(subject, fact);
        };
        if (is<CommandSync>(call)) {
            bar.concerned = std::any_of(ledger.syncs.begin(), ledger.syncs.end(), same);
        } else if (!is<CommandLaunch>(call) && !is<CommandAwait>(call)) {
            bar.concerned = std::any_of(ledger.votes.begin(), ledger.votes.end(), same);
        }
        bars.push_back(std::move(bar));
    }
    sort_by_begin(bars);
    return bars;
}

std::vector<Bar> operations(const Subject& subject) {
    const Ledger& ledger = subject.observation.ledger;
    const std::vector<Recorder::Call>& known = subject.observation.recorder.calls();
    std::vector<Bar> bars;
    for (const LaunchFact& fact : ledger.launches) {
        Bar bar;
        bar.node = ledger.lives[fact.life].node;
        bar.begin = fact.begin;
        bar.tag = fact.tag;
        bar.label = formatted("all-reduce tag {}", fact.tag);
        bar.detail = formatted("count {} type {} op {}{}{} group {}, {}: ", fact.shape.count,
                               static_cast<unsigned>(fact.shape.type), static_cast<unsigned>(fact.shape.op),
                               sim::to_text(fact.shape.quantization), fact.in_place ? " in place" : "", fact.group,
                               ledger.name(fact.life));
        bar.concerned = concerned(subject, fact);
        if (fact.end == open_end) {
            bar.outcome = Outcome::unanswered;
            bar.detail += "not awaited to its end";
            bar.end = end_of_process(subject, bar.node, bar.begin);
            // A leave ends the operations in flight.
            for (const Recorder::Call& call : known) {
                if (call.node == bar.node && is<CommandLeave>(call) && call.begin >= bar.begin)
                    bar.end = std::min(bar.end, std::min(call.end, subject.verdict.simulated));
            }
        } else {
            bar.outcome = fact.completion.result == Result::success ? Outcome::success : Outcome::failed;
            bar.end = fact.end;
            bar.detail +=
                formatted("{}{}", answer_text(fact.completion.result, to_text(fact.completion.cause)),
                          bar.outcome == Outcome::success ? formatted(", world {}", fact.completion.world) : "");
        }
        bars.push_back(std::move(bar));
    }
    sort_by_begin(bars);
    return bars;
}

Focus focus(const Subject& subject, const std::vector<Bar>& call_bars, const std::vector<Bar>& operation_bars) {
    const Instant end = subject.verdict.simulated;
    Focus region{end, 0};
    const auto include = [&](Instant from, Instant to) {
        region.begin = std::min(region.begin, from);
        region.end = std::max(region.end, to);
    };
    if (!subject.verdict.held()) {
        for (const auto* bars : {&call_bars, &operation_bars}) {
            for (const Bar& bar : *bars) {
                if (bar.concerned) include(bar.begin, bar.end);
            }
        }
        if (region.begin < region.end) return region;
        if (const std::size_t decided = decided_before(subject.futures); decided != 0)
            return Focus{subject.futures[decided - 1].at, subject.futures[decided].at};
        // The last 400 steps before the violation.
        const auto& steps = subject.observation.recorder.steps();
        return Focus{steps.size() > 400 ? steps[steps.size() - 400].at : 0, end};
    }
    for (const FaultSpan& fault : subject.observation.faults) include(fault.begin, fault.begin);
    if (region.begin > region.end) return Focus{0, end};
    // From the first to the last fault, plus the calls that were in flight then.
    const Focus faults = region;
    for (const auto* bars : {&call_bars, &operation_bars}) {
        for (const Bar& bar : *bars) {
            if (bar.begin <= faults.end && bar.end >= faults.begin && bar.outcome != Outcome::unanswered)
                include(bar.begin, bar.end);
        }
    }
    return region;
}

std::string fault_text(const Subject& subject, const FaultSpan& span) {
    const Fault& fault = subject.scenario.faults[span.index];
    std::string text = to_text(span.kind);
    switch (span.kind) {
    case FaultKind::partition:
        text += formatted(": {} | {}", nodes_text(subject, span.nodes), nodes_text(subject, span.others));
        break;
    case FaultKind::one_way:
        text += formatted(": nothing from {} to {}", nodes_text(subject, span.nodes), nodes_text(subject, span.others));
        break;
    case FaultKind::interface:
        text += formatted(": {}{}", nodes_text(subject, span.nodes),
                          (fault.b & 1) != 0 ? " without the master" : " without peers");
        break;
    case FaultKind::clog:
        text += formatted(": {} sends nothing, then everything at once", nodes_text(subject, span.nodes));
        break;
    case FaultKind::crash_peer:
    case FaultKind::aimed_peer:
    case FaultKind::crash_master:
    case FaultKind::torn_write:
    case FaultKind::older_journal:
    case FaultKind::empty_journal:
    case FaultKind::aimed_master:
        text += formatted(": {}{}", nodes_text(subject, span.nodes),
                          (fault.value & 1) != 0 ? " dies, its machine resets its links"
                                                 : " dies, its machine falls silent");
        break;
    default:
        text += formatted(": {}{}", nodes_text(subject, span.nodes),
                          span.others.empty() ? "" : " - " + nodes_text(subject, span.others));
    }
    return formatted("{} (fault {} of {})", text, span.index + 1, subject.scenario.faults.size());
}

std::string with_nodes(const Observation& observation, const std::string& text) {
    constexpr std::size_t length = 8;
    const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t run = 0;
        while (i + run < text.size() && hex(text[i + run])) ++run;
        const std::string word = text.substr(i, std::max<std::size_t>(run, 1));
        out += word;
        i += word.size();
        if (run != length) continue;
        const auto known = observation.recorder.names().find(word);
        if (known != observation.recorder.names().end()) out += formatted("({})", observation.nodes[known->second]);
    }
    return out;
}

std::vector<bool> nodes_shown(const Subject& subject) {
    std::vector<bool> shown(subject.observation.nodes.size(), false);
    std::fill_n(shown.begin(), subject.scenario.peers.size() + 1, true);
    for (const Recorder::Life& life : subject.observation.recorder.lives()) shown[life.node] = true;
    for (const Recorder::Message& m : subject.observation.recorder.messages()) shown[m.from] = shown[m.to] = true;
    for (const FaultSpan& fault : subject.observation.faults) {
        for (const std::uint32_t node : fault.nodes) shown[node] = true;
        for (const std::uint32_t node : fault.others) shown[node] = true;
    }
    return shown;
}

}  // namespace pccl::harness::report
