// See communicator.hpp.
#include "net-real/c_api/communicator.hpp"

#include "core/base/format.hpp"
#include "net-real/c_api/validate.hpp"
#include "net-real/remedies.hpp"

#include <algorithm>
#include <climits>
#include <exception>
#include <utility>

namespace pccl::c_api {

void fill(pcclReduceInfo_t* info, const core::Completion& completion) {
    if (info == nullptr) return;
    *info = {};
    info->local_world_size = completion.world;
    info->tx_bytes = completion.sent_bytes;
    info->rx_bytes = completion.received_bytes;
}

void fill(pcclCollectiveInfo_t* info, const core::Completion& completion) {
    if (info == nullptr) return;
    info->local_world_size = completion.world;
    info->local_index = completion.index;
    info->tx_bytes = completion.sent_bytes;
    info->rx_bytes = completion.received_bytes;
    const std::size_t room = info->members == nullptr ? 0 : info->members_capacity;
    for (std::size_t i = 0; i < std::min(room, completion.members.size()); ++i) {
        const core::Completion::Part& member = completion.members[i];
        static_assert(sizeof info->members[i].peer.bytes == sizeof member.peer.bytes);
        std::copy(member.peer.bytes.begin(), member.peer.bytes.end(), info->members[i].peer.bytes);
        info->members[i].count = member.count;
    }
}

// ---- buffers -----------------------------------------------------------------------------------------------------

Communicator::Buffers::Buffers(Buffers&& other) noexcept
    : runtime_(std::exchange(other.runtime_, nullptr)), ids_(std::exchange(other.ids_, {})) {}

Communicator::Buffers& Communicator::Buffers::operator=(Buffers&& other) noexcept {
    if (this != &other) {
        release();
        runtime_ = std::exchange(other.runtime_, nullptr);
        ids_ = std::exchange(other.ids_, {});
    }
    return *this;
}

Communicator::Buffers::~Buffers() { release(); }

void Communicator::Buffers::release() {
    for (const core::BufferId id : ids_) runtime_->release_buffer(id);
    ids_.clear();
}

core::BufferId Communicator::Buffers::add(void* data, std::uint64_t bytes) {
    // Reserve first: nothing may throw between register_buffer() and push_back(), or the id would leak. The capacity is
    // doubled, because reserve() alone would grow by one each time.
    if (ids_.size() == ids_.capacity()) ids_.reserve(std::max<std::size_t>(16, 2 * ids_.capacity()));
    const core::BufferId id = runtime_->register_buffer(data, bytes);
    ids_.push_back(id);
    return id;
}

// ---- life --------------------------------------------------------------------------------------------------------

Communicator::Communicator(real::PeerSettings settings)
    : settings_([&] {
          settings.notice = [this](std::string_view text) { remember(std::string(text)); };
          return std::move(settings);
      }()) {}

Communicator::~Communicator() {
    stop();
    finish_callbacks();
}

Outcome Communicator::start_runtime() {
    const std::lock_guard lock(start_mutex_);
    if (stopped_) return failure(pcclMasterConnectionFailed, "the communicator is being destroyed");
    if (runtime() != nullptr) return success();
    if (!owned_) owned_ = std::make_unique<real::PeerRuntime>(settings_);
    std::string error;
    if (!owned_->start(error)) return failure(pcclMasterConnectionFailed, error);
    published_.store(owned_.get());  // sequentially consistent, see abort()
    return success();
}

void Communicator::stop() {
    {
        const std::lock_guard lock(start_mutex_);
        stopped_ = true;
    }
    if (real::PeerRuntime* started = runtime()) started->stop();
}

void Communicator::finish_callbacks() { callbacks_.finish(); }

void Communicator::abandon_in_child() {
    if (real::PeerRuntime* started = runtime()) started->abandon_in_child();
}

// ---- answers -----------------------------------------------------------------------------------------------------

Outcome Communicator::not_connected() const {
    return invalid_usage("this communicator was never connected; call pcclConnect first");
}

Outcome Communicator::from(const core::Completion& completion) const {
    if (completion.result == core::Result::success) return success();
    Outcome outcome{static_cast<pcclResult_t>(completion.result), real::told(completion.cause), "pccl"};
    if (const real::PeerRuntime* started = runtime()) outcome.who = started->name();
    return outcome;
}

Outcome Communicator::connect() {
    // The start may take seconds, and an abort() in that time finds no runtime.
    const auto is_aborted = [this, before = aborts_.load()] { return aborts_.load() != before; };
    if (Outcome started = start_runtime(); started.result != pcclSuccess) return started;
    const core::Completion completion = runtime()->connect(is_aborted);
    if (completion.result == core::Result::success) was_connected_.store(true, std::memory_order_release);
    return from(completion);
}

Outcome Communicator::attribute(std::uint32_t attribute, int& value) const {
    const real::PeerRuntime* started = runtime();
    if (started == nullptr || !was_connected_.load(std::memory_order_acquire)) return not_connected();
    const core::Attributes now = started->attributes();
    std::uint32_t number = 0;
    switch (attribute) {
    case PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE: number = now.global_world; break;
    case PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE: number = now.group_world; break;
    case PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS: number = now.groups; break;
    case PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE: number = now.largest_group; break;
    case static_cast<std::uint32_t>(PCCL_ATTRIBUTE_NUM_GANGS): number = now.gangs; break;
    default: return invalid_argument(core::formatted("unknown attribute {}; use a pcclAttribute_t", attribute));
    }
    value = number > INT_MAX ? INT_MAX : static_cast<int>(number);
    return success();
}

Outcome Communicator::update_topology() {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    return from(started->call(core::CommandUpdateTopology{}));
}

Outcome Communicator::are_peers_pending(bool& pending) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    const core::Completion completion = started->call(core::CommandArePeersPending{});
    if (completion.result == core::Result::success) pending = completion.pending;
    return from(completion);
}

