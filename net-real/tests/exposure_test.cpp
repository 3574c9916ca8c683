// Which addresses count as public.
#include "net-real/exposure.hpp"
#include "net-real/settings.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::real;

TEST_CASE("only addresses that strangers can reach are public") {
    const auto at = [](const char* text) {
        core::Endpoint endpoint;
        REQUIRE(parse_endpoint(text, endpoint));
        return endpoint;
    };
    for (const char* text : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.1", "192.168.1.1", "169.254.1.1", "::1",
                             "fc00::1", "fd12::1", "fe80::1", "0.0.0.0", "::", "192.0.2.2", "100.64.0.1",
                             "100.127.1.1", "198.51.100.7", "203.0.113.9", "2001:db8::1"}) {
        INFO(text);
        CHECK_FALSE(is_public(at(text)));
    }
    for (const char* text :
         {"8.8.8.8", "172.15.0.1", "172.32.0.1", "192.169.0.1", "11.0.0.1", "100.63.0.1", "100.128.0.1", "192.0.3.1", "2001:db9::1", "fe00::1"}) {
        INFO(text);
        CHECK(is_public(at(text)));
        CHECK(public_address_of(at(text)));
    }
    CHECK_FALSE(public_address_of(at("127.0.0.1")));
}
