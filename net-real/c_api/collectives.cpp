// The collectives of pccl/ext.h. They check the arguments and describe the launch; a Communicator does the rest.
#include "core/base/format.hpp"
#include "net-real/c_api/door.hpp"
#include "net-real/c_api/validate.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

using namespace pccl::c_api;
namespace core = pccl::core;

namespace {

using Request = Communicator::Request;

// Completes a request whose kind and shape are set: sizes and buffers.
Outcome finish(Request& request, std::uint64_t send_count, std::uint64_t receive_count) {
    const auto type = static_cast<std::uint32_t>(request.command.shape.type);
    for (auto [count, what, bytes] : {std::tuple{send_count, "sendbuf", &request.send_bytes},
                                      std::tuple{receive_count, "recvbuf", &request.receive_bytes}}) {
        if (Outcome size = check_size(count, type, what, *bytes); size.result != pcclSuccess) return size;
    }
    if (request.send == nullptr && request.send_bytes != 0)
        return invalid_argument("sendbuf is null while it has elements");
    if (request.receive == nullptr && request.receive_bytes != 0)
        return invalid_argument("recvbuf is null while it has elements");
    const core::CollectiveKind kind = request.command.collective.kind;
    const bool may_be_equal = kind != core::CollectiveKind::all_gather && kind != core::CollectiveKind::gather &&
                              kind != core::CollectiveKind::all_to_all;
    if (overlap(request.send, request.send_bytes, request.receive, request.receive_bytes) &&
        !(may_be_equal && request.send == request.receive)) {
        return invalid_argument(may_be_equal ? "sendbuf and recvbuf overlap in part; pass the same pointer twice or "
                                               "separate memory"
                                             : "sendbuf overlaps recvbuf; pass separate memory");
    }
    return success();
}

Outcome take_copy(Request& request, const pcclCopyDescriptor_t* descriptor) {
    if (descriptor == nullptr) return invalid_argument("descriptor is null");
    const std::uint32_t type = raw_value(descriptor->datatype);
    if (type >= core::data_type_count) return invalid_argument(core::formatted("unknown datatype {}", type));
    request.command.tag = descriptor->tag;
    request.command.shape.type = static_cast<core::DataType>(type);
    return success();
}

Outcome take_reduction(Request& request, const pcclReduceDescriptor_t* descriptor) {
    if (descriptor == nullptr) return invalid_argument("descriptor is null");
    if (Outcome known = check_reduced_elements(*descriptor); known.result != pcclSuccess) return known;
    if (quantization_of(*descriptor) != core::Quantization{})
        return invalid_argument("only an all-reduce can be quantized; use pcclQuantNone");
    request.command.tag = descriptor->tag;
    request.command.shape.count = descriptor->count;
    request.command.shape.type = static_cast<core::DataType>(raw_value(descriptor->src_descriptor.datatype));
    request.command.shape.op = static_cast<core::ReduceOp>(raw_value(descriptor->op));
    return success();
}

Outcome take_root(Request& request, const pcclPeerId_t* root) {
    if (root == nullptr) return invalid_argument("root is null");
    core::Uuid& to = request.command.collective.root;
    std::copy(std::begin(root->bytes), std::end(root->bytes), to.bytes.begin());
    return to.is_nil() ? invalid_argument("root names no peer; use the name of a member") : success();
}

Outcome all_gather(Request& request, const Communicator& live, std::size_t capacity,
                   const pcclCopyDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::all_gather;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    request.command.collective.count = descriptor->count;
    request.command.collective.capacity = capacity;
    request.command.collective.order = live.piece_order();
    return finish(request, descriptor->count, capacity);
}

Outcome broadcast(Request& request, const Communicator& live, const pcclPeerId_t* root,
                  const pcclCopyDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::broadcast;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    if (Outcome taken = take_root(request, root); taken.result != pcclSuccess) return taken;
    request.command.shape.count = descriptor->count;
    const bool reads = request.send == request.receive || live.identity() == request.command.collective.root;
    if (!reads) request.send = nullptr;
    return finish(request, reads ? descriptor->count : 0, descriptor->count);
}

Outcome reduce_scatter(Request& request, const Communicator& live, std::size_t recv_count,
                       const pcclReduceDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::reduce_scatter;
    if (Outcome taken = take_reduction(request, descriptor); taken.result != pcclSuccess) return taken;
    if (recv_count > descriptor->count)
        return invalid_argument(core::formatted("recv_count {} is more than the count {} of the descriptor", recv_count,
                                                descriptor->count));
    request.command.collective.count = recv_count;
    request.command.collective.order = live.piece_order();
    return finish(request, descriptor->count, recv_count);
}

Outcome reduce(Request& request, const Communicator& live, const pcclPeerId_t* root,
               const pcclReduceDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::reduce;
    if (Outcome taken = take_reduction(request, descriptor); taken.result != pcclSuccess) return taken;
    if (Outcome taken = take_root(request, root); taken.result != pcclSuccess) return taken;
    const bool writes = request.send == request.receive || live.identity() == request.command.collective.root;
    if (!writes) request.receive = nullptr;
    return finish(request, descriptor->count, writes ? descriptor->count : 0);
}

Outcome gather(Request& request, const Communicator& live, std::size_t capacity, const pcclPeerId_t* root,
               const pcclCopyDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::gather;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    if (Outcome taken = take_root(request, root); taken.result != pcclSuccess) return taken;
    const bool writes = live.identity() == request.command.collective.root;
    if (!writes) request.receive = nullptr;
    request.command.collective.count = descriptor->count;
    request.command.collective.capacity = writes ? capacity : 0;
    if (writes) request.command.collective.order = live.piece_order();
    return finish(request, descriptor->count, request.command.collective.capacity);
}

// How the send buffer is cut. Returns the elements of all pieces in `elements`.
Outcome take_pieces(Request& request, const Communicator& live, const pcclPieces_t* pieces, std::uint64_t each,
                    std::uint64_t& elements) {
    core::Collective& collective = request.command.collective;
    if (pieces == nullptr) return invalid_argument("pieces is null");
    const std::size_t members_max = core::Limits{}.peers_max;
    if (pieces->members == 0 || pieces->members > members_max)
        return invalid_argument(core::formatted("pieces has {} members; use the number of the group's members, 1 to {}",
                                                pieces->members, members_max));
    collective.world = static_cast<std::uint32_t>(pieces->members);
    collective.order = live.piece_order();
    elements = 0;
    if (pieces->counts == nullptr)
        collective.count = each;
    else
        collective.counts.assign(pieces->counts, pieces->counts + pieces->members);
    for (std::size_t i = 0; i < pieces->members; ++i) {
        const std::uint64_t count = collective.counts.empty() ? each : collective.counts[i];
        if (count > std::numeric_limits<std::uint64_t>::max() - elements)
            return invalid_argument("the pieces together are larger than any memory");
        elements += count;
    }
    return success();
}

Outcome scatter(Request& request, const Communicator& live, const pcclPieces_t* pieces, std::size_t capacity,
                const pcclPeerId_t* root, const pcclCopyDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::scatter;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    if (Outcome taken = take_root(request, root); taken.result != pcclSuccess) return taken;
    request.command.collective.capacity = capacity;
    std::uint64_t elements = 0;
    if (live.identity() != request.command.collective.root)
        request.send = nullptr;
    else if (Outcome taken = take_pieces(request, live, pieces, descriptor->count, elements);
             taken.result != pcclSuccess)
        return taken;
    return finish(request, elements, capacity);
}

Outcome all_to_all(Request& request, const Communicator& live, const pcclPieces_t* pieces, std::size_t capacity,
                   const pcclCopyDescriptor_t* descriptor) {
    request.command.collective.kind = core::CollectiveKind::all_to_all;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    request.command.collective.capacity = capacity;
    std::uint64_t elements = 0;
    if (Outcome taken = take_pieces(request, live, pieces, descriptor->count, elements); taken.result != pcclSuccess)
        return taken;
    return finish(request, elements, capacity);
}

// `other`: the end that is not this peer.
Outcome take_send(Request& request, Communicator& live, const pcclPeerId_t* other, const char* what,
                  const pcclCopyDescriptor_t* descriptor, core::Uuid core::Collective::* end) {
    core::Collective& collective = request.command.collective;
    collective.kind = core::CollectiveKind::send;
    if (Outcome taken = take_copy(request, descriptor); taken.result != pcclSuccess) return taken;
    collective.pair_tag = request.command.tag;
    request.command.tag = live.next_send();
    if (other == nullptr) return invalid_argument(core::formatted("{} is null", what));
    core::Uuid& peer = collective.*end;
    std::copy(std::begin(other->bytes), std::end(other->bytes), peer.bytes.begin());
    if (peer.is_nil()) return invalid_argument(core::formatted("{} names no peer; use the name of a member", what));
    return success();
}

Outcome send(Request& request, Communicator& live, const pcclPeerId_t* receiver,
             const pcclCopyDescriptor_t* descriptor) {
    if (Outcome taken = take_send(request, live, receiver, "receiver", descriptor, &core::Collective::target);
        taken.result != pcclSuccess)
        return taken;
    request.command.collective.count = descriptor->count;
    return finish(request, descriptor->count, 0);
}

Outcome receive(Request& request, Communicator& live, const pcclPeerId_t* sender,
                const pcclCopyDescriptor_t* descriptor) {
    if (Outcome taken = take_send(request, live, sender, "sender", descriptor, &core::Collective::root);
        taken.result != pcclSuccess)
        return taken;
    request.command.collective.capacity = descriptor->count;
    return finish(request, 0, descriptor->count);
}

Outcome barrier(Request& request, std::uint64_t tag) {
    request.command.collective.kind = core::CollectiveKind::barrier;
    request.command.tag = tag;
    return success();
}

// `describe` completes the request, or says why it can never work.
template <class Describe>
pcclResult_t run(const char* function, const pcclComm_t* comm, Request request, pcclCollectiveInfo_t* info,
                 Describe&& describe) {
    return on_communicator(function, comm, success, [&](Communicator& live) {
        Outcome described = describe(request, live);
        return described.result == pcclSuccess ? live.launch_and_await(request, info) : described;
    });
}

template <class Describe>
pcclResult_t launch(const char* function, const pcclComm_t* comm, Request request, pcclAsyncReduceOp_t* handle,
                    Describe&& describe) {
    return on_communicator(
        function, comm, [&] { return check_pointer(handle, "handle_out"); },
        [&](Communicator& live) {
            Outcome outcome = describe(request, live);
            if (outcome.result == pcclSuccess) outcome = live.launch(request);
            // The handle only names the communicator; awaits look it up again.
            if (outcome.result == pcclSuccess) *handle = {const_cast<pcclComm_t*>(comm), request.command.tag};
            return outcome;
        });
}

Request between(const void* send, void* receive) {
    Request request;
    request.send = send;
    request.receive = receive;
    return request;
}

}  // namespace

