#include "bindings/communicator.hpp"

#include "bindings/address.hpp"
#include "bindings/operation.hpp"
#include "bindings/waiting.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace pccl_python {

namespace {

using Info = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;
// Number of members, bytes sent and received, own index, members by index.
using CollectiveInfo = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t, std::vector<Member>>;
// count, op, tag, element type, hint, quantized type, algorithm
using Reduction = std::tuple<std::size_t, int, std::uint64_t, int, int, int, int>;
// send and recv pointers, count, room or piece in recv, root ("" for none), op, tag, element type
using Collection =
    std::tuple<std::uintptr_t, std::uintptr_t, std::size_t, std::size_t, nb::bytes, int, std::uint64_t, int>;
using BufferReduction = std::tuple<std::uintptr_t, std::uintptr_t, Reduction>;
// name, pointer, count, element type, device, allow_content_inequality
using Entry = std::tuple<std::string, std::uintptr_t, std::size_t, int, int, bool>;

// Core has no run with more peers (Limits::peers_max).
constexpr std::size_t members_max = 4096;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

pcclReduceDescriptor_t descriptor_of(const Reduction& reduction) {
    const auto [count, op, tag, type, hint, quantized, algorithm] = reduction;
    return {count,
            static_cast<pcclRedOp_t>(op),
            tag,
            {static_cast<pcclDataType_t>(type), static_cast<pcclDistributionHint_t>(hint)},
            {static_cast<pcclDataType_t>(quantized), static_cast<pcclQuantizationAlgorithm_t>(algorithm)}};
}

Info to_tuple(const pcclReduceInfo_t& info) { return {info.local_world_size, info.tx_bytes, info.rx_bytes}; }

// The functions of one kind of collective: that which blocks, and that which launches.
struct Functions {
    const char* blocking;
    const char* launching;
};
enum Kind : int { all_gather, broadcast, reduce_scatter, reduce, barrier, gather, scatter, all_to_all, send, recv };
constexpr Functions functions[] = {{"pcclAllGather", "pcclAllGatherAsync"},
                                   {"pcclBroadcast", "pcclBroadcastAsync"},
                                   {"pcclReduceScatter", "pcclReduceScatterAsync"},
                                   {"pcclReduce", "pcclReduceAsync"},
                                   {"pcclBarrier", "pcclBarrierAsync"},
                                   {"pcclGather", "pcclGatherAsync"},
                                   {"pcclScatter", "pcclScatterAsync"},
                                   {"pcclAllToAll", "pcclAllToAllAsync"},
                                   {"pcclSend", "pcclSendAsync"},
                                   {"pcclRecv", "pcclRecvAsync"}};

// A collective as C takes it.
class Prepared {
public:
    // `members` and `counts`: the pieces of send; members 0: it has none. No counts: all pieces have the count.
    Prepared(int kind, const Collection& collection, std::size_t members, std::vector<std::uint64_t> counts)
        : kind_(static_cast<Kind>(kind)), counts_(std::move(counts)) {
        const auto& [source, target, count, room, root, op, tag, type] = collection;
        if (kind < 0 || kind > Kind::recv) throw nb::value_error("no such collective");
        if (!counts_.empty() && counts_.size() != members) throw nb::value_error("not one count for each member");
        pieces_ = {counts_.empty() ? nullptr : counts_.data(), members};
        send_ = pointer(source);
        receive_ = pointer(target);
        room_ = room;
        copy_ = {count, static_cast<pcclDataType_t>(type), tag};
        reduction_ = descriptor_of({count, op, tag, type, pcclDistributionNone, type, pcclQuantNone});
        if (root.size() == sizeof root_.bytes) std::memcpy(root_.bytes, root.c_str(), sizeof root_.bytes);
    }
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    const Functions& names() const { return functions[kind_]; }

