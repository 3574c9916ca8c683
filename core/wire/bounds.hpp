// What a message may hold so that its receiver takes it: how long texts are, how much fits on a page.
//
// Each machine tells its limit of a control frame when a link begins. Until then, and whatever it tells, it takes
// control_bytes_least. Everything of a message that can grow is a text, which is cut, or a list, which is paged; what is
// left fits into control_bytes_least.
#pragma once

#include "core/base/limits.hpp"
#include "core/wire/control.pb.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace pccl::core::wire {

// What one end may send: `told` by the other end (0: nothing was told), no more than this end's own limit.
std::uint32_t control_limit(const Limits& own, std::uint32_t told);

// The longest text in a frame of at most `control_bytes`.
std::size_t text_limit(std::uint32_t control_bytes);

// Cuts at a border of characters, and says so at the end; line breaks and other control characters become spaces.
void bound_text(std::string& text, std::size_t bytes_max);

// Every text of a message. Messages are bounded when they leave, and also when they come: a remote may be of other making.
void bound_texts(proto::PeerMessage& message, std::size_t bytes_max);
void bound_texts(proto::MasterMessage& message, std::size_t bytes_max);
void bound_texts(proto::LinkMessage& message, std::size_t bytes_max);
void bound_texts(proto::Decision& decision, std::size_t bytes_max);

// How many items of at most `item_bytes` a page has room for, besides its own fields.
std::size_t items_per_page(std::uint32_t control_bytes, std::size_t item_bytes);

inline constexpr std::size_t page_head_bytes = 64;  // of any page: everything but its items
inline constexpr std::size_t dial_target_bytes = 104;
inline constexpr std::size_t sync_holder_bytes = 104;
inline constexpr std::size_t hash_bytes = 16;

}  // namespace pccl::core::wire
