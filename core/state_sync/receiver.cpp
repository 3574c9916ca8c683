#include "core/state_sync/receiver.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/state_sync/questions.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {

// A file system that cannot reserve space writes the whole file. A slow disk writes 20 MB in a second.
constexpr Duration staging_per_megabyte = 50 * millisecond;

}  // namespace

SyncReceiver::SyncReceiver(const Parts& parts, const proto::SyncAnswer& plan)
    : turn_(parts.turn), links_(parts.links), computes_(parts.computes), holders_(parts.holders), master_(parts.master),
      who_(parts.who), owner_(parts.owner), content_(parts.content), staging_(parts.staging), counts_(parts.counts),
      id_(plan.sync()), receives_(plan.receives()), receives_unequal_(plan.receives_unequal()),
      elected_content_(hash_of(plan.content())), fetches_(content_), sources_(turn_), progress_(turn_.now),
      next_ask_(turn_.now + turn_.timeouts.hiccup()) {}

void SyncReceiver::take_holders(const Holders& holders) {
    add_sources(holders);
    if (!receives_) list_known();
}

void SyncReceiver::begin() {
    if (fetching()) activate_sources();
    end_if_complete();
}

void SyncReceiver::memory_came(Staging::Came came) {
    if (came == Staging::Came::there) {
        progress_ = turn_.now;  // no holder caused the wait for the memory
        sources_.renew_clocks();
        pump();
    } else if (fetching()) {
        end(false, make_cause<CauseKind::no_memory_for_state>());
    }
}

// ---- sources -------------------------------------------------------------------------------------------------------

std::size_t SyncReceiver::add_sources(const Holders& holders) {
    std::size_t added = 0;
    for (const auto& holder : holders) {
        const SyncSources::Added result = sources_.add(holder, who_.uuid, only_whole());
        if (result == SyncSources::Added::anew) ++added;
        if (result != SyncSources::Added::named_again) continue;
        const SyncSource& known = *sources_.find(uuid_of(holder.peer()));
        if (known.active) holders_.aim_at_holder(known.peer, known.addresses, known.pass);
    }
    return added;
}

// Connects to sources, at most `sources_active_max` at a time. First releases those that cannot help with the open
// fetches.
void SyncReceiver::activate_sources() {
    if (recall_ != 0) return;
    for (SyncSource& source : sources_) {
        if (!source.active || source.helps(only_whole())) continue;
        PROBE(sync_source_of_no_help);
        source.active = false;
        holders_.unwant_holder(source.peer);
    }
    const std::size_t most = turn_.limits.sources_active_max;
    const auto sharers = static_cast<std::uint32_t>(std::min(sources_.size(), most));
    for (std::size_t active = sources_.active(); active < most; ++active) {
        SyncSource* next = sources_.next_to_try(only_whole());
        if (next == nullptr) break;
        next->active = true;
        next->since = next->verified_at = turn_.now;
        holders_.want_holder(next->peer, next->addresses, next->pass, sharers);
    }
    holders_.maintain_edges();
    pump();
}

// The requests to this source go to others. `refuted`: it sent data that is not the elected state.
void SyncReceiver::give_up_source(const Uuid& peer, const std::string& why, bool refuted) {
    SyncSource* source = sources_.find(peer);
    if (source == nullptr || !source->active) return;
    PROBE(sync_holder_given_up);
    turn_.log(LogLevel::warn, formatted("peer {} is given up as a source of shared state: {}", short_name(peer), why));
    source->active = false;
    ++source->given_up;
    if (refuted) ++source->wrongs;
    source->rests_until = turn_.now + turn_.timeouts.quiet();
    holders_.unwant_holder(peer);
    for (auto& [id, link] : links_) {
        if (link.remote == peer && link.receiving.op == id_ && link.receiving.phase == 2 && !link.receiving.dropped) {
            link.receiving.dropped = true;
            turn_.add(RedirectReceive{id});
        }
    }
    std::erase_if(requests_, [&](const SyncRequest& request) {
        // A chunk that has landed and is being checked may still be right.
        if (request.source != peer || request.step == SyncRequest::Step::checking) return false;
        PROBE(sync_fetched_from_another);
        fetches_.ask_again(request.entry, request.chunk);
        return true;
    });
    const auto of_peer = [&](LinkId id) {
        const auto link = links_.find(id);
        return link == links_.end() || link->second.remote == peer;
    };
    bool page_lost = false;
    for (const std::uint32_t entry : std::vector<std::uint32_t>(fetches_.hash_lists())) {
        if (!of_peer(fetches_.find(entry)->hash_link)) continue;
        page_lost = true;
        fetches_.set_hash_link(*fetches_.find(entry), 0);
    }
    if (list_link_ != 0 && of_peer(list_link_)) {
        page_lost = true;
        list_link_ = 0;
    }
    if (page_lost) sources_.shorten_pages(*source);
    if (whole_holder_ == peer) begin_anew();
    activate_sources();
}

