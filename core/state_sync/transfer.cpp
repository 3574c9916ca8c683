#include "core/state_sync/transfer.hpp"

#include "core/base/assert.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/state_sync/questions.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

// ---- the call ------------------------------------------------------------------------------------------------------

Cause SyncTransfer::begin(const CommandSync& command, std::uint32_t key_bytes_max) {
    SyncContent content(turn_.limits, command.entries);
    if (Cause why = content.impossible(key_bytes_max); !why.empty()) return why;
    call_.emplace(command, std::move(content));
    pump_hashes();
    return {};
}

void SyncTransfer::pump_hashes() {
    Call& call = *call_;
    if (call.stage != Stage::hashing) return;
    while (call.counts.computes < turn_.limits.hashes_in_flight) {
        const auto next = call.content.next_unhashed();
        if (!next) break;
        Compute compute;
        compute.kind = Compute::Kind::hash;
        compute.a = call.content.chunk(next->entry, next->chunk);
        ++call.counts.computes;
        computes_.request(std::move(compute), EntryHash{next->entry, next->chunk});
    }
    if (call.counts.computes == 0) vote();
}

void SyncTransfer::vote() {
    Call& call = *call_;
    call.stage = Stage::voting;
    call.content.all_hashed();
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC);
    vote.set_revision(call.revision);
    vote.set_strategy(static_cast<std::uint32_t>(call.strategy));
    vote.set_entries(call.content.size());
    vote.set_unequal(call.content.has_unequal());
    write(call.content.schema(), *vote.mutable_schema());
    write(call.content.digest(call.content.hashes()), *vote.mutable_content());
    call.serial = master_.cast(vote);
}

void SyncTransfer::run_lost(const Cause& cause) {
    if (!call_) return;
    if (!call_->outcome) {
        PROBE(lost_in_sync);
        decided(failure(Result::invalid_usage, cause), false);
        return;
    }
    if (call_->stage == Stage::applying) PROBE(lost_while_applying);
    call_->outcome->epoch = 0;
}

// ---- the master ----------------------------------------------------------------------------------------------------

void SyncTransfer::send_keys(Serial serial, std::uint32_t first, std::uint32_t bytes_most) {
    if (!call_ || call_->serial != serial || call_->stage != Stage::voting || first >= call_->content.size()) return;
    PROBE(sync_pages_sent);
    if (first != 0) PROBE(sync_second_page_sent);
    proto::PeerMessage message;
    auto* page = message.mutable_page();
    page->set_serial(serial);
    page->set_first(first);
    std::size_t bytes = 0;
    for (std::uint32_t next = first; next < call_->content.size(); ++next) {
        const StateEntry& entry = call_->content.entries()[next];
        bytes += entry.name.size() + key_overhead;
        if (bytes > bytes_most && next != first) break;
        auto* key = page->add_entries();
        // A restarted master may have a lower limit than the one that begin() checked. Then the name is cut.
        key->set_name(entry.name.substr(0, bytes_most - key_overhead));
        key->set_count(entry.count);
        key->set_type(static_cast<std::uint32_t>(entry.type));
        key->set_allow_content_inequality(entry.allow_content_inequality);
    }
    master_.tell(message);
}

void SyncTransfer::answered(const proto::Answer& answer) {
    const proto::SyncAnswer& sync = answer.sync();
    const bool mine = call_ && call_->serial != 0 && call_->serial == answer.serial() && !call_->outcome;
    if (!mine) {
        if (sync.final() || sync.again()) return;
        proto::Vote vote;
        vote.set_kind(proto::VOTE_SYNC_END);
        vote.set_id(sync.sync());
        write(make_cause<CauseKind::not_synchronized_here>(), *vote.mutable_cause());
        master_.cast(vote);
        return;
    }
    if (sync.again()) {
        // No living member holds the elected state. All living members vote again, with the content that they had
        // before.
        PROBE(sync_votes_again);
        stop_plan();
        call_->stage = Stage::again;
        finish_if_idle();
    } else if (sync.final()) {
        Completion completion = completion_of(answer);
        const bool success = completion.result == Result::success;
        const auto& plan = call_->plan;
        if (success && plan && plan->receiver.lacks_something() && !plan->receiver.holds_all()) {
            owner_.run_contradicts(make_cause<CauseKind::master_contradicts_sync>());
            return;
        }
        completion.revision = success ? sync.revision() : call_->revision;
        decided(std::move(completion), success);
    } else if (call_->stage == Stage::voting) {
        begin_plan(sync);
    }
}

