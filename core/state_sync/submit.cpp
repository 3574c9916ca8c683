// The beginning of a synchronization: the peer hashes its entries and votes with a digest; if the master asks, it lists them.
//
// Entries are compared and transferred in chunks of Limits::chunk_bytes; the hash of an entry is the hash of its chunk
// hashes, so each chunk is checked when it lands.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

Hash128 hash_of_hashes(const std::vector<Hash128>& hashes) {
    std::vector<std::uint64_t> words;
    words.reserve(hashes.size() * 2);
    for (const Hash128& hash : hashes) {
        words.push_back(hash.low);
        words.push_back(hash.high);
    }
    return numeric::hash128(words.data(), words.size() * sizeof(std::uint64_t));
}

std::uint64_t PeerCore::entry_bytes(std::uint32_t entry) const {
    return sync_->entries[entry].count * element_bytes(sync_->entries[entry].type);
}

std::uint32_t PeerCore::chunk_count(std::uint32_t entry) const {
    const std::uint64_t chunk = config_.limits.chunk_bytes;
    return static_cast<std::uint32_t>((entry_bytes(entry) + chunk - 1) / chunk);
}

std::uint32_t PeerCore::chunk_length(std::uint32_t entry, std::uint32_t chunk) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(chunk) * config_.limits.chunk_bytes;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(config_.limits.chunk_bytes, entry_bytes(entry) - begin));
}

void PeerCore::on_sync(const CommandSync& command) {
    const auto refuse = [&](Result result, const std::string& message) {
        complete(command.ticket, failure(result, message));
    };
    if (state_ == State::lost) return refuse(Result::invalid_usage, lost_text());
    if (state_ != State::member)
        return refuse(Result::invalid_usage, "the communicator is not connected; call pcclConnect first");
    if (!launches_.empty()) {
        return refuse(Result::pending_async_ops, "tag " + std::to_string(launches_.begin()->first) +
                                                     " was launched and not awaited; await it first");
    }
    if (sync_) return refuse(Result::invalid_usage, "another synchronization of this communicator is running");
    const std::uint32_t entries_max = std::min(config_.limits.entries_max, master_entries_max_);
    if (command.entries.size() > entries_max) {
        return refuse(Result::invalid_argument, "the shared state has " + std::to_string(command.entries.size()) +
                                                    " entries, more than the limit of " + std::to_string(entries_max));
    }
    if (command.revision > config_.limits.revision_max) {
        return refuse(Result::invalid_argument,
                      "the shared-state revision " + std::to_string(command.revision) +
                          " is beyond every count of synchronizations; was it decremented at 0?");
    }
    const std::uint32_t key_bytes_max = std::min(config_.limits.key_bytes_max, master_key_bytes_max_);
    Sync sync;
    sync.entries = command.entries;
    // Drivers sort a long list before they hand it over: it takes seconds, in which this machine would be silent.
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    if (!std::is_sorted(sync.entries.begin(), sync.entries.end(), by_name))
        std::sort(sync.entries.begin(), sync.entries.end(), by_name);
    for (std::size_t i = 0; i < sync.entries.size(); ++i) {
        const StateEntry& entry = sync.entries[i];
        if (entry.name.empty() || entry.name.size() > key_bytes_max) {
            return refuse(Result::invalid_argument,
                          "a shared-state key is empty or longer than " + std::to_string(key_bytes_max) + " bytes");
        }
        if (i > 0 && sync.entries[i - 1].name == entry.name) {
            return refuse(Result::invalid_argument, "the shared-state key '" + entry.name + "' is there twice");
        }
    }
    sync.ticket = command.ticket;
    sync.revision = command.revision;
    sync.strategy = command.strategy;
    sync_ = std::move(sync);
    for (std::uint32_t i = 0; i < sync_->entries.size(); ++i) {
        sync_->chunk_hashes.emplace_back(chunk_count(i));
    }
    pump_hashes();
}

