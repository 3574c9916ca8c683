// Joining, leaving, shared state, a master that dies, a peer that is stopped, and fork, between real processes.
#include "cluster.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;

void expect_reduction(Cluster& cluster, const std::vector<std::size_t>& members, std::uint64_t tag) {
    std::vector<std::uint64_t> seeds;
    for (const std::size_t member : members) seeds.push_back(1000 + member);
    for (std::size_t k = 0; k < members.size(); ++k) {
        cluster[members[k]].send("reduce " + reduce_arguments(type_f32, op_sum, 30000, tag, "in", seeds, k));
    }
    for (const std::size_t member : members) {
        const ReduceAnswer answer = as_reduce(cluster[member].answer("reduce"));
        REQUIRE(answer.result == success);
        CHECK(answer.world == members.size());
        CHECK(answer.matches);
    }
}

// Reduces until it succeeds, as a user's loop does. All members see the same outcome of each attempt.
void expect_reduction_with_retries(Cluster& cluster, const std::vector<std::size_t>& members, std::uint64_t tag) {
    std::vector<std::uint64_t> seeds;
    for (const std::size_t member : members) seeds.push_back(1000 + member);
    for (int attempt = 0; attempt < 20; ++attempt) {
        for (std::size_t k = 0; k < members.size(); ++k) {
            cluster[members[k]].send("reduce " + reduce_arguments(type_f32, op_sum, 30000, tag, "in", seeds, k));
        }
        std::vector<ReduceAnswer> answers;
        for (const std::size_t member : members) answers.push_back(as_reduce(cluster[member].answer("reduce")));
        for (const ReduceAnswer& answer : answers) {
            REQUIRE(answer.result == answers.front().result);
            CHECK(answer.intact);
        }
        if (answers.front().result == success) {
            for (const ReduceAnswer& answer : answers) CHECK(answer.matches);
            return;
        }
        REQUIRE(answers.front().result == rank_connection_lost);
    }
    FAIL("the retry never succeeded");
}

std::string content_hash(ScriptPeer& peer, const std::string& entries) { return peer.ask("hash " + entries).text(0); }

}  // namespace

TEST_CASE("update topology alone and together; a joiner is counted once it is admitted, not before") {
    Cluster cluster(1);
    CHECK(cluster[0].ask("update").result == success);
    CHECK(cluster[0].attribute(1) == 1);
    CHECK(cluster[0].ask("pending").number(0) == 0);

    ScriptPeer waiting(cluster.master().port());
    waiting.send("connect");
    for (;;) {
        const Answer answer = cluster[0].ask("pending");
        REQUIRE(answer.result == success);
        CHECK(cluster[0].attribute(1) == 1);
        if (answer.number(0) != 0) break;
    }
    CHECK(cluster[0].ask("update").result == success);
    CHECK(waiting.answer("connect").result == success);
    CHECK(cluster[0].attribute(1) == 2);
    CHECK(waiting.attribute(1) == 2);
    CHECK(waiting.ask("connect").result == invalid_usage);
    waiting.send("update");
    CHECK(cluster[0].ask("update").result == success);
    CHECK(waiting.answer("update").result == success);
}

TEST_CASE("a peer leaves gracefully; the others go on without another call; it may come back") {
    Cluster cluster(3);
    expect_reduction(cluster, {0, 1, 2}, 1);
    CHECK(cluster[1].ask("destroy").result == success);
    CHECK(cluster[1].ask("destroy").result == invalid_argument);
    expect_reduction_with_retries(cluster, {0, 2}, 2);
    CHECK(cluster[0].attribute(1) == 2);
    CHECK(cluster[2].attribute(2) == 2);
    CHECK(cluster[1].ask("create " + std::to_string(cluster.master().port()) + " 0").result == success);
    cluster.readmit(1, {0, 2});
    expect_reduction(cluster, {0, 1, 2}, 3);
    for (std::size_t i = 0; i < 3; ++i) {
        cluster[i].send("destroy");
        CHECK(cluster[i].answer("destroy").result == success);
        cluster[i].send("quit");
        CHECK(cluster[i].wait() == 0);
    }
}

TEST_CASE("shared state: equal content moves nothing, a newcomer receives, the majority wins") {
    Cluster cluster(2);
    const std::string content = "weights:10:300000:7 step:6:1:8 empty:10:0:1";
    const std::string wanted = content_hash(cluster[0], content);
    for (const Answer& answer : cluster.all("sync 0 " + content)) {
        REQUIRE(answer.result == success);
        CHECK(answer.number(1) == 0);
        CHECK(answer.number(2) == 0);
        CHECK(answer.text(3) == wanted);
    }
    cluster.admit();
    cluster[0].send("sync 1 " + content);
    cluster[1].send("sync 1 " + content);
    cluster[2].send("sync 0 weights:10:300000:99 step:6:1:8 empty:10:0:1");
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        const Answer answer = cluster[i].answer("sync");
        REQUIRE(answer.result == success);
        CHECK(answer.number(0) == 1);
        CHECK(answer.text(3) == wanted);
        sent += answer.number(1);
        received += answer.number(2);
    }
    CHECK(received == 300000 * 4);  // only the entry that differs
    CHECK(sent == received);
}