// Restarts the entries that may differ, with another holder. Chunks from two holders would give a state that no member
// ever had.
void SyncReceiver::begin_anew() {
    if (fetches_.open_unequal() == 0) return;
    whole_holder_ = Uuid{};
    unequal_verified_ = 0;
    fetches_.begin_unequal_anew();
    std::erase_if(requests_, [&](const SyncRequest& request) { return fetches_.find(request.entry)->any_content; });
}

// ---- requests ------------------------------------------------------------------------------------------------------

namespace {

struct Usable {
    const SyncSource* source;
    std::vector<LinkId> links;
    std::uint32_t requested;
};

}  // namespace

// Keeps about the same number of requests in flight to each source, so a faster source sends a larger share.
void SyncReceiver::pump() {
    if (!fetching() || recall_ != 0) return;
    if (!listed_) return ask_for_list();
    if (!staging_.there()) return;
    const auto cost = [&](std::uint32_t entry, std::uint32_t chunk) {
        return std::uint64_t{content_.chunk_length(entry, chunk)};
    };
    std::uint64_t in_flight = 0;
    for (const SyncRequest& request : requests_) in_flight += cost(request.entry, request.chunk);
    const std::uint64_t most = std::uint64_t{turn_.limits.chunks_in_flight} * turn_.limits.chunk_bytes;
    const auto full = [&] { return in_flight >= most || requests_.size() >= turn_.limits.chunk_requests_max; };
    std::vector<Usable> usable;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const SyncSource& source = sources_[(first_source() + i) % sources_.size()];
        if (!source.active) continue;
        std::vector<LinkId> links = holders_.open_links_to(source.peer);
        if (links.empty()) continue;
        const auto here = [&](LinkId link) { return std::find(links.begin(), links.end(), link) != links.end(); };
        const auto chunks = std::count_if(requests_.begin(), requests_.end(),
                                          [&](const SyncRequest& request) { return request.source == source.peer; });
        const auto lists = std::count_if(fetches_.hash_lists().begin(), fetches_.hash_lists().end(),
                                         [&](std::uint32_t entry) { return here(fetches_.find(entry)->hash_link); });
        usable.push_back({&source, std::move(links), static_cast<std::uint32_t>(chunks + lists)});
    }
    const auto has_room = [](const Usable& one) { return one.requested < one.source->window; };
    // Entries that may differ come from one whole holder: the longest accepted member, which is first in the table. A
    // source that was given up less often, or that the master named later, comes before it.
    const SyncSource* eldest = nullptr;
    for (const SyncSource& source : sources_) {
        if (!source.active || !source.whole) continue;
        if (eldest == nullptr || source.given_up < eldest->given_up ||
            (source.given_up == eldest->given_up && source.named_at > eldest->named_at))
            eldest = &source;
    }
    // A source is skipped if its links still owe as many parts as they may, from before it was given up. The others
    // then get the requests.
    const auto choose = [&](const SyncFetch& fetch, const SyncPart& part) -> std::pair<Usable*, LinkId> {
        std::pair<Usable*, LinkId> best{nullptr, 0};
        const SyncSource* begun =
            fetch.hashes_known() || fetch.hashes.empty() ? nullptr : sources_.find(fetch.hashes_from);
        const bool goes_on = begun != nullptr && begun->active;
        for (Usable& candidate : usable) {
            if (fetch.any_content) {
                const bool right =
                    whole_holder_.is_nil() ? candidate.source == eldest : candidate.source->peer == whole_holder_;
                if (!right) continue;
            }
            // All pages of one list come from one holder, until that holder is given up.
            SyncPart wanted = part;
            if (part.kind == SyncPart::Kind::hashes && candidate.source->peer != fetch.hashes_from) {
                if (goes_on) continue;
                wanted.index = 0;
            }
            if (!has_room(candidate) || (best.first != nullptr && candidate.requested >= best.first->requested))
                continue;
            if (const LinkId link = link_to_ask(links_, candidate.links, wanted, turn_.limits.chunk_requests_max);
                link != 0)
                best = {&candidate, link};
        }
        return best;
    };
    std::uint32_t lists = 0;
    for (std::size_t i = fetches_.first_open(); i < fetches_.size(); ++i) {
        SyncFetch& fetch = fetches_[i];
        if (fetch.next_request >= fetch.asked.size()) {
            fetches_.requested(i);
            continue;
        }
        if (full() || lists >= turn_.limits.hash_lists_in_flight ||
            std::none_of(usable.begin(), usable.end(), has_room))
            return;
        if (fetch.hash_link != 0) {
            ++lists;
            continue;
        }
        // After a restart, the checks of earlier chunks must end first: they still read the staging buffer.
        if (fetch.any_content && fetch.hashes.empty() && fetch.checking != 0) continue;
        if (!fetch.hashes_known()) {
            const auto first = static_cast<std::uint32_t>(fetch.hashes.size());
            SyncPart page{id_, fetch.entry, first, SyncPart::Kind::hashes};
            const auto [from, link] = choose(fetch, page);
            if (from == nullptr) continue;
            if (from->source->peer != fetch.hashes_from) {
                fetch.hashes.clear();
                page.index = 0;
            }
            if (page.index == 0) ++fetch.list_begun;
            if (fetch.any_content && whole_holder_.is_nil()) {
                whole_holder_ = from->source->peer;
                ++sources_.find(whole_holder_)->begun;
            }
            fetch.hashes_from = from->source->peer;
            ++lists;
            ++from->requested;
            ask_for_page(*sources_.find(fetch.hashes_from), link, page);
            fetches_.set_hash_link(fetch, link);
            continue;
        }
        for (; fetch.next_request < fetch.asked.size(); ++fetch.next_request) {
            if (fetch.asked[fetch.next_request]) continue;
            if (full()) return;
            const SyncPart chunk{id_, fetch.entry, fetch.next_request};
            const auto [from, link] = choose(fetch, chunk);
            if (from == nullptr) break;
            ++from->requested;
            in_flight += cost(fetch.entry, fetch.next_request);
            fetch.asked[fetch.next_request] = true;
            requests_.push_back({SyncRequest::Step::asked, fetch.entry, fetch.next_request, link, from->source->peer});
            ask(links_, link, chunk);
        }
    }
}

