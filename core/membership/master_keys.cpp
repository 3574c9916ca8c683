// In what members' shared states differ, when their schemas do: the first key that one has and the other has not, or has
// otherwise. It is for the text that they are told alone; who wins is decided by digests.
//
// The lists may be long (Limits::entries_max), so the master holds a page of each at a time.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/master_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

// True when each member that is to be removed for its schema has a text (at once, if there is none).
bool MasterCore::compare_keys(const BallotKey& key, const Election& election) {
    const Ballot& ballot = *ballots_.find(key);
    std::vector<Uuid> names;
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.schema_differs) names.push_back(verdict.uuid);
    }
    if (names.empty()) {
        key_comparisons_.erase(key.group);
        return true;
    }
    names.insert(names.begin(), election.winner);
    KeyComparison& comparison = key_comparisons_[key.group];
    const bool same = std::equal(names.begin(), names.end(), comparison.lists.begin(), comparison.lists.end(),
                                 [&](const Uuid& uuid, const KeyComparison::List& list) {
                                     return list.uuid == uuid && list.serial == ballot.votes().at(uuid).serial;
                                 });
    if (!same) {
        comparison = KeyComparison{};
        for (const Uuid& uuid : names) {
            const Ballot::Cast& cast = ballot.votes().at(uuid);
            KeyComparison::List& list = comparison.lists.emplace_back();
            list.uuid = uuid;
            list.serial = cast.serial;
            list.total = cast.vote.entries();
        }
        comparison.progress = comparison.began = now_;
    }
    const auto open = [](const KeyComparison::List& list) { return list.difference.empty(); };
    KeyComparison::List& winner = comparison.lists.front();
    while (std::any_of(comparison.lists.begin() + 1, comparison.lists.end(), open)) {
        if (!ask_for_keys(comparison)) return false;
        if (comparison.first != 0) PROBE(sync_second_page_compared);
        std::size_t here = winner.keys.size();
        for (auto list = comparison.lists.begin() + 1; list != comparison.lists.end(); ++list) {
            if (!open(*list)) continue;
            const std::size_t both = std::min(list->keys.size(), winner.keys.size());
            for (std::size_t i = 0; i < both && open(*list); ++i) {
                if (list->keys[i] != winner.keys[i]) list->difference = difference_text(list->keys[i], winner.keys[i]);
            }
            // One list is over.
            if (both == 0 && !winner.keys.empty()) {
                list->difference = difference_text(EntryKey{"\xFF", 0, DataType::u8, false}, winner.keys.front());
            } else if (both == 0) {
                list->difference = list->keys.empty()
                                       ? "its keys"
                                       : difference_text(list->keys.front(), EntryKey{"\xFF", 0, DataType::u8, false});
            }
            if (open(*list))
                here = std::min(here, both);
            else
                list->keys.clear();
        }
        for (KeyComparison::List& list : comparison.lists) {
            const auto done = static_cast<std::ptrdiff_t>(std::min(here, list.keys.size()));
            list.keys.erase(list.keys.begin(), list.keys.begin() + done);
        }
        comparison.first += static_cast<std::uint32_t>(here);
    }
    return true;
}

// True when each list that is read has its next key here, or is over.
bool MasterCore::ask_for_keys(KeyComparison& comparison) {
    bool waits = false;
    for (KeyComparison::List& list : comparison.lists) {
        if (!list.difference.empty() || !list.keys.empty() || comparison.first >= list.total) continue;
        waits = true;
        const LinkId link = sessions_.at(list.uuid).link;
        if (!list.asked && link == 0) PROBE(sync_pages_member_away);
        if (list.asked || link == 0) continue;
        list.asked = true;
        proto::MasterMessage message;
        message.mutable_page_request()->set_serial(list.serial);
        message.mutable_page_request()->set_first(comparison.first);
        say(link, message);
    }
    return !waits;
}

void MasterCore::on_page(const Uuid& uuid, const proto::SyncPage& page) {
    const GroupId group = state_.members.at(uuid).group;
    const auto comparison = key_comparisons_.find(group);
    if (comparison == key_comparisons_.end()) return;
    auto& lists = comparison->second.lists;
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& other) { return other.uuid == uuid; });
    if (list == lists.end() || !list->asked || list->serial != page.serial() ||
        page.first() != comparison->second.first)
        return;
    list->asked = false;
    bool possible = page.entries_size() > 0 && page.first() < list->total &&
                    static_cast<std::uint32_t>(page.entries_size()) <= list->total - page.first();
    for (const auto& entry : page.entries()) {
        EntryKey key;
        key.name = entry.name();
        key.count = entry.count();
        key.type = static_cast<DataType>(entry.type());
        key.allow_content_inequality = entry.allow_content_inequality();
        possible = possible && entry.type() < data_type_count && key.name.size() <= config_.limits.key_bytes_max &&
                   ((page.first() == 0 && list->keys.empty()) || list->last < key.name);
        if (!possible) break;
        list->last = key.name;
        list->keys.push_back(std::move(key));
    }
    if (!possible) {
        remove(uuid, "sent an impossible shared-state key list");
        return;
    }
    comparison->second.progress = now_;
    dirty_.push_back(BallotKey{proto::VOTE_SYNC, group, 0});
}

// A page that does not come holds up the synchronization of the whole group, and it is for a text alone.
void MasterCore::end_late_comparisons() {
    for (auto& [group, comparison] : key_comparisons_) {
        if (now_ - comparison.progress <= 3 * config_.timeouts.peer &&
            now_ - comparison.began <= 30 * config_.timeouts.peer)
            continue;
        for (KeyComparison::List& list : comparison.lists) {
            if (list.difference.empty()) list.difference = "its keys";
        }
        dirty_.push_back(BallotKey{proto::VOTE_SYNC, group, 0});
    }
}

}  // namespace pccl::core
