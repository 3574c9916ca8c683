// See outcome.hpp.
#include "net-real/c_api/outcome.hpp"

#include "net-real/log.hpp"

namespace pccl::c_api {

namespace {
thread_local std::string last_message;
}  // namespace

const std::string& last_message_of_thread() noexcept { return last_message; }

const char* describe(pcclResult_t result) {
    switch (result) {
    case pcclSuccess: return "no error";
    case pcclNotInitialized: return "pcclInit was not called";
    case pcclInternalError: return "out of memory, descriptors or threads, or a defect of the library";
    case pcclInvalidArgument: return "the arguments can never work";
    case pcclInvalidUsage: return "the call is not possible in this state";
    case pcclTooFewPeers: return "no other peer is left in the group";
    case pcclMasterConnectionFailed: return "the master could not be reached or refused this peer";
    case pcclRankConnectionFailed: return "no connection to another peer";
    case pcclRankConnectionLost: return "another peer was lost and the operation failed for the whole group";
    case pcclNoSharedStateAvailable: return "no peer has the shared state";
    case pcclPendingAsyncOps: return "launched operations have not been awaited";
    case pcclUpdateTopologyFailed: return "this peer was removed from the run or the master is gone";
    case pcclTopologyOptimizationFailed: return "the topology could not be optimised";
    }
    return "unknown result";
}

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
    try {
        last_message = std::string(function) + ": " + message;
        if (!real::log_enabled(real::Severity::err)) return;
        std::string text = function;
        text += ": ";
        text += to_text(result);
        text += ": ";
        text += message;
        real::log_line(real::Severity::err, who, text);
    } catch (...) {
        // Out of memory for the log line. The result code still reports the failure.
    }
}

}  // namespace pccl::c_api
