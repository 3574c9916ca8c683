// A master that was restarted and waits for its members: what it decides meanwhile, and what it does not.
#include "core/master_machine.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <optional>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

Uuid name(std::uint8_t number) {
    Uuid uuid;
    uuid.bytes.fill(number);
    return uuid;
}

// One member as the test plays it: what the master told it last.
struct Member {
    Uuid uuid;
    LinkId link = 0;
    proto::Welcome welcome;
    std::uint64_t seen = 0;
    std::uint64_t generation = 0;
    Serial serial = 0;
    std::vector<proto::Answer> answers;
    bool refused = false;
};

// A master whose disk is fast: each record is durable before anything else happens.
class World {
public:
    World() { start(); }

    // As a process that was killed and is started on its journal.
    void restart() {
        for (auto& [link, member] : by_link_) member->link = 0;
        by_link_.clear();
        start();
    }
    void advance(Duration time) {
        now_ += time;
        handle(Timer{});
    }
    void say_hello(Member& member) {
        member.link = next_link_ += 2;
        by_link_[member.link] = &member;
        Endpoint remote;
        remote.address[0] = 10;
        remote.port = 1;
        handle(LinkAccepted{member.link, remote});
        proto::PeerMessage message;
        auto& hello = *message.mutable_hello();
        hello.set_protocol_version(wire::protocol_version);
        hello.set_uuid(to_bytes(member.uuid));
        hello.set_token(member.welcome.token() != 0 ? member.welcome.token() : 77);
        if (member.seen > 0) hello.set_run_id(member.welcome.run_id());
        hello.set_generation(++member.generation);
        hello.mutable_advertised()->set_port(2);
        hello.set_concurrent_ops(4);
        hello.set_seen(member.seen);
        tell(member, message);
    }
    void tell(Member& member, const proto::PeerMessage& message) {
        const std::string body = encode(message);
        handle(ControlArrived{member.link, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    void vote(Member& member, proto::Vote vote) {
        vote.set_serial(++member.serial);
        vote.set_seen(member.seen);
        proto::PeerMessage message;
        *message.mutable_vote() = vote;
        tell(member, message);
    }
    void report_edges(Member& member, const Member& other) {
        for (const bool outgoing : {false, true}) {
            proto::PeerMessage message;
            message.mutable_edge()->set_peer(to_bytes(other.uuid));
            message.mutable_edge()->set_outgoing(outgoing);
            message.mutable_edge()->set_up(true);
            tell(member, message);
        }
    }
    void resumed(Member& member) {
        proto::PeerMessage message;
        message.set_resumed(true);
        tell(member, message);
    }

private:
    void start() {
        MasterConfig config;
        config.seed = ++seed_;
        machine_ = std::make_unique<MasterMachine>(config);
        Effects effects;
        REQUIRE(machine_->start(now_, journal_, effects));
        carry_out(effects);
    }
    void handle(const Event& event) {
        Effects effects;
        REQUIRE(machine_->handle(now_, event, effects) == Status::ok);
        carry_out(effects);
    }
    void carry_out(Effects& effects) {
        std::uint64_t durable = 0;
        for (Effect& effect : effects) {
            if (auto* record = std::get_if<Persist>(&effect)) {
                journal_.push_back(record->record);
                durable = record->sequence;
            } else if (const auto* send = std::get_if<SendControl>(&effect)) {
                receive(*by_link_.at(send->link), send->body);
            }
        }
        if (durable != 0) handle(RecordPersisted{durable});
    }
    static void receive(Member& member, const std::string& body) {
        proto::MasterMessage message;
        REQUIRE(message.ParseFromString(body));
        if (message.has_welcome()) member.welcome = message.welcome();
        if (message.has_refusal()) member.refused = true;
        if (!message.has_answer()) return;
        member.seen = message.answer().index();
        member.answers.push_back(message.answer());
    }

    std::unique_ptr<MasterMachine> machine_;
    std::vector<std::string> journal_;
    std::map<LinkId, Member*> by_link_;
    Instant now_ = second;
    LinkId next_link_ = 0;
    std::uint64_t seed_ = 0;
};

struct Pair {
    World world;
    Member a{name(1), 0, {}, 0, 0, 0, {}, false}, b{name(2), 0, {}, 0, 0, 0, {}, false};
    std::uint64_t op = 0;

    // Two members, and an operation that has started.
    Pair() {
        world.say_hello(a);
        world.say_hello(b);
        world.report_edges(a, b);
        world.report_edges(b, a);
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        // Their connections are reported again as edges of the ring.
        world.report_edges(a, b);
        world.report_edges(b, a);
        for (Member* member : {&a, &b}) {
            proto::Vote start;
            start.set_kind(proto::VOTE_START);
            start.set_id(5);
            start.set_count(10);
            world.vote(*member, start);
        }
        REQUIRE(a.answers.back().has_start());
        op = a.answers.back().start().op();
        REQUIRE(op != 0);
    }
    void end(Member& member, bool ok) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_END);
        vote.set_id(op);
        vote.set_ok(ok);
        world.vote(member, vote);
    }
    static std::optional<bool> outcome(const Member& member) {
        if (member.answers.empty() || !member.answers.back().has_outcome()) return std::nullopt;
        return member.answers.back().outcome().commit();
    }
};

}  // namespace

TEST_CASE("a vote against an operation aborts it, although a member may still resume") {
    Pair run;
    run.world.restart();
    run.world.say_hello(run.a);
    run.end(run.a, false);
    run.world.resumed(run.a);
    CHECK(Pair::outcome(run.a) == false);
    // The one that comes later is told the same, whatever it votes.
    run.world.say_hello(run.b);
    run.end(run.b, true);
    run.world.resumed(run.b);
    CHECK(Pair::outcome(run.b) == false);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a vote for an operation waits for the members that may still resume") {
    Pair run;
    run.world.restart();
    run.world.say_hello(run.a);
    run.end(run.a, true);
    run.world.resumed(run.a);
    run.world.advance(second);
    CHECK(Pair::outcome(run.a) == std::nullopt);
    run.world.say_hello(run.b);
    run.end(run.b, true);
    run.world.resumed(run.b);
    CHECK(Pair::outcome(run.a) == true);
    CHECK(Pair::outcome(run.b) == true);
}
