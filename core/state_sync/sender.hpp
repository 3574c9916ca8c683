// The sender's part of one plan: it answers requests for hashes and chunks of entries that this member holds.
//
// Each member serves the entries that it need not fetch itself, as soon as it has the list of the elected hashes. A
// receiver serves all entries once it has verified everything that it fetched. A RECEIVE_ONLY member sends nothing.
//
// The sender lives as long as the receiver of the same plan, and reads from that receiver what this member holds. It
// declines a request that it cannot serve, so that the other end does not wait for it.
// Invariant: a link has requests in its queue only while there is a plan to serve them from.
#pragma once

#include "core/links/link_table.hpp"
#include "core/state_sync/content.hpp"
#include "core/state_sync/receiver.hpp"

namespace pccl::core {

class SyncSender {
public:
    SyncSender(Turn& turn, LinkTable& links, const SyncContent& content, const SyncReceiver& receiver, bool sends)
        : turn_(turn), links_(links), content_(content), receiver_(receiver), sends_(sends) {}

    void serve(LinkId id, const SyncPart& request);
    // Sends the next requested chunk on this link, if there is a request.
    void send_next_chunk(LinkId id, Link& link);
    void stop();

private:
    bool can_serve(const SyncPart& request) const;
    void serve_hashes(LinkId id, const SyncPart& request);
    void serve_entry_list(LinkId id, const SyncPart& request);
    void queue_chunk(LinkId id, const SyncPart& chunk);

    Turn& turn_;
    LinkTable& links_;
    const SyncContent& content_;
    const SyncReceiver& receiver_;
    const bool sends_;
    bool stopped_ = false;
};

}  // namespace pccl::core
