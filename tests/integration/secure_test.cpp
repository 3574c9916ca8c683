// A secure run of real processes: its commands, foreign clients, and a master that is killed.
#include "secure_run.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

using namespace integration;

namespace {

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
    CHECK(without.code == 2);
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

TEST_CASE("options of the master that contradict each other are wrong usage") {
    const StateDirectory directory;
    const std::vector<std::vector<std::string>> wrong{{"--data-plaintext"},
                                                      {"--secure"},
                                                      {"--secure", "--insecure", "--state-dir", directory.path()},
                                                      {"--tls-ca", directory.path() + "/ca"}};
    for (const std::vector<std::string>& options : wrong) {
        std::vector<std::string> command{PCCL_TEST_MASTER, "--listen", "127.0.0.1:0"};
        command.insert(command.end(), options.begin(), options.end());
        const Done done = run(command);
        INFO(options.front() << ": " << done.errors);
        CHECK(done.code == 2);
        CHECK(contains(done.errors, options.front()));
    }
}

TEST_CASE("a peer whose clock is a day off gets an error that names it, and so does its operator; the run goes on") {
    const char* const preload = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    if (!std::filesystem::exists(preload)) {
        WARN("skipped: libfaketime is missing");
        return;
    }
    SecureRun run(2, {{"PCCL_LOG_LEVEL", "INFO"}});
    for (const auto& [shift, text] : {std::pair("+1d", "expired"), std::pair("-1d", "not valid yet")}) {
        const Environment shifted{{"LD_PRELOAD", preload},
                                  {"FAKETIME", shift},
                                  {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
                                  {"ASAN_OPTIONS", "verify_asan_link_order=0"},
                                  {"PCCL_INVITE", run.invite()}};
        const auto [result, log] = run.connect(shifted);
        CHECK(result == master_connection_failed);
        CHECK(contains(log, "wrong clock"));
        CHECK(contains(log, text));
        CHECK(run.cluster.master().says("the other end has refused the certificate of this one"));
        Process doctor({PCCL_TEST_MASTER, "doctor"}, shifted);
        std::string report;
        while (const auto line = doctor.read_line()) report += *line + "\n";
        INFO(report);
        CHECK(doctor.wait() == 1);
        CHECK(contains(report, "BAD   clock"));
    }
    run.reduce(1);
}

TEST_CASE("a disk that hangs while an invitation is made does not keep the process of the master") {
    StateDirectory directory;
    MasterProcess master(directory.environment_with_disk(), 0, {"--secure"});
    directory.stall_disk(true);
    const Done invited = run({PCCL_TEST_MASTER, "invite", "--state-dir", directory.path()});
    CHECK(contains(invited.errors, "the master gave no answer"));
    master.signal(SIGTERM);
    CHECK(master.wait() == 0);
}
