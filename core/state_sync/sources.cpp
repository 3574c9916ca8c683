#include "core/state_sync/sources.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>

namespace pccl::core {

SyncSources::Added SyncSources::add(const proto::SyncHolder& holder, const Uuid& self, bool only_whole) {
    SyncSource source;
    if (!read(holder.peer(), source.peer) || !read_addresses(holder, source.addresses) || source.peer == self)
        return Added::no;
    if (SyncSource* known = find(source.peer); known != nullptr) {
        known->whole = known->whole || holder.whole();
        known->addresses = source.addresses;
        known->named_at = turn_.now;
        known->pass = pass_from(holder);
        return Added::named_again;
    }
    source.window = turn_.limits.chunk_requests_max;
    source.page = turn_.limits.hashes_first;
    const auto before = forgotten_.find(source.peer);
    if (before != forgotten_.end()) {
        PROBE(sync_source_remembered);
        const Addresses addresses = source.addresses;
        source = before->second;
        source.addresses = addresses;
    }
    source.whole = source.whole || holder.whole();
    source.named_at = turn_.now;
    source.pass = pass_from(holder);
    if (sources_.size() >= turn_.limits.sources_max && !make_room_for(source, only_whole)) return Added::no;
    if (before != forgotten_.end()) forgotten_.erase(before);
    sources_.push_back(source);
    return Added::anew;
}

SyncSource* SyncSources::find(const Uuid& peer) {
    for (SyncSource& source : sources_) {
        if (source.peer == peer) return &source;
    }
    return nullptr;
}

// Makes room in the full table for `candidate`. False: every source has to stay. Only an inactive source may leave: a
// useless one, one that the master does not name any more, or one that was given up more often than `candidate`. A
// useless one leaves first, then the one that was named longest ago; on a tie, the one that is longest in the table.
bool SyncSources::make_room_for(const SyncSource& candidate, bool only_whole) {
    if (forgotten_.size() >= turn_.limits.peers_max || candidate.useless(only_whole)) return false;
    const auto may_leave = [&](const SyncSource& source) {
        return !source.active &&
               (source.useless(only_whole) || source.named_at != turn_.now || source.given_up > candidate.given_up);
    };
    auto leaves = sources_.end();
    for (auto source = sources_.begin(); source != sources_.end(); ++source) {
        if (!may_leave(*source)) continue;
        const auto rank = [&](const SyncSource& one) { return std::pair(!one.useless(only_whole), one.named_at); };
        if (leaves == sources_.end() || rank(*source) < rank(*leaves)) leaves = source;
    }
    if (leaves == sources_.end()) return false;
    PROBE(sync_source_forgotten);
    forgotten_.emplace(leaves->peer, *leaves);
    sources_.erase(leaves);
    return true;
}

SyncSource* SyncSources::next_to_try(bool only_whole) {
    const auto comes_before = [](const SyncSource& a, const SyncSource& b) {
        return a.named_at != b.named_at ? a.named_at > b.named_at : a.since < b.since;
    };
    SyncSource* next = nullptr;
    for (SyncSource& source : sources_) {
        if (source.active || source.rests_until > turn_.now || source.useless(only_whole)) continue;
        if (next == nullptr || comes_before(source, *next)) next = &source;
    }
    return next;
}

void SyncSources::renew_clocks() {
    for (SyncSource& source : sources_) source.since = source.verified_at = turn_.now;
}

void SyncSources::slept(Duration time) {
    for (SyncSource& source : sources_) {
        for (Instant* clock : {&source.since, &source.verified_at}) *clock = std::min(turn_.now, *clock + time);
    }
}

void SyncSources::chunk_came() {
    for (SyncSource& source : sources_) source.too_slow = false;
}

void SyncSources::shorten_pages(SyncSource& source) const {
    PROBE(sync_shorter_pages);
    source.page = std::max({source.page / 4, turn_.limits.hashes_first / 16, 1u});
}

bool SyncSources::all_refuted() const {
    const auto refuted = [](const SyncSource& source) { return source.wrongs >= wrongs_max; };
    if (sources_.empty() && forgotten_.empty()) return false;
    return std::all_of(sources_.begin(), sources_.end(), refuted) &&
           std::all_of(forgotten_.begin(), forgotten_.end(), [&](const auto& entry) { return refuted(entry.second); });
}

std::size_t SyncSources::active() const {
    return static_cast<std::size_t>(
        std::count_if(sources_.begin(), sources_.end(), [](const SyncSource& source) { return source.active; }));
}

void SyncSources::check() const {
    ASSERT(sources_.size() <= turn_.limits.sources_max && forgotten_.size() <= turn_.limits.peers_max);
    std::set<Uuid> peers;
    for (const SyncSource& source : sources_) {
        ASSERT(peers.insert(source.peer).second);
        ASSERT(!forgotten_.contains(source.peer));
    }
}

}  // namespace pccl::core
