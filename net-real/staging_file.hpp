// Memory that a file without a name backs, made on a thread of its own.
//
// To reserve room on a disk may take minutes, and a disk that stalls never answers: an I/O thread must not wait for that. The
// thread belongs to nobody. It holds the object, so the caller may abandon it at any time.
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
    // The file lies in `directory`, or where that is empty or unusable in /var/tmp or /tmp. `done` is called once by the
    // thread, with a lock of ours held; it must not wait. Throws std::system_error when the thread cannot be had.
    static std::shared_ptr<StagingFile> begin(std::string directory, std::size_t bytes, std::function<void()> done);
    ~StagingFile();
    StagingFile(const StagingFile&) = delete;
    StagingFile& operator=(const StagingFile&) = delete;

    // Grows with each piece of the file that the disk has given.
    std::uint64_t pieces() const { return pieces_.load(std::memory_order_relaxed); }
    // `done` is not called any more; what was or will be made is given back.
    void abandon();
    // After `done`: the mapping, which is the caller's from now on; null when it cannot be had.
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

// munmap that may take long (much memory, or a file), on a thread of its own where one can be had.
void unmap_aside(void* data, std::size_t bytes);

}  // namespace pccl::real