Outcome Communicator::optimize_topology() {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    return from(started->call(core::CommandOptimizeTopology{}));
}

// ---- collectives -------------------------------------------------------------------------------------------------

core::CommandLaunch Communicator::describe(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor,
                                           Buffers& buffers) const {
    core::CommandLaunch command;
    command.tag = descriptor.tag;
    command.shape.count = descriptor.count;
    command.shape.type = static_cast<core::DataType>(raw_value(descriptor.src_descriptor.datatype));
    command.shape.op = static_cast<core::ReduceOp>(raw_value(descriptor.op));
    command.shape.quantization = quantization_of(descriptor);
    const std::uint64_t bytes = command.shape.count * core::element_bytes(command.shape.type);
    command.receive = buffers.add(receive, bytes);
    // The runtime never writes to a send buffer, unless it is the receive buffer too. The cast only fits it into the
    // table.
    command.send = send == receive ? command.receive : buffers.add(const_cast<void*>(send), bytes);
    // Small enough for its vote to carry it.
    if (bytes <= core::Limits{}.vote_input_bytes_max && command.shape.quantization == core::Quantization{})
        command.input.assign(static_cast<const char*>(send), bytes);
    return command;
}

core::CommandLaunch Communicator::describe(const Request& request, Buffers& buffers) {
    core::CommandLaunch command = request.command;
    const bool in_place = request.send == request.receive && request.send != nullptr;
    command.receive = buffers.add(request.receive, in_place ? std::max(request.send_bytes, request.receive_bytes)
                                                            : request.receive_bytes);
    command.send = in_place ? command.receive : buffers.add(const_cast<void*>(request.send), request.send_bytes);
    // Small enough for its vote to carry it.
    if (request.send_bytes != 0 && request.send_bytes <= core::Limits{}.vote_input_bytes_max)
        command.input.assign(static_cast<const char*>(request.send), request.send_bytes);
    return command;
}

Outcome Communicator::launch(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    const core::CommandLaunch command = describe(send, receive, descriptor, buffers);
    return launch(command, std::move(buffers));
}

