// Ports of routers by PCP and NAT-PMP: their bytes, and routers on loopback that answer wrongly or not at all. UPnP is in
// upnp_test.cpp, whole runs are in tests/integration/nat_test.cpp.
#include "net-real/event_loop.hpp"
#include "net-real/port_mapping/nat_pmp_messages.hpp"
#include "net-real/port_mapping/pcp_messages.hpp"
#include "net-real/port_mapping/router.hpp"
#include "net-real/port_mapping/way.hpp"
#include "net-real/sockets.hpp"
#include "net-real/tests/fake_router.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

using namespace pccl;
using namespace pccl::real;

namespace {

// The example: port 48149 of 192.168.1.2, for which the router at 203.0.113.11 gives 49149.
const pcp::Map map_request{v4(192, 168, 1, 2), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 48149, v4(0, 0, 0, 0, 48149),
                           3600};
// RFC 6887, 7.1 and 11.1
const Bytes map_request_bytes{
    2, 1, 0, 0, 0, 0, 0x0E, 0x10,                                    // version, MAP, reserved, 3600 s
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 168, 1, 2,        // client
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,                           // nonce
    6, 0, 0, 0, 0xBC, 0x15, 0xBC, 0x15,                              // TCP, reserved, 48149, wished 48149
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0,            // any outer address
};
// RFC 6887, 7.2 and 11.1
const Bytes map_answer_bytes{
    2, 129, 0, 0, 0, 0, 0x07, 0x08,                                  // version, answer to MAP, success, 1800 s
    0, 0, 0, 42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                 // epoch, reserved
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,                           // nonce
    6, 0, 0, 0, 0xBC, 0x15, 0xBF, 0xFD,                              // TCP, reserved, 48149, given 49149
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 203, 0, 113, 11,       // outer address
};

Bytes with(Bytes bytes, std::size_t at, std::uint8_t value) {
    bytes.at(at) = value;
    return bytes;
}

pcp::Kind kind_of(const Bytes& bytes) { return pcp::read_map(bytes, map_request).kind; }

}  // namespace

// ---- bytes

TEST_CASE("PCP: a request and its answer, byte by byte") {
    CHECK(bytes_of(pcp::write_map(map_request)) == map_request_bytes);
    const pcp::Answer answer = pcp::read_map(map_answer_bytes, map_request);
    CHECK(answer.kind == pcp::Kind::granted);
    CHECK(answer.life_s == 1800);
    CHECK(answer.outer == v4(203, 0, 113, 11, 49149));
    // Options that were not asked for may follow.
    Bytes longer = map_answer_bytes;
    longer.resize(64);
    CHECK(kind_of(longer) == pcp::Kind::granted);
    longer.resize(1100);
    CHECK(kind_of(longer) == pcp::Kind::granted);
    longer.resize(1104);
    CHECK(kind_of(longer) == pcp::Kind::ignored);
}

TEST_CASE("PCP: a request to forget a mapping has its nonce, and neither lifetime nor outer port") {
    pcp::Map request = map_request;
    request.lifetime_s = 0;
    request.wished = {};
    Bytes expected = map_request_bytes;
    for (const std::size_t at : {std::size_t{6}, std::size_t{7}, std::size_t{42}, std::size_t{43}}) expected[at] = 0;
    CHECK(bytes_of(pcp::write_map(request)) == expected);
}

