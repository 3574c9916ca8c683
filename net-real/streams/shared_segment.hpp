// The memory of a shared stream: two rings and two tokens in a memory file without a name (memfd).
//
// The process that dials makes it, fills in its token and passes the descriptor. The process that accepts checks what it
// was given before it maps it. The file is sealed against a change of its size, because an access behind the end of a
// file ends the process. All pages are there before the first access, for the same reason: a system that has no page
// left answers the request for them with an error. When both processes have unmapped it, the memory is gone.
#pragma once

#include "net-real/streams/shared_ring.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pccl::real {

using SharedToken = std::array<std::uint8_t, 16>;

// Counts the shared memory of one loop. The loop's thread only.
struct SharedMemoryUse {
    std::uint64_t bytes = 0;
    std::uint64_t bytes_max = 0;
};

class SharedSegment {
public:
    static constexpr std::size_t ring_bytes_min = 4u << 10;
    static constexpr std::size_t ring_bytes_max = 16u << 20;
    static bool is_ring_size(std::size_t bytes) {
        return bytes >= ring_bytes_min && bytes <= ring_bytes_max && (bytes & (bytes - 1)) == 0;
    }
    enum class Side : std::uint8_t { dialler = 0, acceptor = 1 };

    // Makes the segment, with a fresh token of the dialler. `descriptor` is the file: pass it on, then close it with
    // close_socket(). Null and `error` on failure.
    static std::unique_ptr<SharedSegment> make(std::size_t ring_bytes, SharedMemoryUse& use, int& descriptor,
                                               std::string& error);
    // Maps a file that another process has made. Null and `error` if it is not exactly such a file. The descriptor
    // stays open.
    static std::unique_ptr<SharedSegment> adopt(int descriptor, std::size_t ring_bytes, SharedMemoryUse& use,
                                                std::string& error);
    ~SharedSegment();
    SharedSegment(const SharedSegment&) = delete;
    SharedSegment& operator=(const SharedSegment&) = delete;

    // The token that this side wrote into the segment: only a process that has mapped it can know it.
    SharedToken write_token(Side side);
    SharedToken read_token(Side side) const;
    RingWriter writer(Side side);
    RingReader reader(Side side);

private:
    struct Header;
    SharedSegment(std::uint8_t* base, std::size_t ring_bytes, SharedMemoryUse& use);
    static std::unique_ptr<SharedSegment> map(int descriptor, std::size_t ring_bytes, SharedMemoryUse& use,
                                              std::string& error);
    static std::size_t bytes_of(std::size_t ring_bytes);
    std::uint8_t* ring_data(Side writer);

    Header& header_;
    const std::size_t ring_bytes_;
    SharedMemoryUse& use_;
};

}  // namespace pccl::real
