// The processes of one command and their results, and scenarios as files.
#pragma once

#include "harness/coverage.hpp"
#include "harness/run.hpp"
#include "harness/scenario.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace pccl::tools {

// Under a sanitizer, which has signal handlers of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

// These send or receive everything through a pipe. False if the other end is gone.
bool send(int end, const void* data, std::size_t bytes);
bool receive(int end, void* data, std::size_t bytes);
bool send(int end, const harness::Census& census);
bool receive_into(int end, harness::Census& census);

// Runs `job` in `jobs` processes. Each one gets its number and the end of a pipe for its results, and returns whether
// it has sent them all. `tell` reads the results from each pipe, in the order of the jobs. False if a process could not
// be started. If a job died, `tell` receives too little.
bool run_jobs(std::uint32_t jobs, const std::function<bool(std::uint32_t job, int end)>& job,
              const std::function<void(int end)>& tell);

// If the file cannot be read, prints the reason on standard error.
bool read_scenario(const std::string& file, harness::Scenario& scenario);
// The broken promise is written as a comment. If the file cannot be written, prints that on standard error.
bool write_scenario(const std::string& file, const harness::Scenario& scenario, const sim::Violation& violation);

}  // namespace pccl::tools
