// All connections of a peer: purpose and stage, when bytes last arrived, and what they send and receive at present.
//
// The table opens connections, gives them ids, and sends control messages within the other end's limit. It finds the
// connections that took too long to open or were silent for too long. It must not know what a connection carries: the
// part to which the connection belongs (`purpose`) handles that, and the loss of the connection.
//
// Invariants: a link is in the table from the effect or event that names it first until the machine closes it or the
// driver reports it closed, and at no other time. At most one payload leaves, and at most one arrives, on a link at a
// time. No control frame is longer than the other end accepts (`control_bytes`).
#pragma once

#include "core/base/limits.hpp"
#include "core/base/link_pass.hpp"
#include "core/identity.hpp"
#include "core/turn.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/sync_part.hpp"

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

// The payload that a link is sending or receiving. Phase 2: a chunk of shared state. Phase 3: a frame of a bandwidth
// test; `entry` is the number of its bytes if it is received.
struct Transfer {
    static constexpr std::uint32_t no_cell = ~0u;
    OpId op = 0;  // 0: nothing
    std::uint16_t phase = 0;
    std::uint32_t slice = 0;
    std::uint64_t entry = 0;
    std::uint32_t cell = no_cell;  // of the reserve, if an early slice lands there
    bool dropped = false;          // cancelled (send) or discarded (receive)
};

struct Link {
    // offer: this peer dialled, and the other end may use the connection. Then it is like an incoming one.
    enum class Purpose : std::uint8_t { master, outgoing, incoming, test_out, test_in, offer };
    enum class Stage : std::uint8_t { dialing, greeting, open };
    Purpose purpose = Purpose::incoming;
    Stage stage = Stage::greeting;
    Uuid remote;
    Endpoint from;       // only of an accepted link
    Uuid identity = {};  // only of an accepted link: who the driver has authenticated; nil: it has not
    bool known = false;  // it came from a neighbour's host
    std::uint32_t stripe = 0;
    bool dialled = false;  // by this peer; else accepted. Either may be outgoing or incoming: see Offers
    LinkPass pass;         // of an outgoing link, or one that this peer dialled
    bool renewed = false;  // this peer closed it to redial it
    bool goodbye = false;  // the other end announced that it closes the link on purpose
    Duration dial_longest = 0;  // how long the dial may take; 0: as usual
    Instant opened = 0;
    Instant last_received = 0;
    Instant last_beat = 0;
    Instant last_progress = 0;
    Instant answered_at = 0;    // when a flow word last showed that a slice got further
    Instant left_at = 0;        // when a slice last began to leave, or the other end could first answer those that had
    Instant nothing_out_at = 0;  // when nothing was found that may leave again; later than left_at: nothing may
    bool stalled = false;       // its slices were queued again; no flow word about slices sent on it came since
    Instant stalled_at = 0;     // when they were queued again
    Instant silent_since = 0;   // valid if `stalled`: when it had last made progress
    bool useful = false;        // a slice that was sent on it was answered
    Transfer timed;             // a slice whose way there and back is measured; op 0: none is
    Instant timed_at = 0;       // when it began to leave
    Transfer rest;              // the last unwanted frame that a flow word named; op 0: none
    std::uint32_t rest_moved = 0;  // the bytes that it named
    std::uint32_t arrived = 0;  // bytes of the payload that is landing
    Instant told_moving = 0;
    Instant frame_began = 0;                            // when the frame that is arriving began
    std::uint32_t control_bytes = control_bytes_least;  // the largest control frame that the other end accepts
    Transfer sending;
    Transfer receiving;
    std::deque<SyncPart> serve;  // parts that the other end requested
    std::vector<SyncPart> owed;  // requested from the other end and not answered yet, whether still wanted or not

    bool is_open() const { return stage == Stage::open; }
};

class LinkOwner {
public:
    // The link is not in the table any more. `by_remote`: not this machine, but the other end or the network closed it,
    // after it was open.
    virtual void link_lost(LinkId id, const Link& link, const std::string& reason, bool by_remote) = 0;

protected:
    ~LinkOwner() = default;
};

class LinkTable {
public:
    using Map = std::map<LinkId, Link>;

    LinkTable(Turn& turn, const Identity& who, LinkOwner& owner) : turn_(turn), who_(who), owner_(owner) {}

