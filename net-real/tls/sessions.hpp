// Tickets of TLS, by the peer that gave them. A further connection with that peer then needs neither certificates nor
// signatures: it has the identities of the connection that the ticket came from, and keys of its own.
//
// keep() may be called by several threads at once, but not beside the others. At most peers_max tickets are kept; beyond that, the oldest is dropped.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/tls/openssl.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace pccl::real::tls {

class Sessions {
public:
    static constexpr std::size_t peers_max = 64;

    // `since`: generation() when the connection was begun.
    void keep(const core::Uuid& peer, std::uint64_t since, SessionPtr session) {
        if (since != generation_) return;
        const std::lock_guard lock(mutex_);
        std::erase_if(sessions_, [&](const auto& one) { return one.first == peer; });
        if (sessions_.size() >= peers_max) sessions_.erase(sessions_.begin());
        sessions_.emplace_back(peer, std::move(session));
    }
    // Null: there is none. Valid until the next keep() or clear().
    SSL_SESSION* find(const core::Uuid& peer) const {
        const auto found =
            std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& one) { return one.first == peer; });
        return found == sessions_.end() ? nullptr : found->second.get();
    }
    // Also drops tickets of connections that exist: they are those of an earlier certificate.
    void clear() {
        sessions_.clear();
        ++generation_;
    }
    std::uint64_t generation() const { return generation_; }

private:
    std::uint64_t generation_ = 0;
    std::mutex mutex_;
    std::vector<std::pair<core::Uuid, SessionPtr>> sessions_;  // oldest first
};

// Where a connection puts the ticket that it gets: the application data of its SSL.
struct SessionPlace {
    Sessions* sessions = nullptr;  // null: nowhere
    core::Uuid peer;
    std::uint64_t since = 0;  // Sessions::generation()
};

}  // namespace pccl::real::tls
