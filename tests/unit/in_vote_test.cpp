// A reduction that the votes carry gives the bytes that the ring gives, and no member can hurt the others by it.
#include "core/all_reduce/operation.hpp"
#include "core/numeric/kernels.hpp"
#include "core/voting/in_vote.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <functional>
#include <random>

using namespace pccl::core;
namespace proto = pccl::proto;

namespace {

proto::Shape shape_of(std::uint64_t count, DataType type, ReduceOp op) {
    proto::Shape shape;
    shape.set_count(count);
    shape.set_type(static_cast<std::uint32_t>(type));
    shape.set_op(static_cast<std::uint32_t>(op));
    return shape;
}

// Slice by slice from the member that starts it to the one that finishes it, as operations do.
std::string reduce_around_a_ring(const ReduceShape& shape, const std::vector<std::string>& inputs) {
    const auto world = static_cast<std::uint32_t>(inputs.size());
    Limits limits;
    limits.slice_bytes = 64;
    std::string result(inputs.front().size(), '\0');
    const auto operation_at = [&](std::uint32_t position) {
        Operation::Identity identity;
        identity.world = world;
        identity.position = position;
        return Operation(identity, shape, 2, 4, limits);
    };
    std::vector<Operation> members;
    for (std::uint32_t position = 0; position < world; ++position) members.push_back(operation_at(position));
    for (std::uint32_t slice = 0; slice < members[0].slices(); ++slice) {
        const std::uint64_t offset = members[0].byte_offset(slice), length = members[0].byte_length(slice);
        std::string partial;
        for (std::uint32_t hop = 0; hop < world; ++hop) {
            for (std::uint32_t position = 0; position < world; ++position) {
                if (members[position].distance(slice) != hop) continue;
                const char* const mine = inputs[position].data() + offset;
                if (hop == 0) {
                    partial.assign(mine, length);
                    continue;
                }
                const bool divides = members[position].finishes(slice) && shape.op == ReduceOp::avg;
                numeric::reduce(shape.type, shape.op, partial.data(), partial.data(), mine,
                                length / element_bytes(shape.type), divides ? world : 0);
            }
        }
        std::memcpy(result.data() + offset, partial.data(), length);
    }
    return result;
}

}  // namespace

TEST_CASE("votes give the bytes that the ring gives, for every type and operation") {
    std::mt19937_64 draw(1);
    for (std::uint32_t type = 0; type < data_type_count; ++type) {
        for (std::uint32_t op = 0; op < reduce_op_count; ++op) {
            for (const std::size_t world : {2u, 3u, 7u}) {
                for (const std::uint64_t count : {1u, 2u, 6u, 37u, 500u}) {
                    const ReduceShape shape{count, static_cast<DataType>(type), static_cast<ReduceOp>(op), {}};
                    std::vector<std::string> inputs(world, std::string(count * element_bytes(shape.type), '\0'));
                    for (std::string& input : inputs) {
                        for (char& c : input) c = static_cast<char>(draw());
                    }
                    std::vector<proto::Vote> votes(world);
                    std::vector<const proto::Vote*> in_order;
                    for (std::size_t i = 0; i < world; ++i) {
                        *votes[i].mutable_shape() = shape_of(count, shape.type, shape.op);
                        votes[i].set_input(inputs[i]);
                        in_order.push_back(&votes[i]);
                    }
                    INFO("type " << type << " operation " << op << ", " << count << " elements of " << world);
                    const bool same = result_in_vote(CollectiveKind::all_reduce, in_order, {}, 0) ==
                                      reduce_around_a_ring(shape, inputs);
                    CHECK(same);
                }
            }
        }
    }
}

