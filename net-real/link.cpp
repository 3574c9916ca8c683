#include "net-real/link.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace pccl::real {

namespace {

// Limits of one receive or send: large enough to be cheap, small enough to be in the cache for the checksum.
constexpr std::size_t receive_piece_bytes = 256u << 10;
constexpr std::size_t send_piece_bytes = 1u << 20;

std::string error_text(const char* what, const Stream& stream) {
    return core::formatted("{}: {}", what, stream.error_text());
}

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

// Payload goes to its place, or to `discard`; what follows it, and everything else, to `space`.
Link::Piece Link::read_piece(std::span<std::uint8_t> space, std::span<std::uint8_t> discard, Outcome& outcome) {
    iovec parts[2];
    std::size_t part_count = 1;
    std::size_t direct = 0;
    std::size_t wanted = 0;
    const std::size_t remaining = decoder_.payload_remaining();
    if (remaining > 0) {
        direct = std::min(remaining, receive_piece_bytes);
        std::uint8_t* base = discard.data();
        if (landing_ == Landing::place)
            base = landing_target_ + decoder_.payload_position();
        else
            direct = std::min(direct, discard.size());
        parts[0] = {base, direct};
        wanted = direct;
        if (direct == remaining) {
            parts[1] = {space.data(), tail_bytes};
            part_count = 2;
            wanted += tail_bytes;
        }
    } else {
        parts[0] = {space.data(), space.size()};
        wanted = space.size();
    }
    ssize_t result = -1;
    do {
        result = stream_.receive({parts, part_count});
    } while (result < 0 && errno == EINTR);
    Piece piece;
    if (result <= 0) {
        piece.failed = true;
        if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return piece;
        outcome.progress = Progress::closed;
        outcome.reason = result < 0 ? error_text("receive", stream_) : "closed by the other end";
        return piece;
    }
    const std::size_t bytes = static_cast<std::size_t>(result);
    piece.was_full = bytes == wanted;
    outcome.bytes += bytes;
    const std::size_t placed = std::min(direct, bytes);
    piece.behind = bytes - placed;
    if (placed > 0) {
        landed(static_cast<const std::uint8_t*>(parts[0].iov_base), placed);
        decoder_.skip_payload(static_cast<std::uint32_t>(placed));
    }
    return piece;
}

Link::Outcome Link::receive(ReceiveSpace& space, EventSink& sink, std::size_t budget_bytes, Until until) {
    Outcome outcome;
    if (behind_bytes_ != 0) {
        outcome.events += digest({behind_.data(), std::exchange(behind_bytes_, 0)}, sink);
        if (!behind_was_full_) return outcome;
    }
    while (!input_closed_) {
        if (outcome.bytes >= budget_bytes || (until == Until::payload && awaits_payload())) {
            outcome.progress = Progress::more;
            return outcome;
        }
        const Piece piece = read_piece(space.staging, space.discard, outcome);
        if (piece.failed) return outcome;
        if (piece.behind > 0) outcome.events += digest({space.staging.data(), piece.behind}, sink);
        if (!piece.was_full) return outcome;  // the stream is empty, or at its end (the next wait reports that)
    }
    return outcome;
}

Link::Outcome Link::take_payload(std::size_t budget_bytes) {
    Outcome outcome;
    while (awaits_payload()) {
        if (outcome.bytes >= budget_bytes) break;
        const Piece piece = read_piece(behind_, {}, outcome);
        if (piece.failed) return outcome;
        behind_bytes_ = piece.behind;
        behind_was_full_ = piece.was_full;
        if (!piece.was_full && piece.behind == 0) return outcome;
    }
    outcome.progress = Progress::more;
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
            // The contract requires an answer. If there is none, discard: bytes of strangers must not end the process.
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
    encoder_.queue_control({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
}

void Link::queue_flow(const core::wire::FlowWord& word) { encoder_.queue_flow(word); }

void Link::send_payload(const core::SendPayload& command, const std::uint8_t* source) {
    ASSERT(command.header.length == command.source.length);
    encoder_.begin_payload(command.header, source,
                           command.has_checksum ? std::optional(command.checksum) : std::nullopt);
    has_sent_payload_ = true;
}

bool Link::cancel_send() { return encoder_.cancel_payload(); }

Link::Outcome Link::send(std::size_t budget_bytes, std::vector<core::Event>& events) {
    Outcome outcome;
    while (has_output()) {
        if (outcome.bytes >= budget_bytes) {
            outcome.progress = Progress::more;
            return outcome;
        }
        const auto next = encoder_.next(encoder_.queued_bytes() + send_piece_bytes);
        iovec parts[core::wire::FrameEncoder::Outgoing::pieces_max];
        for (std::size_t i = 0; i < next.count; ++i)
            parts[i] = {const_cast<std::uint8_t*>(next.pieces[i].data), next.pieces[i].bytes};
        const ssize_t result = stream_.send({parts, next.count}, next.more);
        if (result < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return outcome;
            outcome.progress = Progress::closed;
            outcome.reason = error_text("send", stream_);
            return outcome;
        }
        const std::size_t sent = static_cast<std::size_t>(result);
        outcome.bytes += sent;
        if (const auto finished = encoder_.sent(sent)) {
            events.push_back(core::PayloadSent{id_, finished->checksum, finished->cancelled});
            ++outcome.events;
            outcome.progress = Progress::more;
            return outcome;
        }
        if (sent < next.bytes) return outcome;  // no room
    }
    return outcome;
}

}  // namespace pccl::real
