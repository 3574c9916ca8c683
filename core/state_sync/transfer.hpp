// A peer's end of a synchronization of the shared state, from the call to its completion: the entries are hashed, the peer
// votes with a digest of them, a plan comes from the master, what differs is fetched and what others lack is served, and after
// the outcome what was fetched is put in place.
//
// It owns the call and, for each plan, a receiver and a sender. It knows the master only as a line on which votes are cast, and
// connections only by the table and as those to holders.
//
// Invariants: nothing of the application's memory is written before the outcome is known, so a failed synchronization leaves
// every entry as it was. The call is completed once, and not while a compute that it asked for is out. A plan that is withdrawn
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
        // What the master decided cannot be: this peer takes no part any more.
        virtual void run_contradicts(const std::string& reason) = 0;

    protected:
        ~Owner() = default;
    };

    SyncTransfer(Turn& turn, LinkTable& links, Computes& computes, Memory& memory, HolderLinks& holders,
                 MasterLine& master, Tickets& tickets, const Identity& who, Owner& owner)
        : turn_(turn), links_(links), computes_(computes), holders_(holders), master_(master), tickets_(tickets),
          who_(who), owner_(owner), staging_(turn, memory) {}

    // ---- the call
    bool running() const { return call_.has_value(); }
    // Empty: it has begun, and its ticket will be completed. Else why it cannot.
    std::string begin(const CommandSync& command, std::uint32_t key_bytes_max);
    // The peer is no member any more.
    void run_lost(const std::string& reason);

    // ---- the master
    void answered(const proto::SyncAnswer& answer);
    // It wants the keys from `first` on; at most so many bytes of them.
    void send_keys(Serial serial, std::uint32_t first, std::uint32_t bytes_most);
    void holders_named(const proto::SyncHolders& message);

    // ---- other members
    // False: the message cannot be understood.
    bool part_message(LinkId id, const proto::LinkMessage& message);
    void page_arrived(LinkId id, const proto::HashPage& page);
    // False: nobody waits for this chunk.
    bool chunk_arrives(LinkId id, Link& link, const wire::BulkHeader& header);
    void chunk_moved(Link& link, std::uint32_t arrived);
    void chunk_landed(LinkId id, const Transfer& transfer, bool ok);
    void chunk_sent(const Transfer& transfer);
    // False: the other end of this link has asked for no chunk.
    bool send_next_chunk(LinkId id, Link& link);
    void connected();
    void link_lost(LinkId id, const Uuid& remote);

    // ---- computes, memory and time
    void done(const EntryHash& part, const ComputeDone& done);
    void done(const ChunkCheck& check, const ComputeDone& done);
    void done(const StateCopy& copy, const ComputeDone& done);
    void memory_came(const BufferAllocated& event);
    void slept(Duration time);
    void tick();

    // ---- observation
    std::size_t stage_number() const { return call_ ? static_cast<std::size_t>(call_->stage) + 1 : 0; }
    std::uint64_t received_bytes() const { return call_ ? call_->counts.received_bytes : 0; }
    bool awaits_abandoned_memory() const { return staging_.has_abandoned(); }
    void describe(Packed& state) const;

private:
    // again: the plan was withdrawn, the next vote waits for computes of the old one.
    enum class Stage : std::uint8_t { hashing, again, voting, transfer, applying, draining };
    struct EarlyRequest {  // that came before the plan it belongs to
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

    void fetched(bool ok, const std::string& reason) override;
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