TEST_CASE("only inputs that fit ride in a vote") {
    CHECK(input_bytes_in_vote(shape_of(100, DataType::f32, ReduceOp::sum), 400) == 400);
    CHECK(input_bytes_in_vote(shape_of(101, DataType::f32, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(~std::uint64_t{0}, DataType::f64, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(0, DataType::u8, ReduceOp::sum), 400) == 0);
    CHECK(input_bytes_in_vote(shape_of(1, DataType::u8, ReduceOp::sum), 0) == 0);
    proto::Shape quantized = shape_of(4, DataType::f32, ReduceOp::sum);
    quantized.set_quantization(1);
    CHECK(input_bytes_in_vote(quantized, 400) == 0);
}

namespace {

struct Pair {
    play::World world;
    play::Member a{play::name(1)}, b{play::name(2)};

    explicit Pair(const Limits& limits = {}) : world(limits) {
        world.say_hello(a, takes(limits));
        world.say_hello(b, takes(limits));
        proto::Vote update;
        connect();
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        connect();
    }
    void connect() {
        world.report_edges(a, b);
        world.report_edges(b, a);
    }
    static std::function<void(proto::Hello&)> takes(const Limits& limits) {
        return [bytes = limits.control_bytes_max](proto::Hello& hello) { hello.set_control_bytes_max(bytes); };
    }
    static proto::Vote start(const std::string& input) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_START);
        vote.set_id(5);
        *vote.mutable_shape() = shape_of(100, DataType::u8, ReduceOp::sum);
        vote.set_input(input);
        return vote;
    }
    static proto::StartAnswer answer_of(const play::Member& member) {
        REQUIRE_FALSE(member.answers.empty());
        REQUIRE(member.answers.back().has_start());
        return member.answers.back().start();
    }
};

const std::string ones(100, '\1'), threes(100, '\3');

// A result that is longer than the least frames. `a` has voted for it.
struct LongResult : Pair {
    proto::Vote vote = start(std::string(8000, '\1'));

    LongResult() : Pair(limits()) {
        vote.mutable_shape()->set_count(8000);
        world.vote(a, vote);
    }
    static Limits limits() {
        Limits limits;
        limits.vote_input_bytes_max = 8192;
        return limits;
    }
    // The same member, with the least frames.
    void comes_back() {
        world.say_hello(a, [](proto::Hello& hello) { hello.set_control_bytes_max(control_bytes_least); });
    }
};

}  // namespace

TEST_CASE("the answer to votes with inputs is the result, and what was not told is told after a restart") {
    Pair run;
    run.world.vote(run.a, Pair::start(ones));
    run.world.reset(run.b);
    run.world.say_hello(run.b, Pair::takes({}));
    run.world.vote(run.b, Pair::start(threes));
    CHECK(Pair::answer_of(run.a).reduced());
    CHECK(Pair::answer_of(run.a).result() == std::string(100, '\4'));
    run.b.seen = run.b.answers[0].index();
    run.b.answers.resize(1);
    run.world.restart();
    run.world.say_hello(run.b, Pair::takes({}));
    CHECK(Pair::answer_of(run.b).result() == std::string(100, '\4'));
}

TEST_CASE("a vote without an input makes the reduction go around the ring") {
    Pair run;
    run.world.vote(run.a, Pair::start(ones));
    run.world.vote(run.b, Pair::start(""));
    CHECK_FALSE(Pair::answer_of(run.a).reduced());
    CHECK(Pair::answer_of(run.a).op() != 0);
    CHECK(Pair::answer_of(run.a).result().empty());
}