    pcclResult_t run(const pcclComm_t* comm, pcclCollectiveInfo_t* info) const {
        switch (kind_) {
        case all_gather: return pcclAllGather(send_, receive_, room_, &copy_, comm, info);
        case broadcast: return pcclBroadcast(send_, receive_, &root_, &copy_, comm, info);
        case reduce_scatter: return pcclReduceScatter(send_, receive_, room_, &reduction_, comm, info);
        case reduce: return pcclReduce(send_, receive_, &root_, &reduction_, comm, info);
        case gather: return pcclGather(send_, receive_, room_, &root_, &copy_, comm, info);
        case scatter: return pcclScatter(send_, pieces(), receive_, room_, &root_, &copy_, comm, info);
        case all_to_all: return pcclAllToAll(send_, &pieces_, receive_, room_, &copy_, comm, info);
        case send: return pcclSend(send_, &root_, &copy_, comm, info);
        case recv: return pcclRecv(receive_, &root_, &copy_, comm, info);
        case barrier: break;
        }
        return pcclBarrier(copy_.tag, comm, info);
    }
    pcclResult_t launch(const pcclComm_t* comm, pcclAsyncReduceOp_t* handle) const {
        switch (kind_) {
        case all_gather: return pcclAllGatherAsync(send_, receive_, room_, &copy_, comm, handle);
        case broadcast: return pcclBroadcastAsync(send_, receive_, &root_, &copy_, comm, handle);
        case reduce_scatter: return pcclReduceScatterAsync(send_, receive_, room_, &reduction_, comm, handle);
        case reduce: return pcclReduceAsync(send_, receive_, &root_, &reduction_, comm, handle);
        case gather: return pcclGatherAsync(send_, receive_, room_, &root_, &copy_, comm, handle);
        case scatter: return pcclScatterAsync(send_, pieces(), receive_, room_, &root_, &copy_, comm, handle);
        case all_to_all: return pcclAllToAllAsync(send_, &pieces_, receive_, room_, &copy_, comm, handle);
        case send: return pcclSendAsync(send_, &root_, &copy_, comm, handle);
        case recv: return pcclRecvAsync(receive_, &root_, &copy_, comm, handle);
        case barrier: break;
        }
        return pcclBarrierAsync(copy_.tag, comm, handle);
    }

private:
    const pcclPieces_t* pieces() const { return pieces_.members == 0 ? nullptr : &pieces_; }

    Kind kind_;
    std::vector<std::uint64_t> counts_;
    pcclPieces_t pieces_{};
    void* send_ = nullptr;
    void* receive_ = nullptr;
    std::size_t room_ = 0;
    pcclCopyDescriptor_t copy_{};
    pcclReduceDescriptor_t reduction_{};
    pcclPeerId_t root_{};
};

// Settings of pcclCommConfig_t by the names of its fields. A value of None counts as not given.
class Config {
public:
    explicit Config(const nb::dict& given) {
        const std::pair<const char*, const char**> texts[] = {{"name", &config_.name},
                                                              {"bind_address", &config_.bind_address},
                                                              {"advertise_address", &config_.advertise_address},
                                                              {"port_range", &config_.port_range},
                                                              {"tcp_congestion", &config_.tcp_congestion},
                                                              {"invite", &config_.invite},
                                                              {"gang_name", &config_.gang_name}};
        kept_.reserve(std::size(texts));
        for (const auto& [key, field] : texts) {
            if (!given.contains(key) || given[key].is_none()) continue;
            kept_.push_back(nb::cast<std::string>(given[key]));
            *field = kept_.back().c_str();
        }
        number(given, "peer_timeout_ms", config_.peer_timeout_ms);
        number(given, "master_timeout_ms", config_.master_timeout_ms);
        number(given, "max_scratch_bytes", config_.max_scratch_bytes);
        number(given, "max_concurrent_collective_ops", config_.max_concurrent_collective_ops);
        number(given, "multiplex_chunk_size", config_.multiplex_chunk_size);
        number(given, "num_benchmark_connections", config_.num_benchmark_connections);
        number(given, "gang_size", config_.gang_size);
        number(given, "gang_place", config_.gang_place);
        number(given, "gang_timeout_ms", config_.gang_timeout_ms);
    }
    const pcclCommConfig_t& get() const { return config_; }

private:
    template <class Number>
    static void number(const nb::dict& given, const char* key, Number& field) {
        if (given.contains(key) && !given[key].is_none()) field = nb::cast<Number>(given[key]);
    }
    pcclCommConfig_t config_ = PCCL_COMM_CONFIG_INIT;
    std::vector<std::string> kept_;
};

class Comm {
public:
    Comm(const nb::bytes& address, std::uint16_t port, std::uint32_t group, std::uint32_t pool,
         const nb::dict& config) {
        pcclCommCreateParams_t params{};
        params.master_address = socket_address(address, port);
        params.peer_group = group;
        params.p2p_connection_pool_size = pool;
        const Config settings(config);
        // This may wait, because a name in advertise_address is looked up. No handler runs when it has succeeded: if
        // one raised here, nobody would destroy comm_.
        const auto create = [&] { return pcclCreateCommunicatorWithConfig(&params, &settings.get(), &comm_); };
        wait_for("pcclCreateCommunicator", create, true);
    }
    Comm(const Comm&) = delete;
    Comm& operator=(const Comm&) = delete;
    ~Comm() { close(); }

