// The receiver's lists of hashes: of all entries, which shows what it lacks, and of the chunks of an entry that it fetches.
//
// First the receiver finds out what differs: it asks one holder for the hashes of all entries, page by page, and checks
// that they give the digest of the elected state. So the plan has the same size for one entry and for a million.
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

constexpr std::uint64_t staging_alignment = 64;

}  // namespace

void PeerCore::ask_for_page(SyncSource& source, LinkId link, SyncPart page) {
    const bool waits_for_one =
        std::any_of(sync_->hash_lists.begin(), sync_->hash_lists.end(), [&](std::uint32_t entry) {
            const auto asked = links_.find(fetch_of(entry)->hash_link);
            return asked != links_.end() && asked->second.remote == source.peer;
        });
    if (!waits_for_one) source.page_since = turn_.now;
    page.most = source.page;
    ask(link, page);
}

// So many hashes. `progress`: they get this peer further, or a list that had to be begun anew.
void PeerCore::page_came(SyncSource& source, std::size_t hashes, bool progress) {
    const Duration took = turn_.now - source.page_since;
    source.page_since = turn_.now;
    if (took > 2 * config_.timeouts.peer)
        ask_for_shorter_pages(source);
    else if (took < config_.timeouts.peer && hashes >= source.page)
        source.page *= 2;
    if (progress) source_moved(source.peer, 0);
}

void PeerCore::ask_for_shorter_pages(SyncSource& source) {
    PROBE(sync_shorter_pages);
    source.page = std::max({source.page / 4, config_.limits.hashes_first / 16, 1u});
}

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
    sync.staging = memory_.request(bytes, StagingMemory{}, true);
    sync.staging_bytes = bytes;
    ++sync.computes;
}

// The next page, of a source that can be reached. As long as one that has begun is not given up, the rest comes from it; also
// when it is asked again before another one.
void PeerCore::ask_for_list() {
    Sync& sync = *sync_;
    if (sync.list_link != 0) return;
    const SyncSource* begun = source_of(sync.list_from);
    const bool goes_on = begun != nullptr && begun->active && !sync.elected.empty();
    for (std::size_t i = 0; i < sync.sources.size(); ++i) {
        SyncSource& source = sync.sources[(first_source() + i) % sync.sources.size()];
        if (!source.active || (goes_on && source.peer != sync.list_from)) continue;
        if (open_links_to(source.peer).empty()) continue;
        if (source.peer != sync.list_from) sync.elected.clear();
        const SyncPart page{sync.id, 0, static_cast<std::uint32_t>(sync.elected.size()), SyncPart::Kind::entry_list};
        const LinkId link = link_to_ask(open_links_to(source.peer), page);
        if (link == 0) continue;
        sync.list_from = source.peer;
        sync.list_link = link;
        if (page.index == 0) ++source.list_begun;
        ask_for_page(source, link, page);
        return;
    }
}

void PeerCore::on_entry_list(LinkId id, const proto::HashPage& message) {
    answered(links_.at(id), {message.sync(), 0, message.first(), SyncPart::Kind::entry_list});
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
    if (SyncSource* source = source_of(remote); source != nullptr) {
        const bool more = sync.elected.size() > source->list_most;
        source->list_most = std::max(source->list_most, sync.elected.size());
        if (more) source->list_begun = 1;
        page_came(*source, words / 2, more || source->list_begun <= beginnings_max);
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

void PeerCore::on_hashes(LinkId id, const proto::HashPage& message) {
    answered(links_.at(id), {message.sync(), message.entry(), message.first(), SyncPart::Kind::hashes});
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
    const bool more = fetch->hashes.size() > fetch->hashes_most;
    fetch->hashes_most = std::max(fetch->hashes_most, fetch->hashes.size());
    if (more) fetch->list_begun = 1;
    if (SyncSource* source = source_of(remote); source != nullptr)
        page_came(*source, words / 2, more || fetch->list_begun <= beginnings_max);
    if (fetch->hashes.size() == fetch->asked.size() && !fetch->any_content &&
        hash_of_hashes(fetch->hashes) != fetch->expected) {
        fetch->hashes.clear();
        give_up_source(remote, "it sent hashes that are not those of the elected state", true);
        return;
    }
    pump_fetch();
}

}  // namespace pccl::core
