// The lists of hashes that a receiver fetches. The list of all entries shows which entries it lacks. The list of one
// entry's chunks is needed to check each chunk.
//
// A list comes in pages from a holder, so the plan has the same size for one entry and for a million.
#include "core/base/probe.hpp"
#include "core/state_sync/questions.hpp"
#include "core/state_sync/receiver.hpp"

#include <algorithm>

namespace pccl::core {

void SyncReceiver::page_arrived(LinkId id, const proto::HashPage& page) {
    if (!fetching() || id_ != page.sync()) return;
    page.of_entries() ? entry_list_arrived(id, page) : hashes_arrived(id, page);
}

void SyncReceiver::ask_for_page(SyncSource& source, LinkId link, SyncPart page) {
    const bool waits_for_one =
        std::any_of(fetches_.hash_lists().begin(), fetches_.hash_lists().end(), [&](std::uint32_t entry) {
            const auto asked = links_.find(fetches_.find(entry)->hash_link);
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
        sources_.shorten_pages(source);
    else if (took < turn_.timeouts.peer && hashes >= source.page)
        source.page *= 2;
    if (progress) source_moved(source.peer, 0);
}

// ---- of all entries ------------------------------------------------------------------------------------------------

// The elected hash of each entry is known now. Finds out which entries this peer lacks, and requests memory for them.
void SyncReceiver::list_known() {
    listed_ = true;
    const std::uint64_t bytes = fetches_.find_out(elected_, receives_, receives_unequal_);
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

void SyncReceiver::hashes_arrived(LinkId id, const proto::HashPage& message) {
    SyncFetch* fetch = fetches_.find(message.entry());
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
    fetches_.set_hash_link(*fetch, 0);
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
