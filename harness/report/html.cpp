// Writes the HTML page: a template with style and script (page.*, embedded at build time), and the run as JSON.
#include "harness/report/json.hpp"
#include "harness/report/page.hpp"
#include "harness/report/report.hpp"
#include "harness/scenario_text.hpp"

#include <algorithm>

namespace pccl::harness::report {
namespace {

using sim::Recorder;

// One array per column is much smaller than one object per row.
template <class Rows, class Get>
void column(Json& json, const char* name, const Rows& rows, Get get) {
    json.line().key(name).open('[');
    for (const auto& row : rows) json.value(get(row));
    json.close(']');
}

void write_steps(Json& json, const Recorder& recorder) {
    using Step = Recorder::Step;
    const auto& steps = recorder.steps();
    json.line().key("steps").open('{');
    column(json, "at", steps, [](const Step& s) { return s.at; });
    column(json, "node", steps, [](const Step& s) { return s.node; });
    column(json, "event", steps, [](const Step& s) { return s.event; });
    column(json, "state", steps, [](const Step& s) { return s.state; });
    column(json, "effects", steps, [](const Step& s) { return s.effects_count; });
    json.close('}');
    column(json, "effects", recorder.effects(), [](Recorder::Text text) { return text; });
}

void write_messages(Json& json, const Recorder& recorder) {
    using Message = Recorder::Message;
    const auto& messages = recorder.messages();
    const auto step = [](std::uint32_t index) {
        return index == Recorder::none ? std::int64_t{-1} : static_cast<std::int64_t>(index);
    };
    json.line().key("messages").open('{');
    column(json, "kind", messages, [](const Message& m) { return static_cast<unsigned>(m.kind); });
    column(json, "fate", messages, [](const Message& m) { return static_cast<unsigned>(m.fate); });
    column(json, "from", messages, [](const Message& m) { return m.from; });
    column(json, "to", messages, [](const Message& m) { return m.to; });
    column(json, "sent", messages, [](const Message& m) { return m.sent; });
    column(json, "ended", messages, [](const Message& m) { return m.ended; });
    column(json, "text", messages, [](const Message& m) { return m.text; });
    column(json, "sentStep", messages, [&](const Message& m) { return step(m.sent_step); });
    column(json, "arrivedStep", messages, [&](const Message& m) { return step(m.arrived_step); });
    json.close('}');
}

void write_bars(Json& json, const Subject& subject, const char* name, const std::vector<Bar>& bars) {
    json.line().key(name).open('[');
    for (const Bar& bar : bars) {
        json.line().open('{').field("node", bar.node).field("begin", bar.begin).field("end", bar.end);
        json.field("outcome", static_cast<unsigned>(bar.outcome)).field("label", bar.label);
        // As a string: tags have 64 bits, numbers in JavaScript only 53.
        json.field("tag", std::to_string(bar.tag));
        json.field("detail", with_nodes(subject.observation, bar.detail)).field("concerned", bar.concerned).close('}');
    }
    json.close(']');
}

void write_nodes(Json& json, const char* name, const std::vector<std::uint32_t>& nodes) {
    json.key(name).open('[');
    for (const std::uint32_t node : nodes) json.value(node);
    json.close(']');
}

std::string data_of(const Subject& subject) {
    const Recorder& recorder = subject.observation.recorder;
    const std::vector<Bar> call_bars = calls(subject);
    const std::vector<Bar> operation_bars = operations(subject);
    const Focus region = focus(subject, call_bars, operation_bars);
    Json json;
    json.open('{');
    json.field("seed", std::to_string(subject.scenario.seed)).field("replay", subject.replay);
    json.field("held", subject.verdict.held()).field("oracle", subject.verdict.violation.oracle);
    json.field("reason", with_nodes(subject.observation, subject.verdict.violation.reason));
    json.line().field("scenario", to_text(subject.scenario));
    json.line().field("end", subject.verdict.simulated).field("chaosEnd", subject.scenario.chaos_end);
    json.field("stop", subject.scenario.chaos_end + subject.scenario.stop_after);
    json.key("focus").open('[').value(region.begin).value(region.end).close(']');
    json.field("entries", recorder.entries()).field("skipped", recorder.bounds().skip);
    json.field("truncated", recorder.truncated());
    const std::vector<bool> shown = nodes_shown(subject);
    json.line().key("nodes").open('[');
    for (std::size_t node = 0; node < shown.size(); ++node) {
        const bool peer = node != 0 && node <= subject.scenario.peers.size();
        json.open('{').field("name", subject.observation.nodes[node]);
        json.field("group", peer ? static_cast<std::int64_t>(subject.scenario.peers[node - 1].group) : -1);
        json.field("ours", node <= subject.scenario.peers.size() + 1);
        json.field("shown", static_cast<bool>(shown[node])).close('}');
    }
    json.close(']');
    json.line().key("texts").open('[');
    for (const std::string& text : recorder.texts()) json.line().value(with_nodes(subject.observation, text));
    json.close(']');
    write_steps(json, recorder);
    write_messages(json, recorder);
    json.line().key("lives").open('[');
    for (const Recorder::Life& life : recorder.lives()) {
        json.line().open('{').field("node", life.node).field("begin", life.begin);
        json.field("end", life.end == core::never ? std::int64_t{-1} : life.end).field("how", life.how).close('}');
    }
    json.close(']');
    json.line().key("pauses").open('[');
    for (const Recorder::Pause& pause : recorder.pauses())
        json.line()
            .open('{')
            .field("node", pause.node)
            .field("begin", pause.begin)
            .field("end", std::min(pause.end, subject.verdict.simulated))
            .close('}');
    json.close(']');
    json.line().key("faults").open('[');
    for (const FaultSpan& fault : subject.observation.faults) {
        json.line().open('{').field("kind", to_text(fault.kind)).field("begin", fault.begin).field("end", fault.end);
        write_nodes(json, "nodes", fault.nodes);
        write_nodes(json, "others", fault.others);
        json.field("text", fault_text(subject, fault)).close('}');
    }
    json.close(']');
    write_bars(json, subject, "calls", call_bars);
    write_bars(json, subject, "operations", operation_bars);
    json.line().key("futures").open('[');
    for (const Futures& point : subject.futures)
        json.open('[').value(point.at).value(point.drawn).value(point.failed).close(']');
    json.close(']');
    json.line().key("logs").open('[');
    for (const Recorder::Log& log : recorder.logs()) {
        json.line().open('[').value(log.at).value(log.node).value(static_cast<unsigned>(log.level));
        json.value(log.text).close(']');
    }
    json.close(']').close('}');
    return json.take();
}

void replace(std::string& text, std::string_view mark, std::string_view with) {
    const std::size_t at = text.find(mark);
    if (at != std::string::npos) text.replace(at, mark.size(), with);
}

}  // namespace

std::string to_html(const Subject& subject) {
    std::string page = page_html;
    replace(page, "@STYLE@", page_css);
    replace(page, "@SCRIPT@", std::string(page_data_js) + page_draw_js + page_panel_js);
    replace(page, "@DATA@", data_of(subject));
    return page;
}

}  // namespace pccl::harness::report
