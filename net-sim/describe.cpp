#include "net-sim/describe.hpp"

#include "core/base/overload.hpp"
#include "net-sim/draw.hpp"

namespace pccl::sim {
namespace {

using namespace core;

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string op_name(OpId op) { return number(op >> 32) + "." + number(op & 0xffffffffu); }

std::string ref_text(const BufferRef& r) {
    return number(r.id) + "[" + number(r.offset) + "+" + number(r.length) + "]";
}

std::uint64_t hash_header(const wire::BulkHeader& h) {
    return mix(mix(mix(h.op, h.slice), mix(h.phase, h.entry)), h.length);
}

std::uint64_t hash_quantization(const Quantization& how) {
    return static_cast<std::uint64_t>(how.algorithm) << 8 | static_cast<std::uint64_t>(how.type) << 16 |
           static_cast<std::uint64_t>(how.hint) << 24;
}

// NOLINTNEXTLINE(misc-no-recursion): one level, a launch contains none
std::uint64_t hash_command(const Command& command) {
    return std::visit(Overload{
                          [](const CommandLaunch& c) {
                              return mix(mix(c.tag, c.shape.count), mix(static_cast<std::uint64_t>(c.shape.type),
                                                                        static_cast<std::uint64_t>(c.shape.op) |
                                                                            hash_quantization(c.shape.quantization)));
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
    return "op " + op_name(h.op) + " phase " + number(h.phase) + " slice " + number(h.slice) + " entry " +
           number(h.entry) + " length " + number(h.length);
}

std::string to_text(const wire::FlowWord& w) {
    static constexpr const char* kinds[] = {"?", "ack", "ready", "credit", "decline"};
    const auto kind = static_cast<unsigned>(w.kind);
    return std::string(kind < 5 ? kinds[kind] : "?") + " op " + op_name(w.op) + " slice " + number(w.slice) +
           " value " + number(w.value) + " phase " + number(w.phase);
}

std::string to_text(const Command& command) {
    return std::visit(Overload{
                          [](const CommandConnect&) -> std::string { return "connect"; },
                          [](const CommandUpdateTopology&) -> std::string { return "update_topology"; },
                          [](const CommandArePeersPending&) -> std::string { return "are_peers_pending"; },
                          [](const CommandOptimizeTopology&) -> std::string { return "optimize_topology"; },
                          [](const CommandLaunch& c) -> std::string {
                              return "launch tag " + number(c.tag) + " count " + number(c.shape.count) + " type " +
                                     number(static_cast<unsigned>(c.shape.type)) + " op " +
                                     number(static_cast<unsigned>(c.shape.op)) + to_text(c.shape.quantization) +
                                     (c.send == c.receive ? " in place" : "");
                          },
                          [](const CommandAwait& c) -> std::string { return "await tag " + number(c.tag); },
                          [](const CommandSync& c) -> std::string {
                              return "sync revision " + number(c.revision) + " entries " + number(c.entries.size()) +
                                     " strategy " + number(static_cast<unsigned>(c.strategy));
                          },
                          [](const CommandLeave& c) -> std::string { return c.abort ? "abort" : "leave"; },
                          [](const CommandReduceMany& c) -> std::string {
                              return "reduce " + number(c.launches.size()) + " tags, window " + number(c.window);
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
            [](const LinkOpened& e) -> std::string { return "link opened " + number(e.link); },
            [](const LinkRefused& e) -> std::string {
                return "link refused " + number(e.link) + " (" + e.reason + ")";
            },
            [](const LinkAccepted& e) -> std::string {
                return "link accepted " + number(e.link) + " from " + core::to_text(e.remote);
            },
            [](const LinkClosed& e) -> std::string { return "link closed " + number(e.link) + " (" + e.reason + ")"; },
            [](const ControlArrived& e) -> std::string {
                return "control on " + number(e.link) + ", " + number(e.body.size()) + " bytes";
            },
            [](const FlowArrived& e) -> std::string { return "flow on " + number(e.link) + ": " + to_text(e.word); },
            [](const FrameRefused& e) -> std::string {
                return "frame refused on " + number(e.link) + ": " + wire::to_text(e.error);
            },
            [](const BulkArrived& e) -> std::string { return "bulk on " + number(e.link) + ": " + to_text(e.header); },
            [](const PayloadLanded& e) -> std::string {
                return "payload on " + number(e.link) + ": " + verdicts[static_cast<unsigned>(e.verdict)];
            },
            [](const PayloadSent& e) -> std::string {
                return "payload sent on " + number(e.link) + (e.cancelled ? " (cancelled)" : "");
            },
            [](const LinkActivity& e) -> std::string { return "activity on " + number(e.link); },
            [](const BufferAllocated& e) -> std::string {
                return "allocated " + number(e.buffer) + (e.ok ? "" : " FAILED");
            },
            [](const ComputeDone& e) -> std::string { return "computed " + number(e.id); },
            [](const RecordPersisted& e) -> std::string { return "persisted up to " + number(e.sequence); },
            [](const RecordFailed& e) -> std::string { return "persist failed " + number(e.sequence); },
            [](const Timer&) -> std::string { return "timer"; },
            [](const Command& e) -> std::string { return "command " + to_text(e); },
        },
        event);
}

std::string to_text(const Effect& effect) {
    return std::visit(
        Overload{
            [](const OpenLink& e) -> std::string {
                return "open link " + number(e.link) + " to " + core::to_text(e.target);
            },
            [](const CloseLink& e) -> std::string {
                return "close link " + number(e.link) + (e.flush ? " (flush)" : "");
            },
            [](const SendControl& e) -> std::string {
                return "send control on " + number(e.link) + ", " + number(e.body.size()) + " bytes";
            },
            [](const SendFlow& e) -> std::string { return "send flow on " + number(e.link) + ": " + to_text(e.word); },
            [](const SendPayload& e) -> std::string {
                return "send payload on " + number(e.link) + " from " + ref_text(e.source) + ": " + to_text(e.header);
            },
            [](const CancelSend& e) -> std::string { return "cancel send on " + number(e.link); },
            [](const ReceivePayload& e) -> std::string {
                return "receive payload on " + number(e.link) + " into " + ref_text(e.target);
            },
            [](const DiscardPayload& e) -> std::string { return "discard payload on " + number(e.link); },
            [](const RedirectReceive& e) -> std::string { return "redirect receive on " + number(e.link); },
            [](const AllocateBuffer& e) -> std::string {
                return "allocate " + number(e.buffer) + ", " + number(e.bytes) + " bytes";
            },
            [](const FreeBuffer& e) -> std::string { return "free " + number(e.buffer); },
            [](const Compute& e) -> std::string {
                static constexpr const char* kinds[] = {"reduce",   "copy",       "hash",
                                                        "quantize", "dequantize", "reduce quantized"};
                return "compute " + number(e.id) + " " + kinds[static_cast<unsigned>(e.kind)] + " target " +
                       ref_text(e.target) + " a " + ref_text(e.a) + " b " + ref_text(e.b);
            },
            [](const Persist& e) -> std::string {
                return "persist " + number(e.sequence) + ", " + number(e.record.size()) + " bytes" +
                       (e.supersedes ? ", instead of all before it" : "");
            },
            [](const Complete& e) -> std::string {
                const Completion& c = e.completion;
                return "complete " + number(e.ticket) + ": " + to_text(c.result) + " worlds " +
                       number(c.attributes.global_world) + "/" + number(c.attributes.group_world) + " world " +
                       number(c.world) + " revision " + number(c.revision) + (c.pending ? " pending" : "") +
                       (c.message.empty() ? "" : " \"" + c.message + "\"");
            },
            [](const SetAttributes& e) -> std::string {
                return "set attributes, world " + number(e.attributes.global_world);
            },
            [](const Log& e) -> std::string { return "log: " + e.text; },
            [](const Halt& e) -> std::string { return "HALT: " + e.reason; },
        },
        effect);
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
    return " quantization " + number(static_cast<unsigned>(how.algorithm)) + " to " +
           number(static_cast<unsigned>(how.type)) + " hint " + number(static_cast<unsigned>(how.hint));
}

const char* effect_name(std::size_t index) {
    static constexpr const char* names[] = {
        "open",     "close", "control", "flow",    "payload",  "cancel-send",    "receive", "discard", "redirect",
        "allocate", "free",  "compute", "persist", "complete", "set-attributes", "log",     "halt"};
    static_assert(std::size(names) == effect_kinds);
    return names[index];
}

}  // namespace pccl::sim
