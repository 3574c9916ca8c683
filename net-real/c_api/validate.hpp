// Arguments that can never work, found before anything is done. Each answer names the cause and the remedy.
#pragma once

#include "core/numeric/types.hpp"
#include "include/pccl.h"
#include "net-real/c_api/outcome.hpp"

namespace pccl::c_api {

Outcome check_address(const ccoip_socket_address_t& address);
// Of a master to connect to: an address that some host can have.
Outcome check_target(const ccoip_socket_address_t& address);
// How the elements of a reduction travel; the descriptor was checked.
core::Quantization quantization_of(const pcclReduceDescriptor_t& descriptor);
Outcome check_reduce(const void* send, const void* receive, const pcclReduceDescriptor_t& descriptor);
// `strategy` is the raw number: a foreign program may have passed any.
Outcome check_shared_state(const pcclSharedState_t& state, std::uint32_t strategy);

}  // namespace pccl::c_api
