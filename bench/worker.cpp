// The peer and the master. Everything here goes through pccl.h, as in a user's program.
#include "worker.hpp"

#include "collectives.hpp"
#include "statistics.hpp"

#include <pccl.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace pccl::bench {

namespace {

// False if `host` is no IPv4 address.
bool make_address(const std::string& host, std::uint16_t port, ccoip_socket_address_t& address) {
    address = {};
    address.inet.protocol = inetIPv4;
    address.port = port;
    return inet_pton(AF_INET, host.c_str(), address.inet.ipv4.data) == 1;
}

// Memory of f32 that is resident from the start and returned to the system at the end. What remains is the library's.
class Buffer {
public:
    Buffer(std::size_t elements, float value) : bytes_(elements * sizeof(float)) {
        void* memory = mmap(nullptr, bytes_ + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<float*>(memory);
        fill(value);
    }
    Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
    ~Buffer() {
        if (data_ != nullptr) munmap(data_, bytes_ + 1);
    }
    void fill(float value) { std::fill_n(data_, size(), value); }
    bool holds(float value) const {
        return std::all_of(data_, data_ + size(), [&](float x) { return x == value; });
    }
    std::size_t size() const { return bytes_ / sizeof(float); }
    float* data() { return data_; }

private:
    float* data_ = nullptr;
    std::size_t bytes_;
};

class Peer {
public:
    Peer(unsigned rank, unsigned world) : rank_(rank), world_(world) {}
    ~Peer() {
        if (communicator_ != nullptr) pcclDestroyCommunicator(communicator_);
    }

