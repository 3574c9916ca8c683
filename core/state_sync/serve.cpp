// The sender's part: a member that holds an entry of the elected state answers requests for its hashes and chunks. That is
// each member from the plan on for what it need not fetch itself, and a receiver for all of it once it has verified all.
// A member that said RECEIVE_ONLY sends nothing.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

void PeerCore::serve(LinkId id, const SyncPart& what) {
    if (keep_early(id, what)) return;
    switch (what.kind) {
    case SyncPart::Kind::chunk: return queue_chunk(id, what);
    case SyncPart::Kind::hashes: return serve_hashes(id, what);
    case SyncPart::Kind::entry_list: return serve_entry_list(id, what);
    }
}

bool PeerCore::keep_early(LinkId id, const SyncPart& what) {
    if (!sync_ || sync_->stage > Sync::Stage::voting ||
        sync_->early_requests.size() >= config_.limits.early_requests_max)
        return false;
    PROBE(sync_request_early);
    sync_->early_requests.push_back({id, what});
    return true;
}

bool PeerCore::can_serve(const SyncPart& what) const {
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->id != what.sync ||
        sync_->strategy == SyncStrategy::receive_only || what.entry >= sync_->entries.size() ||
        what.index >= chunk_count(what.entry))
        return false;
    return sync_->holds_all || (sync_->listed && !is_fetched(what.entry));
}

bool PeerCore::is_fetched(std::uint32_t entry) const {
    return entry < sync_->fetch_index.size() && sync_->fetch_index[entry] < sync_->fetches.size();
}

void PeerCore::serve_hashes(LinkId id, const SyncPart& request) {
    if (!can_serve(request)) return decline(id, request);
    proto::LinkMessage message;
    auto* hashes = message.mutable_hashes();
    hashes->set_sync(request.sync);
    hashes->set_entry(request.entry);
    hashes->set_first(request.index);
    const auto& all = is_fetched(request.entry) ? fetch_of(request.entry)->hashes : sync_->chunk_hashes[request.entry];
    add_page(links_.at(id), request, all, *hashes);
    links_.send(id, message);
}

// The hashes of all entries of the elected state, for a receiver that finds out which of them it lacks.
void PeerCore::serve_entry_list(LinkId id, const SyncPart& request) {
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->id != request.sync || !sync_->listed ||
        sync_->strategy == SyncStrategy::receive_only || request.index >= sync_->entries.size())
        return decline(id, request);
    proto::LinkMessage message;
    auto* hashes = message.mutable_hashes();
    hashes->set_sync(request.sync);
    hashes->set_of_entries(true);
    hashes->set_first(request.index);
    add_page(links_.at(id), request, sync_->elected.empty() ? sync_->hashes : sync_->elected, *hashes);
    links_.send(id, message);
}

void PeerCore::add_page(const Link& link, const SyncPart& request, const std::vector<Hash128>& all,
                        proto::HashPage& page) {
    const std::size_t first = request.index;
    const std::size_t fit = wire::items_per_page(link.control_bytes, wire::hash_bytes);
    const std::size_t most = std::clamp<std::size_t>(request.most, 1, fit);
    if (first != 0) PROBE(sync_second_list_page);
    for (std::size_t i = first; i < all.size() && i - first < most; ++i) {
        page.add_words(all[i].low);
        page.add_words(all[i].high);
    }
}

void PeerCore::queue_chunk(LinkId id, const SyncPart& chunk) {
    Link& link = links_.at(id);
    if (!can_serve(chunk) || link.serve.size() >= config_.limits.chunk_requests_max) return decline(id, chunk);
    link.serve.push_back(chunk);
    if (link.sending.op == 0) serve_chunk(id, link);
}

bool PeerCore::serve_chunk(LinkId id, Link& link) {
    if (link.serve.empty()) return false;
    ASSERT(sync_ && sync_->stage == Sync::Stage::transfer);
    const SyncPart chunk = link.serve.front();
    link.serve.pop_front();
    SendPayload send;
    send.link = id;
    send.header.op = chunk.sync;
    send.header.phase = 2;
    send.header.slice = chunk.index;
    send.header.entry = chunk.entry;
    send.header.length = chunk_length(chunk.entry, chunk.index);
    if (is_fetched(chunk.entry)) {
        PROBE(sync_served_by_receiver);
        send.source = staged_chunk(*fetch_of(chunk.entry), chunk.index);
    } else {
        send.source =
            BufferRef{sync_->entries[chunk.entry].buffer,
                      static_cast<std::uint64_t>(chunk.index) * config_.limits.chunk_bytes, send.header.length};
    }
    link.sending = Transfer{chunk.sync, 2, chunk.index, chunk.entry, Operation::none, false};
    turn_.add(send);
    return true;
}

}  // namespace pccl::core
