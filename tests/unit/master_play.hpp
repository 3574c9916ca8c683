// A MasterMachine whose members a test plays, message by message.
#pragma once

#include "core/master_machine.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pccl::core::play {

inline Uuid name(std::uint8_t number) {
    Uuid uuid;
    uuid.bytes.fill(number);
    return uuid;
}

// A member that the test plays, with what it received last from the master.
struct Member {
    Uuid uuid;
    LinkId link = 0;
    proto::Welcome welcome{};
    std::uint64_t seen = 0;
    std::uint64_t generation = 0;
    Serial serial = 0;
    std::vector<proto::Answer> answers{};
    bool refused = false;
    std::string refusal{};  // its cause
    bool acknowledges = true;
    std::size_t most_bytes = 0;  // of the longest message that it received
    bool closed = false;         // the master closed its link
    proto::DialPlan plan{};
    std::uint32_t plans = 0;  // that it received
    std::string notices{};
    std::vector<std::uint64_t> former_tokens{};
    std::uint64_t heard = 0;  // messages received on its link
    // As the driver of a secure run has authenticated it; nil: it has not.
    Uuid identity{};
    std::optional<GroupId> allowed{};    // the only group that it may join
    std::vector<std::string> revoked{};  // peers whose certificates were revoked, as the master told it
};

// A master whose disk is fast: each record is durable before anything else happens, unless the test holds the disk.
class World {
public:
    explicit World(const Timeouts& timeouts = {}, const Limits& limits = {}) : limits_(limits), timeouts_(timeouts) {
        start();
    }
    explicit World(const Limits& limits) : World(Timeouts{}, limits) {}

    // Like a process that was killed and is started again on its journal.
    void restart() {
        for (auto& [link, member] : by_link_) member->link = 0;
        by_link_.clear();
        start();
    }
    // The same, without the last records.
    void restart_without(std::size_t records) {
        journal_.resize(journal_.size() - records);
        restart();
    }
    void advance(Duration time) {
        now_ += time;
        handle(Timer{});
    }
    // The same, but handles only the timers that the machine asked for.
    void pass(Duration time) {
        const Instant end = now_ + time;
        while (machine_->next_deadline() <= end) {
            now_ = machine_->next_deadline();
            handle(Timer{});
        }
        now_ = end;
    }
    // The same, while the members that are connected are heard every second.
    void pass(Duration time, const std::vector<Member*>& members, bool works = false) {
        for (const Instant end = now_ + time; now_ < end;) {
            pass(second);
            for (Member* member : members) {
                proto::PeerMessage beat;
                beat.set_heartbeat(member->seen);
                beat.set_heard(member->heard);
                beat.set_works(works);
                if (member->link != 0) tell(*member, beat);
            }
        }
    }
    // Opens a connection on which nothing was sent yet.
    void dial(Member& member, std::uint8_t first_byte = 10) {
        member.link = next_link_ += 2;
        member.heard = 0;
        by_link_[member.link] = &member;
        Endpoint remote;
        remote.address[0] = first_byte;
        remote.port = 1;
        handle(LinkAccepted{member.link, remote, member.identity, member.allowed});
    }
    template <class Change>
    void say_hello(Member& member, const Change& change, std::uint8_t first_byte = 10) {
        dial(member, first_byte);
        hello(member, change);
    }
    template <class Change>
    void hello(Member& member, const Change& change) {
        proto::PeerMessage message;
        auto& hello = *message.mutable_hello();
        hello.set_protocol_version(wire::protocol_version);
        hello.set_uuid(to_bytes(member.uuid));
        hello.set_token(member.welcome.token() != 0 ? member.welcome.token() : 77);
        for (const std::uint64_t token : member.former_tokens) hello.add_former_tokens(token);
        if (member.seen > 0) hello.set_run_id(member.welcome.run_id());
        hello.set_generation(++member.generation);
        hello.mutable_advertised()->set_port(2);
        hello.set_concurrent_ops(4);
        hello.set_seen(member.seen);
        if (!member.answers.empty()) hello.set_seen_chain(member.answers.back().chain());
        change(hello);
        tell(member, message);
    }
    void say_hello(Member& member) {
        say_hello(member, [](const proto::Hello&) {});
    }
    void revoke(const Uuid& peer) { handle(PeerRevoked{peer}); }
    // The member sent bytes that are no frame.
    void garbage(Member& member) { handle(FrameRefused{member.link, wire::WireError::bad_magic, 0}); }
    // The network closes the member's connection.
    void reset(Member& member) {
        const LinkId link = member.link;
        by_link_.erase(link);
        member.link = 0;
        handle(LinkClosed{link, "reset"});
    }
    // While it is held, records are issued but do not become durable.
    void hold_disk(bool held) {
        disk_held_ = held;
        if (!held && issued_ != 0) handle(RecordPersisted{issued_});
    }
    void tell(Member& member, const proto::PeerMessage& message) {
        const std::string body = encode(message);
        handle(ControlArrived{member.link, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}});
    }
    void vote(Member& member, proto::Vote vote) {
        vote.set_serial(++member.serial);
        vote.set_seen(member.acknowledges ? member.seen : 0);
        proto::PeerMessage message;
        *message.mutable_vote() = vote;
        tell(member, message);
    }
    void report_edges(Member& member, const Member& other, bool up = true) {
        for (const bool outgoing : {false, true}) {
            proto::PeerMessage message;
            message.mutable_edge()->set_peer(to_bytes(other.uuid));
            message.mutable_edge()->set_outgoing(outgoing);
            message.mutable_edge()->set_up(up);
            tell(member, message);
        }
    }
    std::string logged;  // all log lines
    std::string halted;  // why it stopped itself
    std::size_t journal_bytes() const {
        std::size_t bytes = 0;
        for (const std::string& record : journal_) bytes += record.size();
        return bytes;
    }
    MasterStatus status() const { return machine_->status(); }
    void check() const { machine_->check(); }
    // Time passes in which the master does not run.
    void stand_still(Duration time) { now_ += time; }
    Instant now() const { return now_; }
    void resumed(Member& member) {
        proto::PeerMessage message;
        message.set_resumed(true);
        tell(member, message);
    }