// Only real progress renews the clocks: a verified chunk, or a list of hashes that is longer than ever before (for
// exceptions see `beginnings_max`). Data that was requested and lost again renews no clock, whatever the reason.
void SyncReceiver::source_moved(const Uuid& peer, std::uint64_t bytes) {
    if (!fetching()) return;
    if (SyncSource* source = sources_.find(peer); source != nullptr) {
        source->verified_bytes += bytes;
        source->bytes_most = std::max(source->bytes_most, source->verified_bytes);
        if (!source->active) return;
        if (bytes != 0) {
            source->broken_off = 0;
            source->took = turn_.now - source->verified_at;
            sources_.chunk_came();
        }
        source->since = source->verified_at = turn_.now;
        source->window = std::min<std::uint32_t>(source->window + 1, turn_.limits.chunk_requests_max);
        progress_ = turn_.now;
    }
}

// A part of a chunk has arrived. Many chunks that share a slow path may take longer than a holder may be silent, so the
// bytes of incomplete chunks count as progress too. But only the bytes above the highest total so far count. They do
// not count if connections break in the middle of chunks again and again: an incomplete chunk is lost with its
// connection.
void SyncReceiver::chunk_moved(Link& link, std::uint32_t arrived) {
    if (!fetching() || link.receiving.op != id_ || link.receiving.dropped || arrived <= link.arrived) return;
    link.arrived = arrived;
    SyncSource* source = sources_.find(link.remote);
    if (source == nullptr || !source->active || breaks_off(*source)) return;
    std::uint64_t bytes = source->verified_bytes;
    for (const LinkId id : holders_.open_links_to(source->peer)) {
        const Link& other = links_.at(id);
        if (other.receiving.phase == 2 && other.receiving.op == id_ && !other.receiving.dropped) bytes += other.arrived;
    }
    if (bytes <= source->bytes_most) return;
    PROBE(sync_chunk_takes_long);
    source->bytes_most = bytes;
    source->since = progress_ = turn_.now;
}

