// What every function of the C interface does at its end: one result, and for each failure one log line.
//
// Nothing leaves an extern "C" function but its result: guarded() turns any exception into pcclInternalError.
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
    std::string message;       // cause and remedy, when it is not success
    std::string who = "pccl";  // whose log line it is
};

inline Outcome success() { return {}; }
inline Outcome failure(pcclResult_t result, std::string message) { return {result, std::move(message), "pccl"}; }
inline Outcome invalid_argument(std::string message) { return failure(pcclInvalidArgument, std::move(message)); }
inline Outcome invalid_usage(std::string message) { return failure(pcclInvalidUsage, std::move(message)); }

const char* to_text(pcclResult_t result);

// A few words on what the result means.
const char* describe(pcclResult_t result);

// What the calling thread was told last: `function: message` of its last failure.
const std::string& last_message_of_thread() noexcept;

// Writes the line `function: result: message` and keeps the message for the thread. Never throws.
void report(const char* function, pcclResult_t result, const char* who, const char* message) noexcept;

// The number behind an enum that a foreign program passed; it may be no member.
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
