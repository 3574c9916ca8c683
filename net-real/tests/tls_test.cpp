// Certificates, invitations, the authority on its disk, and handshakes that must fail.
#include "core/base/random.hpp"
#include "net-real/tests/stream_pairs.hpp"
#include "net-real/tests/temporary_folder.hpp"
#include "net-real/tls/authority.hpp"
#include "net-real/tls/invitation.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/stat.h>

using namespace pccl;
using namespace pccl::real;
using tls::Authority;

namespace {

using Folder = TemporaryFolder;

// An authority whose clock the test moves.
struct Office {
    Folder folder;
    std::time_t now = std::time(nullptr);
    std::unique_ptr<Authority> authority = open();

    std::unique_ptr<Authority> open(bool data_plaintext = false) {
        std::string error;
        auto opened = Authority::open(folder.path(), {data_plaintext, 3600, [this] { return now; }}, error);
        INFO(error);
        REQUIRE(opened != nullptr);
        return opened;
    }
    void restart() {
        authority.reset();
        authority = open();
    }
    tls::Invitation invite(const Authority::Wish& wish = {}) {
        Authority::Wish with_address = wish;
        with_address.address = "127.0.0.1:1";
        std::string text, error;
        INFO(error);
        REQUIRE(authority->invite(with_address, text, error));
        tls::Invitation invitation;
        REQUIRE(tls::parse_invitation(text, invitation, error));
        return invitation;
    }
    proto::EnrolReply use(const tls::Invitation& invitation) {
        std::string error;
        const tls::KeyPtr key = tls::make_key(error);
        proto::EnrolRequest request;
        request.set_invitation(invitation.id);
        request.set_secret(invitation.secret.data(), invitation.secret.size());
        request.set_request(tls::make_request(*key, error));
        return authority->enrol(request, std::nullopt);
    }
    static tls::CertificateName name_in(const proto::EnrolReply& reply) {
        std::string error;
        const tls::CertificatePtr certificate = tls::certificate_from_der(reply.certificate(), error);
        REQUIRE(certificate != nullptr);
        const auto name = tls::name_of(*certificate);
        REQUIRE(name);
        return *name;
    }
};

// Both ends of a TCP connection on loopback.
std::pair<int, int> connected_pair() {
    std::uint16_t port = 0;
    std::string error;
    ListenRequest request;
    request.address = loopback_endpoint();
    const int listener = listen_on(request, port, error);
    REQUIRE(listener >= 0);
    const int a = dial(loopback_endpoint(port), std::nullopt, error);
    wait_until(listener, POLLIN);
    core::Endpoint remote;
    const int b = accept_from(listener, remote);
    close_socket(listener);
    REQUIRE(a >= 0);
    REQUIRE(b >= 0);
    return {a, b};
}

struct Handshake {
    bool opened = false;
    std::string at_dialler, at_acceptor;
};

Handshake shake_hands(const std::shared_ptr<const tls::Context>& dialler, tls::Protocol protocol,
                      const std::shared_ptr<const tls::Context>& acceptor) {
    const auto [a, b] = connected_pair();
    const auto from = TlsStream::dialled(a, dialler, protocol);
    const auto to = TlsStream::accepted(b, acceptor);
    Handshake result;
    result.opened = finish_both(*from, *to, result.at_dialler, result.at_acceptor);
    return result;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a certificate names what it was issued for, and survives its text form") {
    const TlsRun run;
    tls::CertificateName name = TlsRun::peer_name(7);
    name.group = 3;
    const tls::Credentials made = run.credentials(name);
    std::string error;
    const auto again = tls::certificate_from_pem(tls::to_pem(*made.certificate), error);
    REQUIRE(again != nullptr);
    const auto found = tls::name_of(*again);
    REQUIRE(found);
    CHECK_FALSE(found->is_master);
    CHECK(found->peer == test_uuid(7));
    CHECK(found->name == "peer-7");
    CHECK(found->invitation == "0badcafe");
    CHECK(found->group == std::optional<core::GroupId>(3));
    CHECK(tls::name_of(*run.credentials({true, {}, "master", "", {}}).certificate)->is_master);
    CHECK_FALSE(tls::name_of(*made.authority));
}

TEST_CASE("a request for a certificate must be signed by its key, and the key be of the one kind") {
    std::string error;
    const tls::KeyPtr key = tls::make_key(error);
    const std::string request = tls::make_request(*key, error);
    REQUIRE(tls::key_of_request(request, error) != nullptr);
    for (std::size_t i = 0; i < request.size(); i += 7) {
        std::string changed = request;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        CHECK(tls::key_of_request(changed, error) == nullptr);
        CHECK(tls::key_of_request(request.substr(0, i), error) == nullptr);
    }
    const tls::KeyPtr other(EVP_RSA_gen(2048));
    REQUIRE(other != nullptr);
    CHECK(tls::key_of_request(tls::make_request(*other, error), error) == nullptr);
    CHECK(contains(error, "P-256"));
}

TEST_CASE("an invitation is read as it was written; anything else is malformed") {
    tls::Invitation made;
    made.master = "[fd00::1]:48148";
    made.authority.fill(0xAB);
    made.id = "01234567";
    made.secret.fill(0xCD);
    const std::string text = tls::to_text(made);
    tls::Invitation read;
    std::string why;
    REQUIRE(tls::parse_invitation(text, read, why));
    CHECK(read.master == made.master);
    CHECK(read.authority == made.authority);
    CHECK(read.id == made.id);
    CHECK(read.secret == made.secret);
    for (const std::string& bad : {std::string(), text.substr(1), text.substr(0, text.size() - 1), text + "/",
                                   text + "0", std::string(10'000, '/'), "x" + text}) {
        CHECK_FALSE(tls::parse_invitation(bad, read, why));
        CHECK(contains(why, "malformed invitation"));
    }
}

TEST_CASE("an invitation gives one certificate, or as many as it has uses, each for another peer") {
    Office office;
    const auto once = office.invite();
    const proto::EnrolReply first = office.use(once);
    REQUIRE(first.error() == proto::ENROL_OK);
    CHECK(office.use(once).error() == proto::ENROL_SPENT);
    Authority::Wish wish;
    wish.name = "rack";
    wish.uses = 2;
    wish.group = 5;
    const auto twice = office.invite(wish);
    const auto a = Office::name_in(office.use(twice)), b = Office::name_in(office.use(twice));
    CHECK(a.peer != b.peer);
    CHECK(a.name == "rack#1");
    CHECK(b.name == "rack#2");
    CHECK(b.group == std::optional<core::GroupId>(5));
    CHECK(office.use(twice).error() == proto::ENROL_SPENT);
    std::string text, error;
    CHECK_FALSE(office.authority->invite(wish, text, error));
    CHECK(contains(error, "used already"));
}

TEST_CASE("unknown, expired and withdrawn invitations are refused by name, also after a restart") {
    Office office;
    tls::Invitation unknown = office.invite();
    unknown.secret[0] ^= 1;
    const auto spent = office.invite(), expires = office.invite(), withdrawn = office.invite();
    REQUIRE(office.use(spent).error() == proto::ENROL_OK);
    std::string error;
    REQUIRE(office.authority->withdraw(withdrawn.id, error));
    for (const bool again : {false, true}) {
        if (again) office.restart();
        CHECK(office.use(unknown).error() == proto::ENROL_UNKNOWN);
        CHECK(office.use(spent).error() == proto::ENROL_SPENT);
        CHECK(office.use(withdrawn).error() == proto::ENROL_WITHDRAWN);
    }
    office.now += 3601;
    CHECK(office.use(expires).error() == proto::ENROL_EXPIRED);
    office.now += 8 * 86'400;
    CHECK(office.use(expires).error() == proto::ENROL_UNKNOWN);
    CHECK_FALSE(office.authority->withdraw("00000000", error));
}

TEST_CASE("a revoked name is not admitted, renews nothing, and stays revoked after a restart") {
    Office office;
    Authority::Wish wish;
    wish.name = "rack";
    wish.uses = 3;
    const auto invitation = office.invite(wish);
    const auto one = Office::name_in(office.use(invitation)), two = Office::name_in(office.use(invitation));
    std::string why, error;
    std::vector<core::Uuid> peers;
    REQUIRE(office.authority->revoke("rack#1", peers, error));
    CHECK(peers == std::vector<core::Uuid>{one.peer});
    for (const bool again : {false, true}) {
        if (again) office.restart();
        CHECK_FALSE(office.authority->admits(one, why));
        CHECK(contains(why, "revoked"));
        CHECK(office.authority->admits(two, why));
        proto::EnrolRequest request;
        const tls::KeyPtr key = tls::make_key(error);
        request.set_request(tls::make_request(*key, error));
        CHECK(office.authority->enrol(request, one).error() == proto::ENROL_REVOKED);
        const auto renewed = office.authority->enrol(request, two);
        REQUIRE(renewed.error() == proto::ENROL_OK);
        CHECK(Office::name_in(renewed).peer != two.peer);
        CHECK(Office::name_in(renewed).name == "rack#2");
    }
    peers.clear();
    REQUIRE(office.authority->revoke("rack", peers, error));
    CHECK_FALSE(office.authority->admits(two, why));
    CHECK(office.use(invitation).error() == proto::ENROL_REVOKED);
    CHECK_FALSE(office.authority->revoke("nobody", peers, error));
}

TEST_CASE("a master whose clock was set back has a certificate that is valid by the new time") {
    Office office;
    const auto ahead = office.authority->context();
    office.now -= 60;
    CHECK(office.authority->context() == ahead);
    office.now -= 6 * 3600;
    const auto behind = office.authority->context();
    CHECK(behind != ahead);
    CHECK(office.authority->context() == behind);
    std::string error;
    const auto newcomer = tls::Context::make_newcomer(office.authority->hash(), office.now, error);
    CHECK_FALSE(shake_hands(newcomer, tls::Protocol::enrolment, ahead).opened);
    const Handshake result = shake_hands(newcomer, tls::Protocol::enrolment, behind);
    INFO(result.at_dialler);
    CHECK(result.opened);
}

TEST_CASE("key and tables are private; a damaged table is named and not guessed") {
    Office office;
    office.invite();
    const std::string folder = office.folder.path() + "/security";
    struct stat info {};
    for (const char* file : {"/authority.key", "/state"}) {
        REQUIRE(::stat((folder + file).c_str(), &info) == 0);
        CHECK((info.st_mode & 0777) == 0600);
    }
    REQUIRE(::stat(folder.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    std::ostringstream text;
    text << std::ifstream(folder + "/state").rdbuf();
    const std::string whole = text.str();
    for (std::size_t length = 0; length + 1 < whole.size(); length += 11) {
        std::ofstream(folder + "/state", std::ios::trunc) << whole.substr(0, length);
        std::string error;
        CHECK(Authority::open(office.folder.path(), {}, error) == nullptr);
        CHECK(contains(error, "damaged"));
    }
    std::ofstream(folder + "/state", std::ios::trunc) << whole;
    std::string error;
    CHECK(Authority::open(office.folder.path(), {true, 3600, {}}, error) == nullptr);
    CHECK(contains(error, "--data-plaintext"));
}

TEST_CASE("handshakes of one run succeed; those of another run, an old certificate or a wrong clock fail with a name") {
    const TlsRun run, other;
    CHECK(shake_hands(run.peer(1), tls::Protocol::link, run.peer(2)).opened);
    CHECK(shake_hands(run.peer(1), tls::Protocol::link, run.master()).opened);
    const Handshake foreign = shake_hands(other.peer(1), tls::Protocol::link, run.peer(2));
    CHECK_FALSE(foreign.opened);
    CHECK(contains(foreign.at_dialler, "authority of another run"));
    const Handshake old = shake_hands(run.peer(1), tls::Protocol::link, run.peer(2, 7200));
    CHECK_FALSE(old.opened);
    CHECK(contains(old.at_dialler, "wrong clock"));
    CHECK(contains(old.at_dialler, "expired"));
    const Handshake early = shake_hands(run.peer(1), tls::Protocol::link, run.peer(2, -7200));
    CHECK(contains(early.at_dialler, "not valid yet"));
    // Peers take no requests for certificates.
    CHECK_FALSE(shake_hands(run.peer(1), tls::Protocol::enrolment, run.peer(2)).opened);
}

TEST_CASE("a newcomer without a certificate gets only as far as the enrolment, and checks the authority first") {
    const TlsRun run, other;
    std::string error;
    const std::time_t now = std::time(nullptr);
    const auto newcomer = tls::Context::make_newcomer(run.hash(), std::nullopt, error);
    CHECK(shake_hands(newcomer, tls::Protocol::enrolment, run.master()).opened);
    CHECK(contains(shake_hands(newcomer, tls::Protocol::enrolment, other.master()).at_dialler,
                   "authority of another run"));
    const auto link = shake_hands(newcomer, tls::Protocol::link, run.master());
    CHECK_FALSE(link.opened);
    CHECK(contains(link.at_acceptor, "certificate"));
    for (const std::time_t day : {-86'400, 86'400}) {
        const auto wrong = tls::Context::make_newcomer(run.hash(), now + day, error);
        CHECK(contains(shake_hands(wrong, tls::Protocol::enrolment, run.master()).at_dialler, "wrong clock"));
    }
}

TEST_CASE("two dials that meet become one connection, in which each end knows the other one") {
    const TlsRun run;
    using Meeting = TlsStream::Meeting;
    const Meeting first = GENERATE(Meeting::leads, Meeting::yields);
    const bool first_begins = GENERATE(true, false);  // before the other one has said anything
    const int both_begin = GENERATE(0, 1);
    const UnixPair sockets;
    const auto a = TlsStream::dialled(sockets.a, run.peer(1), tls::Protocol::link, first);
    const auto b = TlsStream::dialled(sockets.b, run.peer(2), tls::Protocol::link,
                                      first == Meeting::leads ? Meeting::yields : Meeting::leads);
    std::string at_a, at_b;
    // Each end may get the message of the other one before it has sent its own.
    TlsStream& begins = first_begins ? *a : *b;
    REQUIRE(begins.open(at_a) == Stream::Opening::waiting);
    if (both_begin != 0) {
        TlsStream& other = first_begins ? *b : *a;
        REQUIRE(other.open(at_b) == Stream::Opening::waiting);
    }
    const bool opened = finish_both(*a, *b, at_a, at_b);
    INFO(at_a << ", " << at_b);
    REQUIRE(opened);
    CHECK(a->other_end()->peer == test_uuid(2));
    CHECK(b->other_end()->peer == test_uuid(1));
    CHECK(a->protocol() == tls::Protocol::link);
    CHECK(b->protocol() == tls::Protocol::link);
    const iovec hello{const_cast<char*>("hello"), 5};
    char place[5] = {};
    const iovec space{place, sizeof place};
    for (const auto& [from, to] : {std::pair(a.get(), b.get()), std::pair(b.get(), a.get())}) {
        REQUIRE(from->send({&hello, 1}, false) == 5);
        REQUIRE(from->send_unsent());
        wait_until(to->descriptor(), POLLIN);
        while (to->receive({&space, 1}) < 0) REQUIRE(errno == EAGAIN);
        CHECK(std::string(place, sizeof place) == "hello");
    }
}

TEST_CASE("a dial that may meet another one ends when the other end closes, and waits without work for the rest") {
    const TlsRun run;
    using Meeting = TlsStream::Meeting;
    const Meeting meeting = GENERATE(Meeting::never, Meeting::leads, Meeting::yields);
    // Nothing; parts of the head of a record; and, of a message that a client would send, the head and some bytes.
    const std::size_t bytes = GENERATE(0, 1, 5, 6, 100, 4096, 5000);
    const bool in_two_parts = GENERATE(false, true);
    const auto [a, b] = connected_pair();
    const auto dialled = TlsStream::dialled(a, run.peer(1), tls::Protocol::link, meeting);
    std::string reason;
    REQUIRE(dialled->open(reason) == Stream::Opening::waiting);
    std::vector<std::uint8_t> said(bytes + 1, 0);
    const std::uint8_t head[] = {22, 3, 1, 0x3f, 0xff, 1};
    std::copy_n(head, std::min(bytes, sizeof head), said.begin());
    if (in_two_parts) {
        REQUIRE(::send(b, said.data(), bytes / 2, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes / 2));
        if (bytes / 2 > 0) wait_until(a, POLLIN);
        const Stream::Opening opening = dialled->open(reason);
        if (opening == Stream::Opening::failed) {  // a client needs to see no more of it
            ::close(b);
            return;
        }
        char byte = 0;
        CHECK(::recv(a, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0);  // else the loop would be woken again and again
    }
    const std::size_t sent = in_two_parts ? bytes / 2 : 0;
    REQUIRE(::send(b, said.data() + sent, bytes - sent, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes - sent));
    REQUIRE(::shutdown(b, SHUT_WR) == 0);
    Stream::Opening opening = Stream::Opening::waiting;
    for (int i = 0; i < 1000 && opening == Stream::Opening::waiting; ++i) {
        wait_until(a, POLLIN);
        opening = dialled->open(reason);
    }
    CHECK(opening == Stream::Opening::failed);
    CHECK(reason != "");
    ::close(b);
}

TEST_CASE("TLS 1.2 is refused at both ends") {
    const TlsRun run;
    tls::ContextPtr old(SSL_CTX_new(TLS_method()));
    REQUIRE(SSL_CTX_set_max_proto_version(old.get(), TLS1_2_VERSION) == 1);
    const auto [a, b] = connected_pair();
    tls::SslPtr client(SSL_new(old.get()));
    SSL_set_fd(client.get(), a);
    SSL_set_connect_state(client.get());
    const auto server = TlsStream::accepted(b, run.master());
    std::string reason;
    Stream::Opening opened = Stream::Opening::waiting;
    for (int i = 0; i < 1000 && opened == Stream::Opening::waiting; ++i) {
        SSL_do_handshake(client.get());
        opened = server->open(reason);
    }
    CHECK(opened == Stream::Opening::failed);
    CHECK(contains(reason, "unsupported protocol"));
    client.reset();
    close_socket(a);
}

TEST_CASE("plaintext at a TLS listener is known by its first byte") {
    const TlsRun run;
    const auto [a, b] = connected_pair();
    REQUIRE(::send(a, "PCCL or anything", 16, MSG_NOSIGNAL) == 16);
    const auto server = TlsStream::accepted(b, run.master());
    std::string reason;
    CHECK(finish_opening(*server, reason) == Stream::Opening::failed);
    CHECK(server->is_plaintext());
    close_socket(a);
}

// Whatever strangers send first, the stream fails or waits; it never opens, and never reads outside of its memory.
TEST_CASE("mutated handshakes never open a stream") {
    const TlsRun run;
    const auto master = run.master();
    // The real first message of a newcomer, as the seed of the mutations.
    std::vector<std::uint8_t> hello(4096);
    {
        std::string error, reason;
        const auto [a, b] = connected_pair();
        const auto client = TlsStream::dialled(a, tls::Context::make_newcomer(run.hash(), std::nullopt, error),
                                               tls::Protocol::enrolment);
        while (client->opening_wait() == Stream::Wait::writable) {
            wait_until(a, POLLOUT);
            client->open(reason);
        }
        wait_until(b, POLLIN);
        const ssize_t got = ::recv(b, hello.data(), hello.size(), 0);
        REQUIRE(got > 100);
        hello.resize(static_cast<std::size_t>(got));
        close_socket(b);
    }
    core::Random random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint8_t> bytes = hello;
        const std::uint64_t changes = 1 + random.below(8);
        for (std::uint64_t i = 0; i < changes; ++i)
            bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.next());
        if (random.below(4) == 0) bytes.resize(1 + random.below(bytes.size()));
        if (random.below(4) == 0) bytes.insert(bytes.end(), hello.begin(), hello.end());
        int both[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
        REQUIRE(::send(both[0], bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
        ::shutdown(both[0], SHUT_WR);
        const auto server = TlsStream::accepted(both[1], master);
        std::string reason;
        Stream::Opening opened = Stream::Opening::waiting;
        for (int i = 0; i < 8 && opened == Stream::Opening::waiting; ++i) opened = server->open(reason);
        INFO("round " << round);
        REQUIRE(opened == Stream::Opening::failed);
        ::close(both[0]);
    }
}

TEST_CASE("a stream whose bytes are changed on the way fails, and gives no changed byte") {
    const TlsRun run;
    for (std::uint64_t round = 0; round < 40; ++round) {
        // a talks to x, y talks to b; the test carries the bytes between x and y.
        const auto [a, x] = connected_pair();
        const auto [y, b] = connected_pair();
        const auto from = TlsStream::dialled(a, run.peer(1), tls::Protocol::link);
        const auto to = TlsStream::accepted(b, run.peer(2));
        core::Random random(round);
        const std::uint64_t damaged = 4000 + random.below(30'000);  // behind the handshake
        std::uint64_t carried = 0;
        const auto carry = [&](int in, int out, bool counts) {
            std::uint8_t piece[4096];
            const ssize_t got = ::recv(in, piece, sizeof piece, 0);
            for (ssize_t i = 0; counts && i < got; ++i) {
                if (carried++ == damaged) piece[i] ^= 0x10;
            }
            if (got > 0) REQUIRE(::send(out, piece, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got);
        };
        std::string reason;
        auto at_from = Stream::Opening::waiting, at_to = Stream::Opening::waiting;
        while (at_from != Stream::Opening::open || at_to != Stream::Opening::open) {
            if (at_from == Stream::Opening::waiting) at_from = from->open(reason);
            if (at_to == Stream::Opening::waiting) at_to = to->open(reason);
            INFO(reason);
            REQUIRE((at_from != Stream::Opening::failed && at_to != Stream::Opening::failed));
            carry(x, y, true);
            carry(y, x, false);
        }
        const std::string sent(40'000, 'm');
        std::size_t done = 0;
        std::string received;
        std::vector<std::uint8_t> memory(50'000);
        ssize_t result = -1;
        for (int i = 0; i < 10'000; ++i) {
            if (done < sent.size()) {
                const iovec part{const_cast<char*>(sent.data()) + done, sent.size() - done};
                const ssize_t taken = from->send({&part, 1}, false);
                if (taken > 0) done += static_cast<std::size_t>(taken);
            }
            from->send_unsent();
            carry(x, y, true);
            const iovec part{memory.data(), memory.size()};
            result = to->receive({&part, 1});
            if (result > 0) received.append(memory.begin(), memory.begin() + result);
            if (result < 0 && errno != EAGAIN) break;
            pollfd more{b, POLLIN, 0};  // the kernel may hold small pieces back for a while
            if (result < 0) ::poll(&more, 1, 100);
            if (result < 0) errno = EAGAIN;
        }
        CHECK(result == -1);
        CHECK(errno != EAGAIN);
        CHECK(received.size() < sent.size());
        CHECK(received == sent.substr(0, received.size()));
        for (const int one : {x, y}) close_socket(one);
    }
}

TEST_CASE("who sends messages of TLS without end, and no data, loses the connection") {
    const TlsRun run;
    const auto [a, b] = connected_pair();
    const auto context = run.peer(1);
    const tls::SslPtr enemy = context->connection(true, tls::Protocol::link);
    REQUIRE(SSL_set_fd(enemy.get(), a) == 1);
    const auto stream = TlsStream::accepted(b, run.peer(2));
    std::string reason;
    auto state = Stream::Opening::waiting;
    bool shaken = false;
    for (int i = 0; i < 1000 && !(shaken && state != Stream::Opening::waiting); ++i) {
        if (!shaken) shaken = SSL_do_handshake(enemy.get()) == 1;
        if (state == Stream::Opening::waiting) state = stream->open(reason);
        pollfd both[] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
        ::poll(both, 2, 10);
    }
    INFO(reason);
    REQUIRE(state == Stream::Opening::open);
    const bool wants_answers = GENERATE(true, false);
    std::uint8_t place[64];
    const iovec part{place, sizeof place};
    bool refused = false;
    for (int i = 0; i < 100 && !refused; ++i) {
        SSL_key_update(enemy.get(), wants_answers ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
        REQUIRE(SSL_do_handshake(enemy.get()) == 1);
        wait_until(b, POLLIN);
        errno = 0;
        REQUIRE(stream->receive({&part, 1}) == -1);
        refused = errno == EPROTO;
    }
    CHECK(refused);
    errno = EPROTO;
    CHECK(contains(stream->error_text(), "changes its keys"));
    close_socket(a);
}

TEST_CASE("who has shown no certificate gets less memory by long records than a peer") {
    const TlsRun run;
    std::string error;
    const bool known = GENERATE(false, true);
    const auto dialler = known ? run.peer(1) : tls::Context::make_newcomer(run.hash(), std::nullopt, error);
    const auto [a, b] = connected_pair();
    const auto from = TlsStream::dialled(a, dialler, known ? tls::Protocol::link : tls::Protocol::enrolment);
    const auto to = TlsStream::accepted(b, run.master());
    std::string at_dialler, at_acceptor;
    const bool opened = finish_both(*from, *to, at_dialler, at_acceptor);
    INFO(at_dialler << at_acceptor);
    REQUIRE(opened);
    constexpr int record = 16 << 10, bytes = 7 * record / 2;
    std::vector<std::uint8_t> data(bytes);
    const iovec all{data.data(), data.size()};
    REQUIRE(from->send({&all, 1}, false) == bytes);
    REQUIRE_FALSE(from->has_unsent());
    const auto readable_from = [socket = b](int least) {
        REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0);
    };
    const auto in_socket = [socket = b] {
        int waiting = 0;
        REQUIRE(::ioctl(socket, FIONREAD, &waiting) == 0);
        return waiting;
    };
    readable_from(bytes);
    wait_until(b, POLLIN);
    readable_from(1);
    const int before = in_socket();
    std::uint8_t place[64];
    const iovec part{place, sizeof place};
    REQUIRE(to->receive({&part, 1}) == sizeof place);
    const int ahead = before - in_socket();
    CHECK((known ? ahead > 3 * record : ahead < 2 * record));
}
