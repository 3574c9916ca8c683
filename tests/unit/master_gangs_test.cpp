// Gangs: the master admits and removes them as a whole, and half of one delays nobody.
#include "core/base/probe.hpp"
#include "tests/unit/master_play.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace pccl::core;
using namespace pccl::core::play;
namespace proto = pccl::proto;

namespace {

std::size_t searches = 0;

Member member(std::uint8_t number) {
    Member made;
    made.uuid = name(number);
    return made;
}

class Run {
public:
    explicit Run(const Limits& limits = {}) : world(limits) {}

    World world;

    // Place k is in group k.
    void come(Member& who, const std::string& gang, std::uint32_t size, std::uint32_t place, std::uint32_t ms = 0) {
        world.say_hello(who, [&](proto::Hello& hello) {
            hello.set_group(place);
            hello.mutable_gang()->set_name(gang);
            hello.mutable_gang()->set_size(size);
            hello.mutable_gang()->set_place(place);
            hello.mutable_gang()->set_patience_ms(ms);
        });
    }
    void connect(Member& one, Member& other) {
        world.report_edges(one, other);
        world.report_edges(other, one);
    }
    void update(Member& who) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(who, vote);
    }
    bool pending(std::initializer_list<Member*> members) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_PEERS_PENDING);
        for (Member* who : members) world.vote(*who, vote);
        return (*members.begin())->answers.back().pending();
    }
    const MasterStatus::Gang waiting(const std::string& name) const {
        const MasterStatus status = world.status();
        const auto gang = std::find_if(status.gangs.begin(), status.gangs.end(),
                                       [&](const auto& each) { return !each.admitted && each.name == name; });
        return gang == status.gangs.end() ? MasterStatus::Gang{} : *gang;
    }
    void stay_alive(std::initializer_list<Member*> members, Duration time) {
        for (Duration passed = 0; passed < time; passed += second) {
            world.advance(second);
            for (Member* who : members) {
                proto::PeerMessage message;
                message.set_heartbeat(who->seen);
                message.set_heard(who->heard);
                world.tell(*who, message);
            }
        }
    }
};

}  // namespace

TEST_CASE("a gang is admitted when its last place is taken, in one decision") {
    Run run;
    Member a0 = member(1), a1 = member(2);
    run.come(a0, "A", 2, 0);
    run.world.advance(10 * second);
    CHECK(a0.answers.empty());
    CHECK(run.waiting("A").missing == std::vector<std::uint32_t>{1});
    run.come(a1, "A", 2, 1);
    REQUIRE(a0.answers.size() == 1);
    REQUIRE(a1.answers.size() == 1);
    CHECK(a0.answers[0].index() == a1.answers[0].index());
    CHECK(a0.answers[0].view().gangs() == 1);
    CHECK(a0.answers[0].view().global_world() == 2);
}

TEST_CASE("half a gang is not pending, and takes no place of others") {
    Limits limits;
    limits.peers_max = 2;
    Run run(limits);
    Member single = member(1), half = member(2), other = member(3);
    run.world.say_hello(single);
    run.come(half, "A", 2, 1);
    CHECK_FALSE(run.pending({&single}));
    run.update(single);
    CHECK(single.answers.back().view().global_world() == 1);
    run.world.say_hello(other);
    CHECK_FALSE(other.refused);
    run.connect(single, other);
    CHECK(run.pending({&single}));
    run.update(single);
    CHECK(single.answers.back().view().global_world() == 2);
    // The run is full now, so the gang cannot become complete.
    Member mate = member(4);
    run.come(mate, "A", 2, 0);
    CHECK(mate.refusal.find("limit of 2 peers") != std::string::npos);
    // Nor does it get in without its gang.
    run.world.say_hello(half);
    CHECK(half.refusal.find("limit of 2 peers") != std::string::npos);
}

TEST_CASE("a gang of which one place cannot be reached stays out as a whole") {
    Run run;
    Member a0 = member(1), a1 = member(2), b0 = member(3), b1 = member(4);
    run.come(a0, "A", 2, 0);
    run.come(a1, "A", 2, 1);
    run.come(b0, "B", 2, 0);
    run.come(b1, "B", 2, 1);
    run.connect(a0, b0);
    CHECK_FALSE(run.pending({&a0, &a1}));
    run.update(a0);
    run.update(a1);
    CHECK(b0.answers.empty());
    run.connect(a1, b1);
    CHECK(run.pending({&a0, &a1}));
    run.update(a0);
    run.update(a1);
    REQUIRE(b0.answers.size() == 1);
    CHECK(b0.answers[0].index() == b1.answers[0].index());
    CHECK(a0.answers.back().view().gangs() == 2);
}

