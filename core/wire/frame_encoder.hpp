// The sending half of a link: it turns control bodies, flow words and payload into the bytes of frames, in the order in
// which they leave. The decoder in frame.hpp is the other half. Both drivers send through this class and nothing else.
//
// A machine of its own: no IO, no clock. The driver asks for the next pieces, hands them to its socket, and reports how
// many bytes left. Payload is not copied: its pieces point into the source.
//
// Invariants:
//  - Control frames and flow words leave in the order in which they were queued, before a payload frame that has not
//    begun. A payload frame that has begun leaves without a break.
//  - The checksum of a payload is computed in the order in which the bytes leave. Each byte is summed once, shortly
//    before it leaves, so it is still in the cache. If the caller gave the checksum, nothing is summed.
//  - After cancel_payload() the source is not read again: the rest of the frame is zeros and its trailer marks it
//    abandoned. Exception: if the trailer has started to leave, it stays unchanged. The payload was then sent in full,
//    so the frame is valid.
#pragma once

#include "core/numeric/kernels.hpp"
#include "core/wire/frame.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pccl::core::wire {

class FrameEncoder {
public:
    struct Piece {
        const std::uint8_t* data;  // null: payload without content (begin_payload without a source)
        std::size_t bytes;
    };
    struct Outgoing {
        static constexpr std::size_t pieces_max = 24;
        std::array<Piece, pieces_max> pieces;  // only the first `count` are set: this is made for each write
        std::size_t count = 0;
        std::size_t bytes = 0;  // of all pieces
        bool more = false;      // the payload frame continues after these pieces
    };
    // A payload frame whose last byte has left.
    struct Finished {
        std::uint64_t checksum = 0;  // 0 if cancelled
        bool cancelled = false;
    };

    void queue_control(std::span<const std::uint8_t> body);
    void queue_flow(const FlowWord& word);
    // Control frames and flow words only.
    std::size_t queued_bytes() const { return control_.size() - control_begin_; }

    // At most one at a time. `source` has header.length bytes and stays unchanged until the frame is finished or
    // cancelled. Null: the payload is only counted and has no content; `checksum` is then required, unless it is empty.
    void begin_payload(const BulkHeader& header, const std::uint8_t* source, std::optional<std::uint64_t> checksum);
    // True: no byte of the frame had left, so it is dropped. False: it is filled up, and sent() reports its end.
    bool cancel_payload();
    bool has_payload() const { return payload_.active; }
    bool has_output() const { return payload_.active || queued_bytes() > 0; }
    // Bytes that leave before the first payload byte. Nothing if that byte has left, or if there is no payload.
    std::optional<std::size_t> bytes_before_payload() const;

    // At most `most` bytes. The pieces are valid until the next call of any other member.
    Outgoing next(std::size_t most);
    // The first `bytes` bytes of the pieces from next() have left.
    std::optional<Finished> sent(std::size_t bytes);

private:
    struct Payload {
        bool active = false;
        bool begun = false;         // implies active; at least one byte of the frame has left
        bool symbolic = false;      // counted, without content
        bool cancelled = false;     // implies begun: a frame that had not begun was dropped
        bool has_checksum = false;  // the trailer is final
        std::array<std::uint8_t, prefix_bytes + bulk_header_bytes> head{};
        std::array<std::uint8_t, trailer_bytes> trailer{};
        const std::uint8_t* source = nullptr;
        std::size_t length = 0;
        std::size_t position = 0;  // bytes of the whole frame that have left
        // Payload bytes in `running`, or `length` once the trailer is final. Until the trailer leaves:
        // position - head <= summed <= length.
        std::size_t summed = 0;
        std::uint64_t checksum = 0;
        numeric::Checksum64 running;
    };

    void add_payload(Outgoing& out, std::size_t most);
    void sum_next_piece();
    void fix_trailer(std::uint64_t checksum);
    void control_sent(std::size_t bytes);

    std::string control_;  // framed; its first control_begin_ bytes have left
    std::size_t control_begin_ = 0;
    Payload payload_;
};

}  // namespace pccl::core::wire
