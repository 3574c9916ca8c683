#include "harness/report/json.hpp"

namespace pccl::harness::report {
namespace {

// Length of the UTF-8 sequence of several bytes at the start of `text`, 0 if there is no valid one.
std::size_t sequence_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
    if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    const std::uint8_t second = byte(1);
    const bool overlong = (byte(0) == 0xe0 && second < 0xa0) || (byte(0) == 0xf0 && second < 0x90);
    const bool surrogate = byte(0) == 0xed && second >= 0xa0;
    const bool too_large = byte(0) == 0xf4 && second >= 0x90;
    return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

void Json::separate() {
    if (!fresh_) out_ += ',';
    if (line_) out_ += '\n';
    fresh_ = line_ = false;
}

void Json::quote(std::string_view text) {
    static constexpr char digits[] = "0123456789abcdef";
    out_ += '"';
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        const auto byte = static_cast<std::uint8_t>(c);
        if (byte >= 0x80) {
            const std::size_t length = sequence_length(text.substr(i));
            out_ += length == 0 ? std::string_view("\\ufffd") : text.substr(i, length);
            i += length == 0 ? 1 : length;
            continue;
        }
        if (c == '"' || c == '\\') {
            out_ += '\\';
            out_ += c;
        } else if (c == '\n') {
            out_ += "\\n";
        } else if (byte < 0x20 || c == '<' || c == '>' || c == '&' || byte == 0x7f) {
            out_ += "\\u00";
            out_ += digits[byte >> 4];
            out_ += digits[byte & 15];
        } else {
            out_ += c;
        }
        ++i;
    }
    out_ += '"';
}

}  // namespace pccl::harness::report
