#include "net-real/streams/shared_segment.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/sockets.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace pccl::real {

// The first page. Then come the ring that the dialler writes and the ring that the acceptor writes.
struct SharedSegment::Header {
    SharedToken tokens[2];
    RingHeader rings[2];
};

namespace {

constexpr std::size_t header_bytes = 4096;
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

std::string last_error(const char* what) { return core::formatted("{}: {}", what, std::strerror(errno)); }

int open_memory_file() {
    const std::lock_guard lock(descriptors::guard());
    int descriptor = ::memfd_create("pccl-link", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    // Systems before 6.3 refuse the flag.
    if (descriptor < 0 && errno == EINVAL) descriptor = ::memfd_create("pccl-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor >= 0) descriptors::track(descriptor);
    return descriptor;
}

}  // namespace

std::size_t SharedSegment::bytes_of(std::size_t ring_bytes) { return header_bytes + 2 * ring_bytes; }

SharedSegment::SharedSegment(std::uint8_t* base, std::size_t ring_bytes, SharedMemoryUse& use)
    : header_(*reinterpret_cast<Header*>(base)), ring_bytes_(ring_bytes), use_(use) {
    static_assert(sizeof(Header) <= header_bytes);
    use_.bytes += bytes_of(ring_bytes_);
}

SharedSegment::~SharedSegment() {
    ::munmap(&header_, bytes_of(ring_bytes_));
    use_.bytes -= bytes_of(ring_bytes_);
}

std::unique_ptr<SharedSegment> SharedSegment::map(int descriptor, std::size_t ring_bytes, SharedMemoryUse& use,
                                                  std::string& error) {
    const std::size_t bytes = bytes_of(ring_bytes);
    if (::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) != 0) {
        error = last_error("shared memory");
        return nullptr;
    }
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (base == MAP_FAILED) {
        error = last_error("map shared memory");
        return nullptr;
    }
    ::madvise(base, bytes, MADV_DONTFORK);  // a child of this process has no part in the connection
    return std::unique_ptr<SharedSegment>(new SharedSegment(static_cast<std::uint8_t*>(base), ring_bytes, use));
}

std::unique_ptr<SharedSegment> SharedSegment::make(std::size_t ring_bytes, SharedMemoryUse& use, int& descriptor,
                                                   std::string& error) {
    descriptor = -1;
    if (use.bytes + bytes_of(ring_bytes) > use.bytes_max) {
        error = "the limit on shared memory is reached";
        return nullptr;
    }
    const int file = open_memory_file();
    if (file < 0) {
        error = last_error("make shared memory");
        return nullptr;
    }
    std::unique_ptr<SharedSegment> segment;
    if (::ftruncate(file, static_cast<off_t>(bytes_of(ring_bytes))) != 0 ||
        ::fcntl(file, F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0)
        error = last_error("make shared memory");
    else
        segment = map(file, ring_bytes, use, error);
    if (segment == nullptr) {
        close_socket(file);
        return nullptr;
    }
    descriptor = file;
    return segment;
}

std::unique_ptr<SharedSegment> SharedSegment::adopt(int descriptor, std::size_t ring_bytes, SharedMemoryUse& use,
                                                    std::string& error) {
    if (!is_ring_size(ring_bytes)) {
        error = "the size of its rings is not allowed";
        return nullptr;
    }
    if (use.bytes + bytes_of(ring_bytes) > use.bytes_max) {
        error = "the limit on shared memory is reached";
        return nullptr;
    }
    // Only memory files can have these seals. Huge pages are refused, because the pool of them may run out later.
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    struct stat status {};
    struct statfs system {};
    if (seals < 0 || (seals & size_seals) != size_seals || ::fstat(descriptor, &status) != 0 ||
        !S_ISREG(status.st_mode) || status.st_size != static_cast<off_t>(bytes_of(ring_bytes)) ||
        ::fstatfs(descriptor, &system) != 0 || system.f_type != TMPFS_MAGIC) {
        error = "what it passed is not sealed memory of the right size";
        return nullptr;
    }
    return map(descriptor, ring_bytes, use, error);
}

SharedToken SharedSegment::write_token(Side side) {
    std::random_device device;
    SharedToken token;
    for (auto& byte : token) byte = static_cast<std::uint8_t>(device());
    std::memcpy(header_.tokens[static_cast<std::size_t>(side)].data(), token.data(), token.size());
    return token;
}

SharedToken SharedSegment::read_token(Side side) const {
    SharedToken token;
    std::memcpy(token.data(), header_.tokens[static_cast<std::size_t>(side)].data(), token.size());
    return token;
}

std::uint8_t* SharedSegment::ring_data(Side writer) {
    return reinterpret_cast<std::uint8_t*>(&header_) + header_bytes + static_cast<std::size_t>(writer) * ring_bytes_;
}

RingWriter SharedSegment::writer(Side side) {
    return {header_.rings[static_cast<std::size_t>(side)], ring_data(side), ring_bytes_};
}

RingReader SharedSegment::reader(Side side) {
    const Side other = side == Side::dialler ? Side::acceptor : Side::dialler;
    return {header_.rings[static_cast<std::size_t>(other)], ring_data(other), ring_bytes_};
}

}  // namespace pccl::real
