#include "core/wire/bounds.hpp"

#include "core/base/probe.hpp"

#include <algorithm>
#include <string_view>

namespace pccl::core::wire {

namespace {

constexpr std::string_view cut_mark = " ...";

void bound(proto::Refusal& refusal, std::size_t bytes_max) { bound_text(*refusal.mutable_text(), bytes_max); }

template <class Message>
void bound_reason(Message& message, std::size_t bytes_max) {
    if (!message.reason().empty()) bound_text(*message.mutable_reason(), bytes_max);
}

}  // namespace

std::uint32_t control_limit(const Limits& own, std::uint32_t told) {
    return std::clamp(told, control_bytes_least, std::max(own.control_bytes_max, control_bytes_least));
}

std::size_t text_limit(std::uint32_t control_bytes) { return std::min<std::size_t>(control_bytes / 4, text_bytes_max); }

void bound_text(std::string& text, std::size_t bytes_max) {
    if (text.size() > bytes_max) {
        PROBE(text_cut);
        std::size_t end = bytes_max - std::min(bytes_max, cut_mark.size());
        // Do not cut inside a UTF-8 character.
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
        text.resize(end);
        text += cut_mark.substr(0, bytes_max - end);
    }
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
    }
}

void bound_texts(proto::PeerMessage& message, std::size_t bytes_max) {
    if (message.has_vote()) {
        bound_reason(*message.mutable_vote(), bytes_max);
        if (!message.vote().refused().empty()) bound_text(*message.mutable_vote()->mutable_refused(), bytes_max);
    }
    if (message.has_edge()) bound_reason(*message.mutable_edge(), bytes_max);
}

void bound_texts(proto::MasterMessage& message, std::size_t bytes_max) {
    if (message.has_refusal()) bound(*message.mutable_refusal(), bytes_max);
    if (message.has_notice()) bound_text(*message.mutable_notice()->mutable_text(), bytes_max);
    if (!message.has_answer()) return;
    proto::Answer& answer = *message.mutable_answer();
    switch (answer.kind_case()) {
    case proto::Answer::kTopology: bound_reason(*answer.mutable_topology(), bytes_max); break;
    case proto::Answer::kPending: bound_reason(*answer.mutable_pending(), bytes_max); break;
    case proto::Answer::kStart: bound_reason(*answer.mutable_start(), bytes_max); break;
    case proto::Answer::kOutcome: bound_reason(*answer.mutable_outcome(), bytes_max); break;
    case proto::Answer::kSync: bound_reason(*answer.mutable_sync(), bytes_max); break;
    case proto::Answer::kOptimize: bound_reason(*answer.mutable_optimize(), bytes_max); break;
    default: break;
    }
}

void bound_texts(proto::LinkMessage& message, std::size_t bytes_max) {
    if (message.has_refusal()) bound(*message.mutable_refusal(), bytes_max);
}

void bound_texts(proto::Decision& decision, std::size_t bytes_max) {
    switch (decision.kind_case()) {
    case proto::Decision::kTopology: bound_reason(*decision.mutable_topology(), bytes_max); break;
    case proto::Decision::kRemoval: bound_reason(*decision.mutable_removal(), bytes_max); break;
    case proto::Decision::kPending: bound_reason(*decision.mutable_pending(), bytes_max); break;
    case proto::Decision::kStart: bound_reason(*decision.mutable_start(), bytes_max); break;
    case proto::Decision::kOutcome: bound_reason(*decision.mutable_outcome(), bytes_max); break;
    case proto::Decision::kSync:
        for (proto::SyncSeat& seat : *decision.mutable_sync()->mutable_seats()) bound_reason(seat, bytes_max);
        break;
    case proto::Decision::kOptimize: bound_reason(*decision.mutable_optimize(), bytes_max); break;
    default: break;
    }
}

std::size_t items_per_page(std::uint32_t control_bytes, std::size_t item_bytes) {
    return std::max<std::size_t>((control_bytes - page_head_bytes) / item_bytes, 1);
}

}  // namespace pccl::core::wire
