// The master's connections with peers: who is at the other end, what was sent and acknowledged, and what is held until a record
// is durable.
//
// It owns the links and the queue of held messages. It closes strangers that say nothing, notices who is silent, and keeps
// heartbeats going. What a message means, and whether a silent peer is removed, is the matter of others.
//
// Invariants: a message that rests on a record leaves after that record is durable, and messages leave in the order in which
// they were said. A link that is refused with a promise stays until its refusal has left; nothing is read from it meanwhile. No
// frame is larger than what the other end takes.
#pragma once

#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

class ControlLinks {
public:
    struct Link {
        // closing: a refusal is held for it until a record is durable; nothing is read from it any more.
        enum class Stage : std::uint8_t { fresh, registered, member, closing };
        Stage stage = Stage::fresh;
        Uuid uuid;
        Endpoint remote;
        bool known = false;  // when it was accepted, a member was at its address
        Instant opened = 0;
        Instant last_received = 0;
        Instant last_sent = 0;
        std::uint32_t control_bytes = control_bytes_least;  // what may be sent to it in one frame
        std::uint32_t plans_held = 0;                       // pages of the one that waits for a record
        Instant plan_held_since = 0;
        bool welcomed = false;    // the welcome has left
        std::uint64_t said = 0;   // messages that have left on it
        std::uint64_t heard = 0;  // of them, what its heartbeats acknowledge
        // Since when some have left and no further one was acknowledged; never: all were.
        Instant unheard_since = never;
    };

    class Owner {
    public:
        // A link is gone, or will be when a refusal has left. It was this one's until now.
        virtual void link_lost(LinkId id, const Link& link) = 0;
        // An answer to a call leaves as the message of this number; it is acknowledged; so many messages are.
        virtual void answer_leaves(const Uuid& peer, std::uint64_t message) = 0;
        virtual void acknowledged(const Uuid& peer, std::uint64_t messages) = 0;
        // What was held leaves after so long.
        virtual void held_welcome_leaves(const Uuid& peer, Duration waited) = 0;
        virtual void held_plan_leaves(const Uuid& peer, Duration waited) = 0;
        // It was silent, or acknowledged nothing, for long: nobody could connect with it.
        virtual void heard_again(const Uuid& peer) = 0;

    protected:
        ~Owner() = default;
    };

    ControlLinks(Turn& turn, const DecisionLog& decisions, Owner& owner)
        : turn_(turn), decisions_(decisions), owner_(owner) {}

    // ---- connections
    // `member_host`: a member is at the address of the one that comes. `members`: of the run.
    void accept(const LinkAccepted& event, bool member_host, std::size_t members);
    void closed(LinkId id);
    void close(LinkId id, const std::string& why);
    // Without a word about it: its peer has left, or has dialled again. Nobody is told that it is lost.
    void drop(LinkId id, bool flush);
    void count_refused() { ++refused_frames_; }
    Link* find(LinkId id) {
        const auto link = links_.find(id);
        return link == links_.end() ? nullptr : &link->second;
    }
    const Link* find(LinkId id) const {
        const auto link = links_.find(id);
        return link == links_.end() ? nullptr : &link->second;
    }
    Link& at(LinkId id) { return links_.at(id); }
    const Link& at(LinkId id) const { return links_.at(id); }
    bool empty() const { return links_.empty(); }
    std::size_t size() const { return links_.size(); }
    std::size_t strangers() const;
    std::vector<LinkId> of_stage(Link::Stage stage) const;
    std::uint64_t refused_frames() const { return refused_frames_; }

    // ---- sending
    // The texts of `message` are cut to what the other end takes. say() holds it until the last record is durable;
    // say_at_once() is for what promises nothing.
    void say(LinkId link, proto::MasterMessage message);
    void say_at_once(LinkId id, Link& link, proto::MasterMessage message);
    void say_heartbeat(LinkId id, Link& link);
    void say_to_members_at_once(const proto::MasterMessage& message);
    void refuse(LinkId link, proto::RefusalCode code, const std::string& text);
    void release_held();
    void clear_held() { held_.clear(); }
    bool holds() const { return !held_.empty(); }
    // A welcome for this link has waited for the disk for a tick.
    bool welcome_waits(LinkId link) const;
    // Those whose answers to calls wait for the disk.
    std::set<Uuid> owed_answers() const;
    // Tells every peer and closes all links.
    void shut_down(const proto::MasterMessage& message);

    // ---- hearing
    void heard(Link& link);
    void acknowledges(Link& link, std::uint64_t messages);
    // Heartbeats acknowledge messages more often than twice in a peer time-out. A member that acknowledges none for so long
    // speaks, but what is sent to it does not arrive: neither does whom to dial.
    bool deaf(const Link& link) const {
        return link.unheard_since != never && turn_.now - link.unheard_since > turn_.timeouts.quiet();
    }

    // ---- time
    // Closes late strangers and sends heartbeats. Returns links that are silent: their owner decides what becomes of them.
    std::vector<LinkId> tick();
    void slept(const Sleep& sleep);

private:
    struct Held {
        std::uint64_t sequence = 0;
        LinkId link = 0;
        std::string body;
        bool close = false;
        bool answer = false;  // to a call
        bool plan = false;    // whom to dial
        bool welcome = false;
        Instant since = 0;
    };

    bool must_wait() const { return !decisions_.all_durable() || !held_.empty(); }
    void keep_held(Held held);
    void say_and_close(LinkId link, proto::MasterMessage message, bool hold);
    static std::string encode_for(const Link& link, proto::MasterMessage& message);
    void welcome_leaves(Link& link);
    void leaves(LinkId id, Link& link, std::string body);

    Turn& turn_;
    const DecisionLog& decisions_;
    Owner& owner_;
    std::map<LinkId, Link> links_;
    std::deque<Held> held_;
    std::size_t held_kept_ = 0;  // when those of lost links were last dropped
    std::uint64_t refused_frames_ = 0;
};

}  // namespace pccl::core