    bool join(const MasterPlace& master, unsigned connections) {
        pcclCommCreateParams_t parameters{};
        if (!make_address(master.host, master.port, parameters.master_address)) return false;
        parameters.p2p_connection_pool_size = connections;
        if (pcclInit() != pcclSuccess || pcclCreateCommunicator(&parameters, &communicator_) != pcclSuccess)
            return false;
        pcclResult_t result = pcclConnect(communicator_);
        for (int attempt = 0; attempt < 20 && result != pcclSuccess; ++attempt) {
            usleep(100'000);
            result = pcclConnect(communicator_);
        }
        // All members see the same world size, so all of them make the same number of turns here.
        for (int turn = 0; result == pcclSuccess && group_world() < world_ && turn < 5000; ++turn) {
            usleep(2000);
            result = pcclUpdateTopology(communicator_);
        }
        resident_at_start_ = resident_bytes();
        return result == pcclSuccess && group_world() == world_;
    }

    void reduce(std::istream& arguments) {
        std::size_t bytes = 0;
        unsigned in_place = 0, tags = 1, warmup = 0, iterations = 0, quantized = 0;
        arguments >> bytes >> in_place >> tags >> warmup >> iterations >> quantized;
        quantized_ = quantized != 0;
        const std::size_t elements = bytes / sizeof(float);
        const auto own_value = static_cast<float>(rank_ + 1);
        std::vector<Buffer> receive, send;
        for (unsigned tag = 0; tag < tags; ++tag) {
            receive.emplace_back(elements, own_value);
            if (in_place == 0) send.emplace_back(elements, own_value);
        }
        const std::size_t buffer_bytes = bytes * tags * (in_place != 0 ? 1 : 2);
        const auto expected = static_cast<float>(world_ * (world_ + 1) / 2);
        std::vector<double> times_ms;
        double cpu_seconds = own_cpu_seconds();
        reset_peak_resident();
        pcclResult_t result = pcclSuccess;
        for (unsigned i = 0; i < warmup + iterations && result == pcclSuccess; ++i) {
            if (i == warmup) cpu_seconds = own_cpu_seconds();
            const std::int64_t start = monotonic_ns();
            result = tags == 1 ? reduce_one(in_place != 0 ? receive[0] : send[0], receive[0])
                               : reduce_many(in_place != 0 ? receive : send, receive);
            if (i >= warmup && rank_ == 0) times_ms.push_back(static_cast<double>(monotonic_ns() - start) * 1e-6);
            if (i == 0 && result == pcclSuccess) {
                for (auto& buffer : receive) {
                    if (!buffer.holds(expected)) result = pcclInternalError;
                    if (in_place != 0) buffer.fill(0);  // sums must not grow from one iteration to the next
                }
            }
        }
        cpu_seconds = own_cpu_seconds() - cpu_seconds;
        const std::size_t peak = peak_resident_bytes(), expected_bytes = resident_at_start_ + buffer_bytes;
        std::ostringstream answer;
        answer << "reduced " << static_cast<int>(result) << ' ' << cpu_seconds << ' '
               << (peak > expected_bytes ? peak - expected_bytes : 0) << ' ' << times_ms.size();
        for (const double time : times_ms) answer << ' ' << time;
        say(answer.str());
    }

    void stream(std::istream& arguments) {
        std::size_t bytes = 0;
        unsigned in_flight = 1, warmup = 0, iterations = 1;
        arguments >> bytes >> in_flight >> warmup >> iterations;
        const auto own_value = static_cast<float>(rank_ + 1);
        const auto expected = static_cast<float>(world_ * (world_ + 1) / 2);
        std::vector<Buffer> send, receive;
        for (unsigned tag = 0; tag < in_flight; ++tag) {
            send.emplace_back(bytes / sizeof(float), own_value);
            receive.emplace_back(bytes / sizeof(float), own_value);
        }
        std::vector<pcclAsyncReduceOp_t> handles(in_flight);
        pcclResult_t result = pcclSuccess;
        const auto keep = [&](pcclResult_t one) { result = result == pcclSuccess ? one : result; };
        std::int64_t start = 0;
        double cpu_seconds = 0;
        for (unsigned i = 0; i <= warmup + iterations && result == pcclSuccess; ++i) {
            for (unsigned tag = 0; tag < in_flight; ++tag) {
                if (i > 0) keep(pcclAwaitAsyncReduce(&handles[tag], nullptr));
                if (i == warmup && tag == 0) {
                    start = monotonic_ns();
                    cpu_seconds = own_cpu_seconds();
                }
                if (i == warmup + iterations) continue;
                const pcclReduceDescriptor_t descriptor = describe(receive[tag].size(), tag);
                keep(pcclAllReduceAsync(send[tag].data(), receive[tag].data(), &descriptor, communicator_,
                                        &handles[tag]));
            }
        }
        const double time_ms = static_cast<double>(monotonic_ns() - start) * 1e-6 / iterations;
        for (auto& buffer : receive) {
            if (result == pcclSuccess && !buffer.holds(expected)) result = pcclInternalError;
        }
        std::ostringstream answer;
        answer << "reduced " << static_cast<int>(result) << ' ' << own_cpu_seconds() - cpu_seconds << " 0 ";
        if (rank_ == 0)
            answer << "1 " << time_ms;
        else
            answer << '0';
        say(answer.str());
    }

    void faulty(std::istream& arguments) {
        std::size_t bytes = 0;
        arguments >> bytes;
        Buffer buffer(bytes / sizeof(float), 0);
        // A first operation, as in a run under way: the library then has the memory that it keeps between operations,
        // and its pages are mapped. Otherwise, clearing new pages would take most of the time.
        if (reduce_one(buffer, buffer) != pcclSuccess) return say("failed before the fault");
        buffer.fill(static_cast<float>(rank_ + 1));
        say("begin " + std::to_string(monotonic_ns()));
        pcclResult_t result = reduce_one(buffer, buffer);
        const std::int64_t end = monotonic_ns();
        say("end " + std::to_string(static_cast<int>(result)) + " " + std::to_string(end));
        if (result == pcclSuccess) return;
        // The retry needs no other call. In place, it starts from the restored input.
        int attempts = 0;
        while (result == pcclRankConnectionLost && attempts < 5) {
            result = reduce_one(buffer, buffer);
            ++attempts;
        }
        const std::int64_t retried = monotonic_ns();
        const auto expected = static_cast<float>(world_ * (world_ - 1) / 2);
        say("retried " + std::to_string(static_cast<int>(result)) + " " + std::to_string(retried) + " " +
            std::to_string(group_world()) + " " + (buffer.holds(expected) ? "1 " : "0 ") + std::to_string(attempts));
    }

    // Measures synchronizations of a state that all peers hold, plain reads of it for comparison, and synchronizations
    // in which the last peer receives all of it. The first two are CPU time, because the peers share the machine's
    // cores.
    void state(std::istream& arguments) {
        std::size_t bytes = 0;
        unsigned turns = 0;
        arguments >> bytes >> turns;
        Buffer buffer(bytes / sizeof(float), 1);
        std::uint64_t revision = 0;
        pcclResult_t result = synchronize(buffer, revision++);
        double hash_seconds = own_cpu_seconds();
        for (unsigned i = 0; i < turns && result == pcclSuccess; ++i) result = synchronize(buffer, revision++);
        hash_seconds = (own_cpu_seconds() - hash_seconds) / turns;
        double read_seconds = own_cpu_seconds();
        for (unsigned i = 0; i < turns; ++i) sum_ += read_all(buffer);
        read_seconds = (own_cpu_seconds() - read_seconds) / turns;
        const bool receives = rank_ + 1 == world_;
        std::ostringstream times;
        for (unsigned i = 0; i < turns && result == pcclSuccess; ++i, ++revision) {
            if (receives) buffer.fill(static_cast<float>(i + 2));
            const std::int64_t start = monotonic_ns();
            result = synchronize(buffer, receives ? revision - 1 : revision);
            if (receives) times << ' ' << static_cast<double>(monotonic_ns() - start) * 1e-9;
            if (result == pcclSuccess && !buffer.holds(1)) result = pcclInternalError;
        }
        std::ostringstream answer;
        answer << "state " << static_cast<int>(result) << ' ' << hash_seconds << ' ' << read_seconds << times.str();
        say(answer.str());
    }

    void move(std::istream& arguments) { say(move_arrays(communicator_, rank_, world_, arguments)); }

    static void say(const std::string& line) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
    }

private:
    unsigned group_world() const {
        int world = 0;
        pcclGetAttribute(communicator_, PCCL_ATTRIBUTE_PEER_GROUP_WORLD_SIZE, &world);
        return static_cast<unsigned>(world);
    }

