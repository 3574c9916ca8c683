// The receiver's lists of hashes: of all entries, which shows what it lacks, and of the chunks of an entry that it fetches.
//
// First the receiver finds out what differs: it asks one holder for the hashes of all entries, page by page, and checks
// that they give the digest of the elected state. So the plan has the same size for one entry and for a million.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

namespace pccl::core {

namespace {

constexpr std::uint64_t staging_alignment = 64;

}  // namespace

// ---- of all entries ------------------------------------------------------------------------------------------------

// From here on it is known what this peer lacks: memory for it, and requests.
void PeerCore::list_known() {
    Sync& sync = *sync_;
    sync.listed = true;
    std::uint64_t bytes = 0;
    // Entries that may differ come last: they have to wait for one holder, and nothing waits for them.
    for (const bool any_content : {false, true}) {
        if (any_content ? !sync.receives_unequal : !sync.receives) continue;
        for (std::uint32_t i = 0; i < sync.entries.size(); ++i) {
            if (sync.entries[i].allow_content_inequality != any_content) continue;
            if (!any_content && sync.hashes[i] == sync.elected[i]) continue;
            Fetch fetch;
            fetch.entry = i;
            if (!any_content) fetch.expected = sync.elected[i];
            fetch.any_content = any_content;
            fetch.asked.assign(chunk_count(i), false);
            fetch.offset = bytes;
            bytes += (entry_bytes(i) + staging_alignment - 1) / staging_alignment * staging_alignment;
            if (!fetch.asked.empty()) ++(any_content ? sync.open_unequal : sync.open_compared);
            sync.fetch_index[i] = static_cast<std::uint32_t>(sync.fetches.size());
            sync.fetches.push_back(std::move(fetch));
        }
    }
    if (bytes == 0) return;
    // Synchronizations that ended before their memory came, while it may still come: a disk that hangs gets no more requests.
    if (abandoned_.size() >= config_.limits.abandoned_stagings_max)
        return vote_sync_end(false, "memory or disk space that was asked for earlier has not come yet");
    sync.staging = new_buffer(bytes, true);
    sync.staging_bytes = bytes;
    ++sync.computes;
}

// The next page, of a source that can be reached. As long as one that has begun is not given up, the rest comes from it.
void PeerCore::ask_for_list() {
    Sync& sync = *sync_;
    if (sync.list_link != 0) return;
    if (const SyncSource* begun = source_of(sync.list_from); begun == nullptr || !begun->active) sync.elected.clear();
    for (std::size_t i = 0; i < sync.sources.size(); ++i) {
        const SyncSource& source = sync.sources[(first_source() + i) % sync.sources.size()];
        if (!source.active || (!sync.elected.empty() && source.peer != sync.list_from)) continue;
        const std::vector<LinkId> links = open_links_to(source.peer);
        if (links.empty()) continue;
        sync.list_from = source.peer;
        sync.list_link = links.front();
        proto::LinkMessage message;
        message.mutable_hash_request()->set_sync(sync.id);
        message.mutable_hash_request()->set_of_entries(true);
        message.mutable_hash_request()->set_first(static_cast<std::uint32_t>(sync.elected.size()));
        send_control(sync.list_link, message);
        return;
    }
}

void PeerCore::on_entry_list(LinkId id, const proto::HashPage& message) {
    if (!fetching() || sync_->id != message.sync() || sync_->listed || sync_->list_link != id) return;
    Sync& sync = *sync_;
    const Uuid remote = links_.at(id).remote;
    const auto words = static_cast<std::size_t>(message.words_size());
    // Asked for before the holder was given up, and late: the answer to what it was asked since follows.
    if (message.first() != sync.elected.size()) return;
    if (words == 0 || words % 2 != 0 || sync.elected.size() + words / 2 > sync.entries.size()) {
        give_up_source(remote, "it sent a list of entries that does not fit", true);
        return;
    }
    for (std::size_t i = 0; i < words; i += 2)
        sync.elected.push_back(Hash128{message.words(static_cast<int>(i)), message.words(static_cast<int>(i) + 1)});
    sync.list_link = 0;
    if (sync.elected.size() > sync.list_most) {
        sync.list_most = sync.elected.size();
        source_moved(remote, 0);
    }
    if (sync.elected.size() == sync.entries.size()) {
        if (!has_elected_content()) {
            PROBE(sync_list_wrong);
            sync.elected.clear();
            give_up_source(remote, "the hashes that it sent are not those of the elected state", true);
            return;
        }
        list_known();
        sync_check_end();
    }
    if (fetching()) pump_fetch();
}

// ---- of the chunks of an entry -------------------------------------------------------------------------------------

void PeerCore::set_hash_link(Fetch& fetch, LinkId link) {
    if (fetch.hash_link != 0) std::erase(sync_->hash_lists, fetch.entry);
    fetch.hash_link = link;
    if (link != 0) sync_->hash_lists.push_back(fetch.entry);
}

void PeerCore::forget_hashes(Fetch& fetch) {
    set_hash_link(fetch, 0);
    if (!fetch.hashes_known()) fetch.hashes.clear();
}

void PeerCore::on_hashes(LinkId id, const proto::HashPage& message) {
    if (!fetching() || sync_->id != message.sync()) return;
    Fetch* fetch = fetch_of(message.entry());
    if (fetch == nullptr || fetch->hash_link != id) return;
    const Uuid remote = links_.at(id).remote;
    const auto words = static_cast<std::size_t>(message.words_size());
    if (message.first() != fetch->hashes.size()) return;  // late, as above
    if (words == 0 || words % 2 != 0 || fetch->hashes.size() + words / 2 > fetch->asked.size()) {
        give_up_source(remote, "it sent a list of hashes that does not fit", true);
        return;
    }
    for (std::size_t i = 0; i < words; i += 2) {
        fetch->hashes.push_back(Hash128{message.words(static_cast<int>(i)), message.words(static_cast<int>(i) + 1)});
    }
    set_hash_link(*fetch, 0);
    if (fetch->hashes.size() > fetch->hashes_most) {
        fetch->hashes_most = fetch->hashes.size();
        source_moved(remote, 0);
    }
    if (fetch->hashes.size() == fetch->asked.size() && !fetch->any_content &&
        hash_of_hashes(fetch->hashes) != fetch->expected) {
        fetch->hashes.clear();
        give_up_source(remote, "it sent hashes that are not those of the elected state", true);
        return;
    }
    pump_fetch();
}

}  // namespace pccl::core
