// Plays the frame encoder against the decoder, over any order of sends, cancels and cuts. The caller makes the choices:
// a seeded generator, or the bytes of a fuzzer. `Choices` has below(bound), which returns a number below it.
#pragma once

#include "core/wire/frame_encoder.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace codec {

using namespace pccl::core;

struct Played {
    std::size_t frames = 0, dropped = 0, abandoned = 0, whole_though_cancelled = 0, bytes = 0;
};

template <class Choices>
class Play {
public:
    explicit Play(Choices& choices) : choices_(choices), decoder_(limits()) {}

    Played run(int steps) {
        while (steps-- > 0) {
            switch (choices_.below(6)) {
            case 0: control(); break;
            case 1: flow(); break;
            case 2: payload(); break;
            case 3:
                if (encoder_.has_payload() && !cancelled_ && choices_.below(2) == 0) cancel();
                break;
            default: leave(1 + choices_.below(choices_.below(3) == 0 ? 5000 : 60)); break;
            }
        }
        // Each turn takes at least a byte. A fuzzer whose input is used up answers 0 for ever, which takes the most.
        while (encoder_.has_output()) leave(3000 - choices_.below(3000), 1);
        require(expected_.empty(), "a frame did not arrive");
        require(!encoder_.bytes_before_payload().has_value() && encoder_.queued_bytes() == 0,
                "the encoder kept something");
        return played_;
    }

private:
    struct Expected {
        std::string body;  // of a control frame
        std::optional<wire::FlowWord> word;
        std::optional<wire::BulkHeader> header;
        std::string content;
    };

    static Limits limits() {
        Limits limits;
        limits.control_bytes_max = 4096;
        limits.payload_bytes_max = 1u << 20;
        return limits;
    }
    static void require(bool holds, const char* what) {
        if (!holds) throw std::logic_error(what);
    }
    std::string text(std::size_t bytes) {
        std::string text(bytes, 'x');
        for (std::size_t i = 0; i < bytes; i += 7) text[i] = static_cast<char>(choices_.below(256));
        return text;
    }

