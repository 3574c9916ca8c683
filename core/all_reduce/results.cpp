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

// Copies the final bytes of a committed operation from scratch to the application's buffer, in pieces.
void Results::copy_next(Operation& op) {
    if (!op.committed || !op.has_scratch()) return;
    const std::uint64_t end = op.copies_all() ? op.bytes() : op.slices();
    while (op.copied < end && op.computes < turn_.limits.copies_in_flight) {
        if (!op.copies_all()) {
            const auto slice = static_cast<std::uint32_t>(op.copied++);
            if (op.keeps(slice) && op.is_in_scratch(slice) && !op.half(1, slice).read) read(op, slice, false);
            continue;
        }
        Compute compute;
        const std::uint64_t length = std::min(turn_.limits.copy_bytes, end - op.copied);
        compute.kind = Compute::Kind::copy;
        compute.target = BufferRef{op.receive, op.copied, length};
        compute.a = BufferRef{op.result, op.copied, length};
        op.copied += length;
        ++op.computes;
        computes_.request(std::move(compute), CommitCopy{op.key(), false});
    }
}

// While others still send, there is time. A few at a time, so that partial sums do not wait behind them.
void Results::read_ahead(Operation& op) {
    while (op.reading < turn_.limits.copies_in_flight) {
        const std::uint32_t slice = op.take_unread();
        if (slice == Operation::none) return;
        PROBE(result_read_ahead);
        read(op, slice, true);
    }
}

void Results::read(Operation& op, std::uint32_t slice, bool ahead) {
    Compute compute;
    compute.kind = op.is_quantized() ? Compute::Kind::dequantize : Compute::Kind::copy;
    compute.type = op.shape.type;
    compute.quantization = op.shape.quantization;
    compute.target = BufferRef{op.receive, op.receive_offset(slice), op.byte_length(slice)};
    compute.a = op.final_ref(slice);
    op.half(1, slice).read = true;
    ++op.computes;
    if (ahead) ++op.reading;
    computes_.request(std::move(compute), CommitCopy{op.key(), ahead});
}

}  // namespace pccl::core
