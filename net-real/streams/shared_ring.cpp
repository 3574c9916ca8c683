#include "net-real/streams/shared_ring.hpp"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace pccl::real {

namespace {

// A position is published after so many bytes at most: the other end then works on bytes that are still in the cache.
constexpr std::size_t publish_bytes = 64u << 10;

// As memcpy, which uses `rep movsb` for such lengths on AMD before glibc 2.39. One of the two ranges is in the caches of
// another processor, and an ordinary loop is faster there: 256 MiB with two peers take 70 ms instead of 84
// (`build/bin/pccl-bench --peers 2 --sizes 256M --out-of-place`).
void copy(std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
#if defined(__x86_64__)
    constexpr std::size_t line = 64;
    for (; bytes >= line; target += line, source += line, bytes -= line) {
        const auto* from = reinterpret_cast<const __m128i*>(source);
        auto* to = reinterpret_cast<__m128i*>(target);
        const __m128i a = _mm_loadu_si128(from);
        const __m128i b = _mm_loadu_si128(from + 1);
        const __m128i c = _mm_loadu_si128(from + 2);
        const __m128i d = _mm_loadu_si128(from + 3);
        _mm_storeu_si128(to, a);
        _mm_storeu_si128(to + 1, b);
        _mm_storeu_si128(to + 2, c);
        _mm_storeu_si128(to + 3, d);
    }
#endif
    std::memcpy(target, source, bytes);
}

}  // namespace

// ---- writer ------------------------------------------------------------------------------------------------------

std::size_t RingWriter::room() {
    if (broken_) return 0;
    const std::uint64_t read = header_->read.load();
    if (written_ - read > size_) {
        broken_ = true;
        return 0;
    }
    read_ = read;
    return size_ - static_cast<std::size_t>(written_ - read_);
}

std::size_t RingWriter::write(std::span<const iovec> parts) {
    std::size_t total = 0;
    std::size_t unpublished = 0;
    std::size_t free = broken_ ? 0 : size_ - static_cast<std::size_t>(written_ - read_);
    const auto publish = [&] {
        if (unpublished > 0) header_->written.store(written_);
        unpublished = 0;
    };
    for (const iovec& part : parts) {
        const auto* source = static_cast<const std::uint8_t*>(part.iov_base);
        for (std::size_t left = part.iov_len; left > 0;) {
            if (free == 0) {
                publish();
                free = room();
                if (free == 0) return total;
            }
            const std::size_t offset = static_cast<std::size_t>(written_) & (size_ - 1);
            const std::size_t bytes = std::min({left, free, size_ - offset, publish_bytes - unpublished});
            copy(data_ + offset, source, bytes);
            written_ += bytes;
            source += bytes;
            left -= bytes;
            free -= bytes;
            total += bytes;
            unpublished += bytes;
            if (unpublished == publish_bytes) publish();
        }
    }
    publish();
    return total;
}

bool RingWriter::sleep() {
    header_->writer_sleeps.store(1);
    if (room() < size_ / 2 && !broken_) return true;
    header_->writer_sleeps.store(0);
    return false;
}

// ---- reader ------------------------------------------------------------------------------------------------------

std::size_t RingReader::available() {
    if (broken_) return 0;
    const std::uint64_t written = header_->written.load();
    if (written - read_ > size_) {
        broken_ = true;
        return 0;
    }
    written_ = written;
    return static_cast<std::size_t>(written_ - read_);
}

std::size_t RingReader::read(std::span<const iovec> parts) {
    std::size_t total = 0;
    std::size_t unpublished = 0;
    std::size_t there = broken_ ? 0 : static_cast<std::size_t>(written_ - read_);
    const auto publish = [&] {
        if (unpublished > 0) header_->read.store(read_);
        unpublished = 0;
    };
    for (const iovec& part : parts) {
        auto* target = static_cast<std::uint8_t*>(part.iov_base);
        for (std::size_t left = part.iov_len; left > 0;) {
            if (there == 0) {
                publish();
                there = available();
                if (there == 0) return total;
            }
            const std::size_t offset = static_cast<std::size_t>(read_) & (size_ - 1);
            const std::size_t bytes = std::min({left, there, size_ - offset, publish_bytes - unpublished});
            copy(target, data_ + offset, bytes);
            read_ += bytes;
            target += bytes;
            left -= bytes;
            there -= bytes;
            total += bytes;
            unpublished += bytes;
            if (unpublished == publish_bytes) publish();
        }
    }
    publish();
    return total;
}

bool RingReader::must_wake_writer() {
    if (header_->writer_sleeps.load() == 0) return false;
    if (available() > size_ / 2) return false;
    return header_->writer_sleeps.exchange(0) != 0;
}

bool RingReader::sleep() {
    header_->reader_sleeps.store(1);
    if (available() == 0 && !has_ended() && !broken_) return true;
    header_->reader_sleeps.store(0);
    return false;
}

}  // namespace pccl::real