TEST_CASE("shared state: the newcomer does not overwrite the veteran on a tie, and gets what need not be equal") {
    Cluster cluster(1);
    CHECK(cluster[0].ask("sync 13 w:10:1000:1 local:10:500:2:u").result == success);
    cluster.admit();
    const std::string wanted = content_hash(cluster[0], "w:10:1000:1 local:10:500:2:u");
    cluster[0].send("sync 14 w:10:1000:1 local:10:500:2:u");
    cluster[1].send("sync 0 w:10:1000:50 local:10:500:51:u");
    for (std::size_t i = 0; i < 2; ++i) {
        const Answer answer = cluster[i].answer("sync");
        REQUIRE(answer.result == success);
        CHECK(answer.number(0) == 14);
        CHECK(answer.text(3) == wanted);
    }
}

TEST_CASE("shared state: a member whose keys differ is removed, the others succeed") {
    Cluster cluster(3);
    cluster[0].send("sync 0 a:10:100:1");
    cluster[1].send("sync 0 a:10:100:1");
    cluster[2].send("sync 0 b:10:100:1");
    CHECK(cluster[0].answer("sync").result == success);
    CHECK(cluster[1].answer("sync").result == success);
    CHECK(cluster[2].answer("sync").result == invalid_usage);
    CHECK(cluster[2].attribute(1) == 1);
    CHECK(cluster[2].ask("sync 0 b:10:100:1").result == invalid_usage);  // no success as a lone member
    CHECK(cluster[2].ask("update").result == update_topology_failed);
    expect_reduction_with_retries(cluster, {0, 1}, 5);
    cluster.readmit(2, {0, 1});
    expect_reduction(cluster, {0, 1, 2}, 6);
}

TEST_CASE("shared state: revisions decide who is behind and who jumped ahead") {
    Cluster cluster(3);
    for (const Answer& answer : cluster.all("sync 13 w:10:1000:1")) CHECK(answer.number(0) == 13);
    // One is behind: it receives, whatever it holds itself.
    const std::string wanted = content_hash(cluster[0], "w:10:1000:2");
    cluster[0].send("sync 14 w:10:1000:2");
    cluster[1].send("sync 14 w:10:1000:2");
    cluster[2].send("sync 13 w:10:1000:1");
    for (std::size_t i = 0; i < 3; ++i) {
        const Answer answer = cluster[i].answer("sync");
        CHECK(answer.result == success);
        CHECK(answer.number(0) == 14);
        CHECK(answer.text(3) == wanted);
    }
    // One is two ahead: it is removed.
    cluster[0].send("sync 15 w:10:1000:3");
    cluster[1].send("sync 16 w:10:1000:3");
    cluster[2].send("sync 15 w:10:1000:3");
    CHECK(cluster[0].answer("sync").result == success);
    CHECK(cluster[1].answer("sync").result == invalid_usage);
    CHECK(cluster[2].answer("sync").result == success);
    expect_reduction_with_retries(cluster, {0, 2}, 1);
}

TEST_CASE("shared state: many entries and a large one travel whole") {
    Cluster cluster(2);
    std::string names;
    for (int i = 0; i < 50; ++i) names += " layer" + std::to_string(i) + ":9:" + std::to_string(i * 37) + ":";
    std::string winner = " big:10:6000000:5";
    std::string other = " big:10:6000000:6";
    for (const std::string& word : words(names)) {
        winner += " " + word + "1";
        other += " " + word + "2";
    }
    for (const Answer& answer : cluster.all("sync 0" + winner)) REQUIRE(answer.result == success);
    cluster.admit();
    const std::string wanted = content_hash(cluster[0], winner);
    cluster[0].send("sync 1" + winner);
    cluster[1].send("sync 1" + winner);
    cluster[2].send("sync 0" + other);
    for (std::size_t i = 0; i < 3; ++i) {
        const Answer answer = cluster[i].answer("sync");
        REQUIRE(answer.result == success);
        CHECK(answer.text(3) == wanted);
        if (i == 2) CHECK(answer.number(2) >= 24'000'000);
    }
}

