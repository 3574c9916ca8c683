// A secure run of real processes whose certificates come from the operator's own PKI.
#include "local_members.hpp"
#include "net-real/tests/held_file.hpp"
#include "net-real/tests/own_pki.hpp"
#include "secure_run.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <string>
#include <thread>
#include <tuple>

using namespace integration;

namespace {

Environment as_environment(const pccl::real::tls::OperatorFiles& files) {
    return {{"PCCL_TLS_CA", files.authorities}, {"PCCL_TLS_CERT", files.certificate}, {"PCCL_TLS_KEY", files.key}};
}

std::vector<std::string> as_options(const pccl::real::tls::OperatorFiles& files) {
    return {"--tls-ca", files.authorities, "--tls-cert", files.certificate, "--tls-key", files.key};
}

void reduce(Cluster& cluster, std::uint64_t tag) {
    std::vector<std::uint64_t> seeds;
    for (std::size_t i = 0; i < cluster.size(); ++i) seeds.push_back(50 + i);
    for (std::size_t i = 0; i < cluster.size(); ++i)
        cluster[i].send("reduce " + reduce_arguments(10, 0, 200'000, tag, "out", seeds, i));
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        const ReduceAnswer answer = as_reduce(cluster[i].answer("reduce"));
        CHECK(answer.result == success);
        CHECK(answer.matches);
    }
}

// What pcclConnect of a newcomer with these variables logs when it fails.
std::string refusal(Cluster& cluster, Environment variables) {
    variables.insert({{"PCCL_MASTER_TIMEOUT_MS", "0"}, {"PCCL_LOG_LEVEL", "WARN"}});
    ScriptPeer peer(cluster.master().port(), 0, variables);
    CHECK(peer.ask("connect").result != success);
    UNSCOPED_INFO(peer.log_text());
    return peer.log_text();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("peers with certificates of the operator's PKI join over TLS, leave, join again, and resume after a kill") {
    pccl::real::OwnPki pki;
    StateDirectory directory;
    Environment environment = directory.environment();
    environment["PCCL_SHARED_MEMORY"] = "0";
    Cluster cluster(0, environment, as_options(pki.make("master", {"IP:127.0.0.1"})));
    // Two processes may have one certificate.
    const Environment shared = as_environment(pki.make("host-1"));
    cluster.admit(0, shared);
    cluster.admit(0, shared);
    cluster.admit(0, as_environment(pki.make("host-2")));
    reduce(cluster, 1);
    cluster.kill_and_restart_master();
    reduce(cluster, 2);
    cluster.remove(2);
    cluster.all("update");
    cluster.admit(0, as_environment(pki.make("host-3")));
    reduce(cluster, 3);
}

TEST_CASE("who has no right certificate is refused with a name at both ends, and the run goes on") {
    pccl::real::OwnPki pki, foreign;
    Cluster cluster(0, {{"PCCL_LOG_LEVEL", "INFO"}}, as_options(pki.make("master", {"IP:127.0.0.1"})));
    cluster.admit(0, as_environment(pki.make("one")));
    cluster.admit(0, as_environment(pki.make("two")));

    CHECK(contains(refusal(cluster, {}), "plaintext peer"));
    CHECK(cluster.master().says("does not speak TLS"));

    // It does not accept the master. Then, with the authority of the master, the master does not accept it.
    pccl::real::tls::OperatorFiles files = foreign.make("stranger");
    CHECK(contains(refusal(cluster, as_environment(files)), "must be signed by an authority of PCCL_TLS_CA"));
    CHECK(cluster.master().says("the other end has refused the certificate of this one"));
    files.authorities = pki.make("one-more").authorities;
    CHECK(contains(refusal(cluster, as_environment(files)), "the other end has refused the certificate of this one"));
    CHECK(cluster.master().says("must be signed by an authority of PCCL_TLS_CA"));

    // Clocks that differ by a day look the same from here.
    for (const auto& [from, until, text] : {std::tuple(-2 * 86'400, -86'400, "expired"),
                                            std::tuple(86'400, 2 * 86'400, "not valid yet")}) {
        CHECK(contains(refusal(cluster, as_environment(pki.make("late", {"", from, until}))), "certificate"));
        CHECK(cluster.master().says(
            std::string("wrong clock, or an old certificate: the certificate of the other end is ") + text));
    }
    Environment named = as_environment(pki.make("three"));
    named["PCCL_TLS_MASTER_NAME"] = "master.example";
    CHECK(contains(refusal(cluster, named), "not for this host"));
    reduce(cluster, 1);
}

TEST_CASE("certificates are revoked by name and by serial number, also those of peers that are away, for good") {
    pccl::real::OwnPki pki;
    StateDirectory directory;
    Cluster cluster(0, directory.environment(), as_options(pki.make("master", {"IP:127.0.0.1"})));
    const auto command = [&](std::vector<std::string> words) {
        words.insert(words.begin(), PCCL_TEST_MASTER);
        words.insert(words.end(), {"--state-dir", directory.path()});
        return run(words);
    };
    const Environment bad = as_environment(pki.make("bad-one")), other = as_environment(pki.make("other-one"));
    cluster.admit(0, as_environment(pki.make("good-1")));
    cluster.admit(0, as_environment(pki.make("good-2")));
    cluster.admit(0, bad);
    const Done listed = command({"members"});
    INFO(listed.errors);
    std::string all;
    for (const std::string& line : listed.lines) all += line + "\n";
    INFO(all);
    REQUIRE(listed.lines.size() == 4);
    CHECK(contains(all, "good-1 ("));
    CHECK(contains(all, "bad-one ("));
    CHECK(contains(command({"invite"}).errors, "no invitations"));
    CHECK(contains(command({"revoke", "serial:xyz"}).errors, "common name"));

    CHECK(contains(command({"revoke", "bad-one"}).line(), "1 peer id(s)"));
    CHECK(cluster.master().says("removed: the operator revoked its certificate"));
    CHECK(cluster[2].ask("update").result != success);
    CHECK(contains(refusal(cluster, bad), "certificate revoked"));
    cluster.remove(2);
    cluster.all("update");
    reduce(cluster, 1);

    // By its number, before it ever came.
    const std::string path = other.at("PCCL_TLS_CERT");
    const Done number = run({"/usr/bin/env", "openssl", "x509", "-noout", "-serial", "-in", path});
    REQUIRE(contains(number.line(), "serial="));
    CHECK(contains(command({"revoke", "serial:" + number.line().substr(7)}).line(), "0 peer id(s)"));
    CHECK(contains(refusal(cluster, other), "certificate revoked"));
    cluster.kill_and_restart_master();
    CHECK(contains(refusal(cluster, bad), "certificate revoked"));
    CHECK(contains(refusal(cluster, other), "certificate revoked"));
    reduce(cluster, 2);
}

TEST_CASE("a master's name may be given instead of its address") {
    pccl::real::OwnPki pki;
    Cluster cluster(0, {{"PCCL_TLS_MASTER_NAME", "master.example"}},
                    as_options(pki.make("master", {"DNS:master.example"})));
    cluster.admit(0, as_environment(pki.make("one")));
    cluster.admit(0, as_environment(pki.make("two")));
    reduce(cluster, 1);
    Environment without = as_environment(pki.make("three"));
    without["PCCL_TLS_MASTER_NAME"] = "127.0.0.1";
    CHECK(contains(refusal(cluster, without), "not for this host"));
}

TEST_CASE("options that do not fit together are refused with their remedy") {
    pccl::real::OwnPki pki;
    StateDirectory directory;
    const std::vector<std::string> given = as_options(pki.make("master", {"IP:127.0.0.1"}));
    const auto start = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {PCCL_TEST_MASTER, "--listen", "127.0.0.1:0", "--state-dir", directory.path()});
        return run(more);
    };
    CHECK(contains(start({given[0], given[1]}).errors, "give all of"));
    std::vector<std::string> both = given;
    both.emplace_back("--secure");
    CHECK(contains(start(both).errors, "give neither"));
    {
        MasterProcess master(directory.environment(), 0, {"--secure"});
        master.signal(SIGTERM);
        CHECK(master.wait() == 0);
    }
    CHECK(contains(start(given).errors, "has invitations"));
    ScriptPeer peer(1, 0, {{"PCCL_TLS_CA", given[1]}});
    CHECK(peer.ask("connect").result != success);
    CHECK(contains(peer.log_text(), "give all of"));
}

TEST_CASE("an abort while a communicator starts ends its connect") {
    pccl::real::OwnPki pki;
    Cluster cluster(0, {}, as_options(pki.make("master", {"IP:127.0.0.1"})));
    const pccl::real::tls::OperatorFiles files = pki.make("peer");
    const Variable authorities("PCCL_TLS_CA", files.authorities.c_str());
    const Variable certificate("PCCL_TLS_CERT", files.certificate.c_str());
    const Variable key("PCCL_TLS_KEY", files.key.c_str());
    REQUIRE(pcclInit() == pcclSuccess);
    const pcclCommCreateParams_t params = params_for(cluster.master().port());
    pcclComm_t* comm = nullptr;
    REQUIRE(pcclCreateCommunicator(&params, &comm) == pcclSuccess);
    pccl::real::HeldFile held(files.certificate);
    pcclResult_t result = pcclSuccess;
    std::thread connecting([&] { result = pcclConnect(comm); });
    held.await_reader();
    CHECK(pcclAbort(comm) == pcclSuccess);
    held.let_read();
    connecting.join();
    CHECK(result == pcclMasterConnectionFailed);
    CHECK(pcclConnect(comm) == pcclSuccess);
    CHECK(pcclDestroyCommunicator(comm) == pcclSuccess);
}
