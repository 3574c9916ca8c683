// Three processes run collectives of all kinds in turn, and one of them gets SIGKILL in the middle. The survivors see
// the same outcomes, find their inputs as before after each failure, and go on.
//
// The processes are forked before this one has any thread.
#include "local_run.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <time.h>

using namespace integration;

namespace {

constexpr std::size_t peers = 3;
constexpr std::size_t count_max = 900'000;  // below 2^20, so that three lanes fit into 64 bits
constexpr int steps = 18, kinds = 9;        // odd steps are small and end with their start

using Values = std::vector<std::uint64_t>;

// Element i of a member's input. A sum shows which members are in it: see lanes_of.
std::uint64_t element(std::size_t lane, std::size_t i) { return static_cast<std::uint64_t>(i + 1) << (20 * lane); }

struct Child {
    std::size_t lane;
    int out;
    pcclComm_t* comm = nullptr;
    std::vector<pcclMemberInfo_t> members = std::vector<pcclMemberInfo_t>(peers);
    pcclCollectiveInfo_t info{};

    void say(const std::string& line) const {
        const std::string text = line + "\n";
        if (write(out, text.data(), text.size()) < 0) _exit(3);
    }
    // True: every element of [first, first + count) of the result is the same sum of lanes. The lanes go to `text`.
    static bool is_sum(const std::uint64_t* data, std::size_t first, std::size_t count, std::string& text) {
        if (count == 0) return true;
        const std::uint64_t lanes = data[0] / (first + 1);
        for (std::size_t i = 0; i < count; ++i) {
            if (data[i] != lanes * (first + i + 1)) return false;
        }
        text += " " + std::to_string(lanes);
        return true;
    }
    pcclResult_t barrier() {
        info.members = members.data();
        info.members_capacity = members.size();
        return pcclBarrier(99, comm, &info);
    }
    // One attempt. Writes whether buffers hold what they should, and what all members must agree on.
    pcclResult_t attempt(int step, bool& right, std::string& agreed) {
        const std::size_t count = step % 2 == 0 ? count_max : 1'000;
        Values send(count), receive(peers * count);
        for (std::size_t i = 0; i < count; ++i) send[i] = element(lane, i);
        const Values before = send;
        pcclReduceDescriptor_t reduction = describe(count, 1, pcclSum, pcclUint64);
        const pcclCopyDescriptor_t copy = {count, pcclUint64, 1};
        const pcclPeerId_t root = members[0].peer;
        const std::size_t world = info.local_world_size, index = info.local_index;
        const std::size_t first = count * index / world, own = count * (index + 1) / world - first;
        std::vector<std::uint64_t> counts;
        for (std::size_t k = 0; k < world; ++k) counts.push_back(count * (k + 1) / world - count * k / world);
        std::string text;
        pcclResult_t result = pcclInternalError;
        right = true;
        say("begin " + std::to_string(step));
        switch (step % kinds) {
        case 0:
            result = pcclAllGather(send.data(), receive.data(), receive.size(), &copy, comm, &info);
            for (std::size_t k = 0; result == pcclSuccess && k < info.local_world_size; ++k)
                right = right && is_sum(receive.data() + k * count, 0, count, text);
            right = right && send == before;
            break;
        case 1:
            result = pcclBroadcast(send.data(), send.data(), &root, &copy, comm, &info);
            right = result == pcclSuccess ? is_sum(send.data(), 0, count, text) : send == before;
            break;
        case 2:
            result = pcclReduceScatter(send.data(), send.data(), own, &reduction, comm, &info);
            right = result == pcclSuccess ? is_sum(send.data(), first, own, text) : send == before;
            break;
        case 3:
            result = pcclReduce(send.data(), send.data(), &root, &reduction, comm, &info);
            right = result == pcclSuccess && index == 0 ? is_sum(send.data(), 0, count, text) : send == before;
            text.clear();
            break;
        case 5:
            result = pcclGather(send.data(), index == 0 ? receive.data() : nullptr, receive.size(), &root, &copy, comm,
                                &info);
            for (std::size_t k = 0; result == pcclSuccess && index == 0 && k < info.local_world_size; ++k)
                right = right && is_sum(receive.data() + k * count, 0, count, text);
            right = right && send == before;
            text.clear();
            break;
        case 6: {
            const pcclPieces_t pieces = {counts.data(), counts.size()};
            result = pcclScatter(send.data(), &pieces, index == 0 ? send.data() : receive.data(), own, &root, &copy,
                                 comm, &info);
            if (result != pcclSuccess || index != 0) right = send == before;
            if (result == pcclSuccess)
                right = right && is_sum(index == 0 ? send.data() : receive.data(), first, own, text);
            break;
        }
        case 7: {
            const pcclPieces_t pieces = {counts.data(), counts.size()};
            result = pcclAllToAll(send.data(), &pieces, receive.data(), receive.size(), &copy, comm, &info);
            for (std::size_t k = 0; result == pcclSuccess && k < info.local_world_size; ++k)
                right = right && is_sum(receive.data() + k * own, first, own, text);
            right = right && send == before;
            break;
        }
        case 8: result = barrier(); break;
        default: {
            pcclReduceInfo_t reduced{};
            result = pcclAllReduce(send.data(), send.data(), &reduction, comm, &reduced);
            right = result == pcclSuccess ? is_sum(send.data(), 0, count, text) : send == before;
        }
        }
        agreed = result == pcclSuccess ? text : "";
        return result;
    }
    // The root died before the others had started. The next attempt takes another one.
    static bool is_root_gone(int step, pcclResult_t result) {
        const int kind = step % kinds;
        return (kind == 1 || kind == 3 || kind == 5 || kind == 6) && result == pcclInvalidArgument;
    }
    int run(std::uint16_t port) {
        pcclInit();
        const pcclCommCreateParams_t params = params_for(port);
        if (pcclCreateCommunicator(&params, &comm) != pcclSuccess || pcclConnect(comm) != pcclSuccess) return 4;
        for (int world = 0; world != static_cast<int>(peers);) {
            if (pcclUpdateTopology(comm) != pcclSuccess) return 5;
            if (pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) != pcclSuccess) return 6;
        }
        int tries = 0;
        for (int step = 0; step < steps;) {
            if (++tries > 100) return 7;
            pcclResult_t result = barrier();
            std::string agreed;
            bool right = true;
            if (result == pcclSuccess) {
                result = attempt(step, right, agreed);
            }
            say("end " + std::to_string(step) + " " + std::to_string(right) + " " + std::to_string(result) + agreed);
            if (result == pcclSuccess)
                ++step;
            else if (result != pcclRankConnectionLost && !is_root_gone(step, result))
                return 8;
        }
        return pcclDestroyCommunicator(comm) == pcclSuccess ? 0 : 9;
    }
};

