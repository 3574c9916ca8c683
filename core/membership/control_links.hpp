// The master's connections with peers: the peer at the other end of each, the messages that were sent and acknowledged,
// and the messages that are held until a record is durable.
//
// This part owns the links and the queue of held messages. It closes strangers that send nothing, detects silent links,
// and sends heartbeats. Other parts interpret the messages, and decide whether a silent peer is removed.
//
// Invariants: a message that depends on a record leaves after that record is durable. Messages that are given to say()
// leave in that order. A link whose refusal is held stays open until the refusal has left; nothing is read from it
// meanwhile. No frame is larger than the other end accepts. The messages that are held for a link have at most
// Limits::held_bytes_max bytes, beside answers and its refusal.
#pragma once

#include "core/base/sleep.hpp"
#include "core/journal/decision_log.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

class ControlLinks {
public:
    struct Link {
        // closing: a refusal is held until a record is durable; nothing more is read from this link.
        enum class Stage : std::uint8_t { fresh, registered, member, closing };
        Stage stage = Stage::fresh;
        Uuid uuid;
        Endpoint remote;
        Uuid identity = {};                 // the peer that the driver has authenticated; nil: it has not
        std::optional<GroupId> group = {};  // the only one that it may join
        bool known = false;                 // when it was accepted, a member had the same address
        Instant opened = 0;
        Instant last_received = 0;
        Instant last_sent = 0;
        std::uint32_t control_bytes = control_bytes_least;  // the largest frame that the other end accepts
        std::uint32_t plans_held = 0;  // pages of a dial plan that are held until a record is durable
        Instant plan_held_since = 0;
        // Of messages that are held for it, other than answers: the number of those is limited (Limits::untold_max).
        std::uint64_t held_bytes = 0;
        // More would have been held than Limits::held_bytes_max. The next tick closes the link. Until then every further
        // message that promises something is dropped, so what has left is complete up to some decision.
        bool held_too_much = false;
        bool welcomed = false;    // its welcome was sent
        std::uint64_t said = 0;   // messages that were sent on it
        std::uint64_t heard = 0;  // how many of them its heartbeats acknowledge
        // Since when messages are not acknowledged and no further acknowledgement has come. never: all are
        // acknowledged.
        Instant unheard_since = never;
    };

    class Owner {
    public:
        // The link is gone, or will be gone when its refusal has left. `link`: its state until now, with the name of
        // its peer.
        virtual void link_lost(LinkId id, const Link& link) = 0;
        // answer_leaves: the answer to a call is sent, as message number `message` on the link. acknowledged: the peer
        // has acknowledged `messages` messages on the link.
        virtual void answer_leaves(const Uuid& peer, std::uint64_t message) = 0;
        virtual void acknowledged(const Uuid& peer, std::uint64_t messages) = 0;
        // A held message is sent, after it has waited for `waited`.
        virtual void held_welcome_leaves(const Uuid& peer, Duration waited) = 0;
        virtual void held_plan_leaves(const Uuid& peer, Duration waited) = 0;
        // A peer that was silent, or acknowledged nothing, for long is back. Nobody could connect with it in that time.
        virtual void heard_again(const Uuid& peer) = 0;

    protected:
        ~Owner() = default;
    };

    ControlLinks(Turn& turn, const DecisionLog& decisions, Owner& owner)
        : turn_(turn), decisions_(decisions), owner_(owner) {}

    // ---- connections
    // `member_host`: a member has the same address as this connection. `members`: how many the run has.
    void accept(const LinkAccepted& event, bool member_host, std::size_t members);
    void closed(LinkId id);
    // Closes the links that the driver authenticated as this peer's, and that have said nothing yet.
    void close_unnamed(const Uuid& identity, const char* why);
    void close(LinkId id, const std::string& why);
    // Closes the link of a peer that has left or dialled again. link_lost() is not called.
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
    // Both functions cut the texts of `message` to the limit of the other end. say() holds it until the last record is
    // durable. say_at_once() is only for messages that promise nothing.
    void say(LinkId link, proto::MasterMessage message);
    void say_at_once(LinkId id, Link& link, proto::MasterMessage message);
    void say_heartbeat(LinkId id, Link& link);
    void say_to_members_at_once(const proto::MasterMessage& message);
    // To members and newcomers; to those whose welcome waits for the disk, behind it.
    void tell_all(const proto::MasterMessage& message);
    void refuse(LinkId link, proto::RefusalCode code, const Cause& cause);
    // `hold`: the message depends on a record, and is sent when that is durable. Then the link is closed.
    void say_and_close(LinkId link, proto::MasterMessage message, bool hold);
    void release_held();
    void clear_held() {
        held_.clear();
        for (auto& [id, link] : links_) link.held_bytes = 0;
    }
    bool holds() const { return !held_.empty(); }
    // True if a welcome for this link has waited for the disk for a tick or longer.
    bool welcome_waits(LinkId link) const;
    // The peers whose answers to calls wait for the disk.
    std::set<Uuid> owed_answers() const;
    // Sends `message` to every peer and closes all links.
    void shut_down(const proto::MasterMessage& message);

    // ---- hearing
    void heard(Link& link);
    void acknowledges(Link& link, std::uint64_t messages);
    // Heartbeats acknowledge messages, and a healthy member sends more than two in a peer time-out. A member that
    // acknowledges nothing for quiet() can send, but does not receive what the master sends, dial plans included.
    bool deaf(const Link& link) const {
        return link.unheard_since != never && turn_.now - link.unheard_since > turn_.timeouts.quiet();
    }

    // Held messages leave in the order of the records that they wait for.
    void check() const;

    // ---- time
    // Closes late strangers and sends heartbeats. Returns the silent links; the caller decides about them.
    std::vector<LinkId> tick();
    void slept(const Sleep& sleep);

private:
    struct Held {
        std::uint64_t sequence = 0;
        LinkId link = 0;
        std::string body;
        bool close = false;
        bool answer = false;  // it answers a call
        bool plan = false;    // it is a page of a dial plan
        bool welcome = false;
        bool counts = false;  // its bytes are among Link::held_bytes
        Instant since = 0;
    };

    bool must_wait() const { return !decisions_.all_durable() || !held_.empty(); }
    void keep_held(Held held);
    static std::string encode_for(const Link& link, proto::MasterMessage& message);
    void welcome_leaves(Link& link);
    void leaves(LinkId id, Link& link, std::string body);

    Turn& turn_;
    const DecisionLog& decisions_;
    Owner& owner_;
    std::map<LinkId, Link> links_;
    std::deque<Held> held_;
    std::size_t held_kept_ = 0;  // size of `held_` when messages for lost links were last dropped
    std::uint64_t refused_frames_ = 0;
};

}  // namespace pccl::core
