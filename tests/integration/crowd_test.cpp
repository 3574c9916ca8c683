// 500 newcomers that start at once, while the members have the usual limit of descriptors.
#include "cluster.hpp"
#include "local_run.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

using namespace integration;

namespace {

#ifdef __SANITIZE_THREAD__
constexpr int crowd_size = 100;  // its threads are many times as slow
#else
constexpr int crowd_size = 500;
#endif
constexpr rlim_t usual_limit = 1024;  // soft limit of descriptors, what most systems give to a process

// Sets the soft limit of this process and of the processes that it starts.
void limit_descriptors(rlim_t soft) {
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = std::min(soft, limit.rlim_max);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

// Communicators of this process. Each one connects in a thread of its own.
class Crowd {
public:
    explicit Crowd(std::uint16_t port) {
        for (int i = 0; i < crowd_size; ++i) {
            const pcclCommCreateParams_t params = params_for(port);
            comms_.push_back(nullptr);
            REQUIRE(pcclCreateCommunicator(&params, &comms_.back()) == pcclSuccess);
        }
        for (pcclComm_t* comm : comms_) threads_.emplace_back([this, comm] { join_and_update(comm); });
    }
    ~Crowd() {
        for (pcclComm_t* comm : comms_) pcclAbort(comm);
        wait();
        for (pcclComm_t* comm : comms_) pcclDestroyCommunicator(comm);
    }
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;

    int failures() const { return failures_; }
    // Waits until every thread has seen that all peers are admitted, or an error.
    void wait() {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    int connected() const { return connected_; }

private:
    // Does what members do that wait for others: updates until all are admitted.
    void join_and_update(pcclComm_t* comm) {
        bool failed = pcclConnect(comm) != pcclSuccess;
        connected_ += failed ? 0 : 1;
        const auto all_are_in = [&] {
            int world = 0;
            failed = pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) != pcclSuccess;
            return failed || world == crowd_size + 2;
        };
        while (!failed && !all_are_in()) failed = pcclUpdateTopology(comm) != pcclSuccess;
        failures_ += failed ? 1 : 0;
    }

    std::vector<pcclComm_t*> comms_;
    std::vector<std::thread> threads_;
    std::atomic<int> connected_{0}, failures_{0};
};

}  // namespace

TEST_CASE("500 newcomers at once: none is turned away, members have descriptors for them, and all get in") {
    rlimit given{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &given) == 0);
    if (given.rlim_max < 8 * usual_limit) {
        WARN("skipped: the crowd in this process needs a hard limit of 8,192 descriptors (ulimit -Hn)");
        return;
    }
    limit_descriptors(usual_limit);
    // The machine may be busy, so a slow peer must not count as dead here.
    const Environment patient{{"PCCL_PEER_TIMEOUT_MS", "60000"}, {"PCCL_LOG_LEVEL", "INFO"}};
    Cluster cluster(2, patient);
    limit_descriptors(given.rlim_max);
    pcclInit();
    setenv("PCCL_LOG_LEVEL", "ERR", 1);
    setenv("PCCL_PORT_RANGE", "0", 1);
    Crowd crowd(cluster.master().port());
    int descriptors = 0;
    // All of them wait before the first one is admitted.
    while (cluster.master().open_descriptors() < crowd_size) {
        REQUIRE(crowd.failures() == 0);
        for (std::size_t i = 0; i < 2; ++i) descriptors = std::max(descriptors, cluster[i].open_descriptors());
    }
    for (bool pending = false; !pending;) {
        for (const Answer& answer : cluster.all("pending")) {
            REQUIRE(answer.result == success);
            pending = answer.number(0) != 0;
        }
    }
    for (std::uint32_t world = 2; world < crowd_size + 2;) {
        for (const Answer& answer : cluster.all("update")) REQUIRE(answer.result == success);
        REQUIRE(crowd.failures() == 0);
        const std::uint32_t grown = cluster[0].attribute(1);
        CHECK(grown >= world);
        world = grown;
        for (std::size_t i = 0; i < 2; ++i) descriptors = std::max(descriptors, cluster[i].open_descriptors());
    }
    crowd.wait();
    CHECK(crowd.failures() == 0);
    CHECK(crowd.connected() == crowd_size);
    for (std::size_t i = 0; i < 2; ++i) descriptors = std::max(descriptors, cluster[i].open_descriptors());
    CHECK(descriptors < static_cast<int>(usual_limit) * 3 / 4);
    for (std::size_t i = 0; i < 2; ++i) CHECK(cluster[i].log_text().find("oo many open files") == std::string::npos);
    CHECK(cluster.master().log_text().find("removed") == std::string::npos);
    limit_descriptors(given.rlim_cur);
}
