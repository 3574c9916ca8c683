// A peer's connections to neighbours: the successors of rings, and the holders of a shared state that it fetches.
//
// It dials what the master's plan names or a synchronization wants, several stripes to each, tells the master what is up, and
// closes what nobody wants any more. What the connections carry, and in which order, is the matter of others.
//
// Invariants: the master is told each change of an edge once, and after its welcome of each edge again. One connection shows
// whether a target is there; the other stripes follow it. A stripe is dialled again at most as often as its back-off allows, and
// only a connection that was of use shortens that.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/identity.hpp"
#include "core/links/holder_links.hpp"
#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/peer_machine.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

class Packed;

class Stripes final : public HolderLinks {
public:
    class Owner {
    public:
        // Something that runs needs the edge, whatever the plan says.
        virtual bool edge_needed(const Uuid& target) const = 0;
        virtual void edge_opened(const Uuid& target) = 0;  // by one more stripe
        virtual void edge_closed(const Uuid& target) = 0;  // for good: nobody wants it

    protected:
        ~Owner() = default;
    };
    struct Stripe {
        LinkId link = 0;
        Instant next_dial = 0;
        Duration backoff = 0;
    };
    struct Edge {
        Endpoint target;
        LinkPass pass;
        bool answered = false;  // the last dial was refused by the peer itself: it is alive
        bool planned = false;   // wanted by the master's dial plan
        bool single = false;    // one of its ends waits to be admitted: one connection is enough to show that it works
        bool wanted_by_sync = false;
        enum class Report : std::uint8_t { none, up, down, answered } report = Report::none;
        std::vector<Stripe> stripes;
        Instant opened = 0;         // when it last came up
        Instant opened_before = 0;  // and the time before: later than an instant if it broke since then
    };

    Stripes(Turn& turn, const PeerConfig& config, const Identity& who, LinkTable& links, MasterLine& master,
            Owner& owner)
        : turn_(turn), config_(config), who_(who), links_(links), master_(master), owner_(owner) {}

    // ---- what the master wants
    // The targets of a plan. `all`: the master may know none of our connections. Returns those that were named before, and need
    // not be declared again.
    std::set<Uuid> planned(const google::protobuf::RepeatedPtrField<proto::DialTarget>& targets, bool all);
    void declare(const std::set<Uuid>& but = {});
    // Dials what is wanted and closes what is not.
    void maintain_edges() override;
    Instant next_dial() const { return next_dial_; }
    void forget_run();

    // ---- connections
    void opened(LinkId id, const Link& link);
    // What the other end says first.
    void answered(LinkId id, Link& link, const proto::LinkMessage& message);
    // True: other stripes to the same target work.
    bool lost(LinkId id, const Link& link, const std::string& reason);
    // It is opened anew: what fills it is of no use. No word of anybody's death.
    void renew(LinkId id, const char* why);

    // ---- holders of a shared state
    void aim_at_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass) override;
    void want_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass, std::uint32_t sharers) override;
    void unwant_holder(const Uuid& peer) override;
    void unwant_all_holders() override;
    std::vector<LinkId> open_links_to(const Uuid& peer) const override;
    std::size_t stripes_to(const Uuid& peer) const override;

    // ---- knowledge
    const Edge* find(const Uuid& target) const {
        const auto edge = edges_.find(target);
        return edge == edges_.end() ? nullptr : &edge->second;
    }
    const std::map<Uuid, Edge>& all() const { return edges_; }
    bool dials_host(const Endpoint& remote) const;
    void describe(Packed& state) const;
    void count(PeerStatistics& now) const;
    std::string explain() const;

private:
    std::uint32_t stripe_count() const;
    bool in_run() const;
    bool wanted(const Uuid& target, const Edge& edge) const;
    void dial(const Uuid& target, Edge& edge, std::size_t index);
    void close(const Uuid& target);
    std::size_t open_stripes(const Edge& edge) const;
    void report(const Uuid& target, Edge& edge, Edge::Report report, const std::string& reason);
    void report_unwanted(const Uuid& target);

    Turn& turn_;
    const PeerConfig& config_;
    const Identity& who_;
    LinkTable& links_;
    MasterLine& master_;
    Owner& owner_;
    std::map<Uuid, Edge> edges_;
    Instant next_dial_ = never;
};

}  // namespace pccl::core
