// Bandwidth tests at a peer: the sending end fills connections of its own for a short time, the receiving end counts what
// comes over its own clock and says when it has seen enough. What goes wrong ends the test and nothing else.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
// A frame is to take about this long on its connection: long enough to cost little, short enough to count finely.
constexpr Duration frame_short = 5 * millisecond;
constexpr Duration frame_long = 20 * millisecond;
// Deep buffers take many frames at once: how fast those leave says nothing, so frames grow with what was sent.
constexpr std::uint64_t frames_behind = 32;
}  // namespace

// ---- sending end ---------------------------------------------------------------------------------------------------

void PeerCore::on_test_order(const proto::TestOrder& order) {
    end_test();
    SendingTest test;
    Endpoint target;
    if (order.test() == 0 || !read(order.target().peer(), test.target) || test.target == uuid_ ||
        !read(order.target().address(), target))
        return;
    test.id = order.test();
    test.began = turn_.now;
    test.buffer = new_buffer(std::min(config_.limits.test_frame_most, config_.limits.payload_bytes_max));
    const std::uint32_t connections =
        std::clamp<std::uint32_t>(config_.limits.test_connections, 1, config_.limits.stripes_max);
    for (std::uint32_t i = 0; i < connections; ++i) {
        const LinkId id = links_.dial(Purpose::test_out, test.target, i, target, pass_from(order.target()));
        links_.at(id).test.id = test.id;
        test.links.insert(id);
    }
    sending_test_ = std::move(test);
}

// Ends the test that this peer sends, whatever its state; nothing more is said of it here.
void PeerCore::end_test() {
    if (!sending_test_) return;
    const SendingTest test = std::move(*sending_test_);
    sending_test_.reset();
    for (const LinkId id : test.links) {
        links_.erase(id);
        turn_.add(CloseLink{id, false});
    }
    if (test.usable)
        turn_.add(FreeBuffer{test.buffer});
    else if (test.buffer != 0)
        unwanted_buffers_.insert(test.buffer);
}

void PeerCore::report_test(std::uint64_t bytes, std::uint64_t nanoseconds) {
    proto::PeerMessage message;
    message.mutable_measured()->set_test(sending_test_->id);
    message.mutable_measured()->set_bytes(bytes);
    message.mutable_measured()->set_nanoseconds(nanoseconds);
    end_test();
    if (master_open()) links_.send(master_link_, message);
}

void PeerCore::test_link_opened(LinkId id, Link& link) {
    proto::LinkMessage message;
    auto* hello = message.mutable_hello();
    *hello = link_hello(link);
    hello->set_test(link.test.id);
    hello->set_test_bytes(config_.limits.test_bytes);
    hello->set_round_trip_ns(static_cast<std::uint64_t>(turn_.now - link.test.dialled));
    links_.send(id, message);
}

void PeerCore::on_test_message(LinkId id, const ControlArrived& event) {
    Link& link = links_.at(id);
    proto::LinkMessage message;
    if (!decode(event.body, message)) {
        ++refused_frames_;
        drop_link(id, "sent a message that cannot be read");
    } else if (link.stage != Stage::open && message.has_welcome() &&
               message.welcome().from() == to_bytes(link.remote) &&
               same_secret(link.pass.welcome, message.welcome().pass())) {
        link.stage = Stage::open;
        send_test_frame(id, link);
    } else if (link.stage == Stage::open && message.has_test_result() && message.test_result().test() == link.test.id) {
        PROBE(bandwidth_measured);
        report_test(message.test_result().bytes(), message.test_result().nanoseconds());
    } else if (link.stage != Stage::open || !message.has_heartbeat()) {
        ++refused_frames_;
        drop_link(id, message.has_refusal() ? message.refusal().text() : "sent a message that does not fit a test");
    }
}

void PeerCore::send_test_frame(LinkId id, Link& link) {
    SendingTest& test = *sending_test_;
    if (!test.usable || link.stage != Stage::open || link.sending.op != 0 || test.bytes >= config_.limits.test_bytes)
        return;
    const std::uint64_t left = config_.limits.test_bytes - test.bytes;
    const std::uint32_t most = std::min(config_.limits.test_frame_most, config_.limits.payload_bytes_max);
    const std::uint32_t least = config_.limits.test_frame_least;
    const std::uint64_t grown =
        std::clamp<std::uint64_t>(link.test.sent / frames_behind, least, config_.limits.test_frame_most);
    link.test.frame = std::min({std::max(link.test.frame, least), static_cast<std::uint32_t>(grown), most});
    SendPayload send;
    send.link = id;
    send.header.op = test.id;
    send.header.phase = 3;
    send.header.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(link.test.frame, left));
    send.source = BufferRef{test.buffer, 0, send.header.length};
    test.bytes += send.header.length;
    link.test.sent += send.header.length;
    link.sending = Transfer{test.id, 3, 0, 0, Operation::none, false};
    link.test.handed = turn_.now;
    turn_.add(send);
}

