// The members of the run as the master knows them now: which link each of them has, who is away and for how long, who is removed.
//
// Who is a member is promised, so it is RunState's; this part owns the live side of each seat. A member may lose its link and
// resume; its seat is kept for a while. After a restart of the master nothing is decided until all have resumed or a grace is
// over. It answers for all parts of the master which way leads to a peer (Roster), and tells decisions to whom they concern.
//
// Invariants: each member has one session and at most one current link. A seat is removed once, by a decision. Nobody is removed
// for being away while the order of what happened is not known, or in a grace.
#pragma once

#include "core/base/secret.hpp"
#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/membership/control_links.hpp"
#include "core/topology/joiners.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace pccl::core {

class Registry final : public Roster {
public:
    class Owner {
    public:
        virtual void member_admitted(const Uuid& member) = 0;
        virtual void member_taken_up(const Uuid& member) = 0;  // from the journal
        virtual void member_away(const Uuid& member) = 0;      // its link is lost
        virtual void member_resumes(const Uuid& member) = 0;   // on a new link; it declares what is unanswered
        virtual void member_removed(const Uuid& member, GroupId group) = 0;
        virtual void grace_over() = 0;
        virtual void run_over() = 0;  // another one begins: whatever a part holds of it goes

    protected:
        ~Owner() = default;
    };

    Registry(Turn& turn, DecisionLog& decisions, ControlLinks& links, Rings& rings, Joiners& joiners,
             SecretSource& secrets, Agenda& agenda, Owner& owner)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), links_(links), rings_(rings),
          joiners_(joiners), secrets_(secrets), agenda_(agenda), owner_(owner) {}

    // ---- the run
    void begin_new_run();
    // Members of the journal may resume until the grace is over.
    void take_up();
    bool in_grace() const { return grace_until_ != never; }
    Instant grace_until() const { return grace_until_; }
    void end_grace_if_due();
    // Promises were made that this journal does not contain: the run cannot be continued from it. `witness`: who knows of them.
    void end_run_of_older_journal(LinkId id, const Uuid& witness);

    // ---- members
    void admit(const Uuid& uuid, const Joiners::Joiner& joiner);
    // `address`: where it is now.
    void resume(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address);
    // It has declared everything. True: it had not before.
    bool resumed(const Uuid& member);
    // The holder of the newer token has spoken: the older one is worth nothing from here on.
    void confirm_token(const Uuid& member);
    void acknowledge(const Uuid& member, std::uint64_t seen);
    void leave(const Uuid& member) { remove(member, "left the run", true); }
    void edge_reported(const Uuid& from, const proto::EdgeReport& report);
    void link_lost(LinkId id, const ControlLinks::Link& link);
    void welcome_waited(const Uuid& member, Duration waited);

    // ---- telling
    void tell(const proto::Decision& decision);

    // ---- time
    void tick();
    void slept(const Sleep& sleep);
    // For a while the order of what happened is not known: closed links are no testimony.
    void forget_order_of_events();

    // ---- Roster
    LinkId link_of(const Uuid& peer) const override;
    bool present(const Uuid& peer) const override;
    std::optional<Endpoint> endpoint_of(const Uuid& peer) const override;
    void add_pass(const Uuid& from, proto::DialTarget& target) const override;
    void add_pass(const Uuid& from, proto::SyncHolder& target) const override;
    Duration silence_of(const Uuid& peer) const override;
    bool deaf(const Uuid& peer) const override { return links_.deaf(links_.at(link_of(peer))); }
    OpId resumed_after(const Uuid& member) const override { return sessions_.at(member).resumed_after; }
    std::uint32_t newcomer_links(const Uuid& member) const override { return sessions_.at(member).newcomer_links; }
    void say(const Uuid& peer, proto::MasterMessage message) override { links_.say(link_of(peer), std::move(message)); }
    std::uint32_t control_bytes(const Uuid& peer) const override { return links_.at(link_of(peer)).control_bytes; }
    bool plan_waits(const Uuid& peer) const override;
    void remove(const Uuid& member, const std::string& reason) override { remove(member, reason, false); }

    // ---- knowledge
    struct Session {
        LinkId link = 0;  // 0: absent
        std::uint64_t generation = 0;
        bool resumed = false;    // everything unanswered was declared on the current link
        OpId resumed_after = 0;  // last_id() then; the starts of all later operations were sent on the current link
        // Something that it was told since its resume has arrived, or nothing was left to tell: the link carries both ways.
        bool settled = true;
        bool closed_seen = false;   // its control link closed in this incarnation
        Instant closed_at = never;  // when it closed last; no sleep of the master moves it
        // The clock of its absence. Each loss of its link starts it anew, but only `resumes_in_vain_max` times in a row
        // without a completed resume between them: links that break for ever must not keep the seat for ever.
        Instant absent_since = 0;
        std::uint32_t resumes_in_vain = 0;  // links lost in a row before everything unanswered was declared
        Secret link_key{};                  // this peer's; passes of those that may dial it are derived from it
        std::uint32_t newcomer_links = 0;   // connections with peers that wait which it can hold
        Instant since = 0;                  // accepted, or taken up from the journal; for spectators
    };
    const std::map<Uuid, Session>& sessions() const { return sessions_; }

private:
    void remove(const Uuid& uuid, const std::string& reason, bool left);
    void tell(const Uuid& uuid, proto::Answer answer);
    void notice_all(const std::string& text);
    void begin_absence(Session& session);
    bool absent_too_long(const Session& session) const;
    void remove_unheeding();
    bool neighbour_lost(const Uuid& uuid) const;
    bool knows_order() const { return !in_grace() && turn_.now >= sees_again_at_; }
    bool leaves_side(const Uuid& uuid, const Endpoint& endpoint) const;
    const Secret* link_key_of(const Uuid& uuid) const;
    template <class Target>
    void add_pass_to(const Uuid& from, Target& target) const;

    Turn& turn_;
    DecisionLog& decisions_;
    const RunState& state_;
    ControlLinks& links_;
    Rings& rings_;
    Joiners& joiners_;
    SecretSource& secrets_;
    Agenda& agenda_;
    Owner& owner_;
    std::map<Uuid, Session> sessions_;
    Instant grace_until_ = never;
    Instant sees_again_at_ = 0;  // until then the order of what happened while the master did not run is not known
};

}  // namespace pccl::core
