// Entry of every function on a communicator: checks the arguments, looks up the handle, and stores a failure as the
// communicator's last message.
#pragma once

#include "core/base/format.hpp"
#include "net-real/c_api/communicator.hpp"

#include <exception>
#include <utility>

namespace pccl::c_api {

constexpr const char* unknown_handle =
    "not a live communicator handle (null, destroyed or never made); use pcclCreateCommunicator";
constexpr const char* foreign_handle = "this communicator belongs to the process that called fork; make another one";

void set_initialized();
Outcome check_initialized();
Outcome check_pointer(const void* pointer, const char* name);
// Checks everything except the settings.
Outcome create_communicator(const pcclCommCreateParams_t* params, pcclComm_t** comm_out, real::PeerSettings settings);

// `arguments` rejects what can never work, `call` does the rest.
template <class Arguments, class Call>
pcclResult_t on_communicator(const char* function, const pcclComm_t* handle, Arguments&& arguments,
                             Call&& call) noexcept {
    return guarded(function, [&]() -> Outcome {
        if (Outcome ready = check_initialized(); ready.result != pcclSuccess) return ready;
        if (handle == nullptr) return invalid_argument("the communicator is null");
        const Lease<Communicator> communicator = communicators().find(handle);
        if (!communicator) return invalid_argument(unknown_handle);
        if (communicator.foreign()) return invalid_usage(foreign_handle);
        Outcome outcome = arguments();
        if (outcome.result == pcclSuccess) outcome = call(*communicator);
        if (outcome.result != pcclSuccess) communicator->remember(core::formatted("{}: {}", function, outcome.message));
        return outcome;
    });
}

// Awaits a launch without blocking. `waiting` is the function that would block; a failure of the operation is reported
// in its name. `then` gets the outcome and the completion.
template <class Then>
pcclResult_t await_then(const char* function, const char* waiting, const pcclAsyncReduceOp_t* handle, bool has_callback,
                        Then then) noexcept {
    return on_communicator(
        function, handle == nullptr ? nullptr : handle->comm,
        [&] {
            return has_callback
                       ? success()
                       : invalid_argument(core::formatted("the callback is null; without one use {}", waiting));
        },
        [&](Communicator& live) {
            return live.await_then(
                handle->tag, [&live, waiting, then](const Outcome& outcome, const core::Completion& completion) {
                    if (outcome.result != pcclSuccess) {
                        try {
                            live.remember(core::formatted("{}: {}", waiting, outcome.message));
                        } catch (const std::exception&) {
                            // No memory: without the message. The callback must be called.
                        }
                        report(waiting, outcome.result, outcome.who.c_str(), outcome.message.c_str());
                    }
                    then(outcome, completion);
                });
        });
}

}  // namespace pccl::c_api
