// The sender's part of one plan: a member that holds an entry of the elected state answers requests for its hashes and chunks.
// That is each member from the plan on for what it need not fetch itself, and a receiver for all of it once it has verified
// all. A member that said RECEIVE_ONLY sends nothing.
//
// It lives as long as the receiver of the same plan, whose knowledge it serves. What it cannot answer it declines, so that
// nobody waits for it. Invariant: a link has requests in its queue only while there is a plan to serve them from.
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
    // The chunk that comes next on this link. False: it was asked for none.
    bool send_next_chunk(LinkId id, Link& link);
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
