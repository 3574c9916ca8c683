// The live side of the run's members: the link of each member, which members are away and since when, and their
// removal.
//
// RunState owns the list of members, because it is promised. This part owns a session for each of them. A member may
// lose its link and resume; its seat is kept for one peer time-out. After a restart of the master, a grace lasts until
// all members have resumed, or until its time is over. Registry implements Roster: it finds the link of a peer for the
// other parts of the master. It sends decisions to their recipients.
//
// Invariants: each member has one session and at most one current link. A seat is removed once, by a decision, which
// removes its whole gang. In a grace no member is removed for being away or silent. A neighbour's report removes nobody
// while the order of events is unknown.
#pragma once

#include "core/base/secret.hpp"
#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/links/roster.hpp"
#include "core/membership/control_links.hpp"
#include "core/topology/address_rules.hpp"
#include "core/topology/joiners.hpp"
#include "core/topology/rings.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pccl::core {

class Registry final : public Roster {
public:
    class Owner {
    public:
        virtual void member_admitted(const Uuid& member) = 0;
        virtual void member_taken_up(const Uuid& member) = 0;  // read from the journal
        virtual void member_away(const Uuid& member) = 0;      // its link is lost
        virtual void member_resumes(const Uuid& member) = 0;   // on a new link; it will declare what is unanswered
        virtual void member_removed(const Uuid& member, GroupId group) = 0;
        virtual void grace_over() = 0;
        virtual void run_over() = 0;  // another one begins: each part drops its state of the old one

    protected:
        ~Owner() = default;
    };

    Registry(Turn& turn, DecisionLog& decisions, ControlLinks& links, Rings& rings, Joiners& joiners,
             SecretSource& secrets, Agenda& agenda, Owner& owner)
        : turn_(turn), decisions_(decisions), state_(decisions.state()), links_(links), rings_(rings),
          joiners_(joiners), secrets_(secrets), agenda_(agenda), owner_(owner) {}

    // ---- the run
    void begin_new_run();
    // Starts a grace, in which the members in the journal may resume.
    void take_up();
    bool in_grace() const { return grace_until_ != never; }
    Instant grace_until() const { return grace_until_; }
    void end_grace_if_due();
    // This journal does not contain all promises that were made, so the run cannot be continued from it. `witness`: the
    // member that has received the missing ones.
    void end_run_of_older_journal(LinkId id, const Uuid& witness);

    // ---- members
    void admit(const Uuid& uuid, const Joiners::Joiner& joiner);
    // `address`: the present address of the member.
    void resume(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address,
                const Location& location);
    // The member casts a vote. Until it has declared everything, each further one gives it more time for the rest.
    void declares(const Uuid& member, Serial serial);
    // The member has declared everything. Returns true the first time on its current link.
    bool resumed(const Uuid& member);
    // A message of the member proves that it has the newer token. The older one is invalid from now on.
    void confirm_token(const Uuid& member);
    void acknowledge(const Uuid& member, std::uint64_t seen);
    void leave(const Uuid& member) { remove(member, make_cause<CauseKind::left>()); }
    void edge_reported(const Uuid& from, const proto::EdgeReport& report);
    void link_lost(LinkId id, const ControlLinks::Link& link);
    void welcome_waited(const Uuid& member, Duration waited);

    // ---- telling
    void tell(const proto::Decision& decision);

    // ---- time
    void tick();
    void slept(const Sleep& sleep);
    // For a while the order of events is unknown: closed links are no proof of a death.
    void forget_order_of_events();

    // ---- Roster
    LinkId link_of(const Uuid& peer) const override;
    bool present(const Uuid& peer) const override;
    std::optional<Endpoint> endpoint_of(const Uuid& peer) const override;
    std::optional<Addresses> addresses_for(const Uuid& dialler, const Uuid& peer) const override;
    bool is_translated(const Uuid& peer) const override;
    std::uint16_t dial_port_of(const Uuid& source) const override;
    std::uint16_t outer_dial_port_of(const Uuid& source) const override;
    void add_pass(const Uuid& from, proto::DialTarget& target) const override;
    void add_way(const Uuid& from, proto::SyncHolder& holder) const override;
    Duration silence_of(const Uuid& peer) const override;
    bool deaf(const Uuid& peer) const override { return links_.deaf(links_.at(link_of(peer))); }
    OpId resumed_after(const Uuid& member) const override { return sessions_.at(member).resumed_after; }
    std::uint32_t newcomer_links(const Uuid& member) const override { return sessions_.at(member).newcomer_links; }
    void say(const Uuid& peer, proto::MasterMessage message) override { links_.say(link_of(peer), std::move(message)); }
    std::uint32_t control_bytes(const Uuid& peer) const override { return links_.at(link_of(peer)).control_bytes; }
    bool plan_waits(const Uuid& peer) const override;
    void remove(const Uuid& member, const Cause& cause) override;
    void turn_away(const Uuid& newcomer, const Cause& cause) override;

    // Whether the member was admitted, or has resumed, since this master began: it has received no decision that this
    // master does not know.
    bool has_come(const Uuid& member) const { return sessions_.at(member).has_come; }

    // ---- knowledge
    struct Session {
        LinkId link = 0;  // 0: absent
        std::uint64_t generation = 0;
        Location location;
        bool resumed = false;    // everything unanswered was declared on the current link
        // Votes that were declared on it, at most one for each serial and `declared_max` in all: a member that lies
        // must not keep its seat with more and more of them. The serial of the last one.
        std::uint32_t declared = 0;
        Serial declared_last = 0;
        OpId resumed_after = 0;  // last_id() then; the starts of all later operations went over the current link
        // The member has acknowledged a decision since its resume, or none was left to send: the link carries both
        // ways.
        bool settled = true;
        bool closed_seen = false;   // its control link closed in this incarnation
        Instant closed_at = never;  // when it closed last; a pause of the master does not move it
        // Start of its absence. Each loss of its link restarts this clock, but only `resumes_in_vain_max` times in a
        // row if no resume was completed in between: a member whose links keep breaking must not keep its seat for
        // ever.
        Instant absent_since = 0;
        std::uint32_t resumes_in_vain = 0;  // links lost in a row before the resume was complete
        Secret link_key{};                  // the passes of peers that may dial this one are derived from it
        std::uint32_t newcomer_links = 0;   // how many connections with newcomers it can hold
        bool has_come = false;              // admitted or resumed in this incarnation of the master
        Instant since = 0;                  // admitted, or read from the journal; only for spectators
    };
    void check() const;
    const std::map<Uuid, Session>& sessions() const { return sessions_; }

private:
    void tell(const Uuid& uuid, proto::Answer answer);
    void notice_all(const std::string& text);
    void write_removal(const std::vector<Uuid>& gone, proto::RemovalDecision& removal) const;
    void begin_absence(Session& session);
    bool absent_too_long(const Session& session) const;
    void remove_unheeding();
    bool neighbour_lost(const Uuid& uuid) const;
    bool knows_order() const { return !in_grace() && turn_.now >= sees_again_at_; }
    bool leaves_side(const Uuid& uuid, const Endpoint& endpoint) const;
    const Location* location_of(const Uuid& peer) const;
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
    Instant sees_again_at_ = 0;  // until then the order of events during a pause of the master is unknown
};

}  // namespace pccl::core
