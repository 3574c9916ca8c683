#include "core/state_sync/questions.hpp"

#include "core/base/probe.hpp"

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

bool owes(const std::vector<SyncPart>& owed, const SyncPart& part) {
    return std::find(owed.begin(), owed.end(), part) != owed.end();
}

}  // namespace

SyncPart part_of(const proto::SyncPart& from) {
    return {from.sync(), from.entry(), from.index(), static_cast<SyncPart::Kind>(from.kind()), from.most()};
}

LinkId link_to_ask(const LinkTable& table, const std::vector<LinkId>& links, const SyncPart& part,
                   std::size_t owed_most) {
    for (const LinkId link : links) {
        if (owes(table.at(link).owed, part)) return link;
    }
    for (std::size_t i = 0; i < links.size(); ++i) {
        const LinkId link = links[(part.kind == SyncPart::Kind::chunk ? part.index + i : i) % links.size()];
        if (table.at(link).owed.size() < owed_most) return link;
    }
    return 0;
}

void ask(LinkTable& table, LinkId id, const SyncPart& part) {
    std::vector<SyncPart>& owed = table.at(id).owed;
    if (owes(owed, part)) {
        PROBE(sync_part_owed);
        return;
    }
    owed.push_back(part);
    proto::LinkMessage message;
    write(part, *message.mutable_part_request());
    table.send(id, message);
}

void answered(Link& link, const SyncPart& part) { std::erase(link.owed, part); }

void decline(LinkTable& table, LinkId id, const SyncPart& request) {
    PROBE(sync_request_declined);
    proto::LinkMessage message;
    write(request, *message.mutable_part_decline());
    table.send(id, message);
}

}  // namespace pccl::core
