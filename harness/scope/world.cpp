#include "harness/scope/world.hpp"

#include "harness/scope/bytes.hpp"

#include <algorithm>
#include <cstdio>

namespace pccl::scope {

using namespace core;

std::uint32_t Texts::keep(std::string_view text) {
    const auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    texts_.emplace_back(text);
    const auto id = static_cast<std::uint32_t>(texts_.size() - 1);
    ids_.emplace(texts_.back(), id);
    return id;
}

Endpoint endpoint_of(std::size_t node) {
    Endpoint endpoint;
    endpoint.port = static_cast<std::uint16_t>(1000 + node);
    endpoint.address = {10, 0, 0, static_cast<std::uint8_t>(1 + node)};
    return endpoint;
}

namespace {

Limits small_limits() {
    Limits limits;
    limits.slice_bytes = 8;
    limits.eager_bytes = 8;
    limits.chunk_bytes = 8;
    limits.scratch_bytes = 64;
    limits.payload_bytes_max = 64;
    limits.concurrent_ops = 2;
    return limits;
}

// Each time-out that has to pass takes few ticks.
Timeouts short_timeouts() {
    Timeouts timeouts;
    timeouts.peer = second;
    timeouts.master = 4 * second;
    timeouts.handshake = 500 * millisecond;
    timeouts.dial = 300 * millisecond;
    timeouts.redial_max = 100 * millisecond;
    timeouts.vote_warn = 100 * second;
    return timeouts;
}

void add(Bytes& bytes, const BufferRef& range) { bytes << range.id << range.offset << range.length; }

}  // namespace

World::World(const Scope& scope, Identity identity) : scope_(scope), machines_(identity) {
    MasterConfig master;
    master.seed = 11;
    master.limits = small_limits();
    master.timeouts = short_timeouts();
    machines_.add_master(master);
    for (std::size_t node = 1; node <= scope_.peers; ++node) {
        PeerConfig peer;
        peer.seed = 100 + node;
        peer.master = endpoint_of(0);
        peer.stripes = 1;
        peer.listen_port = endpoint_of(node).port;
        peer.limits = small_limits();
        peer.timeouts = short_timeouts();
        machines_.add_peer(peer);
    }
    prologue_ = {{Call::connect}, {Call::update, true}};
}

State World::begin() {
    State state;
    state.now = second;
    start_master(state);
    for (std::size_t node = 1; node <= scope_.peers; ++node) {
        state.nodes[node].alive = true;
        state.nodes[node].machine = machines_.start_peer(node);
    }
    if (scope_.joiners == scope_.peers) enter(state, Stage::explored);
    return state;
}

void World::enter(State& state, Stage stage) const {
    state.stage = stage;
    state.calm_since = state.now;
    for (std::size_t i = 0; i <= scope_.peers; ++i) {
        Node& node = state.nodes[i];
        node.line = node.rounds = 0;
        node.not_before = 0;
        node.told.clear();
        node.takes_part = node.alive && node.member;
        if (stage == Stage::explored) node.refused = machines_.refused_frames(i, node.machine);
    }
    if (stage == Stage::reduce) ++state.collective;
}

const Program& World::program_of(const State& state, std::size_t node) const {
    static const Program none, update{{Call::update}, {Call::update}}, reduce{{Call::launch}, {Call::await}},
        leave{{Call::leave}};
    if (state.stage > Stage::explored && !state.nodes[node].takes_part) return none;
    const bool joins = node > scope_.peers - scope_.joiners;
    switch (state.stage) {
    case Stage::prologue: return joins ? none : prologue_;
    case Stage::explored: return joins ? scope_.joiner : scope_.program;
    case Stage::update: return update;
    case Stage::reduce: return reduce;
    case Stage::leave: break;
    }
    return leave;
}

// A repeated update ends when every live peer is a member and no update waits for the votes of others.
bool World::updates_again(const State& state) const {
    for (std::size_t node = 1; node <= scope_.peers; ++node) {
        const Node& self = state.nodes[node];
        if (!self.alive || self.lost) continue;
        const Program& program = program_of(state, node);
        if (!self.member && !program.empty()) return true;
        if (self.ticket != 0 && program[self.line].call == Call::update) return true;
    }
    return false;
}

// Whether its program goes on when no call of it is open.
bool World::goes_on(const State& state, std::size_t node) const {
    const Node& self = state.nodes[node];
    const Program& program = program_of(state, node);
    if (node == 0 || !self.alive || self.lost || self.line >= program.size()) return false;
    return !program[self.line].repeated || updates_again(state);
}

bool World::waits_to_call(const State& state, std::size_t node, bool at_rest) const {
    const Node& self = state.nodes[node];
    return self.ticket == 0 && state.now >= self.not_before && goes_on(state, node) &&
           program_of(state, node)[self.line].repeated == at_rest;
}

bool World::is_over(const State& state) const {
    for (std::size_t node = 1; node <= scope_.peers; ++node) {
        if (state.nodes[node].ticket != 0 || goes_on(state, node)) return false;
    }
    return state.nodes[0].alive;
}

bool World::is_heartbeat(const State& state, const Choice& choice) const {
    return messages_[state.connections[choice.connection].ends[choice.side].queue.front()].heartbeat;
}

void World::deliveries(const State& state, std::vector<Choice>& out) const {
    out.clear();
    for (std::uint32_t i = 0; i < state.connections.size(); ++i) {
        const Connection& connection = state.connections[i];
        for (std::uint8_t side = 0; side < 2; ++side) {
            const End& end = connection.ends[side];
            if (!end.here || end.queue.empty()) continue;
            out.push_back({Choice::Kind::deliver, connection.node[side], side, i});
            if (!scope_.heartbeats && is_heartbeat(state, out.back())) {
                out = {out.back()};
                return;
            }
        }
    }
}

void World::choices(const State& state, std::vector<Choice>& out) const {
    out.clear();
    if (!state.violation.empty() || is_over(state)) return;
    deliveries(state, out);
    if (!scope_.heartbeats && out.size() == 1 && is_heartbeat(state, out.front())) return;
    for (std::uint8_t node = 0; node <= scope_.peers; ++node) {
        if (!state.nodes[node].unwritten.empty()) out.push_back({Choice::Kind::write, node, 0, 0});
        if (waits_to_call(state, node, false)) out.push_back({Choice::Kind::call, node, 0, 0});
    }
    if (!state.nodes[0].alive) out.push_back({Choice::Kind::start_master, 0, 0, 0});
    if (out.empty()) {
        for (std::uint8_t node = 1; node <= scope_.peers; ++node) {
            if (waits_to_call(state, node, true)) out.push_back({Choice::Kind::call, node, 0, 0});
        }
    }
    if (out.empty()) out.push_back({Choice::Kind::pass_time, 0, 0, 0});
    if (state.stage != Stage::explored || state.faults >= scope_.faults) return;
    if (scope_.cut) {
        for (std::uint32_t i = 0; i < state.connections.size(); ++i) {
            const Connection& connection = state.connections[i];
            if (!connection.ends[0].here || !connection.ends[1].here) continue;
            out.push_back({Choice::Kind::cut, 0, 0, i});
            if (connection.ends[1].announced &&
                (!connection.ends[0].queue.empty() || !connection.ends[1].queue.empty()))
                out.push_back({Choice::Kind::end, 0, 0, i});
        }
    }
    if (scope_.death) {
        for (std::uint8_t node = 1; node <= scope_.peers; ++node) {
            if (state.nodes[node].alive) out.push_back({Choice::Kind::kill, node, 0, 0});
        }
    }
    if (scope_.master && state.nodes[0].alive) {
        out.push_back({Choice::Kind::kill, 0, 0, 0});
        if (!state.nodes[0].unwritten.empty()) out.push_back({Choice::Kind::kill_all_written, 0, 0, 0});
    }
}

void World::take(State& state, const Choice& choice) {
    if (trace_) std::printf("%9.3f ms  %s\n", static_cast<double>(state.now) / 1e6, text(state, choice).c_str());
    switch (choice.kind) {
    case Choice::Kind::deliver: deliver(state, choice); break;
    case Choice::Kind::write: {
        Node& self = state.nodes[0];
        state.journal.push_back(self.unwritten.front());
        self.unwritten.erase(self.unwritten.begin());
        step(state, 0, RecordPersisted{++state.persisted});
        break;
    }
    case Choice::Kind::call: call(state, choice.node); break;
    case Choice::Kind::start_master: start_master(state); break;
    case Choice::Kind::pass_time: pass_time(state); break;
    case Choice::Kind::cut: cut(state, state.connections[choice.connection], true); break;
    case Choice::Kind::end: cut(state, state.connections[choice.connection], false); break;
    case Choice::Kind::kill: kill(state, choice.node); break;
    case Choice::Kind::kill_all_written:
        for (const std::uint32_t record : state.nodes[0].unwritten) state.journal.push_back(record);
        kill(state, 0);
        break;
    }
    if (choice.is_fault()) {
        ++state.faults;
        state.calm_since = state.now;
    }
    tidy(state);
}

// ---- what happens to connections and processes ----------------------------------------------------------------------

// An end whose machine has not got the event that the connection exists never gets it. `lose`: messages in flight are
// lost.
void World::cut(State& state, Connection& connection, bool lose) {
    Message message;
    if (!connection.ends[1].announced) {
        connection.ends[1].here = false;
        message.kind = connection.ends[0].announced ? Message::Kind::closed : Message::Kind::refused;
        connection.ends[0].queue = {keep(message)};
    } else {
        message.kind = Message::Kind::closed;
        for (std::size_t side = 0; side < 2; ++side) {
            End& end = connection.ends[side];
            // A dialler that has not got the answer to its dial still gets it.
            if (lose) {
                end.queue.resize(side == 0 && !end.announced ? 1 : 0);
                end.receiving = false;
            }
            end.queue.push_back(keep(message));
        }
    }
    for (const std::uint8_t node : connection.node) ++state.nodes[node].touched;
}

// Messages that a process sent before it died still arrive.
void World::kill(State& state, std::size_t node) {
    Node& self = state.nodes[node];
    for (Connection& connection : state.connections) {
        for (std::size_t side = 0; side < 2; ++side) {
            if (connection.node[side] != node || !connection.ends[side].here) continue;
            connection.ends[side].here = false;
            Message message;
            message.kind = Message::Kind::closed;
            if (connection.ends[1 - side].here) connection.ends[1 - side].queue.push_back(keep(message));
        }
    }
    Node dead;
    dead.life = static_cast<std::uint8_t>(self.life + 1);
    self = dead;
    if (node == 0) {
        for (Node& other : state.nodes) ++other.touched;
    }
}

void World::tidy(State& state) {
    for (Connection& connection : state.connections) {
        for (End& end : connection.ends) {
            if (!end.here) end.queue.clear();
        }
    }
    std::erase_if(state.connections,
                  [](const Connection& connection) { return !connection.ends[0].here && !connection.ends[1].here; });
}

void World::start_master(State& state) {
    std::vector<std::string> journal;
    for (const std::uint32_t record : state.journal) journal.push_back(texts_[record]);
    state.nodes[0].alive = true;
    state.persisted = 0;
    follow(state, 0, machines_.start_master(state.now, journal));
    settle(state, 0);
}

void World::deliver(State& state, const Choice& choice) {
    Connection& connection = state.connections[choice.connection];
    End& end = connection.ends[choice.side];
    const std::size_t node = choice.node;
    const LinkId link = connection.link[choice.side];
    if (end.receiving) {
        land(state, connection, choice.side);
        settle(state, node);
        return;
    }
    const Message& message = messages_[end.queue.front()];
    if (message.kind != Message::Kind::bulk) end.queue.erase(end.queue.begin());
    switch (message.kind) {
    case Message::Kind::accepted: {
        end.announced = true;
        Endpoint remote = endpoint_of(connection.node[0]);
        remote.port = static_cast<std::uint16_t>(40000 + connection.link[0] % 20000);
        return step(state, node, LinkAccepted{link, remote});
    }
    case Message::Kind::opened: end.announced = true; return step(state, node, LinkOpened{link});
    case Message::Kind::refused: end.here = false; return step(state, node, LinkRefused{link, "refused"});
    case Message::Kind::closed: end.here = false; return step(state, node, LinkClosed{link, "closed"});
    case Message::Kind::control:
        return step(
            state, node,
            ControlArrived{link, {reinterpret_cast<const std::uint8_t*>(message.body.data()), message.body.size()}});
    case Message::Kind::flow: return step(state, node, FlowArrived{link, message.word});
    case Message::Kind::bulk: break;
    }
    end.receiving = true;
    end.discarded = false;
    answered_bulk_ = false;
    follow(state, node,
           machines_.handle(node, state.nodes[node].machine, state.now, BulkArrived{link, message.header}));
    // The event may have made connections, which moves the others in memory.
    std::size_t side = 0;
    if (!answered_bulk_ && find(state, node, link, side) != nullptr) violate(state, "BulkArrived was not answered");
    settle(state, node);
    Connection* const still = find(state, node, link, side);
    if (scope_.slow_payload || still == nullptr || !state.violation.empty()) return;
    land(state, *still, side);
    settle(state, node);
}

void World::land(State& state, Connection& connection, std::size_t side) {
    End& end = connection.ends[side];
    const std::size_t node = connection.node[side];
    const Message& message = messages_[end.queue.front()];
    end.queue.erase(end.queue.begin());
    end.receiving = false;
    PayloadLanded landed;
    landed.link = connection.link[side];
    if (end.discarded) {
        landed.verdict = PayloadLanded::Verdict::discarded;
    } else {
        landed.checksum = numeric::checksum64(message.body.data(), message.body.size());
        if (landed.checksum != message.checksum) return violate(state, "a frame arrives with a wrong checksum");
        write(state, node, end.target, message.body);
    }
    end.discarded = false;
    end.target = {};
    follow(state, node, machines_.handle(node, state.nodes[node].machine, state.now, landed));
}

void World::pass_time(State& state) {
    // Here no dial and no call is repeated, so a machine that waits for a timer has missed something.
    if (state.stage == Stage::explored && state.faults == 0 && scope_.joiners == 0)
        return violate(state, "a call waits for a timer, although nothing went wrong");
    // Timers may be late, so time moves to the latest deadline. The step is limited, so that no machine takes it for a
    // sleep.
    Instant first = never, last = 0;
    for (std::size_t node = 0; node <= scope_.peers; ++node) {
        if (!state.nodes[node].alive) continue;
        const Instant deadline = machines_.next_deadline(node, state.nodes[node].machine);
        first = std::min(first, deadline);
        if (deadline != never) last = std::max(last, deadline);
    }
    for (std::size_t node = 1; node <= scope_.peers; ++node) {
        if (state.nodes[node].ticket != 0 || !goes_on(state, node)) continue;
        first = std::min(first, state.nodes[node].not_before);
        last = std::max(last, state.nodes[node].not_before);
    }
    if (first == never) return violate(state, "nothing can happen any more, and a call is open");
    state.now = std::max(state.now, std::min(last, first + short_timeouts().tick()));
    if (state.now - state.calm_since > (state.stage == Stage::explored ? scope_.patience : 20 * second)) {
        std::string who;
        for (std::size_t node = 0; node <= scope_.peers; ++node) {
            if (state.nodes[node].alive) who += "; " + machines_.explain(node, state.nodes[node].machine);
        }
        return violate(state, "a call is open for too long" + who);
    }
    for (std::size_t node = 0; node <= scope_.peers; ++node) {
        if (state.nodes[node].alive) step(state, node, Timer{});
    }
}

void World::violate(State& state, const std::string& what) const {
    if (state.violation.empty()) state.violation = what;
}

// ---- identity and text ----------------------------------------------------------------------------------------------

// Two states with the same hash behave the same. The hash covers machines by their numbers, which stand for all memory
// that they can read. It covers queues, buffers and records by their contents, and connections by the link ids that
// machines use. It covers everything else that choices() and the oracles look at. Independent events in another order
// lead to the same hash, because nothing in it counts events of the whole world.
Hash128 World::hash(const State& state) const {
    static Bytes bytes;
    bytes.clear();
    bytes << state.stage << state.now << state.calm_since << state.faults << state.collective << state.persisted
          << state.journal.size();
    for (const std::uint32_t record : state.journal) bytes << record;
    for (const Node& node : state.nodes) {
        bytes << node.machine << node.alive << node.life << node.member << node.takes_part << node.lost << node.touched
              << node.line << node.rounds << node.not_before << node.ticket << node.calls << node.told.size()
              << node.buffers.size() << node.unwritten.size();
        for (const Told& told : node.told)
            bytes << told.call << told.result << told.world << told.epoch << told.revision;
        for (const auto& [id, text] : node.buffers) bytes << id << text;
        for (const std::uint32_t record : node.unwritten) bytes << record;
    }
    for (const Connection& connection : state.connections) {
        for (std::size_t side = 0; side < 2; ++side) {
            const End& end = connection.ends[side];
            bytes << connection.node[side] << connection.link[side] << end.here << end.announced << end.receiving
                  << end.discarded << end.queue.size();
            add(bytes, end.target);
            for (const std::uint32_t message : end.queue) bytes << message;
        }
    }
    return numeric::hash128(bytes.text().data(), bytes.text().size());
}

Hash128 World::hash_of_outcome(const State& state) const {
    Bytes bytes;
    for (const Node& node : state.nodes) {
        bytes << node.alive << node.lost << node.told.size();
        for (const Told& told : node.told)
            bytes << told.call << told.result << told.world << told.epoch << told.revision;
        for (const auto& [id, text] : node.buffers) {
            if (id % 2 == 0) bytes << id << texts_[text];
        }
    }
    return numeric::hash128(bytes.text().data(), bytes.text().size());
}

}  // namespace pccl::scope
