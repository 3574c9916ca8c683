// Both ends of TLS connections under changed handshakes and first frames: the input chooses who dials whom, and what is
// changed. See tls_play.hpp for what must hold.
#include "input.hpp"
#include "tls_play.hpp"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static tls_play::World world;
    fuzz::Input input(data, size);
    try {
        tls_play::Play<fuzz::Input>(world, input).run();
    } catch (const std::logic_error& broken) {
        std::fprintf(stderr, "fuzz_tls: %s\n", broken.what());
        std::abort();
    }
    return 0;
}
