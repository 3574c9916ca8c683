// Certificates of an operator's own PKI: what is read, what is refused, and which peer ids belong to a key.
#include "net-real/tls/operator_keys.hpp"

#include "net-real/tests/held_file.hpp"
#include "net-real/tests/own_pki.hpp"
#include "net-real/tests/secure_run.hpp"
#include "net-real/tests/stream_pairs.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <thread>

using namespace pccl;
using namespace pccl::real;

namespace {

using Side = tls::Context::Side;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::unique_ptr<tls::OperatorKeys> keys_of(const tls::OperatorFiles& files, Side side = Side::peer) {
    std::string error;
    auto keys = tls::OperatorKeys::open(side, files, error);
    INFO(error);
    REQUIRE(keys != nullptr);
    return keys;
}

struct Ends {
    std::unique_ptr<TlsStream> from, to;
    bool opened = false;
    std::string at_dialler, at_acceptor;
};

// `host`: that the dialler expects; null: a peer is dialled, and none is.
Ends shake_hands(const std::shared_ptr<const tls::Context>& dialler,
                 const std::shared_ptr<const tls::Context>& acceptor, const char* host = nullptr) {
    const UnixPair sockets;
    Ends ends;
    ends.from = TlsStream::dialled(sockets.a, dialler, tls::Protocol::link);
    ends.to = TlsStream::accepted(sockets.b, acceptor);
    if (host != nullptr) REQUIRE(ends.from->expect_host(host));
    ends.opened = finish_both(*ends.from, *ends.to, ends.at_dialler, ends.at_acceptor);
    return ends;
}

// A master, and a peer that has not connected yet.
struct OwnRun {
    OwnPki pki;
    std::unique_ptr<MasterRuntime> master;
    PeerSettings settings = secure_run::with_invite("");
    std::unique_ptr<PeerRuntime> peer;

    OwnRun() {
        MasterSettings of_master;
        of_master.tls_files = pki.make("master", {"IP:127.0.0.1"});
        master = std::make_unique<MasterRuntime>(of_master);
        std::string error;
        REQUIRE(master->bind(secure_run::loopback(), error));
        REQUIRE(master->run(error));
        settings.tls_files = pki.make("peer");
        settings.master = secure_run::loopback(master->port());
        peer = secure_run::make_peer(settings);
    }
};

}  // namespace

TEST_CASE("both ends learn which peer id is at the other one, and ids of one key share its hash") {
    OwnPki pki;
    const auto alice = keys_of(pki.make("alice")), bob = keys_of(pki.make("bob"));
    std::string error;
    const core::Uuid a = alice->begin_membership(error), b = bob->begin_membership(error);
    REQUIRE_FALSE(a.is_nil());
    const Ends ends = shake_hands(alice->context(), bob->context());
    INFO(ends.at_dialler << ", " << ends.at_acceptor);
    REQUIRE(ends.opened);
    const auto at_bob = ends.to->other_end(), at_alice = ends.from->other_end();
    REQUIRE((at_bob && at_alice));
    CHECK(at_bob->peer == a);
    CHECK(at_bob->name == "alice");
    CHECK(at_alice->is_peer(b));
    CHECK_FALSE(at_alice->is_peer(a));
    const core::Uuid again = alice->begin_membership(error);
    CHECK(again != a);
    CHECK(at_bob->is_peer(again));
}

TEST_CASE("a peer id of another key, or none, names nobody") {
    OwnPki pki;
    const tls::OperatorFiles files = pki.make("alice");
    const auto alice = keys_of(files), bob = keys_of(pki.make("bob")), carol = keys_of(pki.make("carol"));
    std::string error;
    const core::Uuid b = bob->begin_membership(error);
    carol->begin_membership(error);
    for (const core::Uuid& claimed : {b, core::Uuid{}}) {
        const auto liar = tls::Context::make_from_files(Side::peer, files, claimed, error);
        REQUIRE(liar != nullptr);
        const Ends ends = shake_hands(liar, carol->context());
        REQUIRE(ends.opened);
        CHECK(ends.to->other_end()->peer.is_nil());
        CHECK_FALSE(ends.to->other_end()->is_peer(b));
    }
}

TEST_CASE("the master's certificate must be for the host that is dialled") {
    OwnPki pki;
    const auto peer = keys_of(pki.make("peer"));
    const auto master = keys_of(pki.make("master", {"DNS:master.example,IP:10.0.0.1,IP:fd00::1"}), Side::master);
    for (const char* host : {"master.example", "10.0.0.1", "fd00::1", "fd00:0:0:0:0:0:0:1"})
        CHECK(shake_hands(peer->context(), master->context(), host).opened);
    for (const char* host : {"other.example", "10.0.0.2", "master", "fd00::2"}) {
        const Ends ends = shake_hands(peer->context(), master->context(), host);
        CHECK_FALSE(ends.opened);
        CHECK(contains(ends.at_dialler, "not for this host"));
    }
    // A peer has no name of the master.
    const auto other = keys_of(pki.make("other", {"DNS:peer.example"}));
    CHECK_FALSE(shake_hands(peer->context(), other->context(), "master.example").opened);
}