    void connect() {
        wait("pcclConnect", [&] { return pcclConnect(comm_); });
    }
    void update_topology() {
        wait("pcclUpdateTopology", [&] { return pcclUpdateTopology(comm_); });
    }
    bool are_peers_pending() {
        bool pending = false;
        wait("pcclArePeersPending", [&] { return pcclArePeersPending(comm_, &pending); });
        return pending;
    }
    void optimize_topology() {
        wait("pcclOptimizeTopology", [&] { return pcclOptimizeTopology(comm_); });
    }
    int attribute(int which) const {
        int value = 0;
        require(pcclGetAttribute(comm_, static_cast<pcclAttribute_t>(which), &value), "pcclGetAttribute");
        return value;
    }

    Info all_reduce(std::uintptr_t send, std::uintptr_t receive, const Reduction& reduction) {
        const pcclReduceDescriptor_t descriptor = descriptor_of(reduction);
        pcclReduceInfo_t info{};
        wait("pcclAllReduce",
             [&] { return pcclAllReduce(pointer(send), pointer(receive), &descriptor, comm_, &info); });
        return to_tuple(info);
    }
    void all_reduce_async(Operation& operation, std::uintptr_t send, std::uintptr_t receive,
                          const Reduction& reduction) {
        const pcclReduceDescriptor_t descriptor = descriptor_of(reduction);
        launch("pcclAllReduceAsync", operation, false, [&](pcclAsyncReduceOp_t* handle) {
            return pcclAllReduceAsync(pointer(send), pointer(receive), &descriptor, comm_, handle);
        });
    }
    Info all_reduce_multiple_with_retry(const std::vector<BufferReduction>& reductions, int max_in_flight) {
        std::vector<pcclReduceOpDescriptor_t> descriptors;
        descriptors.reserve(reductions.size());
        for (const auto& [send, receive, reduction] : reductions)
            descriptors.push_back({pointer(send), pointer(receive), descriptor_of(reduction)});
        pcclReduceInfo_t info{};
        wait("pcclAllReduceMultipleWithRetry", [&] {
            return pcclAllReduceMultipleWithRetry(descriptors.data(), descriptors.size(), comm_, &info, max_in_flight);
        });
        return to_tuple(info);
    }

