// Framing: the format of the bytes on a link, its decoder, and the encoders of single frames.
//
// This is a machine of its own: no IO, no clock, no allocation beyond one bounded body buffer. The decoder refuses
// malformed input once, with a reason; after that it stays refused. All integers are little-endian.
//
//   every frame   prefix 16:  magic u16 | version u8 | type u8 | length u32 | check of these 8 bytes u32 | checksum u32
//                             (both are XXH3-64 folded to 32 bits; the checksum is over what `covers` names)
//   control       prefix | body (length bytes, protobuf)                     covers: body
//   flow          prefix | FlowWord 24                                       covers: the word
//   bulk          prefix | BulkHeader 32 | payload (length bytes) | trailer 16   covers: the header
//   trailer       checksum of the payload u64 | mark u32 (all ones: abandoned, else 0) | magic u32
//
// The prefix keeps its form in every version, so that a receiver can name the version that it refuses.
// The checksum of the payload and the abandoned mark are in the trailer. So a sender can give up a frame in its middle:
// it fills the rest with any bytes and sets the mark. It also needs no pass over the payload before the first byte
// leaves.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pccl::core::wire {

inline constexpr std::uint8_t protocol_version = 5;
inline constexpr std::size_t prefix_bytes = 16;
inline constexpr std::size_t bulk_header_bytes = 32;
inline constexpr std::size_t flow_word_bytes = 24;
inline constexpr std::size_t trailer_bytes = 16;

// Header of a bulk frame. All-reduce: operation, phase (0 partial sum, 1 final bytes), slice index; if it leaves ahead of its
// start, entry = the cut (core/all_reduce/ahead.hpp).
// State sync: operation = sync id, phase 2, slice = chunk index, entry = index into the sync's key list.
// Bandwidth test: operation = test id, phase 3; the content is ignored.
struct BulkHeader {
    OpId op = 0;
    std::uint32_t slice = 0;
    std::uint16_t phase = 0;
    std::uint16_t flags = 0;
    std::uint64_t entry = 0;
    std::uint32_t length = 0;  // payload bytes; equals the prefix's length
    std::uint32_t reserved = 0;
    friend bool operator==(const BulkHeader&, const BulkHeader&) = default;
};

// Small fixed messages of the data path (no protobuf, no allocation).
enum class FlowKind : std::uint8_t { ack = 1, ready = 2, credit = 3, decline = 4, moving = 5 };
struct FlowWord {
    OpId op = 0;
    std::uint32_t slice = 0;  // ack, decline, moving: which slice; ready: number of the receiver's slots
    // ready, credit: number of partial sums for which the receiver has had room since the operation began. moving:
    // bytes of the slice that have arrived, more than ever before.
    std::uint32_t value = 0;
    FlowKind kind = FlowKind::ack;
    std::uint8_t phase = 0;  // ack, decline, moving: which phase
    friend bool operator==(const FlowWord&, const FlowWord&) = default;
};

struct Trailer {
    std::uint64_t checksum = 0;
    bool abandoned = false;
};

enum class WireError : std::uint8_t { none, bad_magic, bad_version, bad_type, too_long, bad_checksum, bad_field };
const char* to_text(WireError error);

// Computes the check of a prefix anew after a change of its first 8 bytes: to send another version, or to test limits.
void seal_prefix(std::uint8_t* prefix);

// Encoders. Those of control and flow frames append to `out`; those of fixed parts return arrays.
void append_control(std::string& out, std::span<const std::uint8_t> body);
void append_flow(std::string& out, const FlowWord& word);
std::array<std::uint8_t, prefix_bytes + bulk_header_bytes> encode_bulk(const BulkHeader& header);
std::array<std::uint8_t, trailer_bytes> encode_trailer(const Trailer& trailer);

class FrameDecoder {
public:
    enum class Kind : std::uint8_t { more, control, flow, bulk, payload, trailer, refused };
    struct Item {
        Kind kind = Kind::more;
        std::size_t consumed = 0;            // input bytes that were used; the next push starts behind them
        std::span<const std::uint8_t> body;  // control: valid until the next call of any member
        BulkHeader bulk;                     // bulk
        FlowWord flow;                       // flow
        Trailer trailer;                     // trailer
        WireError error = WireError::none;   // refused
    };

    explicit FrameDecoder(const Limits& limits) : limits_(limits) {}

    // Takes bytes in order and reports at most one item. Call again with the rest until `more` with everything
    // consumed. Kind::payload: the first `consumed` bytes of the input belong to the payload of the last bulk header.
    // The caller stores them at the payload_position() from before the call. The decoder never copies payload.
    Item push(std::span<const std::uint8_t> bytes);

    // Payload bytes of the current bulk frame that are missing (0: not inside a payload), and that have arrived.
    std::uint32_t payload_remaining() const { return payload_remaining_; }
    std::uint32_t payload_position() const { return payload_total_ - payload_remaining_; }
    // The caller has read `bytes` payload bytes directly into their place instead of pushing them.
    void skip_payload(std::uint32_t bytes);
    // Version byte of the frame that was refused with bad_version.
    std::uint8_t refused_version() const { return refused_version_; }

private:
    enum class State : std::uint8_t { prefix, body, flow, bulk, payload, trailer, refused };
    Item refuse(WireError error, std::size_t consumed);
    const std::uint8_t* gather(std::span<const std::uint8_t> bytes, std::size_t need, std::size_t& used);

    Limits limits_;
    State state_ = State::prefix;
    std::array<std::uint8_t, 32> small_{};
    std::size_t small_fill_ = 0;
    std::vector<std::uint8_t> body_;
    std::uint32_t length_ = 0;
    std::uint32_t checksum_ = 0;
    std::uint32_t payload_total_ = 0;
    std::uint32_t payload_remaining_ = 0;
    std::uint8_t refused_version_ = 0;
};

}  // namespace pccl::core::wire
