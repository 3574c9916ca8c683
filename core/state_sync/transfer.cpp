// The peer's part in a shared-state synchronization: hash, vote, fetch what differs, serve what others lack, apply.
//
// What is fetched lands beside the application's memory and is copied into place after the outcome is known, so a failed
// synchronization leaves every entry as it was. Entries are compared and transferred in chunks of Limits::chunk_bytes; the
// hash of an entry is the hash of its chunk hashes, so each chunk is checked when it lands.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
constexpr std::uint64_t copy_bytes = 4u << 20;
constexpr std::uint32_t copies_in_flight = 4;
constexpr std::size_t hashes_per_page = 4096;
constexpr std::size_t page_bytes = 200'000;
constexpr std::size_t early_requests_max = 1024;
constexpr std::size_t serve_max = 256;

Hash128 hash_of_hashes(const std::vector<Hash128>& hashes) {
    std::vector<std::uint64_t> words;
    words.reserve(hashes.size() * 2);
    for (const Hash128& hash : hashes) {
        words.push_back(hash.low);
        words.push_back(hash.high);
    }
    return numeric::hash128(words.data(), words.size() * sizeof(std::uint64_t));
}
}  // namespace

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

// ---- hash and vote -------------------------------------------------------------------------------------------------

void PeerCore::on_sync(const CommandSync& command) {
    const auto refuse = [&](Result result, const std::string& message) {
        complete(command.ticket, failure(result, message));
    };
    if (state_ == State::lost)
        return refuse(Result::invalid_usage, "this peer is no longer a member of the run; connect again");
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

void PeerCore::answer_sync(const proto::SyncAnswer& answer) {
    open_votes_.erase(answer.serial());
    const bool mine = sync_ && sync_->serial == answer.serial() && !sync_->outcome;
    if (answer.final()) {
        for (auto it = open_votes_.begin(); it != open_votes_.end();) {
            const bool of_sync = it->second.kind() == proto::VOTE_SYNC_END && it->second.id() == answer.sync();
            it = of_sync ? open_votes_.erase(it) : std::next(it);
        }
        if (!mine) return;
        const Result result = result_of(answer.result());
        const bool success = result == Result::success;
        if (success && !sync_->fetches.empty() && !sync_->voted_end) {
            become_lost("the master ended a synchronization that this peer has not finished", State::lost);
            return;
        }
        Completion completion = success ? Completion{} : failure(result, answer.reason());
        see(answer.sizes(), completion);
        completion.revision = success ? answer.revision() : sync_->revision;
        sync_decided(std::move(completion), success);
        return;
    }
    if (!mine) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_SYNC_END);
        vote.set_id(answer.sync());
        vote.set_reason("the synchronization was not asked for here");
        cast(vote);
        return;
    }
    begin_transfer(answer);
}

// ---- fetch ---------------------------------------------------------------------------------------------------------

PeerCore::Fetch* PeerCore::fetch_of(std::uint32_t entry) {
    for (Fetch& fetch : sync_->fetches) {
        if (fetch.entry == entry) return &fetch;
    }
    return nullptr;
}