    pcclReduceDescriptor_t describe(std::size_t elements, std::uint64_t tag) const {
        pcclQuantizationOptions_t sent{pcclFloat, pcclQuantNone};
        if (quantized_) sent = {pcclUint8, pcclQuantMinMax};
        return {elements, pcclSum, tag, {pcclFloat, pcclDistributionNone}, sent};
    }

    pcclResult_t synchronize(Buffer& buffer, std::uint64_t revision) {
        pcclTensorInfo_t tensor{"state", buffer.data(), buffer.size(), pcclFloat, pcclDeviceCpu, false};
        pcclSharedState_t state{revision, 1, &tensor};
        return pcclSynchronizeSharedState(communicator_, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR,
                                          nullptr);
    }

    static std::uint64_t read_all(Buffer& buffer) {
        const auto* words = reinterpret_cast<const std::uint64_t*>(buffer.data());
        std::uint64_t sums[8] = {};
        for (std::size_t i = 0; i + 8 <= buffer.size() / 2; i += 8) {
            for (std::size_t k = 0; k < 8; ++k) sums[k] += words[i + k];
        }
        return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
    }

    pcclResult_t reduce_one(Buffer& send, Buffer& receive) {
        const pcclReduceDescriptor_t descriptor = describe(receive.size(), 0);
        return pcclAllReduce(send.data(), receive.data(), &descriptor, communicator_, nullptr);
    }

    pcclResult_t reduce_many(std::vector<Buffer>& send, std::vector<Buffer>& receive) {
        std::vector<pcclAsyncReduceOp_t> handles;
        pcclResult_t first_failure = pcclSuccess;
        for (std::size_t tag = 0; tag < receive.size(); ++tag) {
            const pcclReduceDescriptor_t descriptor = describe(receive[tag].size(), tag);
            pcclAsyncReduceOp_t handle{};
            const pcclResult_t result =
                pcclAllReduceAsync(send[tag].data(), receive[tag].data(), &descriptor, communicator_, &handle);
            if (result == pcclSuccess)
                handles.push_back(handle);
            else
                first_failure = result;
        }
        for (const auto& handle : handles) {
            const pcclResult_t result = pcclAwaitAsyncReduce(&handle, nullptr);
            if (first_failure == pcclSuccess) first_failure = result;
        }
        return first_failure;
    }

    static double own_cpu_seconds() {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    }

    unsigned rank_, world_;
    pcclComm_t* communicator_ = nullptr;
    std::size_t resident_at_start_ = 0;
    bool quantized_ = false;  // sent as bytes of pcclUint8; the arrays here have one value, so their sums stay exact
    std::uint64_t sum_ = 0;   // keeps the compiler from leaving the reads out
};

}  // namespace

int run_peer(unsigned rank, unsigned world, const MasterPlace& master, unsigned connections) {
    Peer peer(rank, world);
    if (!peer.join(master, connections)) {
        Peer::say("failed to join");
        return 1;
    }
    Peer::say("ready");
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream arguments(line);
        std::string command;
        arguments >> command;
        if (command == "reduce")
            peer.reduce(arguments);
        else if (command == "stream")
            peer.stream(arguments);
        else if (command == "faulty")
            peer.faulty(arguments);
        else if (command == "state")
            peer.state(arguments);
        else if (command == "move")
            peer.move(arguments);
        else if (command == "memory")
            Peer::say("memory " + std::to_string(resident_bytes()));
        else
            break;
    }
    return 0;
}

int run_master(const std::string& host) {
    pcclMasterInstance_t* master = nullptr;
    std::uint16_t port = 0;
    ccoip_socket_address_t address;
    if (!make_address(host, 0, address) || pcclCreateMaster(address, &master) != pcclSuccess ||
        pcclRunMaster(master) != pcclSuccess || pcclGetMasterPort(master, &port) != pcclSuccess) {
        std::fprintf(stderr, "pccl-bench: the master cannot serve\n");
        return 1;
    }
    Peer::say("port " + std::to_string(port));
    for (std::string line; std::getline(std::cin, line);) {
    }
    pcclInterruptMaster(master);
    pcclMasterAwaitTermination(master);
    pcclDestroyMaster(master);
    return 0;
}

}  // namespace pccl::bench
