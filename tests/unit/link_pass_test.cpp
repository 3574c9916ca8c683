// A peer that dials another one must prove its name. Secrets must be as their authors define them, and a peer must
// refuse everybody without a valid pass.
#include "core/base/link_pass.hpp"
#include "core/base/secret.hpp"
#include "core/peer_machine.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

Uuid name(std::uint8_t number) {
    Uuid uuid;
    uuid.bytes.fill(number);
    return uuid;
}

// A peer that the master has welcomed. The test plays the master and the peers that dial.
class WelcomedPeer {
public:
    WelcomedPeer() : machine_(config()) {
        handle(Command{CommandConnect{1}});
        REQUIRE(opened_ != 0);
        handle(LinkOpened{opened_});
        welcome(key(1));
    }
    static Secret key(std::uint8_t number) {
        Secret secret;
        secret.fill(number);
        return secret;
    }
    void welcome(const Secret& key) {
        proto::MasterMessage message;
        message.mutable_welcome()->set_protocol_version(wire::protocol_version);
        message.mutable_welcome()->set_run_id(to_bytes(name(7)));
        message.mutable_welcome()->set_link_key(to_bytes(key));
        say(opened_, message);
    }
    // Returns the peer's answer to a dial in the name `from` with `pass`.
    proto::LinkMessage dial(const Uuid& from, const std::string& pass, std::uint64_t test = 0) {
        const LinkId link = accepted_ += 2;
        handle(LinkAccepted{link, Endpoint{}});
        proto::LinkMessage message;
        auto& hello = *message.mutable_hello();
        hello.set_protocol_version(wire::protocol_version);
        hello.set_run_id(to_bytes(name(7)));
        hello.set_from(to_bytes(from));
        hello.set_to(to_bytes(machine_.uuid()));
        hello.set_test(test);
        hello.set_pass(pass);
        answer_.Clear();
        say(link, message);
        return answer_;
    }

private:
    static PeerConfig config() {
        PeerConfig config;
        config.seed = 3;
        config.listen_port = 1;
        return config;
    }
    void say(LinkId link, const google::protobuf::MessageLite& message) {
        const std::string body = encode(message);
        handle(ControlArrived{link, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    void handle(const Event& event) {
        Effects effects;
        REQUIRE(machine_.handle(now_ += millisecond, event, effects) == Status::ok);
        for (const Effect& effect : effects) {
            if (const auto* open = std::get_if<OpenLink>(&effect)) opened_ = open->link;
            const auto* send = std::get_if<SendControl>(&effect);
            if (send != nullptr && send->link % 2 == 0) REQUIRE(answer_.ParseFromString(send->body));
        }
    }

    PeerMachine machine_;
    Instant now_ = second;
    LinkId opened_ = 0, accepted_ = 0;
    proto::LinkMessage answer_;
};

}  // namespace

TEST_CASE("secrets are derived by SipHash-2-4 with 128 bits, as its authors publish it") {
    Secret key;
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
    std::string message;
    for (char i = 0; i < 15; ++i) message += i;
    CHECK(derive(key, "") ==
          Secret{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93});
    CHECK(derive(key, message.substr(0, 1)) ==
          Secret{0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45});
}

TEST_CASE("secrets of one source differ, and so do those of two sources") {
    SecretSource one(WelcomedPeer::key(1), 5), other(WelcomedPeer::key(2), 5), third(WelcomedPeer::key(1), 6);
    const Secret first = one.next();
    CHECK(first != one.next());
    CHECK(first != other.next());
    CHECK(first != third.next());
    CHECK(one.next_token() != 0);
}

TEST_CASE("a peer takes a data link from whoever has the pass for that name, and from nobody else") {
    WelcomedPeer peer;
    const LinkPass pass = link_pass(WelcomedPeer::key(1), name(2));
    for (const std::uint64_t test : {0, 9}) {
        const proto::LinkMessage taken = peer.dial(name(2), to_bytes(pass.hello), test);
        REQUIRE(taken.has_welcome());
        CHECK(taken.welcome().pass() == to_bytes(pass.welcome));
        CHECK(peer.dial(name(2), "", test).has_refusal());
        CHECK(peer.dial(name(2), std::string(16, '\0'), test).has_refusal());
        CHECK(peer.dial(name(2), to_bytes(pass.welcome), test).has_refusal());
        CHECK(peer.dial(name(2), to_bytes(pass.hello).substr(0, 15), test).has_refusal());
        CHECK(peer.dial(name(3), to_bytes(pass.hello), test).has_refusal());  // in another name
        CHECK(peer.dial(name(2), to_bytes(link_pass(WelcomedPeer::key(2), name(2)).hello), test).has_refusal());
    }
}

TEST_CASE("passes of the key before the present one are good, older ones are not") {
    WelcomedPeer peer;
    const auto shown = [](std::uint8_t key) { return to_bytes(link_pass(WelcomedPeer::key(key), name(2)).hello); };
    peer.welcome(WelcomedPeer::key(2));
    peer.welcome(WelcomedPeer::key(2));
    CHECK(peer.dial(name(2), shown(1)).has_welcome());
    CHECK(peer.dial(name(2), shown(2)).has_welcome());
    peer.welcome(WelcomedPeer::key(3));
    CHECK(peer.dial(name(2), shown(1)).has_refusal());
    CHECK(peer.dial(name(2), shown(3)).has_welcome());
}