extern "C" {

PCCL_EXPORT pcclResult_t pcclGetPeerId(const pcclComm_t* comm, pcclPeerId_t* peer_out) {
    return on_communicator(
        "pcclGetPeerId", comm, [&] { return check_pointer(peer_out, "peer_out"); },
        [&](Communicator& live) {
            const core::Uuid peer = live.identity();
            if (peer.is_nil()) return invalid_usage("this communicator was never connected; call pcclConnect first");
            std::copy(peer.bytes.begin(), peer.bytes.end(), peer_out->bytes);
            return success();
        });
}

PCCL_EXPORT pcclResult_t pcclSetPieceOrder(const pcclComm_t* comm, const uint32_t* order, size_t members) {
    return on_communicator("pcclSetPieceOrder", comm, success, [&](Communicator& live) {
        const std::size_t members_max = core::Limits{}.peers_max;
        if (members > members_max)
            return invalid_argument(core::formatted("an order of {} members; a group has at most {}", members,
                                                    members_max));
        if (order == nullptr && members != 0) return invalid_argument("order is null while it has members");
        std::vector<std::uint32_t> indices(order, order + members);
        std::vector<bool> named(members);
        for (const std::uint32_t index : indices) {
            if (index >= members || named[index])
                return invalid_argument(core::formatted("order has index {} {}; name each index below {} once", index,
                                                        index >= members ? "for fewer members" : "twice", members));
            named[index] = true;
        }
        // The order of indices is the usual one.
        if (std::is_sorted(indices.begin(), indices.end())) indices.clear();
        live.set_piece_order(std::move(indices));
        return success();
    });
}

PCCL_EXPORT pcclResult_t pcclAllGather(const void* sendbuf, void* recvbuf, size_t recv_capacity,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclCollectiveInfo_t* info_out) {
    return run("pcclAllGather", comm, between(sendbuf, recvbuf), info_out,
               [&](Request& request, Communicator& live) {
                   return all_gather(request, live, recv_capacity, descriptor);
               });
}

PCCL_EXPORT pcclResult_t pcclAllGatherAsync(const void* sendbuf, void* recvbuf, size_t recv_capacity,
                                            const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                            pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclAllGatherAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) {
                      return all_gather(request, live, recv_capacity, descriptor);
                  });
}

