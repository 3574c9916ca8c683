// Since when a failure was bound to come: the future of a failing run is drawn anew from several instants, and the share
// of these futures that fail in the same way says how much was decided by then.
#pragma once

#include "harness/run.hpp"
#include "harness/scenario.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pccl::harness {

struct Futures {
    Instant at = 0;
    std::uint32_t drawn = 0;
    std::uint32_t failed = 0;  // with the oracle that the run itself violated
};

inline constexpr std::uint32_t futures_each = 12;
inline constexpr std::uint32_t futures_points = 24;

// By time, the first at 0. Instants lie closer together where the share changes. Everything before the instant is as it was;
// from it on networks, disks, clocks and programs draw anew, and faults that begin by the clock come earlier or later.
// `go_on` is asked between runs: when it says no, what was drawn so far is the result.
std::vector<Futures> draw_futures(const Scenario& scenario, const Verdict& failed, const std::function<bool()>& go_on,
                                  std::uint32_t points = futures_points, std::uint32_t each = futures_each);
// The first instant behind the step by which most was decided; 0: there is none.
std::size_t decided_before(const std::vector<Futures>& futures);
std::string to_text(const std::vector<Futures>& futures);

}  // namespace pccl::harness