TEST_CASE("certificates of another authority, old, early and revoked ones are refused with a name") {
    OwnPki pki, foreign;
    const tls::OperatorFiles bad = pki.make("bad");
    const auto refused = keys_of(bad);
    // It accepts the master, and the master does not accept it.
    tls::OperatorFiles of_foreign = foreign.make("peer");
    of_foreign.authorities = bad.authorities;
    const auto other = keys_of(of_foreign), old = keys_of(pki.make("old", {"", -7200, -3600})),
               early = keys_of(pki.make("early", {"", 86'400, 2 * 86'400}));
    const auto before = keys_of(pki.make("master", {"IP:10.0.0.1"}), Side::master);
    CHECK(shake_hands(refused->context(), before->context()).opened);
    pki.revoke("bad");
    const auto master = keys_of(pki.make("master", {"IP:10.0.0.1"}), Side::master);
    const auto reason = [&](const std::unique_ptr<tls::OperatorKeys>& keys) {
        return shake_hands(keys->context(), master->context()).at_acceptor;
    };
    CHECK(contains(reason(other), "must be signed by an authority of PCCL_TLS_CA"));
    CHECK(contains(reason(old), "wrong clock, or an old certificate"));
    CHECK(contains(reason(early), "not valid yet"));
    CHECK(contains(reason(refused), "certificate revoked"));
    CHECK(reason(keys_of(pki.make("good"))).empty());
}

TEST_CASE("files that cannot be used are named") {
    OwnPki pki;
    const tls::OperatorFiles files = pki.make("peer"), others = pki.make("other");
    std::string error;
    const auto refused = [&](tls::OperatorFiles changed) {
        error.clear();
        return tls::OperatorKeys::open(Side::peer, changed, error) == nullptr;
    };
    CHECK(refused({files.authorities, files.certificate, ""}));
    CHECK(contains(error, "give all of"));
    CHECK(refused({files.authorities, "/nowhere/x.pem", files.key}));
    CHECK(contains(error, "/nowhere/x.pem"));
    CHECK(refused({files.authorities, files.certificate, others.key}));
    CHECK(contains(error, others.key));
    CHECK(refused({files.key, files.certificate, files.key}));
    CHECK(contains(error, "no certificate of an authority"));
}

TEST_CASE("new files with the same key are taken at once, those with another key by the next membership") {
    OwnPki pki;
    const tls::OperatorFiles files = pki.make("peer");
    const auto keys = keys_of(files);
    int ages = 0;
    const auto age = [&] {  // two changes within a second have the same time
        for (const std::string& file : {files.certificate, files.key})
            std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - std::chrono::hours(++ages));
    };
    std::string error;
    const core::Uuid first = keys->begin_membership(error);
    CHECK_FALSE(keys->refresh(error));
    CHECK(error.empty());
    const auto before = keys->context();
    pki.make("peer", {"", 0, 7200, "peer"});
    age();
    CHECK(keys->refresh(error));
    CHECK(keys->context() != before);
    CHECK(keys->context()->own_key() == before->own_key());
    pki.make("peer");
    age();
    CHECK_FALSE(keys->refresh(error));
    CHECK(contains(error, "another key"));
    CHECK(keys->context()->own_key() == before->own_key());
    const core::Uuid second = keys->begin_membership(error);
    CHECK(keys->context()->own_key() != before->own_key());
    CHECK_FALSE(std::equal(first.bytes.end() - 10, first.bytes.end(), second.bytes.end() - 10));
}

TEST_CASE("a membership that begins while changed files are read keeps its id") {
    OwnPki pki;
    const tls::OperatorFiles files = pki.make("alice");
    const auto alice = keys_of(files), bob = keys_of(pki.make("bob"));
    std::string error, of_refresh;
    bob->begin_membership(error);
    const core::Uuid first = alice->begin_membership(error);
    HeldFile held(files.certificate);
    bool taken = true;
    std::thread refreshing([&] { taken = alice->refresh(of_refresh); });
    held.await_reader();
    const core::Uuid second = alice->begin_membership(error);
    held.let_read();
    refreshing.join();
    CHECK(first != second);
    CHECK_FALSE(taken);
    CHECK(of_refresh.empty());
    const Ends ends = shake_hands(alice->context(), bob->context());
    INFO(ends.at_dialler << ", " << ends.at_acceptor);
    REQUIRE(ends.opened);
    CHECK(ends.to->other_end()->peer == second);
}

TEST_CASE("an abort that comes while a connect reads its files ends it") {
    OwnRun run;
    HeldFile held(run.settings.tls_files.certificate);
    core::Completion completion;
    std::thread connecting([&] { completion = run.peer->call(core::CommandConnect{}); });
    held.await_reader();
    CHECK(run.peer->abort().result == core::Result::success);
    held.let_read();
    connecting.join();
    CHECK(completion.result == core::Result::master_connection_failed);
    CHECK(contains(core::to_text(completion.cause), "aborted"));
    secure_run::connect(*run.peer);
}

TEST_CASE("a connect during which a file is replaced fails, and a later one succeeds") {
    OwnRun run;
    // The new key is there already, and its certificate not yet.
    const std::string old_key = run.settings.tls_files.key + ".old";
    std::filesystem::rename(run.settings.tls_files.key, old_key);
    std::filesystem::copy_file(run.pki.make("other").key, run.settings.tls_files.key);
    const core::Completion completion = run.peer->call(core::CommandConnect{});
    CHECK(completion.result == core::Result::master_connection_failed);
    CHECK(contains(core::to_text(completion.cause), run.settings.tls_files.key));
    std::filesystem::rename(old_key, run.settings.tls_files.key);
    secure_run::connect(*run.peer);
}
