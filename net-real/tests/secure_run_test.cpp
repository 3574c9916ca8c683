// Secure runs over loopback: peers that were invited reduce; everybody else is refused with a name, and the run goes on.
// A recording proxy sees what goes over the sockets.
#include "net-real/tests/secure_run.hpp"

#include "core/wire/convert.hpp"
#include "net-real/link.hpp"
#include "net-real/sockets.hpp"
#include "net-real/streams/tls_stream.hpp"
#include "net-real/tests/temporary_folder.hpp"
#include "net-real/tls/enrolment.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace secure_run;

namespace {

// Carries connections to a port, and keeps all their bytes.
class Proxy {
public:
    Proxy() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(listener_, 64) == 0);
        socklen_t length = sizeof address;
        REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
        port_ = ntohs(address.sin_port);
        REQUIRE(::pipe(stop_) == 0);
        thread_ = std::thread([this] { run(); });
    }
    ~Proxy() {
        ::close(stop_[1]);
        thread_.join();
        ::close(stop_[0]);
        ::close(listener_);
    }
    Proxy(const Proxy&) = delete;
    std::uint16_t port() const { return port_; }
    void carry_to(std::uint16_t port) { target_ = port; }
    std::string recorded() {
        const std::lock_guard lock(mutex_);
        return recorded_;
    }
    bool saw(const std::string& bytes) { return recorded().find(bytes) != std::string::npos; }

