// What a receiver asks a holder for on one link, and what the holder has not answered yet.
//
// A holder that is given up because nothing came from it for too long, and is asked again, still has the earlier requests in
// its queue. What it owes is not asked for twice: over a slow path the answers that nobody waits for would take longer than
// the patience, and it would be given up for them.
#pragma once

#include "core/links/link_table.hpp"
#include "core/wire/sync_part.hpp"

#include <vector>

namespace pccl::core {

SyncPart part_of(const proto::SyncPart& from);

// The one that owes the part already, or one whose queue holds more; each chunk begins with another one. 0: there is none.
LinkId link_to_ask(const LinkTable& table, const std::vector<LinkId>& links, const SyncPart& part,
                   std::size_t owed_most);
// Nothing is sent for a part that is owed already.
void ask(LinkTable& table, LinkId id, const SyncPart& part);
void answered(Link& link, const SyncPart& part);
// The receiver asks another source.
void decline(LinkTable& table, LinkId id, const SyncPart& request);

}  // namespace pccl::core
