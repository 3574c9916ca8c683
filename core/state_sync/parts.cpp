// What a receiver asks a holder for on one link, and what the holder has not answered yet.
//
// A holder that is given up because nothing came from it for too long, and is asked again, still has the earlier requests in
// its queue. What it owes is not asked for twice: over a slow path the answers that nobody waits for would take longer than
// the patience, and it would be given up for them.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

void write(const SyncPart& part, proto::SyncPart& to) {
    to.set_sync(part.sync);
    to.set_entry(part.entry);
    to.set_index(part.index);
    to.set_kind(static_cast<proto::SyncPart::Kind>(part.kind));
    to.set_most(part.most);
}

SyncPart part_of(const proto::SyncPart& from) {
    return {from.sync(), from.entry(), from.index(), static_cast<SyncPart::Kind>(from.kind()), from.most()};
}

bool owes(const std::vector<SyncPart>& owed, const SyncPart& part) {
    return std::find(owed.begin(), owed.end(), part) != owed.end();
}

}  // namespace

void PeerCore::on_part(LinkId id, const proto::LinkMessage& message) {
    const bool request = message.has_part_request();
    const proto::SyncPart& from = request ? message.part_request() : message.part_decline();
    if (!proto::SyncPart::Kind_IsValid(from.kind())) {
        return links_.refuse(id, "asked for a part of a shared state that there is not");
    }
    request ? serve(id, part_of(from)) : on_declined(id, part_of(from));
}

// The one that owes it already, or one whose queue holds more; each chunk begins with another one. 0: there is none.
LinkId PeerCore::link_to_ask(const std::vector<LinkId>& links, const SyncPart& part) const {
    for (const LinkId link : links) {
        if (owes(links_.at(link).owed, part)) return link;
    }
    for (std::size_t i = 0; i < links.size(); ++i) {
        const LinkId link = links[(part.kind == SyncPart::Kind::chunk ? part.index + i : i) % links.size()];
        if (links_.at(link).owed.size() < config_.limits.chunk_requests_max) return link;
    }
    return 0;
}

void PeerCore::ask(LinkId id, const SyncPart& part) {
    std::vector<SyncPart>& owed = links_.at(id).owed;
    if (owes(owed, part)) {
        PROBE(sync_part_owed);
        return;
    }
    owed.push_back(part);
    proto::LinkMessage message;
    write(part, *message.mutable_part_request());
    links_.send(id, message);
}

void PeerCore::answered(Link& link, const SyncPart& part) { std::erase(link.owed, part); }

// The receiver asks another source.
void PeerCore::decline(LinkId id, const SyncPart& request) {
    PROBE(sync_request_declined);
    proto::LinkMessage message;
    write(request, *message.mutable_part_decline());
    links_.send(id, message);
}

// Asked too early or too much, or of one that does not hold it (any more).
void PeerCore::on_declined(LinkId id, const SyncPart& what) {
    Link& link = links_.at(id);
    answered(link, what);
    if (fetching() && sync_->id == what.sync) give_up_source(link.remote, "it declined", false);
}

}  // namespace pccl::core
