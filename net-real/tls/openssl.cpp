#include "net-real/tls/openssl.hpp"

#include <openssl/err.h>

namespace pccl::real::tls {

std::string take_error() {
    const unsigned long code = ERR_get_error();
    ERR_clear_error();
    if (code == 0) return {};
    if (const char* reason = ERR_reason_error_string(code)) return reason;
    char text[256];
    ERR_error_string_n(code, text, sizeof text);
    return text;
}

}  // namespace pccl::real::tls
