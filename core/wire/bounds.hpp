// The bounds that keep a control message within its receiver's limit: the length of texts, and the items on a page.
//
// Each machine sends its limit for control frames when a link begins. Before that, and whatever limit it sends, it
// takes control_bytes_least. Only texts, lists and the inputs and results of votes can grow: texts are cut, lists are
// paged, and a vote carries no input that is too long. The rest of any message fits into control_bytes_least.
#pragma once

#include "core/base/limits.hpp"
#include "core/wire/control.pb.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace pccl::core::wire {

// The largest control frame that this end may send: the limit `told` by the other end (0: none was sent), at least
// control_bytes_least and at most this end's own limit.
std::uint32_t control_limit(const Limits& own, std::uint32_t told);

// The longest input or result of a vote in a frame of at most `control_bytes`.
inline std::uint32_t input_limit(std::uint32_t control_bytes) { return control_bytes - control_bytes_least; }

// The longest text in a frame of at most `control_bytes`.
std::size_t text_limit(std::uint32_t control_bytes);

// Cuts between two characters and appends " ..."; line breaks and other control characters become spaces.
void bound_text(std::string& text, std::size_t bytes_max);

// Bounds every text of a message. Messages are bounded when they leave, and again when they arrive: the other end may
// be another implementation.
void bound_texts(proto::PeerMessage& message, std::size_t bytes_max);
void bound_texts(proto::MasterMessage& message, std::size_t bytes_max);
void bound_texts(proto::LinkMessage& message, std::size_t bytes_max);
void bound_texts(proto::Decision& decision, std::size_t bytes_max);

// The number of items of at most `item_bytes` that fit on a page beside its own fields; at least 1.
std::size_t items_per_page(std::uint32_t control_bytes, std::size_t item_bytes);

inline constexpr std::size_t page_head_bytes = 64;  // of a page of any kind, without its items
inline constexpr std::size_t dial_target_bytes = 144;
inline constexpr std::size_t sync_holder_bytes = 136;
inline constexpr std::size_t hash_bytes = 16;
inline constexpr std::size_t start_member_bytes = 40;
inline constexpr std::size_t start_share_bytes = 3;  // or of a host's end
inline constexpr std::size_t start_peer_bytes = 20;
// Of control_bytes_least, what a start without a failure leaves for its list of members.
inline constexpr std::size_t spare_bytes = 2048;
// Counts of pieces in a vote, at most. They share control_bytes_least with the rest of the vote.
inline constexpr std::size_t counts_bytes_max = 2048;

// Bytes of a list of counts in a message.
template <class Counts>
std::size_t counts_bytes(const Counts& counts) {
    std::size_t bytes = 0;
    for (std::uint64_t count : counts) {
        for (++bytes; count >= 0x80; count >>= 7) ++bytes;
    }
    return bytes;
}

}  // namespace pccl::core::wire
