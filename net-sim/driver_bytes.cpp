// Bytes of a driver's links: encoding what leaves, decoding what arrives.
#include "net-sim/driver.hpp"
#include "net-sim/world.hpp"

#include <algorithm>
#include <cstring>

namespace pccl::sim {

using namespace core;

void Driver::control_added(Link& link) {
    link.control_waits.push_back({link.control_left + link.encoder.queued_bytes(), world_.now_});
}

void Driver::pump(Link& link) {
    if (!link.opened) return;
    Instant ready = world_.now_;  // when the oldest frame of this write was queued
    std::size_t room = world_.network_.room(link.connection, link.side);
    leaving_.clear();
    leaving_zeros_.clear();
    while (room != 0 && link.encoder.has_output()) {
        may_lie(link, room);
        const auto next = link.encoder.next(room);
        for (std::size_t i = 0; i < next.count; ++i) {
            const auto& piece = next.pieces[i];
            if (piece.data == nullptr)
                leaving_zeros_.push_back(ZeroRun{leaving_.size(), piece.bytes});
            else
                leaving_.insert(leaving_.end(), piece.data, piece.data + piece.bytes);
        }
        room -= next.bytes;
        const std::size_t queued = link.encoder.queued_bytes();
        const auto finished = link.encoder.sent(next.bytes);
        const std::uint64_t control = queued - link.encoder.queued_bytes();
        if (control != 0) ready = std::min(ready, link.control_waits.front().since);
        link.control_left += control;
        while (!link.control_waits.empty() && link.control_waits.front().end <= link.control_left)
            link.control_waits.pop_front();
        if (finished.has_value()) payload_left(link, *finished);
    }
    if (!leaving_.empty() || !leaving_zeros_.empty())
        world_.network_.write(link.connection, link.side, leaving_, leaving_zeros_, ready);
    if (link.encoder.has_output()) world_.network_.want_room(link.connection, link.side);
    if (link.closing && link.encoder.queued_bytes() == 0 && !link.gone) {
        world_.network_.close(link.connection, link.side, true);
        drop(link);
    }
}

// Damages a chunk with the chance wrong_chunks_per_million. Decided when its first byte is about to leave.
void Driver::may_lie(Link& link, std::size_t room) {
    Sending& sending = link.sending;
    if (sending.copy.empty() || sending.cancelled) return;
    const auto before = link.encoder.bytes_before_payload();
    if (!before.has_value() || room <= *before) return;
    if (world_.lies_.chance(world_.parameters_.wrong_chunks_per_million)) sending.copy.front() ^= 1;
}

void Driver::payload_left(Link& link, const wire::FrameEncoder::Finished& finished) {
    Sending& sending = link.sending;
    sending.complete = true;
    if (!finished.cancelled) {
        if (sending.what.has_checksum && !world_.lies(node_) &&
            buffers_.checksum(sending.what.source) != finished.checksum)
            contract_broken("gave a checksum that is not the payload's: " + to_text(Effect(sending.what)));
        sending.what.checksum = finished.checksum;
    }
    if (!link.closing) schedule(world_.now_, ItemKind::payload_sent, link.id, 0);
}

void Driver::bytes_arrived(LinkId id, std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) {
        if (piece.data != nullptr) {
            read(id, std::span(piece.data, piece.length));
        } else if (Link* link = find(id)) {
            decode_zeros(*link, piece.length);
        }
    }
    tidy();
}

void Driver::read(LinkId id, std::span<const std::uint8_t> bytes) {
    if (!world_.network_.tiny_read()) {
        if (Link* link = find(id)) decode(*link, bytes);
        return;
    }
    // The same bytes in small reads. Only the first 100 reads are small: long payloads would cost too much.
    Draw& draw = world_.network_.segments();
    std::size_t at = 0;
    for (int reads = 0; at < bytes.size(); ++reads) {
        const std::size_t rest = bytes.size() - at;
        const std::size_t part =
            reads > 100 ? rest : std::min<std::size_t>(rest, 1 + (draw.below(2) != 0 ? draw.below(24) : 0));
        Link* link = find(id);
        if (link == nullptr) break;
        decode(*link, bytes.subspan(at, part));
        at += part;
    }
}

