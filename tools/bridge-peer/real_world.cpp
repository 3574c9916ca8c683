#include "tools/bridge-peer/real_world.hpp"

#include <cerrno>
#include <ctime>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace pccl::bridge {

using namespace core;

namespace {

const char* name_of(const Command& command) {
    static constexpr const char* names[] = {"pcclConnect",
                                            "pcclUpdateTopology",
                                            "pcclArePeersPending",
                                            "pcclAllReduceAsync",
                                            "pcclAwaitAsyncReduce",
                                            "pcclSynchronizeSharedState",
                                            "pcclDestroyCommunicator",
                                            "pcclAllReduceMultipleWithRetry",
                                            "pcclOptimizeTopology"};
    static_assert(std::size(names) == std::variant_size_v<Command>);
    return names[command.index()];
}

}  // namespace

RealWorld::~RealWorld() {
    if (communicator_ != nullptr) static_cast<void>(pcclDestroyCommunicator(communicator_));
}

Instant RealWorld::now() const {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);  // common to all processes of the machine
    return static_cast<Instant>(time.tv_sec) * second + time.tv_nsec - origin_;
}

BufferId RealWorld::add_buffer(std::uint32_t, std::uint64_t bytes) {
    buffers_.push_back(std::make_unique<std::vector<std::uint8_t>>(static_cast<std::size_t>(bytes)));
    return buffers_.size() - 1;
}

bool RealWorld::run(harness::Process& process) {
    process.start();
    while (!process.finished()) {
        if (command_) {
            const Command command = std::move(*command_);
            command_.reset();
            facts_.waits_in(name_of(command), now());
            if (!facts_.write(shared_.ledger, shared_.counters)) return false;
            const Completion completion = carry_out(command);
            facts_.waits_in("", now());
            sleep_until(now(), process);  // reads what arrived on standard input meanwhile
            const Ticket ticket = std::visit([](const auto& any) { return any.ticket; }, command);
            process.completed(ticket, completion);
        } else if (wake_) {
            const Wake wake = *wake_;
            wake_.reset();
            if (!facts_.write(shared_.ledger, shared_.counters)) return false;
            sleep_until(wake.at, process);
            process.resume(wake.ticket);
        } else {
            facts_.violated("progress", "the program waits for nothing");
            break;
        }
    }
    return facts_.write(shared_.ledger, shared_.counters);
}

// Input on standard input does not shorten a sleep: the program sees it at its next step, as in the simulation.
void RealWorld::sleep_until(Instant at, harness::Process& process) {
    for (bool first = true;; first = false) {
        const Duration rest = at - now();
        if (rest <= 0 && !first) return;
        timespec limit{};
        if (rest > 0) {
            limit.tv_sec = rest / second;
            limit.tv_nsec = rest % second;
        }
        pollfd input{shared_.stopping ? -1 : STDIN_FILENO, POLLIN, 0};
        if (ppoll(&input, 1, &limit, nullptr) <= 0) continue;
        Instant until = 0;
        const ssize_t count = ::read(STDIN_FILENO, &until, sizeof until);
        if (count == static_cast<ssize_t>(sizeof until)) {
            process.hang(until);
        } else if (count >= 0 || errno != EINTR) {
            shared_.stopping = true;
        }
    }
}

// --- the calls ---------------------------------------------------------------------------------------------------------------

Completion RealWorld::carry_out(const Command& command) {
    return std::visit([this](const auto& any) { return (*this)(any); }, command);
}

// Without a message: messages stay in the library's log.
Completion RealWorld::answer(pcclResult_t result) const {
    Completion completion;
    completion.result = static_cast<Result>(result);
    if (!joined_) return completion;  // no attributes to read yet
    const auto read = [this](pcclAttribute_t attribute, std::uint32_t& value) {
        int number = 0;
        if (pcclGetAttribute(communicator_, attribute, &number) == pcclSuccess && number > 0)
            value = static_cast<std::uint32_t>(number);
    };
    Attributes& a = completion.attributes;
    read(PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, a.global_world);
    read(PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, a.group_world);
    read(PCCL_ATTRIBUTE_NUM_DISTINCT_PEER_GROUPS, a.groups);
    read(PCCL_ATTRIBUTE_LARGEST_PEER_GROUP_WORLD_SIZE, a.largest_group);
    return completion;
}

