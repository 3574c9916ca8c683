// The promises, checked against what applications saw. Each check knows the promise and nothing of the protocol.
//
// They run over the ledger when the run is over; what needs the moment itself (restore, no-phantom, the contract) is checked
// while it happens by Process and Driver. A check returns the first violation, or an empty oracle name.
#pragma once

#include "harness/excuses.hpp"
#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

// value: a result is the operation over the inputs of as many members as were told; parity: all who succeeded hold these
// bytes; one-outcome: none of them who did not depart was told failure; membership: their world size is the same.
sim::Violation check_reduces(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// parity and value of shared state, one-outcome of syncs, revisions that grow by one.
sim::Violation check_syncs(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// update_topology and are_peers_pending tell all members the same.
sim::Violation check_votes(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

// progress: errors blame a peer, an edge or the limit on votes only with a reason.
sim::Violation check_blames(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// admission: a newcomer that can be reached is pending, or let in, within a bound while members go on.
sim::Violation check_admissions(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses);
// steady: where nothing goes wrong, no reduction and no synchronization fails, however long it takes.
sim::Violation check_steadiness(const Scenario& scenario, const Ledger& ledger);
// membership: nobody is lost without an excuse.
sim::Violation check_losses(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

}  // namespace pccl::harness
