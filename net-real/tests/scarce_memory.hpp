// Memory that ends when a test says so: scarce_memory.cpp replaces operator new of the program that it is linked into.
#pragma once

#include <limits>

namespace pccl::real {

constexpr long all_further = std::numeric_limits<long>::max();

// The next `successes` allocations of this thread succeed, and then `failures` of them fail.
void fail_allocations(long successes, long failures = all_further) noexcept;
// From now on this thread has memory.
void end_scarcity() noexcept;

}  // namespace pccl::real
