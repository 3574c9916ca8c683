// Shows since when a failure was bound to happen. The future of a failing run is drawn anew from several instants. The
// share of these futures that fail in the same way shows how much was decided by then.
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
    std::uint32_t failed = 0;  // that violated the same oracle as the run itself
};

inline constexpr std::uint32_t futures_each = 12;
inline constexpr std::uint32_t futures_points = 24;

// Returns points in order of time, the first one at 0. They are closer together where the share changes. Everything
// before the instant stays as it was. From it on, networks, disks, clocks and programs draw anew, and faults that begin
// by the clock come earlier or later. `go_on` is called between runs. When it returns false, the points so far are the
// result.
std::vector<Futures> draw_futures(const Scenario& scenario, const Verdict& failed, const std::function<bool()>& go_on,
                                  std::uint32_t points = futures_points, std::uint32_t each = futures_each);
// The index of the first point after the step by which most was decided; 0: there is no such step.
std::size_t decided_before(const std::vector<Futures>& futures);
std::string to_text(const std::vector<Futures>& futures);

}  // namespace pccl::harness
