// Collectives other than an all-reduce: what members of a group agree on before they launch one, and the oracles.
//
// Programs agree outside of the library: a launcher tells them who the root is, and which piece each of them gets. Here
// the first member that asks decides for its group, from what it knows then. A root may leave, and members may ask for
// different rounds; then the library must refuse the collective to all.
#pragma once

#include "core/events.hpp"
#include "harness/excuses.hpp"
#include "harness/ledger.hpp"
#include "harness/scenario.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace pccl::harness {

class Agreements {
public:
    struct Key {
        core::GroupId group = 0;
        core::Tag tag = 0;
        std::uint64_t round = 0;  // a number that the members have in common; 0: any round
        friend auto operator<=>(const Key&, const Key&) = default;
    };

    // Of the launch: the same at all members that ask with this key.
    core::CollectiveKind kind(const Scenario& scenario, const Key& key) const;
    // A member of the group as far as the ledger knows. It stays the root until it has gone, or was refused.
    core::Uuid root(const Scenario& scenario, const Ledger& ledger, const Key& key);
    // A collective was refused because its root is no member. Programs take another one, also while the process of that
    // root hangs and has not learned that it was removed.
    void refused(const core::Uuid& root) { refused_.insert(root); }
    // Elements of this process's piece of `count`. The pieces of `world` processes are the whole; more get nothing.
    std::uint64_t piece(const Scenario& scenario, const Ledger& ledger, const Key& key, std::uint64_t count,
                        std::uint32_t world, std::uint32_t process);
    // This process's collective was refused because the pieces are not the whole. One that hangs may still have a piece,
    // although it was removed. All members ask again after each refusal, so who does not ask between some is no member.
    void misfit(const Key& key, std::uint32_t process) {
        std::array<std::uint64_t, 3>& last = misfits_[{key, process}];
        last = {last[1], last[2], ++moment_};
    }

private:
    struct Pieces {
        std::vector<std::uint64_t> counts;
        std::vector<std::uint32_t> processes;  // in the order in which they asked
        std::map<std::uint32_t, std::uint64_t> asked_at;
    };
    std::map<Key, core::Uuid> roots_;
    std::set<core::Uuid> refused_;
    std::map<std::tuple<Key, std::uint32_t, std::uint64_t>, Pieces> pieces_;
    std::map<std::pair<Key, std::uint32_t>, std::array<std::uint64_t, 3>> misfits_;  // the last three; 0: none
    std::uint64_t moment_ = 0;  // counts what the two above have seen
};

// All members have the same result.
constexpr bool gives_all_the_same(core::CollectiveKind kind) {
    return kind == core::CollectiveKind::all_reduce || kind == core::CollectiveKind::all_gather ||
           kind == core::CollectiveKind::broadcast || kind == core::CollectiveKind::barrier;
}

// Bytes that a launch with this outcome put into the receive buffer of this member.
std::uint64_t result_bytes(const LaunchFact& fact, const core::Uuid& own);

// The indices of `world` members, in the order in which the arrays of this launch have their pieces.
std::vector<std::size_t> piece_places(const core::Collective& collective, std::size_t world);
// Puts the pieces of `output` into the order of indices.
void order_output(LaunchFact& fact);

// membership: a success names its members in the order of their admission, and all of them launched it with those
// counts. value, parity, one-outcome: as for an all-reduce (oracles.hpp). progress: a refusal names a difference that
// there was between the members.
sim::Violation check_collectives(const Scenario& scenario, const Ledger& ledger, Excuses& excuses);

// The bytes that a member of such a collective may have received. `own`: its peer id.
bool may_have_received(const Scenario& scenario, const LaunchFact& fact, const core::Uuid& own);

}  // namespace pccl::harness
