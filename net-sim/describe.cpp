#include "net-sim/describe.hpp"

#include "core/base/format.hpp"
#include "core/base/overload.hpp"
#include "net-sim/draw.hpp"

namespace pccl::sim {
namespace {

using namespace core;

std::string op_name(OpId op) { return formatted("{}.{}", op >> 32, op & 0xffffffffu); }

std::string ref_text(const BufferRef& r) { return formatted("{}[{}+{}]", r.id, r.offset, r.length); }

std::uint64_t hash_header(const wire::BulkHeader& h) {
    return mix(mix(mix(h.op, h.slice), mix(h.phase, h.entry)), h.length);
}

std::uint64_t hash_quantization(const Quantization& how) {
    return static_cast<std::uint64_t>(how.algorithm) << 8 | static_cast<std::uint64_t>(how.type) << 16 |
           static_cast<std::uint64_t>(how.hint) << 24;
}

// NOLINTNEXTLINE(misc-no-recursion): one level, a launch contains none
std::uint64_t hash_command(const Command& command) {
    return std::visit(
        Overload{
            [](const CommandLaunch& c) {
                const std::uint64_t shape =
                    mix(mix(c.tag, c.shape.count),
                        mix(static_cast<std::uint64_t>(c.shape.type),
                            static_cast<std::uint64_t>(c.shape.op) | hash_quantization(c.shape.quantization)));
                const Collective& what = c.collective;
                if (what.kind == CollectiveKind::all_reduce) return shape;
                std::uint64_t hash = mix(mix(shape, static_cast<std::uint64_t>(what.kind)),
                                         mix(what.count, what.root.bytes[0]));
                for (const std::uint64_t count : what.counts) hash = mix(hash, count);
                for (const std::uint32_t index : what.order) hash = mix(hash, index + 1);
                if (what.kind == CollectiveKind::send) hash = mix(mix(hash, what.pair_tag), what.target.bytes[0]);
                return hash;
            },
            [](const CommandAwait& c) { return c.tag; },
            [](const CommandSync& c) {
                return mix(mix(c.revision, c.entries.size()), static_cast<std::uint64_t>(c.strategy));
            },
            [](const CommandReduceMany& c) {
                std::uint64_t hash = c.window;
                for (const CommandLaunch& one : c.launches) hash = mix(hash, hash_command(one));
                return hash;
            },
            [](const auto& c) { return static_cast<std::uint64_t>(c.ticket); },
        },
        command);
}

}  // namespace

std::string to_text(const wire::BulkHeader& h) {
    return formatted("op {} phase {} slice {} entry {} length {}", op_name(h.op), h.phase, h.slice, h.entry, h.length);
}

std::string to_text(const wire::FlowWord& w) {
    static constexpr const char* kinds[] = {"?", "ack", "ready", "credit", "decline"};
    const auto kind = static_cast<unsigned>(w.kind);
    return formatted("{} op {} slice {} value {} phase {}", kind < 5 ? kinds[kind] : "?", op_name(w.op), w.slice,
                     w.value, w.phase);
}

std::string to_text(const Command& command) {
    return std::visit(Overload{
                          [](const CommandConnect&) -> std::string { return "connect"; },
                          [](const CommandUpdateTopology&) -> std::string { return "update_topology"; },
                          [](const CommandArePeersPending&) -> std::string { return "are_peers_pending"; },
                          [](const CommandOptimizeTopology&) -> std::string { return "optimize_topology"; },
                          [](const CommandLaunch& c) -> std::string {
                              if (c.collective.kind == CollectiveKind::send)
                                  return formatted("launch {} {} {} tag {} count {} room {} type {}", c.tag,
                                                   c.collective.root.is_nil() ? "send to" : "receive from",
                                                   short_name(c.collective.root.is_nil() ? c.collective.target
                                                                                         : c.collective.root),
                                                   c.collective.pair_tag, c.collective.count, c.collective.capacity,
                                                   static_cast<unsigned>(c.shape.type));
                              if (c.collective.kind != CollectiveKind::all_reduce)
                                  return formatted("launch tag {} {} count {} own {} type {} op {}", c.tag,
                                                   to_text(c.collective.kind), c.shape.count,
                                                   c.collective.count, static_cast<unsigned>(c.shape.type),
                                                   static_cast<unsigned>(c.shape.op));
                              return formatted("launch tag {} count {} type {} op {}{}{}", c.tag, c.shape.count,
                                               static_cast<unsigned>(c.shape.type), static_cast<unsigned>(c.shape.op),
                                               to_text(c.shape.quantization), c.send == c.receive ? " in place" : "");
                          },
                          [](const CommandAwait& c) -> std::string { return formatted("await tag {}", c.tag); },
                          [](const CommandSync& c) -> std::string {
                              return formatted("sync revision {} entries {} strategy {}", c.revision, c.entries.size(),
                                               static_cast<unsigned>(c.strategy));
                          },
                          [](const CommandLeave& c) -> std::string { return c.abort ? "abort" : "leave"; },
                          [](const CommandReduceMany& c) -> std::string {
                              return formatted("reduce {} tags, window {}", c.launches.size(), c.window);
                          },
                      },
                      command);
}

std::uint64_t fingerprint(const Event& event) {
    const std::uint64_t rest = std::visit(
        Overload{
            [](const LinkOpened& e) { return e.link; },
            [](const LinkRefused& e) { return e.link; },
            [](const LinkAccepted& e) { return mix(e.link, e.remote.address[3]); },
            [](const LinkClosed& e) { return e.link; },
            [](const ControlArrived& e) { return mix(e.link, numeric::checksum64(e.body.data(), e.body.size())); },
            [](const FlowArrived& e) {
                return mix(
                    mix(e.link, e.word.op),
                    mix(e.word.slice, mix(e.word.value, static_cast<std::uint64_t>(e.word.kind) * 256 + e.word.phase)));
            },
            [](const FrameRefused& e) { return mix(e.link, static_cast<std::uint64_t>(e.error)); },
            [](const BulkArrived& e) { return mix(e.link, hash_header(e.header)); },
            [](const PayloadLanded& e) { return mix(mix(e.link, e.checksum), static_cast<std::uint64_t>(e.verdict)); },
            [](const PayloadSent& e) { return mix(mix(e.link, e.checksum), e.cancelled ? 1 : 0); },
            [](const LinkActivity& e) { return e.link; },
            [](const BufferAllocated& e) { return mix(e.buffer, e.ok ? 1 : 0); },
            [](const ComputeDone& e) { return mix(mix(e.id, e.checksum), mix(e.hash.low, e.hash.high)); },
            [](const RecordPersisted& e) { return e.sequence; },
            [](const RecordFailed& e) { return e.sequence; },
            [](const PeerRevoked& e) { return mix(0, e.peer.bytes[0]); },
            [](const Timer&) { return std::uint64_t{0}; },
            [](const Command& e) { return mix(e.index(), hash_command(e)); },
        },
        event);
    return mix(event.index(), rest);
}

std::string to_text(const Event& event) {
    static constexpr const char* verdicts[] = {"landed", "discarded", "abandoned", "corrupt"};
    return std::visit(
        Overload{
            [](const LinkOpened& e) -> std::string { return formatted("link opened {}", e.link); },
            [](const LinkRefused& e) -> std::string { return formatted("link refused {} ({})", e.link, e.reason); },
            [](const LinkAccepted& e) -> std::string {
                return formatted("link accepted {} from {}", e.link, core::to_text(e.remote));
            },
            [](const LinkClosed& e) -> std::string { return formatted("link closed {} ({})", e.link, e.reason); },
            [](const ControlArrived& e) -> std::string {
                return formatted("control on {}, {} bytes", e.link, e.body.size());
            },
            [](const FlowArrived& e) -> std::string { return formatted("flow on {}: {}", e.link, to_text(e.word)); },
            [](const FrameRefused& e) -> std::string {
                return formatted("frame refused on {}: {}", e.link, wire::to_text(e.error));
            },
            [](const BulkArrived& e) -> std::string { return formatted("bulk on {}: {}", e.link, to_text(e.header)); },
            [](const PayloadLanded& e) -> std::string {
                return formatted("payload on {}: {}", e.link, verdicts[static_cast<unsigned>(e.verdict)]);
            },
            [](const PayloadSent& e) -> std::string {
                return formatted("payload sent on {}{}", e.link, e.cancelled ? " (cancelled)" : "");
            },
            [](const LinkActivity& e) -> std::string { return formatted("activity on {}", e.link); },
            [](const BufferAllocated& e) -> std::string {
                return formatted("allocated {}{}", e.buffer, e.ok ? "" : " FAILED");
            },
            [](const ComputeDone& e) -> std::string { return formatted("computed {}", e.id); },
            [](const RecordPersisted& e) -> std::string { return formatted("persisted up to {}", e.sequence); },
            [](const RecordFailed& e) -> std::string { return formatted("persist failed {}", e.sequence); },
            [](const PeerRevoked& e) -> std::string { return "revoked " + short_name(e.peer); },
            [](const Timer&) -> std::string { return "timer"; },
            [](const Command& e) -> std::string { return "command " + to_text(e); },
        },
        event);
}

std::string to_text(const Effect& effect) {
    return std::visit(
        Overload{
            [](const OpenLink& e) -> std::string {
                return formatted("open link {} to {}", e.link, core::to_text(e.target));
            },
            [](const CloseLink& e) -> std::string {
                return formatted("close link {}{}", e.link, e.flush ? " (flush)" : "");
            },
            [](const SendControl& e) -> std::string {
                return formatted("send control on {}, {} bytes", e.link, e.body.size());
            },
            [](const SendFlow& e) -> std::string { return formatted("send flow on {}: {}", e.link, to_text(e.word)); },
            [](const SendPayload& e) -> std::string {
                return formatted("send payload on {} from {}: {}", e.link, ref_text(e.source), to_text(e.header));
            },
            [](const CancelSend& e) -> std::string { return formatted("cancel send on {}", e.link); },
            [](const ReceivePayload& e) -> std::string {
                return formatted("receive payload on {} into {}", e.link, ref_text(e.target));
            },
            [](const DiscardPayload& e) -> std::string { return formatted("discard payload on {}", e.link); },
            [](const RedirectReceive& e) -> std::string { return formatted("redirect receive on {}", e.link); },
            [](const AllocateBuffer& e) -> std::string {
                return formatted("allocate {}, {} bytes", e.buffer, e.bytes);
            },
            [](const FreeBuffer& e) -> std::string { return formatted("free {}", e.buffer); },
            [](const StoreBytes& e) -> std::string { return formatted("store into {}", ref_text(e.target)); },
            [](const Compute& e) -> std::string {
                static constexpr const char* kinds[] = {"reduce",   "copy",       "hash",
                                                        "quantize", "dequantize", "reduce quantized"};
                return formatted("compute {} {} target {} a {} b {}{}", e.id, kinds[static_cast<unsigned>(e.kind)],
                                 ref_text(e.target), ref_text(e.a), ref_text(e.b),
                                 e.keep.length != 0 ? " keeps b in " + ref_text(e.keep) : "");
            },
            [](const Persist& e) -> std::string {
                return formatted("persist {}, {} bytes{}", e.sequence, e.record.size(),
                                 e.supersedes ? ", instead of all before it" : "");
            },
            [](const Complete& e) -> std::string {
                const Completion& c = e.completion;
                return formatted("complete {}: {} worlds {}/{} world {} revision {}{}{}", e.ticket, to_text(c.result),
                                 c.attributes.global_world, c.attributes.group_world, c.world, c.revision,
                                 c.pending ? " pending" : "",
                                 c.cause.empty() ? "" : formatted(" \"{}\"", to_text(c.cause)));
            },
            [](const SetAttributes& e) -> std::string {
                return formatted("set attributes, world {}", e.attributes.global_world);
            },
            [](const Log& e) -> std::string { return "log: " + e.text; },
            [](const Halt& e) -> std::string { return "HALT: " + to_text(e.cause); },
        },
        effect);
}

const char* to_text(CollectiveKind kind) {
    static constexpr const char* names[] = {"all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce",
                                            "barrier",    "gather",     "scatter",   "all_to_all", "send"};
    return names[static_cast<std::size_t>(kind)];
}

const char* to_text(Result result) {
    static constexpr const char* names[] = {"success",
                                            "not_initialized",
                                            "internal_error",
                                            "invalid_argument",
                                            "invalid_usage",
                                            "too_few_peers",
                                            "master_connection_failed",
                                            "rank_connection_failed",
                                            "rank_connection_lost",
                                            "no_shared_state_available",
                                            "pending_async_ops",
                                            "update_topology_failed",
                                            "topology_optimization_failed"};
    const auto index = static_cast<unsigned>(result);
    return index < std::size(names) ? names[index] : "?";
}

std::string to_text(const core::Quantization& how) {
    if (how.algorithm == QuantizationAlgorithm::none) return {};
    return formatted(" quantization {} to {} hint {}", static_cast<unsigned>(how.algorithm),
                     static_cast<unsigned>(how.type), static_cast<unsigned>(how.hint));
}

const char* effect_name(std::size_t index) {
    static constexpr const char* names[] = {
        "open",     "close", "control", "flow",    "payload", "cancel-send", "receive",        "discard", "redirect",
        "allocate", "free",  "store",   "compute", "persist", "complete",    "set-attributes", "log",     "halt"};
    static_assert(std::size(names) == effect_kinds);
    return names[index];
}

}  // namespace pccl::sim
