// The world of a scope: one master and a few peers, joined by queues. A state is a small value. World gives the choices
// in a state and carries one out.
//
// There is one FIFO for each connection and direction. Computes, allocations and the sending of payload are answered at
// once, after the event that asked for them. So are records and arriving payload, unless the scope makes them steps of
// their own.
//
// Time stands still while anything else can happen. Then it moves to the latest of the machines' next deadlines, at
// most a tick after the earliest one, because a timer may come late. All machines get their timers. That is enough for
// all orders of deliveries, because machines read time only through their timers. Timers that run while messages are in
// flight are left out.
#pragma once

#include "core/events.hpp"
#include "harness/scope/machines.hpp"
#include "harness/scope/scope.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pccl::scope {

inline constexpr std::size_t nodes_max = 4;  // the master and three peers

// Strings that many states share. Each is kept once, under a number.
class Texts {
public:
    std::uint32_t keep(std::string_view text);
    const std::string& operator[](std::uint32_t id) const { return texts_[id]; }

private:
    std::deque<std::string> texts_;
    std::unordered_map<std::string_view, std::uint32_t> ids_;
};

struct Message {
    enum class Kind : std::uint8_t { accepted, opened, refused, closed, control, flow, bulk };
    Kind kind = Kind::control;
    std::string body;  // of a control frame, or payload
    core::wire::FlowWord word;
    core::wire::BulkHeader header;
    std::uint64_t checksum = 0;
    bool heartbeat = false;
};

struct End {
    bool here = true;        // its machine may still get events about it
    bool announced = false;  // its machine has got the event that it exists
    bool receiving = false;  // the header at the head of the queue was delivered
    bool discarded = false;
    core::BufferRef target;
    std::vector<std::uint32_t> queue;  // messages in flight to this end
};

struct Connection {
    std::array<std::uint8_t, 2> node{};  // node[0] dialled node[1]
    std::array<core::LinkId, 2> link{};
    std::array<End, 2> ends;
};

struct Told {  // what a call returned
    Call call = Call::connect;
    core::Result result = core::Result::success;
    std::uint32_t world = 0;
    std::uint64_t epoch = 0;
    std::uint64_t revision = 0;
};

struct Node {
    StateId machine = no_state;
    bool alive = false;
    std::uint8_t life = 0;  // counts processes
    bool member = false;
    bool takes_part = false;       // was a member when the stage began
    bool lost = false;             // its membership ended without its leaving
    std::uint64_t refused = 0;     // frames refused before the exploration
    std::uint8_t touched = 0;      // faults that could end its membership
    std::uint8_t line = 0;         // the current line of its program
    std::uint8_t rounds = 0;       // repetitions of a line
    core::Instant not_before = 0;  // of the next repetition
    core::Ticket ticket = 0;       // of the open call; 0: none
    std::uint64_t calls = 0;
    std::vector<Told> told;
    std::vector<std::pair<core::BufferId, std::uint32_t>> buffers;  // sorted; content is a number in Texts
    std::vector<std::uint32_t> unwritten;                           // records of a master not durable yet, in order
};

// Which programs run: before the exploration, during it, and afterwards to see whether everything still works.
enum class Stage : std::uint8_t { prologue, explored, update, reduce, leave };

struct State {
    Stage stage = Stage::prologue;
    core::Instant now = 0;
    core::Instant calm_since = 0;  // since the last fault or the start of the stage
    std::uint8_t faults = 0;
    std::uint8_t collective = 0;  // launches or synchronizations in earlier stages
    std::vector<std::uint32_t> journal;
    core::Ticket persisted = 0;
    std::array<Node, nodes_max> nodes;
    std::vector<Connection> connections;  // sorted by the dialling node and its link id
    std::string violation;
};

struct Choice {
    enum class Kind : std::uint8_t { deliver, write, call, start_master, pass_time, cut, end, kill, kill_all_written };
    Kind kind = Kind::deliver;
    std::uint8_t node = 0;
    std::uint8_t side = 0;
    std::uint32_t connection = 0;
    bool is_fault() const { return kind >= Kind::cut; }
};

