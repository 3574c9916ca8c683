#include "core/base/ids.hpp"

namespace pccl::core {

namespace {
constexpr char digits[] = "0123456789abcdef";

void append_hex(std::string& out, std::uint32_t value) {
    char text[8];
    int length = 0;
    do {
        text[length++] = digits[value & 15];
        value >>= 4;
    } while (value != 0);
    while (length > 0) out.push_back(text[--length]);
}
}  // namespace

std::string short_name(const Uuid& uuid) {
    std::string text;
    for (std::size_t i = 0; i < 4; ++i) {
        text.push_back(digits[uuid.bytes[i] >> 4]);
        text.push_back(digits[uuid.bytes[i] & 15]);
    }
    return text;
}

std::string to_text(const Endpoint& endpoint) {
    std::string text;
    if (endpoint.is_v6) {
        text = "[";
        for (std::size_t i = 0; i < 16; i += 2) {
            if (i != 0) text.push_back(':');
            append_hex(text, static_cast<std::uint32_t>(endpoint.address[i] << 8 | endpoint.address[i + 1]));
        }
        text += "]";
    } else {
        for (std::size_t i = 0; i < 4; ++i) {
            if (i != 0) text.push_back('.');
            text += std::to_string(endpoint.address[i]);
        }
    }
    text.push_back(':');
    text += std::to_string(endpoint.port);
    return text;
}

}  // namespace pccl::core
