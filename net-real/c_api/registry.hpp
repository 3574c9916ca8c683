// The live handles of one kind. Every handle that a program passes is looked up before it is used, so that a null,
// stale or invented pointer gives an error and not a crash.
//
// A Lease keeps its object alive for the length of a call. Destroying an object takes these steps: take the handle out
// (new calls fail), make the waiting calls return, wait for the last lease, free the memory.
//
// fork: the registry's lock is taken around fork() (see registry.cpp), so the child finds it consistent. An object that
// was made before the fork has locks in an unknown state. The child never takes them and never frees the object.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <sys/types.h>
#include <unistd.h>

namespace pccl::c_api {

// Base of the objects behind handles.
class Leasable {
public:
    Leasable() : owner_(::getpid()) {}
    bool belongs_to_another_process() const { return owner_ != ::getpid(); }
    void add_lease() {
        const std::lock_guard lock(lease_mutex_);
        ++leases_;
    }
    void end_lease() {
        const std::lock_guard lock(lease_mutex_);
        if (--leases_ == 0) no_lease_.notify_all();
    }
    void wait_until_unused() {
        std::unique_lock lock(lease_mutex_);
        no_lease_.wait(lock, [this] { return leases_ == 0; });
    }

private:
    const pid_t owner_;
    std::mutex lease_mutex_;
    std::condition_variable no_lease_;
    int leases_ = 0;
};

template <class Object>
class Lease {
public:
    Lease() = default;
    Lease(std::shared_ptr<Object> object, bool foreign) : object_(std::move(object)), foreign_(foreign) {
        if (object_ && !foreign_) object_->add_lease();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
        // The wait check of a call may fork. The child must not touch the lock.
        if (object_ && !foreign_ && !object_->belongs_to_another_process()) object_->end_lease();
    }
    explicit operator bool() const { return object_ != nullptr; }
    bool foreign() const { return foreign_; }  // made before a fork, by the parent
    Object* operator->() const { return object_.get(); }
    Object& operator*() const { return *object_; }

private:
    std::shared_ptr<Object> object_;
    bool foreign_ = false;
};

template <class Object>
class Registry {
public:
    void add(const void* handle, std::shared_ptr<Object> object) {
        const std::lock_guard lock(mutex_);
        objects_.insert_or_assign(handle, std::move(object));
    }
    Lease<Object> find(const void* handle) {
        const std::lock_guard lock(mutex_);
        const auto at = objects_.find(handle);
        if (at == objects_.end()) return {};
        return {at->second, at->second->belongs_to_another_process()};
    }
    std::shared_ptr<Object> take(const void* handle) {
        const std::lock_guard lock(mutex_);
        const auto at = objects_.find(handle);
        if (at == objects_.end()) return nullptr;
        std::shared_ptr<Object> object = std::move(at->second);
        objects_.erase(at);
        return object;
    }
    std::mutex& fork_mutex() { return mutex_; }

private:
    std::mutex mutex_;
    std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

class Communicator;
class Master;

// Never destroyed: other static objects of the program may still call the library at exit.
Registry<Communicator>& communicators();
Registry<Master>& masters();

}  // namespace pccl::c_api