void PeerCore::test_frame_sent(LinkId id, Link& link) {
    link.sending = Transfer{};
    const Duration took = turn_.now - link.test.handed;
    if (took < frame_short) link.test.frame *= 2;
    if (took > frame_long) link.test.frame /= 2;
    send_test_frame(id, link);
}

// ---- receiving end -------------------------------------------------------------------------------------------------

void PeerCore::accept_test(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass) {
    const auto open = std::count_if(links_.begin(), links_.end(),
                                    [](const auto& entry) { return entry.second.purpose == Purpose::test_in; });
    if (open >= static_cast<std::ptrdiff_t>(2 * config_.limits.stripes_max)) {
        drop_link(id, "too many connections of tests");
        return;
    }
    Link& link = links_.at(id);
    link.purpose = Purpose::test_in;
    link.remote = from;
    link.stage = Stage::open;
    link.test.id = hello.test();
    const auto [test, fresh] = receiving_tests_.try_emplace({from, hello.test()});
    if (fresh) {
        const auto longest = static_cast<std::uint64_t>(config_.timeouts.test);
        const auto round_trip = static_cast<Duration>(std::min<std::uint64_t>(hello.round_trip_ns(), longest));
        test->second.meter = RateMeter(round_trip, config_.timeouts.test, hello.test_bytes());
    }
    test->second.links.insert(id);
    proto::LinkMessage message;
    message.mutable_welcome()->set_from(to_bytes(uuid_));
    message.mutable_welcome()->set_pass(to_bytes(pass.welcome));
    links_.send(id, message);
}

void PeerCore::test_frame_arrives(LinkId id, Link& link, const wire::BulkHeader& header) {
    link.receiving = Transfer{link.test.id, 3, 0, header.length, Operation::none, true};
    link.test.handed = turn_.now;
    turn_.add(DiscardPayload{id});
}

void PeerCore::test_frame_landed(LinkId id, Link& link) {
    const std::uint64_t bytes = link.receiving.entry;
    link.receiving = Transfer{};
    const auto test = receiving_tests_.find({link.remote, link.test.id});
    ASSERT(test != receiving_tests_.end());
    if (test->second.told) return;
    test->second.meter.landed(link.test.handed, turn_.now, bytes);
    test->second.last_link = id;
    conclude_test(test->second, link.test.id);
}

void PeerCore::conclude_test(ReceivingTest& test, std::uint64_t id) {
    if (test.told || test.last_link == 0 || !test.meter.concluded(turn_.now)) return;
    test.told = true;
    const RateMeter::Rate rate = test.meter.rate();
    proto::LinkMessage message;
    message.mutable_test_result()->set_test(id);
    message.mutable_test_result()->set_bytes(rate.bytes);
    message.mutable_test_result()->set_nanoseconds(static_cast<std::uint64_t>(rate.duration));
    // Any connection will do; the one that spoke last is alive.
    const LinkId link = test.links.contains(test.last_link) ? test.last_link : *test.links.begin();
    links_.send(link, message);
}

// ---- both ----------------------------------------------------------------------------------------------------------

void PeerCore::test_link_lost(LinkId id, const Link& link) {
    if (link.purpose == Purpose::test_in) {
        const auto test = receiving_tests_.find({link.remote, link.test.id});
        if (test == receiving_tests_.end()) return;
        test->second.links.erase(id);
        if (test->second.links.empty()) receiving_tests_.erase(test);
        return;
    }
    if (!sending_test_ || sending_test_->links.erase(id) == 0) return;
    // Fewer connections would measure something else.
    PROBE(bandwidth_test_failed);
    report_test(0, 0);
}

bool PeerCore::test_allocated(BufferId buffer, bool ok) {
    if (unwanted_buffers_.erase(buffer) != 0) {
        PROBE(bandwidth_test_over_before_memory);
        if (ok) turn_.add(FreeBuffer{buffer});
        return true;
    }
    if (!sending_test_ || sending_test_->buffer != buffer) return false;
    if (!ok) {
        sending_test_->buffer = 0;
        report_test(0, 0);
        return true;
    }
    sending_test_->usable = true;
    const std::set<LinkId> links = sending_test_->links;
    for (const LinkId id : links) send_test_frame(id, links_.at(id));
    return true;
}

void PeerCore::tests_tick() {
    for (auto& [name, test] : receiving_tests_) conclude_test(test, name.second);
    if (sending_test_ && turn_.now - sending_test_->began > config_.timeouts.dial + 2 * config_.timeouts.test) {
        PROBE(bandwidth_test_timed_out);
        report_test(0, 0);
    }
}

}  // namespace pccl::core
