// The frame encoder against the decoder. Wherever frames are cut or cancelled, the decoder must read what the encoder
// was given.
#include "core/base/random.hpp"
#include "tests/fuzz/codec_play.hpp"

#include <catch2/catch.hpp>

using namespace pccl::core;

TEST_CASE("the decoder reads what was given to the encoder, however it is cut and whatever is cancelled") {
    codec::Played sum;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        Random random(seed);
        codec::Played played;
        INFO("seed " << seed);
        REQUIRE_NOTHROW(played = codec::Play<Random>(random).run(400));
        sum.frames += played.frames;
        sum.dropped += played.dropped;
        sum.abandoned += played.abandoned;
        sum.whole_though_cancelled += played.whole_though_cancelled;
    }
    // Every way in which a frame can end occurred.
    CHECK(sum.frames > 10'000);
    CHECK(sum.dropped > 100);
    CHECK(sum.abandoned > 100);
    CHECK(sum.whole_though_cancelled > 0);
}

TEST_CASE("payload without content is counted and has the checksum it was given") {
    wire::FrameEncoder encoder;
    wire::BulkHeader header;
    header.length = 1'000'000;
    encoder.begin_payload(header, nullptr, 42);
    std::size_t counted = 0;
    std::optional<wire::FrameEncoder::Finished> finished;
    while (!finished.has_value()) {
        const auto next = encoder.next(4096);
        for (std::size_t i = 0; i < next.count; ++i)
            if (next.pieces[i].data == nullptr) counted += next.pieces[i].bytes;
        finished = encoder.sent(next.bytes);
    }
    CHECK(counted == header.length);
    CHECK(finished->checksum == 42);
}
