#include "core/wire/frame.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/numeric/kernels.hpp"

#include <algorithm>
#include <cstring>

namespace pccl::core::wire {

namespace {

constexpr std::uint16_t prefix_magic = 0x4350;  // "PC"
constexpr std::uint32_t trailer_magic = 0x4C494154;
constexpr std::uint32_t abandoned_mark = 0xFFFFFFFF;
constexpr std::uint8_t type_control = 1;
constexpr std::uint8_t type_bulk = 2;
constexpr std::uint8_t type_flow = 3;

template <class Integer>
void put(std::uint8_t* to, Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

template <class Integer>
Integer get(const std::uint8_t* from) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
    return static_cast<Integer>(value);
}

std::uint32_t folded(const std::uint8_t* bytes, std::size_t length) {
    const std::uint64_t sum = numeric::checksum64(bytes, length);
    return static_cast<std::uint32_t>(sum ^ (sum >> 32));
}

void put_prefix(std::uint8_t* to, std::uint8_t type, std::uint32_t length, std::uint32_t checksum) {
    put(to, prefix_magic);
    to[2] = protocol_version;
    to[3] = type;
    put(to + 4, length);
    seal_prefix(to);
    put(to + 12, checksum);
}

}  // namespace

const char* to_text(WireError error) {
    switch (error) {
    case WireError::none: return "no error";
    case WireError::bad_magic: return "bytes that are not a PCCL frame";
    case WireError::bad_version: return "a frame of another protocol version";
    case WireError::bad_type: return "a frame of unknown type";
    case WireError::too_long: return "a frame longer than its limit";
    case WireError::bad_checksum: return "a frame with a wrong checksum";
    case WireError::bad_field: return "a frame with an impossible field";
    }
    return "unknown";
}

void seal_prefix(std::uint8_t* prefix) { put(prefix + 8, folded(prefix, 8)); }

void append_control(std::string& out, std::span<const std::uint8_t> body) {
    std::uint8_t prefix[prefix_bytes];
    put_prefix(prefix, type_control, static_cast<std::uint32_t>(body.size()), folded(body.data(), body.size()));
    out.append(reinterpret_cast<const char*>(prefix), prefix_bytes);
    out.append(reinterpret_cast<const char*>(body.data()), body.size());
}

void append_flow(std::string& out, const FlowWord& word) {
    std::uint8_t bytes[prefix_bytes + flow_word_bytes] = {};
    std::uint8_t* at = bytes + prefix_bytes;
    put(at, word.op);
    put(at + 8, word.slice);
    put(at + 12, word.value);
    at[16] = static_cast<std::uint8_t>(word.kind);
    at[17] = word.phase;
    put_prefix(bytes, type_flow, flow_word_bytes, folded(at, flow_word_bytes));
    out.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

std::array<std::uint8_t, prefix_bytes + bulk_header_bytes> encode_bulk(const BulkHeader& header) {
    std::array<std::uint8_t, prefix_bytes + bulk_header_bytes> bytes{};
    std::uint8_t* at = bytes.data() + prefix_bytes;
    put(at, header.op);
    put(at + 8, header.slice);
    put(at + 12, header.phase);
    put(at + 14, header.flags);
    put(at + 16, header.entry);
    put(at + 24, header.length);
    put(at + 28, header.reserved);
    put_prefix(bytes.data(), type_bulk, header.length, folded(at, bulk_header_bytes));
    return bytes;
}

std::array<std::uint8_t, trailer_bytes> encode_trailer(const Trailer& trailer) {
    std::array<std::uint8_t, trailer_bytes> bytes{};
    put(bytes.data(), trailer.checksum);
    put(bytes.data() + 8, trailer.abandoned ? abandoned_mark : 0u);
    put(bytes.data() + 12, trailer_magic);
    return bytes;
}

FrameDecoder::Item FrameDecoder::refuse(WireError error, std::size_t consumed) {
    if (error == WireError::bad_checksum) PROBE(frame_wrong_checksum);
    if (error == WireError::bad_magic && state_ != State::refused) PROBE(frame_noise);
    state_ = State::refused;
    body_.clear();
    body_.shrink_to_fit();
    Item item;
    item.kind = Kind::refused;
    item.consumed = consumed;
    item.error = error;
    return item;
}

// Returns the next `need` bytes, or null if some are missing. They are in the input if all of them came together.
// Otherwise they are collected in small_; its fill count is 0 again when they are complete.
const std::uint8_t* FrameDecoder::gather(std::span<const std::uint8_t> bytes, std::size_t need, std::size_t& used) {
    if (small_fill_ == 0 && bytes.size() >= need) {
        used += need;
        return bytes.data();
    }
    const std::size_t take = std::min(need - small_fill_, bytes.size());
    if (take > 0) std::memcpy(small_.data() + small_fill_, bytes.data(), take);
    small_fill_ += take;
    used += take;
    if (small_fill_ < need) {
        if (take > 0) PROBE(frame_in_pieces);
        return nullptr;
    }
    small_fill_ = 0;
    return small_.data();
}

FrameDecoder::Item FrameDecoder::push(std::span<const std::uint8_t> bytes) {
    Item item;
    std::size_t used = 0;
    for (;;) {
        const auto rest = bytes.subspan(used);
        switch (state_) {
        case State::prefix: {
            // Refuse zeros or noise at their first byte, without waiting for a whole prefix.
            if (small_fill_ == 0 && !rest.empty() && rest[0] != (prefix_magic & 0xFF)) {
                return refuse(WireError::bad_magic, used);
            }
            const std::uint8_t* const at = gather(rest, prefix_bytes, used);
            if (at == nullptr) break;
            if (get<std::uint16_t>(at) != prefix_magic) return refuse(WireError::bad_magic, used);
            // Check before the length is used: a damaged length would make the decoder take the next frames as content
            // of this one.
            if (get<std::uint32_t>(at + 8) != folded(at, 8)) return refuse(WireError::bad_checksum, used);
            if (at[2] != protocol_version) {
                refused_version_ = at[2];
                return refuse(WireError::bad_version, used);
            }
            length_ = get<std::uint32_t>(at + 4);
            checksum_ = get<std::uint32_t>(at + 12);
            if (at[3] == type_control) {
                if (length_ > limits_.control_bytes_max) return refuse(WireError::too_long, used);
                body_.clear();
                state_ = State::body;
            } else if (at[3] == type_bulk) {
                if (length_ > limits_.payload_bytes_max) return refuse(WireError::too_long, used);
                state_ = State::bulk;
            } else if (at[3] == type_flow) {
                if (length_ != flow_word_bytes) return refuse(WireError::bad_field, used);
                state_ = State::flow;
            } else {
                return refuse(WireError::bad_type, used);
            }
            continue;
        }
        case State::body: {
            // The body grows only as bytes arrive: an announced length allocates nothing.
            const std::size_t take = std::min<std::size_t>(length_ - body_.size(), rest.size());
            body_.insert(body_.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(take));
            used += take;
            if (body_.size() < length_) {
                if (take > 0) PROBE(body_in_pieces);
                break;
            }
            if (folded(body_.data(), body_.size()) != checksum_) {
                return refuse(WireError::bad_checksum, used);
            }
            state_ = State::prefix;
            item.kind = Kind::control;
            item.body = body_;
            item.consumed = used;
            return item;
        }
        case State::flow: {
            const std::uint8_t* const at = gather(rest, flow_word_bytes, used);
            if (at == nullptr) break;
            if (folded(at, flow_word_bytes) != checksum_) {
                return refuse(WireError::bad_checksum, used);
            }
            item.flow.op = get<std::uint64_t>(at);
            item.flow.slice = get<std::uint32_t>(at + 8);
            item.flow.value = get<std::uint32_t>(at + 12);
            const std::uint8_t kind = at[16];
            item.flow.phase = at[17];
            if (kind < 1 || kind > 5 || item.flow.phase > 2) return refuse(WireError::bad_field, used);
            item.flow.kind = static_cast<FlowKind>(kind);
            state_ = State::prefix;
            item.kind = Kind::flow;
            item.consumed = used;
            return item;
        }
        case State::bulk: {
            const std::uint8_t* const at = gather(rest, bulk_header_bytes, used);
            if (at == nullptr) break;
            if (folded(at, bulk_header_bytes) != checksum_) {
                return refuse(WireError::bad_checksum, used);
            }
            item.bulk.op = get<std::uint64_t>(at);
            item.bulk.slice = get<std::uint32_t>(at + 8);
            item.bulk.phase = get<std::uint16_t>(at + 12);
            item.bulk.flags = get<std::uint16_t>(at + 14);
            item.bulk.entry = get<std::uint64_t>(at + 16);
            item.bulk.length = get<std::uint32_t>(at + 24);
            item.bulk.reserved = get<std::uint32_t>(at + 28);
            if (item.bulk.length != length_ || item.bulk.phase > 3) return refuse(WireError::bad_field, used);
            payload_total_ = payload_remaining_ = length_;
            state_ = length_ > 0 ? State::payload : State::trailer;
            item.kind = Kind::bulk;
            item.consumed = used;
            return item;
        }
        case State::payload: {
            if (rest.empty()) break;
            const std::size_t take = std::min<std::size_t>(payload_remaining_, rest.size());
            payload_remaining_ -= static_cast<std::uint32_t>(take);
            if (payload_remaining_ == 0) state_ = State::trailer;
            if (payload_remaining_ != 0) PROBE(payload_in_pieces);
            ASSERT(used == 0);
            item.kind = Kind::payload;
            item.consumed = take;
            return item;
        }
        case State::trailer: {
            const std::uint8_t* const at = gather(rest, trailer_bytes, used);
            if (at == nullptr) break;
            const auto flags = get<std::uint32_t>(at + 8);
            if (get<std::uint32_t>(at + 12) != trailer_magic || (flags != 0 && flags != abandoned_mark)) {
                return refuse(WireError::bad_field, used);
            }
            item.trailer.checksum = get<std::uint64_t>(at);
            item.trailer.abandoned = flags != 0;
            if (item.trailer.abandoned) PROBE(frame_abandoned);
            state_ = State::prefix;
            item.kind = Kind::trailer;
            item.consumed = used;
            return item;
        }
        case State::refused: return refuse(WireError::bad_magic, bytes.size());
        }
        item.kind = Kind::more;
        item.consumed = used;
        return item;
    }
}

void FrameDecoder::skip_payload(std::uint32_t bytes) {
    ASSERT(state_ == State::payload && bytes <= payload_remaining_);
    payload_remaining_ -= bytes;
    if (payload_remaining_ == 0) state_ = State::trailer;
}

}  // namespace pccl::core::wire
