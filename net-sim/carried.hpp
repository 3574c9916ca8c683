// Counts the payload bytes that a driver carried for each operation. The harness compares what the machine reports with
// these counts.
#pragma once

#include "core/wire/frame.hpp"

#include <cstdint>
#include <unordered_map>
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
        places_[0][0] = parts_.size();
        parts_.push_back(Part{0, false, bytes, bytes});
        slices_sent_ += bytes;
        slices_landed_ += bytes;
    }
    const std::vector<Part>& parts() const { return parts_; }
    void clear() {
        erase_if([](const Part&) { return true; });
    }
    template <class Condition>
    void erase_if(Condition condition) {
        if (std::erase_if(parts_, condition) == 0) return;
        for (auto& places : places_) places.clear();
        for (std::size_t i = 0; i < parts_.size(); ++i) places_[parts_[i].state][parts_[i].op] = i;
    }
    // Bytes of all reductions.
    std::uint64_t slices_sent() const { return slices_sent_; }
    std::uint64_t slices_landed() const { return slices_landed_; }

private:
    Part& part(const core::wire::BulkHeader& header) {
        const bool state = header.phase == 2;
        const auto [place, added] = places_[state].try_emplace(header.op, parts_.size());
        if (added) parts_.push_back(Part{header.op, state, 0, 0});
        return parts_[place->second];
    }

    std::vector<Part> parts_;
    std::unordered_map<core::OpId, std::size_t> places_[2];  // of an operation's last part, by `state`
    std::uint64_t slices_sent_ = 0, slices_landed_ = 0;
};

}  // namespace pccl::sim
