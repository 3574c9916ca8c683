// Runs one machine in the simulated world: delivers its events, carries out its effects, and checks the contract of
// core/events.hpp.
//
// One driver is one process. It owns the machine, its links and its memory, and is destroyed when the process dies. It
// encodes and decodes real frames, and reads payload from memory only when its bytes are sent. Computes run the real
// kernels after a random delay, so they end in any order. A broken contract is reported as a violation of the run,
// named `contract`.
#pragma once

#include "core/wire/frame.hpp"
#include "core/wire/frame_encoder.hpp"
#include "net-sim/buffers.hpp"
#include "net-sim/carried.hpp"
#include "net-sim/describe.hpp"
#include "net-sim/event_queue.hpp"
#include "net-sim/machine.hpp"
#include "net-sim/network.hpp"
#include "net-sim/recorder.hpp"

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace pccl::sim {

class World;

// The index of a kind of effect in core::Effect. A fault can wait for the k-th effect of a kind.
template <class T, class... Kinds>
constexpr std::size_t index_in(const std::variant<Kinds...>*) {
    std::size_t index = 0;
    (void)((std::is_same_v<T, Kinds> ? true : (++index, false)) || ...);
    return index;
}
template <class T>
constexpr std::size_t effect_index() {
    return index_in<T>(static_cast<const core::Effect*>(nullptr));
}

class Driver {
public:
    Driver(World& world, std::uint32_t node, std::uint64_t incarnation, std::unique_ptr<Machine> machine,
           const core::Limits& limits);

    // Hands one event to the machine and carries out all its effects.
    void give(const core::Event& event);
    // Used by give(). The world calls it for effects that no event caused, such as those of a master's start.
    void carry_out(core::Effects& effects);

    // --- called by World for items of the queue ----------------------------------------------------------------------
    void handle(const Item& item);
    void bytes_arrived(LinkId link, std::span<const Piece> pieces);
    void dial_met(LinkId link, std::uint32_t connection);
    void link_ended(LinkId link, const char* reason);
    void room_made(LinkId link);

    // The node at the far end of the link that the current event names. no_node: no event, or one without a link.
    std::uint32_t speaks_with() const;
    // The driver chooses the ids of accepted links and of the application's buffers: even ones. The machine chooses odd
    // ones.
    LinkId next_accepted_link() { return accepted_links_ += 2; }
    BufferId add_application_buffer(std::uint64_t bytes);
    Buffers& buffers() { return buffers_; }
    const Machine& machine() const { return *machine_; }
    Carried& carried() { return carried_; }
    // Its machine has said something on the connection and has not closed it. O(links).
    bool has_spoken_on(std::uint32_t connection) const;
    // The number of tags that were launched one by one and are not awaited yet.
    std::size_t tags_open() const { return operations_.size(); }
    // True while a call to leave or to abort has no answer.
    bool leaving() const;
    std::uint64_t incarnation() const { return incarnation_; }
    // True if there are no links, calls, launched tags, computes and pending allocations, and the machine forwards no send
    // of others. It must then hold no memory.
    bool at_rest() const {
        return links_.empty() && waiting_.empty() && operations_.empty() && computing_.empty() && allocating_ == 0 &&
               !forwards();
    }
    // True while an allocation has no answer. The machine cannot free that memory earlier.
    bool allocating() const { return allocating_ != 0; }
    // A member that has lost all connections goes on to forward: it does not know what became of the operation.
    bool forwards() const;
    // The process is about to end: it accepts no links, and the machine gets no events. Queued output still leaves.
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }
    // True while links that the machine has closed still send their queued output.
    bool flushing() const;
    // True if a fault crashes the process between two effects, or instead of a message. The world must end the process.
    bool must_die() const { return must_die_; }
    // Why the machine stopped itself; empty while it runs.
    const std::string& halted() const { return halted_; }

private:
    struct Sending {
        core::SendPayload what;
        std::vector<std::uint8_t> copy;  // of a chunk that may_lie() may damage, or of what a liar sends; else empty
        bool active = false;             // from SendPayload until PayloadSent
        bool cancelled = false;          // CancelSend or CloseLink came before the frame was complete
        bool withdrawn = false;          // CancelSend came, even if the frame was complete
        bool complete = false;           // the frame has left or was dropped; PayloadSent follows
    };
    // State of the payload that arrives: there is none; the machine has not answered BulkArrived yet; it is stored in
    // `target`; it is dropped.
    enum class Receiving : std::uint8_t { nothing, undecided, into, nowhere };
    struct Link {
        Link(LinkId name, std::uint32_t connection_, std::uint32_t side_, const core::Limits& limits)
            : id(name), connection(connection_), side(side_), decoder(limits) {}
        LinkId id;
        std::uint32_t connection;
        std::uint32_t side;  // 0: dialled, 1: accepted, or dialled too and met the other dial
        bool opened = false;
        bool closing = false;  // the machine has closed it; queued output still leaves
        bool gone = false;     // drop() was called; tidy() will erase it
        core::wire::FrameDecoder decoder;
        core::wire::FrameEncoder encoder;
        struct Waiting {
            std::uint64_t end = 0;  // value of control_left when the frame has left
            Instant since = 0;      // when it was queued
        };
        std::deque<Waiting> control_waits;  // one for each control frame and flow word in the encoder
        std::uint64_t control_left = 0;     // bytes of all such frames that have left
        Sending sending;
        Receiving receiving = Receiving::nothing;
        BufferRef target;
        core::wire::BulkHeader arriving;  // header of the payload being received
        Instant noticed = 0;              // time of the last LinkActivity
    };
    struct Computing {
        core::Compute what;
    };
    struct Operation {  // a launched tag; its buffers must not be in use when the application gets them back
        core::Tag tag = 0;
        BufferId send = 0, receive = 0;
    };
    struct Waiting {  // a call of the application without an answer
        core::Ticket ticket = 0;
        core::Command command;
    };

    // True if the trace or the recorder needs texts. text() names the far end of the link and shows the fields of a
    // control message.
    bool watched() const;
    std::string text(const core::Event& event) const;
    std::string text(const core::Effect& effect) const;
    std::uint32_t far_end(LinkId id) const;
    void record_control(const Link& link, std::span<const std::uint8_t> body);
    void record_sent(const Link& link, Recorder::Kind kind, const std::string& text);
    void record_arrived(const Link& link, bool bulk);

    Link* find(LinkId id);
    void drop(Link& link);
    void tidy();
    void contract_broken(const std::string& what);
    void schedule(Instant time, ItemKind kind, std::uint64_t a, std::uint64_t b);
    void perform(core::Effect& effect);
    void perform_forged(core::Effect& effect);
    bool may_be_false(const Link& link) const;
    void control_added(Link& link);
    void pump(Link& link);
    void may_lie(Link& link, std::size_t room);
    void payload_left(Link& link, const core::wire::FrameEncoder::Finished& finished);
    void read(LinkId link, std::span<const std::uint8_t> bytes);
    void decode(Link& link, std::span<const std::uint8_t> bytes);
    void decode_zeros(Link& link, std::size_t length);
    void note_activity(Link& link);
    std::uint32_t control_bytes_taken(const Link& link) const;
    void note_command(const core::Command& command);
    void dies_before_this();

    core::Uuid identity_of(std::uint32_t from, std::uint32_t connection);
    void on(core::OpenLink& effect);
    void on(core::CloseLink& effect);
    void on(core::SendControl& effect);
    void on(core::SendFlow& effect);
    void on(core::SendPayload& effect);
    void on(core::CancelSend& effect);
    void on(core::ReceivePayload& effect);
    void on(core::DiscardPayload& effect);
    void on(core::RedirectReceive& effect);
    void on(core::AllocateBuffer& effect);
    void on(core::StoreBytes& effect);
    void on(core::FreeBuffer& effect);
    void on(core::Compute& effect);
    void on(core::Persist& effect);
    void on(core::Complete& effect);
    void on(core::SetAttributes& effect);
    void on(core::Log& effect);
    void on(core::Halt& effect);

    void finish_compute(std::uint64_t id);

    World& world_;
    std::uint32_t node_;
    std::uint64_t incarnation_;
    std::unique_ptr<Machine> machine_;
    core::Limits limits_;
    std::unordered_map<LinkId, std::unique_ptr<Link>> links_;  // only flushing() and has_spoken_on() iterate over it
    Link* found_last_ = nullptr;                               // in links_
    std::vector<LinkId> gone_;                                 // dropped; tidy() erases them when no reference is left
    Buffers buffers_;
    Carried carried_;
    std::vector<Computing> computing_;
    std::uint32_t allocating_ = 0;  // allocations without an answer yet
    std::vector<Operation> operations_;
    std::vector<Waiting> waiting_;
    core::Effects effects_;
    core::Effects forged_;                   // what a member that lies says besides
    std::vector<LinkId> dirty_;              // may have new output, which leaves after all effects of the event
    std::vector<std::uint8_t> leaving_;      // the bytes of one write, in pump()
    std::vector<ZeroRun> leaving_zeros_;     // the zeros between them
    LinkId accepted_links_ = 0;              // last id
    BufferId application_buffers_ = 0;       // last id
    LinkId last_opened_ = 0;                 // last id of a dialled link; ids must increase
    std::uint32_t ended_far_end_ = no_node;  // far end of the link that ended last
    std::uint64_t persisted_last_ = 0;       // last Persist of the current event; 0: none
    bool inside_ = false;                    // in handle() or among its effects; an event now would break the contract
    const core::Event* handling_ = nullptr;  // null outside of handle()
    bool must_die_ = false;
    bool stopped_ = false;
    std::uint32_t notices_owed_ = 0;  // messages about a hanging disk that this event must still send to members
    std::string halted_;
};

}  // namespace pccl::sim
