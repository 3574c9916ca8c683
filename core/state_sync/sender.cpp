#include "core/state_sync/sender.hpp"

#include "core/base/probe.hpp"
#include "core/state_sync/questions.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

void add_page(const Link& link, const SyncPart& request, const std::vector<Hash128>& all, proto::HashPage& page) {
    const std::size_t first = request.index;
    const std::size_t fit = wire::items_per_page(link.control_bytes, wire::hash_bytes);
    const std::size_t most = std::clamp<std::size_t>(request.most, 1, fit);
    if (first != 0) PROBE(sync_second_list_page);
    for (std::size_t i = first; i < all.size() && i - first < most; ++i) {
        page.add_words(all[i].low);
        page.add_words(all[i].high);
    }
}

}  // namespace

void SyncSender::serve(LinkId id, const SyncPart& request) {
    switch (request.kind) {
    case SyncPart::Kind::chunk: return queue_chunk(id, request);
    case SyncPart::Kind::hashes: return serve_hashes(id, request);
    case SyncPart::Kind::entry_list: return serve_entry_list(id, request);
    }
}

bool SyncSender::can_serve(const SyncPart& request) const {
    if (stopped_ || !sends_ || receiver_.id() != request.sync || request.entry >= content_.size() ||
        request.index >= content_.chunk_count(request.entry))
        return false;
    return receiver_.holds_all() || (receiver_.listed() && receiver_.fetch_of(request.entry) == nullptr);
}

void SyncSender::serve_hashes(LinkId id, const SyncPart& request) {
    if (!can_serve(request)) return decline(links_, id, request);
    proto::LinkMessage message;
    auto* hashes = message.mutable_hashes();
    hashes->set_sync(request.sync);
    hashes->set_entry(request.entry);
    hashes->set_first(request.index);
    const SyncFetch* fetch = receiver_.fetch_of(request.entry);
    add_page(links_.at(id), request, fetch != nullptr ? fetch->hashes : content_.chunk_hashes(request.entry), *hashes);
    links_.send(id, message);
}

// Sends hashes of the entries of the elected state. The receiver compares them with its own to find out what it lacks.
void SyncSender::serve_entry_list(LinkId id, const SyncPart& request) {
    if (stopped_ || !sends_ || receiver_.id() != request.sync || !receiver_.listed() ||
        request.index >= content_.size())
        return decline(links_, id, request);
    proto::LinkMessage message;
    auto* hashes = message.mutable_hashes();
    hashes->set_sync(request.sync);
    hashes->set_of_entries(true);
    hashes->set_first(request.index);
    add_page(links_.at(id), request, receiver_.elected(), *hashes);
    links_.send(id, message);
}

void SyncSender::queue_chunk(LinkId id, const SyncPart& chunk) {
    Link& link = links_.at(id);
    if (!can_serve(chunk) || link.serve.size() >= turn_.limits.chunk_requests_max) return decline(links_, id, chunk);
    link.serve.push_back(chunk);
    if (link.sending.op == 0) send_next_chunk(id, link);
}

void SyncSender::send_next_chunk(LinkId id, Link& link) {
    if (link.serve.empty()) return;
    ASSERT(!stopped_);
    const SyncPart chunk = link.serve.front();
    link.serve.pop_front();
    SendPayload send;
    send.link = id;
    send.header.op = chunk.sync;
    send.header.phase = 2;
    send.header.slice = chunk.index;
    send.header.entry = chunk.entry;
    send.header.length = content_.chunk_length(chunk.entry, chunk.index);
    if (const SyncFetch* fetch = receiver_.fetch_of(chunk.entry); fetch != nullptr) {
        PROBE(sync_served_by_receiver);
        send.source = receiver_.staged_chunk(*fetch, chunk.index);
    } else {
        send.source = content_.chunk(chunk.entry, chunk.index);
    }
    link.sending = Transfer{chunk.sync, 2, chunk.index, chunk.entry, Transfer::no_cell, false};
    turn_.add(send);
}

void SyncSender::stop() {
    stopped_ = true;
    for (auto& [id, link] : links_) link.serve.clear();
}

}  // namespace pccl::core
