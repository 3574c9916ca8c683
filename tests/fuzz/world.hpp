// A tiny run for the fuzz targets: one master and three peers, the real machines, joined by queues in memory. The
// fuzzer's bytes choose what is delivered next, what the applications call, what a hostile link sends and how a message
// is altered. The driver keeps the contract of core/events.hpp to the letter. So an assertion that fires was caused by
// remote input, and that is what these targets look for.
//
// It is no simulator: it has no model of time, and its only oracle is the contract (each ticket is answered once, named
// links exist).
#pragma once

#include "input.hpp"

#include "core/events.hpp"
#include "core/master_machine.hpp"
#include "core/peer_machine.hpp"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace fuzz {

namespace core = pccl::core;

class World {
public:
    enum class Target { master, peers };  // the receivers of the hostile bytes
    World(Input& input, Target target);
    void play();

private:
    static constexpr int hostile = -1;
    static constexpr int node_count = 4;  // 0 is the master

    struct Message {
        enum class Kind { control, flow, bulk, closed, refused };
        Kind kind = Kind::control;
        std::string bytes;  // control body, or payload
        core::wire::FlowWord word;
        core::wire::BulkHeader header;
        std::uint64_t checksum = 0;
        bool abandoned = false;
        std::uint64_t send_id = 0;  // which SendPayload it came from
    };
    struct Link {
        int other = hostile;
        core::LinkId other_link = 0;
        bool announced = false;     // LinkOpened or LinkAccepted was delivered
        std::deque<Message> queue;  // in flight to the node that owns this map
        // The bulk frame that is being received.
        bool receiving = false;
        bool discarded = false;
        core::BufferRef target;
        // The payload that is being sent.
        std::uint64_t sending = 0;  // its send id, 0: none
    };
    struct PendingAnswer {
        core::Event event;
        core::LinkId link = 0;  // 0: concerns no link
        std::uint64_t send_id = 0;
    };
    struct Node {
        std::unique_ptr<core::MasterMachine> master;
        std::unique_ptr<core::PeerMachine> peer;
        std::map<core::LinkId, Link> links;
        std::map<core::BufferId, std::string> buffers;
        std::deque<PendingAnswer> answers;
        std::set<core::Ticket> tickets;
        core::LinkId next_link = 2;
        core::BufferId next_buffer = 2;
    };

    void deliver(int node, const core::Event& event);
    void carry_out(int node, core::Effects& effects);
    void carry_out(int node, core::Effect& effect);
    void answer(int node, core::Event event, core::LinkId link = 0, std::uint64_t send_id = 0);
    void forget_link(int node, core::LinkId link);
    void open_link(int node, const core::OpenLink& effect);
    void close_link(int node, core::LinkId link);
    void send_payload(int node, core::SendPayload& effect);
    void cancel_send(int node, core::LinkId link);
    void compute(int node, const core::Compute& effect);
    void put(int node, core::LinkId link, Message message);
    char* at(int node, const core::BufferRef& range);

    bool deliver_answer(int node);
    bool deliver_message(int node, bool change);
    void deliver_bulk(int node, core::LinkId link, const Message& message);
    void change(Message& message);
    void be_hostile();
    void call(int node);
    void pass_time();
    void step();
    bool settle_one(int node);

    Input& input_;
    Target target_;
    core::Instant now_ = core::second;
    std::array<Node, node_count> nodes_;
    std::vector<std::string> heard_;  // bodies that a node really sent, for replays
    core::Ticket next_ticket_ = 1;
    std::uint64_t next_send_ = 1;
    bool answered_bulk_ = false;
    bool halted_ = false;
};

}  // namespace fuzz
