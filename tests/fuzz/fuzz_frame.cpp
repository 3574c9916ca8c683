// The frame decoder under any bytes: no crash, no more memory than its limits, and the same items wherever the bytes
// are cut.
//
// The first byte chooses the mode: plain bytes, encoded frames (so that checksums are right and deep states are
// reached), or encoded frames with one byte changed. The second byte seeds the cuts.
#include "input.hpp"

#include "core/base/random.hpp"
#include "core/wire/frame.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace pccl::core;
using Kind = wire::FrameDecoder::Kind;

[[noreturn]] void broken(const char* what) {
    std::fprintf(stderr, "fuzz_frame: %s\n", what);
    std::abort();
}

Limits small_limits() {
    Limits limits;
    limits.control_bytes_max = 4096;
    limits.payload_bytes_max = 8192;
    return limits;
}

// One decoded item as text, so that two decodings can be compared. Payload pieces are merged by the caller.
std::string describe(const wire::FrameDecoder::Item& item) {
    const auto text = [](auto... numbers) { return ((std::to_string(numbers) + " ") + ...); };
    switch (item.kind) {
    case Kind::control: return "control " + std::string(item.body.begin(), item.body.end());
    case Kind::flow:
        return "flow " +
               text(item.flow.op, item.flow.slice, item.flow.value, int(item.flow.kind), int(item.flow.phase));
    case Kind::bulk:
        return "bulk " + text(item.bulk.op, item.bulk.slice, item.bulk.phase, item.bulk.flags, item.bulk.entry,
                              item.bulk.length, item.bulk.reserved);
    case Kind::trailer: return "trailer " + text(item.trailer.checksum, int(item.trailer.abandoned));
    case Kind::refused: return std::string("refused ") + wire::to_text(item.error);
    case Kind::more:
    case Kind::payload: break;
    }
    return {};
}

// Decodes `bytes`, cut into pieces by `random` (null: one piece). Some payload is skipped instead of pushed.
std::vector<std::string> decode(const std::string& bytes, Random* random) {
    const Limits limits = small_limits();
    wire::FrameDecoder decoder(limits);
    std::vector<std::string> items;
    std::string payload;
    std::size_t at = 0;
    bool refused = false;
    while (at < bytes.size() && !refused) {
        std::size_t piece =
            random == nullptr ? bytes.size() - at : 1 + random->below(random->below(4) == 0 ? 3000 : 20);
        piece = std::min(piece, bytes.size() - at);
        std::span<const std::uint8_t> rest(reinterpret_cast<const std::uint8_t*>(bytes.data()) + at, piece);
        at += piece;
        while (!rest.empty() && !refused) {
            if (random != nullptr && decoder.payload_remaining() > 0 && random->below(2) == 0) {
                const auto skipped =
                    static_cast<std::uint32_t>(std::min<std::size_t>(rest.size(), decoder.payload_remaining()));
                payload.append(rest.begin(), rest.begin() + skipped);
                decoder.skip_payload(skipped);
                rest = rest.subspan(skipped);
                continue;
            }
            const std::uint32_t position = decoder.payload_position();
            const auto item = decoder.push(rest);
            if (item.consumed > rest.size()) broken("consumed more than there is");
            if (item.kind == Kind::control && item.body.size() > limits.control_bytes_max)
                broken("body over the limit");
            if (item.kind == Kind::bulk && item.bulk.length > limits.payload_bytes_max)
                broken("payload over the limit");
            if (item.kind == Kind::payload) {
                if (item.consumed == 0) broken("empty payload piece");
                if (position != payload.size()) broken("payload position");
                payload.append(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(item.consumed));
            } else if (item.kind == Kind::more) {
                if (item.consumed != rest.size()) broken("wants more but left bytes");
            } else {
                if (item.kind == Kind::trailer) items.push_back("payload " + payload);
                if (item.kind == Kind::bulk) payload.clear();
                items.push_back(describe(item));
                refused = item.kind == Kind::refused;
            }
            rest = rest.subspan(item.consumed);
        }
    }
    if (refused) {
        // A decoder that has refused bytes refuses all further ones.
        const std::uint8_t more[40] = {};
        if (decoder.push(more).kind != Kind::refused) broken("a refused decoder accepts bytes");
    }
    return items;
}

void append_frame(std::string& out, fuzz::Input& input) {
    switch (input.byte() % 3) {
    case 0: {
        const std::string body = input.bytes(input.below(600));
        wire::append_control(out, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
        return;
    }
    case 1: {
        wire::FlowWord word;
        word.op = input.number(8);
        word.slice = static_cast<std::uint32_t>(input.number(4));
        word.value = static_cast<std::uint32_t>(input.number(4));
        word.kind = static_cast<wire::FlowKind>(1 + input.byte() % 4);
        word.phase = input.byte();
        wire::append_flow(out, word);
        return;
    }
    default: {
        wire::BulkHeader header;
        const std::string payload = input.bytes(input.below(600));
        header.op = input.number(8);
        header.slice = static_cast<std::uint32_t>(input.number(4));
        header.phase = input.byte();
        header.entry = input.number(2);
        header.length = static_cast<std::uint32_t>(payload.size());
        const auto head = wire::encode_bulk(header);
        const auto tail = wire::encode_trailer({input.number(8), (input.byte() & 1) != 0});
        out.append(head.begin(), head.end());
        out += payload;
        out.append(tail.begin(), tail.end());
    }
    }
}

std::string make_bytes(fuzz::Input& input, std::uint8_t mode) {
    if (mode % 3 == 0) return input.all();
    const std::size_t place = input.number(2);
    const std::uint8_t change = input.byte();
    std::string bytes;
    while (!input.empty() && bytes.size() < 60'000) append_frame(bytes, input);
    if (mode % 3 == 2 && !bytes.empty()) bytes[place % bytes.size()] ^= static_cast<char>(change);
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t mode = input.byte();
    Random cuts(input.byte());
    const std::string bytes = make_bytes(input, mode);
    const std::vector<std::string> whole = decode(bytes, nullptr);
    for (int turn = 0; turn < 3; ++turn) {
        if (decode(bytes, &cuts) != whole) broken("items depend on how the bytes are cut");
    }
    return 0;
}