TEST_CASE("a member whose input does not fit its vote, or is too long, is removed, and nobody else") {
    const auto [bytes, cause] = GENERATE(std::pair<std::size_t, const char*>{99, "input of another size"},
                                         std::pair<std::size_t, const char*>{101, "input of another size"},
                                         std::pair<std::size_t, const char*>{16'385, "larger than"});
    Pair run;
    run.world.vote(run.a, Pair::start(std::string(bytes, 'x')));
    CHECK(run.a.refused);
    CHECK_THAT(run.world.logged, Catch::Contains(cause));
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("only the vote for a start has an input: who sends another one is removed") {
    Pair run;
    proto::Vote vote = Pair::start(ones);
    vote.set_kind(proto::VOTE_PEERS_PENDING);
    run.world.vote(run.a, vote);
    CHECK(run.a.refused);
    CHECK_FALSE(run.b.refused);
}

TEST_CASE("a member that comes back and takes no frame as long as its result is disconnected, and the run goes on") {
    LongResult run;
    run.world.reset(run.a);
    run.world.vote(run.b, run.vote);
    CHECK(Pair::answer_of(run.b).reduced());
    run.comes_back();
    CHECK(run.a.closed);
    run.world.say_hello(run.a, Pair::takes(LongResult::limits()));
    CHECK(Pair::answer_of(run.a).result() == std::string(8000, '\2'));
}

TEST_CASE("a start that waited and was reduced in its votes makes room for the next one of its name") {
    play::FourMembers run;
    for (play::Member* member : run.all) {
        for (const play::Member* other : run.all)
            if (member != other) run.world.report_edges(*member, *other, false);
    }
    // The first one keeps its place.
    proto::Vote first = Pair::start("");
    first.set_id(4);
    for (play::Member* member : run.all) run.world.vote(*member, first);
    // With a vote without an input it waits for the ring. When that member has gone, the votes are enough.
    for (play::Member* member : run.all) run.world.vote(*member, Pair::start(member == &run.four ? "" : ones));
    CHECK(run.one.answers.back().has_start() == false);
    proto::PeerMessage leaves;
    leaves.set_leave(true);
    run.world.tell(run.four, leaves);
    CHECK(Pair::answer_of(run.one).reduced());
    for (play::Member* member : {&run.one, &run.two, &run.three}) run.world.vote(*member, Pair::start(""));
    run.world.check();
}

TEST_CASE("a member may be removed while it is told what it has not seen") {
    LongResult run;
    const std::uint64_t seen = run.a.seen;
    run.world.vote(run.b, run.vote);
    CHECK(Pair::answer_of(run.b).reduced());
    // All but one have acknowledged it, so it is kept for that one alone.
    proto::PeerMessage beat;
    beat.set_heartbeat(run.b.seen);
    run.world.tell(run.b, beat);
    run.world.report_edges(run.b, run.a, false);
    run.a.seen = seen;
    while (!run.a.answers.empty() && run.a.answers.back().index() > seen) run.a.answers.pop_back();
    run.comes_back();
    CHECK(run.a.closed);
    CHECK_THAT(run.world.logged, Catch::Contains("removed"));
    run.world.pass(second);
    CHECK_FALSE(run.b.closed);
}

TEST_CASE("a member that acknowledges no result gets no more of them than the limit") {
    Limits limits;
    limits.vote_results_untold = 3;
    Pair run(limits);
    run.b.acknowledges = false;
    std::size_t reduced = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        proto::Vote vote = Pair::start(ones);
        vote.set_id(i);
        for (play::Member* member : {&run.a, &run.b}) run.world.vote(*member, vote);
        reduced += Pair::answer_of(run.a).reduced() ? 1 : 0;
    }
    CHECK(reduced == 2);  // and the answer to its first update
}

TEST_CASE("inputs of ballots that are not complete are kept within the limit") {
    Limits limits;
    limits.vote_input_bytes_max = 1024;
    limits.vote_inputs_held_bytes = 5 * 2 * 1024;
    Pair run(limits);
    std::size_t reduced = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        proto::Vote vote = Pair::start(ones);
        vote.set_id(i);
        run.world.vote(run.a, vote);
    }
    for (std::uint64_t i = 0; i < 10; ++i) {
        proto::Vote vote = Pair::start(ones);
        vote.set_id(i);
        run.world.vote(run.b, vote);
        reduced += Pair::answer_of(run.b).reduced() ? 1 : 0;
    }
    CHECK(reduced == 5);
}