TEST_CASE("two groups: collectives are separate, updates are common") {
    Cluster cluster(2);
    cluster.admit(7);
    cluster.admit(7);
    CHECK(cluster[0].attribute(1) == 4);
    CHECK(cluster[0].attribute(2) == 2);
    CHECK(cluster[0].attribute(3) == 2);
    expect_reduction(cluster, {0, 1}, 1);
    expect_reduction(cluster, {2, 3}, 1);
    cluster[3].signal(SIGKILL);
    expect_reduction(cluster, {0, 1}, 2);  // not affected
}

TEST_CASE("the master dies: waiting calls return with their codes, attributes read 1") {
    Cluster cluster(2, {{"PCCL_MASTER_TIMEOUT_MS", "500"}});
    cluster[0].send("update");  // peer 1 does not vote, so this waits
    const std::vector<std::uint64_t> seeds{1, 2};
    CHECK(cluster[1].ask("launch " + reduce_arguments(type_f32, op_sum, 1000, 1, "in", seeds, 1)).result == success);
    cluster[1].send("await 1");
    cluster.master().signal(SIGKILL);
    CHECK(cluster.master().wait() == -SIGKILL);
    CHECK(cluster[0].answer("update").result == update_topology_failed);
    const ReduceAnswer await = as_reduce(cluster[1].answer("await"));
    CHECK(await.result == rank_connection_lost);
    CHECK(await.intact);
    for (std::size_t i = 0; i < 2; ++i) {
        for (int which = 1; which <= 4; ++which) CHECK(cluster[i].attribute(which) == 1);
        CHECK(cluster[i].ask("update").result == update_topology_failed);
        CHECK(cluster[i].ask("pending").result == invalid_usage);
        CHECK(cluster[i].ask("sync 0 w:10:4:1").result == invalid_usage);
        CHECK(cluster[i].ask("reduce " + reduce_arguments(type_f32, op_sum, 10, 4, "in", seeds, i)).result ==
              too_few_peers);
        CHECK(cluster[i].ask("connect").result == master_connection_failed);
        CHECK(cluster[i].ask("destroy").result == success);
    }
}

TEST_CASE("no master at all: connect fails and may be called again") {
    std::uint16_t port = 0;
    {
        MasterProcess gone;
        port = gone.port();
        gone.signal(SIGTERM);
        CHECK(gone.wait() == 0);
    }
    ScriptPeer peer(port, 0, {{"PCCL_MASTER_TIMEOUT_MS", "200"}});
    CHECK(peer.ask("connect").result == master_connection_failed);
    CHECK(peer.ask("connect").result == master_connection_failed);
    CHECK(peer.ask("attribute 1").result == invalid_usage);
    CHECK(peer.ask("destroy").result == success);
}

TEST_CASE("a stopped peer is removed, survivors return; continued, it fails and can come back") {
    Cluster cluster(3, {{"PCCL_PEER_TIMEOUT_MS", "1000"}});
    expect_reduction(cluster, {0, 1, 2}, 1);
    cluster[2].signal(SIGSTOP);
    expect_reduction_with_retries(cluster, {0, 1}, 2);
    CHECK(cluster[0].attribute(1) == 2);
    cluster[2].signal(SIGCONT);
    const std::vector<std::uint64_t> seeds{1, 2, 3};
    const ReduceAnswer late =
        as_reduce(cluster[2].ask("reduce " + reduce_arguments(type_f32, op_sum, 30000, 2, "in", seeds, 2)));
    CHECK(late.result != success);
    CHECK(late.intact);
    // It is lost now, or as soon as it has read the reason. Then every further call fails, and it may connect again.
    CHECK(cluster[2].ask("update").result == update_topology_failed);
    CHECK(cluster[2].attribute(1) == 1);
    cluster.readmit(2, {0, 1});
    expect_reduction(cluster, {0, 1, 2}, 3);
}

TEST_CASE("a peer stopped in the middle of a large reduction") {
    Cluster cluster(3, {{"PCCL_PEER_TIMEOUT_MS", "1000"}});
    const std::vector<std::uint64_t> seeds{1, 2, 3};
    const std::size_t count = 16u << 20;
    for (std::size_t i = 0; i < 3; ++i) {
        cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, count, 2, i == 1 ? "in" : "out", seeds, i));
    }
    cluster[2].signal(SIGSTOP);
    const ReduceAnswer first = as_reduce(cluster[0].answer("reduce"));
    const ReduceAnswer second = as_reduce(cluster[1].answer("reduce"));
    CHECK(first.result == second.result);
    CHECK((first.result == success || first.result == rank_connection_lost));
    CHECK(first.intact);
    CHECK(second.intact);
    expect_reduction_with_retries(cluster, {0, 1}, 3);
}
