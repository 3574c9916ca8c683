// A peer's end of a synchronization, played against the test: hashes, votes, outcomes, and what a loss may interrupt.
#include "core/state_sync/transfer.hpp"
#include "core/wire/convert.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <optional>
#include <string>
#include <vector>

using namespace pccl;
using namespace pccl::core;

namespace {

class Line final : public MasterLine {
public:
    State state() const override { return State::member; }
    Cause lost_cause() const override { return {}; }
    void tell(proto::PeerMessage message) override { told.push_back(std::move(message)); }
    void tell_edge(proto::EdgeReport) override {}
    Serial cast(proto::Vote& vote) override {
        vote.set_serial(votes.size() + 1);
        votes.push_back(vote);
        return vote.serial();
    }
    bool master_open() const override { return true; }
    Duration round_trip() const override { return 0; }
    std::uint32_t vote_input_bytes_max() const override { return 0; }
    std::uint32_t answer_room() const override { return 0; }
    std::vector<proto::PeerMessage> told;
    std::vector<proto::Vote> votes;
};

class NoHolders final : public HolderLinks {
public:
    void aim_at_holder(const Uuid&, const Addresses&, const LinkPass&) override {}
    void want_holder(const Uuid& peer, const Addresses&, const LinkPass&, std::uint32_t) override {
        wanted.push_back(peer);
    }
    void unwant_holder(const Uuid&) override {}
    void unwant_all_holders() override { wanted.clear(); }
    void maintain_edges() override {}
    std::vector<LinkId> open_links_to(const Uuid&) const override { return {}; }
    std::size_t stripes_to(const Uuid&) const override { return 1; }
    std::vector<Uuid> wanted;
};

class Peer : private LinkOwner, private SyncTransfer::Owner {
public:
    Peer() { turn.begin(0, effects); }
    Cause sync(std::vector<std::string> names, std::uint64_t revision = 4) {
        CommandSync command;
        command.ticket = 7;
        command.revision = revision;
        for (std::size_t i = 0; i < names.size(); ++i) {
            StateEntry entry;
            entry.name = names[i];
            entry.type = DataType::u8;
            entry.count = 10;
            entry.buffer = 2 * (i + 1);
            command.entries.push_back(entry);
        }
        return transfer.begin(command, limits.key_bytes_max);
    }
    // Answers the computes that were asked for; all hashes are this one.
    void compute(std::uint64_t hash = 1) {
        for (std::size_t i = 0; i < effects.size(); ++i) {
            const auto* asked = std::get_if<Compute>(&effects[i]);
            if (asked == nullptr || asked->id <= computed) continue;
            computed = asked->id;
            ComputeDone done;
            done.id = asked->id;
            done.hash = Hash128{hash, hash};
            const ComputeOwner owner = computes.answered(asked->id);
            if (const auto* entry = std::get_if<EntryHash>(&owner)) transfer.done(*entry, done);
            if (const auto* copy = std::get_if<StateCopy>(&owner)) transfer.done(*copy, done);
        }
    }
    void answer(bool final, Result result = Result::success, bool again = false) {
        proto::Answer message;
        for (const proto::Vote& vote : line.votes) {
            if (vote.kind() == proto::VOTE_SYNC) message.set_serial(vote.serial());
        }
        message.mutable_sync()->set_sync(9);
        message.mutable_sync()->set_final(final);
        message.mutable_sync()->set_again(again);
        message.set_result(static_cast<std::uint32_t>(result));
        if (result != Result::success)
            write(make_cause<CauseKind::text>("somebody else failed"), *message.mutable_cause());
        message.mutable_sync()->set_revision(5);
        transfer.answered(message);
    }
    std::optional<Completion> completion() const {
        for (const Effect& effect : effects) {
            if (const auto* complete = std::get_if<Complete>(&effect)) return complete->completion;
        }
        return std::nullopt;
    }

    Limits limits;
    Timeouts timeouts;
    Effects effects;
    Turn turn{limits, timeouts, 1};
    Identity who;
    Line line;
    NoHolders holders;
    Computes computes{turn};
    Memory memory{turn};
    Tickets tickets{turn};
    LinkTable links{turn, who, *this};
    SyncTransfer transfer{turn, links, computes, memory, holders, line, tickets, who, *this};
    ComputeId computed = 0;
    Cause contradiction;

private:
    void link_lost(LinkId, const Link&, const std::string&, bool) override {}
    void run_contradicts(const Cause& cause) override { contradiction = cause; }
};

}  // namespace

