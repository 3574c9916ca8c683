// The addresses at which another peer may be, and which of them to dial next.
//
// A peer behind an address translator has an address in its own network, and one outside. Which of them another peer
// reaches depends on where that one is, and the master can only suppose it. So a dialler tries both in turn.
//
// In one network an answer comes sooner than from the master. So the first dials inside, which have another address
// behind them, are short, and get longer each time that both addresses failed.
//
// Invariant: an address that has worked is kept for some failures, because its peer may be restarting.
#pragma once

#include "core/base/ids.hpp"

#include <algorithm>
#include <cstdint>

namespace pccl::core {

struct Addresses {
    Endpoint usual;            // where all peers look for it
    Endpoint other;            // port 0: there is none
    bool other_first = false;  // both seem to be in one network, and `other` is the address in it
    // The peer may be at this host.
    bool is_at(const Endpoint& host) const {
        return same_host(usual, host) || (other.port != 0 && same_host(other, host));
    }
    friend constexpr bool operator==(const Addresses&, const Addresses&) = default;
};

class Way {
public:
    // Addresses that are known already keep what was learned about them.
    void aim(const Addresses& to) {
        if (to == to_) return;
        to_ = to;
        at_other_ = to.other.port != 0 && to.other_first;
        failed_ = false;
        kept_for_ = rounds_ = 0;
    }
    const Addresses& addresses() const { return to_; }
    bool at_other() const { return at_other_; }
    const Endpoint& next() const { return at_other_ ? to_.other : to_.usual; }
    // How long a dial of next() may take, if one without another address may take `dial`. `round_trip`: to the master.
    Duration patience(Duration dial, Duration round_trip) const {
        if (!at_other_ || !to_.other_first || kept_for_ != 0) return dial;
        const Duration brief = std::max(dial / short_dials, 4 * std::min(round_trip, dial));
        return std::min(dial, brief << rounds_);
    }
    // The peer was reached at next().
    void worked() {
        failed_ = false;
        kept_for_ = failures_kept;
    }
    // The dial of next() failed. Returns true if the other address is next, and should be dialled at once.
    bool failed() {
        if (to_.other.port == 0) return false;
        if (kept_for_ > 0) {
            --kept_for_;
            return false;
        }
        at_other_ = !at_other_;
        failed_ = !failed_;
        if (!failed_ && rounds_ < rounds_most) ++rounds_;
        return failed_;
    }

private:
    static constexpr std::uint8_t failures_kept = 3, rounds_most = 3;
    static constexpr Duration short_dials = 8;  // an eighth at first: 375 ms of 3 s

    Addresses to_;
    bool at_other_ = false;
    bool failed_ = false;         // one of the two has failed since both were dialled last
    std::uint8_t kept_for_ = 0;   // so many failures of an address that has worked
    std::uint8_t rounds_ = 0;     // in which both failed
};

}  // namespace pccl::core
