#include "net-real/resolve.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/settings.hpp"
#include "net-real/sockets.hpp"
#include "net-real/workers.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include <netdb.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr std::size_t addresses_max = 16;
// Look-ups at a time: a name server that does not answer must not fill the process with threads.
constexpr std::uint64_t lookups_max = 8;

// Shared with the thread that asks the system. That thread may outlive the caller's wait.
struct Lookup {
    std::string host;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int code = 0;
    std::vector<core::Endpoint> found;
};

// Lower half: look-ups under way. Upper half: their process, counted by forks, because a child has no thread of its
// parent.
std::atomic<std::uint64_t> lookups{0};

std::uint64_t none_of_this_process() { return descriptors::fork_generation() << 32; }

bool begin_lookup() {
    descriptors::install();
    std::uint64_t before = lookups.load();
    for (;;) {
        const std::uint64_t none = none_of_this_process();
        const std::uint64_t now = before >> 32 == none >> 32 ? before : none;
        if (now - none >= lookups_max) return false;
        if (lookups.compare_exchange_weak(before, now + 1)) return true;
    }
}

void end_lookup() { --lookups; }

void ask_system(Lookup& lookup) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(lookup.host.c_str(), nullptr, &hints, &found);
    std::vector<core::Endpoint> list;
    for (const addrinfo* at = found; code == 0 && at != nullptr && list.size() < addresses_max; at = at->ai_next) {
        core::Endpoint endpoint;
        if (!read_native(*at->ai_addr, endpoint)) continue;
        if (std::find(list.begin(), list.end(), endpoint) == list.end()) list.push_back(endpoint);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    {
        const std::lock_guard guard(lookup.mutex);
        lookup.code = code;
        lookup.found = std::move(list);
        lookup.done = true;
    }
    lookup.changed.notify_one();
}

// Splits "name" or "name:port". False: it is neither.
bool split_name(std::string_view text, std::string& host, std::uint16_t& port) {
    const std::size_t colon = text.find(':');
    host = std::string(text.substr(0, colon));
    if (colon != std::string_view::npos) {
        const std::string_view digits = text.substr(colon + 1);
        const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
        if (code != std::errc{} || end != digits.data() + digits.size()) return false;
    }
    // Only digits and dots: a mistyped address, not a name. The system would read 1.2.3 as 1.2.0.3.
    const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
    return !host.empty() && host.size() <= 253 && !numeric && host.find_first_of("[]/%* \t") == std::string::npos;
}

}  // namespace

bool resolve(std::string_view text, std::uint16_t default_port, std::vector<core::Endpoint>& endpoints,
             std::string& error, core::Duration limit) {
    endpoints.clear();
    core::Endpoint numeric;
    numeric.port = default_port;
    if (parse_endpoint(text, numeric)) {
        endpoints.push_back(numeric);
        return true;
    }
    auto lookup = std::make_shared<Lookup>();
    std::uint16_t port = default_port;
    if (!split_name(text, lookup->host, port)) {
        error =
            core::formatted("\"{}\" is not an address; write HOST:PORT or [V6]:PORT, with a port below 65536", text);
        return false;
    }
    if (!begin_lookup()) {
        error = core::formatted(
            "\"{}\" is not looked up: the name server owes too many answers; give a numeric address", lookup->host);
        return false;
    }
    try {
        const SignalsBlocked blocked;
        std::thread([lookup] {
            try {
                ask_system(*lookup);
            } catch (const std::bad_alloc&) {
                const std::lock_guard guard(lookup->mutex);
                lookup->code = EAI_MEMORY;
                lookup->done = true;
                lookup->changed.notify_one();
            }
            end_lookup();
        }).detach();
    } catch (const std::exception& failure) {
        end_lookup();
        error = core::formatted("\"{}\" cannot be looked up: {}", lookup->host, failure.what());
        return false;
    }
    std::unique_lock guard(lookup->mutex);
    if (!lookup->changed.wait_for(guard, std::chrono::nanoseconds(limit), [&] { return lookup->done; })) {
        error = core::formatted(
            "\"{}\" was not found within {} ms: the name server does not answer; give a numeric address", lookup->host,
            limit / core::millisecond);
        return false;
    }
    if (lookup->found.empty()) {
        error = core::formatted("\"{}\" cannot be found: {}; check the name or give a numeric address", lookup->host,
                                lookup->code != 0 ? ::gai_strerror(lookup->code) : "it has no internet address");
        return false;
    }
    endpoints = std::move(lookup->found);
    for (core::Endpoint& endpoint : endpoints) endpoint.port = port;
    return true;
}

}  // namespace pccl::real
