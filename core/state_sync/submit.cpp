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

namespace {
constexpr std::size_t page_bytes = 200'000;
}

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
    if (command.entries.size() > config_.limits.entries_max)
        return refuse(Result::invalid_argument, "too many shared-state entries");
    if (command.revision > config_.limits.revision_max) {
        return refuse(Result::invalid_argument,
                      "the shared-state revision " + std::to_string(command.revision) +
                          " is beyond every count of synchronizations; was it decremented at 0?");
    }
    Sync sync;
    sync.entries = command.entries;
    std::sort(sync.entries.begin(), sync.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (std::size_t i = 0; i < sync.entries.size(); ++i) {
        const StateEntry& entry = sync.entries[i];
        if (entry.name.empty() || entry.name.size() > config_.limits.key_bytes_max) {
            return refuse(Result::invalid_argument, "a shared-state key is empty or longer than " +
                                                        std::to_string(config_.limits.key_bytes_max) + " bytes");
        }
        if (i > 0 && sync.entries[i - 1].name == entry.name) {
            return refuse(Result::invalid_argument, "the shared-state key '" + entry.name + "' is there twice");
        }
        EntryInfo info;
        info.name = entry.name;
        info.count = entry.count;
        info.type = entry.type;
        info.allow_content_inequality = entry.allow_content_inequality;
        sync.infos.push_back(std::move(info));
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
        ComputeOwner owner;
        owner.what = ComputeOwner::What::entry_hash;
        owner.entry = sync.hash_entry;
        owner.slice = sync.hash_chunk++;
        Compute compute;
        compute.id = new_compute(owner);
        compute.kind = Compute::Kind::hash;
        compute.a = BufferRef{sync.entries[owner.entry].buffer,
                              static_cast<std::uint64_t>(owner.slice) * config_.limits.chunk_bytes,
                              chunk_length(owner.entry, owner.slice)};
        ++sync.computes;
        out_->push_back(compute);
    }
    if (sync.computes == 0 && sync.hash_entry == sync.entries.size()) vote_sync();
}

void PeerCore::vote_sync() {
    Sync& sync = *sync_;
    for (std::size_t i = 0; i < sync.infos.size(); ++i) {
        sync.infos[i].hash = hash_of_hashes(sync.chunk_hashes[i]);
    }
    sync.stage = Sync::Stage::voting;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC);
    vote.set_revision(sync.revision);
    vote.set_strategy(static_cast<std::uint32_t>(sync.strategy));
    vote.set_entries(static_cast<std::uint32_t>(sync.infos.size()));
    vote.set_unequal(std::any_of(sync.infos.begin(), sync.infos.end(),
                                 [](const auto& info) { return info.allow_content_inequality; }));
    write(content_digest(sync.infos), *vote.mutable_content());
    sync.serial = cast(vote);
}

void PeerCore::send_pages(Serial serial) {
    if (!sync_ || sync_->serial != serial || sync_->stage != Sync::Stage::voting) return;
    PROBE(sync_pages_sent);
    std::size_t next = 0;
    while (next < sync_->infos.size()) {
        proto::PeerMessage message;
        auto* page = message.mutable_page();
        page->set_serial(serial);
        page->set_first(static_cast<std::uint32_t>(next));
        for (std::size_t bytes = 0; next < sync_->infos.size() && bytes < page_bytes; ++next) {
            const EntryInfo& info = sync_->infos[next];
            auto* entry = page->add_entries();
            entry->set_name(info.name);
            entry->set_count(info.count);
            entry->set_type(static_cast<std::uint32_t>(info.type));
            entry->set_allow_content_inequality(info.allow_content_inequality);
            write(info.hash, *entry->mutable_hash());
            bytes += info.name.size() + 48;
        }
        send_control(master_link_, message);
    }
}

}  // namespace pccl::core