    // Control frames and flow words overtake a payload frame that has not begun to leave.
    void expect(Expected frame) {
        const bool overtakes =
            !expected_.empty() && expected_.back().header.has_value() && !begun_ && encoder_.has_payload();
        expected_.insert(overtakes ? expected_.end() - 1 : expected_.end(), std::move(frame));
    }
    void control() {
        Expected frame;
        frame.body = text(choices_.below(200));
        expect(frame);
        encoder_.queue_control({reinterpret_cast<const std::uint8_t*>(frame.body.data()), frame.body.size()});
    }
    void flow() {
        Expected frame;
        frame.word = wire::FlowWord{choices_.below(99), static_cast<std::uint32_t>(choices_.below(99)), 7,
                                    static_cast<wire::FlowKind>(1 + choices_.below(5)), 1};
        expect(frame);
        encoder_.queue_flow(*frame.word);
    }
    void payload() {
        if (encoder_.has_payload()) return;
        Expected frame;
        const std::size_t length = choices_.below(4) == 0 ? choices_.below(300'000) : choices_.below(300);
        frame.content = text(length);
        wire::BulkHeader header;
        header.op = choices_.below(1000);
        header.length = static_cast<std::uint32_t>(length);
        frame.header = header;
        begun_ = cancelled_ = false;
        source_.assign(frame.content.begin(), frame.content.end());
        std::optional<std::uint64_t> checksum;
        if (choices_.below(3) == 0) checksum = numeric::checksum64(source_.data(), source_.size());
        expected_.push_back(std::move(frame));
        encoder_.begin_payload(header, source_.data(), checksum);
    }
    void cancel() {
        cancelled_ = true;
        // From now on the source belongs to the caller again.
        const bool dropped = encoder_.cancel_payload();
        std::fill(source_.begin(), source_.end(), std::uint8_t{0xEE});
        require(dropped == !begun_, "dropped although bytes had left, or not dropped although none had");
        if (!dropped) return;
        ++played_.dropped;
        require(expected_.back().header.has_value(), "the frame that was dropped is not the last one");
        expected_.pop_back();
    }
    void leave(std::size_t most, std::size_t least = 0) {
        const auto next = encoder_.next(most);
        require(next.bytes <= most && next.count <= wire::FrameEncoder::Outgoing::pieces_max,
                "more than was asked for");
        std::string bytes;
        for (std::size_t i = 0; i < next.count; ++i) {
            require(next.pieces[i].data != nullptr && next.pieces[i].bytes != 0, "an empty piece");
            bytes.append(reinterpret_cast<const char*>(next.pieces[i].data), next.pieces[i].bytes);
        }
        require(bytes.size() == next.bytes && (bytes.empty() == !encoder_.has_output()), "the sum of the pieces");
        if (bytes.empty()) return;
        const std::size_t taken =
            choices_.below(3) == 2 ? std::max(least, choices_.below(bytes.size() + 1)) : bytes.size();
        const std::size_t before_payload = begun_ ? 0 : encoder_.queued_bytes();
        const bool sends_payload = encoder_.has_payload();
        if (sends_payload && taken > before_payload) begun_ = true;
        const auto finished = encoder_.sent(taken);
        require(finished.has_value() == (sends_payload && !encoder_.has_payload()), "the end of a payload frame");
        if (finished.has_value()) {
            require(finished->cancelled == cancelled_, "whether it was cancelled");
            if (!cancelled_)
                require(finished->checksum == numeric::checksum64(source_.data(), source_.size()), "the checksum");
            std::fill(source_.begin(), source_.end(), std::uint8_t{0xDD});
            begun_ = false;
        }
        played_.bytes += taken;
        arrive(std::string_view(bytes).substr(0, taken));
    }

    void arrive(std::string_view bytes) {
        using Kind = wire::FrameDecoder::Kind;
        std::span<const std::uint8_t> rest(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        for (;;) {
            const auto item = decoder_.push(rest);
            if (item.kind == Kind::more) return;
            if (item.kind == Kind::payload)
                arriving_.append(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(item.consumed));
            rest = rest.subspan(item.consumed);
            if (item.kind == Kind::payload) continue;
            require(item.kind != Kind::refused, "refused");
            require(!expected_.empty(), "a frame that nobody sent");
            const Expected& next = expected_.front();
            if (item.kind == Kind::bulk) {
                require(next.header == item.bulk, "another payload frame");
                arriving_.clear();
                continue;
            }
            if (item.kind == Kind::control)
                require(!next.word && !next.header && next.body == std::string(item.body.begin(), item.body.end()),
                        "another body");
            if (item.kind == Kind::flow) require(next.word == item.flow, "another flow word");
            if (item.kind == Kind::trailer) trailer(next, item.trailer);
            ++played_.frames;
            expected_.pop_front();
        }
    }
    void trailer(const Expected& next, const wire::Trailer& trailer) {
        require(next.header.has_value() && arriving_.size() == next.content.size(), "the length of a payload");
        if (trailer.abandoned) {
            require(cancelled_, "marked as abandoned, though nobody cancelled it");
            ++played_.abandoned;
            return;
        }
        require(arriving_ == next.content, "the content of a payload");
        require(trailer.checksum == numeric::checksum64(arriving_.data(), arriving_.size()),
                "the checksum in the trailer");
        if (cancelled_) ++played_.whole_though_cancelled;
    }

    Choices& choices_;
    wire::FrameEncoder encoder_;
    wire::FrameDecoder decoder_;
    std::deque<Expected> expected_;     // in flight; a payload frame is the last one, unless it has begun
    std::vector<std::uint8_t> source_;  // of the payload frame that is being sent
    std::string arriving_;
    bool begun_ = false, cancelled_ = false;
    Played played_;
};

}  // namespace codec
