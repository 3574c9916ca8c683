// One direction of a shared stream: a ring of bytes between one writer and one reader in two processes.
//
// The other process is not trusted. It can change every byte of the shared memory at any time. So each end keeps its own
// position in private memory and only publishes it. It reads the position of the other end once per use, and checks it:
// a position that is more than the ring's size away is a lie, and the ring is broken from then on. Bytes are copied out
// before anybody looks at them. A lying process can damage only the bytes of its own connection.
//
// Sleep: an end that finds nothing to do sets its flag, looks again, and then waits. The other end moves, then looks at
// the flag. All four accesses are sequentially consistent, so at least one end sees the other one's: no wake-up is lost.
// The reader sleeps on an empty ring. The writer sleeps on a full one, until half of it is free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/uio.h>

namespace pccl::real {

// In shared memory. Fields that different ends write are in different cache lines (two, because lines are fetched in
// pairs).
struct RingHeader {
    alignas(128) std::atomic<std::uint64_t> written;  // bytes since the beginning; the writer's
    std::atomic<std::uint32_t> ended;                 // the writer has shut down its output
    alignas(128) std::atomic<std::uint64_t> read;     // bytes since the beginning; the reader's
    alignas(128) std::atomic<std::uint32_t> reader_sleeps;
    alignas(128) std::atomic<std::uint32_t> writer_sleeps;
};
static_assert(sizeof(RingHeader) == 512);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

class RingWriter {
public:
    RingWriter() = default;
    RingWriter(RingHeader& header, std::uint8_t* data, std::size_t size) : header_(&header), data_(data), size_(size) {}

    // Copies what fits. Returns the number of bytes.
    std::size_t write(std::span<const iovec> parts);
    void end() { header_->ended.store(1); }
    // True once for each sleep of the reader: it must be woken.
    bool must_wake_reader() { return header_->reader_sleeps.load() != 0 && header_->reader_sleeps.exchange(0) != 0; }
    // True: wait to be woken. False: there is room, or the ring is broken.
    bool sleep();
    bool is_broken() const { return broken_; }

private:
    std::size_t room();

    RingHeader* header_ = nullptr;
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;  // a power of two
    std::uint64_t written_ = 0;
    std::uint64_t read_ = 0;  // as it was last seen; written_ - read_ <= size_
    bool broken_ = false;
};

class RingReader {
public:
    RingReader() = default;
    RingReader(RingHeader& header, const std::uint8_t* data, std::size_t size)
        : header_(&header), data_(data), size_(size) {}

    // Copies what is there. Returns the number of bytes.
    std::size_t read(std::span<const iovec> parts);
    // The writer has shut down its output and all of it was read. Look before the last read, not after it.
    bool has_ended() const { return header_->ended.load() != 0; }
    // True once for each sleep of the writer, if there is enough room: it must be woken.
    bool must_wake_writer();
    // True: wait to be woken. False: there are bytes or an end, or the ring is broken.
    bool sleep();
    bool is_broken() const { return broken_; }

private:
    std::size_t available();

    RingHeader* header_ = nullptr;
    const std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;  // a power of two
    std::uint64_t read_ = 0;
    std::uint64_t written_ = 0;  // as it was last seen; written_ - read_ <= size_
    bool broken_ = false;
};

}  // namespace pccl::real