void PeerCore::begin_transfer(const proto::SyncAnswer& answer) {
    Sync& sync = *sync_;
    sync.stage = Sync::Stage::transfer;
    sync.id = answer.sync();
    for (const auto& entry : answer.fetch()) {
        if (entry.entry() >= sync.entries.size() || fetch_of(entry.entry()) != nullptr) continue;
        Fetch fetch;
        fetch.entry = entry.entry();
        fetch.expected = hash_of(entry.hash());
        fetch.any_content = entry.any_content();
        fetch.steps.assign(chunk_count(fetch.entry), Fetch::Step::todo);
        fetch.asked.assign(fetch.steps.size(), 0);
        if (!fetch.steps.empty()) {
            fetch.scratch = new_buffer(entry_bytes(fetch.entry));
            ++sync.computes;
        }
        sync.fetches.push_back(std::move(fetch));
    }
    for (const auto& holder : answer.holders()) {
        Uuid uuid;
        Endpoint endpoint;
        if (read(holder.peer(), uuid) && read(holder.address(), endpoint) && uuid != uuid_)
            sync.holders.emplace_back(uuid, endpoint);
    }
    const auto early = std::move(sync.early_requests);
    sync.early_requests.clear();
    for (const auto& [link, request] : early) {
        if (request.sync != sync.id || !links_.contains(link)) continue;
        if ((request.chunk & 0x8000'0000u) != 0)
            serve_hashes(link, Chunk{request.sync, request.entry, request.chunk & 0x7FFF'FFFFu});
        else
            on_chunk_request(link, request);
    }
    if (!sync.fetches.empty()) {
        sync.holder = static_cast<std::size_t>(-1);
        next_holder("");
        if (!sync_ || sync_->outcome) return;
    }
    sync_check_end();
}

void PeerCore::next_holder(const std::string& why) {
    Sync& sync = *sync_;
    if (sync.voted_end) return;
    if (sync.holder < sync.holders.size()) {
        PROBE(sync_holder_given_up);
        const Uuid old = sync.holders[sync.holder].first;
        log(LogLevel::warn, "peer " + short_name(old) + " is given up as the source of shared state: " + why);
        if (const auto edge = edges_.find(old); edge != edges_.end()) edge->second.wanted_by_sync = false;
        for (auto& [id, link] : links_) {
            if (link.receiving.op == sync.id && link.receiving.phase == 2 && !link.receiving.dropped) {
                link.receiving.dropped = true;
                out_->push_back(RedirectReceive{id});
            }
        }
        for (Fetch& fetch : sync.fetches) {
            for (auto& step : fetch.steps) {
                if (step != Fetch::Step::requested && step != Fetch::Step::landing) continue;
                PROBE(sync_fetched_from_another);
                step = Fetch::Step::todo;
                --sync.requested;
            }
            fetch.next_request = 0;
            fetch.hash_requested = false;
            if (fetch.any_content) {
                // Pieces of different holders must not be mixed.
                if (fetch.done != 0) PROBE(sync_any_content_anew);
                for (auto& step : fetch.steps) {
                    if (step == Fetch::Step::checking) --sync.requested;
                    step = Fetch::Step::todo;
                }
                fetch.done = 0;
                fetch.hashes.clear();
            }
            if (fetch.hashes.size() < fetch.steps.size()) fetch.hashes.clear();
        }
    }
    ++sync.holder;
    if (sync.holder >= sync.holders.size()) {
        PROBE(sync_no_holder);
        proto::Vote vote;
        vote.set_kind(proto::VOTE_SYNC_END);
        vote.set_id(sync.id);
        vote.set_reason("no living member that holds the state could be reached");
        sync.voted_end = true;
        sync.end_serial = cast(vote);
        maintain_edges();
        return;
    }
    const auto& [uuid, endpoint] = sync.holders[sync.holder];
    sync.holder_since = now_;
    Edge& edge = edges_[uuid];
    edge.wanted_by_sync = true;
    edge.target = endpoint;
    if (edge.stripes.empty()) edge.stripes.resize(stripe_count());
    maintain_edges();
    pump_fetch();
}

std::vector<LinkId> PeerCore::open_links_to(const Uuid& target) const {
    std::vector<LinkId> open;
    const auto edge = edges_.find(target);
    if (edge == edges_.end()) return open;
    for (const Stripe& stripe : edge->second.stripes) {
        const auto link = links_.find(stripe.link);
        if (link != links_.end() && link->second.stage == Stage::open) open.push_back(stripe.link);
    }
    return open;
}

void PeerCore::pump_fetch() {
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->voted_end || sync_->fetches.empty()) return;
    Sync& sync = *sync_;
    const std::vector<LinkId> open = open_links_to(sync.holders[sync.holder].first);
    if (open.empty()) return;
    for (Fetch& fetch : sync.fetches) {
        if (fetch.steps.empty() || !fetch.allocated) continue;
        if (fetch.hashes.size() < fetch.steps.size()) {
            if (fetch.hash_requested) continue;
            fetch.hash_requested = true;
            proto::LinkMessage message;
            message.mutable_hash_request()->set_sync(sync.id);
            message.mutable_hash_request()->set_entry(fetch.entry);
            message.mutable_hash_request()->set_first(static_cast<std::uint32_t>(fetch.hashes.size()));
            send_control(open.front(), message);
            continue;
        }
        for (; fetch.next_request < fetch.steps.size() && sync.requested < config_.limits.chunks_in_flight;
             ++fetch.next_request) {
            if (fetch.steps[fetch.next_request] != Fetch::Step::todo) continue;
            const LinkId link = open[fetch.next_request % open.size()];
            fetch.steps[fetch.next_request] = Fetch::Step::requested;
            fetch.asked[fetch.next_request] = link;
            ++sync.requested;
            proto::LinkMessage message;
            message.mutable_chunk_request()->set_sync(sync.id);
            message.mutable_chunk_request()->set_entry(fetch.entry);
            message.mutable_chunk_request()->set_chunk(fetch.next_request);
            send_control(link, message);
        }
    }
}

void PeerCore::on_hashes(LinkId id, const proto::ChunkHashes& message) {
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->id != message.sync() || sync_->voted_end) return;
    Fetch* fetch = fetch_of(message.entry());
    if (fetch == nullptr || !fetch->hash_requested || links_.at(id).remote != sync_->holders[sync_->holder].first)
        return;
    const auto words = static_cast<std::size_t>(message.words_size());
    if (message.first() != fetch->hashes.size() || words == 0 || words % 2 != 0 ||
        fetch->hashes.size() + words / 2 > fetch->steps.size()) {
        next_holder("sent a list of hashes that does not fit");
        return;
    }
    for (std::size_t i = 0; i < words; i += 2) {
        fetch->hashes.push_back(Hash128{message.words(static_cast<int>(i)), message.words(static_cast<int>(i) + 1)});
    }
    fetch->hash_requested = false;
    sync_->holder_since = now_;
    if (fetch->hashes.size() == fetch->steps.size() && !fetch->any_content &&
        hash_of_hashes(fetch->hashes) != fetch->expected) {
        fetch->hashes.clear();
        next_holder("sent hashes that are not those of the elected state");
        return;
    }
    pump_fetch();
}

void PeerCore::on_bulk_chunk(LinkId id, Link& link, const wire::BulkHeader& header) {
    Fetch* fetch = nullptr;
    if (sync_ && sync_->stage == Sync::Stage::transfer && sync_->id == header.op && !sync_->voted_end &&
        header.entry <= ~0u) {
        fetch = fetch_of(static_cast<std::uint32_t>(header.entry));
    }
    if (fetch == nullptr || header.slice >= fetch->steps.size() ||
        fetch->steps[header.slice] != Fetch::Step::requested || fetch->asked[header.slice] != id ||
        header.length != chunk_length(fetch->entry, header.slice)) {
        PROBE(sync_chunk_late);
        ++dead_frames_;
        discard(id, link, header);
        return;
    }
    fetch->steps[header.slice] = Fetch::Step::landing;
    link.receiving = Transfer{header.op, 2, header.slice, header.entry, Operation::none, false};
    out_->push_back(ReceivePayload{id, BufferRef{fetch->scratch,
                                                 static_cast<std::uint64_t>(header.slice) * config_.limits.chunk_bytes,
                                                 header.length}});
}

void PeerCore::chunk_landed(const Transfer& transfer, bool ok) {
    if (!sync_ || sync_->id != transfer.op || sync_->stage != Sync::Stage::transfer) return;
    Fetch* fetch = fetch_of(static_cast<std::uint32_t>(transfer.entry));
    ASSERT(fetch != nullptr && fetch->steps[transfer.slice] == Fetch::Step::landing);
    if (!ok) {
        PROBE(sync_chunk_not_landed);
        fetch->steps[transfer.slice] = Fetch::Step::todo;
        fetch->next_request = std::min(fetch->next_request, transfer.slice);
        --sync_->requested;
        pump_fetch();
        return;
    }
    fetch->steps[transfer.slice] = Fetch::Step::checking;
    sync_->holder_since = now_;
    const std::uint32_t length = chunk_length(fetch->entry, transfer.slice);
    sync_->received_bytes += length;
    ComputeOwner owner;
    owner.what = ComputeOwner::What::chunk_check;
    owner.entry = fetch->entry;
    owner.slice = transfer.slice;
    Compute compute;
    compute.id = new_compute(owner);
    compute.kind = Compute::Kind::hash;
    compute.a =
        BufferRef{fetch->scratch, static_cast<std::uint64_t>(transfer.slice) * config_.limits.chunk_bytes, length};
    ++sync_->computes;
    out_->push_back(compute);
}

void PeerCore::chunk_link_lost(LinkId id) {
    if (!sync_) return;
    std::erase_if(sync_->early_requests, [&](const auto& entry) { return entry.first == id; });
    if (sync_->stage != Sync::Stage::transfer) return;
    for (Fetch& fetch : sync_->fetches) {
        for (std::uint32_t chunk = 0; chunk < fetch.steps.size(); ++chunk) {
            if (fetch.steps[chunk] != Fetch::Step::requested || fetch.asked[chunk] != id) continue;
            PROBE(sync_chunk_asked_again);
            fetch.steps[chunk] = Fetch::Step::todo;
            fetch.next_request = std::min(fetch.next_request, chunk);
            --sync_->requested;
        }
        fetch.hash_requested = false;
        if (fetch.hashes.size() < fetch.steps.size()) fetch.hashes.clear();
    }
    pump_fetch();
}

void PeerCore::sync_compute_done(const ComputeOwner& owner, const Hash128& hash) {
    ASSERT(sync_ && sync_->computes > 0);
    --sync_->computes;
    if (owner.what == ComputeOwner::What::entry_hash) {
        sync_->chunk_hashes[owner.entry][owner.slice] = hash;
        if (sync_->stage == Sync::Stage::hashing) pump_hashes();
    } else if (owner.what == ComputeOwner::What::chunk_check && sync_->stage == Sync::Stage::transfer) {
        Fetch* fetch = fetch_of(owner.entry);
        if (fetch->steps[owner.slice] != Fetch::Step::checking) {
            sync_finish_if_idle();
            return;  // its holder was given up meanwhile
        }
        --sync_->requested;
        if (owner.slice < fetch->hashes.size() && fetch->hashes[owner.slice] == hash) {
            fetch->steps[owner.slice] = Fetch::Step::done;
            ++fetch->done;
            pump_fetch();
        } else {
            fetch->steps[owner.slice] = Fetch::Step::todo;
            fetch->next_request = std::min(fetch->next_request, owner.slice);
            next_holder("sent content that does not match its hash");
        }
        sync_check_end();
    } else if (owner.what == ComputeOwner::What::state_copy) {
        copy_state();
    }
    sync_finish_if_idle();
}

void PeerCore::sync_check_end() {
    Sync& sync = *sync_;
    if (sync.stage != Sync::Stage::transfer || sync.voted_end) return;
    bool ok = true;
    for (const Fetch& fetch : sync.fetches) {
        if (fetch.steps.empty()) continue;
        if (fetch.scratch == 0)
            ok = false;  // the allocation failed
        else if (fetch.done < fetch.steps.size())
            return;
    }
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC_END);
    vote.set_id(sync.id);
    vote.set_ok(ok);
    if (!ok) vote.set_reason("not enough memory for the incoming state");
    sync.voted_end = true;
    sync.end_serial = cast(vote);
}

void PeerCore::sync_tick() {
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->voted_end || sync_->fetches.empty()) return;
    const bool reachable = !open_links_to(sync_->holders[sync_->holder].first).empty();
    const Duration patience = reachable ? 3 * config_.timeouts.peer : config_.timeouts.peer;
    if (now_ - sync_->holder_since > patience)
        next_holder(reachable ? "nothing came from it for too long" : "cannot be reached");
}

