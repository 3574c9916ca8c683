// Completions of the application's calls, and the world sizes that the application sees.
//
// Completions alone bring new sizes, so that a program sees them change where it made a call; the end of a membership
// resets them. Invariant: sizes of an older epoch never replace those of a newer one.
#pragma once

#include "core/base/assert.hpp"
#include "core/turn.hpp"

#include <utility>

namespace pccl::core {

class Tickets {
public:
    explicit Tickets(Turn& turn) : turn_(turn) {}

    void complete(Ticket ticket, Completion completion) {
        ASSERT(ticket != 0);
        if (completion.epoch != 0 && completion.epoch >= epoch_) {
            epoch_ = completion.epoch;
            attributes_ = completion.attributes;
        }
        completion.attributes = attributes_;
        completion.epoch = epoch_;
        turn_.add(Complete{ticket, std::move(completion)});
    }
    void fail(Ticket ticket, Result result, Cause cause) { complete(ticket, failure(result, std::move(cause))); }
    // The membership is over.
    void forget_sizes() {
        epoch_ = 0;
        attributes_ = Attributes{};
        turn_.add(SetAttributes{attributes_});
    }
    const Attributes& attributes() const { return attributes_; }
    std::uint64_t epoch() const { return epoch_; }

private:
    Turn& turn_;
    std::uint64_t epoch_ = 0;
    Attributes attributes_;
};

}  // namespace pccl::core
