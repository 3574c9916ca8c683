#include "core/state_sync/key_comparisons.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace pccl::core {

bool KeyComparisons::compare(GroupId group, const Ballot& ballot, const Election& election) {
    std::vector<Uuid> names;
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.schema_differs) names.push_back(verdict.uuid);
    }
    if (names.empty()) {
        groups_.erase(group);
        return true;
    }
    names.insert(names.begin(), election.model);
    Comparison& comparison = groups_[group];
    const bool same = std::equal(names.begin(), names.end(), comparison.lists.begin(), comparison.lists.end(),
                                 [&](const Uuid& uuid, const List& list) {
                                     return list.uuid == uuid && list.serial == ballot.votes().at(uuid).serial;
                                 });
    if (!same) {
        comparison = Comparison{};
        for (const Uuid& uuid : names) {
            const Ballot::Cast& cast = ballot.votes().at(uuid);
            List& list = comparison.lists.emplace_back();
            list.uuid = uuid;
            list.serial = cast.serial;
            list.total = cast.vote.entries();
        }
        comparison.progress = comparison.began = turn_.now;
    }
    const auto open = [](const List& list) { return list.difference.empty(); };
    List& winner = comparison.lists.front();
    while (std::any_of(comparison.lists.begin() + 1, comparison.lists.end(), open)) {
        if (!ask(comparison)) return false;
        if (comparison.first != 0) PROBE(sync_second_page_compared);
        std::size_t here = winner.keys.size();
        for (auto list = comparison.lists.begin() + 1; list != comparison.lists.end(); ++list) {
            if (!open(*list)) continue;
            const std::size_t both = std::min(list->keys.size(), winner.keys.size());
            for (std::size_t i = 0; i < both && open(*list); ++i) {
                if (list->keys[i] != winner.keys[i]) list->difference = difference_text(list->keys[i], winner.keys[i]);
            }
            // One of the two lists has ended.
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
        for (List& list : comparison.lists) {
            const auto done = static_cast<std::ptrdiff_t>(std::min(here, list.keys.size()));
            list.keys.erase(list.keys.begin(), list.keys.begin() + done);
        }
        comparison.first += static_cast<std::uint32_t>(here);
    }
    return true;
}

// Requests missing pages. Returns true if each list that is still compared has its next key here, or has ended.
bool KeyComparisons::ask(Comparison& comparison) {
    bool waits = false;
    for (List& list : comparison.lists) {
        if (!list.difference.empty() || !list.keys.empty() || comparison.first >= list.total) continue;
        waits = true;
        const LinkId link = roster_.link_of(list.uuid);
        if (!list.asked && link == 0) PROBE(sync_pages_member_away);
        if (list.asked || link == 0) continue;
        list.asked = true;
        proto::MasterMessage message;
        message.mutable_page_request()->set_serial(list.serial);
        message.mutable_page_request()->set_first(comparison.first);
        roster_.say(list.uuid, std::move(message));
    }
    return !waits;
}

void KeyComparisons::page_came(const Uuid& uuid, const proto::SyncPage& page) {
    const GroupId group = state_.members.at(uuid).group;
    const auto comparison = groups_.find(group);
    if (comparison == groups_.end()) return;
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
        possible = possible && entry.type() < data_type_count && key.name.size() <= turn_.limits.key_bytes_max &&
                   ((page.first() == 0 && list->keys.empty()) || list->last < key.name);
        if (!possible) break;
        list->last = key.name;
        list->keys.push_back(std::move(key));
    }
    if (!possible) {
        roster_.remove(uuid, make_cause<CauseKind::impossible_keys>());
        return;
    }
    comparison->second.progress = turn_.now;
    agenda_.ballots.push_back(BallotKey{proto::VOTE_SYNC, group, 0});
}

// A missing page would delay the synchronization of the whole group, and the comparison is only for a text. So a
// comparison that takes too long ends with a general text.
void KeyComparisons::end_late() {
    for (auto& [group, comparison] : groups_) {
        if (turn_.now - comparison.progress <= turn_.timeouts.starved() &&
            turn_.now - comparison.began <= turn_.timeouts.comparison())
            continue;
        for (List& list : comparison.lists) {
            if (list.difference.empty()) list.difference = "its keys";
        }
        agenda_.ballots.push_back(BallotKey{proto::VOTE_SYNC, group, 0});
    }
}

std::string KeyComparisons::difference_of(GroupId group, const Uuid& member) const {
    const auto comparison = groups_.find(group);
    if (comparison == groups_.end()) return {};
    for (const List& list : comparison->second.lists) {
        if (list.uuid == member) return list.difference;
    }
    return {};
}

void KeyComparisons::resumed(const Uuid& member) {
    for (auto& [group, comparison] : groups_) {
        for (List& list : comparison.lists) {
            if (list.uuid == member) list.asked = false;  // the page is requested again
        }
    }
}

void KeyComparisons::slept(const Sleep& sleep) {
    for (auto& [group, comparison] : groups_) {
        sleep.leave_out(comparison.progress);
        sleep.leave_out(comparison.began);
    }
}

}  // namespace pccl::core
