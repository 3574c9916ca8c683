// The I/O thread waits for nothing: not for standard error, the disk, the environment's lock or callbacks of the program.
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

using namespace integration;

namespace {

const int all_lines = setenv("PCCL_LOG_LEVEL", "TRACE", 1);

std::atomic<int> waits_of_io_threads{0};

// Called in place of a function of the system that may wait: I/O threads must not.
void check_thread() {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (std::strcmp(name, "pccl-io") == 0 || std::strcmp(name, "pccl-master") == 0) ++waits_of_io_threads;
}

// A pipe without room that nobody reads, in place of standard error.
class BlockedStandardError {
public:
    BlockedStandardError() : saved_(dup(2)) {
        REQUIRE(pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        const std::array<char, 4096> filling{};
        while (write(ends_[1], filling.data(), filling.size()) > 0) {
        }
        fcntl(ends_[1], F_SETFL, 0);
        dup2(ends_[1], 2);
    }
    ~BlockedStandardError() {
        dup2(saved_, 2);
        close(saved_);
        for (const int end : ends_) close(end);  // what still waits to be written gets an error
    }
    BlockedStandardError(const BlockedStandardError&) = delete;
    BlockedStandardError& operator=(const BlockedStandardError&) = delete;

private:
    std::array<int, 2> ends_{};
    int saved_;
};

void knock(std::uint16_t port) {
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const std::array<char, 4096> zeros{};
    REQUIRE(write(stranger, zeros.data(), zeros.size()) > 0);
    // The master closes a connection that talks nonsense.
    std::array<char, 64> answer{};
    while (read(stranger, answer.data(), answer.size()) > 0) {
    }
    close(stranger);
}

bool reduce_together(const LocalRun& run, float first, float second, std::uint64_t tag) {
    std::array<float, 2> values{first, second};
    const pcclReduceDescriptor_t descriptor = describe(1, tag);
    std::atomic<int> failures{0};
    std::thread other(
        [&] { failures += pcclAllReduce(&values[1], &values[1], &descriptor, run[1], nullptr) != pcclSuccess; });
    failures += pcclAllReduce(&values[0], &values[0], &descriptor, run[0], nullptr) != pcclSuccess;
    other.join();
    return failures == 0 && values[0] == first + second && values[1] == first + second;
}

}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" char* getenv(const char* name) noexcept {
    check_thread();
    const std::size_t length = std::strlen(name);
    for (char** at = environ; at != nullptr && *at != nullptr; ++at)
        if (std::strncmp(*at, name, length) == 0 && (*at)[length] == '=') return *at + length + 1;
    return nullptr;
}

TEST_CASE("a standard error that blocks stops neither the master nor a peer") {
    LocalRun run(1);
    {
        const BlockedStandardError blocked;
        knock(run.port());
        run.admit();
        knock(run.port());
        for (int turn = 0; turn < 20; ++turn) REQUIRE(reduce_together(run, 1, 2, 7));
        int value = 0;
        CHECK(pcclGetAttribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, nullptr) == pcclInvalidArgument);
        CHECK(pcclGetAttribute(run[0], PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &value) == pcclSuccess);
        CHECK(value == 2);
    }
    REQUIRE(reduce_together(run, 3, 4, 8));
    CHECK(waits_of_io_threads == 0);
}
