// A secure run of real processes: its commands, foreign clients, and a master that is killed.
#include "cluster.hpp"
#include "state_directory.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

using namespace integration;

namespace {

constexpr int type_f32 = 10;
constexpr int op_sum = 0;

struct Done {
    int code = 0;
    std::vector<std::string> lines;
    std::string errors;
    std::string line(std::size_t index = 0) const { return index < lines.size() ? lines[index] : ""; }
};

Done run(const std::vector<std::string>& command) {
    Process process(command);
    Done done;
    while (const auto line = process.read_line()) done.lines.push_back(*line);
    done.code = process.wait();
    done.errors = process.log_text();
    return done;
}

class SecureRun {
public:
    explicit SecureRun(std::size_t peers) : cluster(0, directory.environment(), {"--secure"}) {
        for (std::size_t i = 0; i < peers; ++i) cluster.admit(0, with_invite({"--name", "peer" + std::to_string(i)}));
    }
    Done master_command(std::vector<std::string> words) {
        words.insert(words.begin(), PCCL_TEST_MASTER);
        words.insert(words.end(), {"--state-dir", directory.path()});
        return run(words);
    }
    std::string invite(std::vector<std::string> words = {}) {
        words.insert(words.begin(), "invite");
        const Done done = master_command(words);
        INFO(done.errors);
        REQUIRE(done.code == 0);
        return done.line();
    }
    Environment with_invite(const std::vector<std::string>& words = {}) { return {{"PCCL_INVITE", invite(words)}}; }
    // What pcclConnect returns, and what the peer logs.
    std::pair<int, std::string> connect(const Environment& environment) {
        ScriptPeer peer(cluster.master().port(), 0, environment);
        const int result = peer.ask("connect").result;
        return {result, peer.log_text()};
    }
    // All members reduce; they must get the same bytes.
    void reduce(std::uint64_t tag) {
        std::vector<std::uint64_t> seeds;
        for (std::size_t i = 0; i < cluster.size(); ++i) seeds.push_back(50 + i);
        for (std::size_t i = 0; i < cluster.size(); ++i)
            cluster[i].send("reduce " + reduce_arguments(type_f32, op_sum, 200'000, tag, "out", seeds, i));
        std::string hash;
        for (std::size_t i = 0; i < cluster.size(); ++i) {
            const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
            CHECK(answer.result == success);
            CHECK(answer.matches);
            CHECK((hash.empty() || hash == answer.hash));
            hash = answer.hash;
        }
    }

    StateDirectory directory;
    Cluster cluster;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("invited peers reduce, are listed by name, and one of them is revoked") {
    SecureRun run(3);
    run.reduce(1);
    const Done members = run.master_command({"members"});
    REQUIRE(members.code == 0);
    REQUIRE(members.lines.size() == 4);
    std::string all;
    for (const std::string& line : members.lines) all += line + "\n";
    for (const char* name : {"peer0", "peer1", "peer2"}) CHECK(contains(all, name));
    const Done revoked = run.master_command({"revoke", "peer1"});
    CHECK(revoked.code == 0);
    CHECK(run.cluster.master().says("removed: the operator revoked its certificate"));
    CHECK(run.cluster[1].ask("update").result != success);
    CHECK(run.cluster[1].ask("connect").result == invalid_argument);
    CHECK(run.cluster[1].says("revoked by the operator"));
    run.cluster.remove(1);
    run.reduce(2);
    const Done again = run.master_command({"revoke", "nobody"});
    CHECK(again.code == 1);
    CHECK(contains(again.errors, "nobody has the name"));
}

TEST_CASE("a killed master knows members, spent and withdrawn invitations when it is started again") {
    SecureRun run(2);
    const std::string spent = run.invite(), withdrawn = run.invite(), open = run.invite();
    run.cluster.admit(0, {{"PCCL_INVITE", spent}});
    std::string id = withdrawn.substr(0, withdrawn.rfind('/'));
    id = id.substr(id.rfind('/') + 1);
    REQUIRE(run.master_command({"withdraw", id}).code == 0);
    run.cluster.kill_and_restart_master();
    run.reduce(1);
    for (const auto& [invite, text] : {std::pair(spent, "invitation spent"), std::pair(withdrawn, "withdrawn")}) {
        const auto [result, log] = run.connect({{"PCCL_INVITE", invite}});
        CHECK(result == invalid_argument);
        CHECK(contains(log, text));
        CHECK(run.cluster.master().says(text));
    }
    run.cluster.admit(0, {{"PCCL_INVITE", open}});
    run.reduce(2);
    const Done invites = run.master_command({"invites"});
    std::string all;
    for (const std::string& line : invites.lines) all += line + "\n";
    CHECK(contains(all, id + "  withdrawn"));
}

TEST_CASE("a plaintext peer and foreign clients cannot join, and the run goes on") {
    SecureRun run(2);
    const auto [result, log] = run.connect({});
    CHECK(result == master_connection_failed);
    CHECK(contains(log, "plaintext peer"));
    if (std::filesystem::exists("/usr/bin/openssl")) {
        const std::string address = "127.0.0.1:" + std::to_string(run.cluster.master().port());
        for (const std::vector<std::string>& more :
             {std::vector<std::string>{}, {"-tls1_2"}, {"-alpn", "pccl-link"}, {"-alpn", "pccl-enrol"}}) {
            std::vector<std::string> command{"/usr/bin/openssl", "s_client", "-connect", address, "-quiet"};
            command.insert(command.end(), more.begin(), more.end());
            Process client(command);
            client.send("let me in");
            while (client.read_line()) {
            }
            client.wait();
        }
        const Done members = run.master_command({"members"});
        CHECK(members.lines.size() == 3);
    } else {
        WARN("openssl is not installed: no foreign client was tried");
    }
    run.reduce(1);
}

TEST_CASE("what does not fit is refused with its remedy") {
    StateDirectory directory;
    const Done without = run({PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--secure"});
    CHECK(without.code == 1);
    CHECK(contains(without.errors, "--state-dir"));
    const Done nobody = run({PCCL_TEST_MASTER, "invite", "--state-dir", directory.path()});
    CHECK(nobody.code == 1);
    CHECK(contains(nobody.errors, "no secure run"));
    {
        MasterProcess master(directory.environment(), 0, {"--secure"});
        master.signal(SIGTERM);
        CHECK(master.wait() == 0);
    }
    const Done gone = run({PCCL_TEST_MASTER, "invite", "--state-dir", directory.path()});
    CHECK(gone.code == 1);
    CHECK(contains(gone.errors, "does not run"));
    const Done plain = run({PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", directory.path()});
    CHECK(plain.code == 1);
    CHECK(contains(plain.errors, "give --secure"));
    const Done other = run(
        {PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", directory.path(), "--secure", "--data-plaintext"});
    CHECK(other.code == 1);
    CHECK(contains(other.errors, "--data-plaintext"));
    CHECK(run({PCCL_TEST_MASTER, "invite", "--ttl", "soon", "--state-dir", directory.path()}).code == 2);
}