void SyncTransfer::begin_plan(const proto::SyncAnswer& answer) {
    Call& call = *call_;
    call.stage = Stage::transfer;
    for (auto& [id, link] : links_) link.owed.clear();  // no holder serves an earlier synchronization
    const SyncReceiver::Parts parts{turn_, links_, computes_,    holders_, master_,
                                    who_,  *this,  call.content, staging_, call.counts};
    Plan& plan = call.plan.emplace(parts, answer, call.strategy != SyncStrategy::receive_only);
    plan.receiver.take_holders(answer.holders());
    for (const EarlyRequest& early : std::exchange(call.early_requests, {})) {
        if (early.part.sync == answer.sync() && links_.contains(early.link)) plan.sender.serve(early.link, early.part);
    }
    plan.receiver.begin();
}

void SyncTransfer::fetched(bool ok, const Cause& cause) {
    proto::Vote vote;
    vote.set_kind(proto::VOTE_SYNC_END);
    vote.set_id(call_->plan->receiver.id());
    vote.set_ok(ok);
    if (!cause.empty()) write(cause, *vote.mutable_cause());
    master_.cast(vote);
}

void SyncTransfer::holders_named(const proto::SyncHolders& message) {
    if (call_ && call_->plan && call_->plan->receiver.id() == message.sync())
        call_->plan->receiver.holders_named(message);
}

void SyncTransfer::stop_plan() {
    call_->early_requests.clear();
    if (call_->plan) {
        call_->plan->sender.stop();
        call_->plan->receiver.stop();
    }
    holders_.maintain_edges();
}

// ---- other members -------------------------------------------------------------------------------------------------

bool SyncTransfer::part_message(LinkId id, const proto::LinkMessage& message) {
    const bool request = message.has_part_request();
    const proto::SyncPart& from = request ? message.part_request() : message.part_decline();
    if (!proto::SyncPart::Kind_IsValid(from.kind())) return false;
    const SyncPart part = part_of(from);
    if (!request) {
        // The request came too early, there were too many, or the other end does not hold the part (any more).
        core::answered(links_.at(id), part);
        if (call_ && call_->plan) call_->plan->receiver.declined(links_.at(id).remote, part.sync);
    } else if (!keep_early(id, part)) {
        if (call_ && call_->plan)
            call_->plan->sender.serve(id, part);
        else
            decline(links_, id, part);
    }
    return true;
}

bool SyncTransfer::keep_early(LinkId id, const SyncPart& part) {
    if (!call_ || call_->stage > Stage::voting || call_->early_requests.size() >= turn_.limits.early_requests_max)
        return false;
    PROBE(sync_request_early);
    call_->early_requests.push_back({id, part});
    return true;
}

void SyncTransfer::page_arrived(LinkId id, const proto::HashPage& page) {
    const SyncPart part = page.of_entries() ? SyncPart{page.sync(), 0, page.first(), SyncPart::Kind::entry_list}
                                            : SyncPart{page.sync(), page.entry(), page.first(), SyncPart::Kind::hashes};
    core::answered(links_.at(id), part);
    if (call_ && call_->plan) call_->plan->receiver.page_arrived(id, page);
}

bool SyncTransfer::chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header) {
    core::answered(link, {header.op, static_cast<std::uint32_t>(header.entry), header.slice});
    if (call_ && call_->plan && call_->plan->receiver.chunk_arrives(id, link, header)) return true;
    PROBE(sync_chunk_late);
    return false;
}

void SyncTransfer::chunk_moved(Link& link, std::uint32_t arrived) {
    if (call_ && call_->plan) call_->plan->receiver.chunk_moved(link, arrived);
}

void SyncTransfer::chunk_landed(LinkId id, const Transfer& transfer, bool ok) {
    if (call_ && call_->plan) call_->plan->receiver.chunk_landed(id, transfer, ok);
}

void SyncTransfer::chunk_sent(const Transfer& transfer) {
    if (!call_ || !call_->plan || call_->plan->receiver.id() != transfer.op) return;
    call_->counts.sent_bytes += call_->content.chunk_length(static_cast<std::uint32_t>(transfer.entry), transfer.slice);
}

void SyncTransfer::send_next_chunk(LinkId id, Link& link) {
    if (link.serve.empty()) return;
    ASSERT(call_ && call_->plan);
    call_->plan->sender.send_next_chunk(id, link);
}

void SyncTransfer::connected() {
    if (call_ && call_->plan) call_->plan->receiver.connected();
}

void SyncTransfer::link_lost(LinkId id, const Uuid& remote) {
    if (!call_) return;
    std::erase_if(call_->early_requests, [&](const EarlyRequest& request) { return request.link == id; });
    if (call_->plan) call_->plan->receiver.link_lost(id, remote);
}

// ---- computes, memory and time -------------------------------------------------------------------------------------

