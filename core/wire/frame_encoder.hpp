// The sending half of a link: turns control bodies, flow words and payload into the bytes of frames, in the order in which
// they leave. The decoder in frame.hpp is the other half. Both drivers send through this class and nothing else.
//
// A machine of its own: no IO, no clock. The driver asks for the next pieces, hands them to its socket, and reports how many
// bytes left. Payload is not copied: its pieces point into the source.
//
// Invariants:
//  - Control frames and flow words leave in the order in which they were queued, before a payload frame that has not begun.
//    A payload frame that has begun leaves without a break.
//  - The checksum of a payload is computed from the bytes in the order in which they leave, each byte once, shortly before it
//    leaves (it is in the cache then), unless the caller gave the checksum.
//  - After cancel_payload() the source is not read again: the rest of the frame is zeros and its trailer marks it abandoned. A
//    trailer of which a byte has left stays as it is: the payload before it left in full.
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
        const std::uint8_t* data = nullptr;  // null: payload without content (begin_payload without a source)
        std::size_t bytes = 0;
    };
    struct Outgoing {
        static constexpr std::size_t pieces_max = 24;
        std::array<Piece, pieces_max> pieces;
        std::size_t count = 0;
        std::size_t bytes = 0;  // of all pieces
        bool more = false;      // the payload frame goes on behind them
    };
    // A payload frame whose last byte has left, or which was dropped.
    struct Finished {
        std::uint64_t checksum = 0;  // 0 if cancelled
        bool cancelled = false;
    };

    void queue_control(std::span<const std::uint8_t> body);
    void queue_flow(const FlowWord& word);
    // Of control frames and flow words.
    std::size_t queued_bytes() const { return control_.size() - control_begin_; }

    // At most one at a time. `source` has header.length bytes and stays unchanged until the frame is finished or cancelled; null
    // stands for payload that is counted and has no content, and needs a checksum.
    void begin_payload(const BulkHeader& header, const std::uint8_t* source, std::optional<std::uint64_t> checksum);
    // True: no byte of it had left, so it is dropped. Otherwise it is filled up, and sent() reports its end.
    bool cancel_payload();
    bool has_payload() const { return payload_.active; }
    bool has_output() const { return payload_.active || queued_bytes() > 0; }
    // Bytes that leave before the first byte of the payload itself; nothing if that has left, or there is none.
    std::optional<std::size_t> bytes_before_payload() const;

    // At most `most` bytes. The pieces are valid until the next call of any other member.
    Outgoing next(std::size_t most);
    // The first `bytes` of these pieces have left.
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
        std::size_t summed = 0;    // payload bytes in `running`; position - head <= summed <= length
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
