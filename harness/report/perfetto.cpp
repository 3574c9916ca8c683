// Writes the Chrome trace format, for ui.perfetto.dev and chrome://tracing.
//
// Each node is a process of the trace; the faults are another one. A node has tracks for its process, its calls and its
// events, and one for each tag. Slices of one track never overlap. Control messages are flows between the events that
// sent and received them. Times are microseconds with three decimals, so no nanosecond is lost.
#include "core/base/format.hpp"
#include "harness/report/json.hpp"
#include "harness/report/report.hpp"
#include "harness/scenario_text.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace pccl::harness::report {
namespace {

using core::microsecond;
using core::never;
using sim::Recorder;

enum Track : std::uint32_t {
    process_track = 1,
    calls_track = 2,
    events_track = 3,
    first_tag_track = 10,
    more_calls_track = 10'000  // of other threads of the program
};

std::string time_text(Instant time) { return core::formatted("{}.{:03}", time / microsecond, time % microsecond); }

const char* colour(Outcome outcome) {
    switch (outcome) {
    case Outcome::success: return "good";
    case Outcome::failed: return "terrible";
    default: return "grey";
    }
}

// Slices that overlap go to different tracks.
class Tracks {
public:
    // The first track that is free at `begin`, and whether it is new.
    std::pair<std::uint32_t, bool> take(Instant begin, Instant end) {
        std::uint32_t track = 0;
        while (track < free_.size() && free_[track] > begin) ++track;
        const bool added = track == free_.size();
        if (added) free_.push_back(0);
        free_[track] = end;
        return {track, added};
    }

private:
    std::vector<Instant> free_;  // when each track is free again
};

class Writer {
public:
    explicit Writer(const Subject& subject)
        : subject_(subject), recorder_(subject.observation.recorder), shown_(nodes_shown(subject)) {}

    std::string write() {
        json_.open('{').field("displayTimeUnit", "ms");
        json_.key("otherData").open('{').field("replay", subject_.replay);
        json_.field("verdict", subject_.verdict.held() ? "held" : subject_.verdict.violation.oracle);
        json_.field("reason", with_nodes(subject_.observation, subject_.verdict.violation.reason));
        json_.field("scenario", to_text(subject_.scenario)).close('}');
        json_.line().key("traceEvents").open('[');
        names();
        processes();
        faults();
        call_slices();
        operation_slices();
        events();
        flows();
        if (!subject_.verdict.held()) violation();
        json_.close(']').close('}');
        return json_.take() + "\n";
    }

private:
    std::uint32_t nodes() const { return static_cast<std::uint32_t>(shown_.size()); }
    static std::uint32_t pid(std::uint32_t node) { return node + 1; }  // 0 has a meaning of its own in viewers
    std::uint32_t faults_pid() const { return nodes() + 1; }

    Json& event(const char* phase, std::uint32_t process, std::uint32_t track) {
        return json_.line().open('{').field("ph", phase).field("pid", process).field("tid", track);
    }
    void meta(const char* what, std::uint32_t process, std::uint32_t track, const std::string& name) {
        event("M", process, track).field("name", what).key("args").open('{').field("name", name).close('}').close('}');
    }
    void order(const char* what, std::uint32_t process, std::uint32_t track, std::uint32_t place) {
        event("M", process, track).field("name", what).key("args").open('{').field("sort_index", place);
        json_.close('}').close('}');
    }
    // Leaves the arguments open.
    Json& slice(std::uint32_t process, std::uint32_t track, Instant begin, Instant end, const std::string& name,
                const char* category) {
        event("X", process, track).key("ts").raw(time_text(begin)).key("dur").raw(time_text(end - begin));
        return json_.field("name", name).field("cat", category).key("args").open('{');
    }
    void end_event() { json_.close('}').close('}'); }

    void names() {
        for (std::uint32_t node = 0; node < nodes(); ++node) {
            if (!shown_[node]) continue;
            meta("process_name", pid(node), 0, subject_.observation.nodes[node]);
            order("process_sort_index", pid(node), 0, pid(node));
            meta("thread_name", pid(node), process_track, "process");
            meta("thread_name", pid(node), calls_track, "calls");
            meta("thread_name", pid(node), events_track, "events");
        }
        meta("process_name", faults_pid(), 0, "faults");
        order("process_sort_index", faults_pid(), 0, 0);
    }

    void processes() {
        for (std::uint32_t node = 0; node < nodes(); ++node) {
            // Strangers are not processes of the scenario.
            if (!shown_[node] || node > subject_.scenario.peers.size() + 1) continue;
            Instant dead_since = 0;
            std::string why = "not started yet";
            for (const Recorder::Life& life : recorder_.lives()) {
                if (life.node != node) continue;
                dead(node, dead_since, life.begin, why);
                dead_since = life.end == never ? subject_.verdict.simulated : life.end;
                why = life.how;
            }
            dead(node, dead_since, subject_.verdict.simulated, why);
        }
        for (const Recorder::Pause& pause : recorder_.pauses()) {
            slice(pid(pause.node), process_track, pause.begin,
                  std::min(pause.end, std::max(pause.begin, subject_.verdict.simulated)), "paused", "process")
                .field("why", "fault");
            end_event();
        }
    }
    void dead(std::uint32_t node, Instant begin, Instant end, const std::string& why) {
        if (begin >= end) return;
        slice(pid(node), process_track, begin, end, why == "not started yet" ? why : "dead", "process");
        json_.field("why", why);
        end_event();
    }