TEST_CASE("a gang that cannot be reached costs one search in each look, however many groups it has") {
    constexpr std::uint32_t places = 8;
    Run run;
    std::vector<Member> a, b;
    for (std::uint32_t place = 0; place < places; ++place) {
        a.push_back(member(static_cast<std::uint8_t>(1 + place)));
        b.push_back(member(static_cast<std::uint8_t>(1 + places + place)));
    }
    std::vector<Member*> all;
    for (std::uint32_t place = 0; place < places; ++place) run.come(a[place], "A", places, place);
    for (std::uint32_t place = 0; place < places; ++place) run.come(b[place], "B", places, place);
    for (std::uint32_t place = 1; place < places; ++place) run.connect(a[place], b[place]);  // place 0 stays out
    for (Member& one : a) all.push_back(&one);
    for (Member& one : b) all.push_back(&one);
    run.world.pass(15 * second, all);
    REQUIRE(b[0].notices.find("cannot be admitted yet") != std::string::npos);
    searches = 0;
    set_probe_handler([](Probe probe) { searches += probe == Probe::gang_left_out ? 1 : 0; });
    run.world.advance(Timeouts{}.tick());
    set_probe_handler(nullptr);
    CHECK(searches == 1);
}

TEST_CASE("a gang that waits behind others for its turn is not said to be unreachable") {
    Run run;
    std::vector<Member> gang{member(11), member(12), member(13)};
    Member a = member(1), b = member(2), x = member(3);
    const std::vector<Member*> all{&a, &b, &x, &gang[0], &gang[1], &gang[2]};
    const auto come = [&](Member& who, std::optional<std::uint32_t> place = std::nullopt) {
        run.world.say_hello(who, [&](proto::Hello& hello) {
            hello.set_newcomer_links(4);  // two newcomers at a time
            if (!place) return;
            hello.mutable_gang()->set_name("G");
            hello.mutable_gang()->set_size(3);
            hello.mutable_gang()->set_place(*place);
        });
    };
    // Whatever a plan names connects at once.
    const auto connect = [&] {
        for (Member* from : all) {
            const proto::DialPlan plan = from->plan;
            for (const auto& target : plan.targets()) {
                for (Member* to : all) {
                    if (to_bytes(to->uuid) != target.peer()) continue;
                    for (const bool outgoing : {true, false}) {
                        proto::PeerMessage up;
                        up.mutable_edge()->set_peer(to_bytes(outgoing ? to->uuid : from->uuid));
                        up.mutable_edge()->set_outgoing(outgoing);
                        up.mutable_edge()->set_up(true);
                        run.world.tell(outgoing ? *from : *to, up);
                    }
                }
            }
        }
    };
    come(a);
    come(b);
    connect();
    run.update(a);
    connect();
    come(x);
    for (std::uint32_t place = 0; place < 3; ++place) come(gang[place], place);
    for (int i = 0; i < 90; ++i) {
        connect();
        run.world.pass(second, all);
    }
    for (const Member& place : gang) CHECK(place.notices.empty());
}

TEST_CASE("one gang is not at loopback addresses and at others") {
    Run run;
    Member here = member(1), there = member(2), again = member(3), founder = member(4), late = member(5);
    const auto come = [&](Member& who, std::uint32_t place, std::uint8_t first_byte) {
        run.world.say_hello(
            who,
            [&](proto::Hello& hello) {
                hello.mutable_gang()->set_name("A");
                hello.mutable_gang()->set_size(2);
                hello.mutable_gang()->set_place(place);
            },
            first_byte);
    };
    come(here, 0, 127);
    come(there, 1, 10);
    CHECK(there.refusal.find("is reached at a loopback address") != std::string::npos);
    CHECK_FALSE(here.refused);
    // The same place, started again: the former process may be dead.
    come(again, 0, 10);
    CHECK_FALSE(again.refused);
    // Half a gang does not decide where others are.
    run.world.say_hello(
        founder, [](const proto::Hello&) {}, 10);
    CHECK_FALSE(founder.refused);
    come(late, 1, 127);
    CHECK(late.refusal.find("at the loopback address") != std::string::npos);
}

TEST_CASE("a gang is removed as a whole, and the others learn which place was lost") {
    Run run;
    Member a0 = member(1), a1 = member(2), single = member(3);
    run.come(a0, "A", 2, 0);
    run.come(a1, "A", 2, 1);
    run.world.say_hello(single, [](proto::Hello& hello) { hello.set_group(7); });
    run.update(a0);
    run.update(a1);
    REQUIRE(single.answers.size() == 1);
    proto::PeerMessage leave;
    leave.set_leave(true);
    run.world.tell(a1, leave);
    CHECK(a0.refusal.find("its gang 'A' lost place 1: left the run") != std::string::npos);
    run.update(single);
    CHECK(single.answers.back().view().global_world() == 1);
    CHECK(single.answers.back().view().gangs() == 0);
    CHECK(single.answers.back().view().groups() == 1);
    CHECK(run.world.status().removed == 2);
}

