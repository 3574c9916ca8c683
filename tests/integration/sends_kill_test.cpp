// Three processes: the eldest sends to the youngest, and one of the three gets SIGKILL in the middle: the sender, the
// receiver, or the third one, which may have to forward. Ends that survive get one outcome, find their arrays as before
// after a failure, and go on.
//
// PCCL_KILL_ROUNDS: kills of each (3, at fixed moments). PCCL_KILL_SEED draws the moments of the others again.
//
// The processes are forked before this one has any thread.
#include "kill_draws.hpp"
#include "local_run.hpp"

#include "core/base/random.hpp"

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

constexpr std::size_t peers = 3, count = 1'500'000;
constexpr int steps_most = 100'000;

using Values = std::vector<std::uint64_t>;

void say(int out, const std::string& line) {
    const std::string text = line + "\n";
    if (write(out, text.data(), text.size()) < 0) _exit(3);
}

// Writes "index I", "begin S" and "end S RIGHT RESULT ROLE".
int run(int out, std::uint16_t port) {
    pcclInit();
    pcclComm_t* comm = nullptr;
    const pcclCommCreateParams_t params = params_for(port);
    if (pcclCreateCommunicator(&params, &comm) != pcclSuccess || pcclConnect(comm) != pcclSuccess) return 4;
    for (int world = 0; world != static_cast<int>(peers);) {
        if (pcclUpdateTopology(comm) != pcclSuccess) return 5;
        if (pcclGetAttribute(comm, PCCL_ATTRIBUTE_GLOBAL_WORLD_SIZE, &world) != pcclSuccess) return 6;
    }
    std::vector<pcclMemberInfo_t> members(peers);
    // Until the two that survive have sent something to each other.
    bool done = false;
    for (int step = 0, tries = 0; !done; ++step) {
        if (step == steps_most) return 10;
        pcclCollectiveInfo_t info{};
        info.members = members.data();
        info.members_capacity = peers;
        pcclResult_t met = pcclBarrier(99, comm, &info);
        for (; met == pcclRankConnectionLost && ++tries < 100; met = pcclBarrier(99, comm, &info)) continue;
        if (met != pcclSuccess) return 7;
        const std::size_t index = info.local_index, last = info.local_world_size - 1;
        say(out, "index " + std::to_string(index));
        Values array(count, 77);
        for (std::size_t i = 0; index == 0 && i < count; ++i) array[i] = i * 3 + 1;
        const Values before = array;
        const pcclCopyDescriptor_t copy = {count, pcclUint64, static_cast<std::uint64_t>(step)};
        say(out, "begin " + std::to_string(step));
        pcclResult_t result = pcclSuccess;
        if (index == 0) result = pcclSend(array.data(), &members[last].peer, &copy, comm, nullptr);
        if (index == last) result = pcclRecv(array.data(), &members[0].peer, &copy, comm, nullptr);
        bool right = index == last && result == pcclSuccess ? true : array == before;
        for (std::size_t i = 0; index == last && result == pcclSuccess && i < count; ++i)
            right = right && array[i] == i * 3 + 1;
        const char* role = index == 0 ? "sender" : index == last ? "receiver" : "between";
        say(out, "end " + std::to_string(step) + " " + std::to_string(right) + " " + std::to_string(result) + " " +
                     role);
        if (result != pcclSuccess && result != pcclRankConnectionLost) return 8;
        done = last == 1 && result == pcclSuccess;
    }
    return pcclDestroyCommunicator(comm) == pcclSuccess ? 0 : 9;
}

struct Started {
    pid_t pid = 0;
    int port = -1;  // write end: the port of the master goes there
    FILE* lines = nullptr;
};

Started start() {
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
        _exit(run(from[1], port));
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

// The member with this index dies so long after it has begun the first send.
void kill_member(std::size_t index, long delay_us) {
    INFO("index " << index << " after " << delay_us << " us");
    setenv("PCCL_PORT_RANGE", "0", 1);
    std::vector<Started> started;
    for (std::size_t i = 0; i < peers; ++i) started.push_back(start());
    pcclInit();
    const LocalMaster master;
    REQUIRE(master.runs());
    const std::uint16_t port = master.port();
    for (const Started& one : started) REQUIRE(write(one.port, &port, sizeof port) == sizeof port);
    std::size_t victim = peers;
    for (std::size_t i = 0; i < peers; ++i) {
        if (line_of(started[i].lines) == "index " + std::to_string(index)) victim = i;
        REQUIRE(line_of(started[i].lines) == "begin 0");
    }
    REQUIRE(victim < peers);
    // The moment of the death. Nothing waits for an event here.
    const timespec pause{0, delay_us * 1000};
    nanosleep(&pause, nullptr);
    kill(started[victim].pid, SIGKILL);
    std::map<int, std::vector<std::string>> results;  // of the ends that live, by step
    for (std::size_t i = 0; i < peers; ++i) {
        for (std::string line = line_of(started[i].lines); !line.empty(); line = line_of(started[i].lines)) {
            std::istringstream words(line);
            std::string word, result, role;
            int step = 0, right = 0;
            words >> word >> step >> right >> result >> role;
            if (word != "end") continue;
            INFO("process " << i << ": " << line);
            CHECK(right == 1);
            if (i != victim && role != "between") results[step].push_back(result);
        }
        int status = 0;
        REQUIRE(waitpid(started[i].pid, &status, 0) == started[i].pid);
        if (i != victim) {
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) == 0);
        }
        fclose(started[i].lines);
        close(started[i].port);
    }
    // Both ends that live have the same outcome.
    for (const auto& [step, ends] : results) CHECK((ends.size() < 2 || ends[0] == ends[1]));
    REQUIRE_FALSE(results.empty());
    CHECK(results.rbegin()->second == std::vector<std::string>(2, std::to_string(pcclSuccess)));
}

// At fixed moments, and then at moments that are drawn: an operation takes some milliseconds.
void kill_members(std::size_t index) {
    for (const long delay_us : {300, 2'000, 5'000}) kill_member(index, delay_us);
    const std::uint64_t rounds = from_environment("PCCL_KILL_ROUNDS", 3);
    pccl::core::Random random(first_seed() + index);
    for (std::uint64_t round = 3; round < rounds; ++round) kill_member(index, static_cast<long>(random.below(8'000)));
}

}  // namespace

TEST_CASE("the sender dies in a send") { kill_members(0); }

TEST_CASE("the third member dies in a send of the others") { kill_members(1); }

TEST_CASE("the receiver dies in a send") { kill_members(2); }
