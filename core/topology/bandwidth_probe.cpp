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
// Bytes queue on the path if they take longer than this many round trips and this time.
constexpr std::uint32_t round_trips_without_queue = 2;
constexpr Duration queue_least = 10 * millisecond;
// A test of few bytes has no time for changes.
constexpr std::uint64_t frames_before_settled = 8;
constexpr std::uint64_t bytes_before_settled = 4;  // 1/4 of Limits::test_bytes
// How often the receiver says what has come, while the sender decides: two words give a rate, and one more may be about
// bytes that left before a change.
std::uint32_t words_needed(std::uint32_t changes) { return changes == 0 ? 2 : 3; }
constexpr Duration round_trip_of_first = 25 * millisecond;  // up to which Limits::test_connections_first are the first

// What each frame says about the sender's connections.
std::uint32_t word_of(std::uint32_t changes, bool settled) { return 2 * changes + (settled ? 1 : 0); }
std::uint32_t changes_of(std::uint32_t word) { return word / 2; }
bool is_settled(std::uint32_t word) { return word % 2 != 0; }
}  // namespace

// ---- sending end ---------------------------------------------------------------------------------------------------

void BandwidthProbe::begin(const proto::TestOrder& order) {
    end();
    Sending test;
    Addresses addresses;
    if (order.test() == 0 || !read(order.target().peer(), test.target) || test.target == who_.uuid ||
        !read_addresses(order.target(), addresses))
        return;
    test.id = order.test();
    test.way.aim(addresses);
    test.pass = pass_from(order.target());
    dial(std::move(test));
}

void BandwidthProbe::dial(Sending test) {
    test.began = turn_.now;
    test.buffer = memory_.request(std::min(turn_.limits.test_frame_most, turn_.limits.payload_bytes_max), TestMemory{});
    const std::uint32_t connections =
        std::clamp<std::uint32_t>(turn_.limits.test_connections, 1, turn_.limits.stripes_max);
    for (std::uint32_t i = 0; i < connections; ++i) {
        const LinkId id = links_.dial(Purpose::test_out, test.target, i, test.way.next(), test.pass);
        links_.at(id).dial_longest = test.way.patience(turn_.timeouts.dial, master_.round_trip());
        connections_[id].test = test.id;
        connections_[id].dialled = turn_.now;
        connections_[id].order = i;
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
    choose_first(turn_.now - connection.dialled);
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
        if (message.test_result().running()) return progressed(message.test_result());
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
    if (!test.usable || !link.is_open() || link.sending.op != 0 || connection.order >= test.active ||
        test.bytes >= turn_.limits.test_bytes || test.bytes - test.confirmed >= unconfirmed_max())
        return;
    test.started = std::min(test.started, turn_.now);
    if (test.bytes >= turn_.limits.test_bytes / bytes_before_settled) test.settled = true;
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
    send.header.slice = word_of(test.changes, test.settled);
    send.header.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(connection.frame, left));
    send.source = BufferRef{test.buffer, 0, send.header.length};
    test.bytes += send.header.length;
    connection.sent += send.header.length;
    link.sending = Transfer{test.id, 3, 0, 0, Transfer::no_cell, false};
    connection.begun = turn_.now;
    turn_.add(send);
}

// A connection carries less on a longer path, and there is less time to find out.
void BandwidthProbe::choose_first(Duration round_trip) {
    Sending& test = *sending_;
    test.round_trip = std::min(test.round_trip, round_trip);
    if (test.bytes != 0) return;
    const auto all = static_cast<std::uint32_t>(test.links.size());
    const auto times = static_cast<std::uint64_t>(test.round_trip / round_trip_of_first + 1);
    test.active = static_cast<std::uint32_t>(std::min<std::uint64_t>(all, times * turn_.limits.test_connections_first));
    test.settled = test.active == all ||
                   turn_.limits.test_bytes < frames_before_settled * turn_.limits.test_frame_least;
}

// Since the first byte could arrive. A round trip says nothing about the path's bandwidth.
Duration BandwidthProbe::arriving_since() const {
    return std::max(turn_.now - sending_->started - sending_->round_trip, queue_least);
}

// Bytes that arrive in this time, as far as the receiver has said.
std::uint64_t BandwidthProbe::arrive_in(Duration time) const {
    const auto bytes = static_cast<unsigned __int128>(sending_->confirmed) * static_cast<std::uint64_t>(time) /
                       static_cast<std::uint64_t>(arriving_since());
    return static_cast<std::uint64_t>(std::min<unsigned __int128>(bytes, turn_.limits.test_bytes));
}

// Bytes that may be on their way. Never less than what has arrived: as much may arrive until the receiver says so.
std::uint64_t BandwidthProbe::unconfirmed_max() const {
    const std::uint64_t always = always_sent(turn_.timeouts);
    if (sending_->confirmed == 0) return always;
    return std::max(always, arrive_in(std::max(turn_.timeouts.hiccup(), arriving_since())));
}

void BandwidthProbe::send_frames() {
    for (const LinkId id : sending_->links) send_frame(id);
}