TEST_CASE("PCP: what is no answer to the request is ignored") {
    for (std::size_t bytes = 0; bytes < map_answer_bytes.size(); ++bytes) {
        INFO(bytes << " bytes");
        const Bytes part(map_answer_bytes.begin(), map_answer_bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
        CHECK(kind_of(part) == pcp::Kind::ignored);
    }
    Bytes odd = map_answer_bytes;
    odd.push_back(0);
    CHECK(kind_of(odd) == pcp::Kind::ignored);
    CHECK(kind_of(map_request_bytes) == pcp::Kind::ignored);                  // no answer
    CHECK(kind_of(with(map_answer_bytes, 0, 3)) == pcp::Kind::ignored);       // version
    CHECK(kind_of(with(map_answer_bytes, 1, 128)) == pcp::Kind::ignored);     // opcode
    CHECK(kind_of(with(map_answer_bytes, 1, 130)) == pcp::Kind::ignored);
    CHECK(kind_of(with(map_answer_bytes, 36, 17)) == pcp::Kind::ignored);     // UDP
    CHECK(kind_of(with(map_answer_bytes, 41, 0x16)) == pcp::Kind::ignored);   // inner port
    for (std::size_t at = 24; at < 36; ++at) {
        INFO("byte " << at << " of the nonce");
        CHECK(kind_of(with(map_answer_bytes, at, 99)) == pcp::Kind::ignored);
        CHECK(kind_of(with(with(map_answer_bytes, 3, 2), at, 99)) == pcp::Kind::ignored);  // nor a refusal
    }
}

TEST_CASE("PCP: refusals, answers of other versions, and mappings of no use") {
    for (std::uint8_t result = 1; result < 20; ++result) {
        const pcp::Answer answer = pcp::read_map(with(map_answer_bytes, 3, result), map_request);
        CHECK(answer.kind == pcp::Kind::refused);
        CHECK(answer.result == result);
        CHECK(std::string(pcp::text_of(result)).size() > 10);
    }
    // NAT-PMP only (RFC 6886, 3.5), and the version of PCP before the one that was published.
    CHECK(kind_of({0, 129, 0, 1, 0, 0, 0, 42}) == pcp::Kind::other_version);
    CHECK(kind_of({0, 128, 0, 1, 0, 0, 0, 42, 0, 0, 0, 0}) == pcp::Kind::other_version);
    CHECK(kind_of(with(with(map_answer_bytes, 0, 1), 3, 1)) == pcp::Kind::other_version);
    CHECK(kind_of({0, 129, 0, 2, 0, 0, 0, 42}) == pcp::Kind::ignored);
    CHECK(kind_of({0, 129, 1, 1, 0, 0, 0, 42}) == pcp::Kind::ignored);
    CHECK(kind_of({0, 1, 0, 1, 0, 0, 0, 42}) == pcp::Kind::ignored);
    CHECK(kind_of({0, 129, 0, 1, 0, 0, 0}) == pcp::Kind::ignored);
    CHECK(kind_of(with(with(map_answer_bytes, 42, 0), 43, 0)) == pcp::Kind::unusable);  // port 0
    Bytes nowhere = map_answer_bytes;
    std::fill(nowhere.begin() + 56, nowhere.end(), std::uint8_t{0});
    CHECK(kind_of(nowhere) == pcp::Kind::unusable);
    CHECK(kind_of(with(map_answer_bytes, 44, 0x20)) == pcp::Kind::unusable);  // IPv6
    CHECK(kind_of(with(with(map_answer_bytes, 6, 0), 7, 0)) == pcp::Kind::unusable);  // no life
}

TEST_CASE("PCP: a sign of life") {
    const Bytes request(map_request_bytes.begin(), map_request_bytes.begin() + 24);
    CHECK(bytes_of(pcp::write_announce(map_request.client)) == with(with(with(request, 1, 0), 6, 0), 7, 0));
    Bytes answer(map_answer_bytes.begin(), map_answer_bytes.begin() + 24);
    CHECK(pcp::read_announce(answer).kind == pcp::Kind::ignored);
    answer[1] = 128;
    CHECK(pcp::read_announce(answer).kind == pcp::Kind::granted);
    CHECK(pcp::read_announce(with(answer, 3, 4)).kind == pcp::Kind::refused);
    for (std::size_t bytes = 0; bytes < answer.size(); ++bytes)
        CHECK(pcp::read_announce(std::span(answer).first(bytes)).kind == pcp::Kind::ignored);
}

TEST_CASE("NAT-PMP: requests and answers, byte by byte") {
    using nat_pmp::Kind;
    CHECK(bytes_of(nat_pmp::write_address_request()) == Bytes{0, 0});
    CHECK(bytes_of(nat_pmp::write_port_request(48149, 49149, 3600)) ==
          Bytes{0, 2, 0, 0, 0xBC, 0x15, 0xBF, 0xFD, 0, 0, 0x0E, 0x10});
    const Bytes address{0, 128, 0, 0, 0, 0, 0, 42, 203, 0, 113, 11};
    const Bytes port{0, 130, 0, 0, 0, 0, 0, 42, 0xBC, 0x15, 0xBF, 0xFD, 0, 0, 0x07, 0x08};
    CHECK(nat_pmp::read_address(address).kind == Kind::granted);
    CHECK(nat_pmp::read_address(address).outer == v4(203, 0, 113, 11));
    const nat_pmp::Answer given = nat_pmp::read_port(port, 48149);
    CHECK(given.kind == Kind::granted);
    CHECK(given.outer.port == 49149);
    CHECK(given.life_s == 1800);
    for (std::size_t bytes = 0; bytes < port.size(); ++bytes)
        CHECK(nat_pmp::read_port(std::span(port).first(bytes), 48149).kind == Kind::ignored);
    for (std::size_t bytes = 0; bytes < address.size(); ++bytes)
        CHECK(nat_pmp::read_address(std::span(address).first(bytes)).kind == Kind::ignored);
    CHECK(nat_pmp::read_port(port, 48150).kind == Kind::ignored);
    CHECK(nat_pmp::read_port(with(port, 0, 2), 48149).kind == Kind::ignored);
    CHECK(nat_pmp::read_port(address, 48149).kind == Kind::ignored);
    CHECK(nat_pmp::read_address(port).kind == Kind::ignored);
    CHECK(nat_pmp::read_port(with(with(port, 10, 0), 11, 0), 48149).kind == Kind::unusable);
    CHECK(nat_pmp::read_port(with(with(port, 14, 0), 15, 0), 48149).kind == Kind::unusable);
    CHECK(nat_pmp::read_address({{0, 128, 0, 0, 0, 0, 0, 42, 0, 0, 0, 0}}).kind == Kind::unusable);
    for (std::uint8_t result = 1; result < 6; ++result) {
        const Bytes refusal{0, 130, 0, result, 0, 0, 0, 42};
        CHECK(nat_pmp::read_port(refusal, 48149).kind == Kind::refused);
        CHECK(nat_pmp::read_port(refusal, 48149).result == result);
    }
}

TEST_CASE("the life of a mapping is bounded, whatever the router says") {
    CHECK(bounded_life(0) == 2);
    CHECK(bounded_life(3600) == 3600);
    CHECK(bounded_life(4'294'967'295u) == 86'400);
}

// ---- conversations

namespace {

// To a request for a mapping, as a router would answer.
Bytes answer_to(const Bytes& request, std::uint32_t life_s = 1800) {
    Bytes answer = map_answer_bytes;
    write_number(std::span(answer).subspan(4, 4), life_s);
    if (request.size() >= 60) std::copy_n(request.begin() + 24, 18, answer.begin() + 24);
    return answer;
}

}  // namespace

TEST_CASE("PCP: a mapping is taken from among answers that are none, and the request is repeated") {
    int requests = 0;
    FakeRouter fake([&](const Bytes& request) -> std::vector<Bytes> {
        if (++requests < 3) return {};
        const Bytes good = answer_to(request);
        return {{}, Bytes(2000, 1), with(good, 25, static_cast<std::uint8_t>(good[25] + 1)), with(good, 1, 130), good};
    });
    const auto way = make_pcp(fake.router(), fake.port);
    Grant grant;
    std::string why;
    INFO(why);
    REQUIRE(way->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
    CHECK(grant.outer == v4(203, 0, 113, 11, 49149));
    CHECK(grant.life_s == 1800);
}

TEST_CASE("PCP: a nonce follows from what nobody else knows") {
    const pcp::Nonce nonce = pcp::make_nonce("secret", v4(192, 168, 1, 2), 48149);
    CHECK(nonce == pcp::make_nonce("secret", v4(192, 168, 1, 2, 7), 48149));
    CHECK(nonce != pcp::make_nonce("other", v4(192, 168, 1, 2), 48149));
    CHECK(nonce != pcp::make_nonce("secret", v4(192, 168, 1, 3), 48149));
    CHECK(nonce != pcp::make_nonce("secret", v4(192, 168, 1, 2), 48150));
    CHECK(nonce != pcp::Nonce{});
}

TEST_CASE("PCP: all requests for one mapping have one nonce, also after a restart; another port has another") {
    std::vector<std::pair<std::uint16_t, Bytes>> seen;  // inner port and nonce of each request
    {
        FakeRouter fake([&](const Bytes& request) -> std::vector<Bytes> {
            seen.emplace_back(static_cast<std::uint16_t>(read_number(std::span(request).subspan(40, 2))),
                              Bytes(request.begin() + 24, request.begin() + 36));
            return {answer_to(request)};
        });
        Grant grant;
        std::string why;
        const auto way = make_pcp(fake.router(), fake.port);
        REQUIRE(way->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
        REQUIRE(way->map(48149, grant.outer, patience(), grant, why));
        REQUIRE(way->map(48150, v4(0, 0, 0, 0, 48150), patience(), grant, why));
        std::string id;
        std::getline(std::ifstream("/etc/machine-id") >> std::ws, id);
        // Without an id the nonces of two processes differ.
        if (id.size() >= 32)
            REQUIRE(make_pcp(fake.router(), fake.port)->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
    }
    REQUIRE(seen.size() >= 3);
    for (const auto& [port, nonce] : seen) CHECK((nonce == seen.front().second) == (port == 48149));
}

TEST_CASE("PCP: the reason why there is no mapping") {
    Grant grant;
    std::string why;
    const auto asked = [&](const FakeRouter::Answers& answers, core::Duration limit) {
        FakeRouter fake(answers);
        CHECK_FALSE(make_pcp(fake.router(), fake.port)->map(48149, {}, patience(limit), grant, why));
        return why;
    };
    constexpr core::Duration enough = 20 * core::second;
    CHECK(asked([](const Bytes&) { return std::vector<Bytes>{}; }, 400 * core::millisecond) ==
          "the router does not answer");
    CHECK(asked([](const Bytes& request) { return std::vector<Bytes>{with(answer_to(request), 3, 12)}; }, enough) ==
          "there is another translator between this host and the router");
    CHECK(asked([](const Bytes&) { return std::vector<Bytes>{{0, 129, 0, 1, 0, 0, 0, 0}}; }, enough) ==
          "the router does not speak it");
    CHECK(asked([](const Bytes& request) { return std::vector<Bytes>{with(with(answer_to(request), 42, 0), 43, 0)}; },
                enough) == "the router has given no outer address or no port");
    {
        std::atomic<int> answered{0}, after{0};
        FakeRouter fake([&](const Bytes&) {
            ++answered;
            return std::vector<Bytes>{Bytes(60, 7)};
        });
        // The first answer may not have been read yet when the second request comes.
        const Patience until_read{EventLoop::now() + 3600 * core::second, [&] { return answered > 2 && ++after > 3; }};
        CHECK_FALSE(make_pcp(fake.router(), fake.port)->map(48149, {}, until_read, grant, why));
        CHECK(why.find("were no answers, and are ignored") != std::string::npos);
    }
    CHECK(grant.outer == core::Endpoint{});
    std::uint16_t closed = 0;
    { closed = FakeRouter([](const Bytes&) { return std::vector<Bytes>{}; }).port; }
    const Router router{v4(127, 0, 0, 1), v4(127, 0, 0, 1), true};
    CHECK_FALSE(make_pcp(router, closed)->map(48149, {}, patience(), grant, why));
    CHECK(why == "the router does not speak it");
}

TEST_CASE("a conversation ends when it is stopped, long before its time") {
    FakeRouter fake([](const Bytes&) { return std::vector<Bytes>{}; });
    std::atomic<int> asked{0};
    const Patience stopped{EventLoop::now() + 3600 * core::second, [&] { return ++asked > 3; }};
    Grant grant;
    std::string why;
    CHECK_FALSE(make_pcp(fake.router(), fake.port)->map(48149, {}, stopped, grant, why));
    CHECK_FALSE(make_nat_pmp(fake.router(), fake.port)->map(48149, {}, stopped, grant, why));
}

TEST_CASE("NAT-PMP: a mapping with the address of the router") {
    FakeRouter fake([&](const Bytes& request) -> std::vector<Bytes> {
        if (request == Bytes{0, 0}) return {{0, 128, 0, 0, 0, 0, 0, 42, 203, 0, 113, 11}};
        return {{0, 130, 0, 0, 0, 0, 0, 42, 0xBC, 0x15, 0xBF, 0xFD, 0, 0, 0x07, 0x08}};
    });
    const auto way = make_nat_pmp(fake.router(), fake.port);
    Grant grant;
    std::string why;
    REQUIRE(way->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
    CHECK(grant.outer == v4(203, 0, 113, 11, 49149));
    CHECK(grant.life_s == 1800);
    std::optional<core::Endpoint> outer;
    CHECK(way->examine(patience(), outer, why));
    CHECK(outer == v4(203, 0, 113, 11));
}
