// What is copied between scratch memory and the application's array.
//
// Final bytes that landed in scratch (operation.hpp) are copied after the commit, or read as numbers, a few pieces at a
// time. Out of place the input is elsewhere, so quantized results are read as they come. Input that final bytes overwrite
// is kept in scratch before, and copied back if the operation fails.
//
// It owns nothing: what is copied is counted in the Operation. It must not know votes. Invariants: each slice is read
// once; nothing is copied back while something is computed.
#pragma once

#include "core/all_reduce/operation.hpp"
#include "core/requests.hpp"
#include "core/turn.hpp"

#include <functional>
#include <optional>

namespace pccl::core {

class Results {
public:
    Results(const Turn& turn, Computes& computes) : turn_(turn), computes_(computes) {}

    // Final bytes of an operation that is not decided have come.
    void came(Operation& op, std::uint32_t slice);
    // A copy has ended before the outcome. The next one begins.
    void read_ahead(Operation& op);
    // Own input begins to leave. Soon afterwards final bytes may come that overwrite it.
    void input_leaves(Operation& op, std::uint32_t slice);
    // Of an operation that is decided: requests the next copies.
    void copy_next(Operation& op);
    // The same, and all that are left, with a driver that handles no more events.
    void copy_rest(Operation& op, const std::function<void(const Compute&)>& carry_out) const;

private:
    // The next copy of an operation that is decided; none: all is copied. copied() says that it was requested.
    std::optional<Compute> next_copy(Operation& op) const;
    static void copied(Operation& op, const Compute& copy);
    static Compute copy_of(const Operation& op, const BufferRef& from, const BufferRef& to);
    static Compute reading_of(const Operation& op, std::uint32_t slice);  // of final bytes in scratch

    const Turn& turn_;
    Computes& computes_;
};

}  // namespace pccl::core