private:
    void start() {
        MasterConfig config;
        config.seed = ++seed_;
        config.timeouts = timeouts_;
        issued_ = 0;
        config.limits = limits_;
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
                const auto member = by_link_.find(send->link);
                if (member != by_link_.end()) receive(*member->second, send->body);
            } else if (const auto* close = std::get_if<CloseLink>(&effect)) {
                closed(close->link);
            } else if (const auto* log = std::get_if<Log>(&effect)) {
                logged += log->text + "\n";
            } else if (const auto* halt = std::get_if<Halt>(&effect)) {
                halted = to_text(halt->cause);
            }
        }
        if (durable != 0) issued_ = durable;
        if (durable != 0 && !disk_held_) handle(RecordPersisted{durable});
    }
    void closed(LinkId link) {
        const auto member = by_link_.find(link);
        if (member == by_link_.end()) return;
        member->second->closed = true;
        by_link_.erase(member);
    }
    static void receive(Member& member, const std::string& body) {
        proto::MasterMessage message;
        REQUIRE(message.ParseFromString(body));
        ++member.heard;
        member.most_bytes = std::max(member.most_bytes, body.size());
        if (message.has_welcome()) {
            const std::uint64_t former = member.welcome.token();
            if (former != 0 && former != message.welcome().token())
                member.former_tokens.insert(member.former_tokens.begin(), former);
            member.welcome = message.welcome();
        }
        if (message.has_refusal()) member.refused = true;
        if (message.has_refusal()) member.refusal = to_text(cause_of(message.refusal().cause()));
        if (message.kind_case() == proto::MasterMessage::kRevoked) member.revoked.push_back(message.revoked());
        if (message.has_notice()) member.notices += message.notice().text() + "\n";
        if (message.has_plan()) {
            ++member.plans;
            // A plan may come in several pages.
            if (!member.plan.more()) member.plan.Clear();
            member.plan.MergeFrom(message.plan());
            member.plan.set_more(message.plan().more());
        }
        if (!message.has_answer()) return;
        member.seen = message.answer().index();
        member.answers.push_back(message.answer());
    }

    Limits limits_;
    std::unique_ptr<MasterMachine> machine_;
    std::vector<std::string> journal_;
    std::map<LinkId, Member*> by_link_;
    Timeouts timeouts_;
    bool disk_held_ = false;
    std::uint64_t issued_ = 0;  // sequence of the last record
    Instant now_ = second;
    LinkId next_link_ = 0;
    std::uint64_t seed_ = 0;
};

// A group of four members.
struct FourMembers {
    World world;
    Member one{name(1)}, two{name(2)}, three{name(3)}, four{name(4)};
    std::vector<Member*> all{&one, &two, &three, &four};

    explicit FourMembers(const Timeouts& timeouts = {}, const Limits& limits = {}) : world(timeouts, limits) {
        for (Member* member : all) world.say_hello(*member);
        join_edges();
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(one, update);
        for (const Member* member : all) REQUIRE(member->seen > 0);
        join_edges();
    }
    FourMembers(const FourMembers&) = delete;  // `all` names its members
    // Each member reports all edges that its plan names.
    void join_edges() {
        for (Member* member : all) {
            for (const Member* other : all) {
                if (member != other && member->link != 0 && !member->closed && !other->closed)
                    world.report_edges(*member, *other);
            }
        }
    }
};

}  // namespace pccl::core::play