struct Started {
    pid_t pid = 0;
    int port = -1;  // write end: the port of the master goes there
    FILE* lines = nullptr;
};

Started start(std::size_t lane) {
    int to[2], from[2];
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    Started started;
    started.pid = fork();
    REQUIRE(started.pid >= 0);
    if (started.pid == 0) {
        close(to[1]);
        std::uint16_t port = 0;
        if (read(to[0], &port, sizeof port) != sizeof port) _exit(2);
        Child child{lane, from[1]};
        _exit(child.run(port));
    }
    close(to[0]);
    close(from[1]);
    started.port = to[1];
    started.lines = fdopen(from[0], "r");
    return started;
}

std::string line_of(FILE* file) {
    std::array<char, 256> text{};
    if (fgets(text.data(), text.size(), file) == nullptr) return {};
    std::string line = text.data();
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

// The moment of the death. Nothing waits for an event here.
void let_pass(long microseconds) {
    const timespec pause{0, microseconds * 1000};
    nanosleep(&pause, nullptr);
}

void kill_in_step(int step, long delay_us) {
    setenv("PCCL_PORT_RANGE", "0", 1);
    std::vector<Started> started;
    for (std::size_t lane = 0; lane < peers; ++lane) started.push_back(start(lane));
    pcclInit();
    const LocalMaster master;
    REQUIRE(master.runs());
    const std::uint16_t port = master.port();
    for (const Started& one : started) REQUIRE(write(one.port, &port, sizeof port) == sizeof port);
    const std::string moment = "begin " + std::to_string(step);
    for (std::string line = line_of(started[2].lines); line != moment; line = line_of(started[2].lines))
        REQUIRE_FALSE(line.empty());
    let_pass(delay_us);
    kill(started[2].pid, SIGKILL);
    std::vector<std::vector<std::string>> outcomes(2);
    for (std::size_t i = 0; i < 2; ++i) {
        for (std::string line = line_of(started[i].lines); !line.empty(); line = line_of(started[i].lines)) {
            std::istringstream words(line);
            std::string word;
            int at = 0, right = 0;
            words >> word >> at >> right;
            if (word != "end") continue;
            INFO("peer " << i << ": " << line);
            CHECK(right == 1);
            outcomes[i].push_back(line);
        }
    }
    CHECK(outcomes[0] == outcomes[1]);
    for (std::size_t i = 0; i < peers; ++i) {
        int status = 0;
        REQUIRE(waitpid(started[i].pid, &status, 0) == started[i].pid);
        if (i < 2) {
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) == 0);
        }
        fclose(started[i].lines);
        close(started[i].port);
    }
}

}  // namespace

// Each at several moments: the collective takes some milliseconds.
TEST_CASE("a member dies in an all-gather") {
    for (const long delay_us : {500, 3'000, 8'000}) kill_in_step(0, delay_us);
}

TEST_CASE("a member dies in a broadcast") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(10, delay_us);
}

TEST_CASE("a member dies in a reduce-scatter") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(2, delay_us);
}

TEST_CASE("a member dies in a reduce") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(12, delay_us);
}

TEST_CASE("a member dies in a gather") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(14, delay_us);
}

TEST_CASE("a member dies in a scatter") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(6, delay_us);
}

TEST_CASE("a member dies in an all-to-all") {
    for (const long delay_us : {500, 2'000, 4'000}) kill_in_step(16, delay_us);
}
