// What the processes of one command tell their parent, and scenarios as files.
#pragma once

#include "harness/coverage.hpp"
#include "harness/run.hpp"
#include "harness/scenario.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace pccl::tools {

// Sanitizers have handlers of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

// All of it, through a pipe; false when the other end is gone.
bool send(int end, const void* data, std::size_t bytes);
bool receive(int end, void* data, std::size_t bytes);
bool send(int end, const harness::Census& census);
bool receive_into(int end, harness::Census& census);

// Runs `job` in that many processes, each with its number and the end of a pipe at which `tell` hears it, in their order;
// `job` says whether it told all. False: one could not be begun. A job that died is one that tell() gets too little from.
bool run_jobs(std::uint32_t jobs, const std::function<bool(std::uint32_t job, int end)>& job,
              const std::function<void(int end)>& tell);

// Says on standard error why it could not be read.
bool read_scenario(const std::string& file, harness::Scenario& scenario);
// With the broken promise as a comment; says on standard error if it could not be written.
bool write_scenario(const std::string& file, const harness::Scenario& scenario, const sim::Violation& violation);

}  // namespace pccl::tools
