// Bandwidth tests at a peer, both ends. The sender fills connections of its own for a short time. The receiver counts
// the bytes that arrive by its own clock, and sends the rate to the sender when it has seen enough. The sender reports
// to the master.
//
// A test begins with few connections. While bytes do not queue on the path, the sender does not fill it, so it uses
// more connections. On a slow path more of them would only fill queues, which takes long to measure, and disturbs the
// tests that follow. The receiver begins anew when it sees a frame that left after such a change. It does not conclude
// before such a frame would have come.
//
// All that a peer says goes the same way as the bytes of its test. Therefore the bytes that have not arrived yet are
// bounded by what the path carries in a fraction of the peer time-out, as the receiver's words tell. A test may never
// delay heartbeats so long that a peer is taken for dead.
//
// A test uses only its own connections and its own memory. A failure ends the test, and the sender reports that nothing
// was measured; nothing else follows. At most one test is sent at a time; several may be received.
#pragma once

#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/requests.hpp"
#include "core/topology/bandwidth.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pccl::core {

class BandwidthProbe {
public:
    BandwidthProbe(Turn& turn, LinkTable& links, Memory& memory, const Identity& who, MasterLine& master)
        : turn_(turn), links_(links), memory_(memory), who_(who), master_(master) {}

    // Bytes that may be on their way on any path, also before the first of them has arrived: those that a path of
    // 48 kB/s carries in this fraction of the peer time-out.
    static std::uint64_t always_sent(const Timeouts& timeouts) {
        return std::max<std::uint64_t>(1, 48'000 * static_cast<std::uint64_t>(timeouts.hiccup()) / second);
    }

    // ---- sending end
    // Starts the test that the master ordered. A test that still runs ends first.
    void begin(const proto::TestOrder& order);
    // Ends the test that this peer sends. Reports nothing.
    void end();
    void opened(LinkId id);
    void message_arrived(LinkId id, const ControlArrived& event);
    void frame_sent(LinkId id);
    void memory_came(const BufferAllocated& event);

    // ---- receiving end
    // `from` has proved its name on this connection and opens it for a test.
    void accept(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass);
    void frame_arrives(LinkId id, const wire::BulkHeader& header);
    void frame_landed(LinkId id);

    // ---- both
    void lost(LinkId id, const Link& link);
    void tick();
    // The run is lost. Closes the connections of the test that is sent; the caller closes all others.
    void forget();

    bool sends() const { return sending_.has_value(); }
    bool receives() const { return !receiving_.empty(); }
    void check() const;
    std::size_t count() const { return receiving_.size() + (sending_ ? 1 : 0); }
    std::size_t receiving() const { return receiving_.size(); }
    std::uint64_t bytes_sent() const { return sending_ ? sending_->bytes : 0; }
    Uuid target() const { return sending_ ? sending_->target : Uuid{}; }

private:
    struct Sending {
        std::uint64_t id = 0;
        Uuid target;
        Way way;
        LinkPass pass;
        Instant began = 0;
        BufferId buffer = 0;
        bool usable = false;
        std::uint64_t bytes = 0;  // handed to the connections
        std::set<LinkId> links;
        std::uint32_t active = 0;     // connections that send, the first ones that were dialled
        std::uint32_t changes = 0;    // of `active`
        bool settled = false;         // `active` does not change any more
        Duration round_trip = never;  // of the quickest dial
        Instant started = never;      // when the first byte was handed to a connection
        std::uint64_t confirmed = 0;  // bytes that have arrived, as the receiver said last
        // The same at the last word that tells a rate, and when that came here.
        std::uint64_t came = 0;
        Instant came_at = 0;
        std::uint64_t before = 0;  // handed to the connections when `active` changed last
    };
    struct Receiving {
        RateMeter meter{0, 0, 0};
        Duration round_trip = 0;
        std::uint64_t bytes_max = 0;
        std::uint64_t came = 0;
        Instant first = never;  // when the first frame came
        std::uint32_t changes = 0;  // of the sender's connections, as the frames say
        bool settled = false;       // the frames say that no other change follows
        // When this end last said what has come, and how often since the last change; without words that were early.
        Instant said_at = 0;
        std::uint32_t said = 0;
        Instant enough_at = never;        // when it had said so as often as the sender needs to decide
        std::uint64_t came_when_said = 0;  // what the last word of any kind said
        std::set<LinkId> links;
        LinkId last_link = 0;  // the one on which the last frame arrived
        bool told = false;
    };
    // One connection of a test, at either end.
    struct Connection {
        std::uint64_t test = 0;
        std::uint32_t frame = 0;  // bytes of the next frame
        std::uint64_t sent = 0;
        std::uint32_t order = 0;   // in which it was dialled
        std::uint32_t word = 0;    // word_of() the frame that is being received
        Instant dialled = 0;
        Instant begun = 0;  // start of the frame that is being sent or received
    };

    void dial(Sending test);
    void report(std::uint64_t bytes, std::uint64_t nanoseconds);
    void send_frame(LinkId id);
    void choose_first(Duration round_trip);
    void progressed(const proto::TestResult& word);
    Duration arriving_since() const;
    std::uint64_t arrive_in(Duration time) const;
    std::uint64_t unconfirmed_max() const;
    void send_frames();
    void settle(std::uint32_t active);
    void restart(Receiving& test);
    bool may_conclude(const Receiving& test) const;
    void say_progress(Receiving& test, std::uint64_t id);
    void tell(Receiving& test, const proto::LinkMessage& message);
    void conclude(Receiving& test, std::uint64_t id);

    Turn& turn_;
    LinkTable& links_;
    Memory& memory_;
    const Identity& who_;
    MasterLine& master_;
    std::map<LinkId, Connection> connections_;  // exactly the test links in the link table
    std::optional<Sending> sending_;
    std::map<std::pair<Uuid, std::uint64_t>, Receiving> receiving_;  // by sender and test
    std::set<BufferId> unwanted_;                                    // requested by a test that ended before they came
};

}  // namespace pccl::core
