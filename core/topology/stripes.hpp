// A peer's connections to its neighbours: to the successors of rings, and to the holders of a shared state that it
// fetches.
//
// It dials the targets that the master's plan names or a synchronization wants, with several stripes to each. It
// reports to the master which edges are up, and closes those that nobody wants any more. Other parts decide what the
// connections carry, and in which order.
//
// Invariants: each change of an edge is reported to the master once, and each edge once more after the master's
// welcome. One connection shows whether a target is there; the other stripes follow it. A stripe is dialled again at
// most as often as its back-off allows. Only a connection that was useful, or stayed open for a peer time-out, shortens
// the back-off.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/base/way.hpp"
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
        // A running operation needs the edge, whatever the plan names.
        virtual bool edge_needed(const Uuid& target) const = 0;
        // One more stripe is open. The answer to our hello came after `round_trip`.
        virtual void edge_opened(const Uuid& target, Duration round_trip) = 0;
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
        Way way;
        LinkPass pass;
        bool answered = false;  // the target itself refused the last dial: it is alive
        bool planned = false;   // named by the master's dial plan
        bool single = false;    // one end is a newcomer: one connection is enough to show that the edge works
        std::uint16_t source_port = 0;  // stripe k is dialled from this port + k at its usual address; 0: from any
        bool wanted_by_sync = false;
        enum class Report : std::uint8_t { none, up, down, answered } report = Report::none;
        std::vector<Stripe> stripes;
        Instant opened = 0;         // when it last came up
        Instant opened_before = 0;  // when it came up before that; if later than t, it broke after t
    };

    Stripes(Turn& turn, const PeerConfig& config, const Identity& who, LinkTable& links, MasterLine& master,
            Owner& owner)
        : turn_(turn), config_(config), who_(who), links_(links), master_(master), owner_(owner) {}

    // ---- what the master wants
    // Takes over the targets of a plan. `all`: the master may have no record of our connections. Returns the targets of
    // the plan before, which need not be declared again; none if `all`.
    std::set<Uuid> planned(const google::protobuf::RepeatedPtrField<proto::DialTarget>& targets, bool all);
    void declare(const std::set<Uuid>& but = {});
    // Dials what is wanted and closes what is not.
    void maintain_edges() override;
    Instant next_dial() const { return next_dial_; }
    void forget_run();

    // ---- connections
    void opened(LinkId id, const Link& link);
    // The first message of the other end.
    void answered(LinkId id, Link& link, const proto::LinkMessage& message);
    // The target has dialled, and offers the accepted connection for this stripe (see Offers). False: it is not needed.
    bool offered(LinkId id, const Uuid& target, std::uint32_t stripe);
    // Returns true if other stripes to the same target work.
    bool lost(LinkId id, const Link& link, const std::string& reason);
    // Closes the link and dials it again later, because useless data fills it. It is not reported as a loss.
    void renew(LinkId id, const char* why);

    // ---- holders of a shared state
    void aim_at_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass) override;
    void want_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass,
                     std::uint32_t sharers) override;
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
    void check() const;
    bool dials_host(const Endpoint& remote) const;
    void describe(Packed& state) const;
    void count(PeerStatistics& now) const;
    std::string explain() const;

private:
    std::uint32_t stripe_count() const;
    bool in_run() const;
    bool wanted(const Uuid& target, const Edge& edge) const;
    void dial(const Uuid& target, Edge& edge, std::size_t index);
    void withdraw_dials(Edge& edge);
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
