// The interface between the machines and their drivers: events in, effects out.
//
// The contract (asserted by both drivers):
//  1. The driver delivers one event, carries out all its effects in order, then delivers the next event. No re-entry.
//  2. If a peer or the network misbehaves, handle() returns no error; its effects deal with it. handle() refuses only
//     misuse by its driver.
//  3. The number of effects per event is bounded by Limits.
//  4. Ownership: an application buffer belongs to its operation from the command to the completion. A range that is
//     being sent is not written. A range that is being received is not read.
//  5. An operation completes only when each of its sends, receives and computes was answered, cancelled or redirected.
//  6. Instants never go back. A timer may come late by any amount. Drivers deliver readable bytes before timers.
//  7. next_deadline() is finite whenever anything is in flight.
#pragma once

#include "core/base/cause.hpp"
#include "core/base/ids.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/types.hpp"
#include "core/wire/frame.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace pccl::core {

using numeric::Hash128;

// Values of pcclResult_t.
enum class Result : std::uint8_t {
    success = 0,
    not_initialized = 1,
    internal_error = 2,
    invalid_argument = 3,
    invalid_usage = 4,
    too_few_peers = 5,
    master_connection_failed = 6,
    rank_connection_failed = 7,
    rank_connection_lost = 8,
    no_shared_state_available = 9,
    pending_async_ops = 10,
    update_topology_failed = 11,
    topology_optimization_failed = 12,
};

// ---- commands of the application (peer machine only) -------------------------------------------------------------

struct ReduceShape {
    std::uint64_t count = 0;  // elements
    DataType type = DataType::f32;
    ReduceOp op = ReduceOp::sum;
    Quantization quantization{};
    friend bool operator==(const ReduceShape&, const ReduceShape&) = default;
};

// Values of Shape.collective. How the bytes of each travel: core/voting/graph.hpp.
enum class CollectiveKind : std::uint8_t {
    all_reduce = 0,
    all_gather = 1,
    broadcast = 2,
    reduce_scatter = 3,
    reduce = 4,
    barrier = 5,
    gather = 6,
    scatter = 7,
    all_to_all = 8,
    send = 9,  // between two members; both launch this kind
};
inline constexpr std::uint32_t collective_kind_count = 10;
constexpr bool is_rooted(CollectiveKind kind) {
    return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce || kind == CollectiveKind::gather ||
           kind == CollectiveKind::scatter;
}

// What a launch is, beside its shape. ReduceShape::count is what is equal at all members: the elements of the array; for
// a reduce_scatter those of the whole input; for a barrier, and for the kinds whose members give arrays of different
// lengths (all_gather, gather, scatter, all_to_all, send), 0.
struct Collective {
    CollectiveKind kind = CollectiveKind::all_reduce;
    // all_gather and gather: elements of `send`; reduce_scatter: elements of `receive`; scatter at the root and
    // all_to_all, if `counts` is empty: elements for each member; send at the sender: elements of `send`; else 0.
    std::uint64_t count = 0;
    // Elements that `receive` has room for: all_gather, scatter, all_to_all, gather at the root, and send at the
    // receiver; else 0.
    std::uint64_t capacity = 0;
    // broadcast, reduce, gather and scatter: the root; send: the sender, or nil if it is this peer; else nil
    Uuid root;
    // scatter at the root and all_to_all: elements of `send` for each member, by index. Empty: `count` for each.
    std::vector<std::uint64_t> counts = {};
    // all_gather, gather, scatter, reduce_scatter and all_to_all: in which order pieces lie in the arrays of this peer, as
    // indices of members. Those that it does not name come behind, in their order; names of no member are skipped.
    // Other members may use other orders. Counts stay in the order of indices.
    std::vector<std::uint32_t> order = {};
    // scatter at the root and all_to_all: members for which `send` was made. If the group has another number, the
    // collective fails as if a member was lost. Else 0.
    std::uint32_t world = 0;
    // send: the receiver, or nil if it is this peer; the tag that both ends have for it. The sends of two pairs, or of
    // one pair in both directions, may have one tag. CommandLaunch::tag is this peer's own name for the launch.
    Uuid target = {};
    Tag pair_tag = 0;
    friend bool operator==(const Collective&, const Collective&) = default;
};

