// The master's patience with votes. Applications may compute for minutes, so waiting has no limit of its own: it is reported
// after Timeouts::vote_warn and ends only where the operator set Timeouts::vote.
//
// It owns, for each member, since when its application could have made the next call. A member that is waited for and was in
// no call for the whole limit is removed; where all that are missing wait in other calls, the calls cross and fail.
//
// Invariants: there is one clock for each member. No time counts in which an operation kept the member busy, its answer or its
// welcome waited for the disk, its link was away and it has not resumed since, or the master did not run.
#pragma once

#include "core/links/roster.hpp"
#include "core/membership/control_links.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace pccl::core {

class VotePatience {
public:
    class Owner {
    public:
        // Nobody's call is answered by it but those of its voters.
        virtual void give_up(const BallotKey& key, const std::string& reason) = 0;

    protected:
        ~Owner() = default;
    };

    VotePatience(Turn& turn, const RunState& state, BallotBox& ballots, Roster& roster, ControlLinks& links,
                 Owner& owner)
        : turn_(turn), state_(state), ballots_(ballots), roster_(roster), links_(links), owner_(owner) {}

    // ---- members
    void admitted(const Uuid& member) { idle_[member].free_since = turn_.now; }
    void taken_up(const Uuid& member) {
        idle_[member] = {};
    }  // from the journal: its clock starts with restart_clocks()
    void resumes(const Uuid& member);
    void removed(const Uuid& member) { idle_.erase(member); }
    // It hashes what it will vote for, or copies what was decided: its application cannot make another call yet.
    void works(const Uuid& member);
    void answer_leaves(const Uuid& member, std::uint64_t message);
    void acknowledged(const Uuid& member, std::uint64_t messages);
    void welcome_waited(const Uuid& member, Duration waited);
    void forget_run() { idle_.clear(); }

    // ---- on ticks; not in a grace
    void warn();
    // `only`: the member that has just resumed is judged, and nobody else; its link may break again before the next tick.
    void expire(const std::optional<Uuid>& only = {});

    // ---- time in which the master did not decide, or did not run
    void restart_clocks();
    void shift_clocks(Duration time);

    template <class Known>
    std::size_t strange(const Known& known) const {
        return static_cast<std::size_t>(
            std::count_if(idle_.begin(), idle_.end(), [&](const auto& entry) { return !known(entry.first); }));
    }

private:
    struct Idle {
        // Since when its application could make the next call: its last answer has arrived, and neither this master nor the
        // member's link was away since.
        Instant free_since = 0;
        std::uint64_t answer_said = 0;  // which message on its link that answer was; 0: it is acknowledged
        // What left on its link when its time to make the next call was over, and when that was: a call that it made in time
        // comes before the acknowledgement. 0: nothing yet.
        std::uint64_t checked_said = 0;
        Instant checked_at = 0;
        // When its current link began to resume: every call that it made before is declared when it has resumed.
        Instant came_back = 0;
    };
    using Places = std::map<Uuid, std::string>;

    const std::string& whereabouts(const Uuid& uuid, Places& places) const;
    std::string whereabouts(const Uuid& uuid) const;

    Turn& turn_;
    const RunState& state_;
    BallotBox& ballots_;
    Roster& roster_;
    ControlLinks& links_;
    Owner& owner_;
    std::map<Uuid, Idle> idle_;
};

}  // namespace pccl::core
