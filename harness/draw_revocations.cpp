// Draws certificates that the operator revokes: of members, of newcomers, and of processes that stand still.
#include "harness/draw_faults.hpp"

#include "harness/fault_refs.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::uint32_t revocations_per_million = 40'000;

}  // namespace

void draw_revocations(Scenario& s, std::uint32_t on) {
    Draw draw(sim::mix(s.seed, 311));
    if (!(on & class_hostile) || s.peers.empty() || !draw.chance(revocations_per_million)) return;
    const auto peers = static_cast<std::uint32_t>(s.peers.size());
    Fault f;
    f.kind = FaultKind::revoke;
    f.a = draw.number(1, peers);
    f.at = draw.between(0, std::max<Duration>(std::min(s.chaos_end, busy_time(s)), 1));
    if (draw.chance(400'000)) {
        // Nothing else happens, but the process stands still. It closes no connection, so the others must.
        s.faults.clear();
        Fault still;
        still.kind = FaultKind::pause;
        still.a = f.a;
        still.at = draw.chance(500'000) ? f.at : std::max<Duration>(f.at - draw.log_uniform(microsecond, second), 0);
        still.duration = draw.log_uniform(second, 8 * second);
        s.faults.push_back(still);
        s.chaos_end = std::max(s.chaos_end, still.at + still.duration + second);
    }
    s.faults.push_back(f);
    sort_by_time(s.faults);
    // Its process may end with it.
    std::erase(s.core, f.a);
    if (s.core.size() < 2) {
        s.core.clear();
        s.claim = Claim::all_end;
        for (Fault& fault : s.faults) fault.forever = fault.forever && may_last(s, fault);
    }
}

}  // namespace pccl::harness
