#include "core/wire/bounds.hpp"

#include "core/base/probe.hpp"
#include "core/wire/causes.hpp"

#include <algorithm>
#include <string_view>

namespace pccl::core::wire {

namespace {

constexpr std::string_view cut_mark = " ...";

template <class Message>
void bound_cause_in(Message& message, std::size_t bytes_max) {
    if (message.has_cause()) bound_cause(*message.mutable_cause(), bytes_max);
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
    if (message.has_vote()) bound_cause_in(*message.mutable_vote(), bytes_max);
    if (message.has_edge()) bound_text(*message.mutable_edge()->mutable_reason(), bytes_max);
}

void bound_texts(proto::MasterMessage& message, std::size_t bytes_max) {
    if (message.has_refusal()) bound_cause_in(*message.mutable_refusal(), bytes_max);
    if (message.has_notice()) bound_text(*message.mutable_notice()->mutable_text(), bytes_max);
    if (message.has_answer()) bound_cause_in(*message.mutable_answer(), bytes_max);
}

void bound_texts(proto::LinkMessage& message, std::size_t bytes_max) {
    if (message.has_refusal()) bound_cause_in(*message.mutable_refusal(), bytes_max);
}

void bound_texts(proto::Decision& decision, std::size_t bytes_max) {
    bound_cause_in(decision, bytes_max);
    for (proto::Seat& seat : *decision.mutable_seats()) bound_cause_in(seat, bytes_max);
    if (decision.removal().has_mates_cause())
        bound_cause(*decision.mutable_removal()->mutable_mates_cause(), bytes_max);
}

std::size_t items_per_page(std::uint32_t control_bytes, std::size_t item_bytes) {
    return std::max<std::size_t>((control_bytes - page_head_bytes) / item_bytes, 1);
}

}  // namespace pccl::core::wire
