// Every connection of a peer: its purpose and stage, when it was last heard, and what it sends and receives at present.
//
// The table opens connections, gives them names, sends control messages within the other end's limit, and finds the
// connections that took too long to open or were silent for too long. What a connection carries is the matter of the part that
// it belongs to (`purpose`); what follows from its loss is too.
//
// Invariants: a link is in the table from the effect or event that names it first until the machine closes it or hears that it
// is closed, and at no other time. At most one payload leaves, and at most one arrives, on a link at a time. No control frame
// is longer than the other end takes (`control_bytes`).
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
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

// What a link is sending or receiving right now. phase 2: a chunk of shared state, 3: a frame of a test (entry: bytes).
struct Transfer {
    static constexpr std::uint32_t no_cell = ~0u;
    OpId op = 0;  // 0: nothing
    std::uint16_t phase = 0;
    std::uint32_t slice = 0;
    std::uint64_t entry = 0;
    std::uint32_t cell = no_cell;  // landing in the reserve for early slices
    bool dropped = false;          // cancelled (send) or going nowhere (receive)
};

struct Link {
    enum class Purpose : std::uint8_t { master, outgoing, incoming, test_out, test_in };
    enum class Stage : std::uint8_t { dialing, greeting, open };
    Purpose purpose = Purpose::incoming;
    Stage stage = Stage::greeting;
    Uuid remote;
    Endpoint from;       // of a link that was accepted
    bool known = false;  // it came from the address of a neighbour
    std::uint32_t stripe = 0;
    LinkPass pass;         // of a link that we dialled
    bool renewed = false;  // closed by this peer, to be opened anew
    bool goodbye = false;  // the other end announced that it closes it on purpose
    Instant opened = 0;
    Instant last_received = 0;
    Instant last_beat = 0;
    Instant last_progress = 0;
    Instant answered_at = 0;    // the last word about a slice that got further
    bool stalled = false;       // its slices went elsewhere, and no word about what was sent on it came since
    Instant stalled_at = 0;     // when they did
    Instant silent_since = 0;   // valid if `stalled`: when the last word came before that
    bool useful = false;        // something that was sent on it was answered
    std::uint32_t arrived = 0;  // bytes of the payload that is landing
    Instant told_moving = 0;
    Instant frame_began = 0;                            // to arrive, the one that does
    std::uint32_t control_bytes = control_bytes_least;  // the largest control frame that the other end takes
    Transfer sending;
    Transfer receiving;
    std::deque<SyncPart> serve;  // chunks the other end asked for
    std::vector<SyncPart> owed;  // asked of the other end and not answered yet, whether still wanted or not

    bool is_open() const { return stage == Stage::open; }
};

class LinkOwner {
public:
    // It is not in the table any more. `by_remote`: the other end or the network closed it after it was open, not this machine.
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

    // Opens a connection.
    LinkId dial(Link::Purpose purpose, const Uuid& remote, std::uint32_t stripe, const Endpoint& target,
                const LinkPass& pass);
    // A connection that was accepted. `known`: from a host on which a neighbour is. Closes it at once, or an older one, where
    // too many have sent no hello.
    void accept(LinkId id, const Endpoint& remote, bool known);
    // Closes it; its owner is told of the loss.
    void drop(LinkId id, const std::string& reason);
    // The same for an end that does what it must not do, or cannot be understood.
    void refuse(LinkId id, const std::string& reason);
    // The other end or the network closed it, or it could not be opened.
    void lost(LinkId id, const std::string& reason, bool by_remote);
    // So that the other end does not take it for a death. The caller takes it out of the table.
    void close_on_purpose(LinkId id, const Link& link);
    // The caller closes it and deals with the consequences.
    void erase(LinkId id) { links_.erase(id); }
    void erase(Map::iterator link) { links_.erase(link); }
    void put_back(LinkId id, const Link& link) { links_[id] = link; }
    Map take_all() { return std::exchange(links_, {}); }

    // What each link to another peer begins with.
    proto::LinkHello hello(const Link& link) const;
    // Texts of the message are cut to what the other end takes. Nothing is sent on a link that is not in the table.
    template <class Message>
    void send(LinkId id, Message message) {
        const auto link = links_.find(id);
        if (link == links_.end()) return;
        wire::bound_texts(message, wire::text_limit(link->second.control_bytes));
        send_encoded(id, link->second, encode(message));
    }

    // Calls `beat` for each open link for which a heartbeat is due. Returns those that took too long, and for what.
    // `master_dial`: how long a connection to the master may take to open.
    std::vector<std::pair<LinkId, const char*>> examine(Duration master_dial,
                                                        const std::function<void(LinkId, Link&)>& beat);
    // What is sent and received for this operation is given up in its middle; what lands in a reserve is not.
    void release(OpId op);
    // The machine did not run for so long: that is nobody's silence.
    void slept(Duration time);

    LinkId next_name() const { return next_link_; }
    std::uint64_t refused() const { return refused_; }
    void count_refused() { ++refused_; }

private:
    void send_encoded(LinkId id, const Link& link, std::string body);

    Turn& turn_;
    const Identity& who_;
    LinkOwner& owner_;
    Map links_;
    std::uint64_t refused_ = 0;  // callers, connections and frames
    LinkId next_link_ = 1;       // odd: chosen by the machine
};

}  // namespace pccl::core
