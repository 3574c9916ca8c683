// The object behind a pcclMasterInstance_t: a MasterRuntime that pcclRunMaster makes.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/c_api/outcome.hpp"
#include "net-real/c_api/registry.hpp"
#include "net-real/master_runtime.hpp"

#include <atomic>
#include <memory>
#include <mutex>

namespace pccl::c_api {

class Master : public Leasable {
public:
    explicit Master(const core::Endpoint& address) : address_(address) {}
    ~Master() { stop(); }

    Outcome run();
    Outcome interrupt();
    Outcome await_termination();
    Outcome port(std::uint16_t& port) const;
    // Stops the master and makes those who wait for its termination return. Bounded in time.
    void stop();

private:
    real::MasterRuntime* runtime() const { return published_.load(std::memory_order_acquire); }

    const core::Endpoint address_;
    std::mutex run_mutex_;
    std::unique_ptr<real::MasterRuntime> owned_;            // under run_mutex_
    bool stopped_ = false;                                  // under run_mutex_
    std::atomic<real::MasterRuntime*> published_{nullptr};  // set once, when it runs
};

}  // namespace pccl::c_api
