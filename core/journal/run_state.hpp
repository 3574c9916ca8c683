// What the master promised: the state that its journal, replayed, gives again.
//
// apply() is the only writer. It runs when a record is issued (the decision is frozen from then on) and again at replay,
// so a restarted master cannot differ from the one that wrote the journal. Nothing here knows of links, timers or votes
// that are still open. Answers to single peers are derived from a decision alone, so they can be told again at any time.
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
    std::uint64_t seniority = 0;  // grows with each admission: lower is longer accepted
    Endpoint endpoint;
    std::uint64_t token = 0;
    std::uint64_t token_next = 0;  // issued at a resume, not confirmed yet; 0: none
    std::uint32_t concurrent_ops = 1;
    bool synced = false;                       // completed a sync of this run
    std::uint64_t told = 0;                    // index of the last decision it has acknowledged; 0: none
    std::uint64_t told_chain = 0;              // chain of that decision
    std::map<Serial, std::uint64_t> consumed;  // votes used by decisions that the member has not acknowledged
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
        bool whole = false;  // has the entries that may differ too
        friend bool operator==(const Holder&, const Holder&) = default;
    };
    OpId id = 0;
    std::uint64_t revision = 0;
    std::vector<SeatState> members;
    std::vector<Holder> holders;  // of the content that was elected; the longest accepted first
    std::set<Uuid> receive_only;  // never send
    std::set<Uuid> lack_whole;    // receive an entry that may differ
    friend bool operator==(const RunningSync&, const RunningSync&) = default;
};

struct GroupState {
    std::vector<Uuid> ring;
    std::uint64_t expected = 0;  // revision
    std::optional<RunningSync> sync;
    std::uint32_t running_ops = 0;
    std::map<std::pair<Uuid, std::uint64_t>, std::uint32_t> running_of_batch;  // of a member's call for many tags
    friend bool operator==(const GroupState&, const GroupState&) = default;
};

class RunState {
public:
    // removed_kept: Limits::removed_kept.
    explicit RunState(std::size_t removed_kept) : removed_kept_(removed_kept) {}
    // False: the record is not one of ours (a damaged journal).
    bool apply(const proto::Record& record);
    // All of it as one record; applied to any state it gives this one.
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

    // Everything that the journal has to give again, as readable text: without what members acknowledge on the way.
    std::string promised() const;
    proto::Sizes sizes() const;
    bool has_sizes(const proto::Sizes& told) const;
    std::vector<Uuid> everyone() const;
    // Names the decision and, through the chain before it, all earlier ones. `decision` has no chain of its own yet.
    static std::uint64_t chain_of(proto::Decision& decision, std::uint64_t before);
    // What a member says of the last decision it was told.
    enum class Recall : std::uint8_t {
        same,     // it was told that decision from this journal
        older,    // less than it has acknowledged: a copy of what it was
        unknown,  // this journal does not contain that decision, or another one under its number
    };
    Recall recall(const Uuid& member, std::uint64_t seen, std::uint64_t chain) const;
    // The member has been told everything up to `seen`. Does nothing if that decision was not for this member.
    void acknowledge(const Uuid& member, std::uint64_t seen);
    // The members concerned, and what each of them is told, with at most `holders_max` holders of a state. Nothing: the
    // decision does not concern that peer.
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
    // How many decisions a member has to be told and has not acknowledged.
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
