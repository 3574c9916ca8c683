// The frame encoder against the decoder: the input chooses what is sent, what is cancelled and where it is cut.
#include "codec_play.hpp"
#include "input.hpp"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    try {
        codec::Play<fuzz::Input>(input).run(static_cast<int>(std::min<std::size_t>(size, 2000)));
    } catch (const std::logic_error& broken) {
        std::fprintf(stderr, "fuzz_codec: %s\n", broken.what());
        std::abort();
    }
    return 0;
}
