// The receiver's part: everything that differs is fetched, in chunks, from all members that hold the elected state.
//
// What differs is found out first (hash_lists.cpp).
// What comes lands in a staging buffer beside the application's memory. Each chunk is checked against the winner's chunk
// hashes; one that does not match names its sender. A source that is wrong, dies, stalls or declines rests for a while and
// its chunks are asked for elsewhere; when no known source can be reached, the master is asked for others:
// by then other receivers may hold all of it.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

constexpr std::uint32_t not_fetched = ~0u;
// A file system that cannot reserve space writes all of it: a slow disk does 20 MB in a second.
constexpr Duration staging_per_megabyte = 50 * millisecond;

}  // namespace

PeerCore::Fetch* PeerCore::fetch_of(std::uint32_t entry) {
    if (entry >= sync_->fetch_index.size() || sync_->fetch_index[entry] == not_fetched) return nullptr;
    return &sync_->fetches[sync_->fetch_index[entry]];
}

bool PeerCore::fetching() const {
    return sync_ && sync_->stage == Sync::Stage::transfer && !sync_->voted_end &&
           (sync_->receives || sync_->receives_unequal);
}

void PeerCore::begin_transfer(const proto::SyncAnswer& answer) {
    Sync& sync = *sync_;
    sync.stage = Sync::Stage::transfer;
    sync.id = answer.sync();
    sync.receives = answer.receives();
    sync.receives_unequal = answer.receives_unequal();
    sync.content = hash_of(answer.content());
    sync.fetch_index.assign(sync.entries.size(), not_fetched);
    for (auto& [id, link] : links_) link.owed.clear();  // nobody serves an earlier synchronization
    sync.progress = turn_.now;
    sync.next_ask = turn_.now + config_.timeouts.peer / 4;
    add_sources(answer.holders());
    if (!sync.receives) list_known();
    const auto early = std::move(sync.early_requests);
    sync.early_requests.clear();
    for (const EarlyRequest& request : early) {
        if (request.what.sync != sync.id || !links_.contains(request.link)) continue;
        serve(request.link, request.what);
    }
    if (fetching()) activate_sources();
    sync_check_end();
}

bool PeerCore::all_fetched() const { return sync_->listed && sync_->open_compared == 0 && sync_->open_unequal == 0; }

void PeerCore::sync_allocated(BufferId buffer, bool ok) {
    if (abandoned_.erase(buffer) != 0) {
        if (ok) memory_.free(buffer);
        return;
    }
    if (!sync_ || sync_->staging != buffer) return;
    --sync_->computes;
    if (ok) {
        sync_->staged = true;
        sync_->progress = turn_.now;  // no holder is to blame for the time that the memory took
        for (SyncSource& source : sync_->sources) source.since = source.verified_at = turn_.now;
        pump_fetch();
    } else {
        PROBE(sync_not_allocated);
        sync_->staging = 0;
        if (fetching()) vote_sync_end(false, "not enough memory or disk space for the incoming state");
    }
    sync_finish_if_idle();
}

// ---- sources -------------------------------------------------------------------------------------------------------

// What the plan says of an edge is at least as new.
void PeerCore::aim_edge(const SyncSource& source, Edge& edge) {
    if (edge.planned) return;
    edge.target = source.endpoint;
    edge.pass = source.pass;
}

void PeerCore::add_sources(const google::protobuf::RepeatedPtrField<proto::SyncHolder>& holders) {
    for (const auto& holder : holders) {
        SyncSource source;
        if (!read(holder.peer(), source.peer) || !read(holder.address(), source.endpoint) || source.peer == who_.uuid)
            continue;
        const auto known = std::find_if(sync_->sources.begin(), sync_->sources.end(),
                                        [&](const SyncSource& other) { return other.peer == source.peer; });
        if (known != sync_->sources.end()) {
            known->whole = known->whole || holder.whole();
            known->endpoint = source.endpoint;
            known->named_at = turn_.now;
            known->pass = pass_from(holder);
            if (const auto edge = edges_.find(known->peer); edge != edges_.end() && known->active)
                aim_edge(*known, edge->second);
            continue;
        }
        source.window = config_.limits.chunk_requests_max;
        source.page = config_.limits.hashes_first;
        const auto before = sync_->forgotten.find(source.peer);
        if (before != sync_->forgotten.end()) {
            PROBE(sync_source_remembered);
            const Endpoint endpoint = source.endpoint;
            source = before->second;
            source.endpoint = endpoint;
        }
        source.whole = source.whole || holder.whole();
        source.named_at = turn_.now;
        source.pass = pass_from(holder);
        if (sync_->sources.size() >= config_.limits.sources_max && !make_room_for(source)) continue;
        if (before != sync_->forgotten.end()) sync_->forgotten.erase(before);
        sync_->sources.push_back(source);
    }
}

