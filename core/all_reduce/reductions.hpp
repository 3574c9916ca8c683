// The operations of a peer, each from its start to its outcome: its memory, the computation with landed slices, the end
// vote, and the outcome. Results copies what is committed.
//
// SliceSender and SliceReceiver move the slices. They work on the same Operation.
//
// A collective over direct edges is several operations, its lanes, with the id of one start (LaneId). Between two
// members there is at most one in each direction, so the id and the other end name it, also on the wire. Lane 0 is
// always there: it has what stays here and the outcome of all. The end vote is cast when all lanes are finished, or when
// one is given up.
//
// Invariants: when the application gets the outcome, nothing of the operation is outstanding. Each operation ends with
// one outcome, the master's or the loss of the run. Its input is as before unless the outcome is a commit.
#pragma once

#include "core/all_reduce/ahead.hpp"
#include "core/all_reduce/operation.hpp"
#include "core/all_reduce/results.hpp"
#include "core/all_reduce/start_members.hpp"
#include "core/identity.hpp"
#include "core/membership/session.hpp"
#include "core/requests.hpp"
#include "core/turn.hpp"
#include "core/voting/launches.hpp"
#include "core/wire/control.pb.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pccl::core {

class Reductions {
public:
    class Owner {
    public:
        // The operation's memory was requested. A `ready` of the successor from before the start counts from now on.
        virtual void operation_begins(Operation& op) = 0;
        virtual void start_taken() = 0;  // operation_begins() was called for all operations of the start
        // The operation's memory exists, so slices may come.
        virtual void operation_prepared(Operation& op) = 0;
        virtual void operation_may_send(const Operation& op) = 0;
        virtual void operation_grants(const Operation& op) = 0;  // the predecessor may send more
        virtual void operation_decided(Operation& op) = 0;       // nothing of it moves any more
        // The start of an operation that was ahead has come: what moves has its name from now on.
        virtual void operation_started(const Operation& op, OpId ahead) = 0;
        // Its start will not come, or is that of another ring.
        virtual void operation_dropped(Operation& op) = 0;
        virtual void early_cell_free(const Uuid& neighbour, std::uint32_t cell) = 0;

    protected:
        ~Owner() = default;
    };
    using Map = std::map<LaneId, std::unique_ptr<Operation>>;

    Reductions(Turn& turn, const Identity& who, Computes& computes, Memory& memory, Session& session,
               Launches& launches, Owner& owner)
        : turn_(turn), who_(who), computes_(computes), memory_(memory), session_(session), launches_(launches),
          owner_(owner), results_(turn, computes) {}

    // ---- before the start (ahead.hpp)
    // The start vote was cast. If the ring is probably that of the last start, own input may leave at once.
    // `near`: the path to its successor is short.
    void launched(const Launches::Start& launch, bool near);
    void forget_place() { place_ = {}; }
    void forget_place_if_changed(std::uint64_t epoch) {
        if (epoch != place_.epoch) place_ = {};
    }
    bool is_successor(const Uuid& peer) const { return place_.world != 0 && place_.successor == peer; }
    const Uuid& successor() const { return place_.successor; }  // nil: not known
    // What was sent ahead of votes before this one belongs to no operation any more.
    Serial ahead_from() const;

    // ---- start and outcome
    // Why the answer is impossible; empty: it was accepted.
    Cause start_answered(const proto::Answer& answer);
    // Why the outcome is impossible; empty: it was accepted.
    Cause outcome_answered(const proto::Answer& answer);
    void fail_all(const Cause& cause);
    // The master has sent all decisions of earlier incarnations: no start with an id up to `id` can still come.
    void settled(OpId id) { settled_ = std::max(settled_, id); }
    void forget_run() {
        highest_ = settled_ = 0;
        place_ = {};
    }

