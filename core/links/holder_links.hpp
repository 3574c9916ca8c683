// Interface through which a receiver of shared state gets connections to holders. The part that dials neighbours
// implements it.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/way.hpp"
#include "core/events.hpp"

#include <vector>

namespace pccl::core {

class HolderLinks {
public:
    // Sets addresses and pass of a holder as the master sent them. Ignored for a peer in the dial plan: the plan is at
    // least as new.
    virtual void aim_at_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass) = 0;
    // Keeps connections to the holder from now on. If it has no stripes yet, it gets one of `sharers` equal shares of
    // the usual number, but at least one.
    virtual void want_holder(const Uuid& peer, const Addresses& addresses, const LinkPass& pass,
                             std::uint32_t sharers) = 0;
    virtual void unwant_holder(const Uuid& peer) = 0;
    virtual void unwant_all_holders() = 0;
    // Dials what is wanted and closes what is not.
    virtual void maintain_edges() = 0;
    virtual std::vector<LinkId> open_links_to(const Uuid& peer) const = 0;
    // How many stripes lead to the peer; at least 1.
    virtual std::size_t stripes_to(const Uuid& peer) const = 0;

protected:
    ~HolderLinks() = default;
};

}  // namespace pccl::core