void PeerCore::on_sync_holders(const proto::SyncHolders& message) {
    if (!fetching() || sync_->id != message.sync()) return;
    const std::size_t before = sync_->sources.size();
    add_sources(message.holders());
    if (sync_->sources.size() > before) PROBE(sync_holder_learned);
    activate_sources();
}

// Not every holder has the entries that may differ.
bool PeerCore::helps(const SyncSource& source) const {
    return !sync_->listed || sync_->open_compared != 0 || source.whole;
}

// Connects to as many sources as are used at a time. One that does not help with what is still open takes no place, and one
// that was named last comes before one that the master does not know any more; of those, the one that was not tried for the
// longest time.
void PeerCore::activate_sources() {
    Sync& sync = *sync_;
    std::uint32_t active = 0;
    for (SyncSource& source : sync.sources) {
        if (source.active && !helps(source)) {
            PROBE(sync_source_of_no_help);
            source.active = false;
            if (const auto edge = edges_.find(source.peer); edge != edges_.end()) edge->second.wanted_by_sync = false;
        }
        active += source.active ? 1 : 0;
    }
    const auto together =
        static_cast<std::uint32_t>(std::min<std::size_t>(sync.sources.size(), config_.limits.sources_active_max));
    const auto comes_before = [](const SyncSource& a, const SyncSource& b) {
        return a.named_at != b.named_at ? a.named_at > b.named_at : a.since < b.since;
    };
    for (; active < config_.limits.sources_active_max; ++active) {
        SyncSource* next = nullptr;
        for (SyncSource& source : sync.sources) {
            if (source.active || source.wrongs >= wrongs_max || source.rests_until > turn_.now || !helps(source))
                continue;
            if (next == nullptr || comes_before(source, *next)) next = &source;
        }
        if (next == nullptr) break;
        SyncSource& source = *next;
        source.active = true;
        source.since = source.verified_at = turn_.now;
        Edge& edge = edges_[source.peer];
        edge.wanted_by_sync = true;
        aim_edge(source, edge);
        if (edge.stripes.empty()) edge.stripes.resize(std::max(1u, stripe_count() / together));
    }
    maintain_edges();
    pump_fetch();
}

SyncSource* PeerCore::source_of(const Uuid& peer) {
    for (SyncSource& source : sync_->sources) {
        if (source.peer == peer) return &source;
    }
    return nullptr;
}

// What it was asked for goes to others. `refuted`: it sent what is not the elected state.
void PeerCore::give_up_source(const Uuid& peer, const std::string& why, bool refuted) {
    Sync& sync = *sync_;
    SyncSource* source = source_of(peer);
    if (source == nullptr || !source->active) return;
    PROBE(sync_holder_given_up);
    turn_.log(LogLevel::warn, "peer " + short_name(peer) + " is given up as a source of shared state: " + why);
    source->active = false;
    ++source->given_up;
    if (refuted) ++source->wrongs;
    source->rests_until = turn_.now + config_.timeouts.peer / 2;
    if (const auto edge = edges_.find(peer); edge != edges_.end()) edge->second.wanted_by_sync = false;
    for (auto& [id, link] : links_) {
        if (link.remote == peer && link.receiving.op == sync.id && link.receiving.phase == 2 &&
            !link.receiving.dropped) {
            link.receiving.dropped = true;
            turn_.add(RedirectReceive{id});
        }
    }
    std::erase_if(sync.requests, [&](const SyncRequest& request) {
        // What is being checked may still be right.
        if (request.source != peer || request.step == SyncRequest::Step::checking) return false;
        PROBE(sync_fetched_from_another);
        ask_again(request.entry, request.chunk);
        return true;
    });
    const auto of_peer = [&](LinkId id) {
        const auto link = links_.find(id);
        return link == links_.end() || link->second.remote == peer;
    };
    bool page_lost = false;
    for (const std::uint32_t entry : std::vector<std::uint32_t>(sync.hash_lists)) {
        if (!of_peer(fetch_of(entry)->hash_link)) continue;
        page_lost = true;
        set_hash_link(*fetch_of(entry), 0);
    }
    if (sync.list_link != 0 && of_peer(sync.list_link)) {
        page_lost = true;
        sync.list_link = 0;
    }
    if (page_lost) ask_for_shorter_pages(*source);
    if (sync.whole_holder == peer) begin_anew();
    activate_sources();
}

