#include "net-real/tls/invitation.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

namespace pccl::real::tls {

namespace {

constexpr std::string_view scheme = "pccl-invite-1";
constexpr std::size_t text_max = 512;

bool is_id(std::string_view text) {
    return text.size() == 8 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

bool read_hex(std::string_view text, std::span<std::uint8_t> bytes) {
    if (text.size() != 2 * bytes.size()) return false;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const char* first = text.data() + 2 * i;
        const auto [end, status] = std::from_chars(first, first + 2, bytes[i], 16);
        if (status != std::errc{} || end != first + 2) return false;
    }
    return true;
}

std::string to_text(const Invitation& invitation) {
    return core::formatted("{}/{}/{}/{}/{}", scheme, invitation.master, to_hex(invitation.authority), invitation.id,
                           to_hex(invitation.secret));
}

bool parse_invitation(std::string_view text, Invitation& invitation, std::string& why) {
    std::vector<std::string_view> parts;
    for (std::string_view rest = text.substr(0, text_max + 1); parts.size() < 6;) {
        const std::size_t slash = rest.find('/');
        parts.push_back(rest.substr(0, slash));
        if (slash == std::string_view::npos) break;
        rest.remove_prefix(slash + 1);
    }
    Invitation read;
    if (text.size() > text_max || parts.size() != 5 || parts[0] != scheme || parts[1].empty() ||
        !read_hex(parts[2], read.authority) || !is_id(parts[3]) || !read_hex(parts[4], read.secret)) {
        why = "malformed invitation: copy the whole line that `pccl-master invite` printed";
        return false;
    }
    read.master = parts[1];
    read.id = parts[3];
    invitation = std::move(read);
    return true;
}

}  // namespace pccl::real::tls
