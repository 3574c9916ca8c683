#include "harness/scope/explore.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace pccl::scope {
namespace {

// Hashes of states, 16 bytes each.
class Seen {
public:
    Seen() : slots_(1u << 16) {}
    bool insert(Hash128 hash) {
        if (hash == Hash128{}) hash.low = 1;
        if (2 * (count_ + 1) > slots_.size()) grow();
        Hash128& slot = find(slots_, hash);
        if (slot == hash) return false;
        slot = hash;
        ++count_;
        return true;
    }
    std::uint64_t size() const { return count_; }

private:
    static Hash128& find(std::vector<Hash128>& slots, const Hash128& hash) {
        std::size_t at = hash.low & (slots.size() - 1);
        while (slots[at] != Hash128{} && slots[at] != hash) at = (at + 1) & (slots.size() - 1);
        return slots[at];
    }
    void grow() {
        std::vector<Hash128> larger(slots_.size() * 2);
        for (const Hash128& hash : slots_) {
            if (hash != Hash128{}) find(larger, hash) = hash;
        }
        slots_ = std::move(larger);
    }
    std::vector<Hash128> slots_;
    std::uint64_t count_ = 0;
};

struct Frame {
    State state;
    std::vector<Choice> choices;
    std::size_t next = 0;
};

// The numbers of the choices taken in states with more than one choice; "3x0" stands for three times 0.
std::string sequence_of(const std::vector<Frame>& path) {
    std::string text;
    std::size_t last = 0, count = 0;
    const auto flush = [&] {
        if (count == 0) return;
        if (!text.empty()) text += ',';
        if (count > 1) text += core::formatted("{}x", count);
        text += std::to_string(last);
    };
    for (const Frame& frame : path) {
        if (frame.choices.size() < 2 || frame.next == 0) continue;
        if (count != 0 && frame.next - 1 == last) {
            ++count;
            continue;
        }
        flush();
        last = frame.next - 1;
        count = 1;
    }
    flush();
    return text;
}

std::vector<std::size_t> numbers_of(const std::string& text) {
    std::vector<std::size_t> numbers;
    const char* at = text.c_str();
    while (*at != 0) {
        char* end = nullptr;
        std::size_t value = std::strtoull(at, &end, 10), times = 1;
        if (end == at) break;
        if (*end == 'x') {
            times = value;
            at = end + 1;
            value = std::strtoull(at, &end, 10);
        }
        numbers.insert(numbers.end(), times, value);
        at = *end == ',' ? end + 1 : end;
    }
    return numbers;
}

// Takes the first choice of each state until the programs have ended.
void play_out(World& world, State& state) {
    std::vector<Choice> choices;
    for (int steps = 0; steps < 100'000; ++steps) {
        world.choices(state, choices);
        if (choices.empty()) return;
        world.take(state, choices.front());
    }
    state.violation = "the schedule does not end";
}

// Delivers everything in flight, without another call.
void come_to_rest(World& world, State& state) {
    std::vector<Choice> choices;
    for (int steps = 0; steps < 10'000 && state.violation.empty(); ++steps) {
        world.deliveries(state, choices);
        if (choices.empty()) return;
        world.take(state, choices.front());
    }
}

State start(World& world) {
    State state = world.begin();
    if (state.stage == Stage::explored) return state;
    play_out(world, state);
    come_to_rest(world, state);
    if (state.violation.empty()) world.enter(state, Stage::explored);
    return state;
}

}  // namespace

