// A peer machine whose master, driver and only other peer are played by the test.
#pragma once

#include "core/base/link_pass.hpp"
#include "core/peer_machine.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core::play {

inline Endpoint at(std::uint8_t last, std::uint16_t port) {
    Endpoint endpoint;
    endpoint.address = {10, 0, 0, last};
    endpoint.port = port;
    return endpoint;
}

inline Secret other_key() {
    Secret secret;
    secret.fill(2);
    return secret;
}

// The first answer of the master: a run of two, in one group.
inline proto::MasterMessage admitted_as_second() {
    proto::MasterMessage message;
    message.mutable_answer()->set_index(1);
    message.mutable_answer()->set_topology(true);
    auto& view = *message.mutable_answer()->mutable_view();
    view.set_epoch(1);
    view.set_global_world(2);
    view.set_group_world(2);
    view.set_groups(1);
    view.set_largest_group(2);
    return message;
}

// The master has welcomed it.
class Peer {
public:
    static constexpr std::uint16_t listen_port = 48'149;

    Peer() : machine_(config()) {
        handle(Command{CommandConnect{1}});
        REQUIRE(opens.size() == 1);
        master_ = opens[0].link;
        handle(LinkOpened{master_, at(1, listen_port)});
        proto::MasterMessage message;
        message.mutable_welcome()->set_protocol_version(wire::protocol_version);
        message.mutable_welcome()->set_run_id(to_bytes(name(7)));
        message.mutable_welcome()->set_link_key(to_bytes(key()));
        say(master_, message);
    }
    static Secret key() {
        Secret secret;
        secret.fill(1);
        return secret;
    }
    const Uuid& uuid() const { return machine_.uuid(); }
    PeerStatistics statistics() const { return machine_.statistics(); }
    PeerMachine& machine() { return machine_; }
    void plan(const proto::DialPlan& plan) {
        proto::MasterMessage message;
        *message.mutable_plan() = plan;
        opens.clear();
        say(message);
    }
    // Of the master.
    void say(const proto::MasterMessage& message) { say(master_, message); }
    void call(const Command& command) { handle(command); }
    // The master's answer to the last vote: an operation begins, and this peer is the first of so many in the ring.
    proto::MasterMessage begun(OpId op, std::uint32_t world, const Uuid& predecessor) const {
        proto::MasterMessage message;
        message.mutable_answer()->set_index(2);
        message.mutable_answer()->set_serial(votes.at(0).serial());
        auto& start = *message.mutable_answer()->mutable_start();
        start.set_op(op);
        start.set_world(world);
        start.set_position(0);
        start.set_predecessor(to_bytes(predecessor));
        start.set_successor(to_bytes(name(9)));
        return message;
    }
    // The other peer takes a connection that this one dialled. Its answer comes after `round_trip`.
    void welcomed(LinkId link, Duration round_trip = millisecond) {
        handle(LinkOpened{link});
        proto::LinkMessage welcome;
        welcome.mutable_welcome()->set_from(to_bytes(name(9)));
        welcome.mutable_welcome()->set_pass(to_bytes(link_pass(other_key(), uuid()).welcome));
        say(link, welcome, round_trip);
    }
    // A hello of the other peer, or of `from`.
    proto::LinkMessage hello(const std::string& pass, bool offer, const Uuid& from = name(9)) const {
        proto::LinkMessage message;
        auto& hello = *message.mutable_hello();
        hello.set_protocol_version(wire::protocol_version);
        hello.set_run_id(to_bytes(name(7)));
        hello.set_from(to_bytes(from));
        hello.set_to(to_bytes(uuid()));
        hello.set_pass(pass);
        hello.set_offer(offer);
        return message;
    }
    void say(LinkId link, const google::protobuf::MessageLite& message, Duration later = millisecond) {
        const std::string body = encode(message);
        handle(ControlArrived{link, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}}, later);
    }
    void handle(const Event& event, Duration later = millisecond) {
        Effects effects;
        said.clear();
        votes.clear();
        sends.clear();
        computes.clear();
        flows.clear();
        receives.clear();
        discards.clear();
        cancels.clear();
        allocations.clear();
        freed.clear();
        REQUIRE(machine_.handle(now_ += later, event, effects) == Status::ok);
        machine_.check();
        for (const Effect& effect : effects) {
            if (const auto* open = std::get_if<OpenLink>(&effect)) opens.push_back(*open);
            if (const auto* close = std::get_if<CloseLink>(&effect)) closed.push_back(close->link);
            if (const auto* payload = std::get_if<SendPayload>(&effect)) sends.push_back(*payload);
            if (const auto* compute = std::get_if<Compute>(&effect)) computes.push_back(*compute);
            if (const auto* flow = std::get_if<SendFlow>(&effect)) flows.push_back(*flow);
            if (const auto* receive = std::get_if<ReceivePayload>(&effect)) receives.push_back(*receive);
            if (const auto* discard = std::get_if<DiscardPayload>(&effect)) discards.push_back(discard->link);
            if (const auto* cancel = std::get_if<CancelSend>(&effect)) cancels.push_back(cancel->link);
            if (const auto* memory = std::get_if<AllocateBuffer>(&effect)) allocations.push_back(memory->buffer);
            if (const auto* memory = std::get_if<FreeBuffer>(&effect)) freed.push_back(memory->buffer);
            const auto* send = std::get_if<SendControl>(&effect);
            if (send == nullptr) continue;
            if (send->link == master_) {
                proto::PeerMessage message;
                REQUIRE(message.ParseFromString(send->body));
                if (message.has_edge()) edges.push_back(message.edge());
                if (message.has_vote()) votes.push_back(message.vote());
                continue;
            }
            REQUIRE(said[send->link].ParseFromString(send->body));
        }
    }
    std::vector<OpenLink> opens;
    std::vector<LinkId> closed;
    std::map<LinkId, proto::LinkMessage> said;  // in the last event, to the other peer
    std::vector<proto::EdgeReport> edges;
    // In the last event:
    std::vector<proto::Vote> votes;
    std::vector<SendPayload> sends;
    std::vector<Compute> computes;
    std::vector<SendFlow> flows;
    std::vector<ReceivePayload> receives;
    std::vector<LinkId> discards, cancels;
    std::vector<BufferId> allocations, freed;

private:
    static PeerConfig config() {
        PeerConfig config;
        config.seed = 3;
        config.listen_port = listen_port;
        config.stripes = 2;
        return config;
    }
    PeerMachine machine_;
    Instant now_ = second;
    LinkId master_ = 0;
};

inline proto::DialTarget entry(std::uint16_t source_port, const Secret& key_of_other, const Uuid& dialler) {
    proto::DialTarget target;
    target.set_peer(to_bytes(name(9)));
    write(at(9, 500), *target.mutable_address());
    const LinkPass pass = link_pass(key_of_other, dialler);
    target.set_pass_hello(to_bytes(pass.hello));
    target.set_pass_welcome(to_bytes(pass.welcome));
    target.set_single(true);
    target.set_source_port(source_port);
    return target;
}

}  // namespace pccl::core::play
