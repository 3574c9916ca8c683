// The addresses at which a peer may find its master, and the one that it dials next.
//
// It dials nothing and knows no clock: Session (session.hpp) dials the current address, and says what came of it.
//
// Invariant: while the master is lost, at least every second dial goes to the address at which it was found.
#pragma once

#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/events.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

class MasterAddresses {
public:
    MasterAddresses(const Endpoint& first, const std::vector<Endpoint>& others) : first_(first), others_(others) {}

    const Endpoint& current() const { return current_ == 0 ? first_ : others_[current_ - 1]; }
    void begin() {
        current_ = 0;
        tried_.clear();
    }
    // The current address did not answer a newcomer.
    void note_tried(const std::string& reason) {
        tried_ += formatted("{}{}: {}", tried_.empty() ? "" : ", nor at ", to_text(current()), reason);
    }
    std::string take_tried() { return std::exchange(tried_, {}); }
    // Moves to the next address. False: all were tried, and the first one is next.
    bool try_next() {
        current_ = (current_ + 1) % count();
        return current_ != 0;
    }
    // The connection to the master at the current address was lost.
    void lost_here() { found_ = tried_last_ = current_; }
    bool away_from_found() const { return current_ != found_; }
    // Moves to the next address. The one at which the master was found comes between any two others: a restarted master
    // waits for its journalled members for one grace only, and a dial to another address may be unanswered for long.
    void turn() {
        if (count() == 1) return;
        if (away_from_found()) {
            PROBE(master_dialled_where_it_was);
            tried_last_ = std::exchange(current_, found_);
            return;
        }
        current_ = (tried_last_ + 1) % count();
        if (current_ == found_) current_ = (current_ + 1) % count();
    }

private:
    std::size_t count() const { return 1 + others_.size(); }

    const Endpoint& first_;
    const std::vector<Endpoint>& others_;
    std::size_t current_ = 0;     // 0: first_, then others_
    std::size_t found_ = 0;       // the address whose connection was lost
    std::size_t tried_last_ = 0;  // the last of the other addresses that was dialled since then
    std::string tried_;           // the addresses that did not answer this connect, and why
};

}  // namespace pccl::core
