// A master with a state directory: killed and started again on that directory, it continues the run.
#include "cluster.hpp"
#include "local_members.hpp"
#include "state_directory.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <fstream>
#include <memory>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;

void send_reduce(Cluster& cluster, std::uint64_t tag, std::size_t count) {
    std::vector<std::uint64_t> seeds;
    for (std::size_t i = 0; i < cluster.size(); ++i) seeds.push_back(1000 + i);
    for (std::size_t i = 0; i < cluster.size(); ++i)
        cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, count, tag, "in", seeds, i));
}

// All members must get the same outcome. Returns true if it is success.
bool same_outcome(Cluster& cluster) {
    std::vector<ReduceAnswer> answers;
    for (std::size_t i = 0; i < cluster.size(); ++i) answers.push_back(as_reduce(cluster[i].answer("reduce")));
    for (const ReduceAnswer& answer : answers) {
        CHECK(answer.result == answers.front().result);
        CHECK(answer.intact);
        if (answer.result == success) CHECK(answer.matches);
    }
    REQUIRE((answers.front().result == success || answers.front().result == rank_connection_lost));
    return answers.front().result == success;
}

volatile std::sig_atomic_t own_signals = 0;
void count_signal(int) { own_signals = own_signals + 1; }

void synchronize(Cluster& cluster, std::uint64_t revision) {
    for (const Answer& answer : cluster.all("sync " + std::to_string(revision) + " w:10:500:7")) {
        REQUIRE(answer.result == success);
        CHECK(answer.number(0) == revision);
    }
}

}  // namespace

