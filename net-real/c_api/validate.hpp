// Rejects arguments that can never work, before anything is done. Each message names the cause and the remedy.
#pragma once

#include "core/numeric/types.hpp"
#include "include/pccl.h"
#include "net-real/c_api/outcome.hpp"

namespace pccl::c_api {

Outcome check_address(const ccoip_socket_address_t& address);
// For a master to connect to: the address must be one that a host can have.
Outcome check_target(const ccoip_socket_address_t& address);
// How the elements of a reduction travel. The enums of `descriptor` were checked before.
core::Quantization quantization_of(const pcclReduceDescriptor_t& descriptor);
// Bytes of `count` elements, if they are less than any memory.
Outcome check_size(std::uint64_t count, std::uint32_t type, const char* what, std::uint64_t& bytes);
// True: the ranges share a byte.
bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes);
// What holds for a reduction whatever becomes of its result.
Outcome check_reduced_elements(const pcclReduceDescriptor_t& descriptor);
Outcome check_reduce(const void* send, const void* receive, const pcclReduceDescriptor_t& descriptor);
// `strategy` is the raw number, because the program may have passed any value.
Outcome check_shared_state(const pcclSharedState_t& state, std::uint32_t strategy);

}  // namespace pccl::c_api
