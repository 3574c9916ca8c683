#include "core/compute.hpp"

#include "core/numeric/copy.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/quantize.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

// So much of an input that is kept is still in a near cache when it is reduced.
constexpr std::size_t kept_at_once_bytes = std::size_t{128} << 10;

void copy(const Compute& compute, std::uint8_t* target, const std::uint8_t* source, std::size_t bytes) {
    if (compute.past_caches)
        numeric::copy_past_caches(target, source, bytes);
    else
        numeric::copy(target, source, bytes);
}

void reduce(const Compute& compute, const ComputeMemory& memory) {
    const std::size_t element = element_bytes(compute.type);
    const std::size_t bytes = compute.target.length;
    const std::size_t step = writes_keep(compute) ? kept_at_once_bytes : bytes;
    for (std::size_t at = 0; at < bytes; at += step) {
        const std::size_t length = std::min(step, bytes - at);
        if (writes_keep(compute)) copy(compute, memory.keep + at, memory.b + at, length);
        numeric::reduce(compute.type, compute.op, memory.target + at, memory.a + at, memory.b + at, length / element,
                        compute.divisor);
    }
}

}  // namespace

bool is_well_formed(const Compute& compute) {
    const std::uint64_t element = element_bytes(compute.type);
    if (writes_keep(compute) && (compute.kind != Compute::Kind::reduce || compute.keep.length != compute.b.length))
        return false;
    const auto is_wire_form = [&](const BufferRef& wire, const BufferRef& values) {
        return values.length % element == 0 &&
               wire.length == numeric::wire_bytes(compute.quantization, compute.type, values.length / element);
    };
    switch (compute.kind) {
    case Compute::Kind::reduce:
        return compute.a.length == compute.target.length && compute.b.length == compute.a.length &&
               compute.a.length % element == 0;
    case Compute::Kind::copy: return compute.a.length == compute.target.length;
    case Compute::Kind::hash: return true;
    case Compute::Kind::quantize: return is_wire_form(compute.target, compute.a);
    case Compute::Kind::dequantize: return is_wire_form(compute.a, compute.target);
    case Compute::Kind::reduce_quantized:
        return is_wire_form(compute.a, compute.b) && compute.target.length == compute.a.length;
    }
    return false;
}

void carry_out(const Compute& compute, const ComputeMemory& memory) {
    const std::size_t element = element_bytes(compute.type);
    std::uint8_t* const target = memory.target;
    const std::uint8_t* const a = memory.a;
    switch (compute.kind) {
    case Compute::Kind::reduce: return reduce(compute, memory);
    case Compute::Kind::copy:
        if (target != a) copy(compute, target, a, compute.a.length);
        return;
    case Compute::Kind::hash: return;
    case Compute::Kind::quantize:
        return numeric::quantize(compute.quantization, compute.type, target, a, compute.a.length / element);
    case Compute::Kind::dequantize:
        return numeric::dequantize(compute.quantization, compute.type, target, a, compute.target.length / element);
    case Compute::Kind::reduce_quantized:
        return numeric::reduce_quantized(compute.quantization, compute.type, compute.op, target, a, memory.b,
                                         compute.b.length / element, compute.divisor);
    }
}

}  // namespace pccl::core
