// How the final bytes of an operation get from scratch memory to the application's array.
//
// In place, and of a quantized operation, final bytes land in scratch. After the commit they are copied, or read as
// numbers, a few pieces at a time. Out of place the input is elsewhere, so quantized results are read as they come.
//
// It owns nothing: what is copied is counted in the Operation. It must not know votes and outcomes: who calls copy_next()
// knows that the operation is committed. Invariant: each slice is read once.
#pragma once

#include "core/all_reduce/operation.hpp"
#include "core/requests.hpp"
#include "core/turn.hpp"

namespace pccl::core {

class Results {
public:
    Results(const Turn& turn, Computes& computes) : turn_(turn), computes_(computes) {}

    // Final bytes of an operation that is not decided have come.
    void came(Operation& op, std::uint32_t slice);
    // A copy has ended before the outcome. The next one begins.
    void read_ahead(Operation& op);
    // The operation is committed: requests the next copies.
    void copy_next(Operation& op);

private:
    void read(Operation& op, std::uint32_t slice, bool ahead);

    const Turn& turn_;
    Computes& computes_;
};

}  // namespace pccl::core