bool SyncReceiver::breaks_off(const SyncSource& source) const {
    return source.broken_off > beginnings_max * holders_.stripes_to(source.peer);
}

// Returns whether a verified chunk of an entry that may differ is progress. These entries come whole from one holder,
// so a restart drops their verified chunks. Chunks that are fetched again and again are no progress. Otherwise the
// receiver would wait for ever for a connection that breaks at the same chunk each time.
bool SyncReceiver::unequal_moved(const Uuid& peer) {
    const std::size_t verified = ++unequal_verified_;
    SyncSource* source = sources_.find(peer);
    if (source == nullptr) return false;
    const bool more = verified > source->unequal_most;
    source->unequal_most = std::max(source->unequal_most, verified);
    if (more) source->begun = 1;
    return more || source->begun <= beginnings_max;
}

// ---- landing and checking ------------------------------------------------------------------------------------------

SyncRequest* SyncReceiver::request_of(std::uint64_t entry, std::uint32_t chunk, LinkId link, SyncRequest::Step step) {
    for (SyncRequest& request : requests_) {
        if (request.entry == entry && request.chunk == chunk && request.link == link && request.step == step)
            return &request;
    }
    return nullptr;
}

BufferRef SyncReceiver::staged_chunk(const SyncFetch& fetch, std::uint32_t chunk) const {
    return staging_.at(fetch.offset + static_cast<std::uint64_t>(chunk) * turn_.limits.chunk_bytes,
                       content_.chunk_length(fetch.entry, chunk));
}

bool SyncReceiver::chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header) {
    if (!fetching() || id_ != header.op) return false;
    SyncRequest* request = request_of(header.entry, header.slice, id, SyncRequest::Step::asked);
    if (request == nullptr || header.length != content_.chunk_length(request->entry, header.slice)) return false;
    request->step = SyncRequest::Step::landing;
    link.receiving = Transfer{header.op, 2, header.slice, header.entry, Transfer::no_cell, false};
    turn_.add(ReceivePayload{id, staged_chunk(*fetches_.find(request->entry), header.slice)});
    return true;
}

void SyncReceiver::chunk_landed(LinkId id, const Transfer& transfer, bool ok) {
    if (!fetching() || id_ != transfer.op) return;
    SyncRequest* request = request_of(transfer.entry, transfer.slice, id, SyncRequest::Step::landing);
    ASSERT(request != nullptr);
    if (!ok) {
        PROBE(sync_chunk_not_landed);
        if (SyncSource* source = sources_.find(request->source); source != nullptr) {
            ++source->broken_off;
            if (breaks_off(*source))
                PROBE(sync_chunk_breaks_off);
            else
                source->bytes_most = source->verified_bytes;
        }
        fetches_.ask_again(request->entry, request->chunk);
        requests_.erase(requests_.begin() + (request - requests_.data()));
        pump();
        return;
    }
    request->step = SyncRequest::Step::checking;
    SyncFetch& fetch = *fetches_.find(request->entry);
    ++fetch.checking;
    Compute compute;
    compute.kind = Compute::Kind::hash;
    compute.a = staged_chunk(fetch, transfer.slice);
    counts_.received_bytes += compute.a.length;
    ++counts_.computes;
    computes_.request(std::move(compute), ChunkCheck{fetch.entry, transfer.slice, fetch.generation});
}

void SyncReceiver::link_lost(LinkId id, const Uuid& remote) {
    if (!fetching()) return;
    bool asked = false;
    bool page_lost = list_link_ == id;
    std::erase_if(requests_, [&](const SyncRequest& request) {
        if (request.link != id || request.step != SyncRequest::Step::asked) return false;
        PROBE(sync_chunk_asked_again);
        asked = true;
        fetches_.ask_again(request.entry, request.chunk);
        return true;
    });
    for (const std::uint32_t entry : std::vector<std::uint32_t>(fetches_.hash_lists())) {
        if (fetches_.find(entry)->hash_link != id) continue;
        asked = page_lost = true;
        fetches_.set_hash_link(*fetches_.find(entry), 0);
    }
    SyncSource* source = sources_.find(remote);
    if (asked && source != nullptr) {
        PROBE(sync_asks_for_little);
        source->window = 1;
    }
    if (page_lost && source != nullptr) sources_.shorten_pages(*source);
    if (list_link_ == id) list_link_ = 0;
    pump();
}