    // ---- slices
    // `cell`: the cell of the reserve in which it landed; none: it landed in its slot.
    void partial_landed(Operation& op, std::uint32_t slice, const BufferRef& place, std::uint32_t cell,
                        const Uuid& remote);
    void final_there(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    // Quantizes own input of a quantized operation, brings own final bytes to their place, and queues those that are
    // there, some slices ahead of their turn.
    void prepare_inputs(Operation& op);
    // Final bytes have left as a whole for the successor, which has not answered yet; or it has acknowledged them.
    void final_left(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    void input_leaves(Operation& op, std::uint32_t slice) { results_.input_leaves(op, slice); }
    void final_got_through(Operation& op, std::uint32_t slice);
    void done(const SliceReduction& owner, const ComputeDone& done);
    void done(const InputPreparation& owner, const ComputeDone& done);
    void done(const InputCopy& owner, const ComputeDone& done);
    void copy_rest(const std::function<void(const Compute&)>& carry_out);
    void done(const CommitCopy& owner, const ComputeDone& done);
    void memory_came(const OperationMemory& owner, const BufferAllocated& event);
    // The successor has acknowledged one more slice of this lane over a direct edge.
    void got_through(Operation& op) { vote_end_if_complete(op); }

    // ---- votes against it
    void give_up(Operation& op, const Cause& cause) { vote_end(op, false, cause); }
    // Votes against the operation because nothing gets through to the successor. The vote replaces an earlier end vote:
    // this peer may have all final bytes, but its successor does not get them.
    void give_up_edge(Operation& op);
    // The master waits for the end vote of the successor. Votes against the operation if the successor has everything,
    // or if it takes nothing (`in_vain`).
    void successor_unfinished(OpId id, bool in_vain);

    // ---- knowledge
    const Map& all() const { return ops_; }
    Operation* find(OpId id) {
        const auto op = ops_.find({id, 0});
        return op == ops_.end() ? nullptr : op->second.get();
    }
    // The lane that sends to that neighbour, or gets its slices from it.
    Operation* find_to(OpId id, const Uuid& successor) {
        return find_lane(id, [&](const Operation& op) { return op.id.successor == successor; });
    }
    Operation* find_from(OpId id, const Uuid& predecessor) {
        return find_lane(id, [&](const Operation& op) { return op.id.predecessor == predecessor; });
    }
    // By the serial of its start vote; null: it is not here.
    Operation* launched_as(Serial serial);
    // The one for whose start that neighbour cast this vote, as the predecessor.
    Operation* of_neighbour(const Uuid& neighbour, Serial serial);
    void check() const;
    bool empty() const { return ops_.empty(); }  // nothing started, and nothing is ahead of its start
    std::size_t size() const { return ops_.size(); }  // lanes count each
    std::size_t running() const {  // started, and not at their end
        return static_cast<std::size_t>(std::count_if(ops_.begin(), ops_.end(), [](const auto& entry) {
            return entry.first.lane == 0 && !is_ahead(entry.first.op);
        }));
    }
    OpId highest() const { return highest_; }
    // True: the start of the operation has come, or never will. Unless the operation is here, its words and slices are
    // for nobody.
    bool is_settled(OpId id) const { return id <= settled_; }
    OpId settled() const { return settled_; }

private:
    // This peer's place in the ring at the last start. world 0: not known.
    struct Place {
        std::uint32_t world = 0;
        std::uint32_t position = 0;
        Uuid successor;
        std::uint64_t epoch = 0;
        // Of the last all-reduce that was large enough to be cut into unequal parts.
        std::vector<Piece> shares;
        std::vector<std::uint32_t> host_ends;
    };
    template <class Fits>
    Operation* find_lane(OpId id, const Fits& fits) {
        for (auto at = ops_.lower_bound({id, 0}); at != ops_.end() && at->first.op == id; ++at) {
            if (fits(*at->second)) return at->second.get();
        }
        return nullptr;
    }
    // All lanes of the operation.
    template <class Then>
    void each_lane(OpId id, const Then& then) {
        for (auto at = ops_.lower_bound({id, 0}); at != ops_.end() && at->first.op == id; ++at) then(*at->second);
    }
    bool is_complete(OpId id);
    bool may_have_shares(const ReduceShape& shape) const;
    void note_place(const proto::Answer& answer, const Launches::Start& launch, const StartMembers& members);
    Cause drafted(const proto::StartAnswer& start);
    void begin(const proto::StartAnswer& start, const Launches::Start& launch, StartMembers members);
    void make_host_lane(const Operation::Identity& identity, const Launches::Start& launch, const StartMembers& members,
                        const Uuid& other_end);
    void make_lanes(const Operation::Identity& identity, const proto::StartAnswer& start, const Launches::Start& launch,
                    const StartMembers& members);
    void begin_lanes(OpId id);
    Operation* host_lane(const Operation& op);  // of the operation along the ring; null: it has none here
    void request_memory(Operation& op);
    std::unique_ptr<Operation> take_ahead(const Operation::Identity& identity);
    void drop_ahead(Serial serial);
    void reduced_in_vote(const proto::Answer& answer, const Launches::Start& launch, StartMembers members);
    std::uint64_t memory_left(const Operation& op) const;
    void check_memory() const;
    void prepared(Operation& op);
    void inputs_left_ahead(Operation& op);
    void prepare(Operation& op, std::uint32_t slice);
    void input_prepared(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    void summed_leaving(Operation& op, std::uint32_t slice, std::uint64_t checksum);
    void reduced(Operation& op, const SliceReduction& owner, std::uint64_t checksum);
    void vote_end_if_complete(Operation& op);
    // `never`: this peer can never run the operation, so a retry is pointless.
    void vote_end(Operation& op, bool ok, const Cause& cause, bool never = false);
    proto::Vote end_vote(const Operation& op, bool ok, const Cause& cause) const;
    void decide(Operation& op, bool commit, Completion outcome);
    void finish_if_idle(Operation& op);

    Turn& turn_;
    const Identity& who_;
    Computes& computes_;
    Memory& memory_;
    Session& session_;
    Launches& launches_;
    Owner& owner_;
    Results results_;
    Map ops_;
    OpId highest_ = 0;  // the highest operation whose start came
    Place place_;
    OpId settled_ = 0;  // no start of an operation up to this one is still to come
};

}  // namespace pccl::core