TEST_CASE("a killed master takes up the run: nobody rejoins, no revision is lost") {
    StateDirectory directory;
    Cluster cluster(3, directory.environment());
    synchronize(cluster, 0);
    for (std::uint64_t turn = 1; turn <= 4; ++turn) {
        // Killed between operations, and during one (2 MB: its votes and slices are in flight).
        if (turn % 2 == 0) {
            send_reduce(cluster, turn, 500'000);
            cluster.kill_and_restart_master();
            if (!same_outcome(cluster)) {
                send_reduce(cluster, turn, 500'000);
                CHECK(same_outcome(cluster));
            }
        } else {
            cluster.kill_and_restart_master();
            send_reduce(cluster, turn, 30'000);
            CHECK(same_outcome(cluster));
        }
        synchronize(cluster, turn);
        for (std::size_t i = 0; i < cluster.size(); ++i) CHECK(cluster[i].attribute(1) == 3);
    }
    CHECK(cluster.master().log_text().find("removed") == std::string::npos);
}

TEST_CASE("a state directory serves one master at a time, and says so") {
    StateDirectory directory;
    MasterProcess first(directory.environment());
    Process second({PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", directory.path()});
    CHECK(second.wait() == 1);
    CHECK(second.says("in use by another master"));
}

TEST_CASE("a terminated master takes up the run: a call that waits goes on") {
    StateDirectory directory;
    for (const int number : {SIGTERM, SIGINT}) {
        Cluster cluster(2, directory.environment());
        synchronize(cluster, 0);
        cluster[0].send("update");  // waits for the vote of the other peer
        cluster.master().signal(number);
        CHECK(cluster.master().wait() == 0);
        cluster.kill_and_restart_master();
        CHECK(cluster[1].ask("update").result == success);
        CHECK(cluster[0].answer("update").result == success);
        synchronize(cluster, 1);
        CHECK(cluster.master().log_text().find("removed") == std::string::npos);
        Process end({PCCL_TEST_MASTER, "end", "--state-dir", directory.path()});
        CHECK(end.wait() == 0);
    }
}

TEST_CASE("a master whose disk hangs for longer than the operator allows stops, and the next one takes up the run") {
    StateDirectory directory;
    Cluster cluster(2, directory.environment_with_disk(), {"--journal-timeout", "2"});
    synchronize(cluster, 0);
    directory.stall_disk(true);
    cluster[0].send("update");
    cluster[1].send("update");
    CHECK(cluster.master().wait() == 1);
    CHECK(cluster.master().log_text().find("(PCCL_JOURNAL_TIMEOUT_S)") != std::string::npos);
    directory.stall_disk(false);
    cluster.kill_and_restart_master();
    for (std::size_t i = 0; i < 2; ++i) CHECK(cluster[i].answer("update").result == success);
    synchronize(cluster, 1);
    CHECK(cluster.master().log_text().find("removed") == std::string::npos);
}

TEST_CASE("pccl-master end: the peers are told, and the next master on the directory begins a new run") {
    StateDirectory directory;
    for (const bool stopped_before : {false, true}) {
        Cluster cluster(2, directory.environment());
        synchronize(cluster, 0);
        synchronize(cluster, 1);
        if (stopped_before) {
            cluster.master().signal(SIGTERM);
            CHECK(cluster.master().wait() == 0);
        } else {
            cluster[0].send("update");
        }
        Process end({PCCL_TEST_MASTER, "end", "--state-dir", directory.path()});
        CHECK(end.expect_line().find("has ended") != std::string::npos);
        CHECK(end.wait() == 0);
        if (stopped_before) continue;
        CHECK(cluster.master().wait() == 0);
        CHECK(cluster[0].answer("update").result == update_topology_failed);
        CHECK(cluster[0].says("stopped on purpose"));
    }
    Process nothing({PCCL_TEST_MASTER, "end", "--state-dir", directory.path() + "/no-run"});
    CHECK(nothing.wait() == 1);
    CHECK(nothing.says("no master has used"));
    Cluster cluster(2, directory.environment());
    synchronize(cluster, 0);
}

TEST_CASE("pccl-master end signals no process that only has the number of the one in the lock") {
    StateDirectory directory;
    Process stranger({"/bin/cat"});
    const int lock = open((directory.path() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(flock(lock, LOCK_EX | LOCK_NB) == 0);
    const std::string number = std::to_string(stranger.pid()) + " SIGUSR1\n";
    REQUIRE(write(lock, number.data(), number.size()) == static_cast<ssize_t>(number.size()));
    Process end({PCCL_TEST_MASTER, "end", "--state-dir", directory.path()});
    CHECK(end.wait() == 1);
    CHECK(end.says("does not hold"));
    stranger.send("alive");
    CHECK(stranger.read_line() == "alive");
    close(lock);
}

TEST_CASE("pccl-master end signals no program that has a master inside, and names what to do") {
    StateDirectory directory;
    const Variable variable("PCCL_STATE_DIR", directory.path().c_str());
    // The signal has another meaning in this program; most programs would die of it.
    const auto former = std::signal(SIGUSR1, count_signal);
    {
        pcclInit();
        LocalMaster master;
        REQUIRE(master.runs());
        Process end({PCCL_TEST_MASTER, "end", "--state-dir", directory.path()});
        CHECK(end.wait() == 1);
        CHECK(end.says("pcclInterruptMaster"));
    }
    CHECK(own_signals == 0);
    std::signal(SIGUSR1, former);
}

TEST_CASE("a master inside a program keeps its run when it is destroyed; pcclInterruptMaster ends it") {
    StateDirectory directory;
    const Variable variable("PCCL_STATE_DIR", directory.path().c_str());
    pcclInit();
    auto first = std::make_unique<LocalMaster>();
    REQUIRE(first->runs());
    const std::uint16_t port = first->port();
    ScriptPeer peer(port);
    REQUIRE(peer.ask("connect").result == success);
    first.reset();
    peer.send("update");  // waits for the next master
    LocalMaster second(port);
    REQUIRE(second.runs());
    CHECK(peer.answer("update").result == success);
    CHECK(pcclInterruptMaster(second.handle()) == pcclSuccess);
    CHECK(peer.says("stopped on purpose"));
}

TEST_CASE("a directory that cannot be written is an error with its name") {
    Process master({PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", "/proc/nothing/here"});
    CHECK(master.wait() == 1);
    CHECK(master.says("/proc/nothing/here"));
}

TEST_CASE("a disk that takes no more stops the master with a message; started again it takes up the run") {
    StateDirectory directory;
    // The limit of the file size stops writes like a full disk, without the signal that it usually causes.
    Process master({"/bin/sh", "-c", "trap '' XFSZ; exec " PCCL_TEST_MASTER " --listen 127.0.0.1:0"},
                   directory.environment());
    const std::string line = master.expect_line();
    const auto port = static_cast<std::uint16_t>(std::stoul(line.substr(line.rfind(':') + 1)));
    Process peer({PCCL_TEST_PEER});
    peer.send("create " + std::to_string(port) + " 0");
    REQUIRE(peer.expect_line() == "create 0");
    peer.send("connect");
    REQUIRE(peer.expect_line() == "connect 0");
    const auto written = std::filesystem::file_size(directory.path() + "/journal.db-wal");
    const rlimit full{written, written};
    REQUIRE(prlimit(master.pid(), RLIMIT_FSIZE, &full, nullptr) == 0);
    peer.send("update");
    CHECK(master.wait() == 1);
    CHECK(master.says("journal cannot be written"));
    CHECK(master.says("start the master again"));
    MasterProcess next(directory.environment(), port);
    CHECK(peer.expect_line() == "update 0");
}

TEST_CASE("a file that is no journal is an error with its name") {
    StateDirectory directory;
    std::ofstream(directory.path() + "/journal.db") << std::string(10'000, 'x');
    Process master({PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", directory.path()});
    CHECK(master.wait() == 1);
    CHECK(master.says("journal.db"));
    CHECK(master.says("not a journal of this program"));
}