void PeerCore::pump_hashes() {
    Sync& sync = *sync_;
    if (sync.stage != Sync::Stage::hashing) return;
    while (sync.computes < config_.limits.hashes_in_flight && sync.hash_entry < sync.entries.size()) {
        if (sync.hash_chunk >= sync.chunk_hashes[sync.hash_entry].size()) {
            ++sync.hash_entry;
            sync.hash_chunk = 0;
            continue;
        }
        const EntryHash part{sync.hash_entry, sync.hash_chunk++};
        Compute compute;
        compute.kind = Compute::Kind::hash;
        compute.a = BufferRef{sync.entries[part.entry].buffer,
                              static_cast<std::uint64_t>(part.chunk) * config_.limits.chunk_bytes,
                              chunk_length(part.entry, part.chunk)};
        ++sync.computes;
        computes_.request(std::move(compute), part);
    }
    if (sync.computes == 0 && sync.hash_entry == sync.entries.size()) vote_sync();
}

void PeerCore::vote_sync() {
    Sync& sync = *sync_;
    sync.stage = Sync::Stage::voting;
    StateDigest schema(config_.limits.digest_block_bytes), content(config_.limits.digest_block_bytes);
    sync.hashes.clear();
    for (std::size_t i = 0; i < sync.entries.size(); ++i) {
        const StateEntry& entry = sync.entries[i];
        sync.hashes.push_back(hash_of_hashes(sync.chunk_hashes[i]));
        schema.add(entry.name, entry.count, entry.type, entry.allow_content_inequality);
        content.add(entry.name, entry.count, entry.type, entry.allow_content_inequality);
        if (!entry.allow_content_inequality) content.add_content(sync.hashes[i]);
    }
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC);
    vote.set_revision(sync.revision);
    vote.set_strategy(static_cast<std::uint32_t>(sync.strategy));
    vote.set_entries(static_cast<std::uint32_t>(sync.entries.size()));
    vote.set_unequal(std::any_of(sync.entries.begin(), sync.entries.end(),
                                 [](const auto& entry) { return entry.allow_content_inequality; }));
    write(schema.value(), *vote.mutable_schema());
    write(content.value(), *vote.mutable_content());
    sync.serial = cast(vote);
}

// Whether the list that has come is that of the elected state.
bool PeerCore::has_elected_content() const {
    StateDigest content(config_.limits.digest_block_bytes);
    for (std::size_t i = 0; i < sync_->entries.size(); ++i) {
        const StateEntry& entry = sync_->entries[i];
        content.add(entry.name, entry.count, entry.type, entry.allow_content_inequality);
        if (!entry.allow_content_inequality) content.add_content(sync_->elected[i]);
    }
    return content.value() == sync_->content;
}

void PeerCore::send_page(Serial serial, std::uint32_t first) {
    if (!sync_ || sync_->serial != serial || sync_->stage != Sync::Stage::voting || first >= sync_->entries.size())
        return;
    PROBE(sync_pages_sent);
    if (first != 0) PROBE(sync_second_page_sent);
    proto::PeerMessage message;
    auto* page = message.mutable_page();
    page->set_serial(serial);
    page->set_first(first);
    const std::uint32_t bytes_max = links_.at(master_link_).control_bytes;
    std::size_t bytes = 0;
    for (std::size_t next = first; next < sync_->entries.size(); ++next) {
        const StateEntry& entry = sync_->entries[next];
        bytes += entry.name.size() + key_overhead;
        if (bytes > bytes_max && next != first) break;
        auto* key = page->add_entries();
        // A master that was started again may take less than the one that the call was checked for.
        key->set_name(entry.name.substr(0, bytes_max - key_overhead));
        key->set_count(entry.count);
        key->set_type(static_cast<std::uint32_t>(entry.type));
        key->set_allow_content_inequality(entry.allow_content_inequality);
    }
    links_.send(master_link_, message);
}

}  // namespace pccl::core