class World {
public:
    World(const Scope& scope, Identity identity);

    State begin();
    // All choices that can happen next; a single one if all others may wait for it. Empty: the end.
    void choices(const State& state, std::vector<Choice>& out) const;
    // Only the deliveries of the network, one connection after the other.
    void deliveries(const State& state, std::vector<Choice>& out) const;
    void take(State& state, const Choice& choice);
    bool is_over(const State& state) const;  // no call is open and no program goes on
    Hash128 hash(const State& state) const;
    // A hash of what programs saw, and of nothing else.
    Hash128 hash_of_outcome(const State& state) const;
    std::string text(const State& state, const Choice& choice) const;

    // All live members begin the program of another stage.
    void enter(State& state, Stage stage) const;
    const Scope& scope() const { return scope_; }
    Machines& machines() { return machines_; }
    const Machines& machines() const { return machines_; }
    const std::string* buffer(const State& state, std::size_t node, core::BufferId id) const;
    std::string input(std::size_t node, std::uint32_t collective) const;
    core::BufferId send_buffer(std::uint32_t collective) const { return 4 * (collective + 1); }
    core::BufferId receive_buffer(std::uint32_t collective) const {
        return scope_.in_place ? send_buffer(collective) : send_buffer(collective) + 2;
    }
    bool is_member(const State& state, std::size_t node) const {
        return state.nodes[node].alive && state.nodes[node].member;
    }
    // Prints each event and effect from now on.
    void set_trace(bool on) { trace_ = on; }

private:
    struct Local {  // an answer that comes at once
        core::Event event;
        core::LinkId link = 0;  // 0: of no link
    };
    void step(State& state, std::size_t node, const core::Event& event);
    void follow(State& state, std::size_t node, const Step& step);
    void settle(State& state, std::size_t node);
    void carry_out(State& state, std::size_t node, const core::Effect& effect);
    void deliver(State& state, const Choice& choice);
    void land(State& state, Connection& connection, std::size_t side);
    void open(State& state, std::size_t node, const core::OpenLink& effect);
    void close(State& state, std::size_t node, core::LinkId link);
    void send(State& state, std::size_t node, core::LinkId link, Message message);
    void compute(State& state, std::size_t node, const core::Compute& effect);
    void store(State& state, std::size_t node, const core::StoreBytes& effect);
    void completed(State& state, std::size_t node, const core::Complete& effect);
    void call(State& state, std::size_t node);
    void cut(State& state, Connection& connection, bool lose);
    void kill(State& state, std::size_t node);
    void start_master(State& state);
    void pass_time(State& state);
    void tidy(State& state);
    Connection* find(State& state, std::size_t node, core::LinkId link, std::size_t& side) const;
    std::uint32_t* content(State& state, std::size_t node, core::BufferId id) const;
    std::string read(State& state, std::size_t node, const core::BufferRef& range);
    void write(State& state, std::size_t node, const core::BufferRef& range, std::string_view bytes);
    bool is_heartbeat(const State& state, const Choice& choice) const;
    void violate(State& state, const std::string& what) const;
    const Program& program_of(const State& state, std::size_t node) const;
    bool updates_again(const State& state) const;
    bool goes_on(const State& state, std::size_t node) const;
    bool waits_to_call(const State& state, std::size_t node, bool at_rest) const;
    std::uint32_t keep(const Message& message);
    std::string text(const Message& message, std::size_t from, std::size_t to) const;
    void say(const State& state, std::size_t node, const std::string& what) const;

    Scope scope_;
    Machines machines_;
    Program prologue_;
    Texts texts_;
    std::deque<Message> messages_;
    std::unordered_map<Hash128, std::uint32_t, HashOfHash> message_ids_;
    std::deque<Local> local_;
    bool answered_bulk_ = false;
    bool trace_ = false;
};

const char* to_text(Call call);
core::Endpoint endpoint_of(std::size_t node);

}  // namespace pccl::scope