Outcome Communicator::launch(const Request& request) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    const core::CommandLaunch command = describe(request, buffers);
    return launch(command, std::move(buffers));
}

Outcome Communicator::launch(const core::CommandLaunch& command, Buffers buffers) {
    LaunchedMap made;  // allocated first: after the launch nothing may fail, because the operation owns the buffers
    made.emplace(command.tag, std::move(buffers));
    const core::Completion completion = runtime()->call(command);
    if (completion.result != core::Result::success) return from(completion);
    const std::lock_guard lock(launched_mutex_);
    launched_.erase(command.tag);  // left over from before the communicator was lost and connected again
    launched_.insert(made.extract(command.tag));
    return success();
}

Outcome Communicator::await(std::uint64_t tag, pcclReduceInfo_t* info) {
    core::Completion completion;
    Outcome outcome = await_launched(tag, completion);
    if (outcome.result == pcclSuccess) fill(info, completion);
    return outcome;
}

Outcome Communicator::await(std::uint64_t tag, pcclCollectiveInfo_t* info) {
    core::Completion completion;
    Outcome outcome = await_launched(tag, completion);
    if (outcome.result == pcclSuccess) fill(info, completion);
    return outcome;
}

Outcome Communicator::await_launched(std::uint64_t tag, core::Completion& completion) {
    LaunchedMap::node_type launched;
    if (Outcome taken = take_launched(tag, launched); taken.result != pcclSuccess) return taken;
    core::CommandAwait command;
    command.tag = tag;
    try {
        completion = runtime()->call(command);
    } catch (...) {
        give_back(std::move(launched));
        throw;
    }
    return from(completion);
}

core::Uuid Communicator::identity() const {
    const real::PeerRuntime* started = runtime();
    return started == nullptr || !was_connected_.load(std::memory_order_acquire) ? core::Uuid{} : started->identity();
}

core::Tag Communicator::next_send() {
    // The finalizer of splitmix64: one to one, so names do not repeat, and far from small numbers.
    std::uint64_t name = (sends_.fetch_add(1, std::memory_order_relaxed) + 1) * 0x9E3779B97F4A7C15ull;
    name = (name ^ (name >> 30)) * 0xBF58476D1CE4E5B9ull;
    name = (name ^ (name >> 27)) * 0x94D049BB133111EBull;
    return name ^ (name >> 31);
}

void Communicator::set_piece_order(std::vector<std::uint32_t> order) {
    const std::lock_guard lock(order_mutex_);
    piece_order_ = std::move(order);
}

std::vector<std::uint32_t> Communicator::piece_order() const {
    const std::lock_guard lock(order_mutex_);
    return piece_order_;
}

Outcome Communicator::take_launched(std::uint64_t tag, LaunchedMap::node_type& launched) {
    const std::lock_guard lock(launched_mutex_);
    const auto at = launched_.find(tag);
    if (at == launched_.end()) {
        return failure(pcclRankConnectionLost,
                       core::formatted("tag {} is not launched or awaited already; await each launch once", tag));
    }
    launched = launched_.extract(at);
    return success();
}

void Communicator::give_back(LaunchedMap::node_type launched) noexcept {
    const std::lock_guard lock(launched_mutex_);
    launched_.insert(std::move(launched));
}

