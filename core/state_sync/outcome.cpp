// The master's answers to a synchronization: the plan, a withdrawn plan, the outcome; and what was fetched is put in place.
//
// Nothing of the application's memory is written before the outcome is known, so a failed synchronization leaves every
// entry as it was.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

void PeerCore::answer_sync(const proto::SyncAnswer& answer) {
    open_votes_.erase(answer.serial());
    const bool mine = sync_ && sync_->serial != 0 && sync_->serial == answer.serial() && !sync_->outcome;
    if (answer.final() || answer.again()) {
        close_end_votes(answer.sync());
        if (!mine) return;
        if (answer.again()) return withdraw_plan();
        const Result result = result_of(answer.result());
        const bool success = result == Result::success;
        if (success && (sync_->receives || sync_->receives_unequal) && !sync_->holds_all) {
            become_lost("the master ended a synchronization that this peer has not finished", State::lost);
            return;
        }
        Completion completion = success ? Completion{} : failure(result, answer.reason());
        see(answer.view(), completion);
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
    if (sync_->stage == Sync::Stage::voting) begin_transfer(answer);
}

// Nobody is left who holds what was elected: all that live vote once more, with what they held before.
void PeerCore::withdraw_plan() {
    PROBE(sync_votes_again);
    stop_transfer();
    sync_->stage = Sync::Stage::again;
    sync_finish_if_idle();
}

void PeerCore::stop_transfer() {
    Sync& sync = *sync_;
    if (sync.id != 0) release_links(sync.id);
    for (auto& [id, link] : links_) link.serve.clear();
    sync.requests.clear();
    sync.hash_lists.clear();
    sync.list_link = 0;
    sync.early_requests.clear();
    for (auto& [target, edge] : edges_) edge.wanted_by_sync = false;
    // Memory that is still on its way, perhaps for as long as a disk takes, is freed when it comes: the call does not wait.
    if (sync.staging != 0 && !sync.staged) {
        PROBE(sync_over_before_memory);
        abandoned_.insert(sync.staging);
        sync.staging = 0;
        --sync.computes;
    }
    maintain_edges();
}

void PeerCore::on_done(const EntryHash& part, const ComputeDone& done) {
    ASSERT(sync_ && sync_->computes > 0);
    --sync_->computes;
    sync_->chunk_hashes[part.entry][part.chunk] = done.hash;
    if (sync_->stage == Sync::Stage::hashing) pump_hashes();
    sync_finish_if_idle();
}

void PeerCore::on_done(const ChunkCheck& check, const ComputeDone& done) {
    ASSERT(sync_ && sync_->computes > 0);
    --sync_->computes;
    chunk_checked(check, done.hash);
    sync_finish_if_idle();
}

void PeerCore::on_done(const StateCopy&, const ComputeDone&) {
    ASSERT(sync_ && sync_->computes > 0);
    --sync_->computes;
    copy_state();
    sync_finish_if_idle();
}

void PeerCore::sync_decided(Completion outcome, bool apply) {
    Sync& sync = *sync_;
    ASSERT(!sync.outcome);
    if (!sync.requests.empty()) PROBE(sync_ended_in_transfer);
    stop_transfer();
    outcome.sent_bytes = sync.sent_bytes;
    outcome.received_bytes = sync.received_bytes;
    sync.outcome = std::move(outcome);
    sync.stage = apply && !sync.fetches.empty() ? Sync::Stage::applying : Sync::Stage::draining;
    if (sync.stage == Sync::Stage::applying) copy_state();
    sync_finish_if_idle();
}

void PeerCore::copy_state() {
    Sync& sync = *sync_;
    if (sync.stage != Sync::Stage::applying) return;
    while (sync.apply_at < sync.fetches.size() && sync.computes < config_.limits.copies_in_flight) {
        Fetch& fetch = sync.fetches[sync.apply_at];
        const std::uint64_t bytes = entry_bytes(fetch.entry);
        if (fetch.copied == bytes) {
            ++sync.apply_at;
            continue;
        }
        const std::uint64_t length = std::min(config_.limits.copy_bytes, bytes - fetch.copied);
        Compute compute;
        compute.kind = Compute::Kind::copy;
        compute.target = BufferRef{sync.entries[fetch.entry].buffer, fetch.copied, length};
        compute.a = BufferRef{sync.staging, fetch.offset + fetch.copied, length};
        fetch.copied += length;
        ++sync.computes;
        computes_.request(std::move(compute), StateCopy{});
    }
}

void PeerCore::sync_finish_if_idle() {
    if (!sync_ || sync_->computes != 0) return;
    const bool again = sync_->stage == Sync::Stage::again;
    if (!sync_->outcome && !again) return;
    if (sync_->stage == Sync::Stage::applying && sync_->apply_at < sync_->fetches.size()) return;
    if (sync_->staging != 0) memory_.free(sync_->staging);
    if (!again) {
        const Ticket ticket = sync_->ticket;
        Completion outcome = std::move(*sync_->outcome);
        sync_.reset();
        complete(ticket, std::move(outcome));
        return;
    }
    Sync& sync = *sync_;
    sync.id = 0;
    sync.end_serial = 0;
    sync.receives = sync.receives_unequal = sync.listed = false;
    sync.elected.clear();
    sync.fetches.clear();
    sync.fetch_index.clear();
    sync.first_open = sync.open_compared = sync.open_unequal = 0;
    sync.staging = 0;
    sync.staged = sync.voted_end = sync.holds_all = false;
    sync.sources.clear();
    sync.forgotten.clear();
    sync.unequal_verified = 0;
    sync.whole_holder = Uuid{};
    sync.next_ask = 0;
    vote_sync();
}

}  // namespace pccl::core
