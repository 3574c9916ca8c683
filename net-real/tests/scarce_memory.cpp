#include "net-real/tests/scarce_memory.hpp"

#include <cstdlib>
#include <new>

namespace pccl::real {

namespace {

thread_local long successes_left = all_further;
thread_local long failures_left = 0;

bool fails() noexcept {
    if (failures_left == 0) return false;
    if (successes_left > 0) {
        --successes_left;
        return false;
    }
    --failures_left;
    return true;
}

}  // namespace

void fail_allocations(long successes, long failures) noexcept {
    successes_left = successes;
    failures_left = failures;
}

void end_scarcity() noexcept { failures_left = 0; }

}  // namespace pccl::real

__attribute__((noinline)) void* operator new(std::size_t bytes) {
    void* const memory = pccl::real::fails() ? nullptr : std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
