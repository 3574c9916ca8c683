#include "net-real/remedies.hpp"

namespace pccl::real {

namespace {

using core::CauseKind;

// Added to the text of a cause.
const char* remedy(CauseKind kind) {
    switch (kind) {
    case CauseKind::not_connected: return "; call pcclConnect first";
    case CauseKind::aborted: return " (pcclAbort)";
    case CauseKind::calls_crossed:
    case CauseKind::vote_awaited: return " (PCCL_VOTE_TIMEOUT_S has passed)";
    case CauseKind::no_scratch_left:
    case CauseKind::scratch_limit: return " (PCCL_MAX_SCRATCH_BYTES)";
    case CauseKind::not_reachable_at:
    case CauseKind::advertises_confined_address:
    case CauseKind::seen_at_loopback:
    case CauseKind::member_at_loopback: return "; to advertise one, set PCCL_ADVERTISE_ADDRESS";
    case CauseKind::journal_silent: return " (PCCL_JOURNAL_TIMEOUT_S)";
    case CauseKind::quantized_type_not_float: return " (pcclQuantNone)";
    case CauseKind::no_such_quantized_type: return " (pcclUint64)";
    case CauseKind::root_not_member:
    case CauseKind::other_end_not_member: return "; pcclBarrier lists the members";
    case CauseKind::pieces_too_large: return " (recv_capacity)";
    case CauseKind::room_too_small: return " (recv_capacity)";
    case CauseKind::pieces_misfit: return " (recv_count)";
    case CauseKind::group_changed: return "; choose the pieces anew";
    case CauseKind::only_all_reduce_quantized: return " (pcclQuantNone)";
    case CauseKind::no_codes_of_64_bits: return " (pcclUint32, pcclQuantMinMax)";
    default: return "";
    }
}

}  // namespace

std::string told(const core::Cause& cause) {
    std::string text = core::to_text(cause);
    for (const core::Cause* c = &cause; c != nullptr; c = c->next()) text += remedy(c->kind);
    return text;
}

}  // namespace pccl::real
