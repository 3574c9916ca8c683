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
std::string to_text(const core::Quantization& how);  // empty: none

inline constexpr std::size_t effect_kinds = std::variant_size_v<core::Effect>;
const char* effect_name(std::size_t index);  // short, for scenarios and statistics
// Who speaks to whom decides which message of core/wire/control.proto a control body is.
enum class Talk : std::uint8_t { peer_to_master, master_to_peer, peer_to_peer };
Talk talk_between(bool from_master, bool to_master);
// Makes the text of a message, if it has one, so long that the message has about `bytes` bytes, as another program may do.
void fill_text(Talk talk, std::string& body, std::size_t bytes);
// A wrong bit in a list of hashes that a peer sends to another one, as from memory that does not work; else nothing.
void damage_hashes(std::string& body);
// The kind of the message by its name in control.proto, and its main fields.
std::string control_text(Talk talk, std::span<const std::uint8_t> body);
// The name that a hello to the master introduces its sender with, as log lines write it.
std::optional<std::string> introduced_name(Talk talk, std::span<const std::uint8_t> body);

}  // namespace pccl::sim
