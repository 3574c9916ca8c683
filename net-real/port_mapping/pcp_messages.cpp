#include "net-real/port_mapping/pcp_messages.hpp"

#include "net-real/port_mapping/router.hpp"
#include "net-real/tls/openssl.hpp"

#include <algorithm>
#include <string>

#include <openssl/evp.h>

namespace pccl::real::pcp {

namespace {

constexpr std::uint8_t version = 2, opcode_announce = 0, opcode_map = 1, is_answer = 128, protocol_tcp = 6;
constexpr std::uint8_t unsupported_version = 1;
constexpr std::size_t datagram_bytes_max = 1100;
// A NAT-PMP server answers an unknown version with 8 bytes (RFC 6886, 3.5).
constexpr std::size_t nat_pmp_error_bytes = 8;

void write_v4(std::span<std::uint8_t> place, const core::Endpoint& endpoint) {
    place[10] = place[11] = 0xFF;
    std::copy_n(endpoint.address.begin(), 4, place.begin() + 12);
}

bool read_v4(std::span<const std::uint8_t> place, core::Endpoint& endpoint) {
    const bool is_v4 = std::all_of(place.begin(), place.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
                       place[10] == 0xFF && place[11] == 0xFF;
    if (!is_v4 || read_number(place.subspan(12, 4)) == 0) return false;
    std::copy_n(place.begin() + 12, 4, endpoint.address.begin());
    return true;
}

void write_header(std::span<std::uint8_t> bytes, std::uint8_t opcode, std::uint32_t lifetime_s,
                  const core::Endpoint& client) {
    bytes[0] = version;
    bytes[1] = opcode;
    write_number(bytes.subspan(4, 4), lifetime_s);
    write_v4(bytes.subspan(8, 16), client);
}

// Whether it is an answer of this size or more at all. `answer` is complete if it is of another version or a refusal.
bool read_header(std::span<const std::uint8_t> datagram, std::uint8_t opcode, std::size_t bytes, Answer& answer) {
    if (datagram.size() < nat_pmp_error_bytes || datagram.size() > datagram_bytes_max) return false;
    if ((datagram[1] & is_answer) == 0) return false;
    if (datagram[0] < version) {
        // The result has 16 bits in NAT-PMP, and 8 bits in PCP.
        const bool refuses = datagram[3] == unsupported_version && (datagram[0] != 0 || datagram[2] == 0);
        if (refuses) answer.kind = Kind::other_version;
        return false;
    }
    if (datagram[0] != version || datagram[1] != (opcode | is_answer)) return false;
    if (datagram.size() < bytes || datagram.size() % 4 != 0) return false;
    answer.result = datagram[3];
    return true;
}

}  // namespace

Nonce make_nonce(std::string_view secret, const core::Endpoint& client, std::uint16_t port) {
    std::string text = "pccl port mapping\n" + std::string(secret) + "\n" + host_text(client) + "\n";
    text += std::to_string(port);
    std::array<std::uint8_t, EVP_MAX_MD_SIZE> hash{};
    tls::begin_use();
    // It fails only without memory. Then the nonce is 0, which is allowed.
    static_cast<void>(EVP_Digest(text.data(), text.size(), hash.data(), nullptr, EVP_sha256(), nullptr));
    Nonce nonce;
    std::copy_n(hash.begin(), nonce.size(), nonce.begin());
    return nonce;
}

std::array<std::uint8_t, map_bytes> write_map(const Map& request) {
    std::array<std::uint8_t, map_bytes> bytes{};
    const std::span all(bytes);
    write_header(all, opcode_map, request.lifetime_s, request.client);
    std::copy(request.nonce.begin(), request.nonce.end(), bytes.begin() + 24);
    bytes[36] = protocol_tcp;
    write_number(all.subspan(40, 2), request.port);
    write_number(all.subspan(42, 2), request.wished.port);
    write_v4(all.subspan(44, 16), request.wished);
    return bytes;
}

std::array<std::uint8_t, header_bytes> write_announce(const core::Endpoint& client) {
    std::array<std::uint8_t, header_bytes> bytes{};
    write_header(bytes, opcode_announce, 0, client);
    return bytes;
}

Answer read_map(std::span<const std::uint8_t> datagram, const Map& request) {
    Answer answer;
    if (!read_header(datagram, opcode_map, map_bytes, answer)) return answer;
    // Answers that refuse repeat these fields too. Options may follow; none was asked for.
    const bool is_for_request = std::equal(request.nonce.begin(), request.nonce.end(), datagram.begin() + 24) &&
                                datagram[36] == protocol_tcp && read_number(datagram.subspan(40, 2)) == request.port;
    if (!is_for_request) return {};
    if (answer.result != 0) {
        answer.kind = Kind::refused;
        return answer;
    }
    answer.life_s = read_number(datagram.subspan(4, 4));
    answer.outer.port = static_cast<std::uint16_t>(read_number(datagram.subspan(42, 2)));
    const bool is_usable =
        read_v4(datagram.subspan(44, 16), answer.outer) && answer.outer.port != 0 && answer.life_s != 0;
    answer.kind = is_usable ? Kind::granted : Kind::unusable;
    return answer;
}

Answer read_announce(std::span<const std::uint8_t> datagram) {
    Answer answer;
    if (read_header(datagram, opcode_announce, header_bytes, answer))
        answer.kind = answer.result == 0 ? Kind::granted : Kind::refused;
    return answer;
}

const char* text_of(std::uint8_t result) {
    switch (result) {
    case 1: return "the router speaks another version of it";
    case 2: return "the router does not allow this host to have a port";
    case 3:
    case 6: return "the router cannot read the request";
    case 4: return "the router gives no ports";
    case 5: return "the router does not support the option";
    case 7: return "the router has no connection to the outside";
    case 8: return "the router has no port left";
    case 9: return "the router cannot map TCP";
    case 10: return "this host has as many ports of the router as it may have";
    case 11: return "the router cannot give the outer port";
    case 12: return "there is another translator between this host and the router";
    case 13: return "the router allows fewer remote peers";
    default: return "the router refuses";
    }
}

}  // namespace pccl::real::pcp
