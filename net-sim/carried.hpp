// Counts the payload bytes that a driver carried for each operation. The harness compares what the machine reports with
// these counts.
#pragma once

#include "core/wire/frame.hpp"

#include <cstdint>
#include <vector>

namespace pccl::sim {

class Carried {
public:
    struct Part {
        core::OpId op = 0;
        bool state = false;        // true: chunks of shared state; false: slices of a reduction
        std::uint64_t sent = 0;    // in frames that left completely and were not cancelled
        std::uint64_t landed = 0;  // undamaged, in the buffer that ReceivePayload named
    };

    static bool counts(const core::wire::BulkHeader& header) { return header.phase <= 2; }
    void sent(const core::wire::BulkHeader& header) {
        if (!counts(header)) return;
        part(header).sent += header.length;
        if (header.phase < 2) slices_sent_ += header.length;
    }
    void landed(const core::wire::BulkHeader& header) {
        if (!counts(header)) return;
        part(header).landed += header.length;
        if (header.phase < 2) slices_landed_ += header.length;
    }
    // A vote carried the input of a reduction, and its answer the result. Both have the same length.
    void in_vote(std::uint64_t bytes) {
        parts_.push_back(Part{0, false, bytes, bytes});
        slices_sent_ += bytes;
        slices_landed_ += bytes;
    }
    std::vector<Part>& parts() { return parts_; }
    // Bytes of all reductions.
    std::uint64_t slices_sent() const { return slices_sent_; }
    std::uint64_t slices_landed() const { return slices_landed_; }

private:
    Part& part(const core::wire::BulkHeader& header) {
        const bool state = header.phase == 2;
        for (std::size_t i = parts_.size(); i-- != 0;) {
            if (parts_[i].op == header.op && parts_[i].state == state) return parts_[i];
        }
        return parts_.emplace_back(Part{header.op, state, 0, 0});
    }

    std::vector<Part> parts_;
    std::uint64_t slices_sent_ = 0, slices_landed_ = 0;
};

}  // namespace pccl::sim