private:
    static bool pass_on(int in, int out, std::string& record) {
        char piece[65536];
        const ssize_t got = ::recv(in, piece, sizeof piece, 0);
        if (got <= 0) return false;
        record.append(piece, static_cast<std::size_t>(got));
        for (ssize_t done = 0; done < got;) {
            const ssize_t sent = ::send(out, piece + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            done += sent;
        }
        return true;
    }
    void run() {
        // Each direction has a thread of its own, so that neither waits for the other.
        std::vector<std::thread> threads;
        std::vector<int> sockets;
        for (;;) {
            pollfd waiting[] = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
            ::poll(waiting, 2, -1);
            if (waiting[0].revents != 0) break;
            const int in = ::accept(listener_, nullptr, nullptr);
            const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            sockaddr_in address{};
            address.sin_family = AF_INET;
            address.sin_port = htons(target_);
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            sockets.push_back(in);
            sockets.push_back(out);
            if (::connect(out, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
                ::shutdown(in, SHUT_RDWR);
                continue;
            }
            for (const auto& [from, to] : {std::pair(in, out), std::pair(out, in)}) {
                threads.emplace_back([this, from = from, to = to] {
                    std::string record;
                    while (pass_on(from, to, record)) {
                        const std::lock_guard lock(mutex_);
                        recorded_ += record;  // each direction of a connection in its order, pieces of several mixed
                        record.clear();
                    }
                    ::shutdown(to, SHUT_RDWR);
                });
            }
        }
        for (const int one : sockets) ::shutdown(one, SHUT_RDWR);
        for (std::thread& thread : threads) thread.join();
        for (const int one : sockets) ::close(one);
    }

    int listener_;
    int stop_[2] = {-1, -1};
    std::uint16_t port_ = 0;
    std::atomic<std::uint16_t> target_{0};
    std::mutex mutex_;
    std::string recorded_;
    std::thread thread_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// 64 bytes that nothing else contains, as floats.
std::vector<float> marker() {
    std::vector<float> values;
    for (int i = 0; i < 16; ++i) values.push_back(1.0f + static_cast<float>(i * i) * 0.123456f);
    return values;
}

std::string bytes_of(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// Two peers reduce vectors that consist of the marker, and everything between them and the master goes through proxies.
struct Recorded {
    bool data_has_marker = false;
    bool master_has_name = false;
    bool any_has_secret = false;
    std::size_t data_bytes = 0;
};

Recorded record_run(bool data_plaintext) {
    MasterSettings settings;
    settings.data_plaintext = data_plaintext;
    Run run(settings);
    Proxy to_master, to_first, to_second;
    to_master.carry_to(run.master->port());
    std::vector<std::unique_ptr<PeerRuntime>> peers;
    std::vector<std::string> secrets;
    for (Proxy* proxy : {&to_first, &to_second}) {
        tls::Authority::Wish wish;
        wish.name = core::formatted("named-{}", secrets.size());
        const std::string invite = run.invite(wish, to_master.port());
        tls::Invitation read;
        std::string why;
        REQUIRE(tls::parse_invitation(invite, read, why));
        secrets.push_back(tls::to_hex(read.secret));
        secrets.emplace_back(read.secret.begin(), read.secret.end());
        PeerSettings peer = with_invite(invite);
        peer.advertised = loopback(proxy->port());
        peers.push_back(make_peer(peer));
        proxy->carry_to(peers.back()->listen_port());
    }
    connect(*peers[0]);
    admit({peers[0].get()}, *peers[1]);
    std::vector<float> input;
    while (input.size() < 100'000) {
        const auto more = marker();
        input.insert(input.end(), more.begin(), more.end());
    }
    std::vector<float> twice = input;
    for (float& value : twice) value *= 2;
    const auto results = reduce({peers[0].get(), peers[1].get()}, {input, input});
    CHECK(results == std::vector<std::vector<float>>{twice, twice});
    peers.clear();
    Recorded seen;
    const std::string mark = bytes_of(marker());
    seen.data_has_marker = to_first.saw(mark) || to_second.saw(mark);
    seen.data_bytes = to_first.recorded().size() + to_second.recorded().size();
    seen.master_has_name = to_master.saw("named-0");
    for (const std::string& secret : secrets)
        seen.any_has_secret = seen.any_has_secret || to_master.saw(secret) || to_first.saw(secret);
    return seen;
}

// Says hello to the master as `peer`, with the certificate of `identity`. Returns why it was refused; empty: it was not.
std::string refusal_of_hello(std::uint16_t port, const tls::PeerIdentity& identity, const core::Uuid& peer) {
    std::string error;
    const auto stream =
        TlsStream::dialled(dial(loopback(port), std::nullopt, error), identity.context(), tls::Protocol::link);
    REQUIRE(stream != nullptr);
    const auto wait = [&](short events) {
        pollfd one{stream->descriptor(), events, 0};
        REQUIRE(::poll(&one, 1, 60'000) > 0);
    };
    while (stream->open(error) == Stream::Opening::waiting)
        wait(stream->opening_wait() == Stream::Wait::writable ? POLLOUT : POLLIN);
    Link link(1, *stream, core::Limits{});
    proto::PeerMessage message;
    message.mutable_hello()->set_protocol_version(core::wire::protocol_version);
    message.mutable_hello()->set_uuid(core::to_bytes(peer));
    message.mutable_hello()->mutable_advertised()->set_port(1);
    link.queue_control(core::encode(message));
    std::vector<core::Event> ignored;
    link.send(1 << 20, ignored);
    struct Sink final : EventSink {
        void on_event(const core::Event& event) override {
            if (const auto* control = std::get_if<core::ControlArrived>(&event)) core::decode(control->body, answer);
        }
        proto::MasterMessage answer;
    } sink;
    ReceiveSpace space;
    while (sink.answer.kind_case() == proto::MasterMessage::KIND_NOT_SET &&
           link.receive(space, sink, 1 << 20).progress != Link::Progress::closed) {
        if (sink.answer.kind_case() == proto::MasterMessage::KIND_NOT_SET) wait(POLLIN);
    }
    return sink.answer.has_refusal() ? core::to_text(core::cause_of(sink.answer.refusal().cause())) : "";
}

}  // namespace

TEST_CASE("three invited peers reduce; the last one gets its group from the invitation") {
    Run run;
    const auto a = make_peer(with_invite(run.invite())), b = make_peer(with_invite(run.invite())),
               c = make_peer(with_invite(run.invite()));
    connect(*a);
    admit({a.get()}, *b);
    admit({a.get(), b.get()}, *c);
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{3'000'000}})
        CHECK(reduces({a.get(), b.get(), c.get()}, count));
    tls::Authority::Wish wish;
    wish.group = 3;
    CHECK(contains(refusal(with_invite(run.invite(wish))), "its invitation is for peer group 3"));
    CHECK(reduces({a.get(), b.get(), c.get()}, 1000));
}

TEST_CASE("neither tensors nor names nor secrets go over the network in the clear") {
    const Recorded seen = record_run(false);
    CHECK(seen.data_bytes > 400'000);
    CHECK_FALSE(seen.data_has_marker);
    CHECK_FALSE(seen.master_has_name);
    CHECK_FALSE(seen.any_has_secret);
}

TEST_CASE("with plaintext data links tensors are seen, secrets are not") {
    const Recorded seen = record_run(true);
    CHECK(seen.data_has_marker);  // also shows that the recording sees what is there
    CHECK_FALSE(seen.master_has_name);
    CHECK_FALSE(seen.any_has_secret);
}

TEST_CASE("every wrong invitation is refused with its name at both ends, and the run goes on") {
    Run run, other;
    const auto a = make_peer(with_invite(run.invite())), b = make_peer(with_invite(run.invite()));
    connect(*a);
    admit({a.get()}, *b);
    std::string error;

    const std::string spent = run.invite_named("spent-one");
    {
        const auto joins = make_peer(with_invite(spent));
        admit({a.get(), b.get()}, *joins);
        joins->stop();
    }
    CHECK(contains(refusal(with_invite(spent), core::Result::invalid_argument), "invitation spent"));
    CHECK(run.log.says("invitation spent"));

    const std::string withdrawn = run.invite();
    tls::Invitation read;
    REQUIRE(tls::parse_invitation(withdrawn, read, error));
    REQUIRE(run.master->authority()->withdraw(read.id, error));
    CHECK(contains(refusal(with_invite(withdrawn), core::Result::invalid_argument), "invitation withdrawn"));
    CHECK(run.log.says("invitation withdrawn"));

    REQUIRE(tls::parse_invitation(run.invite(), read, error));
    read.secret[3] ^= 1;
    CHECK(contains(refusal(with_invite(tls::to_text(read)), core::Result::invalid_argument), "unknown invitation"));
    CHECK(run.log.says("unknown invitation"));

    // The hash of the authority is that of another run: whoever answers at this address gets no secret.
    REQUIRE(tls::parse_invitation(other.invite(), read, error));
    read.master = core::formatted("127.0.0.1:{}", run.master->port());
    CHECK(contains(refusal(with_invite(tls::to_text(read))), "authority of another run"));
    CHECK(run.log.says("refused a connection from 127.0.0.1"));

    PeerSettings malformed = with_invite("pccl-invite-1/127.0.0.1:1/00/00/00");
    PeerRuntime peer(malformed);
    CHECK_FALSE(peer.start(error));
    CHECK(contains(error, "malformed invitation"));

    const core::Completion update = [&] {
        core::Completion at_b;
        std::thread thread([&] { at_b = b->call(core::CommandUpdateTopology{}); });
        const core::Completion at_a = a->call(core::CommandUpdateTopology{});
        thread.join();
        CHECK(at_b.result == core::Result::success);
        return at_a;
    }();
    CHECK(update.result == core::Result::success);
    CHECK(reduces({a.get(), b.get()}, 100'000));
}

TEST_CASE("a plaintext peer is refused by a secure master, and a secure peer by a plaintext one") {
    Run run;
    PeerSettings plain = with_invite("");
    plain.master = loopback(run.master->port());
    CHECK(contains(refusal(plain), "plaintext peer"));
    CHECK(run.log.says("does not speak TLS"));

    Log log;
    MasterSettings settings;
    settings.log = log.sink();
    MasterRuntime open(settings);
    std::string error;
    REQUIRE(open.bind(loopback(), error));
    REQUIRE(open.run(error));
    PeerSettings invited = with_invite(run.invite({}, open.port()));
    invited.timeouts.master = core::second;  // so long it asks a master that closes its connections
    CHECK(contains(refusal(invited), "no certificate from the master"));
    CHECK(log.says("closed a connection"));
}

TEST_CASE("a revoked peer is removed at once, cannot come back, and stays revoked after a restart of the master") {
    Run run;
    const auto a = make_peer(with_invite(run.invite())), b = make_peer(with_invite(run.invite_named("bad"))),
               c = make_peer(with_invite(run.invite()));
    connect(*a);
    admit({a.get()}, *b);
    admit({a.get(), b.get()}, *c);
    REQUIRE(reduces({a.get(), b.get(), c.get()}, 1000));
    std::size_t removed = 0;
    std::string error;
    REQUIRE(run.master->revoke("bad", removed, error));
    CHECK(removed == 1);
    CHECK(run.log.says("removed: the operator revoked its certificate"));
    // A call of the revoked peer fails with the reason; the others go on.
    const core::Completion at_b = b->call(core::CommandUpdateTopology{});
    CHECK(at_b.result != core::Result::success);
    CHECK(contains(core::to_text(at_b.cause), "revoked"));
    for (const bool again : {false, true}) {
        if (again) run.restart();
        const core::Completion back = b->call(core::CommandConnect{});
        CHECK(back.result == core::Result::invalid_argument);
        CHECK(contains(core::to_text(back.cause), "revoked"));
        CHECK(reduces({a.get(), c.get()}, 1000));
    }
}

TEST_CASE("a restarted master knows its peers, its invitations and what was spent") {
    Run run;
    const std::string spent = run.invite(), open = run.invite();
    const auto a = make_peer(with_invite(spent)), b = make_peer(with_invite(run.invite()));
    connect(*a);
    admit({a.get()}, *b);
    run.restart();
    CHECK(reduces({a.get(), b.get()}, 100'000));
    CHECK(contains(refusal(with_invite(spent), core::Result::invalid_argument), "invitation spent"));
    const auto c = make_peer(with_invite(open));
    admit({a.get(), b.get()}, *c);
    CHECK(reduces({a.get(), b.get(), c.get()}, 1000));
    // A peer that has left joins again with its certificate, under another id.
    b->call(core::CommandLeave{});
    admit({a.get(), c.get()}, *b);
    CHECK(reduces({a.get(), b.get(), c.get()}, 1000));
}

TEST_CASE("certificates are renewed, so that peers can connect again when the first ones have expired") {
    MasterSettings settings;
    settings.certificate_life = 4;
    Run run(settings);
    const auto a = make_peer(with_invite(run.invite_named("first"))),
               b = make_peer(with_invite(run.invite_named("second")));
    connect(*a);
    admit({a.get()}, *b);
    CHECK(run.log.says("renewed the certificate of first"));
    CHECK(run.log.says("renewed the certificate of second"));
    run.restart();
    CHECK(reduces({a.get(), b.get()}, 1000));
}

TEST_CASE("a peer cannot take the name of another one, and its certificate is worth nothing when it was revoked") {
    Run run;
    const auto a = make_peer(with_invite(run.invite()));
    connect(*a);
    std::string error;
    const auto liar = tls::PeerIdentity::make(run.invite_named("liar"), std::nullopt, error);
    REQUIRE(liar != nullptr);
    REQUIRE(liar->join({loopback(run.master->port())}, 0, {}, error));
    core::Uuid other = liar->peer();
    other.bytes[0] ^= 1;
    CHECK(contains(refusal_of_hello(run.master->port(), *liar, other), "its certificate names peer"));
    std::size_t removed = 0;
    REQUIRE(run.master->revoke("liar", removed, error));
    for (const bool again : {false, true}) {
        if (again) run.restart();
        CHECK(contains(refusal_of_hello(run.master->port(), *liar, liar->peer()), "certificate revoked"));
        CHECK_FALSE(liar->renew({loopback(run.master->port())}, {}, error));
        CHECK(contains(error, "certificate revoked"));
    }
}

TEST_CASE("a peer whose certificate has expired gets the next one by its invitation") {
    const TemporaryFolder folder;
    std::string error;
    std::unique_ptr<tls::PeerIdentity> peer;
    {
        const auto yesterday = [] { return std::time(nullptr) - 20 * 3600; };
        const auto authority = tls::Authority::open(folder.path(), {false, 12 * 3600, yesterday}, error);
        REQUIRE(authority != nullptr);
        tls::Authority::Wish wish;
        wish.address = "127.0.0.1";
        wish.uses = 2;
        wish.ttl = 24 * 3600;
        std::string invite;
        REQUIRE(authority->invite(wish, invite, error));
        tls::Invitation read;
        REQUIRE(tls::parse_invitation(invite, read, error));
        peer = tls::PeerIdentity::make(invite, std::nullopt, error);
        REQUIRE(peer != nullptr);
        proto::EnrolRequest request;
        request.set_request(peer->request(error));
        request.set_invitation(read.id);
        request.set_secret(read.secret.data(), read.secret.size());
        REQUIRE(peer->take(authority->enrol(request, std::nullopt), error));
    }
    const core::Uuid before = peer->peer();
    MasterSettings settings;
    settings.state_directory = folder.path();
    settings.secure = true;
    MasterRuntime master(settings);
    REQUIRE(master.bind(loopback(), error));
    REQUIRE(master.run(error));
    const std::vector<core::Endpoint> masters{loopback(master.port())};
    CHECK_FALSE(peer->renew(masters, {}, error));  // without its certificate it cannot keep its peer id
    CHECK(peer->peer() == before);
    const bool joined = peer->join(masters, 0, {}, error);
    INFO(error);
    CHECK(joined);
    CHECK(peer->renew(masters, {}, error));
}

TEST_CASE("a crowd that the master cannot greet at once gets its certificates, and each use is spent once") {
    constexpr int crowd = 24;
    MasterSettings settings;
    settings.limits.unregistered_links_max = 2;  // handshakes and requests at a time; the oldest gives way
    Run run(settings);
    tls::Authority::Wish wish;
    wish.uses = crowd;
    const std::string invite = run.invite(wish);
    std::vector<std::unique_ptr<tls::PeerIdentity>> newcomers;
    std::vector<std::string> errors(crowd);
    std::string error;
    for (int i = 0; i < crowd; ++i) {
        newcomers.push_back(tls::PeerIdentity::make(invite, std::nullopt, error));
        REQUIRE(newcomers.back() != nullptr);
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < crowd; ++i) {
        threads.emplace_back([&, i] {
            newcomers[i]->join({loopback(run.master->port())}, 60 * core::second, {}, errors[i]);
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<core::Uuid> names;
    for (std::size_t i = 0; i < crowd; ++i) {
        INFO(errors[i]);
        REQUIRE(newcomers[i]->context() != nullptr);
        names.push_back(newcomers[i]->peer());
    }
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    for (const tls::Authority::Listed& listed : run.master->authority()->invitations()) {
        CHECK(listed.used == crowd);
        CHECK(listed.state == tls::Authority::State::spent);
    }
    const auto late = tls::PeerIdentity::make(invite, std::nullopt, error);
    CHECK_FALSE(late->join({loopback(run.master->port())}, 0, {}, error));
    CHECK(contains(error, "invitation spent"));
}

TEST_CASE("peers whose handshakes the master turns away dial it again, and all get in") {
    constexpr std::size_t crowd = 8;
    MasterSettings settings;
    settings.limits.unregistered_links_max = 1;
    Run run(settings);
    std::vector<std::unique_ptr<PeerRuntime>> peers;
    for (std::size_t i = 0; i < crowd; ++i) peers.push_back(make_peer(with_invite(run.invite())));
    connect(*peers[0]);
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::string first_failure;  // the others wait for that peer, and are aborted then
    std::atomic<bool> failed{false};
    const auto works = [&](PeerRuntime& peer, const core::Command& command) {
        const core::Completion completion = peer.call(command);
        if (completion.result == core::Result::success) return true;
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) first_failure = core::to_text(completion.cause);
        for (const auto& other : peers) other->abort();
        return false;
    };
    for (std::size_t i = 0; i < crowd; ++i) {
        threads.emplace_back([&, i] {
            if (i > 0 && !works(*peers[i], core::CommandConnect{})) return;
            while (!failed && peers[i]->attributes().global_world < crowd)
                if (!works(*peers[i], core::CommandUpdateTopology{})) return;
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(first_failure == "");
}

TEST_CASE("shared memory within a host stays in use in a secure run") {
    Run run;
    std::vector<std::unique_ptr<PeerRuntime>> peers;
    for (int i = 0; i < 2; ++i) {
        PeerSettings settings = with_invite(run.invite());
        settings.shared_memory = true;
        peers.push_back(make_peer(settings));
    }
    connect(*peers[0]);
    admit({peers[0].get()}, *peers[1]);
    CHECK(reduces({peers[0].get(), peers[1].get()}, 100'000));
    CHECK(peers[0]->statistics().shared_bytes > 0);
}

TEST_CASE("a peer may be closed at any moment of a call that connects it") {
    Run run;
    tls::Authority::Wish wish;
    wish.uses = 40;
    const std::string invite = run.invite(wish);
    for (int round = 0; round < 40; ++round) {
        const auto peer = make_peer(with_invite(invite));
        std::thread connects([&] { peer->call(core::CommandConnect{}); });
        // Anywhere between the begin of an enrolment and the end of the call.
        std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
        peer->stop();
        connects.join();
    }
}

TEST_CASE("a newcomer asks for its certificate from the address that it binds") {
    Run run;
    std::uint16_t port = 0;
    std::string error;
    ListenRequest request;
    request.address = loopback();
    const int listener = listen_on(request, port, error);
    REQUIRE(listener >= 0);
    PeerSettings settings = with_invite(run.invite({}, port));
    REQUIRE(parse_endpoint("127.0.0.5", *settings.bind_address));
    const auto peer = make_peer(settings);
    core::Completion completion;
    std::thread connecting([&] { completion = peer->call(core::CommandConnect{}); });
    core::Endpoint remote;
    pollfd ready{listener, POLLIN, 0};
    CHECK(::poll(&ready, 1, -1) == 1);
    const int accepted = accept_from(listener, remote);
    close_socket(listener);  // first, so that there is no second try
    close_socket(accepted);
    connecting.join();
    CHECK(completion.result == core::Result::master_connection_failed);
    CHECK(remote.address == settings.bind_address->address);
}

TEST_CASE("a master that cannot record a certificate names the file and the cause in its log") {
    Run run;
    const std::string invite = run.invite();
    const std::string beside = run.folder() + "/security/state.new";
    REQUIRE(std::filesystem::create_directory(beside));  // in the way of the file that is written
    CHECK(contains(refusal(with_invite(invite)), "the master cannot write to its state directory"));
    CHECK(run.log.says("ERR master peers get no certificates, because none can be recorded: " + beside + ": "));
    REQUIRE(std::filesystem::remove(beside));
    const auto peer = make_peer(with_invite(invite));
    connect(*peer);
}