    void faults() {
        Tracks tracks;
        for (const FaultSpan& fault : subject_.observation.faults) {
            const Instant end = std::max(fault.end, fault.begin + microsecond);
            const auto [track, added] = tracks.take(fault.begin, end);
            if (added) meta("thread_name", faults_pid(), track + 1, core::formatted("faults {}", track + 1));
            slice(faults_pid(), track + 1, fault.begin, end, to_text(fault.kind), "fault");
            json_.field("text", fault_text(subject_, fault));
            end_event();
        }
    }

    // A program with several threads may have several calls open, which need several tracks.
    void call_slices() {
        std::vector<Bar> bars = calls(subject_);
        std::stable_sort(bars.begin(), bars.end(), [](const Bar& x, const Bar& y) { return x.begin < y.begin; });
        std::map<std::uint32_t, Tracks> tracks;  // of each node
        for (const Bar& bar : bars) {
            const auto [at, added] = tracks[bar.node].take(bar.begin, bar.end);
            const std::uint32_t track = at == 0 ? static_cast<std::uint32_t>(calls_track) : more_calls_track + at;
            if (added && at != 0) meta("thread_name", pid(bar.node), track, core::formatted("calls {}", at + 1));
            bar_slice(track, bar);
        }
    }

    void bar_slice(std::uint32_t track, const Bar& bar) {
        event("X", pid(bar.node), track).key("ts").raw(time_text(bar.begin));
        json_.key("dur").raw(time_text(bar.end - bar.begin)).field("name", bar.label).field("cat", "call");
        json_.field("cname", colour(bar.outcome)).key("args").open('{');
        json_.field("outcome", with_nodes(subject_.observation, bar.detail));
        end_event();
    }

    void operation_slices() {
        // Sends to different members, or in both directions, may have one tag at the same time.
        struct Track {
            std::uint32_t number = 0;
            Instant free_at = 0;
        };
        std::map<std::pair<std::uint32_t, core::Tag>, std::vector<Track>> tracks;
        std::map<std::uint32_t, std::uint32_t> next;
        for (const Bar& bar : operations(subject_)) {
            std::vector<Track>& of_tag = tracks[{bar.node, bar.tag}];
            auto track = std::find_if(of_tag.begin(), of_tag.end(),
                                      [&](const Track& one) { return one.free_at <= bar.begin; });
            if (track == of_tag.end()) {
                track = of_tag.insert(of_tag.end(), {first_tag_track + next[bar.node]++, 0});
                meta("thread_name", pid(bar.node), track->number, core::formatted("tag {}", bar.tag));
            }
            track->free_at = bar.end;
            bar_slice(track->number, bar);
        }
    }

    // Many events happen at the same instant. They are drawn one nanosecond apart, and each ends before the next one
    // begins.
    void events() {
        const auto& steps = recorder_.steps();
        const auto& texts = recorder_.texts();
        std::vector<Instant> next(steps.size(), never);
        std::map<std::uint32_t, Instant> upcoming;
        for (std::size_t i = steps.size(); i-- > 0;) {
            const auto known = upcoming.find(steps[i].node);
            if (known != upcoming.end()) next[i] = known->second;
            upcoming[steps[i].node] = steps[i].at;
        }
        std::map<std::uint32_t, Instant> free;
        begins_.resize(steps.size());
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const Recorder::Step& step = steps[i];
            const Instant begin = std::max(step.at, free[step.node]);
            const Instant end = std::max(begin + 1, std::min(begin + microsecond, next[i]));
            free[step.node] = end;
            begins_[i] = begin;
            slice(pid(step.node), events_track, begin, end, with_nodes(subject_.observation, texts[step.event]),
                  "event");
            if (!texts[step.state].empty()) json_.field("state", with_nodes(subject_.observation, texts[step.state]));
            if (step.effects_count != 0) {
                std::string effects;
                for (std::uint32_t k = 0; k < step.effects_count; ++k)
                    effects += (k == 0 ? "" : "\n") + texts[recorder_.effects()[step.effects_begin + k]];
                json_.field("effects", with_nodes(subject_.observation, effects));
            }
            end_event();
        }
    }

    void flows() {
        const auto& messages = recorder_.messages();
        for (std::size_t i = 0; i < messages.size(); ++i) {
            const Recorder::Message& m = messages[i];
            if (m.kind != Recorder::Kind::control || m.sent_step == Recorder::none || m.arrived_step == Recorder::none)
                continue;
            const std::string name = with_nodes(subject_.observation, recorder_.texts()[m.text]);
            event("s", pid(m.from), events_track).key("ts").raw(time_text(begins_[m.sent_step]));
            json_.field("id", i + 1).field("name", name).field("cat", "control").close('}');
            event("f", pid(m.to), events_track).key("ts").raw(time_text(begins_[m.arrived_step]));
            json_.field("id", i + 1).field("bp", "e").field("name", name).field("cat", "control").close('}');
        }
    }

    void violation() {
        event("i", faults_pid(), 0).key("ts").raw(time_text(subject_.verdict.simulated)).field("s", "g");
        json_.field("name", "VIOLATION " + subject_.verdict.violation.oracle).key("args").open('{');
        json_.field("reason", with_nodes(subject_.observation, subject_.verdict.violation.reason));
        end_event();
    }

    const Subject& subject_;
    const Recorder& recorder_;
    std::vector<bool> shown_;
    Json json_;
    std::vector<Instant> begins_;  // of the slices of events
};

}  // namespace

std::string to_perfetto(const Subject& subject) { return Writer(subject).write(); }

}  // namespace pccl::harness::report
