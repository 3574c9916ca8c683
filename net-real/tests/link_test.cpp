// Two Links over each kind of stream: random frames, random segmentation, frames cancelled half-way, redirected landings,
// garbage. Whatever the order of reads and writes, what arrives is what was sent.
#include "net-real/link.hpp"

#include "core/base/random.hpp"
#include "net-real/tests/stream_pairs.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <deque>
#include <utility>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr StreamKind kinds[] = {StreamKind::tcp, StreamKind::shared};

void put(Stream& stream, const std::string& bytes) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    REQUIRE(stream.send({&part, 1}, false) == static_cast<ssize_t>(bytes.size()));
}

// What was sent by TCP may arrive a little later.
Link::Outcome receive_something(Link& link, Stream& stream, ReceiveSpace& space, EventSink& sink,
                                std::size_t budget_bytes) {
    for (;;) {
        const Link::Outcome outcome = link.receive(space, sink, budget_bytes);
        if (outcome.bytes > 0 || outcome.progress != Link::Progress::drained || link.is_input_closed()) return outcome;
        wait_for(stream, stream.input_wait());
    }
}

struct Expected {
    enum class Kind { control, flow, bulk } kind = Kind::control;
    std::string body;
    core::wire::FlowWord word;
    core::wire::BulkHeader header;
    std::vector<std::uint8_t> payload;
    bool may_be_abandoned = false;
};

struct Receiver final : EventSink {
    Link* link = nullptr;
    core::Random* random = nullptr;
    std::deque<Expected> expected;
    std::vector<std::uint8_t> place;
    std::vector<std::uint8_t> redirected;  // what is to stay in the place
    bool discarding = false;
    bool refused = false;
    std::size_t landed = 0, discarded = 0, abandoned = 0;

    Expected take(Expected::Kind kind) {
        REQUIRE(!expected.empty());
        Expected next = std::move(expected.front());
        expected.pop_front();
        REQUIRE(next.kind == kind);
        return next;
    }

    void on_event(const core::Event& event) override {
        if (const auto* control = std::get_if<core::ControlArrived>(&event)) {
            const Expected next = take(Expected::Kind::control);
            REQUIRE(std::string(control->body.begin(), control->body.end()) == next.body);
        } else if (const auto* flow = std::get_if<core::FlowArrived>(&event)) {
            REQUIRE(flow->word == take(Expected::Kind::flow).word);
        } else if (const auto* bulk = std::get_if<core::BulkArrived>(&event)) {
            REQUIRE(!expected.empty());
            REQUIRE(expected.front().kind == Expected::Kind::bulk);
            REQUIRE(bulk->header == expected.front().header);
            discarding = random->below(5) == 0;
            place.assign(bulk->header.length, 0xEE);
            if (discarding)
                link->discard_payload();
            else
                link->receive_payload(place.data(), bulk->header.length);
        } else if (const auto* end = std::get_if<core::PayloadLanded>(&event)) {
            const Expected next = take(Expected::Kind::bulk);
            using Verdict = core::PayloadLanded::Verdict;
            REQUIRE(end->verdict != Verdict::corrupt);
            if (discarding) {
                REQUIRE(end->verdict == Verdict::discarded);
                if (!redirected.empty()) REQUIRE(place == std::exchange(redirected, {}));
                ++discarded;
            } else if (end->verdict == Verdict::abandoned) {
                REQUIRE(next.may_be_abandoned);
                ++abandoned;
            } else {
                REQUIRE(end->verdict == Verdict::landed);
                REQUIRE(place == next.payload);
                REQUIRE(end->checksum == core::numeric::checksum64(place.data(), place.size()));
                ++landed;
            }
        } else if (std::holds_alternative<core::FrameRefused>(event)) {
            refused = true;
        }
    }
};

}  // namespace

