// The time limits on votes. Applications may compute for minutes, so there is no limit unless the operator sets
// Timeouts::vote. A vote that waits for longer than Timeouts::vote_warn is reported.
//
// For each member, this part keeps since when its application could have made the next call. A missing member that was
// in no call for the whole limit is removed. If all missing members wait in other calls, the calls cross and fail.
// A member that says that it works gets more time, but not for ever.
//
// Invariants: each member has one clock. The clock leaves out the time in which an operation kept the member busy, in
// which its answer or welcome waited for the disk, and in which the master did not run. The time in which its link was
// away counts only once it has resumed, and not if nothing had shown before that its last answer had arrived.
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
        // Fails the calls of the voters of this ballot, and no other calls.
        virtual void give_up(const BallotKey& key, const Cause& cause) = 0;

    protected:
        ~Owner() = default;
    };

    VotePatience(Turn& turn, const RunState& state, BallotBox& ballots, Roster& roster, ControlLinks& links,
                 Owner& owner)
        : turn_(turn), state_(state), ballots_(ballots), roster_(roster), links_(links), owner_(owner) {}

    // ---- members
    void admitted(const Uuid& member) { idle_[member].free_since = turn_.now; }
    void taken_up(const Uuid& member) { idle_[member] = {}; }  // from the journal; restart_clocks() starts its clock
    void resumes(const Uuid& member);
    void removed(const Uuid& member) { idle_.erase(member); }
    // The member hashes its content for a vote, or copies a result. Its application cannot make another call yet. It is
    // believed for Timeouts::works_for_good() while others wait.
    void works(const Uuid& member);
    void answer_leaves(const Uuid& member, std::uint64_t message);
    void acknowledged(const Uuid& member, std::uint64_t messages);
    void welcome_waited(const Uuid& member, Duration waited);
    void forget_run() { idle_.clear(); }

    // ---- on ticks; not in a grace
    void warn();
    // `only`: judges only this member, which has just resumed. Its link may break again before the next tick.
    void expire(const std::optional<Uuid>& only = {});

    // ---- time in which the master did not decide, or did not run
    void restart_clocks();
    void shift_clocks(Duration time);

    template <class Known>
    std::size_t strange(const Known& known) const {
        return static_cast<std::size_t>(
            std::count_if(idle_.begin(), idle_.end(), [&](const auto& entry) { return !known(entry.first); }));
    }

    // Only members are waited for.
    void check() const;

private:
    struct Idle {
        // Since when its application could make the next call, because its last answer had arrived. Time in which the
        // master did not run, or made no decisions, is left out.
        Instant free_since = 0;
        Instant worked_at = 0;  // when it said last that it works
        std::uint64_t answer_said = 0;  // message number of that answer on its link; 0: it is acknowledged
        // When its time to make the next call is over, the master sends a heartbeat. These are the number of that
        // message on the link and the time when it was sent. A call that the member made in time arrives before the
        // acknowledgement. 0: not sent yet.
        std::uint64_t checked_said = 0;
        Instant checked_at = 0;
        // The same for a vote that has waited since `changed`. That it works is believed for so long as others wait.
        Instant free_for(Instant changed, Duration believed) const {
            return std::max(free_since, std::min(worked_at, std::max(free_since, changed) + believed));
        }
        void leave_out(Duration time, Instant now) {
            for (Instant* clock : {&free_since, &worked_at, &checked_at}) *clock = std::min(now, *clock + time);
        }
        // When its current link began to resume. When the resume is complete, the member has declared every call that
        // it made before.
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
