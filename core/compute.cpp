#include "core/compute.hpp"

#include "core/numeric/copy.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/quantize.hpp"

namespace pccl::core {

bool is_well_formed(const Compute& compute) {
    const std::uint64_t element = element_bytes(compute.type);
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

void carry_out(const Compute& compute, std::uint8_t* target, const std::uint8_t* a, const std::uint8_t* b) {
    const std::size_t element = element_bytes(compute.type);
    switch (compute.kind) {
    case Compute::Kind::reduce:
        return numeric::reduce(compute.type, compute.op, target, a, b, compute.target.length / element,
                               compute.divisor);
    case Compute::Kind::copy:
        if (target != a) numeric::copy(target, a, compute.a.length);
        return;
    case Compute::Kind::hash: return;
    case Compute::Kind::quantize:
        return numeric::quantize(compute.quantization, compute.type, target, a, compute.a.length / element);
    case Compute::Kind::dequantize:
        return numeric::dequantize(compute.quantization, compute.type, target, a, compute.target.length / element);
    case Compute::Kind::reduce_quantized:
        return numeric::reduce_quantized(compute.quantization, compute.type, compute.op, target, a, b,
                                         compute.b.length / element, compute.divisor);
    }
}

}  // namespace pccl::core