// ---- serve ---------------------------------------------------------------------------------------------------------

namespace {
proto::LinkMessage decline_message(OpId sync, std::uint32_t entry, std::uint32_t chunk) {
    proto::LinkMessage message;
    message.mutable_chunk_decline()->set_sync(sync);
    message.mutable_chunk_decline()->set_entry(entry);
    message.mutable_chunk_decline()->set_chunk(chunk);
    return message;
}
}  // namespace

void PeerCore::on_hash_request(LinkId id, const proto::HashRequest& request) {
    // Requests for a plan that has not come here yet wait for it; the top bit tells the two kinds apart while they wait.
    if (request.first() >= 0x8000'0000u) return;
    serve_hashes(id, Chunk{request.sync(), request.entry(), request.first()});
}

void PeerCore::serve_hashes(LinkId id, const Chunk& request) {
    if (sync_ && sync_->stage <= Sync::Stage::voting && sync_->early_requests.size() < early_requests_max) {
        PROBE(sync_request_early);
        sync_->early_requests.emplace_back(id, Chunk{request.sync, request.entry, request.chunk | 0x8000'0000u});
        return;
    }
    if (!sync_ || sync_->stage != Sync::Stage::transfer || sync_->id != request.sync ||
        request.entry >= sync_->chunk_hashes.size() || request.chunk >= sync_->chunk_hashes[request.entry].size()) {
        PROBE(sync_request_declined);
        send_control(id, decline_message(request.sync, request.entry, request.chunk));
        return;
    }
    proto::LinkMessage message;
    auto* hashes = message.mutable_hashes();
    hashes->set_sync(request.sync);
    hashes->set_entry(request.entry);
    hashes->set_first(request.chunk);
    const auto& all = sync_->chunk_hashes[request.entry];
    for (std::size_t i = request.chunk; i < all.size() && i < request.chunk + hashes_per_page; ++i) {
        hashes->add_words(all[i].low);
        hashes->add_words(all[i].high);
    }
    send_control(id, message);
}

void PeerCore::on_chunk_request(LinkId id, const Chunk& chunk) {
    Link& link = links_.at(id);
    if (sync_ && sync_->stage <= Sync::Stage::voting && sync_->early_requests.size() < early_requests_max &&
        chunk.chunk < 0x8000'0000u) {
        PROBE(sync_request_early);
        sync_->early_requests.emplace_back(id, chunk);
        return;
    }
    const bool known = sync_ && sync_->stage == Sync::Stage::transfer && sync_->id == chunk.sync &&
                       chunk.entry < sync_->entries.size() && chunk.chunk < sync_->chunk_hashes[chunk.entry].size();
    if (!known || link.serve.size() >= serve_max) {
        PROBE(sync_request_declined);
        send_control(id, decline_message(chunk.sync, chunk.entry, chunk.chunk));
        return;
    }
    link.serve.push_back(chunk);
    if (link.sending.op == 0) serve_chunk(id, link);
}

bool PeerCore::serve_chunk(LinkId id, Link& link) {
    if (link.serve.empty()) return false;
    ASSERT(sync_ && sync_->stage == Sync::Stage::transfer);
    const Chunk chunk = link.serve.front();
    link.serve.pop_front();
    SendPayload send;
    send.link = id;
    send.header.op = chunk.sync;
    send.header.phase = 2;
    send.header.slice = chunk.chunk;
    send.header.entry = chunk.entry;
    send.header.length = chunk_length(chunk.entry, chunk.chunk);
    send.source = BufferRef{sync_->entries[chunk.entry].buffer,
                            static_cast<std::uint64_t>(chunk.chunk) * config_.limits.chunk_bytes, send.header.length};
    link.sending = Transfer{chunk.sync, 2, chunk.chunk, chunk.entry, Operation::none, false};
    link.last_sent = now_;
    out_->push_back(send);
    return true;
}

// ---- end -----------------------------------------------------------------------------------------------------------

void PeerCore::sync_decided(Completion outcome, bool apply) {
    Sync& sync = *sync_;
    ASSERT(!sync.outcome);
    if (sync.requested != 0) PROBE(sync_ended_in_transfer);
    if (sync.id != 0) release_links(sync.id);
    for (auto& [id, link] : links_) link.serve.clear();
    sync.early_requests.clear();
    for (auto& [target, edge] : edges_) edge.wanted_by_sync = false;
    outcome.sent_bytes = sync.sent_bytes;
    outcome.received_bytes = sync.received_bytes;
    sync.outcome = std::move(outcome);
    sync.stage = apply && !sync.fetches.empty() ? Sync::Stage::applying : Sync::Stage::draining;
    maintain_edges();
    if (sync.stage == Sync::Stage::applying) copy_state();
    sync_finish_if_idle();
}

void PeerCore::copy_state() {
    Sync& sync = *sync_;
    if (sync.stage != Sync::Stage::applying) return;
    for (Fetch& fetch : sync.fetches) {
        const std::uint64_t bytes = entry_bytes(fetch.entry);
        while (fetch.copied < bytes && sync.computes < copies_in_flight) {
            const std::uint64_t length = std::min(copy_bytes, bytes - fetch.copied);
            ComputeOwner owner;
            owner.what = ComputeOwner::What::state_copy;
            Compute compute;
            compute.id = new_compute(owner);
            compute.kind = Compute::Kind::copy;
            compute.target = BufferRef{sync.entries[fetch.entry].buffer, fetch.copied, length};
            compute.a = BufferRef{fetch.scratch, fetch.copied, length};
            fetch.copied += length;
            ++sync.computes;
            out_->push_back(compute);
        }
    }
}

void PeerCore::sync_finish_if_idle() {
    if (!sync_ || !sync_->outcome || sync_->computes != 0) return;
    for (const Fetch& fetch : sync_->fetches) {
        if (sync_->stage == Sync::Stage::applying && fetch.copied < entry_bytes(fetch.entry)) return;
    }
    for (const Fetch& fetch : sync_->fetches) {
        if (fetch.scratch != 0) out_->push_back(FreeBuffer{fetch.scratch});
    }
    const Ticket ticket = sync_->ticket;
    Completion outcome = std::move(*sync_->outcome);
    sync_.reset();
    complete(ticket, std::move(outcome));
}

}  // namespace pccl::core
