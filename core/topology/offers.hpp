// Connections that this peer opens for the use of another peer, which may be unable to reach it.
//
// An edge leads from a source to a target, and the source dials. If the target is behind an address translator or a
// firewall, the plan of the target names the source among its offers. The target then dials the source as well, and
// offers it the connection (LinkHello.offer). The source answers with its own hello, as if it had dialled: from then on
// the connection is like any other one of this edge.
//
// If both ends are behind translators, each has to dial before the other one gets through. The source dials stripe k
// from a port that the target knows, and the target dials that port from the one on which it listens. So the translators
// let pass what comes back. Usually the source then reaches the listener of the target.
//
// Invariants: while the caller has a stripe, nothing is dialled for it. A dial of an address is repeated at most as often
// as its back-off allows. Both proofs of LinkPass hold for an offer too: the offer shows the pass of a dialler, and the
// answer that of a dialler in the other direction.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/base/way.hpp"
#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/peer_machine.hpp"
#include "core/turn.hpp"
#include "core/wire/control.pb.h"

#include <map>
#include <vector>

namespace pccl::core {

class Offers {
public:
    class Owner {
    public:
        // A connection of the caller carries this stripe.
        virtual bool caller_has(const Uuid& caller, std::uint32_t stripe) const = 0;

    protected:
        ~Owner() = default;
    };

    Offers(Turn& turn, const PeerConfig& config, LinkTable& links, MasterLine& master, const Owner& owner)
        : turn_(turn), config_(config), links_(links), master_(master), owner_(owner) {}

    // The offers of a plan, in place of those before.
    void planned(const google::protobuf::RepeatedPtrField<proto::DialTarget>& offers);
    // The caller uses so many stripes.
    void told(const Uuid& caller, std::uint32_t stripes);
    // Dials what is missing, and ends dials that are not needed any more.
    void maintain();
    Instant next_dial() const { return next_dial_; }
    void opened(LinkId id);
    // The link was an offer, and could not be used.
    void lost(LinkId id, const Link& link);
    void forget_run();

    bool dials_host(const Endpoint& remote) const;
    std::size_t size() const { return offers_.size(); }
    void check() const;

private:
    struct Attempt {
        LinkId link = 0;
        Way way;  // to the listener; empty if it dials another port
        Instant next_dial = 0;
        Duration backoff = 0;
    };
    struct Offer {
        Addresses target;
        LinkPass pass;
        std::uint16_t source_port = 0;  // the caller dials stripe k from this port + k; 0: not known
        bool single = false;
        std::uint32_t stripes = 1;
        std::vector<Attempt> attempts;  // stripe k: 2k to the listener of the caller, 2k + 1 to the port it dials from
    };

    void maintain(const Uuid& caller, Offer& offer);
    void give_up(Attempt& attempt);

    Turn& turn_;
    const PeerConfig& config_;
    LinkTable& links_;
    MasterLine& master_;
    const Owner& owner_;
    std::map<Uuid, Offer> offers_;
    Instant next_dial_ = never;
};

}  // namespace pccl::core
