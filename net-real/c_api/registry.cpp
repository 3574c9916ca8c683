// The two registries, and their locks around fork(): a child must not inherit a lock that a thread of the parent holds.
#include "net-real/c_api/registry.hpp"

#include "net-real/c_api/communicator.hpp"
#include "net-real/c_api/master.hpp"

#include <pthread.h>

namespace pccl::c_api {
namespace {

struct Registries {
    Registry<Communicator> communicators;
    Registry<Master> masters;
};

Registries& registries();

void lock_before_fork() {
    registries().communicators.fork_mutex().lock();
    registries().masters.fork_mutex().lock();
}

void unlock_after_fork() {
    registries().masters.fork_mutex().unlock();
    registries().communicators.fork_mutex().unlock();
}

Registries& registries() {
    static Registries* const instance = new Registries;
    return *instance;
}

// Runs when the library is loaded, before any thread of the library exists.
[[gnu::constructor]] void watch_forks() {
    registries();
    pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
}

}  // namespace

Registry<Communicator>& communicators() { return registries().communicators; }
Registry<Master>& masters() { return registries().masters; }

}  // namespace pccl::c_api