std::string see_it_work(World& world, State state) {
    std::vector<std::size_t> members;
    const auto count_members = [&] {
        members.clear();
        for (std::size_t node = 1; node <= world.scope().peers; ++node) {
            if (world.is_member(state, node)) members.push_back(node);
        }
    };
    count_members();
    bool works = members.size() < 2;
    // A fault may be noticed only now. Then one reduction fails, and the next one succeeds.
    for (int round = 0; round < 4 && !works; ++round) {
        for (const Stage stage : {Stage::update, Stage::reduce}) {
            if (stage == Stage::reduce && members.size() < 2) break;
            world.enter(state, stage);
            play_out(world, state);
            if (!state.violation.empty()) return "afterwards: " + state.violation;
            count_members();
        }
        if (members.size() < 2) works = true;
        std::size_t reduced = 0;
        for (const std::size_t node : members) {
            const auto& told = state.nodes[node].told;
            reduced += !told.empty() && told.back().call == Call::await && told.back().result == core::Result::success;
        }
        if (const std::string what = judge(world, state); !what.empty()) return "afterwards: " + what;
        works = works || reduced == members.size();
    }
    if (!works) return "afterwards no reduction succeeds";
    world.enter(state, Stage::leave);
    play_out(world, state);
    come_to_rest(world, state);
    if (!state.violation.empty()) return "at the end: " + state.violation;
    for (std::size_t node = 1; node <= world.scope().peers; ++node) {
        if (!state.nodes[node].alive) continue;
        for (const auto& [id, content] : state.nodes[node].buffers) {
            if (id % 2 == 1) return core::formatted("at the end: peer{} holds memory", node);
        }
    }
    return {};
}

Report explore(const Scope& scope, const Bounds& bounds) {
    Report report;
    World world(scope, bounds.identity);
    Seen seen, outcomes;
    std::vector<Frame> path(1);
    const auto found = [&](const std::string& what) {
        ++report.broken_ends;
        const bool known = std::any_of(report.findings.begin(), report.findings.end(),
                                       [&](const Finding& finding) { return finding.what == what; });
        if (!known && report.findings.size() < 20) report.findings.push_back({what, sequence_of(path)});
    };
    path.front().state = start(world);
    if (!path.front().state.violation.empty()) {
        report.findings.push_back({"before the exploration: " + path.front().state.violation, ""});
        return report;
    }
    world.choices(path.front().state, path.front().choices);
    seen.insert(world.hash(path.front().state));
    bool cut = false;
    while (!path.empty() && !cut) {
        Frame& frame = path.back();
        if (frame.next == frame.choices.size()) {
            path.pop_back();
            continue;
        }
        State state = frame.state;
        world.take(state, frame.choices[frame.next++]);
        ++report.transitions;
        if (!state.violation.empty()) {
            found(state.violation);
        } else if (seen.insert(world.hash(state))) {
            report.depth = std::max<std::uint64_t>(report.depth, path.size());
            if (world.is_over(state)) {
                ++report.ends;
                report.waited = std::max(report.waited, state.now - state.calm_since);
                outcomes.insert(world.hash_of_outcome(state));
                std::string what = judge(world, state);
                if (what.empty()) what = see_it_work(world, state);
                if (!what.empty()) found(what);
            } else {
                Frame next;
                world.choices(state, next.choices);
                next.state = std::move(state);
                path.push_back(std::move(next));
            }
        }
        cut =
            (bounds.stop_at_first && !report.findings.empty()) || (bounds.states != 0 && seen.size() >= bounds.states);
    }
    report.complete = !cut;
    report.states = seen.size();
    report.outcomes = outcomes.size();
    report.machine_states = world.machines().states();
    report.machine_steps = world.machines().steps();
    return report;
}

std::string replay(const Scope& scope, const std::string& sequence, bool print) {
    World world(scope, Identity::memory);
    State state = start(world);
    world.set_trace(print);
    std::vector<Choice> choices;
    const std::vector<std::size_t> numbers = numbers_of(sequence);
    for (std::size_t at = 0; state.violation.empty();) {
        world.choices(state, choices);
        if (choices.empty()) break;
        std::size_t number = 0;
        if (choices.size() > 1) {
            if (at == numbers.size()) {
                if (print) std::printf("the sequence ends here; what could follow:\n");
                for (std::size_t i = 0; print && i < choices.size(); ++i)
                    std::printf("  %zu: %s\n", i, world.text(state, choices[i]).c_str());
                return {};
            }
            number = numbers[at++];
            if (number >= choices.size()) return "the sequence is not one of this scope";
        }
        world.take(state, choices[number]);
    }
    if (!state.violation.empty()) return state.violation;
    std::string what = judge(world, state);
    if (what.empty()) {
        if (print) std::printf("--- no program goes on; does the run still work?\n");
        what = see_it_work(world, state);
    }
    return what;
}

}  // namespace pccl::scope