    CollectiveInfo collect(int kind, const Collection& collection, std::size_t members_of_send,
                           std::vector<std::uint64_t> counts) {
        const Prepared prepared(kind, collection, members_of_send, std::move(counts));
        // Not initialized, so only the entries that are written cost anything.
        const auto members = std::make_unique_for_overwrite<pcclMemberInfo_t[]>(members_max);
        pcclCollectiveInfo_t info{};
        info.members = members.get();
        info.members_capacity = members_max;
        wait(prepared.names().blocking, [&] { return prepared.run(comm_, &info); });
        if (info.local_world_size > members_max)
            raise_failure(pcclInternalError, prepared.names().blocking, "more members than a run can have");
        return {info.local_world_size, info.tx_bytes, info.rx_bytes, info.local_index,
                members_of(members.get(), info.local_world_size)};
    }
    void collect_async(Operation& operation, int kind, const Collection& collection, std::size_t members_of_send,
                       std::vector<std::uint64_t> counts) {
        const Prepared prepared(kind, collection, members_of_send, std::move(counts));
        launch(prepared.names().launching, operation, true,
               [&](pcclAsyncReduceOp_t* handle) { return prepared.launch(comm_, handle); });
    }
    void set_piece_order(const std::vector<std::uint32_t>& order) {
        require(pcclSetPieceOrder(comm_, order.data(), order.size()), "pcclSetPieceOrder");
    }
    nb::bytes peer_id() const {
        pcclPeerId_t id{};
        require(pcclGetPeerId(comm_, &id), "pcclGetPeerId");
        return nb::bytes(id.bytes, sizeof id.bytes);
    }

    // Returns the agreed revision, and the bytes sent and received.
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>
    synchronize(std::uint64_t revision, const std::vector<Entry>& entries, int strategy) {
        std::vector<pcclTensorInfo_t> infos;
        infos.reserve(entries.size());
        for (const auto& [name, data, count, type, device, unequal] : entries) {
            infos.push_back({name.c_str(), pointer(data), count, static_cast<pcclDataType_t>(type),
                             static_cast<pcclDeviceType_t>(device), unequal});
        }
        pcclSharedState_t state{revision, infos.size(), infos.data()};
        pcclSharedStateSyncInfo_t info{};
        wait("pcclSynchronizeSharedState", [&] {
            return pcclSynchronizeSharedState(comm_, &state, static_cast<pcclSharedStateSyncStrategy_t>(strategy),
                                              &info);
        });
        return {state.revision, info.tx_bytes, info.rx_bytes};
    }

    void abort() {
        pcclResult_t result;
        {
            const WithoutGil released;
            result = pcclAbort(comm_);
        }
        require(result, "pcclAbort");
    }
    // Whether a call of this thread waits here, so that a signal handler makes this one. That call holds the
    // communicator until it returns.
    bool waits_here() const { return outermost_wait() != nullptr; }
    void close() {
        if (comm_ == nullptr || *closed_) return;
        *closed_ = true;
        if (Wait* wait = outermost_wait()) {
            wait->destroys = true;
            const WithoutGil released;
            pcclAbort(comm_);
            return;
        }
        destroy();
    }
    nb::str statistics() const {
        std::size_t needed = 0;
        pcclGetStats(comm_, nullptr, 0, &needed);
        std::string text;
        pcclResult_t result = pcclInvalidArgument;
        {
            const WithoutGil released;
            // Counters may have grown by a digit since their size was read.
            for (int attempt = 0; attempt < 4 && result != pcclSuccess; ++attempt) {
                text.resize(needed + 64);
                result = pcclGetStats(comm_, text.data(), text.size(), &needed);
            }
        }
        require(result, "pcclGetStats");
        text.resize(needed - 1);
        return text_of(text);
    }
    nb::str last_message() const { return text_of(pcclGetLastErrorMessage(comm_)); }

private:
    // A call of this communicator that waits in this thread. Those of a thread are a chain, because a signal handler
    // may make calls within one.
    struct Wait {
        explicit Wait(Comm& waiting) : comm(waiting), outer(std::exchange(innermost, this)) {}
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;
        ~Wait() {
            innermost = outer;
            if (destroys) comm.destroy();
        }

