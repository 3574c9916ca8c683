// The oracle `gang`: a gang is in the run as a whole, or not at all.
//
// GangRecords reads the master's decisions while they are made: each admits and removes complete gangs only.
// check_gangs() looks at what programs saw.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"
#include "harness/excuses.hpp"
#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <map>
#include <string>
#include <vector>

namespace pccl::harness {

class GangRecords {
public:
    // What is wrong with a decision; empty: nothing.
    std::string wrong(const proto::Record& record);

private:
    std::string admitted(const proto::TopologyDecision& topology);
    std::string removed(const proto::RemovalDecision& removal);

    std::map<core::Uuid, core::Gang> members_;
};

// gang: a member's calls succeed only while all places of its gang may be taken. A gang of which a part waits is not
// pending, and complete gangs alone are counted.
sim::Violation check_gangs(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

// For each place of the gang of a life, the lives that may have been there between the two instants. Lives that asked
// to be members count, and lives that the master may not know yet to be gone. The own life is alone at its place.
std::vector<std::vector<std::uint32_t>> lives_at_places(const Ledger& ledger, const Excuses& excuses,
                                                        std::uint32_t life, Instant from, Instant until);

}  // namespace pccl::harness
