// The master's machine under hostile links and altered messages. See world.hpp.
#include "world.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    fuzz::play(input, fuzz::Target::master);
    return 0;
}
