// Everything that the master has promised. A replay of the journal gives the same state again.
//
// Records change it through apply() alone. apply() runs when a record is issued (the decision is frozen from then on)
// and again at replay, so a restarted master cannot differ from the one that wrote the journal. Only acknowledge()
// changes something without a record: what members still have to be told. Links, timers and votes that are still open
// are not part of this state. The answer to a peer follows from the decision alone, so the master can send it again at
// any time.
#pragma once

#include "core/base/ids.hpp"
#include "core/events.hpp"
#include "core/wire/control.pb.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pccl::core {

struct MemberState {
    GroupId group = 0;
    std::uint64_t seniority = 0;  // grows with each admission; lower means admitted earlier
    Endpoint endpoint;
    std::uint64_t token = 0;
    std::uint64_t token_next = 0;  // issued at a resume, not confirmed yet; 0: none
    std::uint32_t concurrent_ops = 1;
    bool synced = false;                       // completed a sync of this run
    std::uint64_t told = 0;                    // index of the last decision it has acknowledged; 0: none
    std::uint64_t told_chain = 0;              // chain of that decision
    std::map<Serial, std::uint64_t> consumed;  // votes used by decisions (indices) that it has not acknowledged
    friend bool operator==(const MemberState&, const MemberState&) = default;
};

struct SeatState {
    Uuid uuid;
    Serial serial = 0;
    std::uint64_t batch = 0;
    friend bool operator==(const SeatState&, const SeatState&) = default;
};

struct RunningOp {
    GroupId group = 0;
    Tag tag = 0;
    std::vector<SeatState> members;  // ring order
    friend bool operator==(const RunningOp&, const RunningOp&) = default;
};

struct RunningSync {
    struct Holder {
        Uuid uuid;
        bool whole = false;  // also has the entries that may differ
        friend bool operator==(const Holder&, const Holder&) = default;
    };
    OpId id = 0;
    std::uint64_t revision = 0;
    std::vector<SeatState> members;
    std::vector<Holder> holders;  // of the elected content; whole ones first, each kind by seniority
    std::set<Uuid> receive_only;  // members that never send
    std::set<Uuid> lack_whole;    // members that receive an entry that may differ
    friend bool operator==(const RunningSync&, const RunningSync&) = default;
};

struct GroupState {
    std::vector<Uuid> ring;
    std::uint64_t expected = 0;  // the revision that the master expects next
    std::optional<RunningSync> sync;
    std::uint32_t running_ops = 0;
    std::map<std::pair<Uuid, std::uint64_t>, std::uint32_t> running_of_batch;  // by member and its call for many tags
    friend bool operator==(const GroupState&, const GroupState&) = default;
};

class RunState {
public:
    // removed_kept: Limits::removed_kept.
    explicit RunState(std::size_t removed_kept) : removed_kept_(removed_kept) {}
    // False: the record is not one of this program (a damaged journal).
    bool apply(const proto::Record& record);
    // The whole state as one record. Applied to any state, the record gives this one.
    proto::Snapshot snapshot() const;
    friend bool operator==(const RunState&, const RunState&) = default;

    Uuid run_id;
    std::uint32_t incarnation = 0;
    std::uint64_t last_index = 0;  // of the last decision
    std::uint64_t chain = 0;       // of the last decision; 0: none was made
    std::uint64_t epoch = 0;
    std::map<Uuid, MemberState> members;
    std::map<GroupId, GroupState> groups;
    std::map<OpId, RunningOp> ops;
    std::map<Uuid, std::string> removed;  // with the reason; bounded

    // Everything that a replay must give again, as readable text. Acknowledgements are left out, because they are not
    // journalled.
    std::string promised() const;
    proto::Sizes sizes() const;
    bool has_sizes(const proto::Sizes& told) const;
    std::vector<Uuid> everyone() const;
    // A hash that identifies the decision and, through the chain before it, all earlier ones. `decision` has no chain
    // of its own yet.
    static std::uint64_t chain_of(proto::Decision& decision, std::uint64_t before);
    // The last decision that a member was told, by its own account, compared with this journal.
    enum class Recall : std::uint8_t {
        same,     // the decision is in this journal, and was for this member
        older,    // older than what the member has acknowledged: a copy of an earlier state of it
        unknown,  // this journal lacks that decision, or has another one under its number
    };
    Recall recall(const Uuid& member, std::uint64_t seen, std::uint64_t chain) const;
    // The member has received everything for it up to `seen`. Does nothing if that decision does not wait for this
    // member.
    void acknowledge(const Uuid& member, std::uint64_t seen);
    // The members that a decision concerns, and the answer to each of them, with at most `holders_max` holders of a
    // state. No answer: the decision does not concern that peer.
    static std::vector<Uuid> recipients(const proto::Decision& decision);
    static std::optional<proto::Answer> answer_for(const proto::Decision& decision, const Uuid& member, GroupId group,
                                                   std::uint32_t holders_max);
    // Decisions that some recipient has not acknowledged, in order.
    struct Kept {
        proto::Decision decision;
        std::set<Uuid> waiting;
        friend bool operator==(const Kept&, const Kept&);
    };
    const std::map<std::uint64_t, Kept>& kept() const { return kept_; }
    // The number of decisions for the member that it has not acknowledged.
    std::size_t untold(const Uuid& member) const {
        const auto found = untold_.find(member);
        return found == untold_.end() ? 0 : found->second.size();
    }

private:
    bool restore(const proto::Snapshot& snapshot);
    void apply_decision(const proto::Decision& decision);
    void apply_topology(const proto::TopologyDecision& topology);
    void apply_removal(const proto::RemovalDecision& removal);
    void apply_sync(const proto::SyncDecision& sync);
    void consume(const std::string& uuid, Serial serial, std::uint64_t index);

    void keep(std::uint64_t index, Kept kept);
    void forget(std::uint64_t index, const Uuid& member);

    std::map<std::uint64_t, Kept> kept_;
    std::map<Uuid, std::deque<std::uint64_t>> untold_;  // indices of kept_ that wait for a member, in order
    std::deque<Uuid> removed_order_;
    std::size_t removed_kept_;
    std::uint64_t next_seniority_ = 1;
};

}  // namespace pccl::core