TEST_CASE("a second newcomer at a place is refused when the first one is known to live") {
    Run run;
    Member first = member(1), second_one = member(2), third = member(3);
    run.come(first, "A", 2, 0);
    run.come(second_one, "A", 2, 0);
    run.world.advance(second);
    CHECK_FALSE(second_one.refused);
    run.stay_alive({&first, &second_one}, 8 * second);
    CHECK(second_one.refusal.find("lives and has place 0 of gang 'A'") != std::string::npos);
    CHECK_FALSE(first.refused);
    // The first one dies: a newcomer takes over.
    run.come(third, "A", 2, 0);
    run.world.reset(first);
    Member mate = member(4);
    run.come(mate, "A", 2, 1);
    CHECK(third.answers.size() == 1);
    CHECK(mate.answers.size() == 1);
}

TEST_CASE("a process that is started again waits until the master knows that its gang is gone") {
    Run run;
    Member a0 = member(1), a1 = member(2), again = member(3), back = member(4);
    run.come(a0, "A", 2, 0);
    run.come(a1, "A", 2, 1);
    run.come(again, "A", 2, 1);
    run.come(back, "A", 2, 0);
    CHECK(run.waiting("A").awaits_former);
    CHECK(again.answers.empty());
    run.stay_alive({&a0, &again, &back}, 12 * second);  // a1 is silent; so its gang goes
    CHECK(a0.refusal.find("lost place 1") != std::string::npos);
    // The newcomer at place 0 was refused before that, because a0 lived.
    CHECK(back.refusal.find("lives and has place 0") != std::string::npos);
    CHECK_FALSE(again.refused);
    Member once_more = member(5);
    run.come(once_more, "A", 2, 0);
    CHECK(again.answers.size() == 1);
    CHECK(once_more.answers.size() == 1);
}

TEST_CASE("gangs that cannot be are refused with their cause") {
    Limits limits;
    limits.gang_waiting_max = 1;
    limits.gang_size_max = 4;
    Run run(limits);
    Member a0 = member(1), other_size = member(2), beyond = member(3), large = member(4), too_many = member(5),
           control = member(6);
    run.come(a0, "A", 2, 0);
    run.come(other_size, "A", 3, 1);
    CHECK(other_size.refusal.find("has 2 places, and this peer declares 3") != std::string::npos);
    run.come(beyond, "B", 2, 2);
    CHECK(beyond.refusal.find("a place below its size") != std::string::npos);
    run.come(large, "B", 5, 2);
    CHECK(large.refusal.find("a size of 1 to 4") != std::string::npos);
    run.come(control, "B\n", 2, 1);
    CHECK(control.refusal.find("printable") != std::string::npos);
    run.come(too_many, "C", 2, 0);
    CHECK(too_many.refusal.find("1 processes wait") != std::string::npos);
    Member a1 = member(7);
    run.come(a1, "A", 2, 1);  // completes the gang, so the limit does not count
    CHECK(a1.answers.size() == 1);
}

TEST_CASE("a newcomer gives up its gang when its patience is over, and the others go on waiting") {
    Run run;
    Member a0 = member(1), a2 = member(2);
    run.come(a0, "A", 3, 0, 3000);
    run.come(a2, "A", 3, 2);
    run.stay_alive({&a0, &a2}, 5 * second);
    CHECK(a0.refusal.find("nobody has taken its place 1") != std::string::npos);
    CHECK_FALSE(a2.refused);
    const MasterStatus::Gang gang = run.waiting("A");
    CHECK(gang.missing == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("a master that restarts knows the gangs of its members, and half a gang comes again") {
    Run run;
    Member a0 = member(1), a1 = member(2), half = member(3);
    run.come(a0, "A", 2, 0);
    run.come(a1, "A", 2, 1);
    run.come(half, "B", 2, 0);
    run.world.restart();
    for (Member* who : {&a0, &a1}) {
        run.world.say_hello(*who);
        run.world.resumed(*who);
    }
    run.come(half, "B", 2, 0);
    CHECK(run.waiting("B").taken == 1);
    run.world.tell(a0, [] {
        proto::PeerMessage leave;
        leave.set_leave(true);
        return leave;
    }());
    CHECK(a1.refusal.find("its gang 'A' lost place 0") != std::string::npos);
    CHECK(run.world.status().removed == 2);
}
