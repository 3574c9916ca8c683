// Memory that is backed by a file without a name, made on a thread of its own.
//
// Reserving room on a disk may take minutes, and a disk that stalls never answers: an I/O thread must not wait for
// that. The thread is detached. It holds the object, so the caller may abandon it at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace pccl::real {

class StagingFile {
public:
    // The file lies in `directory`, or, if that is empty or unusable, in /var/tmp or /tmp. The thread calls `done` once
    // and holds a lock of this object meanwhile; `done` must not wait. Throws std::system_error if no thread can be
    // started.
    static std::shared_ptr<StagingFile> begin(std::string directory, std::size_t bytes, std::function<void()> done);
    ~StagingFile();
    StagingFile(const StagingFile&) = delete;
    StagingFile& operator=(const StagingFile&) = delete;

    // How many pieces of the file the disk has given so far.
    std::uint64_t pieces() const { return pieces_.load(std::memory_order_relaxed); }
    // `done` is not called any more. What was made, or will be made, is freed.
    void abandon();
    // After `done`: the mapping, which the caller owns from now on. Null: it could not be made.
    std::uint8_t* take();

private:
    StagingFile(std::string directory, std::size_t bytes, std::function<void()> done);
    void make();
    int open_nameless() const;

    const std::string directory_;
    const std::size_t bytes_;
    std::atomic<std::uint64_t> pieces_{0};
    std::atomic<bool> abandoned_{false};
    std::mutex mutex_;
    std::function<void()> done_;    // under mutex_; empty: called or abandoned
    std::uint8_t* data_ = nullptr;  // under mutex_
};

// munmap that may take long (much memory, or a file), on a thread of its own if one can be started.
void unmap_aside(void* data, std::size_t bytes);

}  // namespace pccl::real
