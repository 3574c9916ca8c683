// The bytes in flight in one direction of a connection: a queue of real bytes and of runs of zeros, of which only the
// length is stored.
//
// Symbolic payload (buffers without memory) travels as such runs, so gigabytes cost only a few numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pccl::sim {

// `length` zeros that follow the first `at` real bytes of a write.
struct ZeroRun {
    std::size_t at = 0;
    std::size_t length = 0;
};

// A part of the bytes that arrive: real bytes, or zeros (data == nullptr).
struct Piece {
    const std::uint8_t* data = nullptr;
    std::size_t length = 0;
};

class Stream {
public:
    std::size_t size() const { return bytes_.size() - head_ + zeros_; }
    bool empty() const { return size() == 0; }
    // All real bytes in flight, without the zeros between them.
    std::span<std::uint8_t> real_bytes() { return std::span(bytes_).subspan(head_); }

    // `runs` are ordered by `at`.
    void append(std::span<const std::uint8_t> bytes, std::span<const ZeroRun> runs) {
        if (head_ == bytes_.size() && zeros_ == 0) clear();
        if (head_ > compact_above && head_ > bytes_.size() / 2) compact();
        const std::uint64_t base = dropped_ + bytes_.size();
        for (const ZeroRun& run : runs) {
            if (run.length == 0) continue;
            runs_.push_back(Run{base + run.at, run.length});
            zeros_ += run.length;
        }
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }

    // Removes the next `length` bytes, or all if there are fewer. `copy` receives the real ones. `pieces` point into
    // `copy`.
    void take(std::size_t length, std::vector<std::uint8_t>& copy, std::vector<Piece>& pieces) {
        copy.clear();
        pieces.clear();
        copy.reserve(std::min(length, bytes_.size() - head_));  // must not move: pieces point into it
        while (length != 0) {
            std::size_t part = std::min(length, bytes_.size() - head_);
            if (run_head_ < runs_.size()) {
                Run& run = runs_[run_head_];
                const auto before = static_cast<std::size_t>(run.at - (dropped_ + head_));
                if (before == 0) {
                    part = std::min(length, run.length);
                    run.length -= part;
                    zeros_ -= part;
                    length -= part;
                    if (run.length == 0) ++run_head_;
                    pieces.push_back(Piece{nullptr, part});
                    continue;
                }
                part = std::min(part, before);
            }
            if (part == 0) return;
            const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(head_);
            const std::size_t at = copy.size();
            copy.insert(copy.end(), from, from + static_cast<std::ptrdiff_t>(part));
            pieces.push_back(Piece{copy.data() + at, part});
            head_ += part;
            length -= part;
        }
    }

    void clear() {
        bytes_.clear();
        runs_.clear();
        head_ = run_head_ = 0;
        zeros_ = 0;
        dropped_ = 0;
    }

    // Keeps only the first `length` bytes.
    void truncate(std::size_t length) {
        std::vector<std::uint8_t> copy;
        std::vector<Piece> pieces;
        take(std::min(length, size()), copy, pieces);
        clear();
        std::vector<ZeroRun> runs;
        std::size_t real = 0;
        for (const Piece& piece : pieces) {
            if (piece.data == nullptr)
                runs.push_back(ZeroRun{real, piece.length});
            else
                real += piece.length;
        }
        append(copy, runs);
    }

private:
    static constexpr std::size_t compact_above = 1u << 16;
    struct Run {
        std::uint64_t at = 0;  // number of real bytes before it, since the last clear()
        std::size_t length = 0;
    };

    void compact() {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
        dropped_ += head_;
        head_ = 0;
        runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(run_head_));
        run_head_ = 0;
    }

    std::vector<std::uint8_t> bytes_;
    std::vector<Run> runs_;
    std::size_t head_ = 0;       // index in bytes_ of the first byte in flight
    std::size_t run_head_ = 0;   // index in runs_ of the first run in flight
    std::size_t zeros_ = 0;      // in flight, in all runs together
    std::uint64_t dropped_ = 0;  // real bytes that compact() has erased since the last clear()
};

}  // namespace pccl::sim
