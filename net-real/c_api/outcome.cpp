// See outcome.hpp.
#include "net-real/c_api/outcome.hpp"

#include "net-real/log.hpp"

namespace pccl::c_api {

const char* to_text(pcclResult_t result) {
    switch (result) {
    case pcclSuccess: return "pcclSuccess";
    case pcclNotInitialized: return "pcclNotInitialized";
    case pcclInternalError: return "pcclInternalError";
    case pcclInvalidArgument: return "pcclInvalidArgument";
    case pcclInvalidUsage: return "pcclInvalidUsage";
    case pcclTooFewPeers: return "pcclTooFewPeers";
    case pcclMasterConnectionFailed: return "pcclMasterConnectionFailed";
    case pcclRankConnectionFailed: return "pcclRankConnectionFailed";
    case pcclRankConnectionLost: return "pcclRankConnectionLost";
    case pcclNoSharedStateAvailable: return "pcclNoSharedStateAvailable";
    case pcclPendingAsyncOps: return "pcclPendingAsyncOps";
    case pcclUpdateTopologyFailed: return "pcclUpdateTopologyFailed";
    case pcclTopologyOptimizationFailed: return "pcclTopologyOptimizationFailed";
    }
    return "unknown result";
}

void report(const char* function, pcclResult_t result, const char* who, const char* message) noexcept {
    if (!real::log_enabled(real::Severity::err)) return;
    try {
        std::string text = function;
        text += ": ";
        text += to_text(result);
        text += ": ";
        text += message;
        real::log_line(real::Severity::err, who, text);
    } catch (...) {
        // Out of memory for a log line: the result code still tells.
    }
}

}  // namespace pccl::c_api
