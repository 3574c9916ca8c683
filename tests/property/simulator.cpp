// The simulated world alone: queue, draws, network and drivers, with toy machines in place of the core.
#include "harness/reference.hpp"
#include "net-sim/world.hpp"

#include <catch2/catch.hpp>

#include <cstring>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::sim;

namespace {

class NobodyDirects final : public Director {
public:
    void completed(std::uint32_t, Ticket, const Completion&) override {}
    void attributes_set(std::uint32_t, const Attributes&) override {}
    void application_item(std::uint32_t, std::uint64_t, std::uint64_t) override {}
    void script_item(std::uint64_t a, std::uint64_t) override {
        if (on_script) on_script(a);
    }
    void aimed_crash(std::uint32_t, std::uint64_t) override {}
    void halted(std::uint32_t) override {}
    void (*on_script)(std::uint64_t) = nullptr;
};

// Dials node 1 and sends frames to it. Node 1 counts the frames that land and acknowledges each. Dials again if the
// link ends.
class Toy final : public Machine {
public:
    Toy(bool dials, std::uint32_t frames, std::uint32_t bytes) : dials_(dials), frames_(frames), bytes_(bytes) {}

    Status handle(Instant now, const Event& event, Effects& out) override {
        if (std::get_if<Timer>(&event) != nullptr) {
            deadline_ = never;
            if (!allocated_) {
                allocated_ = true;
                out.push_back(AllocateBuffer{1, bytes_});
                out.push_back(AllocateBuffer{3, bytes_});
            }
            if (dials_ && link_ == 0) {
                link_ = last_link_ += 2;
                out.push_back(OpenLink{link_, endpoint_of(1)});
            }
        } else if (const auto* opened = std::get_if<LinkOpened>(&event)) {
            out.push_back(SendControl{opened->link, "hello"});
            send(out);
        } else if (std::get_if<LinkClosed>(&event) != nullptr || std::get_if<LinkRefused>(&event) != nullptr) {
            if (dials_) {
                link_ = 0;
                deadline_ = now + 10 * millisecond;
            } else {
                receiving_ = false;
            }
        } else if (std::get_if<LinkAccepted>(&event) != nullptr) {
            receiving_ = false;
        } else if (const auto* control = std::get_if<ControlArrived>(&event)) {
            ++controls;
            (void)control;
        } else if (const auto* bulk = std::get_if<BulkArrived>(&event)) {
            // Several links may be open for a moment, but only one may use the buffer.
            if (receiving_) {
                out.push_back(DiscardPayload{bulk->link});
            } else {
                receiving_ = true;
                into_ = bulk->link;
                out.push_back(ReceivePayload{bulk->link, BufferRef{3, 0, bulk->header.length}});
            }
        } else if (const auto* landed = std::get_if<PayloadLanded>(&event)) {
            if (landed->verdict == PayloadLanded::Verdict::landed) ++frames_landed;
            if (landed->link == into_) receiving_ = false;
            out.push_back(SendFlow{landed->link, wire::FlowWord{7, frames_landed, 0, wire::FlowKind::ack, 0}});
        } else if (std::get_if<PayloadSent>(&event) != nullptr) {
            if (sent_ < frames_) send(out);
        } else if (std::get_if<FlowArrived>(&event) != nullptr) {
            ++acknowledged;
        }
        return Status::ok;
    }
    Instant next_deadline() const override { return deadline_; }
    std::uint64_t state_hash() const override { return mix(sent_, mix(frames_landed, acknowledged)); }
    std::string explain() const override { return "toy"; }

    std::uint32_t frames_landed = 0;
    std::uint32_t acknowledged = 0;
    std::uint32_t controls = 0;

private:
    void send(Effects& out) {
        ++sent_;
        SendPayload payload;
        payload.link = link_;
        payload.header.op = 7;
        payload.header.slice = sent_;
        payload.header.length = bytes_;
        payload.source = BufferRef{1, 0, bytes_};
        out.push_back(payload);
        out.push_back(SendControl{link_, "after it"});
    }
    bool dials_;
    std::uint32_t frames_, bytes_;
    Instant deadline_ = 1;
    bool allocated_ = false;
    bool receiving_ = false;
    LinkId link_ = 0, last_link_ = static_cast<LinkId>(-1), into_ = 0;
    std::uint32_t sent_ = 0;
};

struct Outcome {
    std::uint64_t hash = 0;
    std::uint32_t landed = 0, acknowledged = 0;
    std::string violation;
};

Outcome run_toys(const NetworkParameters& network, std::uint64_t seed, std::uint32_t frames, std::uint32_t bytes,
                 int resets) {
    NobodyDirects director;
    WorldParameters parameters;
    parameters.network = network;
    World world(3, 3, parameters, seed, director);
    static World* current = nullptr;
    current = &world;
    director.on_script = [](std::uint64_t) {
        const auto open = current->network().established();
        if (!open.empty()) current->network().reset(open.front());
    };
    for (int i = 1; i <= resets; ++i) world.schedule_script(i * 7 * millisecond, 0, 0);
    auto listener = std::make_unique<Toy>(false, 0, bytes);
    auto dialler = std::make_unique<Toy>(true, frames, bytes);
    Toy* in = listener.get();
    Toy* out = dialler.get();
    world.start_machine(1, std::move(listener), Limits{});
    world.start_machine(2, std::move(dialler), Limits{});
    world.run(100 * second, 1'000'000);
    return Outcome{world.trace().hash(), in->frames_landed, out->acknowledged,
                   world.violation().oracle + world.violation().reason};
}

}  // namespace