TEST_CASE("whatever the segmentation, frames arrive as they were sent") {
    const StreamKind kind = kinds[GENERATE(0, 1)];
    INFO(name_of(kind));
    std::size_t landed = 0, discarded = 0, abandoned = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        core::Random random(seed);
        StreamPair pair(kind, std::size_t{4096} << random.below(7));
        const core::Limits limits;
        Link sender(1, *pair.a, limits);
        Link receiver(2, *pair.b, limits);
        ReceiveSpace space;
        Receiver sink;
        sink.link = &receiver;
        sink.random = &random;

        std::vector<core::Event> sent;
        std::vector<std::uint8_t> source;
        Expected running;
        bool in_flight = false;
        int frames_left = 120;
        while (frames_left > 0 || in_flight || sender.has_output() || !sink.expected.empty()) {
            const auto action = random.below(10);
            if (frames_left > 0 && action < 2 && !in_flight) {
                --frames_left;
                Expected next;
                if (random.below(2) == 0) {
                    next.kind = Expected::Kind::control;
                    next.body.assign(random.below(3) == 0 ? random.below(60'000) : random.below(50),
                                     static_cast<char>('a' + random.below(26)));
                    sender.queue_control(next.body);
                } else {
                    next.kind = Expected::Kind::flow;
                    next.word = {random.next(), static_cast<std::uint32_t>(random.next()), 7,
                                 core::wire::FlowKind::credit, 1};
                    sender.queue_flow(next.word);
                }
                sink.expected.push_back(next);
            } else if (frames_left > 0 && action < 4 && !in_flight) {
                --frames_left;
                source.resize(random.below(4) == 0 ? random.below(900'000) : random.below(3000));
                for (auto& byte : source) byte = static_cast<std::uint8_t>(random.next());
                running = {};
                running.kind = Expected::Kind::bulk;
                running.header.op = random.next();
                running.header.length = static_cast<std::uint32_t>(source.size());
                running.payload = source;
                core::SendPayload command;
                command.link = 1;
                command.header = running.header;
                command.source = {2, 0, source.size()};
                command.has_checksum = random.below(2) == 0;
                command.checksum = core::numeric::checksum64(source.data(), source.size());
                sender.send_payload(command, source.data());
                sink.expected.push_back(running);
                in_flight = true;
            } else if (action == 4 && in_flight && random.below(3) == 0) {
                if (sender.cancel_send()) {
                    sink.expected.pop_back();
                    in_flight = false;
                } else {
                    for (auto& expected : sink.expected) {
                        if (expected.header == running.header) expected.may_be_abandoned = true;
                    }
                    std::fill(source.begin(), source.end(), std::uint8_t{0xDD});
                }
            } else if (action < 8) {
                sent.clear();
                const auto outcome = sender.send(1 + random.below(300'000), sent);
                REQUIRE(outcome.progress != Link::Progress::closed);
                for (const auto& event : sent) {
                    REQUIRE(std::holds_alternative<core::PayloadSent>(event));
                    in_flight = false;
                }
            } else {
                const std::size_t budget = 1 + random.below(300'000);
                const auto until = random.below(2) == 0 ? Link::Until::payload : Link::Until::drained;
                const auto outcome = receiver.awaits_payload() && random.below(2) == 0
                                         ? receiver.take_payload(budget)
                                         : receiver.receive(space, sink, budget, until);
                REQUIRE(outcome.progress != Link::Progress::closed);
                if (receiver.awaits_payload() && random.below(20) == 0) {
                    sink.discarding = true;
                    receiver.redirect_receive();
                    std::fill(sink.place.begin(), sink.place.end(), std::uint8_t{0xEE});
                    sink.redirected = sink.place;
                }
            }
        }
        REQUIRE(!sink.refused);
        landed += sink.landed;
        discarded += sink.discarded;
        abandoned += sink.abandoned;
    }
    INFO("landed " << landed << " discarded " << discarded << " abandoned " << abandoned);
    REQUIRE(landed > 100);
    REQUIRE(discarded > 20);
    REQUIRE(abandoned > 5);
}

TEST_CASE("a landing that is redirected touches its place no more") {
    const StreamKind kind = kinds[GENERATE(0, 1)];
    INFO(name_of(kind));
    StreamPair pair(kind, 1 << 20);
    const core::Limits limits;
    Link sender(1, *pair.a, limits);
    Link receiver(2, *pair.b, limits);
    ReceiveSpace space;
    struct Sink final : EventSink {
        Link* link = nullptr;
        std::vector<std::uint8_t> place = std::vector<std::uint8_t>(100'000, 0xEE);
        int discarded = 0;
        void on_event(const core::Event& event) override {
            if (std::holds_alternative<core::BulkArrived>(event)) link->receive_payload(place.data(), place.size());
            if (const auto* end = std::get_if<core::PayloadLanded>(&event)) {
                REQUIRE(end->verdict == core::PayloadLanded::Verdict::discarded);
                ++discarded;
            }
        }
    } sink;
    sink.link = &receiver;
    const std::vector<std::uint8_t> source(100'000, 0x11);
    core::SendPayload command;
    command.header.length = 100'000;
    command.source = {2, 0, 100'000};
    sender.send_payload(command, source.data());
    std::vector<core::Event> sent;
    while (sender.has_output()) sender.send(1 << 20, sent);
    receive_something(receiver, *pair.b, space, sink, 1);  // header and the first bytes
    receiver.redirect_receive();
    std::fill(sink.place.begin(), sink.place.end(), std::uint8_t{0xEE});
    while (sink.discarded == 0) receive_something(receiver, *pair.b, space, sink, 1 << 20);
    REQUIRE(sink.discarded == 1);
    REQUIRE(sink.place == std::vector<std::uint8_t>(100'000, 0xEE));
}

TEST_CASE("garbage is refused once and nothing follows") {
    const StreamKind carrier = kinds[GENERATE(0, 1)];
    INFO(name_of(carrier));
    for (const int kind : {0, 1, 2}) {
        StreamPair pair(carrier, 1 << 20);
        core::Random random(static_cast<std::uint64_t>(kind) + 5);
        std::string bytes(4096, '\0');
        if (kind == 1) {
            for (auto& byte : bytes) byte = static_cast<char>(random.next());
        }
        if (kind == 2) {
            bytes.clear();
            core::wire::append_control(bytes, {});
            bytes[4] = bytes[5] = bytes[6] = bytes[7] = static_cast<char>(0xFF);
        }
        put(*pair.a, bytes);
        const core::Limits limits;
        Link receiver(2, *pair.b, limits);
        ReceiveSpace space;
        struct Sink final : EventSink {
            int refused = 0, others = 0;
            void on_event(const core::Event& event) override {
                if (std::holds_alternative<core::FrameRefused>(event))
                    ++refused;
                else
                    ++others;
            }
        } sink;
        for (int i = 0; i < 4; ++i) receive_something(receiver, *pair.b, space, sink, 1 << 20);
        REQUIRE(sink.refused == 1);
        REQUIRE(sink.others == 0);
    }
}

TEST_CASE("the end of the stream is told with its reason") {
    const StreamKind kind = kinds[GENERATE(0, 1)];
    INFO(name_of(kind));
    StreamPair pair(kind, 1 << 20);
    const core::Limits limits;
    Link receiver(2, *pair.b, limits);
    ReceiveSpace space;
    struct Sink final : EventSink {
        void on_event(const core::Event&) override {}
    } sink;
    REQUIRE(receiver.receive(space, sink, 1 << 20).progress == Link::Progress::drained);
    pair.a->shut_down_output();
    REQUIRE(receive_something(receiver, *pair.b, space, sink, 1 << 20).progress == Link::Progress::closed);
}
