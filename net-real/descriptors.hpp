// Every socket of the library, so that a forked child can close its copies of them.
//
// A child that keeps them would keep connections of a killed parent alive: no end and no reset would reach the peers.
// In the child (pthread_atfork) all are closed, without shutdown, and the fork generation is raised: objects made before
// are recognised by that and refuse to work.
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
// How often this process was forked: who opens a descriptor without the guard learns whether a child has it too.
std::uint64_t forks();

// How many descriptors this process may have open (RLIMIT_NOFILE, as it is now).
std::size_t process_limit();
// Lowers what a machine may use of them for strangers and newcomers, so that the rest is left for the run and the program.
void fit(core::Limits& limits);

// Held while a descriptor is made and tracked, or untracked and closed: a fork waits for that.
std::mutex& guard();
void track(int descriptor);    // with the guard held
void untrack(int descriptor);  // with the guard held

}  // namespace pccl::real::descriptors