void SyncReceiver::chunk_checked(const ChunkCheck& check, const Hash128& hash) {
    SyncFetch& fetch = *fetches_.find(check.entry);
    --fetch.checking;
    if (fetch.generation != check.generation || !fetching()) return pump();
    const auto request = std::find_if(requests_.begin(), requests_.end(), [&](const SyncRequest& r) {
        return r.entry == check.entry && r.chunk == check.chunk && r.step == SyncRequest::Step::checking;
    });
    ASSERT(request != requests_.end());
    const Uuid source = request->source;
    requests_.erase(request);
    const bool right =
        fetch.hashes.empty() ? hash_of_hashes({hash}) == fetch.expected : fetch.hashes[check.chunk] == hash;
    if (!right) {
        PROBE(sync_chunk_wrong);
        fetches_.ask_again(check.entry, check.chunk);
        give_up_source(source, "a chunk that it sent does not match the hash of the elected state", true);
        pump();
        return answer_recall();
    }
    if (fetch.hashes.empty()) fetch.hashes.push_back(hash);
    fetches_.verified(fetch);
    if (!fetch.any_content || unequal_moved(source))
        source_moved(source, content_.chunk_length(check.entry, check.chunk));
    pump();
    end_if_complete();
    answer_recall();
}

void SyncReceiver::declined(const Uuid& peer, OpId sync) {
    if (fetching() && id_ == sync) give_up_source(peer, "it declined", false);
}

// ---- when no holder is left -----------------------------------------------------------------------------------------

// Until the master names holders again, or withdraws the plan.
void SyncReceiver::holders_named(const proto::SyncHolders& message) {
    if (!fetching()) return;
    if (message.recall() != 0) return recalled(message.recall());
    if (add_sources(message.holders()) != 0) PROBE(sync_holder_learned);
    if (recall_ != 0 && message.holders().empty()) return;
    if (std::exchange(recall_, 0) != 0) {
        PROBE(sync_goes_on_after_recall);
        progress_ = turn_.now;
        sources_.renew_clocks();
        // What it had before may have come from a holder that is gone.
        if (!whole_holder_.is_nil() && holders_.open_links_to(whole_holder_).empty())
            give_up_source(whole_holder_, "it is gone", false);
    }
    activate_sources();
}

// Chunks that have landed are checked. What has not landed is requested again when holders are named.
void SyncReceiver::recalled(std::uint64_t number) {
    PROBE(sync_recalled);
    recall_ = number;
    progress_ = turn_.now;
    discard_arriving();
    std::erase_if(requests_, [&](const SyncRequest& request) {
        if (request.step == SyncRequest::Step::checking) return false;
        fetches_.ask_again(request.entry, request.chunk);
        return true;
    });
    for (const std::uint32_t entry : std::vector<std::uint32_t>(fetches_.hash_lists()))
        fetches_.set_hash_link(*fetches_.find(entry), 0);
    list_link_ = 0;
    answer_recall();
}

void SyncReceiver::answer_recall() {
    if (recall_ == 0 || !fetching() || !requests_.empty()) return;
    PROBE(sync_recall_answered);
    ask_for_holders(recall_);
}

void SyncReceiver::ask_for_holders(std::uint64_t recalled) {
    proto::PeerMessage message;
    message.set_holders_request(id_);
    message.set_recalled(recalled);
    master_.tell(message);
}

// ---- clocks and the end vote ---------------------------------------------------------------------------------------

void SyncReceiver::end_if_complete() {
    if (!stopped_ && !voted_end_ && only_whole() && fetches_.open_unequal() == 0) end(true, {});
}

void SyncReceiver::end(bool ok, const Cause& cause) {
    voted_end_ = true;
    holds_all_ = ok;
    owner_.fetched(ok, cause);
    // This peer fetches nothing more. If `ok`, others may fetch from it now.
    discard_arriving();
    let_go();
    holders_.maintain_edges();
}

void SyncReceiver::discard_arriving() {
    for (auto& [id, link] : links_) {
        if (link.purpose == Link::Purpose::outgoing && link.receiving.phase == 2 && link.receiving.op != 0 &&
            !link.receiving.dropped) {
            link.receiving.dropped = true;
            turn_.add(RedirectReceive{id});
        }
    }
}

void SyncReceiver::stop() {
    stopped_ = true;
    links_.release(id_);
    fetches_.await_no_lists();
    if (staging_.abandon_if_awaited()) --counts_.computes;
    let_go();
}

