// Events and effects as numbers (for the trace hash) and as one line of text (for people).
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace pccl::sim {

std::uint64_t fingerprint(const core::Event& event);
std::string to_text(const core::Event& event);
std::string to_text(const core::Effect& effect);
std::string to_text(const core::Command& command);
std::string to_text(const core::wire::BulkHeader& header);
std::string to_text(const core::wire::FlowWord& word);
const char* to_text(core::Result result);
const char* to_text(core::CollectiveKind kind);
std::string to_text(const core::Quantization& how);  // empty if there is none

inline constexpr std::size_t effect_kinds = std::variant_size_v<core::Effect>;
const char* effect_name(std::size_t index);  // short, for scenarios and statistics
// The direction of a message. It decides which message type of core/wire/control.proto a control body contains.
enum class Talk : std::uint8_t { peer_to_master, master_to_peer, peer_to_peer };
Talk talk_between(bool from_master, bool to_master);
// Pads the free text of a message, if it has one, to about `bytes` bytes per message. A foreign program may send such
// texts.
void fill_text(Talk talk, std::string& body, std::size_t bytes);
// Flips one bit in a list of hashes between two peers, as faulty memory would. Other messages stay as they are.
void damage_hashes(std::string& body);
// The name of the message in control.proto, and its main fields.
std::string control_text(Talk talk, std::span<const std::uint8_t> body);
// The sender's name in a hello to the master, as log lines write it. Nothing for other messages.
std::optional<std::string> introduced_name(Talk talk, std::span<const std::uint8_t> body);

}  // namespace pccl::sim
