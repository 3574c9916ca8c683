// Values of a scenario that depend on other values: times, windows and sizes with which a correct run comes to its end,
// and which faults may last for ever. The generator follows these rules. settle() applies them to a changed scenario.
#pragma once

#include "harness/scenario.hpp"

namespace pccl::harness {

// A rough estimate of how long the workload takes without faults.
Duration busy_time(const Scenario& scenario);

// A limit on votes that no usual program passes.
Duration usual_vote_limit(const Scenario& scenario);

// How much longer a synchronization may go on without a chunk if connections break for ever: a part of a chunk counts as
// progress a few times, each time that more of it arrives.
Duration parts_of_chunks_time(const Scenario& scenario);

// How much longer a vote may wait for a member that says that it works and does not.
Duration claimed_work_time(const Scenario& scenario);
// How long the operations of one turn take to go around the ring if only a few of them run at a time.
// `window`: so many tags of a call for many; not used in other runs.
Duration rounds_time(const Scenario& scenario, std::uint32_t window);
// How long liars that stall may hold one operation.
Duration stalled_time(const Scenario& scenario);

// Whether the core and the master can still work together although the fault never heals.
bool may_last(const Scenario& scenario, const Fault& fault);

// Sets slice_bytes, and raises eager_bytes and scratch_bytes to what slices of this size need.
void set_slices(Scenario& scenario, std::uint32_t bytes);

// Makes slices so large that the largest operation has some hundreds of them at most.
void raise_slices(Scenario& scenario);

// Makes windows and chunks so large that a turn takes seconds at most. A slower run is not stuck, but looks like it.
void widen_windows(Scenario& scenario);
void fit_computes(Scenario& scenario);
// The search for a ring of many members takes all the steps that callers wait for. A second or less.
void fit_search(Scenario& scenario);
// A slow disk has the file of an incoming state after so many peer time-outs at most. That is longer than a silent source
// is waited for, and the master does not give up the receiver before.
inline constexpr Duration staging_time_outs = 12;
void fit_disks(Scenario& scenario);
// The master keeps at least the decisions that a member without fault may leave unacknowledged for a moment.
void fit_kept(Scenario& scenario);

// Threads that work beside each other wait for the rounds of others: there is only one kind of collective, no decision
// that depends on a call from which all have just returned, and no limit on votes (harness/threads.cpp).
void fit_beside(Scenario& scenario);
// Beside a liar there are no programs that do what the rules forbid, and no gangs: the others of its gang are lost with it.
void fit_liars(Scenario& scenario);
// Programs launch other collectives only where their results can be checked.
void fit_collectives(Scenario& scenario);

// How long programs may take to come to their end after the faults have stopped.
Duration patience_of(const Scenario& scenario);

// Recomputes all values that depend on others. What it returns, it does not change again. A few draws of generate() break
// its rules on purpose, for example with short limits on votes.
void settle(Scenario& scenario);

}  // namespace pccl::harness
