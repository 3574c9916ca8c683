// Everything that the master has promised. A replay of the journal gives the same state again.
//
// apply() makes all changes that a record describes. It runs when the master issues a record (from then on the decision
// is fixed) and again at a replay, so a restarted master cannot differ from the one that wrote the journal. The only
// change without a record is acknowledge(): it removes decisions that a member has received from the list of those to
// send again. Links, timers and open votes are not part of this state. The answer to a peer depends on the decision
// alone, so the master can send it again at any time.
//
// Invariants (check()): each member is once in the ring of its group, and no member is among the removed. Each running
// operation has a group. A gang has all of its places, or is not here.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/ids.hpp"
#include "core/base/secret.hpp"
#include "core/events.hpp"
#include "core/wire/control.pb.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

struct MemberState {
    GroupId group = 0;
    std::uint64_t seniority = 0;  // grows with each admission; lower means admitted earlier
    Endpoint endpoint;
    std::uint64_t token = 0;
    std::uint64_t token_next = 0;              // issued at a resume, not confirmed yet; 0: none
    Gang gang;
    std::uint64_t host = 0;                    // peers with the same value say that they share a host; 0: not known
    std::uint32_t concurrent_ops = 1;          // its group runs at most the minimum of its members' values at a time
    bool synced = false;                       // completed a sync of this run
    std::uint64_t told = 0;                    // index of the last decision that it has acknowledged; 0: none
    std::uint64_t told_chain = 0;              // chain of that decision
    std::map<Serial, std::uint64_t> consumed;  // vote -> decision that used it, until it is acknowledged
    friend bool operator==(const MemberState&, const MemberState&) = default;
};

// A member and its vote, in an operation or a synchronization. A member that forwards a send of others has not voted
// for its start: serial 0.
struct SeatState {
    Uuid uuid;
    Serial serial = 0;
    std::uint64_t batch = 0;  // call for many tags to which the vote belongs; 0: none
    friend bool operator==(const SeatState&, const SeatState&) = default;
};

struct RunningOp {
    GroupId group = 0;
    Tag tag = 0;
    std::vector<SeatState> members;  // ring order
    bool path = false;               // a send: the last member sends nothing to the first one
    // direct: a gather, a scatter or an all_to_all whose pieces take one hop each. hierarchical: an all-reduce along the
    // ring that also uses an edge within each host (voting/graph.hpp).
    enum class Way : std::uint8_t { ring, all_pairs, to_root, from_root, hierarchical } way = Way::ring;
    std::uint32_t root = 0;                // to_root, from_root: its place in `members`
    std::vector<std::uint32_t> host_ends;  // hierarchical: the places of the last members of the hosts, ascending
    bool direct() const { return way != Way::ring && way != Way::hierarchical; }
    void set_way(const proto::Direct& direct);
    proto::Direct direct_edges() const;  // what set_way() read; not of a ring
    // The edges that carry it.
    std::vector<std::pair<Uuid, Uuid>> edges() const;
    // Those that need not be edges of a ring: of a direct one all, of a hierarchical one those within hosts.
    std::vector<std::pair<Uuid, Uuid>> edges_beside_the_ring() const;
    friend bool operator==(const RunningOp&, const RunningOp&) = default;
};

struct RunningSync {
    struct Holder {
        Uuid uuid;
        bool whole = false;  // it also holds the entries that may differ between members
        friend bool operator==(const Holder&, const Holder&) = default;
    };
    OpId id = 0;
    std::uint64_t revision = 0;
    std::vector<SeatState> members;
    std::vector<Holder> holders;  // hold the elected content; whole ones first, each kind by seniority
    std::set<Uuid> receive_only;  // members that never send
    std::set<Uuid> lack_whole;    // members that receive the entries that may differ
    friend bool operator==(const RunningSync&, const RunningSync&) = default;
};

struct GroupState {
    std::vector<Uuid> ring;
    std::uint64_t expected = 0;  // the revision that the master expects next
    std::optional<RunningSync> sync;
    std::uint32_t running_ops = 0;
    std::map<std::pair<Uuid, std::uint64_t>, std::uint32_t> running_of_batch;  // by member and batch
    friend bool operator==(const GroupState&, const GroupState&) = default;
};

class RunState {
public:
    // `removed_kept`: Limits::removed_kept.
    explicit RunState(std::size_t removed_kept) : removed_kept_(removed_kept) {}
    // False: the journal is damaged (a record of an unknown kind, a missing decision, or an invalid run id).
    bool apply(const proto::Record& record);
    // The whole state as one record. Applying it replaces any other state by this one.
    proto::Snapshot snapshot() const;
    friend bool operator==(const RunState&, const RunState&) = default;

