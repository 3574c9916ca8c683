// An entry of more than 4 GiB in real memory. It holds zeros that were never written, so it costs address space and
// reading time, but no memory. Its content is not transferred; tests/property/shared_state.cpp tests that, with payload
// without content.
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <thread>

#include <sys/mman.h>

using namespace integration;

namespace {

constexpr std::size_t entry_bytes = (std::size_t{4} << 30) + (std::size_t{64} << 20);

class Zeros {
public:
    Zeros()
        : data_(static_cast<unsigned char*>(
              mmap(nullptr, entry_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
        REQUIRE(data_ != MAP_FAILED);
    }
    ~Zeros() { munmap(data_, entry_bytes); }
    Zeros(const Zeros&) = delete;
    Zeros& operator=(const Zeros&) = delete;
    unsigned char* data() { return data_; }

private:
    unsigned char* data_;
};

struct Answer {
    pcclResult_t result = pcclInternalError;
    pcclSharedStateSyncInfo_t info{};
};

std::array<Answer, 2> synchronize(LocalRun& run, std::array<Zeros, 2>& content, std::uint64_t revision) {
    std::array<Answer, 2> answers;
    const auto one = [&](std::size_t side) {
        pcclTensorInfo_t info{};
        info.name = "w";
        info.data = content[side].data();
        info.count = entry_bytes / sizeof(double);
        info.datatype = pcclDouble;
        pcclSharedState_t state{};
        state.revision = revision;
        state.count = 1;
        state.infos = &info;
        answers[side].result = pcclSynchronizeSharedState(run[side], &state, PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY,
                                                          &answers[side].info);
    };
    std::thread other(one, 1);
    one(0);
    other.join();
    return answers;
}

}  // namespace

#ifndef __SANITIZE_THREAD__  // its shadow memory for what is read is several times as large
TEST_CASE("an entry of more than 4 GiB is compared to its last byte") {
    LocalRun run(2);
    std::array<Zeros, 2> content;
    for (const Answer& answer : synchronize(run, content, 0)) {
        CHECK(answer.result == pcclSuccess);
        CHECK(answer.info.tx_bytes + answer.info.rx_bytes == 0);
    }
    content[1].data()[entry_bytes - 1] = 1;
    const std::array<Answer, 2> unequal = synchronize(run, content, 1);
    CHECK(unequal[0].result == pcclSuccess);
    CHECK(unequal[1].result == pcclInvalidUsage);  // the younger one of two senders whose contents differ
}
#endif