void PeerCore::ask_again(std::uint32_t entry, std::uint32_t chunk) {
    Fetch& fetch = *fetch_of(entry);
    fetch.asked[chunk] = false;
    fetch.next_request = std::min(fetch.next_request, chunk);
    sync_->first_open = std::min<std::size_t>(sync_->first_open, sync_->fetch_index[entry]);
}

// The entries that may differ, at another holder: what comes from two of them fits no state that anybody had.
void PeerCore::begin_anew() {
    Sync& sync = *sync_;
    if (sync.open_unequal == 0) return;
    sync.whole_holder = Uuid{};
    sync.unequal_verified = 0;
    for (std::size_t i = 0; i < sync.fetches.size(); ++i) {
        Fetch& fetch = sync.fetches[i];
        if (!fetch.any_content) continue;
        if (fetch.done != 0) PROBE(sync_any_content_anew);
        if (!fetch.asked.empty() && fetch.done == fetch.asked.size()) ++sync.open_unequal;
        ++fetch.generation;
        set_hash_link(fetch, 0);
        fetch.hashes.clear();
        fetch.asked.assign(fetch.asked.size(), false);
        fetch.done = fetch.next_request = 0;
        sync.first_open = std::min(sync.first_open, i);
    }
    std::erase_if(sync.requests, [&](const SyncRequest& request) { return fetch_of(request.entry)->any_content; });
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

// ---- requests ------------------------------------------------------------------------------------------------------

namespace {

struct Usable {
    const SyncSource* source;
    std::vector<LinkId> links;
    std::uint32_t requested;
};

}  // namespace

// Each source has the same number of chunks in flight, so it sends as much of the whole as it is fast.
void PeerCore::pump_fetch() {
    if (!fetching()) return;
    if (!sync_->listed) return ask_for_list();
    if (!sync_->staged) return;
    Sync& sync = *sync_;
    const auto cost = [&](std::uint32_t entry, std::uint32_t chunk) {
        return std::uint64_t{chunk_length(entry, chunk)};
    };
    std::uint64_t in_flight = 0;
    for (const SyncRequest& request : sync.requests) in_flight += cost(request.entry, request.chunk);
    const std::uint64_t most = std::uint64_t{config_.limits.chunks_in_flight} * config_.limits.chunk_bytes;
    const auto full = [&] { return in_flight >= most || sync.requests.size() >= config_.limits.chunk_requests_max; };
    std::vector<Usable> usable;
    for (std::size_t i = 0; i < sync.sources.size(); ++i) {
        const SyncSource& source = sync.sources[(first_source() + i) % sync.sources.size()];
        if (!source.active) continue;
        std::vector<LinkId> links = open_links_to(source.peer);
        if (links.empty()) continue;
        const auto here = [&](LinkId link) { return std::find(links.begin(), links.end(), link) != links.end(); };
        const auto chunks = std::count_if(sync.requests.begin(), sync.requests.end(),
                                          [&](const SyncRequest& request) { return request.source == source.peer; });
        const auto lists = std::count_if(sync.hash_lists.begin(), sync.hash_lists.end(),
                                         [&](std::uint32_t entry) { return here(fetch_of(entry)->hash_link); });
        usable.push_back({&source, std::move(links), static_cast<std::uint32_t>(chunks + lists)});
    }
    const auto has_room = [](const Usable& one) { return one.requested < one.source->window; };
    // Entries that come whole from one member come from the longest accepted, which is the first. One that was given up, or
    // that the master does not name any more, is not waited for where there is another.
    const SyncSource* eldest = nullptr;
    for (const SyncSource& source : sync.sources) {
        if (!source.active || !source.whole) continue;
        if (eldest == nullptr || source.given_up < eldest->given_up ||
            (source.given_up == eldest->given_up && source.named_at > eldest->named_at))
            eldest = &source;
    }
    // One that still has as much in its queues as they hold, of before it was given up, keeps nobody from the others.
    const auto choose = [&](const Fetch& fetch, const SyncPart& part) -> std::pair<Usable*, LinkId> {
        std::pair<Usable*, LinkId> best{nullptr, 0};
        const SyncSource* begun = fetch.hashes_known() || fetch.hashes.empty() ? nullptr : source_of(fetch.hashes_from);
        const bool goes_on = begun != nullptr && begun->active;
        for (Usable& candidate : usable) {
            if (fetch.any_content) {
                const bool right = sync.whole_holder.is_nil() ? candidate.source == eldest
                                                              : candidate.source->peer == sync.whole_holder;
                if (!right) continue;
            }
            // Pages of one list come from one holder, until it is given up.
            SyncPart wanted = part;
            if (part.kind == SyncPart::Kind::hashes && candidate.source->peer != fetch.hashes_from) {
                if (goes_on) continue;
                wanted.index = 0;
            }
            if (!has_room(candidate) || (best.first != nullptr && candidate.requested >= best.first->requested))
                continue;
            if (const LinkId link = link_to_ask(candidate.links, wanted); link != 0) best = {&candidate, link};
        }
        return best;
    };
    std::uint32_t lists = 0;
    for (std::size_t i = sync.first_open; i < sync.fetches.size(); ++i) {
        Fetch& fetch = sync.fetches[i];
        if (fetch.next_request >= fetch.asked.size()) {
            if (i == sync.first_open) ++sync.first_open;
            continue;
        }
        if (full() || lists >= config_.limits.hash_lists_in_flight ||
            std::none_of(usable.begin(), usable.end(), has_room))
            return;
        if (fetch.hash_link != 0) {
            ++lists;
            continue;
        }
        if (fetch.any_content && fetch.hashes.empty() && fetch.checking != 0) continue;  // checks of the old beginning
        if (!fetch.hashes_known()) {
            const auto first = static_cast<std::uint32_t>(fetch.hashes.size());
            SyncPart page{sync.id, fetch.entry, first, SyncPart::Kind::hashes};
            const auto [from, link] = choose(fetch, page);
            if (from == nullptr) continue;
            if (from->source->peer != fetch.hashes_from) {
                fetch.hashes.clear();
                page.index = 0;
            }
            if (page.index == 0) ++fetch.list_begun;
            if (fetch.any_content && sync.whole_holder.is_nil()) {
                sync.whole_holder = from->source->peer;
                ++source_of(sync.whole_holder)->begun;
            }
            fetch.hashes_from = from->source->peer;
            ++lists;
            ++from->requested;
            ask_for_page(*source_of(fetch.hashes_from), link, page);
            set_hash_link(fetch, link);
            continue;
        }
        for (; fetch.next_request < fetch.asked.size(); ++fetch.next_request) {
            if (fetch.asked[fetch.next_request]) continue;
            if (full()) return;
            const SyncPart chunk{sync.id, fetch.entry, fetch.next_request};
            const auto [from, link] = choose(fetch, chunk);
            if (from == nullptr) break;
            ++from->requested;
            in_flight += cost(fetch.entry, fetch.next_request);
            fetch.asked[fetch.next_request] = true;
            sync.requests.push_back(
                {SyncRequest::Step::asked, fetch.entry, fetch.next_request, link, from->source->peer});
            ask(link, chunk);
        }
    }
}

// Only what gets this peer further counts: a verified chunk, or more of a list of hashes than ever before. What is asked for
// and lost again, for whatever reason, renews no clock.
void PeerCore::source_moved(const Uuid& peer, std::uint64_t bytes) {
    if (!fetching()) return;
    if (SyncSource* source = source_of(peer); source != nullptr) {
        source->verified_bytes += bytes;
        source->bytes_most = std::max(source->bytes_most, source->verified_bytes);
        if (!source->active) return;
        if (bytes != 0) {
            source->broken_off = 0;
            source->took = turn_.now - source->verified_at;
            for (SyncSource& other : sync_->sources) other.too_slow = false;
        }
        source->since = source->verified_at = turn_.now;
        source->window = std::min<std::uint32_t>(source->window + 1, config_.limits.chunk_requests_max);
        sync_->progress = turn_.now;
    }
}

// A part of a chunk has arrived. Many chunks that share a slow path take longer than a holder may be silent, so their bytes
// count too, but only what is more than there ever was, and not where connections break in it again and again: what has come
// of a chunk is lost with its connection.
void PeerCore::chunk_moved(Link& link, std::uint32_t arrived) {
    if (!fetching() || link.receiving.op != sync_->id || link.receiving.dropped || arrived <= link.arrived) return;
    link.arrived = arrived;
    SyncSource* source = source_of(link.remote);
    if (source == nullptr || !source->active || breaks_off(*source)) return;
    std::uint64_t bytes = source->verified_bytes;
    for (const LinkId id : open_links_to(source->peer)) {
        const Link& other = links_.at(id);
        if (other.receiving.phase == 2 && other.receiving.op == sync_->id && !other.receiving.dropped)
            bytes += other.arrived;
    }
    if (bytes <= source->bytes_most) return;
    PROBE(sync_chunk_takes_long);
    source->bytes_most = bytes;
    source->since = sync_->progress = turn_.now;
}

bool PeerCore::breaks_off(const SyncSource& source) const {
    const auto edge = edges_.find(source.peer);
    const std::size_t stripes = edge == edges_.end() ? 1 : std::max<std::size_t>(edge->second.stripes.size(), 1);
    return source.broken_off > beginnings_max * stripes;
}

// Receivers that know the same holders begin with different ones.
std::size_t PeerCore::first_source() const { return who_.uuid.bytes[0]; }

// Entries that may differ come whole from one holder, so what was verified is dropped when they are begun anew. What is
// fetched again and again is no progress, or a connection that breaks at the same chunk each time is waited for for ever.
bool PeerCore::unequal_moved(const Uuid& peer) {
    const std::size_t verified = ++sync_->unequal_verified;
    SyncSource* source = source_of(peer);
    if (source == nullptr) return false;
    const bool more = verified > source->unequal_most;
    source->unequal_most = std::max(source->unequal_most, verified);
    if (more) source->begun = 1;
    return more || source->begun <= beginnings_max;
}

// ---- landing and checking ------------------------------------------------------------------------------------------

SyncRequest* PeerCore::request_of(std::uint64_t entry, std::uint32_t chunk, LinkId link, SyncRequest::Step step) {
    for (SyncRequest& request : sync_->requests) {
        if (request.entry == entry && request.chunk == chunk && request.link == link && request.step == step)
            return &request;
    }
    return nullptr;
}

BufferRef PeerCore::staged_chunk(const Fetch& fetch, std::uint32_t chunk) const {
    return BufferRef{sync_->staging, fetch.offset + static_cast<std::uint64_t>(chunk) * config_.limits.chunk_bytes,
                     chunk_length(fetch.entry, chunk)};
}

void PeerCore::on_bulk_chunk(LinkId id, Link& link, const wire::BulkHeader& header) {
    answered(link, {header.op, static_cast<std::uint32_t>(header.entry), header.slice});
    SyncRequest* request = fetching() && sync_->id == header.op
                               ? request_of(header.entry, header.slice, id, SyncRequest::Step::asked)
                               : nullptr;
    if (request == nullptr || header.length != chunk_length(request->entry, header.slice)) {
        PROBE(sync_chunk_late);
        ++dead_frames_;
        discard(id, link, header);
        return;
    }
    request->step = SyncRequest::Step::landing;
    link.receiving = Transfer{header.op, 2, header.slice, header.entry, Operation::none, false};
    turn_.add(ReceivePayload{id, staged_chunk(*fetch_of(request->entry), header.slice)});
}

void PeerCore::chunk_landed(LinkId id, const Transfer& transfer, bool ok) {
    if (!fetching() || sync_->id != transfer.op) return;
    SyncRequest* request = request_of(transfer.entry, transfer.slice, id, SyncRequest::Step::landing);
    ASSERT(request != nullptr);
    if (!ok) {
        PROBE(sync_chunk_not_landed);
        if (SyncSource* source = source_of(request->source); source != nullptr) {
            ++source->broken_off;
            if (breaks_off(*source))
                PROBE(sync_chunk_breaks_off);
            else
                source->bytes_most = source->verified_bytes;
        }
        ask_again(request->entry, request->chunk);
        sync_->requests.erase(sync_->requests.begin() + (request - sync_->requests.data()));
        pump_fetch();
        return;
    }
    request->step = SyncRequest::Step::checking;
    Fetch& fetch = *fetch_of(request->entry);
    ++fetch.checking;
    Compute compute;
    compute.kind = Compute::Kind::hash;
    compute.a = staged_chunk(fetch, transfer.slice);
    sync_->received_bytes += compute.a.length;
    ++sync_->computes;
    computes_.request(std::move(compute), ChunkCheck{fetch.entry, transfer.slice, fetch.generation});
}

void PeerCore::chunk_link_lost(LinkId id, const Uuid& remote) {
    if (!sync_) return;
    std::erase_if(sync_->early_requests, [&](const EarlyRequest& request) { return request.link == id; });
    if (!fetching()) return;
    bool asked = false;
    bool page_lost = sync_->list_link == id;
    std::erase_if(sync_->requests, [&](const SyncRequest& request) {
        if (request.link != id || request.step != SyncRequest::Step::asked) return false;
        PROBE(sync_chunk_asked_again);
        asked = true;
        ask_again(request.entry, request.chunk);
        return true;
    });
    for (const std::uint32_t entry : std::vector<std::uint32_t>(sync_->hash_lists)) {
        if (fetch_of(entry)->hash_link != id) continue;
        asked = page_lost = true;
        set_hash_link(*fetch_of(entry), 0);
    }
    SyncSource* source = source_of(remote);
    if (asked && source != nullptr) {
        PROBE(sync_asks_for_little);
        source->window = 1;
    }
    if (page_lost && source != nullptr) ask_for_shorter_pages(*source);
    if (sync_->list_link == id) sync_->list_link = 0;
    pump_fetch();
}

void PeerCore::chunk_checked(const ChunkCheck& check, const Hash128& hash) {
    Fetch& fetch = *fetch_of(check.entry);
    --fetch.checking;
    if (fetch.generation != check.generation || !fetching()) return pump_fetch();
    const auto request = std::find_if(sync_->requests.begin(), sync_->requests.end(), [&](const SyncRequest& r) {
        return r.entry == check.entry && r.chunk == check.chunk && r.step == SyncRequest::Step::checking;
    });
    ASSERT(request != sync_->requests.end());
    const Uuid source = request->source;
    sync_->requests.erase(request);
    const bool right =
        fetch.hashes.empty() ? hash_of_hashes({hash}) == fetch.expected : fetch.hashes[check.chunk] == hash;
    if (!right) {
        PROBE(sync_chunk_wrong);
        ask_again(check.entry, check.chunk);
        give_up_source(source, "a chunk that it sent does not match the hash of the elected state", true);
        pump_fetch();
        return;
    }
    if (fetch.hashes.empty()) fetch.hashes.push_back(hash);
    if (++fetch.done == fetch.asked.size()) --(fetch.any_content ? sync_->open_unequal : sync_->open_compared);
    if (!fetch.any_content || unequal_moved(source)) source_moved(source, chunk_length(check.entry, check.chunk));
    pump_fetch();
    sync_check_end();
}

// ---- clocks and the end vote ---------------------------------------------------------------------------------------

void PeerCore::sync_check_end() {
    Sync& sync = *sync_;
    if (sync.stage != Sync::Stage::transfer || sync.voted_end || !all_fetched()) return;
    vote_sync_end(true, "");
}

void PeerCore::vote_sync_end(bool ok, const std::string& reason) {
    Sync& sync = *sync_;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC_END);
    vote.set_id(sync.id);
    vote.set_ok(ok);
    vote.set_reason(reason);
    sync.voted_end = true;
    sync.holds_all = ok;
    sync.end_serial = cast(vote);
    // Others may fetch from here now; nothing more is fetched.
    release_links_from_sources();
}

