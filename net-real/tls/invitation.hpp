// The one string that lets a newcomer join a secure run: where the master is, which authority it must have, and a secret.
//
//   pccl-invite-1/HOST:PORT/HASH/ID/SECRET     HASH, ID and SECRET in hexadecimal digits; an IPv6 host in brackets
#pragma once

#include "net-real/tls/certificates.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pccl::real::tls {

using InvitationSecret = std::array<std::uint8_t, 16>;

struct Invitation {
    std::string master;  // HOST:PORT
    KeyHash authority{};
    std::string id;
    InvitationSecret secret{};
};

std::string to_text(const Invitation& invitation);
// False: `why` says what is wrong with it. It never contains the secret.
bool parse_invitation(std::string_view text, Invitation& invitation, std::string& why);

bool read_hex(std::string_view text, std::span<std::uint8_t> bytes);

}  // namespace pccl::real::tls
