// The decisions of bench/delay_line: when packets leave, and what is left of a large packet that loses a segment.
#include "bench/delay_queue.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

using namespace pccl::bench;

namespace {

constexpr std::size_t head = sizeof(PacketHead), ip_bytes = 20, tcp_bytes = 20;
constexpr std::uint16_t segment = 1000;

// A TCP packet from 10.99.0.1 to 10.99.0.2 with `payload` bytes; byte i is i % 251.
std::vector<std::uint8_t> make_packet(std::size_t payload, std::uint16_t port = 1) {
    std::vector<std::uint8_t> packet(head + ip_bytes + tcp_bytes + payload);
    PacketHead first{};
    first.gso_type = payload > segment ? 1 : 0;
    first.gso_size = payload > segment ? segment : 0;
    std::memcpy(packet.data(), &first, head);
    std::uint8_t* ip = packet.data() + head;
    const std::size_t length = packet.size() - head;
    ip[0] = 0x45;
    ip[2] = static_cast<std::uint8_t>(length >> 8);
    ip[3] = static_cast<std::uint8_t>(length);
    ip[9] = 6;
    const std::uint8_t addresses[] = {10, 99, 0, 1, 10, 99, 0, 2};
    std::memcpy(ip + 12, addresses, sizeof addresses);
    std::uint8_t* tcp = ip + ip_bytes;
    tcp[1] = static_cast<std::uint8_t>(port);
    tcp[12] = 0x50;
    tcp[13] = 0x18;  // ACK and PSH
    for (std::size_t i = 0; i < payload; ++i) tcp[tcp_bytes + i] = static_cast<std::uint8_t>(i % 251);
    return packet;
}

std::uint32_t sequence_of(const std::vector<std::uint8_t>& packet) {
    const std::uint8_t* at = packet.data() + head + ip_bytes + 4;
    return static_cast<std::uint32_t>(at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]);
}

std::uint32_t sum_of_header(const std::vector<std::uint8_t>& packet) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < ip_bytes; i += 2)
        sum += static_cast<std::uint32_t>(packet[head + i] << 8 | packet[head + i + 1]);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

std::vector<Delayed> take_all(DelayQueue& queue) {
    std::vector<Delayed> packets;
    while (queue.next_due() >= 0) packets.push_back(queue.take());
    return packets;
}

}  // namespace

TEST_CASE("segments that are cut out are those that the sender would have sent") {
    const auto whole = make_packet(3500);
    const auto middle = cut_segments(whole.data(), whole.size(), 1, 2);
    CHECK(middle.size() == head + ip_bytes + tcp_bytes + 2000);
    CHECK(sequence_of(middle) == 1000);
    CHECK(sum_of_header(middle) == 0xffff);
    CHECK(middle[head + ip_bytes + 13] == 0x10);  // PSH belongs to the last segment
    CHECK(std::equal(middle.end() - 2000, middle.end(), whole.begin() + head + ip_bytes + tcp_bytes + 1000));
    const auto last = cut_segments(whole.data(), whole.size(), 3, 1);
    CHECK(last.size() == head + ip_bytes + tcp_bytes + 500);
    CHECK(last[1] == 0);  // one segment needs no offload
    CHECK(last[head + ip_bytes + 13] == 0x18);
}

TEST_CASE("a flow leaves at its rate, another one beside it, and both arrive after the latency") {
    DelayQueue queue({.latency_ns = 20'000'000, .flow_bytes_per_second = 1e6});
    const auto packet = make_packet(960);  // 1000 bytes on the wire: 1 ms
    for (const std::uint16_t port : {std::uint16_t{1}, std::uint16_t{1}, std::uint16_t{2}}) queue.accept(make_packet(960, port).data(), packet.size(), 0, 2, 0);
    const auto packets = take_all(queue);
    REQUIRE(packets.size() == 3);
    CHECK(packets[0].due == 21'000'000);
    CHECK(packets[1].due == 21'000'000);
    CHECK(packets[2].due == 22'000'000);
    CHECK(packets[0].target == 1);
}

TEST_CASE("segments that would wait longer than the queue allows are lost, the others of the packet are not") {
    DelayQueue queue({.flow_bytes_per_second = 1e6, .queue_ns = 2'500'000});
    const auto packet = make_packet(10'000);
    queue.accept(packet.data(), packet.size(), 0, 2, 0);
    const auto packets = take_all(queue);
    REQUIRE(packets.size() == 1);
    CHECK(queue.counters().segments == 3);
    CHECK(queue.counters().lost_queue == 7);
    CHECK(packets[0].bytes.size() == head + ip_bytes + tcp_bytes + 3000);
}

TEST_CASE("losses come from the seed, at the rate that was asked for") {
    const auto lost = [](std::uint64_t seed, std::vector<std::int64_t>& sizes) {
        DelayQueue queue({.loss = 0.01, .seed = seed});
        const auto packet = make_packet(20'000);
        for (int i = 0; i < 5000; ++i) queue.accept(packet.data(), packet.size(), 0, 2, i);
        for (const Delayed& each : take_all(queue)) sizes.push_back(static_cast<std::int64_t>(each.bytes.size()));
        CHECK(queue.counters().segments + queue.counters().lost_random == 100'000);
        return queue.counters().lost_random;
    };
    std::vector<std::int64_t> first, again, other;
    const std::uint64_t count = lost(7, first);
    CHECK(count > 900);
    CHECK(count < 1100);
    CHECK(lost(7, again) == count);
    CHECK(first == again);
    lost(8, other);
    CHECK(first != other);
}

TEST_CASE("one flow that carries data is held at a time, and the next one when its time is over") {
    DelayQueue queue({.latency_ns = 20, .stall_ns = 1'000'000});
    const auto send = [&](std::uint16_t port, std::size_t bytes, std::int64_t now) {
        const auto packet = make_packet(bytes, port);
        queue.accept(packet.data(), packet.size(), 0, 2, now);
        return take_all(queue).at(0).due;
    };
    CHECK(send(1, 100, 0) == 20);  // an acknowledgement
    CHECK(send(1, 5000, 1000) == 1'001'020);
    CHECK(send(2, 5000, 2000) == 2020);
    CHECK(send(1, 100, 3000) == 1'001'020);        // all of the flow
    CHECK(send(1, 5000, 1'001'000) == 1'001'020);  // not again
    CHECK(send(2, 5000, 1'002'000) == 2'002'020);
}
