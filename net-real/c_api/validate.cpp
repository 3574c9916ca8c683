// See validate.hpp.
#include "net-real/c_api/validate.hpp"

#include "core/base/format.hpp"
#include "core/base/limits.hpp"
#include "core/numeric/quantize.hpp"
#include "core/numeric/types.hpp"
#include "core/topology/address_rules.hpp"
#include "net-real/c_api/endpoint.hpp"
#include "net-real/remedies.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::c_api {
namespace {

// No array of a real program is larger. The bound keeps every sum of sizes and addresses far from overflow.
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 48;

std::string entry_name(std::size_t index, const char* name) {
    return core::formatted("entry {}{}", index, name == nullptr ? "" : core::formatted(" (\"{}\")", name));
}

Outcome check_entry(std::size_t index, const pcclTensorInfo_t& tensor) {
    if (tensor.name == nullptr) return invalid_argument(entry_name(index, nullptr) + " has a null name");
    if (tensor.name[0] == 0) return invalid_argument(entry_name(index, nullptr) + " has an empty name");
    const std::size_t key_bytes_max = core::Limits{}.key_bytes_max;
    if (::strnlen(tensor.name, key_bytes_max + 1) > key_bytes_max) {
        return invalid_argument(
            core::formatted("{} has a name of more than {} bytes", entry_name(index, nullptr), key_bytes_max));
    }
    const std::uint32_t type = raw_value(tensor.datatype);
    if (type >= core::data_type_count) {
        return invalid_argument(
            core::formatted("{} has the unknown datatype {}", entry_name(index, tensor.name), type));
    }
    const std::uint32_t device = raw_value(tensor.device_type);
    if (device == pcclDeviceCuda) {
        return invalid_argument(entry_name(index, tensor.name) +
                                " is in CUDA memory, which this build does not support; copy it to CPU memory");
    }
    if (device != pcclDeviceCpu) {
        return invalid_argument(
            core::formatted("{} has the unknown device type {}", entry_name(index, tensor.name), device));
    }
    if (tensor.data == nullptr && tensor.count != 0) {
        return invalid_argument(
            core::formatted("{} has {} elements at a null pointer", entry_name(index, tensor.name), tensor.count));
    }
    std::uint64_t bytes = 0;
    return check_size(tensor.count, type, "an entry", bytes);
}

Outcome check_names_unique(const pcclSharedState_t& state) {
    std::vector<std::string_view> names;
    names.reserve(state.count);
    for (std::size_t i = 0; i < state.count; ++i) names.emplace_back(state.infos[i].name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return success();
    return invalid_argument(core::formatted("the name \"{}\" stands for two entries; names must be unique", *twice));
}

}  // namespace

Outcome check_size(std::uint64_t count, std::uint32_t type, const char* what, std::uint64_t& bytes) {
    const std::uint64_t element = core::element_bytes(static_cast<core::DataType>(type));
    if (count > bytes_max / element) {
        return invalid_argument(core::formatted("{} of {} elements is larger than any memory", what, count));
    }
    bytes = count * element;
    return success();
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(a);
    const auto second = reinterpret_cast<std::uintptr_t>(b);
    return first < second ? second - first < a_bytes && b_bytes != 0 : first - second < b_bytes && a_bytes != 0;
}

Outcome check_address(const ccoip_socket_address_t& address) {
    const std::uint32_t protocol = raw_value(address.inet.protocol);
    if (protocol != inetIPv4 && protocol != inetIPv6) {
        return invalid_argument(core::formatted("unknown address protocol {}; use inetIPv4 or inetIPv6", protocol));
    }
    return success();
}

Outcome check_target(const ccoip_socket_address_t& address) {
    if (Outcome known = check_address(address); known.result != pcclSuccess) return known;
    const core::Endpoint endpoint = to_endpoint(address);
    const char* why = core::why_not_a_target(endpoint);
    if (why == nullptr) return success();
    return invalid_argument(
        core::formatted("no master can be reached at {}: {}; give the address and port that it listens on",
                        core::to_text(endpoint), why));
}

core::Quantization quantization_of(const pcclReduceDescriptor_t& descriptor) {
    core::Quantization how;
    const std::uint32_t algorithm = raw_value(descriptor.quantization_options.algorithm);
    if (algorithm == pcclQuantNone) return how;
    how.algorithm = static_cast<core::QuantizationAlgorithm>(algorithm);
    how.type = static_cast<core::CodeType>(raw_value(descriptor.quantization_options.quantized_datatype));
    how.hint = static_cast<core::DistributionHint>(raw_value(descriptor.src_descriptor.distribution_hint));
    return how;
}

Outcome check_reduced_elements(const pcclReduceDescriptor_t& descriptor) {
    const std::uint32_t type = raw_value(descriptor.src_descriptor.datatype);
    if (type >= core::data_type_count) return invalid_argument(core::formatted("unknown datatype {}", type));
    const std::uint32_t op = raw_value(descriptor.op);
    if (op >= core::reduce_op_count) return invalid_argument(core::formatted("unknown reduce operation {}", op));
    const std::uint32_t hint = raw_value(descriptor.src_descriptor.distribution_hint);
    if (hint > pcclDistributionUniform) return invalid_argument(core::formatted("unknown distribution hint {}", hint));
    const std::uint32_t algorithm = raw_value(descriptor.quantization_options.algorithm);
    if (algorithm > pcclQuantZeroPointScale) {
        return invalid_argument(core::formatted("unknown quantization algorithm {}", algorithm));
    }
    const std::uint32_t quantized = raw_value(descriptor.quantization_options.quantized_datatype);
    if (quantized >= core::code_type_count)
        return invalid_argument(core::formatted("unknown quantized datatype {}", quantized));
    const auto why = core::numeric::why_not_quantizable(quantization_of(descriptor), static_cast<core::DataType>(type));
    if (why) return invalid_argument(real::told(core::plain_cause(*why)));
    return success();
}

Outcome check_reduce(const void* send, const void* receive, const pcclReduceDescriptor_t& descriptor) {
    if (Outcome known = check_reduced_elements(descriptor); known.result != pcclSuccess) return known;
    const std::uint32_t type = raw_value(descriptor.src_descriptor.datatype);
    std::uint64_t bytes = 0;
    if (Outcome size = check_size(descriptor.count, type, "a reduction", bytes); size.result != pcclSuccess)
        return size;
    if (bytes == 0) return success();
    if (send == nullptr) return invalid_argument("sendbuf is null while count is not 0");
    if (receive == nullptr) return invalid_argument("recvbuf is null while count is not 0");
    if (send != receive && overlap(send, bytes, receive, bytes)) {
        return invalid_argument("sendbuf and recvbuf overlap in part; pass the same pointer twice or separate memory");
    }
    return success();
}

Outcome check_shared_state(const pcclSharedState_t& state, std::uint32_t strategy) {
    if (strategy > PCCL_SHARED_STATE_SYNC_STRATEGY_SEND_ONLY) {
        return invalid_argument(
            core::formatted("unknown sync strategy {}; use a pcclSharedStateSyncStrategy_t", strategy));
    }
    if (state.infos == nullptr && state.count != 0) return invalid_argument("infos is null while count is not 0");
    const std::size_t entries_max = core::Limits{}.entries_max;
    if (state.count > entries_max) {
        return invalid_argument(core::formatted("{} entries are more than {}", state.count, entries_max));
    }
    for (std::size_t i = 0; i < state.count; ++i) {
        if (Outcome entry = check_entry(i, state.infos[i]); entry.result != pcclSuccess) return entry;
    }
    return check_names_unique(state);
}

}  // namespace pccl::c_api