Outcome Communicator::await_then(std::uint64_t tag, Then then) {
    callbacks_.start();
    struct Awaited {
        LaunchedMap::node_type launched;
        Outcome outcome;
        core::Completion known;
    };
    auto awaited = std::make_shared<Awaited>();
    // The closure holds the communicator: a callback may destroy it while further callbacks wait in the queue. It is
    // made here, because the I/O thread must be able to queue it even if memory is short.
    auto callback = std::make_shared<real::CallbackThread::Prepared>(real::CallbackThread::prepare(
        [self = shared_from_this(), awaited, then = std::move(then)] { then(awaited->outcome, awaited->known); }));
    if (Outcome taken = take_launched(tag, awaited->launched); taken.result != pcclSuccess) return taken;
    try {
        core::CommandAwait command;
        command.tag = tag;
        runtime()->call_then(command, [self = shared_from_this(), awaited,
                                       callback](const core::Completion& completion) {
            awaited->launched = {};  // release the caller's memory before its callback runs
            const bool succeeded = completion.result == core::Result::success;
            try {
                awaited->outcome = self->from(completion);
                if (succeeded) awaited->known = completion;
            } catch (const std::exception&) {
                // No memory: the result without its text, and no success without its members.
                awaited->known = {};
                awaited->outcome.result = succeeded ? pcclInternalError : static_cast<pcclResult_t>(completion.result);
            }
            self->callbacks_.push(std::move(*callback));
        });
    } catch (...) {
        if (!awaited->launched.empty()) give_back(std::move(awaited->launched));
        throw;
    }
    return success();
}

Outcome Communicator::launch_and_await(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor,
                                       pcclReduceInfo_t* info) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    const core::CommandLaunch launch = describe(send, receive, descriptor, buffers);
    core::CommandAwait await;
    await.tag = descriptor.tag;
    const core::Completion completion = started->call(launch, await);
    if (completion.result == core::Result::success) fill(info, completion);
    return from(completion);
}

Outcome Communicator::launch_and_await(const Request& request, pcclCollectiveInfo_t* info) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    const core::CommandLaunch launch = describe(request, buffers);
    core::CommandAwait await;
    await.tag = launch.tag;
    const core::Completion completion = started->call(launch, await);
    if (completion.result == core::Result::success) fill(info, completion);
    return from(completion);
}

Outcome Communicator::reduce_many(const pcclReduceOpDescriptor_t* descriptors, std::size_t count, std::uint32_t window,
                                  pcclReduceInfo_t* info) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    core::CommandReduceMany command;
    command.window = window;
    command.launches.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const pcclReduceOpDescriptor_t& one = descriptors[i];
        command.launches.push_back(describe(one.sendbuf, one.recvbuf, one.descriptor, buffers));
    }
    const core::Completion completion = started->call(std::move(command));
    if (completion.result == core::Result::success) fill(info, completion);
    return from(completion);
}

// ---- shared state ------------------------------------------------------------------------------------------------

Outcome Communicator::synchronize(pcclSharedState_t& state, std::uint32_t strategy, pcclSharedStateSyncInfo_t* info) {
    real::PeerRuntime* started = runtime();
    if (started == nullptr) return not_connected();
    Buffers buffers(*started);
    core::CommandSync command;
    command.revision = state.revision;
    command.strategy = static_cast<core::SyncStrategy>(strategy);
    command.entries.reserve(state.count);
    for (std::size_t i = 0; i < state.count; ++i) {
        const pcclTensorInfo_t& tensor = state.infos[i];
        core::StateEntry entry;
        entry.name = tensor.name;
        entry.count = tensor.count;
        entry.type = static_cast<core::DataType>(raw_value(tensor.datatype));
        unsigned char flag = 0;  // a foreign program may have stored any byte in the bool
        std::memcpy(&flag, &tensor.allow_content_inequality, sizeof flag);
        entry.allow_content_inequality = flag != 0;
        entry.buffer = buffers.add(tensor.data, entry.count * core::element_bytes(entry.type));
        command.entries.push_back(std::move(entry));
    }
    // Sort by name (the canonical order) here, not on the I/O thread: there a million long names would take as long as
    // the peer time-out.
    std::sort(command.entries.begin(), command.entries.end(),
              [](const auto& one, const auto& other) { return one.name < other.name; });
    const core::Completion completion = started->call(std::move(command));
    syncs_.sent_bytes += completion.sent_bytes;
    syncs_.received_bytes += completion.received_bytes;
    ++(completion.result == core::Result::success ? syncs_.done : syncs_.failed);
    if (completion.result != core::Result::success) return from(completion);
    state.revision = completion.revision;
    if (info != nullptr) *info = {completion.sent_bytes, completion.received_bytes};
    return success();
}

}  // namespace pccl::c_api
