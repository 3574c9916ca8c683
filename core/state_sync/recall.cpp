// What a receiver does when no holder is left, until the master names holders again or withdraws the plan.
#include "core/base/probe.hpp"
#include "core/state_sync/receiver.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

void SyncReceiver::holders_named(const proto::SyncHolders& message) {
    if (!fetching()) return;
    if (message.recall() != 0) return recalled(message.recall());
    if (add_sources(message.holders()) != 0) PROBE(sync_holder_learned);
    if (recall_ != 0 && message.holders().empty()) return;
    if (std::exchange(recall_, 0) != 0) {
        PROBE(sync_goes_on_after_recall);
        progress_ = turn_.now;
        sources_.renew_clocks();
        // What it had before may have come from a holder that is gone.
        if (!whole_holder_.is_nil() && holders_.open_links_to(whole_holder_).empty())
            give_up_source(whole_holder_, "it is gone", false);
    }
    activate_sources();
}

// Chunks that have landed are checked. What has not landed is requested again when holders are named.
void SyncReceiver::recalled(std::uint64_t number) {
    PROBE(sync_recalled);
    recall_ = number;
    progress_ = turn_.now;
    discard_arriving();
    std::erase_if(requests_, [&](const SyncRequest& request) {
        if (request.step == SyncRequest::Step::checking) return false;
        ask_again(request.entry, request.chunk);
        return true;
    });
    for (const std::uint32_t entry : std::vector<std::uint32_t>(hash_lists_)) set_hash_link(*fetch_of(entry), 0);
    list_link_ = 0;
    answer_recall();
}

void SyncReceiver::answer_recall() {
    if (recall_ == 0 || !fetching() || !requests_.empty()) return;
    PROBE(sync_recall_answered);
    ask_for_holders(recall_);
}

void SyncReceiver::ask_for_holders(std::uint64_t recalled) {
    proto::PeerMessage message;
    message.set_holders_request(id_);
    message.set_recalled(recalled);
    master_.tell(message);
}

}  // namespace pccl::core
