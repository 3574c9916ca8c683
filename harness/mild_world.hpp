// What the drawings of mild worlds share (draw_mild.cpp, draw_mild_paths.cpp).
#pragma once

#include "harness/scenario.hpp"
#include "net-sim/draw.hpp"

namespace pccl::harness::mild {

// All members are there, and nothing happens yet.
inline constexpr Instant begun = 6 * core::second;

inline std::uint32_t members_of(const Scenario& s) { return static_cast<std::uint32_t>(s.peers.size()); }
Duration share(Duration time, sim::Draw& draw, std::int64_t least_per_mille, std::int64_t most_per_mille);
Fault fault(FaultKind kind, Instant at, Duration duration, std::uint32_t a = 0, std::uint32_t b = 0);

// So many members with usual time-outs, on paths without faults. They take turns until they are told to end.
void begin_anew(Scenario& s, sim::Draw& draw, std::uint32_t members);

// How long the members go on. `removed`: so many of them have to be removed by then, and nobody else may be.
void lasts(Scenario& s, Duration time);
void lasts(Scenario& s, Duration time, std::uint64_t removed);

// Worlds with paths on which payload takes long.
void draw_narrow_edge(Scenario& s, sim::Draw& draw);
void draw_slices_before_their_start(Scenario& s, sim::Draw& draw);
void draw_narrow_holders(Scenario& s, sim::Draw& draw);
void draw_second_slices(Scenario& s, sim::Draw& draw);
void draw_stripe_that_stalls(Scenario& s, sim::Draw& draw);

}  // namespace pccl::harness::mild
