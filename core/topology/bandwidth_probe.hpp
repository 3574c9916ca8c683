// Bandwidth tests at a peer, both ends. The sender fills connections of its own for a short time; the receiver counts what
// arrives over its own clock and tells the sender when it has seen enough. The sender reports to the master.
//
// A test touches nothing but its own connections and its own memory. Whatever goes wrong ends the test, with a report of
// nothing measured, and has no other consequence. At most one test is sent at a time; several may be received.
#pragma once

#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/requests.hpp"
#include "core/topology/bandwidth.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pccl::core {

class BandwidthProbe {
public:
    BandwidthProbe(Turn& turn, LinkTable& links, Memory& memory, const Identity& who, MasterLine& master)
        : turn_(turn), links_(links), memory_(memory), who_(who), master_(master) {}

    // ---- sending end
    // The master's order; it ends a test that still runs.
    void begin(const proto::TestOrder& order);
    // Ends the test that this peer sends, without a report.
    void end();
    void opened(LinkId id);
    void message_arrived(LinkId id, const ControlArrived& event);
    void frame_sent(LinkId id);
    void memory_came(const BufferAllocated& event);

    // ---- receiving end
    // A caller that has proved to be `from` opens a connection of a test.
    void accept(LinkId id, const Uuid& from, const proto::LinkHello& hello, const LinkPass& pass);
    void frame_arrives(LinkId id, const wire::BulkHeader& header);
    void frame_landed(LinkId id);

    // ---- both
    void lost(LinkId id, const Link& link);
    void tick();
    // The run is lost: the connections are closed by others.
    void forget();

    bool sends() const { return sending_.has_value(); }
    bool receives() const { return !receiving_.empty(); }
    std::size_t count() const { return receiving_.size() + (sending_ ? 1 : 0); }
    std::size_t receiving() const { return receiving_.size(); }
    std::uint64_t bytes_sent() const { return sending_ ? sending_->bytes : 0; }
    Uuid target() const { return sending_ ? sending_->target : Uuid{}; }

private:
    struct Sending {
        std::uint64_t id = 0;
        Uuid target;
        Instant began = 0;
        BufferId buffer = 0;
        bool usable = false;
        std::uint64_t bytes = 0;  // handed to connections
        std::set<LinkId> links;
    };
    struct Receiving {
        RateMeter meter{0, 0, 0};
        std::set<LinkId> links;
        LinkId last_link = 0;  // the one that brought something last
        bool told = false;
    };
    // Of a connection of a test, at either end.
    struct Connection {
        std::uint64_t test = 0;
        std::uint32_t frame = 0;  // bytes of the next one
        std::uint64_t sent = 0;
        Instant dialled = 0;
        Instant begun = 0;  // when the frame that is being sent, or arrives, was begun
    };

    void report(std::uint64_t bytes, std::uint64_t nanoseconds);
    void send_frame(LinkId id);
    void conclude(Receiving& test, std::uint64_t id);

    Turn& turn_;
    LinkTable& links_;
    Memory& memory_;
    const Identity& who_;
    MasterLine& master_;
    std::map<LinkId, Connection> connections_;  // of all links of tests that are in the table, and no others
    std::optional<Sending> sending_;
    std::map<std::pair<Uuid, std::uint64_t>, Receiving> receiving_;  // by sender and test
    std::set<BufferId> unwanted_;                                    // asked for by a test that has ended
};

}  // namespace pccl::core
