// Options of sockets.
#include "net-real/sockets.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace pccl;
using namespace pccl::real;

TEST_CASE("the congestion control follows from the path") {
    const auto chosen = [](bool loopback, core::Duration round_trip) {
        const char* name = congestion_control_for(loopback, round_trip);
        return std::string(name == nullptr ? "the system's" : name);
    };
    CHECK(chosen(true, 0) == "cubic");
    CHECK(chosen(true, core::second) == "cubic");
    CHECK(chosen(false, 0) == "the system's");  // the round trip is not known
    CHECK(chosen(false, 4 * core::millisecond) == "the system's");
    CHECK(chosen(false, 5 * core::millisecond) == "bbr");
    CHECK(chosen(false, 300 * core::millisecond) == "bbr");
}
