#include "core/topology/bandwidth_probe.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>

namespace pccl::core {

using Purpose = Link::Purpose;
using Stage = Link::Stage;

namespace {
// A frame should occupy its connection for 5 to 20 ms. Shorter frames cost more; longer ones make the count coarse.
constexpr Duration frame_short = 5 * millisecond;
constexpr Duration frame_long = 20 * millisecond;
// A deep send buffer takes many frames at once, so the time in which they leave says nothing about the bandwidth. For
// this reason a frame is at most 1/frames_behind of what its connection has sent so far.
constexpr std::uint64_t frames_behind = 32;
}  // namespace

// ---- sending end ---------------------------------------------------------------------------------------------------

void BandwidthProbe::begin(const proto::TestOrder& order) {
    end();
    Sending test;
    Endpoint target;
    if (order.test() == 0 || !read(order.target().peer(), test.target) || test.target == who_.uuid ||
        !read(order.target().address(), target))
        return;
    test.id = order.test();
    test.began = turn_.now;
    test.buffer = memory_.request(std::min(turn_.limits.test_frame_most, turn_.limits.payload_bytes_max), TestMemory{});
    const std::uint32_t connections =
        std::clamp<std::uint32_t>(turn_.limits.test_connections, 1, turn_.limits.stripes_max);
    for (std::uint32_t i = 0; i < connections; ++i) {
        const LinkId id = links_.dial(Purpose::test_out, test.target, i, target, pass_from(order.target()));
        connections_[id].test = test.id;
        connections_[id].dialled = turn_.now;
        test.links.insert(id);
    }
    sending_ = std::move(test);
}

void BandwidthProbe::end() {
    if (!sending_) return;
    const Sending test = std::move(*sending_);
    sending_.reset();
    for (const LinkId id : test.links) {
        connections_.erase(id);
        links_.erase(id);
        turn_.add(CloseLink{id, false});
    }
    if (test.usable)
        memory_.free(test.buffer);
    else if (test.buffer != 0)
        unwanted_.insert(test.buffer);
}

void BandwidthProbe::report(std::uint64_t bytes, std::uint64_t nanoseconds) {
    proto::PeerMessage message;
    message.mutable_measured()->set_test(sending_->id);
    message.mutable_measured()->set_bytes(bytes);
    message.mutable_measured()->set_nanoseconds(nanoseconds);
    end();
    master_.tell(std::move(message));
}

void BandwidthProbe::opened(LinkId id) {
    const Connection& connection = connections_.at(id);
    proto::LinkMessage message;
    auto* hello = message.mutable_hello();
    *hello = links_.hello(links_.at(id));
    hello->set_test(connection.test);
    hello->set_test_bytes(turn_.limits.test_bytes);
    hello->set_round_trip_ns(static_cast<std::uint64_t>(turn_.now - connection.dialled));
    links_.send(id, message);
}

void BandwidthProbe::message_arrived(LinkId id, const ControlArrived& event) {
    Link& link = links_.at(id);
    proto::LinkMessage message;
    if (!decode(event.body, message)) {
        links_.refuse(id, "sent a message that cannot be read");
    } else if (!link.is_open() && message.has_welcome() && message.welcome().from() == to_bytes(link.remote) &&
               same_secret(link.pass.welcome, message.welcome().pass())) {
        link.stage = Stage::open;
        send_frame(id);
    } else if (link.is_open() && message.has_test_result() &&
               message.test_result().test() == connections_.at(id).test) {
        PROBE(bandwidth_measured);
        report(message.test_result().bytes(), message.test_result().nanoseconds());
    } else if (!link.is_open() || !message.has_heartbeat()) {
        links_.refuse(id, message.has_refusal() ? to_text(cause_of(message.refusal().cause()))
                                                : "sent a message that does not fit a test");
    }
}

void BandwidthProbe::send_frame(LinkId id) {
    Sending& test = *sending_;
    Link& link = links_.at(id);
    Connection& connection = connections_.at(id);
    if (!test.usable || !link.is_open() || link.sending.op != 0 || test.bytes >= turn_.limits.test_bytes) return;
    const std::uint64_t left = turn_.limits.test_bytes - test.bytes;
    const std::uint32_t most = std::min(turn_.limits.test_frame_most, turn_.limits.payload_bytes_max);
    const std::uint32_t least = turn_.limits.test_frame_least;
    const std::uint64_t grown =
        std::clamp<std::uint64_t>(connection.sent / frames_behind, least, turn_.limits.test_frame_most);
    connection.frame = std::min({std::max(connection.frame, least), static_cast<std::uint32_t>(grown), most});
    SendPayload send;
    send.link = id;
    send.header.op = test.id;
    send.header.phase = 3;
    send.header.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(connection.frame, left));
    send.source = BufferRef{test.buffer, 0, send.header.length};
    test.bytes += send.header.length;
    connection.sent += send.header.length;
    link.sending = Transfer{test.id, 3, 0, 0, Transfer::no_cell, false};
    connection.begun = turn_.now;
    turn_.add(send);
}

void BandwidthProbe::frame_sent(LinkId id) {
    links_.at(id).sending = Transfer{};
    Connection& connection = connections_.at(id);
    const Duration took = turn_.now - connection.begun;
    if (took < frame_short) connection.frame *= 2;
    if (took > frame_long) connection.frame /= 2;
    send_frame(id);
}