// Sends what may follow now, and uses more connections until bytes queue on the path.
void BandwidthProbe::progressed(const proto::TestResult& word) {
    Sending& test = *sending_;
    const std::uint64_t came = word.bytes();
    if (came <= test.confirmed || came > test.bytes) return;
    test.confirmed = came;
    send_frames();
    if (word.early() || test.settled) return;
    const Duration took = std::max<Duration>(turn_.now - test.came_at, 1);
    const std::uint64_t bytes = came - test.came;
    const bool first = test.came == 0;
    test.came = came;
    test.came_at = turn_.now;
    // A rate needs two words, and the second one must not be about bytes that left before the last change.
    if (first || came < test.before) return;
    const auto queued = static_cast<unsigned __int128>(test.bytes - came) * static_cast<std::uint64_t>(took) / bytes;
    const Duration most = round_trips_without_queue * test.round_trip + queue_least;
    const auto all = static_cast<std::uint32_t>(test.links.size());
    if (queued > static_cast<std::uint64_t>(most)) return settle(test.active);
    PROBE(bandwidth_test_grows);
    settle(std::min(all, 2 * test.active));
}

void BandwidthProbe::settle(std::uint32_t active) {
    Sending& test = *sending_;
    test.settled = active == test.active || active == test.links.size();
    test.changes += active == test.active ? 0 : 1;
    test.active = active;
    test.before = test.bytes;
    send_frames();
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
    send_frames();
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
        test->second.round_trip = round_trip;
        test->second.bytes_max = hello.test_bytes();
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
    connection.word = header.slice;
    turn_.add(DiscardPayload{id});
}

void BandwidthProbe::frame_landed(LinkId id) {
    Link& link = links_.at(id);
    const Connection& connection = connections_.at(id);
    const std::uint64_t bytes = link.receiving.entry;
    link.receiving = Transfer{};
    const auto test = receiving_.find({link.remote, connection.test});
    ASSERT(test != receiving_.end());
    Receiving& receiving = test->second;
    if (receiving.told) return;
    receiving.last_link = id;
    if (receiving.first == never) receiving.first = receiving.said_at = turn_.now;
    if (changes_of(connection.word) > receiving.changes) {
        receiving.changes = changes_of(connection.word);
        restart(receiving);
    }
    receiving.settled |= is_settled(connection.word);
    receiving.came += bytes;
    receiving.meter.landed(connection.begun, turn_.now, bytes);
    say_progress(receiving, connection.test);
    conclude(receiving, connection.test);
}

void BandwidthProbe::restart(Receiving& test) {
    const Duration left = turn_.timeouts.test - (turn_.now - test.first);
    test.meter = RateMeter(test.round_trip, std::max(left, turn_.timeouts.test / 4),
                           test.bytes_max - std::min(test.bytes_max, test.came));
    test.said = 0;
    test.enough_at = never;
}

// The sender decides by the second word at the latest. If it then uses more connections, no bytes queue on the path,
// and their frames come soon.
bool BandwidthProbe::may_conclude(const Receiving& test) const {
    if (test.settled || turn_.now - test.first >= turn_.timeouts.test) return true;
    const Duration soon = (2 + round_trips_without_queue) * test.round_trip + 2 * queue_least;
    return test.enough_at != never && turn_.now - test.enough_at >= soon;
}

// The sender waits for these words. When all that it may have sent has arrived, that is twice what the last word said.
void BandwidthProbe::say_progress(Receiving& test, std::uint64_t id) {
    const bool early = turn_.now - test.said_at < std::max(test.round_trip, queue_least);
    if (early && test.came < 2 * test.came_when_said) return;
    test.came_when_said = test.came;
    if (!early) {
        test.said_at = turn_.now;
        if (++test.said == words_needed(test.changes)) test.enough_at = turn_.now;
    }
    proto::LinkMessage message;
    message.mutable_test_result()->set_test(id);
    message.mutable_test_result()->set_bytes(test.came);
    message.mutable_test_result()->set_running(true);
    message.mutable_test_result()->set_early(early);
    tell(test, message);
}

// Any connection can carry it. The one that delivered last is alive.
void BandwidthProbe::tell(Receiving& test, const proto::LinkMessage& message) {
    links_.send(test.links.contains(test.last_link) ? test.last_link : *test.links.begin(), message);
}

void BandwidthProbe::conclude(Receiving& test, std::uint64_t id) {
    if (test.told || test.last_link == 0) return;
    if (!may_conclude(test) || !test.meter.concluded(turn_.now)) return;
    test.told = true;
    const RateMeter::Rate rate = test.meter.rate();
    proto::LinkMessage message;
    message.mutable_test_result()->set_test(id);
    message.mutable_test_result()->set_bytes(rate.bytes);
    message.mutable_test_result()->set_nanoseconds(static_cast<std::uint64_t>(rate.duration));
    tell(test, message);
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
    if (!link.is_open() && sending_->way.failed()) {
        PROBE(other_address_next);
        Sending again;
        again.id = sending_->id;
        again.target = sending_->target;
        again.way = sending_->way;
        again.pass = sending_->pass;
        end();
        return dial(std::move(again));
    }
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