TEST_CASE("items come in order of time, then of scheduling") {
    EventQueue queue;
    Draw draw(5);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        Item item;
        item.time = static_cast<Instant>(draw.below(50));
        item.a = i;
        queue.push(item);
    }
    Item before = queue.pop();
    while (!queue.empty()) {
        const Item item = queue.pop();
        REQUIRE((before.time < item.time || (before.time == item.time && before.a < item.a)));
        before = item;
    }
}

TEST_CASE("draws stay within their bounds and know every octave") {
    Draw draw(1);
    std::array<int, 12> octaves{};
    for (int i = 0; i < 12'000; ++i) {
        const std::int64_t value = draw.log_uniform(1, 4095);
        REQUIRE(value >= 1);
        REQUIRE(value <= 4095);
        ++octaves[static_cast<std::size_t>(63 - std::countl_zero(static_cast<std::uint64_t>(value)))];
    }
    for (const int count : octaves) CHECK(count > 700);
    CHECK(draw.log_uniform(7, 7) == 7);
    CHECK(draw.log_uniform(1'000'000'000'000, 2'000'000'000'000) >= 1'000'000'000'000);
    for (int i = 0; i < 100; ++i) {
        const std::int64_t value = draw.between(-3, 3);
        REQUIRE((value >= -3 && value <= 3));
    }
}

TEST_CASE("frames survive any segmentation") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        NetworkParameters network;
        network.split_per_million = 800'000;
        network.tiny_read_per_million = 500'000;
        network.window_low = 16;
        network.window_high = 10'000;
        network.jitter_per_mille = 500;
        const Outcome outcome = run_toys(network, seed, 20, static_cast<std::uint32_t>(seed * 37 % 700), 0);
        CHECK(outcome.violation == "");
        CHECK(outcome.landed == 20);
        CHECK(outcome.acknowledged == 20);
    }
}

TEST_CASE("resets lose bytes and never mix them up") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        NetworkParameters network;
        network.rate_low = network.rate_high = 100'000;
        network.split_per_million = 300'000;
        const Outcome outcome = run_toys(network, seed, 50, 500, 10);
        CHECK(outcome.violation.empty());
        CHECK(outcome.landed > 0);
        CHECK(outcome.landed < 50);
    }
}

TEST_CASE("one seed gives one trace") {
    NetworkParameters network;
    network.split_per_million = 300'000;
    network.tiny_read_per_million = 300'000;
    network.jitter_per_mille = 1000;
    const Outcome first = run_toys(network, 9, 30, 300, 3);
    const Outcome second = run_toys(network, 9, 30, 300, 3);
    const Outcome other = run_toys(network, 10, 30, 300, 3);
    CHECK(first.hash == second.hash);
    CHECK(first.hash != other.hash);
}

TEST_CASE("the value model agrees with the kernels and sees a wrong byte") {
    Draw draw(3);
    for (std::uint32_t type = 0; type < data_type_count; ++type) {
        for (std::uint32_t op = 0; op < reduce_op_count; ++op) {
            for (const bool exact : {true, false}) {
                ReduceShape shape{37, static_cast<DataType>(type), static_cast<ReduceOp>(op)};
                const std::size_t bytes = shape.count * element_bytes(shape.type);
                std::vector<std::vector<std::uint8_t>> inputs(4, std::vector<std::uint8_t>(bytes));
                std::vector<const std::vector<std::uint8_t>*> pointers;
                for (auto& input : inputs) {
                    harness::draw_inputs(shape, exact, draw, input);
                    pointers.push_back(&input);
                }
                std::vector<std::uint8_t> result = inputs[0];
                for (std::size_t i = 1; i < 4; ++i) {
                    const std::uint32_t divisor = shape.op == ReduceOp::avg && i == 3 ? 4 : 0;
                    // The last hop of an average divides before it rounds. Its partial sums are plain sums.
                    const ReduceOp step = shape.op == ReduceOp::avg && divisor == 0 ? ReduceOp::sum : shape.op;
                    numeric::reduce(shape.type, step, result.data(), result.data(), inputs[i].data(), shape.count,
                                    divisor);
                }
                INFO("type " << type << " op " << op << " exact " << exact);
                CHECK(harness::is_result(shape, exact, pointers, result, shape.count));
                // Not the sign, which could make a zero of the other sign. The next bit puts the result far outside of
                // every bound.
                result[bytes - 1] = static_cast<std::uint8_t>(result[bytes - 1] ^ 0x40);
                CHECK_FALSE(harness::is_result(shape, exact, pointers, result, shape.count));
            }
        }
    }
}