struct StateEntry {
    std::string name;
    BufferId buffer = 0;
    std::uint64_t count = 0;  // elements
    DataType type = DataType::f32;
    bool allow_content_inequality = false;
};

// Each command carries a ticket. Complete answers it exactly once.
struct CommandConnect {
    Ticket ticket = 0;
    // The name under which this peer joins. In a secure run its certificate contains the name; nil: the machine draws one.
    Uuid identity = {};
};
struct CommandUpdateTopology {
    Ticket ticket = 0;
};
struct CommandArePeersPending {
    Ticket ticket = 0;
};
// Completes at once. Success means launched: the operation owns the buffers until the matching await completes.
// In place: receive == send (not for an all_gather, a gather and an all_to_all). A member that contributes nothing to a
// broadcast or a scatter needs no `send`, and one that gets nothing of a reduce or a gather no `receive`: 0. A sender
// has no `receive`, and a receiver no `send`.
struct CommandLaunch {
    Ticket ticket = 0;
    Tag tag = 0;
    ReduceShape shape;
    BufferId send = 0;
    BufferId receive = 0;
    // The content of `send`, if it has at most Limits::vote_input_bytes_max bytes; else empty. The driver fills it in.
    // Not read at members that contribute nothing.
    std::string input = {};
    Collective collective = {};
};
struct CommandAwait {
    Ticket ticket = 0;
    Tag tag = 0;
};
// Values of pcclSharedStateSyncStrategy_t.
enum class SyncStrategy : std::uint8_t { enforce_popular = 0, receive_only = 1, send_only = 2 };
inline constexpr std::uint32_t sync_strategy_count = 3;

struct CommandSync {
    Ticket ticket = 0;
    std::uint64_t revision = 0;
    std::vector<StateEntry> entries;
    SyncStrategy strategy = SyncStrategy::enforce_popular;
};
// Leaves the run. Every waiting ticket is completed first, then this one. Afterwards the machine is `fresh`. With
// `abort`, a member is `lost` instead, and a peer that was no member keeps the state from before its connect.
struct CommandLeave {
    Ticket ticket = 0;
    bool abort = false;
};
// Launches all tags at once; the tickets in `launches` are not used. A tag that fails with rank_connection_lost is
// launched again while the group has at least two members. The call completes when every tag is reduced or cannot be
// retried.
struct CommandReduceMany {
    Ticket ticket = 0;
    std::vector<CommandLaunch> launches;
    std::uint32_t window = 1;  // at most this many run at a time
};

struct CommandOptimizeTopology {
    Ticket ticket = 0;
};

using Command = std::variant<CommandConnect, CommandUpdateTopology, CommandArePeersPending, CommandLaunch, CommandAwait,
                             CommandSync, CommandLeave, CommandReduceMany, CommandOptimizeTopology>;

// ---- events ------------------------------------------------------------------------------------------------------

