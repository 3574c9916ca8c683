#include "net-real/tls/openssl.hpp"

#include <atomic>

#include <openssl/crypto.h>
#include <openssl/err.h>

namespace pccl::real::tls {

namespace {

std::atomic<bool> cleaned_up{false};
std::atomic<void (*)()> stop_use{nullptr};

void on_cleanup() {
    if (auto* const stop = stop_use.load()) stop();
    cleaned_up = true;
}

}  // namespace

void begin_use() {
    // Functions of OPENSSL_atexit() run at the beginning of OPENSSL_cleanup().
    [[maybe_unused]] static const int done =
        OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1 ? OPENSSL_atexit(on_cleanup) : 0;
}

void before_cleanup(void (*stop)()) { stop_use = stop; }

bool was_cleaned_up() { return cleaned_up.load(std::memory_order_relaxed); }

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