PCCL_EXPORT pcclResult_t pcclBroadcast(const void* sendbuf, void* recvbuf, const pcclPeerId_t* root,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclCollectiveInfo_t* info_out) {
    return run("pcclBroadcast", comm, between(sendbuf, recvbuf), info_out,
               [&](Request& request, Communicator& live) { return broadcast(request, live, root, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclBroadcastAsync(const void* sendbuf, void* recvbuf, const pcclPeerId_t* root,
                                            const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                            pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclBroadcastAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) { return broadcast(request, live, root, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclReduceScatter(const void* sendbuf, void* recvbuf, size_t recv_count,
                                           const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                           pcclCollectiveInfo_t* info_out) {
    return run("pcclReduceScatter", comm, between(sendbuf, recvbuf), info_out,
               [&](Request& request, Communicator& live) {
                   return reduce_scatter(request, live, recv_count, descriptor);
               });
}

PCCL_EXPORT pcclResult_t pcclReduceScatterAsync(const void* sendbuf, void* recvbuf, size_t recv_count,
                                                const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                                pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclReduceScatterAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) {
                      return reduce_scatter(request, live, recv_count, descriptor);
                  });
}

PCCL_EXPORT pcclResult_t pcclReduce(const void* sendbuf, void* recvbuf, const pcclPeerId_t* root,
                                    const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                    pcclCollectiveInfo_t* info_out) {
    return run("pcclReduce", comm, between(sendbuf, recvbuf), info_out,
               [&](Request& request, Communicator& live) { return reduce(request, live, root, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclReduceAsync(const void* sendbuf, void* recvbuf, const pcclPeerId_t* root,
                                         const pcclReduceDescriptor_t* descriptor, const pcclComm_t* comm,
                                         pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclReduceAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) { return reduce(request, live, root, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclGather(const void* sendbuf, void* recvbuf, size_t recv_capacity, const pcclPeerId_t* root,
                                    const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                    pcclCollectiveInfo_t* info_out) {
    return run("pcclGather", comm, between(sendbuf, recvbuf), info_out, [&](Request& request, Communicator& live) {
        return gather(request, live, recv_capacity, root, descriptor);
    });
}

PCCL_EXPORT pcclResult_t pcclGatherAsync(const void* sendbuf, void* recvbuf, size_t recv_capacity,
                                         const pcclPeerId_t* root, const pcclCopyDescriptor_t* descriptor,
                                         const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclGatherAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) {
                      return gather(request, live, recv_capacity, root, descriptor);
                  });
}

PCCL_EXPORT pcclResult_t pcclScatter(const void* sendbuf, const pcclPieces_t* pieces, void* recvbuf,
                                     size_t recv_capacity, const pcclPeerId_t* root,
                                     const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                     pcclCollectiveInfo_t* info_out) {
    return run("pcclScatter", comm, between(sendbuf, recvbuf), info_out, [&](Request& request, Communicator& live) {
        return scatter(request, live, pieces, recv_capacity, root, descriptor);
    });
}

PCCL_EXPORT pcclResult_t pcclScatterAsync(const void* sendbuf, const pcclPieces_t* pieces, void* recvbuf,
                                          size_t recv_capacity, const pcclPeerId_t* root,
                                          const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                          pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclScatterAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) {
                      return scatter(request, live, pieces, recv_capacity, root, descriptor);
                  });
}

PCCL_EXPORT pcclResult_t pcclAllToAll(const void* sendbuf, const pcclPieces_t* pieces, void* recvbuf,
                                      size_t recv_capacity, const pcclCopyDescriptor_t* descriptor,
                                      const pcclComm_t* comm, pcclCollectiveInfo_t* info_out) {
    return run("pcclAllToAll", comm, between(sendbuf, recvbuf), info_out, [&](Request& request, Communicator& live) {
        return all_to_all(request, live, pieces, recv_capacity, descriptor);
    });
}

PCCL_EXPORT pcclResult_t pcclAllToAllAsync(const void* sendbuf, const pcclPieces_t* pieces, void* recvbuf,
                                           size_t recv_capacity, const pcclCopyDescriptor_t* descriptor,
                                           const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclAllToAllAsync", comm, between(sendbuf, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) {
                      return all_to_all(request, live, pieces, recv_capacity, descriptor);
                  });
}

PCCL_EXPORT pcclResult_t pcclSend(const void* sendbuf, const pcclPeerId_t* receiver,
                                  const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                  pcclCollectiveInfo_t* info_out) {
    return run("pcclSend", comm, between(sendbuf, nullptr), info_out,
               [&](Request& request, Communicator& live) { return send(request, live, receiver, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclSendAsync(const void* sendbuf, const pcclPeerId_t* receiver,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclSendAsync", comm, between(sendbuf, nullptr), handle_out,
                  [&](Request& request, Communicator& live) { return send(request, live, receiver, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclRecv(void* recvbuf, const pcclPeerId_t* sender, const pcclCopyDescriptor_t* descriptor,
                                  const pcclComm_t* comm, pcclCollectiveInfo_t* info_out) {
    return run("pcclRecv", comm, between(nullptr, recvbuf), info_out,
               [&](Request& request, Communicator& live) { return receive(request, live, sender, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclRecvAsync(void* recvbuf, const pcclPeerId_t* sender,
                                       const pcclCopyDescriptor_t* descriptor, const pcclComm_t* comm,
                                       pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclRecvAsync", comm, between(nullptr, recvbuf), handle_out,
                  [&](Request& request, Communicator& live) { return receive(request, live, sender, descriptor); });
}

PCCL_EXPORT pcclResult_t pcclBarrier(uint64_t tag, const pcclComm_t* comm, pcclCollectiveInfo_t* info_out) {
    return run("pcclBarrier", comm, Request{}, info_out,
               [&](Request& request, Communicator&) { return barrier(request, tag); });
}

PCCL_EXPORT pcclResult_t pcclBarrierAsync(uint64_t tag, const pcclComm_t* comm, pcclAsyncReduceOp_t* handle_out) {
    return launch("pcclBarrierAsync", comm, Request{}, handle_out,
                  [&](Request& request, Communicator&) { return barrier(request, tag); });
}

PCCL_EXPORT pcclResult_t pcclAwaitCollective(const pcclAsyncReduceOp_t* handle, pcclCollectiveInfo_t* info_out) {
    return on_communicator("pcclAwaitCollective", handle == nullptr ? nullptr : handle->comm, success,
                           [&](Communicator& live) { return live.await(handle->tag, info_out); });
}

PCCL_EXPORT pcclResult_t pcclAwaitCollectiveThen(const pcclAsyncReduceOp_t* handle, pcclCollectiveCallback_t callback,
                                                 void* user) {
    return await_then("pcclAwaitCollectiveThen", "pcclAwaitCollective", handle, callback != nullptr,
                      [callback, user](const Outcome& outcome, const core::Completion& completion) {
                          std::vector<pcclMemberInfo_t> members(completion.members.size());
                          pcclCollectiveInfo_t info{};
                          info.members = members.empty() ? nullptr : members.data();
                          info.members_capacity = members.size();
                          fill(&info, completion);
                          callback(outcome.result, &info, outcome.message.c_str(), user);
                      });
}

}  // extern "C"
