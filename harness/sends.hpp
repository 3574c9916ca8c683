// Sends between two members: what the programs of a group send to each other, and the oracle.
//
// The ends of a send must agree on it outside of the library, or one of them waits for ever. Programs do so after a
// collective that named its members: all of them have the same list, and they draw the same messages from it.
#pragma once

#include "harness/excuses.hpp"
#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <vector>

namespace pccl::harness {

struct Message {
    std::uint32_t from = 0, to = 0;  // indices of members
    core::Tag tag = 0;
    core::DataType type = core::DataType::f32;
    std::uint64_t count = 0;
};

// What the members of this successful collective send to each other. All of them get the same list. No two messages of
// one sender and one receiver have the same tag.
std::vector<Message> messages_after(const Scenario& scenario, const LaunchFact& collective);

// membership: a success names its two ends. value: what the receiver got is what the sender sent. one-outcome: both
// ends have the same. progress: a refusal names a difference between the ends, or an end that is no member.
sim::Violation check_sends(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

}  // namespace pccl::harness
