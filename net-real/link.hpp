// One connection. It turns the bytes of a stream into events, places payload in memory, and sends control and bulk
// frames.
//
// Not here: opening, accepting, waiting for readiness, ids, timers (see event_loop.hpp). A Link works on any stream that
// is open (streams/stream.hpp) and does not own it.
//
// Payload is received directly into the memory that the machine named, together with a few bytes behind it (trailer and
// next header). Payload is sent directly from its memory. Checksums are computed while the bytes are in the cache. Both
// directions do a bounded amount of work per call. The encoder decides the order of output
// (core/wire/frame_encoder.hpp).
//
// receive() calls the sink for every event. The sink may call any other member of the same link. After close_input()
// the link reports no further event.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/events.hpp"
#include "core/numeric/kernels.hpp"
#include "core/wire/frame.hpp"
#include "core/wire/frame_encoder.hpp"
#include "net-real/streams/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::real {

class EventSink {
public:
    virtual void on_event(const core::Event& event) = 0;

protected:
    ~EventSink() = default;
};

// Memory that all links of one thread share. Nothing stays in it between two calls.
struct ReceiveSpace {
    static constexpr std::size_t staging_bytes = 32u << 10;  // headers, control frames, the first bytes of a payload
    static constexpr std::size_t discard_bytes = 256u << 10;
    std::vector<std::uint8_t> staging = std::vector<std::uint8_t>(staging_bytes);
    std::vector<std::uint8_t> discard = std::vector<std::uint8_t>(discard_bytes);
};

class Link {
public:
    // drained: wait until the stream is ready again. more: call again, there may be more to do.
    // closed: the connection is over; `reason` names the cause.
    enum class Progress : std::uint8_t { drained, more, closed };
    struct Outcome {
        Progress progress = Progress::drained;
        std::size_t bytes = 0;
        std::uint32_t events = 0;
        std::string reason;
    };

    Link(core::LinkId id, Stream& stream, const core::Limits& limits) : id_(id), stream_(stream), decoder_(limits) {}

    core::LinkId id() const { return id_; }

    // ---- receiving
    // How far receive() goes: until the budget is used or nothing is there, or until take_payload() can go on.
    enum class Until : std::uint8_t { drained, payload };
    Outcome receive(ReceiveSpace& space, EventSink& sink, std::size_t budget_bytes, Until until = Until::drained);
    // Whether payload is to come whose place is known.
    bool awaits_payload() const {
        return landing_ == Landing::place && decoder_.payload_remaining() != 0 && behind_bytes_ == 0 && !input_closed_;
    }
    // Receives payload into its place, as receive() does, and nothing else: no sink is called, and nothing is touched
    // but this link, its stream and that place. So it may run beside other links. `more`: receive() is to be called.
    Outcome take_payload(std::size_t budget_bytes);
    // Answers to BulkArrived. `target` has room for `length` bytes, which must be the payload's length.
    void receive_payload(std::uint8_t* target, std::uint64_t length);
    void discard_payload();
    void redirect_receive() { discard_payload(); }
    // The machine has closed the link: it gets no further events.
    void close_input() { input_closed_ = true; }
    // How many bytes of the arriving payload are there; 0: none is arriving.
    std::uint32_t payload_arrived() const {
        return decoder_.payload_remaining() != 0 ? decoder_.payload_position() : 0;
    }
    bool is_input_closed() const { return input_closed_; }  // by close_input(), or because its bytes were refused

    // ---- sending
    void queue_control(std::string_view body);
    void queue_flow(const core::wire::FlowWord& word);
    void send_payload(const core::SendPayload& command, const std::uint8_t* source);
    // True: the frame had not begun and is dropped; PayloadSent{cancelled} is due at once.
    bool cancel_send();
    bool is_sending() const { return encoder_.has_payload(); }
    bool has_output() const { return encoder_.has_output(); }
    std::size_t queued_control_bytes() const { return encoder_.queued_bytes(); }
    // Sends what the stream takes. When a payload has been sent, it appends PayloadSent to `events` and returns at once
    // with `more`, so that the next payload can be given. `drained` with has_output(): wait until the stream has room.
    Outcome send(std::size_t budget_bytes, std::vector<core::Event>& events);
    bool has_sent_payload() const { return has_sent_payload_; }

private:
    enum class Landing : std::uint8_t { none, undecided, place, discard };
    // Read together with the end of a payload: its trailer and the next bulk header. One byte more could be payload of
    // the next frame, which would then have to be copied.
    static constexpr std::size_t tail_bytes =
        core::wire::trailer_bytes + core::wire::prefix_bytes + core::wire::bulk_header_bytes;
    // What one call of the stream gave. `behind`: bytes in the caller's space, behind those of the payload.
    struct Piece {
        std::size_t behind = 0;
        bool was_full = false;  // there may be more
        bool failed = false;    // the outcome says what to do
    };
    Piece read_piece(std::span<std::uint8_t> space, std::span<std::uint8_t> discard, Outcome& outcome);
    std::uint32_t digest(std::span<const std::uint8_t> bytes, EventSink& sink);
    void landed(const std::uint8_t* data, std::size_t bytes);

    core::LinkId id_;
    Stream& stream_;
    bool input_closed_ = false;
    bool has_sent_payload_ = false;

    core::wire::FrameDecoder decoder_;
    Landing landing_ = Landing::none;
    std::uint8_t* landing_target_ = nullptr;
    core::numeric::Checksum64 landing_checksum_;
    std::array<std::uint8_t, tail_bytes> behind_{};  // what take_payload() got behind the payload
    std::size_t behind_bytes_ = 0;
    bool behind_was_full_ = false;  // there may be more behind them

    core::wire::FrameEncoder encoder_;
};

}  // namespace pccl::real
