// All sockets of the library, so that a forked child can close its copies of them.
//
// A child that kept them would keep connections of a killed parent alive: the peers would see neither an end nor a
// reset. In the child (pthread_atfork) all are closed without shutdown, and the fork generation is raised. Objects that
// were made before the fork detect it by the generation and refuse to work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace pccl::core {
struct Limits;
}

namespace pccl::real::descriptors {

// Registers the fork handlers once; call before the first descriptor is made.
void install();
std::uint64_t fork_generation();
// How often this process was forked. Code that opens a descriptor without the guard detects by it that a child may have
// a copy.
std::uint64_t forks();

// How many descriptors this process may have open (RLIMIT_NOFILE, as it is now).
std::size_t process_limit();
// Sets the limits for strangers and newcomers by that number, so that the rest is left for the run and the program.
void fit(core::Limits& limits);

// Held while a descriptor is made and tracked, or untracked and closed. A fork waits for it.
std::mutex& guard();
void track(int descriptor);    // with the guard held
void untrack(int descriptor);  // with the guard held

}  // namespace pccl::real::descriptors