    Uuid run_id;
    Secret run_key{};  // known to the master only; marks the chains of the decisions
    std::uint32_t incarnation = 0;
    std::uint64_t last_index = 0;  // of the last decision; 0: none was made
    std::uint64_t chain = 0;       // of the last decision (see chain_of)
    std::uint64_t epoch = 0;
    std::map<Uuid, MemberState> members;
    std::map<GroupId, GroupState> groups;
    std::map<OpId, RunningOp> ops;
    // The gangs among the members, by name, and the member at each place. All places are taken: a gang is admitted and
    // removed as a whole.
    std::map<std::string, std::vector<Uuid>> gangs;
    std::map<Uuid, Cause> removed;  // and why; the last removed_kept ones

    // The members are exactly the peers in the rings. Each counter equals the number of entries that it counts. Every
    // decision that is kept waits for a member.
    void check() const;
    // Run, members, groups, operations and removals as readable text. A replay must give the same text. It contains no
    // acknowledgements, because they are not journalled.
    std::string promised() const;
    // The other members of its gang.
    std::vector<Uuid> mates_of(const Uuid& member) const;
    // The epoch, the size of each group, and the number of gangs.
    proto::Sizes sizes() const;
    bool has_sizes(const proto::Sizes& told) const;  // `told` equals sizes()
    std::vector<Uuid> everyone() const;
    // A number that identifies the decision, which would be the next one, and all earlier ones. The upper half is a
    // hash, and the lower half is a mark of that hash, which only who has the run's key can make. Overwrites
    // decision.chain.
    std::uint64_t chain_of(proto::Decision& decision) const;
    // Whether a master of this run made a decision `seen` with that chain, even if this journal lacks it. Always true in
    // a run whose journal has no key, because an earlier version began it.
    bool made(std::uint64_t seen, std::uint64_t chain) const;
    // A member that reconnects names the last decision that it received. This compares it with the journal.
    enum class Recall : std::uint8_t {
        same,     // the decision is in this journal, and was for this member
        older,    // the member has acknowledged a later decision: this is an old hello, or a copy of the member
        unknown,  // this journal lacks that decision, or has a different one with its index: records were lost
    };
    Recall recall(const Uuid& member, std::uint64_t seen, std::uint64_t chain) const;
    // The member has received all decisions for it up to index `seen`. Ignored if decision `seen` is not for this
    // member, or is acknowledged already.
    void acknowledge(const Uuid& member, std::uint64_t seen);
    // The members that receive an answer about a decision, and the answer to each of them. It lists at most
    // `holders_max` holders of a shared state. nullopt: the decision is not for that member.
    static std::vector<Uuid> recipients(const proto::Decision& decision);
    static std::optional<proto::Answer> answer_for(const proto::Decision& decision, const Uuid& member, GroupId group,
                                                   std::uint32_t holders_max);
    // Decisions that some recipient has not acknowledged, in order.
    struct Kept {
        proto::Decision decision;
        std::set<Uuid> waiting;   // recipients that have not acknowledged it; never empty
        std::uint64_t bytes = 0;  // of the decision
        friend bool operator==(const Kept&, const Kept&);
    };
    const std::map<std::uint64_t, Kept>& kept() const { return kept_; }
    std::uint64_t kept_bytes() const { return kept_bytes_; }
    // The number of decisions for the member that it has not acknowledged.
    std::size_t untold(const Uuid& member) const {
        const auto found = untold_.find(member);
        return found == untold_.end() ? 0 : found->second.size();
    }

private:
    bool restore(const proto::Snapshot& snapshot);
    std::uint64_t marked(std::uint64_t index, std::uint64_t hash) const;
    void apply_decision(const proto::Decision& decision);
    void apply_topology(const proto::TopologyDecision& topology);
    void apply_removal(const proto::RemovalDecision& removal, const Cause& cause);
    void take_out(const Uuid& member, const Cause& cause);
    void set_ring(const proto::RingRecord& ring);
    void place(const Uuid& member, const Gang& gang);
    void apply_sync(const proto::Decision& decision);
    void consume(const std::string& uuid, Serial serial, std::uint64_t index);

    void keep(std::uint64_t index, Kept kept);
    void forget(std::uint64_t index, const Uuid& member);

    std::map<std::uint64_t, Kept> kept_;
    std::uint64_t kept_bytes_ = 0;                      // of all these decisions
    std::map<Uuid, std::deque<std::uint64_t>> untold_;  // per member: its decisions in kept_, ascending
    std::deque<Uuid> removed_order_;                    // keys of `removed`, oldest first
    std::size_t removed_kept_;
    std::uint64_t next_seniority_ = 1;
};

}  // namespace pccl::core
