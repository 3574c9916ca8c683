// In what members' shared states differ, when their schemas do: the first key that one has and the other has not, or has
// otherwise. It is for the text that they are told alone; who wins is decided by digests.
//
// The lists may be long (Limits::entries_max), so the master holds a page of each at a time: it asks for the winner's list and
// for each of the others', and reads them side by side up to the first difference.
//
// Invariants: a group has at most one comparison, of exactly the votes that its ballot has. A page that does not come ends it
// without a text.
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

    // True when each member that is to be removed for its schema has a text (at once, if there is none). Else pages were asked
    // for, and the ballot is on the agenda when one comes.
    bool compare(GroupId group, const Ballot& ballot, const Election& election);
    // Empty: none was found.
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
        std::deque<EntryKey> keys;  // from `first` on, as far as they are here
        std::string last;           // the name of the last one that came
        bool asked = false;
        std::string difference;  // from the winner's list; empty: none was found yet
    };
    struct Comparison {
        std::uint32_t first = 0;  // all keys before it are the same on those whose difference is open
        std::vector<List> lists;  // the winner's, then the others'
        Instant progress = 0;     // when a page last came
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
