// Finds the first key in which a member's schema differs from the winner's: a key that only one of them has, or one
// with another type, count or flag. The result is only for the text that the member receives. The election itself
// compares digests.
//
// A key list may be long (Limits::entries_max), so the master holds one page of each list at a time. It requests the
// lists of the winner and of each member with another schema, and compares them side by side up to the first
// difference.
//
// Invariants: a group has at most one comparison. It belongs to exactly the votes in the group's ballot; if they
// change, it starts again. If a page does not come in time, the comparison ends with a text that names no key.
#pragma once

#include "core/base/sleep.hpp"
#include "core/journal/run_state.hpp"
#include "core/links/roster.hpp"
#include "core/state_sync/election.hpp"
#include "core/state_sync/state_digest.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace pccl::core {

class KeyComparisons {
public:
    KeyComparisons(Turn& turn, const RunState& state, Roster& roster, Agenda& agenda)
        : turn_(turn), state_(state), roster_(roster), agenda_(agenda) {}

    // Returns true if each member that will be removed for its schema has a text, or if there is no such member.
    // Otherwise pages are missing: it requests them, and the ballot goes on the agenda when a page arrives or is too
    // late.
    bool compare(GroupId group, const Ballot& ballot, const Election& election);
    // How the member differs from the winner. Empty: no difference was found.
    std::string difference_of(GroupId group, const Uuid& member) const;
    void page_came(const Uuid& from, const proto::SyncPage& page);
    void resumed(const Uuid& member);
    void end_late();
    void slept(const Sleep& sleep);
    void forget(GroupId group) { groups_.erase(group); }
    void clear() { groups_.clear(); }

    bool empty() const { return groups_.empty(); }
    const auto& all() const { return groups_; }

private:
    struct List {
        Uuid uuid;
        Serial serial = 0;
        std::uint32_t total = 0;
        std::deque<EntryKey> keys;  // from `first` on, as far as they have arrived
        std::string last;           // name of the last key that arrived
        bool asked = false;
        std::string difference;  // from the winner's list; empty: none was found yet
    };
    struct Comparison {
        std::uint32_t first = 0;  // keys before this index are equal in all lists whose difference is open
        std::vector<List> lists;  // the winner's list, then the others'
        Instant progress = 0;     // when a page last arrived
        Instant began = 0;
    };

    bool ask(Comparison& comparison);

    Turn& turn_;
    const RunState& state_;
    Roster& roster_;
    Agenda& agenda_;
    std::map<GroupId, Comparison> groups_;
};

}  // namespace pccl::core