// Only symbolic payload arrives as zeros.
void Driver::decode_zeros(Link& link, std::size_t length) {
    if (link.closing || must_die_ || !halted_.empty() || world_.violated()) return;
    if (length > link.decoder.payload_remaining()) {
        if (!may_be_false(link)) return contract_broken("zeros that are no payload");
        const std::vector<std::uint8_t> zeros(length);
        return decode(link, zeros);
    }
    link.decoder.skip_payload(static_cast<std::uint32_t>(length));
    note_activity(link);
}

void Driver::decode(Link& link, std::span<const std::uint8_t> bytes) {
    using Kind = wire::FrameDecoder::Kind;
    if (link.closing) return;
    const LinkId id = link.id;
    bool whole_frame = false;
    // An item may consume no bytes (the end of an empty payload), so the loop ends on `more`.
    while (!link.gone && !link.closing && !must_die_ && !world_.violated()) {
        const std::uint32_t position = link.decoder.payload_position();
        const auto item = link.decoder.push(bytes);
        const auto used = bytes.first(item.consumed);
        bytes = bytes.subspan(item.consumed);
        if (item.kind == Kind::more) break;
        switch (item.kind) {
        case Kind::control:
            whole_frame = true;
            record_arrived(link, false);
            give(ControlArrived{id, item.body});
            break;
        case Kind::flow:
            whole_frame = true;
            record_arrived(link, false);
            give(FlowArrived{id, item.flow});
            break;
        case Kind::bulk:
            link.receiving = Receiving::undecided;
            link.arriving = item.bulk;
            give(BulkArrived{id, item.bulk});
            if (!link.gone && !link.closing && link.receiving == Receiving::undecided && !must_die_)
                contract_broken("did not decide about a bulk frame");
            break;
        case Kind::payload:
            if (link.receiving == Receiving::into && !used.empty() && !buffers_.symbolic()) {
                std::memcpy(buffers_.at(link.target) + position, used.data(), used.size());
            }
            break;
        case Kind::trailer: {
            whole_frame = true;
            PayloadLanded landed;
            landed.link = id;
            if (item.trailer.abandoned) {
                landed.verdict = PayloadLanded::Verdict::abandoned;
            } else if (link.receiving != Receiving::into) {
                landed.verdict = PayloadLanded::Verdict::discarded;
            } else {
                landed.checksum = buffers_.checksum(link.target);
                if (landed.checksum != item.trailer.checksum) {
                    landed.verdict = PayloadLanded::Verdict::corrupt;
                    if (!may_be_false(link))
                        contract_broken("payload changed on its way, or its target was written meanwhile");
                } else {
                    carried_.landed(link.arriving);
                    if (link.arriving.phase == 2) {
                        world_.chunk_landed_ = world_.now_;
                        if (world_.message_watch_ != nullptr)
                            world_.message_watch_->chunk_arrived(node_, far_end(link.id));
                    }
                }
            }
            buffers_.unlock(Use::receive, id);
            link.receiving = Receiving::nothing;
            record_arrived(link, true);
            give(landed);
            if ((landed.verdict == PayloadLanded::Verdict::corrupt || world_.untruth_ == Untruth::damage_borne) &&
                !link.gone && !link.closing && !must_die_ && halted_.empty())
                contract_broken("keeps a link over which payload came damaged");
            break;
        }
        case Kind::refused:
            if (!may_be_false(link) &&
                !world_.stranger(world_.network_.peer_of(link.connection, link.side))) {
                return contract_broken(std::string("bytes refused that no fault has touched: ") +
                                       wire::to_text(item.error));
            }
            give(FrameRefused{id, item.error, link.decoder.refused_version()});
            if (!link.gone && !link.closing && !must_die_ && halted_.empty())
                contract_broken("keeps a link whose bytes were refused");
            return;
        case Kind::more: break;
        }
    }
    if (!whole_frame && !link.gone && !link.closing) note_activity(link);
}

// Part of a long frame is a sign of life too. Reported at most every 50 ms.
void Driver::note_activity(Link& link) {
    if (world_.now_ - link.noticed < 50 * millisecond) return;
    link.noticed = world_.now_;
    give(LinkActivity{link.id, link.decoder.payload_remaining() != 0 ? link.decoder.payload_position() : 0});
}

}  // namespace pccl::sim
