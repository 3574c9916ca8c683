// A peer that connects again after it lost the run. Nothing of the former membership may affect the next one.
#include "tests/unit/peer_play.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

Uuid name(std::uint8_t number) {
    Uuid uuid;
    uuid.bytes.fill(number);
    return uuid;
}

// A member of a ring of two whose reduction waits for memory. The test plays the master and the driver.
class MemberWithWork {
public:
    static constexpr Ticket connected = 1, launched = 2, awaited = 3;

    MemberWithWork() : machine_(config()) {
        call(CommandConnect{connected});
        REQUIRE(dialled() == 1);
        enter_run();
        REQUIRE(results.at(connected) == Result::success);
        CommandLaunch launch;
        launch.ticket = launched;
        launch.tag = 5;
        launch.shape.count = 1'000;
        launch.send = 2;
        launch.receive = 4;
        call(launch);
        REQUIRE(results.at(launched) == Result::success);
        call(CommandAwait{awaited, 5});
        proto::MasterMessage message;
        auto& start = *message.mutable_answer()->mutable_start();
        message.mutable_answer()->set_index(2);
        message.mutable_answer()->set_serial(1);
        start.set_op(1);
        start.set_world(2);
        start.set_position(0);
        start.set_predecessor(to_bytes(name(9)));
        start.set_successor(to_bytes(name(9)));
        say(message);
        REQUIRE(!asked_.empty());
    }
    void lose_run() {
        proto::MasterMessage message;
        write(make_cause<CauseKind::forgotten>(), *message.mutable_refusal()->mutable_cause());
        say(message);
    }
    void call(const Command& command) { handle(command); }
    void memory_comes() {
        for (const BufferId buffer : std::exchange(asked_, {})) handle(BufferAllocated{buffer, true});
    }
    // Number of connections to the master that were begun so far.
    std::size_t dialled() const { return links_.size(); }

    std::map<Ticket, Result> results;

private:
    static PeerConfig config() {
        PeerConfig config;
        config.seed = 3;
        config.listen_port = 1;
        return config;
    }
    void enter_run() {
        handle(LinkOpened{links_.back()});
        proto::MasterMessage welcome;
        welcome.mutable_welcome()->set_protocol_version(wire::protocol_version);
        welcome.mutable_welcome()->set_run_id(to_bytes(name(7)));
        welcome.mutable_welcome()->set_link_key(std::string(16, 'k'));
        say(welcome);
        say(play::admitted_as_second());
    }
    void say(const proto::MasterMessage& message) {
        const std::string body = encode(message);
        handle(ControlArrived{links_.back(), {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    void handle(const Event& event) {
        Effects effects;
        REQUIRE(machine_.handle(now_ += millisecond, event, effects) == Status::ok);
        for (const Effect& effect : effects) {
            if (const auto* open = std::get_if<OpenLink>(&effect)) links_.push_back(open->link);
            if (const auto* memory = std::get_if<AllocateBuffer>(&effect)) asked_.push_back(memory->buffer);
            if (const auto* done = std::get_if<Complete>(&effect)) results[done->ticket] = done->completion.result;
        }
    }

    PeerMachine machine_;
    Instant now_ = second;
    std::vector<LinkId> links_;
    std::vector<BufferId> asked_;
};

// A member whose votes the test reads.
class Caster {
public:
    Caster() : machine_(config()) { handle(Command{CommandConnect{1}}); }
    // The master takes inputs of so many bytes in votes.
    void welcomed(std::uint32_t bytes) {
        handle(LinkOpened{link_});
        proto::MasterMessage message;
        proto::Welcome& welcome = *message.mutable_welcome();
        welcome.set_protocol_version(wire::protocol_version);
        welcome.set_run_id(to_bytes(name(7)));
        welcome.set_link_key(std::string(16, 'k'));
        welcome.set_vote_input_bytes_max(bytes);
        welcome.set_control_bytes_max(1 << 20);
        welcome.set_member(admitted_);
        say(message);
    }
    void say(const proto::MasterMessage& message) {
        admitted_ = admitted_ || message.has_answer();
        const std::string body = encode(message);
        handle(ControlArrived{link_, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    // It has dialled again when this returns.
    void loses_the_master() {
        const LinkId before = link_;
        handle(LinkClosed{before, "reset"});
        while (link_ == before) handle(Timer{});
    }
    void handle(const Event& event) {
        Effects effects;
        votes.clear();
        REQUIRE(machine_.handle(now_ += millisecond, event, effects) == Status::ok);
        machine_.check();
        for (const Effect& effect : effects) {
            if (const auto* open = std::get_if<OpenLink>(&effect)) link_ = open->link;
            const auto* send = std::get_if<SendControl>(&effect);
            proto::PeerMessage message;
            if (send != nullptr && message.ParseFromString(send->body) && message.has_vote())
                votes.push_back(message.vote());
        }
    }
    std::vector<proto::Vote> votes;  // in the last event

private:
    static PeerConfig config() {
        PeerConfig config;
        config.seed = 3;
        config.listen_port = 1;
        return config;
    }
    PeerMachine machine_;
    Instant now_ = second;
    LinkId link_ = 0;
    bool admitted_ = false;
};

}  // namespace

TEST_CASE("a peer connects again only when no operation of the run that it lost is left") {
    MemberWithWork peer;
    peer.lose_run();
    CHECK(!peer.results.contains(MemberWithWork::awaited));
    peer.call(CommandConnect{10});
    CHECK(peer.dialled() == 1);
    peer.call(CommandConnect{11});
    CHECK(peer.results.at(11) == Result::invalid_usage);
    peer.memory_comes();
    CHECK(peer.results.at(MemberWithWork::awaited) == Result::rank_connection_lost);
    CHECK(peer.dialled() == 2);
    CHECK(!peer.results.contains(10));
}

TEST_CASE("a connect that waits for earlier operations ends with the communicator") {
    MemberWithWork peer;
    peer.lose_run();
    peer.call(CommandConnect{10});
    const bool abort = GENERATE(false, true);
    peer.call(CommandLeave{12, abort});
    CHECK(peer.results.at(10) == Result::master_connection_failed);
    CHECK(!peer.results.contains(12));
    peer.memory_comes();
    CHECK(peer.results.at(12) == Result::success);
    CHECK(peer.dialled() == 1);
}

TEST_CASE("inputs that a restarted master does not take are left out of the votes that are cast again") {
    Caster peer;
    peer.welcomed(4'096);
    peer.say(play::admitted_as_second());
    // Of a broadcast of 1,000 bytes to which this peer adds nothing.
    CommandLaunch launch;
    launch.ticket = 2;
    launch.tag = 5;
    launch.shape.count = 1'000;
    launch.shape.type = DataType::u8;
    launch.receive = 4;
    launch.collective.kind = CollectiveKind::broadcast;
    launch.collective.root = name(9);
    peer.handle(Command{launch});
    REQUIRE(peer.votes.size() == 1);
    CHECK(peer.votes[0].whole());
    const std::uint32_t bytes = GENERATE(999u, 1'000u);
    peer.loses_the_master();
    peer.welcomed(bytes);
    REQUIRE(peer.votes.size() == 1);
    CHECK(peer.votes[0].whole() == (bytes == 1'000));
}