Completion RealWorld::operator()(const CommandConnect&) {
    if (communicator_ == nullptr) {
        const pcclResult_t created = pcclCreateCommunicator(&parameters_, &communicator_);
        if (created != pcclSuccess) return answer(created);
    }
    const pcclResult_t result = pcclConnect(communicator_);
    if (result == pcclSuccess) joined_ = true;
    return answer(result);
}

Completion RealWorld::operator()(const CommandUpdateTopology&) { return answer(pcclUpdateTopology(communicator_)); }

Completion RealWorld::operator()(const CommandOptimizeTopology&) { return answer(pcclOptimizeTopology(communicator_)); }

Completion RealWorld::operator()(const CommandArePeersPending&) {
    bool pending = false;
    Completion completion = answer(pcclArePeersPending(communicator_, &pending));
    completion.pending = pending;
    return completion;
}

namespace {

pcclReduceDescriptor_t describe(const CommandLaunch& command) {
    pcclReduceDescriptor_t descriptor{};
    descriptor.count = command.shape.count;
    descriptor.op = static_cast<pcclRedOp_t>(command.shape.op);
    descriptor.tag = command.tag;
    descriptor.src_descriptor.datatype = static_cast<pcclDataType_t>(command.shape.type);
    const Quantization& how = command.shape.quantization;
    descriptor.src_descriptor.distribution_hint = static_cast<pcclDistributionHint_t>(how.hint);
    descriptor.quantization_options.quantized_datatype = static_cast<pcclDataType_t>(how.type);
    descriptor.quantization_options.algorithm = static_cast<pcclQuantizationAlgorithm_t>(how.algorithm);
    return descriptor;
}

}  // namespace

Completion RealWorld::operator()(const CommandReduceMany& command) {
    std::vector<pcclReduceOpDescriptor_t> descriptors;
    for (const CommandLaunch& one : command.launches)
        descriptors.push_back({buffers_[one.send]->data(), buffers_[one.receive]->data(), describe(one)});
    pcclReduceInfo_t info{};
    Completion completion = answer(pcclAllReduceMultipleWithRetry(descriptors.data(), descriptors.size(), communicator_,
                                                                  &info, static_cast<int>(command.window)));
    completion.world = info.local_world_size;
    completion.sent_bytes = info.tx_bytes;
    completion.received_bytes = info.rx_bytes;
    return completion;  // this interface does not report which members reduced which tag
}

Completion RealWorld::operator()(const CommandLaunch& command) {
    const pcclReduceDescriptor_t descriptor = describe(command);
    pcclAsyncReduceOp_t handle{};
    return answer(pcclAllReduceAsync(buffers_[command.send]->data(), buffers_[command.receive]->data(), &descriptor,
                                     communicator_, &handle));
}

Completion RealWorld::operator()(const CommandAwait& command) {
    const pcclAsyncReduceOp_t handle{communicator_, command.tag};
    pcclReduceInfo_t info{};
    const pcclResult_t result = pcclAwaitAsyncReduce(&handle, &info);
    Completion completion = answer(result);
    completion.world = info.local_world_size;
    completion.sent_bytes = info.tx_bytes;
    completion.received_bytes = info.rx_bytes;
    return completion;
}

Completion RealWorld::operator()(const CommandSync& command) {
    std::vector<pcclTensorInfo_t> tensors;
    for (const StateEntry& entry : command.entries) {
        pcclTensorInfo_t tensor{};
        tensor.name = entry.name.c_str();
        tensor.data = buffers_[entry.buffer]->data();
        tensor.count = entry.count;
        tensor.datatype = static_cast<pcclDataType_t>(entry.type);
        tensor.device_type = pcclDeviceCpu;
        tensor.allow_content_inequality = entry.allow_content_inequality;
        tensors.push_back(tensor);
    }
    pcclSharedState_t state{command.revision, tensors.size(), tensors.data()};
    pcclSharedStateSyncInfo_t info{};
    Completion completion = answer(pcclSynchronizeSharedState(
        communicator_, &state, static_cast<pcclSharedStateSyncStrategy_t>(command.strategy), &info));
    completion.revision = state.revision;
    completion.sent_bytes = info.tx_bytes;
    completion.received_bytes = info.rx_bytes;
    return completion;
}

Completion RealWorld::operator()(const CommandLeave&) {
    joined_ = false;
    return answer(pcclDestroyCommunicator(std::exchange(communicator_, nullptr)));
}

}  // namespace pccl::bridge