void SyncReceiver::let_go() {
    requests_.clear();
    list_link_ = 0;
    holders_.unwant_all_holders();
}

void SyncReceiver::slept(Duration time) {
    progress_ = std::min(turn_.now, progress_ + time);
    sources_.slept(time);
}

void SyncReceiver::tick() {
    if (!fetching()) return;
    // A restarted master does not report that a holder is dead before its grace is over. The patience includes that
    // time.
    const Duration waited = turn_.now - progress_;
    const Duration patience = turn_.timeouts.without_holders();
    if (listed_ && !staging_.there()) {
        const auto megabytes = static_cast<Duration>(staging_.bytes() >> 20);
        if (waited <= patience + megabytes * staging_per_megabyte) return;
        PROBE(sync_no_memory_in_time);
        end(false, make_cause<CauseKind::memory_late>());
        return;
    }
    if (waited > patience && master_.master_open()) {
        PROBE(sync_no_holder);
        end(false, make_cause<CauseKind::no_holder_left>());
        return;
    }
    if (recall_ != 0) {
        if (turn_.now < next_ask_) return;
        next_ask_ = turn_.now + turn_.timeouts.hiccup();
        return ask_for_holders(0);
    }
    bool reaches_one = false;
    bool reaches_whole = false;
    Duration quickest_free = never;
    std::vector<Uuid> slow;
    std::vector<std::pair<Uuid, const char*>> stuck;
    for (SyncSource& source : sources_) {
        if (!source.active) continue;
        const std::vector<LinkId> links = holders_.open_links_to(source.peer);
        const bool busy =
            std::any_of(requests_.begin(), requests_.end(),
                        [&](const SyncRequest& request) { return request.source == source.peer; }) ||
            std::any_of(links.begin(), links.end(), [&](LinkId id) {
                return id == list_link_ ||
                       std::any_of(fetches_.hash_lists().begin(), fetches_.hash_lists().end(),
                                   [&](std::uint32_t entry) { return fetches_.find(entry)->hash_link == id; });
            });
        reaches_one = reaches_one || !links.empty();
        reaches_whole = reaches_whole || (!links.empty() && source.whole);
        if (!links.empty() && !busy) source.since = source.verified_at = turn_.now;
        if (!links.empty() && !busy && source.helps(only_whole())) quickest_free = std::min(quickest_free, source.took);
        if (links.empty() && turn_.now - source.since > turn_.timeouts.peer)
            stuck.emplace_back(source.peer, "it cannot be reached");
        else if (turn_.now - source.since > turn_.timeouts.starved())
            stuck.emplace_back(source.peer, "nothing came from it for too long");
        else if (turn_.now - source.verified_at > turn_.timeouts.starved())
            slow.push_back(source.peer);
    }
    // A slow source is given up only if a source without requests took less time for its last chunk than this one has
    // taken already. Each source is given up in this way only once until a chunk arrives: holders that are all slow
    // would otherwise take turns for ever. The whole holder is kept, because entries that may differ come from one
    // holder.
    for (const Uuid& peer : slow) {
        SyncSource& source = *sources_.find(peer);
        if (source.too_slow || peer == whole_holder_ || quickest_free >= turn_.now - source.verified_at) continue;
        source.too_slow = true;
        source.took = never;
        source.bytes_most = source.verified_bytes;  // the source did not cause its restart
        stuck.emplace_back(peer, "it is slow, and another holder has nothing to do");
    }
    for (const auto& [peer, why] : stuck) give_up_source(peer, why, false);
    if (stuck.empty()) activate_sources();  // some sources may have rested long enough
    if (sources_.all_refuted()) {
        end(false, make_cause<CauseKind::holders_wrong>());
        return;
    }
    // Not every holder has the entries that may differ. A holder that cannot help with the open fetches does not count.
    const bool served =
        listed_ ? (fetches_.open_compared() == 0 || reaches_one) && (fetches_.open_unequal() == 0 || reaches_whole)
                : reaches_one;
    if (!served && (turn_.now < next_ask_ || !master_.master_open())) return;
    next_ask_ = turn_.now + turn_.timeouts.hiccup();
    if (served) return;
    PROBE(sync_holders_asked);
    ask_for_holders(0);
}

void SyncReceiver::check() const {
    sources_.check();
    fetches_.check();
}

}  // namespace pccl::core
