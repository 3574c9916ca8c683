// The connections to holders of a shared state, as the part that dials neighbours offers them to a receiver.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/link_pass.hpp"
#include "core/events.hpp"

#include <vector>

namespace pccl::core {

class HolderLinks {
public:
    // Where the master says that the holder is. What its plan says of a neighbour is at least as new and comes first.
    virtual void aim_at_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass) = 0;
    // Connections are kept from now on, with a share of the stripes where none are there yet.
    virtual void want_holder(const Uuid& peer, const Endpoint& endpoint, const LinkPass& pass,
                             std::uint32_t sharers) = 0;
    virtual void unwant_holder(const Uuid& peer) = 0;
    virtual void unwant_all_holders() = 0;
    // Dials what is wanted and closes what is not.
    virtual void maintain_edges() = 0;
    virtual std::vector<LinkId> open_links_to(const Uuid& peer) const = 0;
    // At least 1.
    virtual std::size_t stripes_to(const Uuid& peer) const = 0;

protected:
    ~HolderLinks() = default;
};

}  // namespace pccl::core