void SyncTransfer::compute_done() {
    ASSERT(call_ && call_->counts.computes > 0);
    --call_->counts.computes;
}

void SyncTransfer::done(const EntryHash& part, const ComputeDone& done) {
    compute_done();
    call_->content.hashed({part.entry, part.chunk}, done.hash);
    pump_hashes();
    finish_if_idle();
}

void SyncTransfer::done(const ChunkCheck& check, const ComputeDone& done) {
    compute_done();
    call_->plan->receiver.chunk_checked(check, done.hash);
    finish_if_idle();
}

void SyncTransfer::done(const StateCopy&, const ComputeDone&) {
    compute_done();
    copy_state();
    finish_if_idle();
}

void SyncTransfer::memory_came(const BufferAllocated& event) {
    const Staging::Came came = staging_.came(event);
    if (came == Staging::Came::for_nobody) return;
    compute_done();
    call_->plan->receiver.memory_came(came);
    finish_if_idle();
}

void SyncTransfer::slept(Duration time) {
    if (call_ && call_->plan) call_->plan->receiver.slept(time);
}

void SyncTransfer::tick() {
    if (call_ && call_->plan) call_->plan->receiver.tick();
}

// ---- the outcome ---------------------------------------------------------------------------------------------------

void SyncTransfer::decided(Completion outcome, bool apply) {
    Call& call = *call_;
    ASSERT(!call.outcome);
    if (call.plan && call.plan->receiver.requests() != 0) PROBE(sync_ended_in_transfer);
    stop_plan();
    outcome.sent_bytes = call.counts.sent_bytes;
    outcome.received_bytes = call.counts.received_bytes;
    call.outcome = std::move(outcome);
    call.stage = apply && call.plan && !call.plan->receiver.fetches().empty() ? Stage::applying : Stage::draining;
    copy_state();
    finish_if_idle();
}

void SyncTransfer::copy_state() {
    Call& call = *call_;
    if (call.stage != Stage::applying) return;
    Plan& plan = *call.plan;
    std::vector<SyncFetch>& fetches = plan.receiver.fetches();
    while (plan.apply_at < fetches.size() && call.counts.computes < turn_.limits.copies_in_flight) {
        SyncFetch& fetch = fetches[plan.apply_at];
        const std::uint64_t bytes = call.content.bytes(fetch.entry);
        if (fetch.copied == bytes) {
            ++plan.apply_at;
            continue;
        }
        const std::uint64_t length = std::min(turn_.limits.copy_bytes, bytes - fetch.copied);
        Compute compute;
        compute.kind = Compute::Kind::copy;
        compute.target = BufferRef{call.content.entries()[fetch.entry].buffer, fetch.copied, length};
        compute.a = staging_.at(fetch.offset + fetch.copied, length);
        fetch.copied += length;
        ++call.counts.computes;
        computes_.request(std::move(compute), StateCopy{});
    }
}

void SyncTransfer::finish_if_idle() {
    if (!call_ || call_->counts.computes != 0) return;
    if (!call_->outcome && call_->stage != Stage::again) return;
    if (call_->stage == Stage::applying && call_->plan->apply_at < call_->plan->receiver.fetches().size()) return;
    staging_.free();
    if (call_->stage == Stage::again) {
        call_->plan.reset();
        vote();
        return;
    }
    const Ticket ticket = call_->ticket;
    Completion outcome = std::move(*call_->outcome);
    call_.reset();
    tickets_.complete(ticket, std::move(outcome));
}

// ---- observation ---------------------------------------------------------------------------------------------------

void SyncTransfer::describe(Packed& state) const {
    const SyncReceiver* receiver = call_ && call_->plan ? &call_->plan->receiver : nullptr;
    state.count(receiver != nullptr ? receiver->sources_active() : 0, 2);
    if (receiver != nullptr)
        state.flags(receiver->receives(), receiver->receives_unequal(), receiver->listed(), receiver->requests() != 0,
                    receiver->voted(), receiver->holds_all());
    else
        state.count(0, 6);
    state.flags(call_ && !call_->early_requests.empty());
}

void SyncTransfer::check() const {
    if (!call_) return;
    const Call& call = *call_;
    const bool over = call.stage == Stage::applying || call.stage == Stage::draining;
    ASSERT(over == call.outcome.has_value());
    ASSERT(call.stage != Stage::transfer || call.plan);
    ASSERT(call.early_requests.size() <= turn_.limits.early_requests_max);
    ASSERT(call.stage != Stage::hashing || call.serial == 0 || !call.plan);
    for (const EarlyRequest& early : call.early_requests) ASSERT(links_.contains(early.link));
    if (call.plan) call.plan->receiver.check();
}

}  // namespace pccl::core
