// Checks the promises of the library against what applications saw. A check contains promises, but no protocol code.
//
// The checks read the ledger after the run. Promises that can be checked only at the moment itself (restore,
// no-phantom, the contract) are checked during the run, by Process and Driver. A check returns the first violation, or
// an empty oracle name.
#pragma once

#include "harness/excuses.hpp"
#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

namespace pccl::harness {

// value: a result is the operation over the inputs of as many members as the reported world. parity: all participants
// that succeeded hold these bytes. one-outcome: no participant failed unless it departed. membership: all participants
// that succeeded report the same world size.
sim::Violation check_reduces(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// parity, value and election of shared state; one-outcome of synchronizations; revision: revisions grow by one.
sim::Violation check_syncs(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// membership: update_topology, are_peers_pending and optimize give all members the same answer.
sim::Violation check_votes(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

// progress: an error blames a peer, an edge or the vote limit only with a reason.
sim::Violation check_blames(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// admission: within a bound, a newcomer that can be reached is pending or admitted, as long as members go on working.
sim::Violation check_admissions(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses);
// admission: no newcomer is turned away without a reason that holds.
sim::Violation check_refusals(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// admission: if members are told that peers are pending, and nothing changes, their next update admits some.
sim::Violation check_pending(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses);
// waiting: the limit on votes ends a call that waits for a program that makes none.
sim::Violation check_vote_limit(const Scenario& scenario, const Ledger& ledger, const Excuses& excuses);
// steady: if nothing goes wrong, no reduction and no synchronization fails, however long it takes.
sim::Violation check_steadiness(const Scenario& scenario, const Ledger& ledger);
// detour: collectives go around edges on which bytes are lost, in runs with nothing else.
sim::Violation check_detours(const Scenario& scenario, const Ledger& ledger);
// membership: no member is lost without an excuse.
sim::Violation check_losses(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);
// The oracle of revoked certificates.
sim::Violation check_revocations(const Scenario& scenario, const Ledger& ledger);

}  // namespace pccl::harness