// Answers OpenLink. `local`: this end's address of the connection; port 0: not known.
struct LinkOpened {
    LinkId link = 0;
    Endpoint local = {};
};
struct LinkRefused {
    LinkId link = 0;
    std::string reason;
};  // answers OpenLink; the link is gone
// A stranger connected to our listener. `identity`: the peer that the driver has authenticated at the other end; nil: it
// has not. The machine refuses a hello of an authenticated caller that names another peer. `group`: the only group that
// the caller may join (master only).
struct LinkAccepted {
    LinkId link = 0;
    Endpoint remote;
    Uuid identity = {};
    std::optional<GroupId> group = {};
};
// The remote end or the network closed the link, or a read or write failed. The link is gone: no later event names it,
// and this event answers its sends and receives. Drivers never report it for a link that the machine closed itself.
struct LinkClosed {
    LinkId link = 0;
    std::string reason;
};
struct ControlArrived {
    LinkId link = 0;
    std::span<const std::uint8_t> body;
};  // valid during handle() only
struct FlowArrived {
    LinkId link = 0;
    wire::FlowWord word;
};
// The decoder refused the link's bytes. The machine answers with CloseLink.
struct FrameRefused {
    LinkId link = 0;
    wire::WireError error = wire::WireError::none;
    std::uint8_t version = 0;
};
// The machine answers in the same call with exactly one ReceivePayload or DiscardPayload for this link, or CloseLink.
struct BulkArrived {
    LinkId link = 0;
    wire::BulkHeader header;
};
// The trailer arrived. `landed`: all payload bytes are in the place named by ReceivePayload and no redirect happened.
struct PayloadLanded {
    enum class Verdict : std::uint8_t { landed, discarded, abandoned, corrupt };
    LinkId link = 0;
    Verdict verdict = Verdict::landed;
    std::uint64_t checksum = 0;  // of the payload, computed from the landed bytes (landed only)
};
// The kernel (or the simulated link) has taken the whole frame; the source range is free. A cancelled send is also
// reported, once, when its frame has been filled up. Only then may the machine issue the next SendPayload for the link.
struct PayloadSent {
    LinkId link = 0;
    std::uint64_t checksum = 0;
    bool cancelled = false;
};
// Bytes arrived on the link since the last notice, but no whole frame. Drivers send it at most every 50 ms per link.
struct LinkActivity {
    LinkId link = 0;
    std::uint32_t payload = 0;  // bytes received so far of the arriving payload; 0: no payload is arriving
};
struct BufferAllocated {
    BufferId buffer = 0;
    bool ok = true;
};  // answers AllocateBuffer
struct ComputeDone {
    ComputeId id = 0;
    std::uint64_t checksum = 0;
    Hash128 hash;
};
struct RecordPersisted {
    std::uint64_t sequence = 0;
};  // every record up to this one is durable (master only)
struct RecordFailed {
    std::uint64_t sequence = 0;
    std::string reason;
};
// The operator has revoked the certificate of a peer (master only). The peer is removed from the run, and the members
// close their connections with it.
struct PeerRevoked {
    Uuid peer;
};
struct Timer {};

using Event = std::variant<LinkOpened, LinkRefused, LinkAccepted, LinkClosed, ControlArrived, FlowArrived, FrameRefused,
                           BulkArrived, PayloadLanded, PayloadSent, LinkActivity, BufferAllocated, ComputeDone,
                           RecordPersisted, RecordFailed, Timer, Command, PeerRevoked>;

// ---- effects -----------------------------------------------------------------------------------------------------

// `peer`: who must be at the other end; nil: the master. A driver that authenticates other ends answers LinkRefused if
// somebody else is there. `source_port`: the local port of the connection, if the driver can have it; 0: any. It may be
// the port of the listener. `yields`: both ends may dial each other and meet. If the carrier needs an end that accepts,
// it is this one.
struct OpenLink {
    LinkId link = 0;
    Endpoint target;
    Uuid peer = {};
    std::uint16_t source_port = 0;
    bool yields = false;
};
// With `flush`, control frames queued before are still sent if the socket takes them within one second. Without it, the
// driver drops everything at once. No event follows; this effect answers all sends and receives of the link.
struct CloseLink {
    LinkId link = 0;
    bool flush = false;
};
// Control and flow frames leave in order, before any bulk frame that has not begun. The driver frames them.
struct SendControl {
    LinkId link = 0;
    std::string body;
};
struct SendFlow {
    LinkId link = 0;
    wire::FlowWord word;
};
// At most one per link until PayloadSent. With has_checksum the driver copies `checksum` into the trailer. Otherwise it
// computes the checksum while the bytes leave, and reports it in PayloadSent.
struct SendPayload {
    LinkId link = 0;
    wire::BulkHeader header;
    BufferRef source;
    bool has_checksum = false;
    std::uint64_t checksum = 0;
};
// The source range of the link's running SendPayload is free from now on. The driver fills the frame with zeros and
// sets the abandoned mark; it drops a frame that has not begun. PayloadSent{cancelled} follows when the link can take
// the next frame.
struct CancelSend {
    LinkId link = 0;
};
struct ReceivePayload {
    LinkId link = 0;
    BufferRef target;
};
struct DiscardPayload {
    LinkId link = 0;
};
// The driver discards the rest of the running ReceivePayload; the target is free from now on. PayloadLanded{discarded}
// follows when the frame has ended.
struct RedirectReceive {
    LinkId link = 0;
};
struct AllocateBuffer {
    BufferId buffer = 0;
    std::uint64_t bytes = 0;
    bool may_be_file = false;  // any size, used once: the driver may back the part beyond its limit with a file
};
struct FreeBuffer {
    BufferId buffer = 0;
};
// Writes these bytes, at once: nothing answers. Nothing else uses the range.
struct StoreBytes {
    BufferRef target;
    std::string bytes;
};
// Answered by ComputeDone, in any order. Drivers call core/compute.hpp for it.
// reduce: target = a (op) b, `divisor` as in numeric::reduce; target may equal a. hash: hash128 of a. copy: target = a
// (a.length bytes). quantize: target = the wire form of a. dequantize: the reverse. reduce_quantized: as reduce, with
// target and a in wire form. want_checksum: ComputeDone carries the checksum64 of target's bytes afterwards; with `hash`
// that of a, in place of the hash. `keep`, with `reduce` and if its length is not 0: gets the bytes of b before target is
// written, which may be the same range as b. `past_caches`: what `copy` and `keep` write is not needed soon.
struct Compute {
    enum class Kind : std::uint8_t { reduce, copy, hash, quantize, dequantize, reduce_quantized };
    ComputeId id = 0;
    Kind kind = Kind::copy;
    DataType type = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    Quantization quantization;
    std::uint32_t divisor = 0;
    bool want_checksum = false;
    bool past_caches = false;
    BufferRef target, a, b, keep;
};
// Appends to the journal. Records become durable in order; answered by RecordPersisted or RecordFailed (master only).
// `supersedes`: the record contains everything that the records before it promise. The driver may drop those when this
// record is durable, or at any later time, never before.
struct Persist {
    std::uint64_t sequence = 0;
    std::string record;
    bool supersedes = false;
};

