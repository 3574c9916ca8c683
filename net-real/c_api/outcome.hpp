// The end of every function of the C interface: one result, and one log line for each failure.
//
// guarded() turns every exception into pcclInternalError: no exception may leave an extern "C" function.
#pragma once

#include "include/pccl.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace pccl::c_api {

struct Outcome {
    pcclResult_t result = pcclSuccess;
    std::string message;       // cause and remedy of a failure
    std::string who = "pccl";  // the `who` of its log line
};

inline Outcome success() { return {}; }
inline Outcome failure(pcclResult_t result, std::string message) { return {result, std::move(message), "pccl"}; }
inline Outcome invalid_argument(std::string message) { return failure(pcclInvalidArgument, std::move(message)); }
inline Outcome invalid_usage(std::string message) { return failure(pcclInvalidUsage, std::move(message)); }

const char* to_text(pcclResult_t result);

// Describes a result in a few words.
const char* describe(pcclResult_t result);

// The last failure of the calling thread, as `function: message`.
const std::string& last_message_of_thread() noexcept;

// Writes the log line `function: result: message` and keeps the message for the thread. Never throws.
void report(const char* function, pcclResult_t result, const char* who, const char* message) noexcept;

// The number in an enum that the program passed. It may be no enumerator.
template <class Enum>
std::uint32_t raw_value(const Enum& value) {
    static_assert(sizeof(Enum) == sizeof(std::uint32_t));
    std::uint32_t number = 0;
    std::memcpy(&number, &value, sizeof number);
    return number;
}

template <class Body>
pcclResult_t guarded(const char* function, Body&& body) noexcept {
    try {
        const Outcome outcome = std::forward<Body>(body)();
        if (outcome.result != pcclSuccess) {
            report(function, outcome.result, outcome.who.c_str(), outcome.message.c_str());
        }
        return outcome.result;
    } catch (const std::bad_alloc&) {
        report(function, pcclInternalError, "pccl", "out of memory");
    } catch (const std::exception& error) {
        report(function, pcclInternalError, "pccl", error.what());
    } catch (...) {
        report(function, pcclInternalError, "pccl", "unknown exception");
    }
    return pcclInternalError;
}

}  // namespace pccl::c_api
