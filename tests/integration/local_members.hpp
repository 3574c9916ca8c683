// A master and some connected communicators in the process of the test.
#pragma once

#include "local_run.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace integration {

// Sets one environment variable for the length of a scope.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Variable() { unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
};

class LocalRun {
public:
    // Uses the master of this process, or another one that listens at `port`.
    explicit LocalRun(std::size_t count, const pcclCommConfig_t* config = nullptr, std::uint16_t port = 0) {
        setenv("PCCL_PORT_RANGE", "0", 1);
        pcclInit();
        if (!master_.runs()) throw std::runtime_error("no master");
        port_ = port == 0 ? master_.port() : port;
        for (std::size_t i = 0; i < count; ++i) admit(config);
    }
    ~LocalRun() {
        for (pcclComm_t* comm : members_) pcclDestroyCommunicator(comm);
    }
    LocalRun(const LocalRun&) = delete;
    LocalRun& operator=(const LocalRun&) = delete;

    pcclComm_t* operator[](std::size_t index) const { return members_.at(index); }
    std::uint16_t port() const { return port_; }
    LocalMaster& master() { return master_; }

    // Takes the member off this list. It stays in the run.
    pcclComm_t* take(std::size_t index) {
        pcclComm_t* comm = members_.at(index);
        members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(index));
        return comm;
    }
    void admit(const pcclCommConfig_t* config = nullptr) {
        const pcclCommCreateParams_t params = params_for(port());
        pcclComm_t* comm = nullptr;
        if (pcclCreateCommunicatorWithConfig(&params, config, &comm) != pcclSuccess) throw std::runtime_error("create");
        rejoin(comm);
        members_.push_back(comm);
    }
    // Connects `comm` while all members vote until it is admitted.
    void rejoin(pcclComm_t* comm) {
        std::atomic<int> failures{0};
        std::vector<std::thread> threads;
        threads.emplace_back([&] { failures += pcclConnect(comm) != pcclSuccess ? 1 : 0; });
        for (pcclComm_t* member : members_) {
            threads.emplace_back([&failures, member] {
                for (bool pending = false; !pending;) {
                    if (pcclArePeersPending(member, &pending) == pcclSuccess) continue;
                    ++failures;
                    return;
                }
                failures += pcclUpdateTopology(member) != pcclSuccess ? 1 : 0;
            });
        }
        for (std::thread& thread : threads) thread.join();
        if (failures != 0) throw std::runtime_error("a newcomer was not admitted");
    }

private:
    LocalMaster master_;
    std::uint16_t port_ = 0;
    std::vector<pcclComm_t*> members_;
};

}  // namespace integration
