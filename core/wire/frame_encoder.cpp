#include "core/wire/frame_encoder.hpp"

#include "core/base/assert.hpp"

#include <algorithm>

namespace pccl::core::wire {

namespace {

constexpr std::size_t head_bytes = prefix_bytes + bulk_header_bytes;
// The checksum runs over pieces of this size, so that a piece is still in the cache when it leaves.
constexpr std::size_t checksum_piece_bytes = 128u << 10;
// A queue that grew larger returns its memory when it is empty. If more than this has left, and more than half of the
// queue, the rest moves to the front.
constexpr std::size_t control_kept_bytes = 1u << 16;

// Fills the rest of cancelled frames.
constexpr std::size_t zero_bytes = 64u << 10;
alignas(64) constexpr std::uint8_t zeros[zero_bytes] = {};

}  // namespace

void FrameEncoder::queue_control(std::span<const std::uint8_t> body) { append_control(control_, body); }

void FrameEncoder::queue_flow(const FlowWord& word) { append_flow(control_, word); }

void FrameEncoder::begin_payload(const BulkHeader& header, const std::uint8_t* source,
                                 std::optional<std::uint64_t> checksum) {
    ASSERT(!payload_.active);
    ASSERT(source != nullptr || header.length == 0 || checksum.has_value());
    payload_.active = true;
    payload_.begun = payload_.cancelled = payload_.has_checksum = false;
    payload_.symbolic = source == nullptr;
    payload_.head = encode_bulk(header);
    payload_.source = source;
    payload_.length = header.length;
    payload_.position = payload_.summed = 0;
    if (checksum.has_value()) {
        fix_trailer(*checksum);
    } else {
        payload_.running.reset();
        if (payload_.length == 0) fix_trailer(payload_.running.digest());
    }
}

bool FrameEncoder::cancel_payload() {
    ASSERT(payload_.active);
    if (payload_.cancelled) return false;
    payload_.source = nullptr;
    if (!payload_.begun) {
        payload_.active = false;
        return true;
    }
    payload_.cancelled = true;
    if (payload_.position <= head_bytes + payload_.length) fix_trailer(0);
    return false;
}

std::optional<std::size_t> FrameEncoder::bytes_before_payload() const {
    if (!payload_.active || payload_.length == 0 || payload_.position > head_bytes) return std::nullopt;
    return (payload_.begun ? 0 : queued_bytes()) + head_bytes - payload_.position;
}

void FrameEncoder::fix_trailer(std::uint64_t checksum) {
    payload_.has_checksum = true;
    payload_.checksum = checksum;
    payload_.summed = payload_.length;
    payload_.trailer = encode_trailer({checksum, payload_.cancelled});
}

void FrameEncoder::sum_next_piece() {
    const std::size_t piece = std::min(checksum_piece_bytes, payload_.length - payload_.summed);
    payload_.running.update(payload_.source + payload_.summed, piece);
    payload_.summed += piece;
    if (payload_.summed == payload_.length) fix_trailer(payload_.running.digest());
}

FrameEncoder::Outgoing FrameEncoder::next(std::size_t most) {
    Outgoing out;
    if (!payload_.begun && queued_bytes() > 0) {
        out.bytes = std::min(most, queued_bytes());
        out.pieces[out.count++] = {reinterpret_cast<const std::uint8_t*>(control_.data()) + control_begin_, out.bytes};
        if (out.bytes < queued_bytes()) return out;
    }
    if (payload_.active) add_payload(out, most);
    return out;
}

void FrameEncoder::add_payload(Outgoing& out, std::size_t most) {
    const auto add = [&](const std::uint8_t* data, std::size_t bytes) {
        const std::size_t part = std::min(bytes, most - out.bytes);
        if (part == 0) return false;
        out.pieces[out.count++] = {data, part};
        out.bytes += part;
        return part == bytes;
    };
    out.more = true;
    std::size_t position = payload_.position;
    if (position < head_bytes) {
        if (!add(payload_.head.data() + position, head_bytes - position)) return;
        position = head_bytes;
    }
    std::size_t offset = position - head_bytes;  // into the payload, then into the trailer
    if (offset < payload_.length) {
        if (out.bytes == most) return;
        if (offset >= payload_.summed) sum_next_piece();
        const std::size_t end = payload_.summed;
        if (payload_.symbolic) {
            if (!add(nullptr, end - offset)) return;
        } else if (!payload_.cancelled) {
            if (!add(payload_.source + offset, end - offset)) return;
        } else {
            // Keep one piece free for the trailer.
            for (; offset < end && out.count + 1 < Outgoing::pieces_max; offset += std::min(end - offset, zero_bytes))
                if (!add(zeros, std::min(end - offset, zero_bytes))) return;
            if (offset < end) return;
        }
        offset = end;
    }
    if (offset < payload_.length) return;
    const std::size_t trailer_offset = offset - payload_.length;
    out.more = !add(payload_.trailer.data() + trailer_offset, trailer_bytes - trailer_offset);
}

void FrameEncoder::control_sent(std::size_t bytes) {
    control_begin_ += bytes;
    if (control_begin_ == control_.size()) {
        control_.clear();
        control_begin_ = 0;
        if (control_.capacity() > control_kept_bytes) control_.shrink_to_fit();
    } else if (control_begin_ > control_kept_bytes && control_begin_ > control_.size() / 2) {
        control_.erase(0, control_begin_);
        control_begin_ = 0;
    }
}

std::optional<FrameEncoder::Finished> FrameEncoder::sent(std::size_t bytes) {
    if (!payload_.begun && queued_bytes() > 0) {
        const std::size_t control = std::min(bytes, queued_bytes());
        control_sent(control);
        bytes -= control;
    }
    if (bytes == 0) return std::nullopt;
    ASSERT(payload_.active);
    payload_.begun = true;
    payload_.position += bytes;
    ASSERT(payload_.position <= head_bytes + payload_.length + trailer_bytes);
    if (payload_.position < head_bytes + payload_.length + trailer_bytes) return std::nullopt;
    payload_.active = payload_.begun = false;
    payload_.source = nullptr;
    return Finished{payload_.cancelled ? 0 : payload_.checksum, payload_.cancelled};
}

}  // namespace pccl::core::wire
