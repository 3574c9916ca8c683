#include "net-real/port_mapping/nat_pmp_messages.hpp"

#include "net-real/port_mapping/router.hpp"

#include <algorithm>

namespace pccl::real::nat_pmp {

namespace {

constexpr std::uint8_t version = 0, ask_address = 0, ask_tcp_port = 2, is_answer = 128;
constexpr std::size_t refusal_bytes = 8, address_bytes = 12, port_bytes = 16;

// A refusal may be shorter than what was asked for.
Answer read_result(std::span<const std::uint8_t> datagram, std::uint8_t opcode, std::size_t bytes) {
    Answer answer;
    if (datagram.size() < refusal_bytes || datagram[0] != version || datagram[1] != (opcode | is_answer)) return answer;
    answer.result = static_cast<std::uint16_t>(read_number(datagram.subspan(2, 2)));
    if (answer.result != 0)
        answer.kind = Kind::refused;
    else if (datagram.size() >= bytes)
        answer.kind = Kind::granted;
    return answer;
}

}  // namespace

std::array<std::uint8_t, 2> write_address_request() { return {version, ask_address}; }

std::array<std::uint8_t, 12> write_port_request(std::uint16_t port, std::uint16_t wished, std::uint32_t lifetime_s) {
    std::array<std::uint8_t, 12> request{version, ask_tcp_port};
    const std::span all(request);
    write_number(all.subspan(4, 2), port);
    write_number(all.subspan(6, 2), wished);
    write_number(all.subspan(8, 4), lifetime_s);
    return request;
}

Answer read_address(std::span<const std::uint8_t> datagram) {
    Answer answer = read_result(datagram, ask_address, address_bytes);
    if (answer.kind != Kind::granted) return answer;
    std::copy_n(datagram.begin() + 8, 4, answer.outer.address.begin());
    if (answer.outer == core::Endpoint{}) answer.kind = Kind::unusable;
    return answer;
}

Answer read_port(std::span<const std::uint8_t> datagram, std::uint16_t port) {
    Answer answer = read_result(datagram, ask_tcp_port, port_bytes);
    if (answer.kind != Kind::granted) return answer;
    if (read_number(datagram.subspan(8, 2)) != port) return {};
    answer.outer.port = static_cast<std::uint16_t>(read_number(datagram.subspan(10, 2)));
    answer.life_s = read_number(datagram.subspan(12, 4));
    if (answer.outer.port == 0 || answer.life_s == 0) answer.kind = Kind::unusable;
    return answer;
}

const char* text_of(std::uint16_t result) {
    switch (result) {
    case 1: return "the router speaks another version of it";
    case 2: return "the router has port mapping switched off";
    case 3: return "the router has no outer address";
    case 4: return "the router has no port left";
    case 5: return "the router gives no ports";
    default: return "the router refuses";
    }
}

}  // namespace pccl::real::nat_pmp
