// cost_run BYTES OPERATIONS: a master and two members in this process reduce OPERATIONS times. The scripts of this folder
// count what happens between the two marks: entry of cost_begin() and cost_end(), for valgrind; a write to the invalid
// descriptor -77 in them, for strace. Work before the first mark (joining, first use of memory) does not count.
#include "tests/integration/local_members.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace integration;

extern "C" {
[[gnu::noinline]] void cost_begin() {
    if (write(-77, "begin", 5) >= 0) std::abort();
}
[[gnu::noinline]] void cost_end() {
    if (write(-77, "end", 3) >= 0) std::abort();
}
}

namespace {

constexpr int warm_operations = 3;

// All members call this `operations` times. False: one failed.
bool reduce_on_all(LocalRun& run, std::vector<std::vector<float>>& buffers, int operations) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        threads.emplace_back([&, i] {
            std::vector<float>& buffer = buffers[i];
            const pcclReduceDescriptor_t descriptor{
                buffer.size(), pcclSum, 1, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
            for (int k = 0; k < operations; ++k)
                if (pcclAllReduce(buffer.data(), buffer.data(), &descriptor, run[i], nullptr) != pcclSuccess)
                    ++failures;
        });
    }
    for (std::thread& thread : threads) thread.join();
    return failures == 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: cost_run BYTES OPERATIONS\n");
        return 2;
    }
    const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
    const int operations = std::atoi(argv[2]);
    // Programs under valgrind are slow, and that is no death.
    setenv("PCCL_PEER_TIMEOUT_MS", "60000", 1);
    LocalRun run(2);
    std::vector<std::vector<float>> buffers(2, std::vector<float>(bytes / sizeof(float), 0.0f));
    if (!reduce_on_all(run, buffers, warm_operations)) return 1;
    cost_begin();
    const bool good = reduce_on_all(run, buffers, operations);
    cost_end();
    return good ? 0 : 1;
}
