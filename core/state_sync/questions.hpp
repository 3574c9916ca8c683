// The requests of a receiver to a holder on one link, and those that the holder has not answered yet (`Link::owed`).
//
// A receiver may give up a silent holder and use it again later. The holder then still has the earlier requests in its
// queue, so the receiver does not request again what the holder owes. Otherwise, on a slow path, the answers to
// outdated requests would take longer than the receiver's patience, and it would give up the holder again.
#pragma once

#include "core/links/link_table.hpp"
#include "core/wire/sync_part.hpp"

#include <vector>

namespace pccl::core {

SyncPart part_of(const proto::SyncPart& from);

// Returns a link that owes the part already, or else one that owes fewer than `owed_most` parts. For each chunk the
// search starts at another link. 0: there is none.
LinkId link_to_ask(const LinkTable& table, const std::vector<LinkId>& links, const SyncPart& part,
                   std::size_t owed_most);
// Requests the part, unless the link owes it already.
void ask(LinkTable& table, LinkId id, const SyncPart& part);
void answered(Link& link, const SyncPart& part);
// Refuses a request, so that the receiver asks another source.
void decline(LinkTable& table, LinkId id, const SyncPart& request);

}  // namespace pccl::core