void PeerCore::release_links_from_sources() {
    for (auto& [id, link] : links_) {
        if (link.purpose == Purpose::outgoing && link.receiving.phase == 2 && link.receiving.op != 0 &&
            !link.receiving.dropped) {
            link.receiving.dropped = true;
            turn_.add(RedirectReceive{id});
        }
    }
    sync_->requests.clear();
    sync_->list_link = 0;
    for (auto& [target, edge] : edges_) edge.wanted_by_sync = false;
    maintain_edges();
}

void PeerCore::sync_slept(Duration time) {
    if (!sync_) return;
    sync_->progress = std::min(turn_.now, sync_->progress + time);
    for (SyncSource& source : sync_->sources) {
        for (Instant* clock : {&source.since, &source.verified_at}) *clock = std::min(turn_.now, *clock + time);
    }
}

void PeerCore::sync_tick() {
    if (!fetching()) return;
    Sync& sync = *sync_;
    // A master that was started again says nothing of a dead holder until its grace is over.
    const Duration waited = turn_.now - sync.progress;
    const Duration patience = 8 * config_.timeouts.peer + config_.timeouts.grace();
    if (sync.listed && !sync.staged) {
        const auto megabytes = static_cast<Duration>(sync.staging_bytes >> 20);
        if (waited <= patience + megabytes * staging_per_megabyte) return;
        PROBE(sync_no_memory_in_time);
        vote_sync_end(false, "the memory for the incoming state did not come in time");
        return;
    }
    if (waited > patience && master_open()) {
        PROBE(sync_no_holder);
        vote_sync_end(false, "no living member that holds the state could be reached");
        return;
    }
    bool reaches_one = false;
    bool reaches_whole = false;
    Duration quickest_free = never;
    std::vector<Uuid> slow;
    std::vector<std::pair<Uuid, const char*>> stuck;
    for (SyncSource& source : sync.sources) {
        if (!source.active) continue;
        const std::vector<LinkId> links = open_links_to(source.peer);
        const bool busy = std::any_of(sync.requests.begin(), sync.requests.end(),
                                      [&](const SyncRequest& request) { return request.source == source.peer; }) ||
                          std::any_of(links.begin(), links.end(), [&](LinkId id) {
                              return id == sync.list_link ||
                                     std::any_of(sync.hash_lists.begin(), sync.hash_lists.end(),
                                                 [&](std::uint32_t entry) { return fetch_of(entry)->hash_link == id; });
                          });
        reaches_one = reaches_one || !links.empty();
        reaches_whole = reaches_whole || (!links.empty() && source.whole);
        if (!links.empty() && !busy) source.since = source.verified_at = turn_.now;
        if (!links.empty() && !busy && helps(source)) quickest_free = std::min(quickest_free, source.took);
        if (links.empty() && turn_.now - source.since > config_.timeouts.peer)
            stuck.emplace_back(source.peer, "it cannot be reached");
        else if (turn_.now - source.since > 3 * config_.timeouts.peer)
            stuck.emplace_back(source.peer, "nothing came from it for too long");
        else if (turn_.now - source.verified_at > 3 * config_.timeouts.peer)
            slow.push_back(source.peer);
    }
    // Bytes that trickle are waited for where nobody is known to send a chunk in less time than they have taken already, and
    // each holder is left for another one once only until a chunk is there: holders that are all slow would take turns for
    // ever. Entries that may differ come from one.
    for (const Uuid& peer : slow) {
        SyncSource& source = *source_of(peer);
        if (source.too_slow || peer == sync.whole_holder || quickest_free >= turn_.now - source.verified_at) continue;
        source.too_slow = true;
        source.took = never;
        source.bytes_most = source.verified_bytes;  // that it has to begin anew is not its fault
        stuck.emplace_back(peer, "it is slow, and another holder has nothing to do");
    }
    for (const auto& [peer, why] : stuck) give_up_source(peer, why, false);
    if (stuck.empty()) activate_sources();  // some may have rested long enough
    const auto refuted = [](const SyncSource& source) { return source.wrongs >= wrongs_max; };
    if (std::all_of(sync.sources.begin(), sync.sources.end(), refuted) &&
        std::all_of(sync.forgotten.begin(), sync.forgotten.end(),
                    [&](const auto& entry) { return refuted(entry.second); })) {
        vote_sync_end(false, "every member that holds the state sends content that does not match it");
        return;
    }
    // Not every holder has the entries that may differ: one that is no help with what is still open does not count.
    const bool served = sync.listed
                            ? (sync.open_compared == 0 || reaches_one) && (sync.open_unequal == 0 || reaches_whole)
                            : reaches_one;
    if (!served && (turn_.now < sync.next_ask || !master_open())) return;
    sync.next_ask = turn_.now + config_.timeouts.peer / 4;
    if (served) return;
    PROBE(sync_holders_asked);
    proto::PeerMessage message;
    message.set_holders_request(sync.id);
    links_.send(master_link_, message);
}

}  // namespace pccl::core
