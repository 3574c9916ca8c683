// The bandwidth model alone: the rate of one flow, the shares of several flows, and latencies by region.
#include "net-sim/network.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

using namespace pccl;
using namespace pccl::sim;
using core::millisecond;
using core::second;

namespace {

// The nodes read everything at once, and every flow writes its bytes as fast as it may.
class Flows final : public Receiver {
public:
    Flows(std::uint32_t nodes, const NetworkParameters& parameters) : network_(queue_, now_, *this) {
        network_.start(nodes, parameters, 1);
    }
    void add(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
        const LinkId link = flows_.size() * 2 + 1;
        flows_.push_back(Flow{bytes, 0, 0});
        REQUIRE(network_.dial(from, link, endpoint_of(to)) == flows_.size() - 1);
    }
    void run() {
        while (!queue_.empty()) {
            const Item item = queue_.pop();
            now_ = item.time;
            if (item.kind == ItemKind::opened)
                pump(item.b);
            else if (item.kind == ItemKind::accepted)
                flow_of_[item.a] = item.b;
            else
                network_.handle(item);
        }
    }
    std::uint64_t arrived(std::size_t flow) const { return flows_[flow].arrived; }
    Instant done(std::size_t flow) const { return flows_[flow].done; }
    Network& network() { return network_; }

    Reach reach(std::uint32_t, std::uint16_t) override { return Reach::listening; }
    std::uint64_t incarnation(std::uint32_t) override { return 0; }
    bool paused(std::uint32_t) override { return false; }
    void defer(std::uint32_t, const Item&) override {}
    LinkId next_accepted_link(std::uint32_t) override { return accepted_ += 2; }
    void dial_met(std::uint32_t, LinkId, std::uint32_t) override {}
    void bytes_arrived(std::uint32_t, LinkId link, std::span<const Piece> pieces) override {
        Flow& flow = flows_[flow_of_.at(link)];
        for (const Piece& piece : pieces) flow.arrived += piece.length;
        flow.done = now_;
    }
    void link_ended(std::uint32_t, LinkId, const char*) override {}
    void room_made(std::uint32_t, LinkId link) override { pump((link - 1) / 2); }

private:
    struct Flow {
        std::uint64_t left = 0;
        std::uint64_t arrived = 0;
        Instant done = 0;
    };
    void pump(std::uint64_t index) {
        Flow& flow = flows_[index];
        const auto connection = static_cast<std::uint32_t>(index);
        for (;;) {
            const std::size_t part =
                std::min<std::uint64_t>({network_.room(connection, 0), flow.left, std::uint64_t{1} << 16});
            if (part == 0) break;
            const ZeroRun zeros{0, part};
            flow.left -= part;
            network_.write(connection, 0, {}, std::span(&zeros, 1));
        }
        if (flow.left != 0) network_.want_room(connection, 0);
    }

    EventQueue queue_;
    Instant now_ = 0;
    Network network_;
    std::vector<Flow> flows_;
    std::map<LinkId, std::uint64_t> flow_of_;
    LinkId accepted_ = 0;
};

NetworkParameters wide() {
    NetworkParameters n;
    n.latency_low = n.latency_high = 10 * millisecond;
    n.rate_low = n.rate_high = 10'000'000'000;
    n.window_low = n.window_high = 1 << 30;
    return n;
}

// Bytes per second since the connection was opened, which took a round trip.
double rate(Flows& flows, std::size_t flow, Duration round_trip) {
    return static_cast<double>(flows.arrived(flow)) * 1e9 / static_cast<double>(flows.done(flow) - round_trip);
}

}  // namespace

TEST_CASE("one flow runs at window per round trip") {
    NetworkParameters n = wide();
    n.window_low = n.window_high = 1 << 20;
    Flows flows(2, n);
    flows.add(0, 1, 200 << 20);
    flows.run();
    CHECK(flows.arrived(0) == 200 << 20);
    CHECK(rate(flows, 0, 20 * millisecond) == Approx((1 << 20) / 0.020).epsilon(0.04));
}

TEST_CASE("a flow does not exceed its own rate, several share an uplink and a downlink") {
    NetworkParameters n = wide();
    n.flow_rate = 50'000'000;
    {
        Flows flows(2, n);
        flows.add(0, 1, 100'000'000);
        flows.run();
        CHECK(rate(flows, 0, 20 * millisecond) == Approx(50e6).epsilon(0.02));
    }
    n.flow_rate = 0;
    n.rate_low = n.rate_high = 100'000'000;
    n.window_low = n.window_high = 4 << 20;  // how far one flow can be ahead of the other
    {
        Flows flows(3, n);
        flows.add(0, 1, 100'000'000);
        flows.add(0, 2, 100'000'000);
        flows.run();
        for (const std::size_t flow : {0u, 1u})
            CHECK(rate(flows, flow, 20 * millisecond) == Approx(50e6).epsilon(0.02));
    }
    n.rate_low = n.rate_high = 10'000'000'000;
    n.down_low = n.down_high = 100'000'000;
    {
        Flows flows(3, n);
        flows.add(1, 0, 100'000'000);
        flows.add(2, 0, 100'000'000);
        flows.run();
        CHECK(flows.arrived(0) + flows.arrived(1) == 200'000'000);
        const Instant end = std::max(flows.done(0), flows.done(1));
        CHECK(static_cast<double>(end) == Approx(2e9 + 30e6).epsilon(0.02));
    }
}

