// A peer of the tests that kill members and masters in collectives. It obeys commands, one line each:
//
//   collectives_peer PORT LANE PEERS       LANE: its number, below PEERS (at most 4)
//     -> "ready" when PEERS peers are members
//   run KIND COUNT ROOT STEP [DEATH]       one collective of COUNT elements of 8 bytes (at least 10 elements), tried
//                                          until it succeeds
//     -> "end STEP TRY RESULT RIGHT WHAT" after each try, and at last "done STEP WORLD"
//   quit, or the end of the input          leaves the run
//
// ROOT is an index of members, modulo their number. DEATH is `byte F` or `moment F`: this peer gets SIGKILL when a part
// F of the bytes, or of the time, of the last successful try has passed in this one, and at its end if it gets so far.
// RIGHT: buffers hold what they should; after a failure that is the input. WHAT, after a success: the world, and whose
// contributions each piece holds (members as letters); it is equal at all members. A result that the tests do not allow
// ends the peer with exit code 4.
#include "dying.h"
#include "local_run.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace integration;

namespace {

constexpr std::size_t lanes_max = 4;
constexpr int tries_max = 200;

using Values = std::vector<std::uint64_t>;
using Clock = std::chrono::steady_clock;

// Each member contributes to 16 bits of its own, so a sum shows who is in it.
std::uint64_t value(std::uint64_t step, std::size_t i) { return 1 + (step * 7919 + i) % 16'000; }

struct Step {
    std::string kind;
    std::size_t count = 0;
    std::size_t root = 0;
    std::uint64_t number = 0;
};

// A member's part of one try: what it calls, and what it found in its buffers.
class Try {
public:
    Try(const Step& step, std::size_t lane, pcclComm_t* comm, const std::vector<pcclMemberInfo_t>& members,
        const pcclCollectiveInfo_t& group)
        : step_(step), lane_(lane), comm_(comm), world_(group.local_world_size), index_(group.local_index),
          root_(members[step.root % world_].peer), is_root_(step.root % world_ == index_),
          members_(std::vector<pcclMemberInfo_t>(lanes_max)) {
        info_.members = members_.data();
        info_.members_capacity = members_.size();
    }

    pcclResult_t run();
    bool right() const { return right_; }
    const std::string& what() const { return what_; }

private:
    // `count` elements as this member sends them.
    Values filled(std::size_t count) const {
        Values values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = value(step_.number, i) << (16 * lane_);
        return values;
    }
    // What a member with this lane sends in a gather. The lengths differ.
    std::size_t own_length(std::size_t lane) const { return step_.count * (lane + 2) / (lanes_max + 1); }
    // Pieces for members, by index. The lengths differ.
    std::vector<std::uint64_t> cuts() const {
        std::vector<std::uint64_t> counts;
        const std::size_t all = world_ * (world_ + 1) / 2;
        for (std::size_t k = 0, before = 0; k < world_; ++k) {
            const std::size_t end = step_.count * (k + 1) * (k + 2) / 2 / all;
            counts.push_back(end - before);
            before = end;
        }
        return counts;
    }
    std::size_t cut_begin(std::size_t k) const {
        const std::vector<std::uint64_t> counts = cuts();
        std::size_t begin = 0;
        for (std::size_t i = 0; i < k; ++i) begin += counts[i];
        return begin;
    }
    // Elements [first, first + count) of the members' arrays, each the sum of the same `members` of them. Returns their
    // lanes, as letters.
    std::string expect_sum(const std::uint64_t* data, std::size_t first, std::size_t count, std::size_t members) {
        const std::uint64_t sum = data[0] / value(step_.number, first);
        std::string lanes;
        for (std::size_t lane = 0; lane < lanes_max; ++lane) {
            const std::uint64_t times = (sum >> (16 * lane)) & 0xFFFF;
            if (times != 0) lanes += static_cast<char>('a' + lane);
            right_ = right_ && times <= 1;
        }
        right_ = right_ && lanes.size() == members;
        for (std::size_t i = 0; i < count && right_; ++i) right_ = data[i] == sum * value(step_.number, first + i);
        what_ += " " + lanes;
        return lanes;
    }
    void expect_untouched(const Values& send) { right_ = right_ && send == filled(send.size()); }
    // Arrays of all members, one behind the other.
    void expect_gathered(const Values& receive) {
        std::size_t at = 0;
        for (std::size_t k = 0; k < info_.local_world_size && right_; ++k) {
            const std::size_t count = members_[k].count;
            const std::string lanes = expect_sum(receive.data() + at, 0, count, 1);
            right_ = right_ && count == own_length(static_cast<std::size_t>(lanes[0] - 'a'));
            at += count;
        }
    }

    pcclCopyDescriptor_t copy(std::size_t count) const { return {count, pcclUint64, 1}; }
    pcclReduceDescriptor_t reduction() const { return describe(step_.count, 1, pcclSum, pcclUint64); }

    // In place: the array begins with `count` elements of the sum, or holds what it held before.
    pcclResult_t reduced(pcclResult_t result, const Values& data, std::size_t first, std::size_t count, bool gets) {
        if (result == pcclSuccess && gets)
            expect_sum(data.data(), first, count, info_.local_world_size);
        else
            expect_untouched(data);
        return result;
    }

    pcclResult_t all_reduce() {
        Values data = filled(step_.count);
        const pcclReduceDescriptor_t descriptor = reduction();
        pcclReduceInfo_t info{};
        const pcclResult_t result = pcclAllReduce(data.data(), data.data(), &descriptor, comm_, &info);
        info_.local_world_size = info.local_world_size;
        return reduced(result, data, 0, data.size(), true);
    }
    pcclResult_t reduce() {
        Values data = filled(step_.count);
        const pcclReduceDescriptor_t descriptor = reduction();
        const pcclResult_t result = pcclReduce(data.data(), data.data(), &root_, &descriptor, comm_, &info_);
        return reduced(result, data, 0, data.size(), is_root_);
    }
    pcclResult_t reduce_scatter() {
        Values data = filled(step_.count);
        const pcclReduceDescriptor_t descriptor = reduction();
        const std::size_t own = cuts()[index_];
        const pcclResult_t result = pcclReduceScatter(data.data(), data.data(), own, &descriptor, comm_, &info_);
        return reduced(result, data, cut_begin(index_), own, true);
    }
    pcclResult_t broadcast() {
        Values data = filled(step_.count);
        const pcclCopyDescriptor_t descriptor = copy(step_.count);
        const pcclResult_t result = pcclBroadcast(data.data(), data.data(), &root_, &descriptor, comm_, &info_);
        if (result == pcclSuccess)
            expect_sum(data.data(), 0, data.size(), 1);
        else
            expect_untouched(data);
        return result;
    }
    pcclResult_t all_gather() {
        const Values send = filled(own_length(lane_));
        Values receive(lanes_max * step_.count + lanes_max);
        const pcclCopyDescriptor_t descriptor = copy(send.size());
        const pcclResult_t result =
            pcclAllGather(send.data(), receive.data(), receive.size(), &descriptor, comm_, &info_);
        if (result == pcclSuccess) expect_gathered(receive);
        expect_untouched(send);
        return result;
    }
    pcclResult_t gather() {
        const Values send = filled(own_length(lane_));
        Values receive(is_root_ ? lanes_max * step_.count + lanes_max : 0);
        const pcclCopyDescriptor_t descriptor = copy(send.size());
        const pcclResult_t result = pcclGather(send.data(), is_root_ ? receive.data() : nullptr, receive.size(), &root_,
                                               &descriptor, comm_, &info_);
        if (result == pcclSuccess && is_root_) expect_gathered(receive);
        expect_untouched(send);
        return result;
    }
    // In place at the root.
    pcclResult_t scatter() {
        Values send = filled(step_.count);
        const std::vector<std::uint64_t> counts = cuts();
        Values receive(is_root_ ? 0 : counts[index_]);
        const pcclPieces_t pieces = {counts.data(), counts.size()};
        const pcclCopyDescriptor_t descriptor = copy(step_.count);
        Values& target = is_root_ ? send : receive;
        const pcclResult_t result = pcclScatter(send.data(), &pieces, target.data(), counts[index_], &root_,
                                                &descriptor, comm_, &info_);
        if (result == pcclSuccess) expect_sum(target.data(), cut_begin(index_), counts[index_], 1);
        if (result != pcclSuccess || !is_root_) expect_untouched(send);
        return result;
    }
    pcclResult_t all_to_all() {
        const Values send = filled(step_.count);
        const std::vector<std::uint64_t> counts = cuts();
        const std::size_t own = counts[index_];
        Values receive(world_ * own);
        const pcclPieces_t pieces = {counts.data(), counts.size()};
        const pcclCopyDescriptor_t descriptor = copy(step_.count);
        const pcclResult_t result =
            pcclAllToAll(send.data(), &pieces, receive.data(), receive.size(), &descriptor, comm_, &info_);
        for (std::size_t k = 0; result == pcclSuccess && k < info_.local_world_size; ++k)
            expect_sum(receive.data() + k * own, cut_begin(index_), own, 1);
        expect_untouched(send);
        return result;
    }
    pcclResult_t barrier() { return pcclBarrier(1, comm_, &info_); }

    struct Kind {
        const char* name;
        pcclResult_t (Try::*call)();
        bool has_root;
        bool ends_at_root;  // only the root gets anything
    };
    static constexpr Kind kinds[] = {
        {"all_reduce", &Try::all_reduce, false, false},
        {"all_gather", &Try::all_gather, false, false},
        {"broadcast", &Try::broadcast, true, false},
        {"reduce_scatter", &Try::reduce_scatter, false, false},
        {"reduce", &Try::reduce, true, true},
        {"gather", &Try::gather, true, true},
        {"scatter", &Try::scatter, true, false},
        {"all_to_all", &Try::all_to_all, false, false},
        {"barrier", &Try::barrier, false, false},
    };

    const Step& step_;
    std::size_t lane_;
    pcclComm_t* comm_;
    std::size_t world_, index_;
    pcclPeerId_t root_;
    bool is_root_;
    std::vector<pcclMemberInfo_t> members_;
    pcclCollectiveInfo_t info_{};
    bool right_ = true;
    std::string what_;
};

pcclResult_t Try::run() {
    for (const Kind& kind : kinds) {
        if (step_.kind != kind.name) continue;
        const pcclResult_t result = (this->*kind.call)();
        if (kind.ends_at_root) what_.clear();
        if (result == pcclSuccess) what_ = std::to_string(info_.local_world_size) + what_;
        // The root died before the others had started. The next try has another one.
        return kind.has_root && result == pcclInvalidArgument ? pcclRankConnectionLost : result;
    }
    std::fprintf(stderr, "no kind %s\n", step_.kind.c_str());
    std::exit(2);
}

class Peer {
public:
    Peer(std::uint16_t port, std::size_t lane, std::size_t peers) : lane_(lane), members_(lanes_max) {
        const pcclCommCreateParams_t params = params_for(port);
        require(pcclInit() == pcclSuccess && pcclCreateCommunicator(&params, &comm_) == pcclSuccess, "create");
        require(pcclConnect(comm_) == pcclSuccess, "connect");
        // Every member sees the same world in the same turn. A newcomer was admitted by the call of the others.
        while (world() != static_cast<int>(peers)) require(pcclUpdateTopology(comm_) == pcclSuccess, "update");
    }
    ~Peer() { pcclDestroyCommunicator(comm_); }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    void run(std::istream& arguments) {
        Step step;
        std::string death;
        double part = 0;
        arguments >> step.kind >> step.count >> step.root >> step.number;
        arguments >> death >> part;
        for (int number = 0;; ++number) {
            require(number < tries_max, "no end of tries");
            bool right = true;
            std::string what;
            pcclResult_t result = barrier();
            if (result == pcclSuccess) {
                if (!death.empty()) arm(death, part);
                const std::uint64_t bytes = bytes_moved();
                const Clock::time_point begin = Clock::now();
                Try attempt(step, lane_, comm_, members_, info_);
                result = attempt.run();
                if (!death.empty()) raise(SIGKILL);
                if (result == pcclSuccess) {
                    bytes_ = bytes_moved() - bytes;
                    time_ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
                }
                right = attempt.right();
                what = attempt.what();
            }
            std::printf("end %llu %d %d %d %s\n", static_cast<unsigned long long>(step.number), number,
                        static_cast<int>(result), right ? 1 : 0, what.c_str());
            if (result == pcclSuccess) break;
            require(result == pcclRankConnectionLost, "a result that is not allowed");
        }
        std::printf("done %llu %u\n", static_cast<unsigned long long>(step.number), info_.local_world_size);
    }

private:
    void require(bool good, const char* what) const {
        if (good) return;
        std::fprintf(stderr, "collectives_peer: %s: %s\n", what, pcclGetLastErrorMessage(comm_));
        std::exit(4);
    }
    int world() const {
        int world = 0;
        require(pcclGetAttribute(comm_, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) == pcclSuccess, "world");
        return world;
    }
    pcclResult_t barrier() {
        info_.members = members_.data();
        info_.members_capacity = members_.size();
        return pcclBarrier(99, comm_, &info_);
    }
    void arm(const std::string& death, double part) const {
        if (death == "byte") return die_after(static_cast<std::uint64_t>(part * static_cast<double>(bytes_)));
        const auto after = static_cast<std::int64_t>(part * static_cast<double>(time_.count()));
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGKILL;
        timer_t timer{};
        itimerspec when{};
        when.it_value.tv_sec = after / 1'000'000'000;
        when.it_value.tv_nsec = std::max<std::int64_t>(1, after % 1'000'000'000);
        require(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &when, nullptr) == 0,
                "a timer");
    }

    std::size_t lane_;
    pcclComm_t* comm_ = nullptr;
    std::vector<pcclMemberInfo_t> members_;
    pcclCollectiveInfo_t info_{};
    std::uint64_t bytes_ = 0;  // of the last successful try
    std::chrono::nanoseconds time_{0};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Peer peer(static_cast<std::uint16_t>(std::atoi(argv[1])), static_cast<std::size_t>(std::atoi(argv[2])),
              static_cast<std::size_t>(std::atoi(argv[3])));
    std::puts("ready");
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream arguments(line);
        std::string command;
        arguments >> command;
        if (command != "run") break;
        peer.run(arguments);
    }
    return 0;
}