struct Attributes {
    std::uint32_t global_world = 1;
    std::uint32_t group_world = 1;
    std::uint32_t groups = 1;
    std::uint32_t largest_group = 1;
    std::uint32_t gangs = 0;
    friend bool operator==(const Attributes&, const Attributes&) = default;
};

struct Completion {
    Result result = Result::success;
    Cause cause;              // when result is not success
    Attributes attributes;    // the values that the application reads when the call has returned
    std::uint64_t epoch = 0;  // membership epoch of `attributes`
    bool pending = false;     // CommandArePeersPending
    std::uint32_t world = 0;  // CommandAwait: members that took part
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    std::uint64_t revision = 0;  // CommandSync: revision after the call
    // CommandAwait of another collective than an all-reduce, on success: the members that took part, by index, and the
    // own index.
    struct Part {
        Uuid peer;
        // Collective::count of its launch; scatter: elements that it received; all_to_all: elements that this member
        // received from it; send: the elements that travelled. The sender has index 0, the receiver index 1.
        std::uint64_t count = 0;
        friend bool operator==(const Part&, const Part&) = default;
    };
    std::vector<Part> members;
    std::uint32_t index = 0;
    // CommandReduceMany: for each launch, the number of members that took part (0: not reduced); and the largest number
    // of launches that ran at a time.
    std::vector<std::uint32_t> worlds;
    std::uint32_t peak = 0;
};
inline Completion failure(Result result, Cause cause) {
    Completion completion;
    completion.result = result;
    completion.cause = std::move(cause);
    return completion;
}
struct Complete {
    Ticket ticket = 0;
    Completion completion;
};
// Attributes change outside of a completion only when the communicator is lost.
struct SetAttributes {
    Attributes attributes;
};
enum class LogLevel : std::uint8_t { trace, debug, info, warn, error };
struct Log {
    LogLevel level = LogLevel::info;
    std::string text;
    bool for_caller = false;  // concerns the application's calls: kept as its last error message
};
// The master cannot continue because its journal failed. The driver stops it and carries out nothing further.
struct Halt {
    Cause cause;
};

using Effect = std::variant<OpenLink, CloseLink, SendControl, SendFlow, SendPayload, CancelSend, ReceivePayload,
                            DiscardPayload, RedirectReceive, AllocateBuffer, FreeBuffer, StoreBytes, Compute, Persist,
                            Complete, SetAttributes, Log, Halt>;
using Effects = std::vector<Effect>;

enum class Status : std::uint8_t { ok, misuse };

}  // namespace pccl::core