    Map::iterator begin() { return links_.begin(); }
    Map::iterator end() { return links_.end(); }
    Map::const_iterator begin() const { return links_.begin(); }
    Map::const_iterator end() const { return links_.end(); }
    Map::iterator find(LinkId id) { return links_.find(id); }
    Map::const_iterator find(LinkId id) const { return links_.find(id); }
    Link& at(LinkId id) { return links_.at(id); }
    const Link& at(LinkId id) const { return links_.at(id); }
    bool contains(LinkId id) const { return links_.contains(id); }
    bool empty() const { return links_.empty(); }
    std::size_t size() const { return links_.size(); }
    bool is_open(LinkId id) const {
        const auto link = links_.find(id);
        return link != links_.end() && link->second.is_open();
    }

    // `source_port`: see OpenLink.
    LinkId dial(Link::Purpose purpose, const Uuid& remote, std::uint32_t stripe, const Endpoint& target,
                const LinkPass& pass, std::uint16_t source_port = 0);
    // Answers a hello with a refusal, and closes the link. The owner learns of it only if this peer had dialled.
    // `present`: this peer is the one that the other end wanted.
    void turn_away(LinkId id, const std::string& why, bool present);
    // Adds a connection that was accepted. `known`: it comes from a neighbour's host. If too many connections have sent no
    // hello, closes an older one or this one.
    void accept(const LinkAccepted& event, bool known);
    // Why the other end of an accepted link cannot be this peer: the driver has authenticated another one, or the
    // certificate of this one was revoked. Empty: nothing speaks against it here.
    std::string why_not_the_caller(const Link& link, const Uuid& from) const;
    // Closes all links with this peer, and refuses its hellos from now on.
    void revoke(const Uuid& peer);
    bool is_revoked(const Uuid& peer) const { return revoked_.contains(peer); }
    void forget_revoked() { revoked_.clear(); }
    // Closes the link, and reports the loss to the owner.
    void drop(LinkId id, const std::string& reason);
    // Closes a link that its owner does not want any more, and does not tell the owner.
    void withdraw(LinkId id);
    // The same, if the other end breaks the protocol or cannot be understood. Counts it as refused.
    void refuse(LinkId id, const std::string& reason);
    // The link is closed, or could not be opened: removes it, and reports the loss to the owner.
    void lost(LinkId id, const std::string& reason, bool by_remote);
    // Sends a goodbye before closing, so that the other end does not report a death. The caller then removes the link.
    void close_on_purpose(LinkId id, const Link& link);
    // Only removes it. The caller closes the link and handles the consequences.
    void erase(LinkId id) { links_.erase(id); }
    void erase(Map::iterator link) { links_.erase(link); }
    void put_back(LinkId id, const Link& link) { links_[id] = link; }
    Map take_all() { return std::exchange(links_, {}); }

    // The first message on each link to another peer.
    proto::LinkHello hello(const Link& link) const;
    // Texts of the message are cut to the other end's limit. Nothing is sent on a link that is not in the table.
    template <class Message>
    void send(LinkId id, Message message) {
        const auto link = links_.find(id);
        if (link == links_.end()) return;
        wire::bound_texts(message, wire::text_limit(link->second.control_bytes));
        send_encoded(id, link->second, encode(message));
    }

    // Calls `beat` for each open link for which a heartbeat is due. Returns the links that timed out, with the reason.
    // `master_dial`: how long a connection to the master may take to open.
    std::vector<std::pair<LinkId, const char*>> examine(Duration master_dial,
                                                        const std::function<void(LinkId, Link&)>& beat);
    // Cancels the sends and redirects the landings of this operation in the middle of their frames. Landings in a
    // reserve go on.
    void release(OpId op);
    // The machine did not run for `time`. Clocks leave it out, because it is not the silence of other ends.
    void slept(Duration time);

    // Asserts the invariants above.
    void check() const;
    LinkId next_name() const { return next_link_; }
    std::uint64_t refused() const { return refused_; }
    void count_refused() { ++refused_; }

private:
    void send_encoded(LinkId id, const Link& link, std::string body);

    Turn& turn_;
    const Identity& who_;
    LinkOwner& owner_;
    Map links_;
    std::set<Uuid> revoked_;     // in this run; at most peers_max
    std::uint64_t refused_ = 0;  // callers, connections and frames
    LinkId next_link_ = 1;       // odd: chosen by the machine
};

}  // namespace pccl::core