void BandwidthProbe::memory_came(const BufferAllocated& event) {
    if (unwanted_.erase(event.buffer) != 0) {
        PROBE(bandwidth_test_over_before_memory);
        if (event.ok) memory_.free(event.buffer);
        return;
    }
    ASSERT(sending_ && sending_->buffer == event.buffer);
    if (!event.ok) {
        sending_->buffer = 0;
        report(0, 0);
        return;
    }
    sending_->usable = true;
    const std::set<LinkId> links = sending_->links;
    for (const LinkId id : links) send_frame(id);
}

// ---- receiving end -------------------------------------------------------------------------------------------------

void BandwidthProbe::accept(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass) {
    const auto open = std::count_if(links_.begin(), links_.end(),
                                    [](const auto& entry) { return entry.second.purpose == Purpose::test_in; });
    if (open >= static_cast<std::ptrdiff_t>(2 * turn_.limits.stripes_max)) {
        links_.drop(id, "too many connections of tests");
        return;
    }
    Link& link = links_.at(id);
    link.purpose = Purpose::test_in;
    link.remote = from;
    link.stage = Stage::open;
    connections_[id].test = hello.test();
    const auto [test, fresh] = receiving_.try_emplace({from, hello.test()});
    if (fresh) {
        const auto longest = static_cast<std::uint64_t>(turn_.timeouts.test);
        const auto round_trip = static_cast<Duration>(std::min<std::uint64_t>(hello.round_trip_ns(), longest));
        test->second.meter = RateMeter(round_trip, turn_.timeouts.test, hello.test_bytes());
    }
    test->second.links.insert(id);
    proto::LinkMessage message;
    message.mutable_welcome()->set_from(to_bytes(who_.uuid));
    message.mutable_welcome()->set_pass(to_bytes(pass.welcome));
    links_.send(id, message);
}

void BandwidthProbe::frame_arrives(LinkId id, const wire::BulkHeader& header) {
    Connection& connection = connections_.at(id);
    links_.at(id).receiving = Transfer{connection.test, 3, 0, header.length, Transfer::no_cell, true};
    connection.begun = turn_.now;
    turn_.add(DiscardPayload{id});
}

void BandwidthProbe::frame_landed(LinkId id) {
    Link& link = links_.at(id);
    const Connection& connection = connections_.at(id);
    const std::uint64_t bytes = link.receiving.entry;
    link.receiving = Transfer{};
    const auto test = receiving_.find({link.remote, connection.test});
    ASSERT(test != receiving_.end());
    if (test->second.told) return;
    test->second.meter.landed(connection.begun, turn_.now, bytes);
    test->second.last_link = id;
    conclude(test->second, connection.test);
}

void BandwidthProbe::conclude(Receiving& test, std::uint64_t id) {
    if (test.told || test.last_link == 0 || !test.meter.concluded(turn_.now)) return;
    test.told = true;
    const RateMeter::Rate rate = test.meter.rate();
    proto::LinkMessage message;
    message.mutable_test_result()->set_test(id);
    message.mutable_test_result()->set_bytes(rate.bytes);
    message.mutable_test_result()->set_nanoseconds(static_cast<std::uint64_t>(rate.duration));
    // Any connection can carry the result. The one that delivered last is alive.
    const LinkId link = test.links.contains(test.last_link) ? test.last_link : *test.links.begin();
    links_.send(link, message);
}

// ---- both ----------------------------------------------------------------------------------------------------------

void BandwidthProbe::lost(LinkId id, const Link& link) {
    const auto connection = connections_.find(id);
    ASSERT(connection != connections_.end());
    const std::uint64_t test_id = connection->second.test;
    connections_.erase(connection);
    if (link.purpose == Purpose::test_in) {
        const auto test = receiving_.find({link.remote, test_id});
        if (test == receiving_.end()) return;
        test->second.links.erase(id);
        if (test->second.links.empty()) receiving_.erase(test);
        return;
    }
    if (!sending_ || sending_->links.erase(id) == 0) return;
    // With fewer connections the test would measure something else.
    PROBE(bandwidth_test_failed);
    report(0, 0);
}

void BandwidthProbe::tick() {
    for (auto& [name, test] : receiving_) conclude(test, name.second);
    if (sending_ && turn_.now - sending_->began > turn_.timeouts.dial + 2 * turn_.timeouts.test) {
        PROBE(bandwidth_test_timed_out);
        report(0, 0);
    }
}

void BandwidthProbe::forget() {
    end();
    receiving_.clear();
    connections_.clear();
}

void BandwidthProbe::check() const {
    std::size_t test_links = 0;
    for (const auto& [id, link] : links_) {
        const bool tests = link.purpose == Link::Purpose::test_out || link.purpose == Link::Purpose::test_in;
        ASSERT(tests == connections_.contains(id));
        test_links += tests ? 1 : 0;
    }
    ASSERT(test_links == connections_.size());
    if (sending_) {
        for (const LinkId id : sending_->links) ASSERT(connections_.contains(id));
    }
    for (const auto& [key, test] : receiving_) {
        for (const LinkId id : test.links) ASSERT(connections_.contains(id));
    }
}

}  // namespace pccl::core
