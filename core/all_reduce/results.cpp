#include "core/all_reduce/results.hpp"

#include "core/base/probe.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

void Results::came(Operation& op, std::uint32_t slice) {
    if (!op.reads_ahead() || !op.keeps(slice) || !op.is_in_scratch(slice)) return;
    op.may_read(slice);
    read_ahead(op);
}

void Results::input_leaves(Operation& op, std::uint32_t slice) {
    if (!op.may_keep(slice)) return;
    ++op.computes;
    computes_.request(copy_of(op, op.input_place(slice), op.scratch_ref(slice)), InputCopy{op.key(), slice});
    op.half(0, slice).kept = Kept::computing;
}

void Results::copy_next(Operation& op) {
    // What is computed may be the copy of an input, or overwrite one.
    if (!op.committed && op.copied == 0 && op.computes != 0) return;
    while (op.computes < turn_.limits.copies_in_flight) {
        const std::optional<Compute> copy = next_copy(op);
        if (!copy) return;
        computes_.request(*copy, CommitCopy{op.key(), false});
        ++op.computes;
        copied(op, *copy);
    }
}

void Results::copy_rest(Operation& op, const std::function<void(const Compute&)>& carry_out) const {
    while (const std::optional<Compute> copy = next_copy(op)) {
        carry_out(*copy);
        copied(op, *copy);
    }
}

std::optional<Compute> Results::next_copy(Operation& op) const {
    const std::uint64_t end = op.copies_due();
    if (op.copied < end && op.committed && op.copies_all()) {
        const std::uint64_t length = std::min(turn_.limits.copy_bytes, end - op.copied);
        return copy_of(op, {op.result, op.copied, length}, {op.receive, op.copied, length});
    }
    for (; op.copied < end; ++op.copied) {
        const auto slice = static_cast<std::uint32_t>(op.copied);
        const Half& final = op.half(1, slice);
        if (op.committed) {
            if (op.keeps(slice) && op.is_in_scratch(slice) && !final.read) return reading_of(op, slice);
        } else if (final.overwrites) {
            if (final.in != InState::landed) PROBE(broken_landing_restored);
            PROBE(input_restored);
            return copy_of(op, op.scratch_ref(slice), op.input_place(slice));
        }
    }
    return {};
}

void Results::copied(Operation& op, const Compute& copy) {
    op.copied += op.committed && op.copies_all() ? copy.target.length : 1;
}

Compute Results::copy_of(const Operation& op, const BufferRef& from, const BufferRef& to) {
    Compute compute;
    compute.kind = Compute::Kind::copy;
    compute.target = to;
    compute.a = from;
    compute.past_caches = op.is_larger_than_caches();
    return compute;
}

Compute Results::reading_of(const Operation& op, std::uint32_t slice) {
    Compute compute = copy_of(op, op.final_ref(slice), {op.receive, op.receive_offset(slice), op.byte_length(slice)});
    if (op.is_quantized()) compute.kind = Compute::Kind::dequantize;
    compute.type = op.shape.type;
    compute.quantization = op.shape.quantization;
    return compute;
}

// While others still send, there is time. A few at a time, so that partial sums do not wait behind them.
void Results::read_ahead(Operation& op) {
    while (op.reading < turn_.limits.copies_in_flight) {
        const std::uint32_t slice = op.take_unread();
        if (slice == Operation::none) return;
        PROBE(result_read_ahead);
        op.half(1, slice).read = true;
        ++op.computes;
        ++op.reading;
        computes_.request(reading_of(op, slice), CommitCopy{op.key(), true});
    }
}

}  // namespace pccl::core
