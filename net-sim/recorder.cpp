#include "net-sim/recorder.hpp"

#include <algorithm>

namespace pccl::sim {

Recorder::Text Recorder::intern(const std::string& text) {
    const auto [place, added] = known_.try_emplace(text, static_cast<Text>(texts_.size()));
    if (added) texts_.push_back(text);
    return place->second;
}

bool Recorder::count_entry() {
    const bool kept = keeps();
    ++entries_;
    return kept;
}

// --- processes -----------------------------------------------------------------------------------------------------------

void Recorder::process_starts(Instant now, std::uint32_t node) {
    Life life;
    life.node = node;
    life.begin = now;
    lives_.push_back(std::move(life));
    step(now, node, "process starts", "");
}

void Recorder::process_ends(Instant now, std::uint32_t node, const std::string& how) {
    for (auto life = lives_.rbegin(); life != lives_.rend(); ++life) {
        if (life->node != node) continue;
        life->end = now;
        life->how = how;
        break;
    }
    for (Pause& pause : pauses_) {
        if (pause.node == node && pause.end > now) pause.end = now;
    }
    for (std::size_t i = 0; i < directions_.size(); ++i) {
        if (directions_[i].held && directions_[i].node == node)
            link_ends(now, static_cast<std::uint32_t>(i / 2), static_cast<std::uint32_t>(i % 2));
    }
    arriving_ = none;
    step(now, node, how, "");
}

void Recorder::explain_end(std::uint32_t node, const std::string& how) {
    for (auto life = lives_.rbegin(); life != lives_.rend(); ++life) {
        if (life->node != node) continue;
        life->how = how;
        return;
    }
}

void Recorder::paused(Instant now, std::uint32_t node, core::Duration duration) {
    pauses_.push_back(Pause{node, now, now + duration});
}

// --- events and effects --------------------------------------------------------------------------------------------------

void Recorder::step(Instant now, std::uint32_t node, const std::string& event, const std::string& state) {
    const std::uint32_t about = arriving_;
    arriving_ = step_ = none;
    if (!count_entry()) return;
    step_ = static_cast<std::uint32_t>(steps_.size());
    Step entry;
    entry.at = now;
    entry.node = node;
    entry.event = intern(event);
    entry.state = intern(state);
    entry.effects_begin = static_cast<std::uint32_t>(effects_.size());
    steps_.push_back(entry);
    if (about != none && messages_[about].to == node) messages_[about].arrived_step = step_;
}

void Recorder::effect(const std::string& text) {
    if (!count_entry() || step_ == none) return;
    effects_.push_back(intern(text));
    ++steps_[step_].effects_count;
}

void Recorder::log(Instant now, std::uint32_t node, core::LogLevel level, const std::string& text) {
    if (listener_) listener_(text);
    if (keeps()) logs_.push_back(Log{now, node, level, intern(text)});
}

void Recorder::call_begins(Instant now, std::uint32_t node, core::Ticket ticket, std::size_t command,
                           std::string text) {
    Call call;
    call.node = node;
    call.ticket = ticket;
    call.command = command;
    call.begin = now;
    call.text = std::move(text);
    calls_.push_back(std::move(call));
}

void Recorder::call_ends(Instant now, std::uint32_t node, core::Ticket ticket, core::Result result,
                         const std::string& message) {
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
        if (call->node != node || call->ticket != ticket) continue;
        call->end = now;
        call->result = result;
        call->message = message;
        return;
    }
}

// --- messages ------------------------------------------------------------------------------------------------------------

Recorder::Direction& Recorder::direction(std::uint32_t connection, std::uint32_t side) {
    const std::size_t index = connection * std::size_t{2} + side;
    if (index >= directions_.size()) directions_.resize((connection + std::size_t{1}) * 2);
    return directions_[index];
}

void Recorder::link_begins(std::uint32_t connection, std::uint32_t side, std::uint32_t node) {
    Direction& way = direction(connection, side);
    way.node = node;
    way.held = true;
}

void Recorder::lose(Instant now, Direction& way) {
    for (auto& frames : way.frames) {
        for (const std::uint32_t index : frames) {
            if (index == none) continue;
            messages_[index].fate = Fate::lost;
            messages_[index].ended = now;
        }
        frames.clear();
    }
}

void Recorder::link_ends(Instant now, std::uint32_t connection, std::uint32_t side) {
    direction(connection, side).held = false;
    Direction& inbound = direction(connection, side ^ 1);
    inbound.deaf = true;
    lose(now, inbound);
}

void Recorder::sent(Instant now, Kind kind, std::uint32_t connection, std::uint32_t side, std::uint32_t from,
                    std::uint32_t to, const std::string& text) {
    Direction& way = direction(connection, side);
    std::uint32_t index = none;
    if (count_entry()) {
        index = static_cast<std::uint32_t>(messages_.size());
        Message message;
        message.kind = kind;
        message.from = from;
        message.to = to;
        message.sent = now;
        message.text = intern(text);
        message.sent_step = step_;
        messages_.push_back(message);
    }
    way.frames[kind == Kind::bulk ? 1 : 0].push_back(index);
    if (way.deaf) lose(now, way);
}

void Recorder::withdrawn(std::uint32_t connection, std::uint32_t side) {
    auto& frames = direction(connection, side).frames[1];
    if (frames.empty()) return;
    if (frames.back() != none) messages_[frames.back()].fate = Fate::withdrawn;
    frames.pop_back();
}

void Recorder::arrived(Instant now, std::uint32_t connection, std::uint32_t side, bool bulk) {
    auto& frames = direction(connection, side).frames[bulk ? 1 : 0];
    arriving_ = none;
    if (frames.empty()) return;
    const std::uint32_t index = frames.front();
    frames.pop_front();
    if (index == none) return;
    messages_[index].fate = Fate::arrived;
    messages_[index].ended = now;
    arriving_ = index;
}

}  // namespace pccl::sim