TEST_CASE("a call hashes its entries, votes once, and ends with the revision that was elected") {
    Peer peer;
    REQUIRE(peer.sync({"b", "a"}).empty());
    CHECK(peer.line.votes.empty());
    peer.compute();
    REQUIRE(peer.line.votes.size() == 1);
    CHECK(peer.line.votes[0].kind() == proto::VOTE_SYNC);
    CHECK(peer.line.votes[0].entries() == 2);
    CHECK(peer.line.votes[0].revision() == 4);
    peer.answer(true);
    REQUIRE(peer.completion());
    CHECK(peer.completion()->result == Result::success);
    CHECK(peer.completion()->revision == 5);
    CHECK_FALSE(peer.transfer.running());
}

TEST_CASE("the order in which entries are given does not matter, their contents do") {
    Peer one, two, other;
    one.sync({"a", "b"});
    two.sync({"b", "a"});
    other.sync({"a", "b"});
    one.compute();
    two.compute();
    other.compute(2);
    CHECK(one.line.votes[0].content().low() == two.line.votes[0].content().low());
    CHECK(one.line.votes[0].schema().low() == other.line.votes[0].schema().low());
    CHECK(one.line.votes[0].content().low() != other.line.votes[0].content().low());
}

TEST_CASE("entries that cannot be synchronized are refused before anything is hashed") {
    Peer peer;
    CHECK_FALSE(peer.sync({"a", "a"}).empty());
    CHECK_FALSE(peer.sync({std::string(2000, 'x')}).empty());
    CHECK_FALSE(peer.transfer.running());
    CHECK(peer.effects.empty());
}

TEST_CASE("a call that is lost while it hashes is not over before its computes are back") {
    Peer peer;
    peer.sync({"a"});
    peer.transfer.run_lost(make_cause<CauseKind::master_away>(1));
    CHECK_FALSE(peer.completion());
    CHECK(peer.transfer.running());
    peer.compute();
    REQUIRE(peer.completion());
    CHECK(peer.completion()->result == Result::invalid_usage);
    CHECK(peer.line.votes.empty());
}

TEST_CASE("where no holder is left the members vote once more") {
    Peer peer;
    peer.sync({"a"});
    peer.compute();
    peer.answer(false);
    peer.answer(false, Result::success, true);
    REQUIRE(peer.line.votes.back().kind() == proto::VOTE_SYNC);
    peer.answer(true);
    REQUIRE(peer.completion());
    CHECK(peer.completion()->result == Result::success);
}

TEST_CASE("a failure tells its reason and keeps the revision of the call") {
    Peer peer;
    peer.sync({"a"});
    peer.compute();
    peer.answer(false);
    peer.answer(true, Result::invalid_usage);
    REQUIRE(peer.completion());
    CHECK(peer.completion()->result == Result::invalid_usage);
    CHECK(to_text(peer.completion()->cause) == "somebody else failed");
    CHECK(peer.completion()->revision == 4);
}

TEST_CASE("a synchronization that nobody asked for here is voted against") {
    Peer peer;
    proto::Answer message;
    message.set_serial(3);
    message.mutable_sync()->set_sync(9);
    peer.transfer.answered(message);
    REQUIRE(peer.line.votes.size() == 1);
    CHECK(peer.line.votes[0].kind() == proto::VOTE_SYNC_END);
    CHECK_FALSE(peer.line.votes[0].ok());
}

TEST_CASE("the master gets a page of the keys, in order, while the vote is open") {
    Peer peer;
    peer.sync({"c", "a", "b"});
    peer.compute();
    const Serial serial = peer.line.votes[0].serial();
    peer.transfer.send_keys(serial, 1, 4096);
    REQUIRE(peer.line.told.size() == 1);
    const proto::SyncPage& page = peer.line.told[0].page();
    REQUIRE(page.entries_size() == 2);
    CHECK(page.entries(0).name() == "b");
    CHECK(page.entries(1).name() == "c");
    peer.transfer.send_keys(serial + 1, 0, 4096);
    CHECK(peer.line.told.size() == 1);
}