        static thread_local Wait* innermost;
        Comm& comm;
        Wait* const outer;
        bool destroys = false;  // close() was called within it
    };

    Wait* outermost_wait() const {
        Wait* found = nullptr;
        for (Wait* wait = Wait::innermost; wait != nullptr; wait = wait->outer)
            if (&wait->comm == this) found = wait;
        return found;
    }
    template <class Call>
    void wait(const char* function, Call&& call, bool launches = false) {
        const Wait here(*this);
        wait_for(function, std::forward<Call>(call), launches);
    }
    void destroy() {
        const WithoutGil released;
        // comm_ remains as a stale handle: calls on it fail with the message that the communicator is gone.
        pcclDestroyCommunicator(comm_);
    }
    template <class Call>
    void launch(const char* function, Operation& operation, bool collective, Call&& call) {
        if (operation.is_launched()) throw nb::value_error("this operation is launched already");
        const auto launching = [&] {
            pcclAsyncReduceOp_t handle{};
            const pcclResult_t result = call(&handle);
            // Here, because wait_for() may raise although the launch has succeeded.
            if (result == pcclSuccess) operation.launched(handle, collective, closed_);
            return result;
        };
        wait(function, launching, true);
    }

    pcclComm_t* comm_ = nullptr;
    const std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);  // guarded by the GIL
};

thread_local Comm::Wait* Comm::Wait::innermost = nullptr;

}  // namespace

void bind_communicator(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Operation>(module, "Operation")
        .def(nb::init<>())
        .def("is_launched", &Operation::is_launched)
        .def("start", &Operation::start)
        .def("done", &Operation::done)
        .def("wait", &Operation::wait, "timeout"_a.none())
        .def("outcome", &Operation::outcome)
        .def("members", &Operation::members)
        .def("notify", &Operation::notify, "token"_a);
    nb::class_<Pending>(module, "Pending")
        .def(nb::init<const Operation&>(), "operation"_a)
        .def("done_or_dropped", &Pending::done_or_dropped);
    nb::class_<Comm>(module, "Comm")
        .def(nb::init<const nb::bytes&, std::uint16_t, std::uint32_t, std::uint32_t, const nb::dict&>(), "address"_a,
             "port"_a, "group"_a, "pool"_a, "config"_a,
             nb::sig("def __init__(self, address: bytes, port: int, group: int, pool: int, config: dict[str, object]) "
                     "-> None"))
        .def("connect", &Comm::connect)
        .def("update_topology", &Comm::update_topology)
        .def("are_peers_pending", &Comm::are_peers_pending)
        .def("optimize_topology", &Comm::optimize_topology)
        .def("attribute", &Comm::attribute, "which"_a)
        .def("all_reduce", &Comm::all_reduce, "send"_a, "receive"_a, "reduction"_a)
        .def("all_reduce_async", &Comm::all_reduce_async, "operation"_a, "send"_a, "receive"_a, "reduction"_a)
        .def("all_reduce_multiple_with_retry", &Comm::all_reduce_multiple_with_retry, "reductions"_a, "max_in_flight"_a)
        .def("collect", &Comm::collect, "kind"_a, "collection"_a, "members"_a, "counts"_a)
        .def("collect_async", &Comm::collect_async, "operation"_a, "kind"_a, "collection"_a, "members"_a, "counts"_a)
        .def("set_piece_order", &Comm::set_piece_order, "order"_a)
        .def("peer_id", &Comm::peer_id)
        .def("synchronize", &Comm::synchronize, "revision"_a, "entries"_a, "strategy"_a)
        .def("abort", &Comm::abort)
        .def("waits_here", &Comm::waits_here)
        .def("close", &Comm::close)
        .def("statistics", &Comm::statistics)
        .def("last_message", &Comm::last_message);
}

}  // namespace pccl_python
