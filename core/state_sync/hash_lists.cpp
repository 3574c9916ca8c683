// The lists of hashes that a receiver fetches. The list of all entries shows which entries it lacks. The list of one
// entry's chunks is needed to check each chunk.
//
// A list comes in pages from a holder, so the plan has the same size for one entry and for a million.
#include "core/base/probe.hpp"
#include "core/state_sync/questions.hpp"
#include "core/state_sync/receiver.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

constexpr std::uint64_t staging_alignment = 64;

}  // namespace

void SyncReceiver::page_arrived(LinkId id, const proto::HashPage& page) {
    if (!fetching() || id_ != page.sync()) return;
    page.of_entries() ? entry_list_arrived(id, page) : hashes_arrived(id, page);
}

void SyncReceiver::ask_for_page(SyncSource& source, LinkId link, SyncPart page) {
    const bool waits_for_one = std::any_of(hash_lists_.begin(), hash_lists_.end(), [&](std::uint32_t entry) {
        const auto asked = links_.find(fetch_of(entry)->hash_link);
        return asked != links_.end() && asked->second.remote == source.peer;
    });
    if (!waits_for_one) source.page_since = turn_.now;
    page.most = source.page;
    ask(links_, link, page);
}

// `hashes`: how many arrived. `progress`: the list is longer than ever before, or it was begun at most `beginnings_max`
// times since it last grew.
void SyncReceiver::page_came(SyncSource& source, std::size_t hashes, bool progress) {
    const Duration took = turn_.now - source.page_since;
    source.page_since = turn_.now;
    if (took > turn_.timeouts.unanswered())
        ask_for_shorter_pages(source);
    else if (took < turn_.timeouts.peer && hashes >= source.page)
        source.page *= 2;
    if (progress) source_moved(source.peer, 0);
}

void SyncReceiver::ask_for_shorter_pages(SyncSource& source) {
    PROBE(sync_shorter_pages);
    source.page = std::max({source.page / 4, turn_.limits.hashes_first / 16, 1u});
}

// ---- of all entries ------------------------------------------------------------------------------------------------

// The elected hash of each entry is known now. Finds out which entries this peer lacks, and requests memory for them.
void SyncReceiver::list_known() {
    listed_ = true;
    std::uint64_t bytes = 0;
    // Entries that may differ come last: they have to wait for one holder, and no other entry depends on them.
    for (const bool any_content : {false, true}) {
        if (any_content ? !receives_unequal_ : !receives_) continue;
        for (std::uint32_t i = 0; i < content_.size(); ++i) {
            if (content_.entries()[i].allow_content_inequality != any_content) continue;
            if (!any_content && content_.hashes()[i] == elected_[i]) continue;
            SyncFetch fetch;
            fetch.entry = i;
            if (!any_content) fetch.expected = elected_[i];
            fetch.any_content = any_content;
            fetch.asked.assign(content_.chunk_count(i), false);
            fetch.offset = bytes;
            bytes += (content_.bytes(i) + staging_alignment - 1) / staging_alignment * staging_alignment;
            if (!fetch.asked.empty()) ++(any_content ? open_unequal_ : open_compared_);
            fetch_index_[i] = static_cast<std::uint32_t>(fetches_.size());
            fetches_.push_back(std::move(fetch));
        }
    }
    if (bytes == 0) return;
    if (!staging_.request(bytes)) return end(false, make_cause<CauseKind::no_memory_for_hashes>());
    ++counts_.computes;
}

// Requests the next page from a source that can be reached. While the source of the earlier pages is active, the rest
// comes from it too. That also holds if it was given up and became active again before another source was asked.
void SyncReceiver::ask_for_list() {
    if (list_link_ != 0) return;
    const SyncSource* begun = sources_.find(list_from_);
    const bool goes_on = begun != nullptr && begun->active && !elected_.empty();
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        SyncSource& source = sources_[(first_source() + i) % sources_.size()];
        if (!source.active || (goes_on && source.peer != list_from_)) continue;
        if (holders_.open_links_to(source.peer).empty()) continue;
        if (source.peer != list_from_) elected_.clear();
        const SyncPart page{id_, 0, static_cast<std::uint32_t>(elected_.size()), SyncPart::Kind::entry_list};
        const LinkId link =
            link_to_ask(links_, holders_.open_links_to(source.peer), page, turn_.limits.chunk_requests_max);
        if (link == 0) continue;
        list_from_ = source.peer;
        list_link_ = link;
        if (page.index == 0) ++source.list_begun;
        ask_for_page(source, link, page);
        return;
    }
}

void SyncReceiver::entry_list_arrived(LinkId id, const proto::HashPage& message) {
    if (listed_ || list_link_ != id) return;
    const Uuid remote = links_.at(id).remote;
    const auto words = static_cast<std::size_t>(message.words_size());
    // A late answer to a request from before the holder was given up. The answer to the newer request follows.
    if (message.first() != elected_.size()) return;
    if (words == 0 || words % 2 != 0 || elected_.size() + words / 2 > content_.size()) {
        give_up_source(remote, "it sent a list of entries that does not fit", true);
        return;
    }
    for (std::size_t i = 0; i < words; i += 2)
        elected_.push_back(Hash128{message.words(static_cast<int>(i)), message.words(static_cast<int>(i) + 1)});
    list_link_ = 0;
    if (SyncSource* source = sources_.find(remote); source != nullptr) {
        const bool more = elected_.size() > source->list_most;
        source->list_most = std::max(source->list_most, elected_.size());
        if (more) source->list_begun = 1;
        page_came(*source, words / 2, more || source->list_begun <= beginnings_max);
    }
    if (elected_.size() == content_.size()) {
        if (content_.digest(elected_) != elected_content_) {
            PROBE(sync_list_wrong);
            elected_.clear();
            give_up_source(remote, "the hashes that it sent are not those of the elected state", true);
            return;
        }
        list_known();
        end_if_complete();
    }
    if (fetching()) pump();
}

// ---- of the chunks of an entry -------------------------------------------------------------------------------------

void SyncReceiver::set_hash_link(SyncFetch& fetch, LinkId link) {
    if (fetch.hash_link != 0) std::erase(hash_lists_, fetch.entry);
    fetch.hash_link = link;
    if (link != 0) hash_lists_.push_back(fetch.entry);
}

void SyncReceiver::hashes_arrived(LinkId id, const proto::HashPage& message) {
    SyncFetch* fetch = fetch_of(message.entry());
    if (fetch == nullptr || fetch->hash_link != id) return;
    const Uuid remote = links_.at(id).remote;
    const auto words = static_cast<std::size_t>(message.words_size());
    if (message.first() != fetch->hashes.size()) return;  // a late answer, as above
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
    if (SyncSource* source = sources_.find(remote); source != nullptr)
        page_came(*source, words / 2, more || fetch->list_begun <= beginnings_max);
    if (fetch->hashes.size() == fetch->asked.size() && !fetch->any_content &&
        hash_of_hashes(fetch->hashes) != fetch->expected) {
        fetch->hashes.clear();
        give_up_source(remote, "it sent hashes that are not those of the elected state", true);
        return;
    }
    pump();
}

}  // namespace pccl::core
