// The peer's half of a synchronization of the shared state, from the call to its completion. The peer hashes its
// entries and votes with a digest of them. The master sends a plan. The peer fetches what differs and serves what
// others lack. After the outcome it copies the fetched data into place.
//
// This part owns the call and, for each plan, a receiver and a sender. It uses the master only to cast votes and to
// send messages (MasterLine), and connections only through the link table and HolderLinks.
//
// Invariants: the application's memory is not written before the outcome is known, so a failed synchronization leaves
// every entry as it was. The call completes once, and only if no compute of it is outstanding. A plan that is withdrawn
// is replaced as a whole, after its computes have come back.
#pragma once

#include "core/state_sync/receiver.hpp"
#include "core/state_sync/sender.hpp"
#include "core/voting/tickets.hpp"

#include <optional>
#include <string>
#include <vector>

namespace pccl::core {

class Packed;

class SyncTransfer final : private SyncReceiver::Owner {
public:
    class Owner {
    public:
        // The master's decision contradicts the state of this peer. The peer leaves the run.
        virtual void run_contradicts(const Cause& cause) = 0;

    protected:
        ~Owner() = default;
    };

    SyncTransfer(Turn& turn, LinkTable& links, Computes& computes, Memory& memory, HolderLinks& holders,
                 MasterLine& master, Tickets& tickets, const Identity& who, Owner& owner)
        : turn_(turn), links_(links), computes_(computes), holders_(holders), master_(master), tickets_(tickets),
          who_(who), owner_(owner), staging_(turn, memory) {}

    // ---- the call
    bool running() const { return call_.has_value(); }
    // Empty: the call has begun, and its ticket will be completed. Otherwise the reason why it cannot begin.
    Cause begin(const CommandSync& command, std::uint32_t key_bytes_max);
    // The peer is not a member any more.
    void run_lost(const Cause& cause);

    // ---- the master
    void answered(const proto::Answer& answer);
    // Sends the master the keys from `first` on, at most `bytes_most` bytes of them.
    void send_keys(Serial serial, std::uint32_t first, std::uint32_t bytes_most);
    void holders_named(const proto::SyncHolders& message);

    // ---- other members
    // False: the message names a part of unknown kind.
    bool part_message(LinkId id, const proto::LinkMessage& message);
    void page_arrived(LinkId id, const proto::HashPage& page);
    // False: no request for this chunk is open.
    bool chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header);
    void chunk_moved(Link& link, std::uint32_t arrived);
    void chunk_landed(LinkId id, const Transfer& transfer, bool ok);
    void chunk_sent(const Transfer& transfer);
    // Sends the next chunk that the other end has requested on this link, if there is a request.
    void send_next_chunk(LinkId id, Link& link);
    void connected();
    void link_lost(LinkId id, const Uuid& remote);

    // ---- computes, memory and time
    void done(const EntryHash& part, const ComputeDone& done);
    void done(const ChunkCheck& check, const ComputeDone& done);
    void done(const StateCopy& copy, const ComputeDone& done);
    void memory_came(const BufferAllocated& event);
    void slept(Duration time);
    void tick();

    void check() const;
    // ---- observation
    std::size_t stage_number() const { return call_ ? static_cast<std::size_t>(call_->stage) + 1 : 0; }
    std::uint64_t received_bytes() const { return call_ ? call_->counts.received_bytes : 0; }
    bool awaits_abandoned_memory() const { return staging_.has_abandoned(); }
    void describe(Packed& state) const;

private:
    // again: the plan was withdrawn; the next vote waits until the computes of the old plan have come back.
    enum class Stage : std::uint8_t { hashing, again, voting, transfer, applying, draining };
    struct EarlyRequest {  // one that arrived before its plan
        LinkId link = 0;
        SyncPart part;
    };
    struct Plan {
        Plan(const SyncReceiver::Parts& parts, const proto::SyncAnswer& answer, bool sends)
            : receiver(parts, answer), sender(parts.turn, parts.links, parts.content, receiver, sends) {}
        SyncReceiver receiver;
        SyncSender sender;
        std::size_t apply_at = 0;  // the fetch that is being copied into place
    };
    struct Call {
        Call(const CommandSync& command, SyncContent entries)
            : ticket(command.ticket), revision(command.revision), strategy(command.strategy),
              content(std::move(entries)) {}
        Stage stage = Stage::hashing;
        Ticket ticket;
        Serial serial = 0;  // of the vote
        std::uint64_t revision;
        SyncStrategy strategy;
        SyncContent content;
        SyncCounts counts;
        std::vector<EarlyRequest> early_requests;
        std::optional<Plan> plan;
        std::optional<Completion> outcome;
    };

    void fetched(bool ok, const Cause& cause) override;
    void pump_hashes();
    void vote();
    void begin_plan(const proto::SyncAnswer& answer);
    void stop_plan();
    void decided(Completion outcome, bool apply);
    void copy_state();
    void compute_done();
    void finish_if_idle();
    bool keep_early(LinkId id, const SyncPart& part);

    Turn& turn_;
    LinkTable& links_;
    Computes& computes_;
    HolderLinks& holders_;
    MasterLine& master_;
    Tickets& tickets_;
    const Identity& who_;
    Owner& owner_;
    Staging staging_;
    std::optional<Call> call_;
};

}  // namespace pccl::core
