// The recorder alone: how frames are matched, frames that nobody receives, and its bounds. Also the text of control
// messages.
#include "core/wire/convert.hpp"
#include "net-sim/describe.hpp"
#include "net-sim/recorder.hpp"

#include <catch2/catch.hpp>

using pccl::sim::Recorder;
using Fate = Recorder::Fate;
using Kind = Recorder::Kind;

namespace {

// Node 1 dials node 2: connection 5, node 1 holds side 0.
Recorder connected() {
    Recorder recorder;
    recorder.process_starts(0, 1);
    recorder.process_starts(0, 2);
    recorder.link_begins(5, 0, 1);
    recorder.link_begins(5, 1, 2);
    return recorder;
}

}  // namespace

TEST_CASE("frames arrive in the order in which they were sent, bulk frames among themselves") {
    Recorder r = connected();
    r.sent(10, Kind::bulk, 5, 0, 1, 2, "slice");
    r.sent(11, Kind::control, 5, 0, 1, 2, "first");
    r.sent(12, Kind::flow, 5, 0, 1, 2, "second");
    r.sent(13, Kind::control, 5, 1, 2, 1, "the other way");
    r.arrived(20, 5, 0, false);
    r.step(20, 2, "first arrived", "state");
    r.arrived(21, 5, 0, false);
    r.arrived(22, 5, 0, true);
    const auto& m = r.messages();
    CHECK(m[1].ended == 20);
    CHECK(m[2].ended == 21);
    CHECK(m[0].ended == 22);
    CHECK(m[0].fate == Fate::arrived);
    CHECK(m[3].fate == Fate::on_the_way);
    REQUIRE(m[1].arrived_step != Recorder::none);
    CHECK(r.texts()[r.steps()[m[1].arrived_step].event] == "first arrived");
    CHECK(r.texts()[r.steps()[m[1].arrived_step].state] == "state");
    CHECK(m[2].arrived_step == Recorder::none);
}

TEST_CASE("what the receiving end no longer takes is lost, before and after it ended") {
    Recorder r = connected();
    r.sent(10, Kind::control, 5, 0, 1, 2, "on its way");
    r.sent(10, Kind::control, 5, 1, 2, 1, "still arrives");
    r.link_ends(15, 5, 1);
    r.sent(16, Kind::control, 5, 0, 1, 2, "too late");
    r.arrived(17, 5, 1, false);
    CHECK(r.messages()[0].fate == Fate::lost);
    CHECK(r.messages()[0].ended == 15);
    CHECK(r.messages()[1].fate == Fate::arrived);
    CHECK(r.messages()[2].fate == Fate::lost);
    CHECK(r.messages()[2].ended == 16);
}

TEST_CASE("a process that ends takes its links, its pause and its last call with it") {
    Recorder r = connected();
    r.call_begins(5, 2, 1, 0, "connect");
    r.paused(8, 2, 1000);
    r.sent(10, Kind::control, 5, 0, 1, 2, "nobody reads this");
    r.process_ends(20, 2, "killed");
    CHECK(r.messages()[0].fate == Fate::lost);
    CHECK(r.pauses()[0].end == 20);
    CHECK(r.calls()[0].end == pccl::core::never);
    CHECK(r.lives()[1].end == 20);
    r.process_starts(30, 2);
    r.explain_end(1, "not this one");
    CHECK(r.lives()[1].how == "killed");
    CHECK(r.lives()[2].end == pccl::core::never);
}

TEST_CASE("a frame that was cancelled before its first byte does not take the place of the next one") {
    Recorder r = connected();
    r.sent(10, Kind::bulk, 5, 0, 1, 2, "cancelled");
    r.withdrawn(5, 0);
    r.sent(11, Kind::bulk, 5, 0, 1, 2, "sent");
    r.arrived(20, 5, 0, true);
    CHECK(r.messages()[0].fate == Fate::withdrawn);
    CHECK(r.messages()[1].fate == Fate::arrived);
}

TEST_CASE("only so many entries are kept, from a number on; those not kept still hold their place in the order") {
    Recorder::Bounds bounds;
    bounds.skip = 2;
    bounds.entries_max = 2;
    Recorder r(bounds);
    r.link_begins(0, 0, 1);
    r.link_begins(0, 1, 2);
    r.sent(1, Kind::control, 0, 0, 1, 2, "a");
    r.sent(2, Kind::control, 0, 0, 1, 2, "b");
    r.sent(3, Kind::control, 0, 0, 1, 2, "c");
    r.arrived(11, 0, 0, false);
    r.arrived(12, 0, 0, false);
    r.arrived(13, 0, 0, false);
    r.step(13, 2, "c arrived", "");
    r.effect("not kept");
    CHECK(r.entries() == 5);
    CHECK(r.truncated());
    REQUIRE(r.messages().size() == 1);
    CHECK(r.messages()[0].ended == 13);
    REQUIRE(r.steps().size() == 1);
    CHECK(r.steps()[0].effects_count == 0);
}

TEST_CASE("control messages are named by their kind and told by their main fields") {
    namespace proto = pccl::proto;
    using pccl::sim::Talk;
    const auto said = [](Talk talk, const auto& message) {
        const std::string body = message.SerializeAsString();
        return pccl::sim::control_text(talk,
                                       std::span(reinterpret_cast<const std::uint8_t*>(body.data()), body.size()));
    };
    proto::PeerMessage vote;
    vote.mutable_vote()->set_kind(proto::VOTE_END);
    vote.mutable_vote()->set_id((1ull << 32) | 7);
    write(pccl::core::make_cause<pccl::core::CauseKind::text>("no luck"), *vote.mutable_vote()->mutable_cause());
    vote.mutable_vote()->set_serial(9);
    CHECK(said(Talk::peer_to_master, vote) == "vote end op 1.7 not ok \"no luck\", serial 9");
    proto::MasterMessage answer;
    answer.mutable_answer()->set_index(3);
    answer.mutable_answer()->mutable_outcome()->set_op((1ull << 32) | 7);
    answer.mutable_answer()->mutable_outcome()->set_commit(true);
    auto& view = *answer.mutable_answer()->mutable_view();
    view.set_epoch(2);
    view.set_group_world(3);
    view.set_groups(1);
    view.set_global_world(3);
    CHECK(said(Talk::master_to_peer, answer) ==
          "answer 3 outcome op 1.7 commit, epoch 2 group of 3, 1 groups, 3 members");
    proto::LinkMessage heartbeat;
    heartbeat.set_heartbeat(true);
    CHECK(said(Talk::peer_to_peer, heartbeat) == "heartbeat starved");

    const std::uint8_t bytes[] = {0xff, 0xff, 0xff};
    CHECK(pccl::sim::control_text(Talk::peer_to_peer, bytes) == "not a message");
    CHECK(pccl::sim::control_text(Talk::peer_to_peer, {}) == "unknown message");

    proto::PeerMessage hello;
    hello.mutable_hello()->set_uuid(std::string("\xab\xcd\xef\x01") + std::string(12, '\1'));
    const std::string body = hello.SerializeAsString();
    const auto name = pccl::sim::introduced_name(
        Talk::peer_to_master, std::span(reinterpret_cast<const std::uint8_t*>(body.data()), body.size()));
    CHECK(name == "abcdef01");
    CHECK_FALSE(pccl::sim::introduced_name(Talk::master_to_peer, bytes).has_value());
}