TEST_CASE("latencies come from the regions of the two nodes") {
    NetworkParameters n = wide();
    n.regions = {0, 1, 1};
    n.region_latency = {1 * millisecond, 40 * millisecond, 50 * millisecond, 2 * millisecond};
    Flows flows(3, n);
    CHECK(flows.network().latency(0, 1) == 40 * millisecond);
    CHECK(flows.network().latency(1, 0) == 50 * millisecond);
    CHECK(flows.network().latency(1, 2) == 2 * millisecond);
    flows.add(0, 2, 1);
    flows.run();
    CHECK(flows.done(0) == 40 * millisecond + 50 * millisecond + 40 * millisecond);
}

TEST_CASE("runs of zeros keep their place between real bytes") {
    Stream stream;
    const std::vector<std::uint8_t> bytes{1, 2, 3, 4};
    const std::vector<ZeroRun> zeros{{0, 5}, {2, 1'000'000'000'000}, {4, 3}};
    stream.append(bytes, zeros);
    CHECK(stream.size() == 1'000'000'000'012);
    std::vector<std::uint8_t> copy;
    std::vector<Piece> pieces;
    stream.take(6, copy, pieces);
    REQUIRE(pieces.size() == 2);
    CHECK(pieces[0].length == 5);
    CHECK(pieces[0].data == nullptr);
    CHECK(pieces[1].data[0] == 1);
    stream.truncate(1'000'000'000'003);
    stream.take(1'000'000'000'003, copy, pieces);
    REQUIRE(pieces.size() == 3);
    CHECK(pieces[0].data[0] == 2);
    CHECK(pieces[1].length == 1'000'000'000'000);
    CHECK(pieces[2].length == 2);
    CHECK(pieces[2].data[1] == 4);
    CHECK(stream.empty());
}

TEST_CASE("a flow that loses packets runs at about a packet per round trip and root of the losses") {
    const Duration round_trip = 40 * millisecond;
    constexpr double bytes = 20e6;
    double last = 1e18;
    for (const std::uint32_t per_million : {1'000u, 5'000u, 20'000u}) {
        NetworkParameters parameters;
        parameters.latency_low = parameters.latency_high = round_trip / 2;
        parameters.window_low = parameters.window_high = 4 << 20;
        parameters.loss_per_million = per_million;
        Flows flows(2, parameters);
        flows.add(0, 1, static_cast<std::uint64_t>(bytes));
        flows.run();
        REQUIRE(flows.arrived(0) == static_cast<std::uint64_t>(bytes));
        const double rate = bytes / (static_cast<double>(flows.done(0)) / second);
        // Mathis, Semke, Mahdavi, Ott: "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997.
        const double expected = CongestionWindow::packet / (static_cast<double>(round_trip) / second) * 1.22 /
                                std::sqrt(static_cast<double>(per_million) / 1e6);
        INFO(per_million << ": " << rate << " of " << expected << " bytes per second");
        CHECK(rate > expected / 3);
        CHECK(rate < expected * 3);
        CHECK(rate < last);
        last = rate;
    }
}

TEST_CASE("what would wait long for its uplink is lost, and the sender slows down") {
    NetworkParameters parameters;
    parameters.latency_low = parameters.latency_high = 10 * millisecond;
    parameters.rate_low = parameters.rate_high = 1'000'000;
    parameters.window_low = parameters.window_high = 4 << 20;
    Flows patient(2, parameters);
    patient.add(0, 1, 4'000'000);
    patient.run();
    parameters.queue_max = 50 * millisecond;
    Flows dropped(2, parameters);
    dropped.add(0, 1, 4'000'000);
    dropped.run();
    REQUIRE(dropped.arrived(0) == 4'000'000);
    CHECK(patient.done(0) < 5 * second);
    CHECK(dropped.done(0) < 2 * patient.done(0));
    // The sender has little more in flight than the path and its queue hold.
    const auto latest = [](Flows& flows) {
        Duration longest = 0;
        for (const Delay& delay : flows.network().delays()) longest = std::max(longest, delay.longest);
        return longest;
    };
    CHECK(latest(dropped) < latest(patient) / 2);
}
