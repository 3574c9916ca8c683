#include "net-real/staging_file.hpp"

#include "net-real/workers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace pccl::real {

namespace {
constexpr std::size_t piece_bytes = 64u << 20;
}

StagingFile::StagingFile(std::string directory, std::size_t bytes, std::function<void()> done)
    : directory_(std::move(directory)), bytes_(bytes), done_(std::move(done)) {}

StagingFile::~StagingFile() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::shared_ptr<StagingFile> StagingFile::begin(std::string directory, std::size_t bytes, std::function<void()> done) {
    std::shared_ptr<StagingFile> made(new StagingFile(std::move(directory), bytes, std::move(done)));
    const SignalsBlocked blocked;
    std::thread([made] {
        name_this_thread("pccl-staging");
        made->make();
    }).detach();
    return made;
}

int StagingFile::open_nameless() const {
    for (const char* directory : {directory_.c_str(), "/var/tmp", "/tmp"}) {
        if (*directory == '\0') continue;
        int file = ::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (file >= 0) return file;
        std::string path = std::string(directory) + "/pccl-XXXXXX";  // a file system without O_TMPFILE
        file = ::mkostemp(path.data(), O_CLOEXEC);
        if (file < 0) continue;
        ::unlink(path.c_str());
        return file;
    }
    return -1;
}

void StagingFile::make() {
    void* raw = MAP_FAILED;
    try {
        if (const int file = open_nameless(); file >= 0) {
            // Allocate the room now: a write into a mapping on a full disk would end the process.
            std::size_t have = 0;
            while (have < bytes_ && !abandoned_) {
                const std::size_t piece = std::min(piece_bytes, bytes_ - have);
                const int error = ::posix_fallocate(file, static_cast<off_t>(have), static_cast<off_t>(piece));
                if (error == EINTR) continue;
                if (error != 0) break;
                have += piece;
                pieces_.fetch_add(1, std::memory_order_relaxed);
            }
            if (have == bytes_) raw = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            ::close(file);
        }
    } catch (const std::exception&) {
        // Out of memory: treated like a full disk.
    }
    const std::lock_guard lock(mutex_);
    if (raw != MAP_FAILED) data_ = static_cast<std::uint8_t*>(raw);
    const auto done = std::exchange(done_, nullptr);
    try {
        if (done) done();
    } catch (const std::exception&) {
        // Out of memory: the owner gives up by itself after its time-out.
    }
}

void StagingFile::abandon() {
    abandoned_ = true;
    const std::lock_guard lock(mutex_);
    done_ = nullptr;
}

std::uint8_t* StagingFile::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(data_, nullptr);
}

void unmap_aside(void* data, std::size_t bytes) {
    try {
        const SignalsBlocked blocked;
        std::thread([data, bytes] {
            name_this_thread("pccl-staging");
            ::munmap(data, bytes);
        }).detach();
    } catch (const std::exception&) {
        ::munmap(data, bytes);
    }
}

}  // namespace pccl::real
