#include "net-real/link.hpp"

#include "core/base/assert.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

namespace pccl::real {

namespace {

using core::wire::bulk_header_bytes;
using core::wire::prefix_bytes;
using core::wire::trailer_bytes;

constexpr std::size_t frame_head_bytes = prefix_bytes + bulk_header_bytes;
// Read behind a payload: its trailer and the next bulk header. One byte more would be payload that has to be copied.
constexpr std::size_t tail_bytes = trailer_bytes + frame_head_bytes;
// What one receive or send may move: large enough to be cheap, small enough to be in the cache for the checksum.
constexpr std::size_t receive_piece_bytes = 256u << 10;
constexpr std::size_t checksum_piece_bytes = 128u << 10;
constexpr std::size_t send_piece_bytes = 1u << 20;
constexpr std::size_t parts_max = 24;

// Payload of frames that were given up.
constexpr std::size_t zero_bytes = 64u << 10;
alignas(64) const std::uint8_t zeros[zero_bytes] = {};

std::string error_text(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

}  // namespace

// ---- receiving ---------------------------------------------------------------------------------------------------

void Link::receive_payload(std::uint8_t* target, std::uint64_t length) {
    ASSERT(landing_ == Landing::undecided);
    ASSERT(length == decoder_.payload_remaining());
    landing_ = Landing::place;
    landing_target_ = target;
    landing_checksum_.reset();
}

void Link::discard_payload() {
    ASSERT(landing_ != Landing::none);
    landing_ = Landing::discard;
    landing_target_ = nullptr;
}

void Link::landed(const std::uint8_t* data, std::size_t bytes) {
    if (landing_ == Landing::place) landing_checksum_.update(data, bytes);
}

Link::Outcome Link::receive(ReceiveSpace& space, EventSink& sink, std::size_t budget_bytes) {
    Outcome outcome;
    while (!input_closed_) {
        if (outcome.bytes >= budget_bytes) {
            outcome.progress = Progress::more;
            return outcome;
        }
        iovec parts[2];
        std::size_t part_count = 1;
        std::size_t direct = 0;
        std::size_t wanted = 0;
        const std::size_t remaining = decoder_.payload_remaining();
        if (remaining > 0) {
            direct = std::min(remaining, receive_piece_bytes);
            std::uint8_t* base = space.discard.data();
            if (landing_ == Landing::place)
                base = landing_target_ + decoder_.payload_position();
            else
                direct = std::min(direct, space.discard.size());
            parts[0] = {base, direct};
            wanted = direct;
            if (direct == remaining) {
                parts[1] = {space.staging.data(), tail_bytes};
                part_count = 2;
                wanted += tail_bytes;
            }
        } else {
            parts[0] = {space.staging.data(), space.staging.size()};
            wanted = space.staging.size();
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = part_count;
        const ssize_t result = ::recvmsg(descriptor_, &message, 0);
        if (result < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return outcome;
            outcome.progress = Progress::closed;
            outcome.reason = error_text("receive");
            return outcome;
        }
        if (result == 0) {
            outcome.progress = Progress::closed;
            outcome.reason = "closed by the other end";
            return outcome;
        }
        const std::size_t received = static_cast<std::size_t>(result);
        outcome.bytes += received;
        const std::size_t placed = std::min(direct, received);
        if (placed > 0) {
            landed(static_cast<const std::uint8_t*>(parts[0].iov_base), placed);
            decoder_.skip_payload(static_cast<std::uint32_t>(placed));
        }
        if (received > placed) {
            outcome.events += digest({space.staging.data(), received - placed}, sink);
        }
        if (received < wanted) return outcome;  // the socket is empty (or at its end: the next wait tells)
    }
    return outcome;
}

std::uint32_t Link::digest(std::span<const std::uint8_t> bytes, EventSink& sink) {
    using Kind = core::wire::FrameDecoder::Kind;
    std::uint32_t events = 0;
    while (!bytes.empty() && !input_closed_) {
        const std::size_t position = decoder_.payload_position();
        const auto item = decoder_.push(bytes);
        switch (item.kind) {
        case Kind::more: break;
        case Kind::payload:
            if (landing_ == Landing::place) {
                std::memcpy(landing_target_ + position, bytes.data(), item.consumed);
                landed(bytes.data(), item.consumed);
            }
            break;
        case Kind::control:
            ++events;
            sink.on_event(core::ControlArrived{id_, item.body});
            break;
        case Kind::flow:
            ++events;
            sink.on_event(core::FlowArrived{id_, item.flow});
            break;
        case Kind::bulk:
            ++events;
            landing_ = Landing::undecided;
            sink.on_event(core::BulkArrived{id_, item.bulk});
            // The contract wants an answer; bytes of strangers must not end the process if there is none.
            if (landing_ == Landing::undecided) landing_ = Landing::discard;
            break;
        case Kind::trailer: {
            ++events;
            core::PayloadLanded answer{id_, core::PayloadLanded::Verdict::discarded, 0};
            if (landing_ == Landing::place) {
                if (item.trailer.abandoned) {
                    answer.verdict = core::PayloadLanded::Verdict::abandoned;
                } else {
                    answer.checksum = landing_checksum_.digest();
                    answer.verdict = answer.checksum == item.trailer.checksum ? core::PayloadLanded::Verdict::landed
                                                                              : core::PayloadLanded::Verdict::corrupt;
                }
            }
            landing_ = Landing::none;
            landing_target_ = nullptr;
            sink.on_event(answer);
            break;
        }
        case Kind::refused:
            ++events;
            sink.on_event(core::FrameRefused{id_, item.error, decoder_.refused_version()});
            input_closed_ = true;
            return events;
        }
        bytes = bytes.subspan(item.consumed);
    }
    return events;
}

// ---- sending -----------------------------------------------------------------------------------------------------

void Link::queue_control(std::string_view body) {
    core::wire::append_control(control_, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
}

void Link::queue_flow(const core::wire::FlowWord& word) { core::wire::append_flow(control_, word); }

void Link::send_payload(const core::SendPayload& command, const std::uint8_t* source) {
    ASSERT(!bulk_.active);
    ASSERT(command.header.length == command.source.length);
    bulk_.active = true;
    bulk_.begun = false;
    bulk_.cancelled = false;
    bulk_.header = core::wire::encode_bulk(command.header);
    bulk_.source = source;
    bulk_.length = command.header.length;
    bulk_.position = 0;
    bulk_.summed = 0;
    bulk_.has_checksum = false;
    if (command.has_checksum) {
        finish_checksum(command.checksum);
    } else {
        bulk_.running.reset();
        if (bulk_.length == 0) finish_checksum(bulk_.running.digest());
    }
    has_sent_payload_ = true;
}

void Link::finish_checksum(std::uint64_t checksum) {
    bulk_.has_checksum = true;
    bulk_.checksum = checksum;
    bulk_.summed = bulk_.length;
    bulk_.trailer = core::wire::encode_trailer({checksum, bulk_.cancelled});
}

bool Link::cancel_send() {
    ASSERT(bulk_.active);
    if (!bulk_.begun) {
        bulk_.active = false;
        bulk_.source = nullptr;
        return true;
    }
    bulk_.cancelled = true;
    bulk_.source = nullptr;
    // A trailer that is on its way already closes a whole and good frame; its bit can stay as it was.
    if (bulk_.position <= frame_head_bytes + bulk_.length) finish_checksum(0);
    return false;
}

void Link::sum_next_piece() {
    const std::size_t piece = std::min(checksum_piece_bytes, bulk_.length - bulk_.summed);
    bulk_.running.update(bulk_.source + bulk_.summed, piece);
    bulk_.summed += piece;
    if (bulk_.summed == bulk_.length) finish_checksum(bulk_.running.digest());
}

// Adds what may leave next of the bulk frame; returns its bytes.
std::size_t Link::add_bulk(iovec* parts, std::size_t& part_count, bool& has_more) {
    std::size_t added = 0;
    auto add = [&](const void* data, std::size_t bytes) {
        parts[part_count++] = {const_cast<void*>(data), bytes};
        added += bytes;
    };
    std::size_t position = bulk_.position;
    if (position < frame_head_bytes) {
        add(bulk_.header.data() + position, frame_head_bytes - position);
        position = frame_head_bytes;
    }
    std::size_t offset = position - frame_head_bytes;  // into payload, then trailer
    if (offset < bulk_.length) {
        if (offset >= bulk_.summed) sum_next_piece();
        const std::size_t piece = std::min(bulk_.summed - offset, send_piece_bytes);
        if (!bulk_.cancelled) {
            add(bulk_.source + offset, piece);
            offset += piece;
        } else {
            for (std::size_t left = piece; left > 0 && part_count + 1 < parts_max;) {
                const std::size_t bytes = std::min(left, zero_bytes);
                add(zeros, bytes);
                left -= bytes;
                offset += bytes;
            }
        }
    }
    if (offset < bulk_.length || !bulk_.has_checksum) {
        has_more = true;
        return added;
    }
    const std::size_t trailer_offset = offset - bulk_.length;
    add(bulk_.trailer.data() + trailer_offset, trailer_bytes - trailer_offset);
    return added;
}

void Link::consume_sent(std::size_t bytes, std::vector<core::Event>& events) {
    if (!bulk_.begun) {
        const std::size_t control = std::min(bytes, queued_control_bytes());
        control_begin_ += control;
        bytes -= control;
        if (control_begin_ == control_.size()) {
            control_.clear();
            control_begin_ = 0;
            if (control_.capacity() > (1u << 16)) control_.shrink_to_fit();
        } else if (control_begin_ > (1u << 16) && control_begin_ > control_.size() / 2) {
            control_.erase(0, control_begin_);
            control_begin_ = 0;
        }
    }
    if (bytes == 0) return;
    bulk_.begun = true;
    bulk_.position += bytes;
    if (bulk_.position < frame_head_bytes + bulk_.length + trailer_bytes) return;
    events.push_back(core::PayloadSent{id_, bulk_.checksum, bulk_.cancelled});
    bulk_.active = false;
    bulk_.begun = false;
    bulk_.source = nullptr;
}

Link::Outcome Link::send(std::size_t budget_bytes, std::vector<core::Event>& events) {
    Outcome outcome;
    while (has_output()) {
        if (outcome.bytes >= budget_bytes) {
            outcome.progress = Progress::more;
            return outcome;
        }
        iovec parts[parts_max];
        std::size_t part_count = 0;
        std::size_t wanted = 0;
        bool has_more = false;
        if (!bulk_.begun && queued_control_bytes() > 0) {
            parts[part_count++] = {control_.data() + control_begin_, queued_control_bytes()};
            wanted += queued_control_bytes();
        }
        if (bulk_.active) wanted += add_bulk(parts, part_count, has_more);
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = part_count;
        const ssize_t result = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | (has_more ? MSG_MORE : 0));
        if (result < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return outcome;
            outcome.progress = Progress::closed;
            outcome.reason = error_text("send");
            return outcome;
        }
        const std::size_t sent = static_cast<std::size_t>(result);
        outcome.bytes += sent;
        const std::size_t events_before = events.size();
        consume_sent(sent, events);
        outcome.events += static_cast<std::uint32_t>(events.size() - events_before);
        if (events.size() != events_before) {
            outcome.progress = Progress::more;
            return outcome;
        }
        if (sent < wanted) return outcome;  // no room
    }
    return outcome;
}

}  // namespace pccl::real
