// What the programs of a scope call, what their calls return, and choices as text.
#include "core/base/format.hpp"
#include "harness/scope/world.hpp"
#include "net-sim/describe.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace pccl::scope {

using namespace core;

namespace {

constexpr Tag tag = 7;
constexpr std::uint8_t rounds_max = 100;  // of a call that is repeated

std::string name_of(std::size_t node) { return node == 0 ? "master" : formatted("peer{}", node); }

}  // namespace

const char* to_text(Call call) {
    static constexpr const char* names[] = {"connect", "update", "launch", "await", "sync", "leave"};
    return names[static_cast<std::size_t>(call)];
}

// Each member has two decimal digits of its own, so a sum shows whose inputs are in it.
std::string World::input(std::size_t node, std::uint32_t collective) const {
    std::string bytes;
    std::int32_t unit = 1;
    for (std::size_t i = 1; i < node; ++i) unit *= 100;
    for (std::uint64_t i = 0; i < scope_.count; ++i) {
        const auto value = static_cast<std::int32_t>(unit * static_cast<std::int32_t>(i + 1 + 10 * collective));
        bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return bytes;
}

void World::call(State& state, std::size_t node) {
    Node& self = state.nodes[node];
    const Line line = program_of(state, node)[self.line];
    const Ticket ticket = self.ticket = ++self.calls;
    const auto give = [&](BufferId id, const std::string& bytes) {
        const std::pair entry(id, texts_.keep(bytes));
        self.buffers.insert(std::upper_bound(self.buffers.begin(), self.buffers.end(), entry), entry);
    };
    Command command;
    switch (line.call) {
    case Call::connect: command = CommandConnect{ticket}; break;
    case Call::update: command = CommandUpdateTopology{ticket}; break;
    case Call::await: command = CommandAwait{ticket, tag}; break;
    case Call::leave: command = CommandLeave{ticket, false}; break;
    case Call::launch: {
        CommandLaunch launch;
        launch.ticket = ticket;
        launch.tag = tag;
        launch.shape = {scope_.count, DataType::i32, ReduceOp::sum, {}};
        launch.send = send_buffer(state.collective);
        launch.receive = receive_buffer(state.collective);
        const std::string bytes = input(node, state.collective);
        give(launch.send, bytes);
        if (!scope_.in_place) give(launch.receive, std::string(bytes.size(), '\0'));
        command = launch;
        break;
    }
    case Call::sync: {
        CommandSync sync;
        sync.ticket = ticket;
        sync.entries.push_back({"state", send_buffer(state.collective), scope_.count, DataType::i32, false});
        give(sync.entries.front().buffer, input(node, state.collective));
        command = std::move(sync);
        break;
    }
    }
    step(state, node, command);
}

void World::completed(State& state, std::size_t node, const Complete& effect) {
    Node& self = state.nodes[node];
    if (effect.ticket == 0 || effect.ticket != self.ticket)
        return violate(state, "a ticket was completed that nobody holds");
    const Completion& completion = effect.completion;
    const Program& program = program_of(state, node);
    const Line line = program[self.line];
    if (trace_) {
        say(state, node,
            formatted("{} returns {}{}", to_text(line.call), sim::to_text(completion.result),
                      completion.cause.empty() ? "" : ": " + to_text(completion.cause)));
    }
    self.ticket = 0;
    for (const Node& other : state.nodes) {
        // Two faults may remove a live member.
        if (state.faults > 1) break;
        const bool votes = &other != &self && other.alive && other.member && other.takes_part && self.member;
        if (state.stage != Stage::update || !votes || completion.result != Result::success) continue;
        if (other.line < self.line || (other.line == self.line && other.ticket == 0))
            return violate(state,
                           formatted("an update returns to {} before all members have called it", name_of(node)));
    }
    const std::uint32_t world = line.call == Call::await ? completion.world : completion.attributes.global_world;
    Told told{line.call, completion.result, world, completion.epoch, completion.revision};
    // The lie is applied only after an unlikely order of deliveries: this peer gets the outcome last.
    const bool last =
        node == 1 && (line.call == Call::await || line.call == Call::sync) &&
        std::all_of(state.nodes.begin() + 2, state.nodes.begin() + 1 + scope_.peers, [](const Node& other) {
            return !other.told.empty() && other.ticket == 0 && other.told.back().call >= Call::await;
        });
    if (last && state.stage == Stage::explored && scope_.lie != Lie::none) {
        if (scope_.lie == Lie::outcome) told.result = Result::rank_connection_lost;
        if (scope_.lie == Lie::value) write(state, node, {receive_buffer(state.collective), 0, 1}, "\x7f");
        if (scope_.lie == Lie::input) write(state, node, {send_buffer(state.collective), 0, 1}, "\x7f");
        if (scope_.lie == Lie::memory) self.buffers.emplace_back(999'999, texts_.keep("kept"));
    }
    self.told.push_back(told);
    ++self.line;
    const bool success = completion.result == Result::success;
    if (line.call == Call::connect && success) self.member = true;
    if (line.call == Call::launch && !success) self.line = static_cast<std::uint8_t>(program.size());
    if (self.line < program.size() && program[self.line].at_once) {
        self.ticket = ++self.calls;
        local_.push_back({CommandAwait{self.ticket, tag}, 0});
    }
    // The call is repeated after some time has passed.
    const bool again = line.repeated ? success : line.call == Call::connect && !success;
    if (again && self.rounds < rounds_max) {
        --self.line;
        ++self.rounds;
        self.not_before = state.now + 1;
    } else if (again) {
        violate(state, formatted("in vain: {} was called so often", to_text(line.call)));
    }
}

std::string World::text(const Message& message, std::size_t from, std::size_t to) const {
    switch (message.kind) {
    case Message::Kind::accepted: return "a connection";
    case Message::Kind::opened: return "opened";
    case Message::Kind::refused: return "refused";
    case Message::Kind::closed: return "closed";
    case Message::Kind::control:
        return sim::control_text(sim::talk_between(from == 0, to == 0),
                                 {reinterpret_cast<const std::uint8_t*>(message.body.data()), message.body.size()});
    case Message::Kind::flow: return sim::to_text(message.word);
    case Message::Kind::bulk: return sim::to_text(message.header);
    }
    return {};
}

std::string World::text(const State& state, const Choice& choice) const {
    const auto between = [&](const Connection& connection) {
        return formatted("{} > {} link {}", name_of(connection.node[0]), name_of(connection.node[1]),
                         connection.link[0]);
    };
    switch (choice.kind) {
    case Choice::Kind::deliver: {
        const Connection& connection = state.connections[choice.connection];
        const End& end = connection.ends[choice.side];
        const std::size_t from = connection.node[1 - choice.side];
        return formatted("{} <- {}  {}{}  (link {})", name_of(choice.node), name_of(from),
                         end.receiving ? "the rest of " : "", text(messages_[end.queue.front()], from, choice.node),
                         connection.link[choice.side]);
    }
    case Choice::Kind::write: return "master: a record is durable";
    case Choice::Kind::call:
        return formatted("{} calls {}", name_of(choice.node),
                         to_text(program_of(state, choice.node)[state.nodes[choice.node].line].call));
    case Choice::Kind::start_master: return "the master starts";
    case Choice::Kind::pass_time: return "time passes";
    case Choice::Kind::end:
        return "FAULT: connection ends behind what is on its way: " + between(state.connections[choice.connection]);
    case Choice::Kind::cut: {
        const Connection& connection = state.connections[choice.connection];
        const bool dialled = connection.ends[0].announced || connection.ends[1].announced;
        return formatted("FAULT: {}{}", dialled ? "connection lost: " : "dial refused: ", between(connection));
    }
    case Choice::Kind::kill: return formatted("FAULT: {} dies", name_of(choice.node));
    case Choice::Kind::kill_all_written: return "FAULT: master dies, its last records are durable";
    }
    return {};
}

void World::say(const State& state, std::size_t node, const std::string& what) const {
    if (what.empty()) return;
    std::printf("%9.3f ms      %s %s\n", static_cast<double>(state.now) / 1e6, name_of(node).c_str(), what.c_str());
}

}  // namespace pccl::scope
