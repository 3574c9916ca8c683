// Carries out the effects of the machines of a scope.
#include "core/base/format.hpp"
#include "core/compute.hpp"
#include "core/wire/control.pb.h"
#include "harness/scope/bytes.hpp"
#include "harness/scope/world.hpp"

#include <algorithm>

namespace pccl::scope {

using namespace core;

namespace {

template <class Proto>
bool heartbeat_of(const std::string& body) {
    Proto message;
    return message.ParseFromString(body) && message.kind_case() == Proto::kHeartbeat;
}

}  // namespace

// ---- machines -------------------------------------------------------------------------------------------------------

void World::step(State& state, std::size_t node, const Event& event) {
    if (trace_ && !std::holds_alternative<ControlArrived>(event)) say(state, node, "");
    follow(state, node, machines_.handle(node, state.nodes[node].machine, state.now, event));
    settle(state, node);
}

void World::follow(State& state, std::size_t node, const Step& step) {
    if (!step.broken.empty()) return violate(state, step.broken);
    state.nodes[node].machine = step.next;
    for (const Effect& effect : step.effects) {
        if (!state.violation.empty()) return;
        carry_out(state, node, effect);
    }
}

// Delivers the answers that come at once.
void World::settle(State& state, std::size_t node) {
    while (!local_.empty() && state.violation.empty()) {
        const Local local = std::move(local_.front());
        local_.pop_front();
        std::size_t side = 0;
        if (local.link != 0 && find(state, node, local.link, side) == nullptr) continue;
        follow(state, node, machines_.handle(node, state.nodes[node].machine, state.now, local.event));
    }
    local_.clear();
}

Connection* World::find(State& state, std::size_t node, LinkId link, std::size_t& side) const {
    for (Connection& connection : state.connections) {
        for (side = 0; side < 2; ++side) {
            if (connection.node[side] == node && connection.link[side] == link && connection.ends[side].here)
                return &connection;
        }
    }
    return nullptr;
}

void World::carry_out(State& state, std::size_t node, const Effect& effect) {
    std::size_t side = 0;
    if (const auto* e = std::get_if<OpenLink>(&effect)) {
        open(state, node, *e);
    } else if (const auto* e = std::get_if<CloseLink>(&effect)) {
        close(state, node, e->link);
    } else if (const auto* e = std::get_if<SendControl>(&effect)) {
        Message message;
        message.body = e->body;
        send(state, node, e->link, std::move(message));
    } else if (const auto* e = std::get_if<SendFlow>(&effect)) {
        Message message;
        message.kind = Message::Kind::flow;
        message.word = e->word;
        send(state, node, e->link, std::move(message));
    } else if (const auto* e = std::get_if<SendPayload>(&effect)) {
        Message message;
        message.kind = Message::Kind::bulk;
        message.header = e->header;
        message.body = read(state, node, e->source);
        const std::uint64_t sum = numeric::checksum64(message.body.data(), message.body.size());
        message.checksum = e->has_checksum ? e->checksum : sum;
        local_.push_back({PayloadSent{e->link, message.checksum, false}, e->link});
        send(state, node, e->link, std::move(message));
    } else if (std::get_if<CancelSend>(&effect)) {
        violate(state, "a send was cancelled that had been answered");
    } else if (const auto* e = std::get_if<ReceivePayload>(&effect)) {
        Connection* const connection = find(state, node, e->link, side);
        if (connection == nullptr || !connection->ends[side].receiving || answered_bulk_)
            return violate(state, "ReceivePayload without BulkArrived");
        connection->ends[side].target = e->target;
        answered_bulk_ = true;
    } else if (const auto* e = std::get_if<DiscardPayload>(&effect)) {
        Connection* const connection = find(state, node, e->link, side);
        if (connection == nullptr || !connection->ends[side].receiving || answered_bulk_)
            return violate(state, "DiscardPayload without BulkArrived");
        connection->ends[side].discarded = answered_bulk_ = true;
    } else if (const auto* e = std::get_if<RedirectReceive>(&effect)) {
        Connection* const connection = find(state, node, e->link, side);
        if (connection == nullptr || !connection->ends[side].receiving || connection->ends[side].discarded)
            return violate(state, "RedirectReceive without a receive");
        connection->ends[side].discarded = true;
    } else if (const auto* e = std::get_if<AllocateBuffer>(&effect)) {
        auto& buffers = state.nodes[node].buffers;
        const std::pair entry(e->buffer, texts_.keep(std::string(e->bytes, '\0')));
        buffers.insert(std::upper_bound(buffers.begin(), buffers.end(), entry), entry);
        local_.push_back({BufferAllocated{e->buffer, true}, 0});
    } else if (const auto* e = std::get_if<FreeBuffer>(&effect)) {
        std::erase_if(state.nodes[node].buffers, [&](const auto& entry) { return entry.first == e->buffer; });
    } else if (const auto* e = std::get_if<StoreBytes>(&effect)) {
        store(state, node, *e);
    } else if (const auto* e = std::get_if<Compute>(&effect)) {
        compute(state, node, *e);
    } else if (const auto* e = std::get_if<Persist>(&effect)) {
        if (scope_.slow_disk) {
            state.nodes[0].unwritten.push_back(texts_.keep(e->record));
        } else {
            state.journal.push_back(texts_.keep(e->record));
            local_.push_back({RecordPersisted{e->sequence}, 0});
        }
    } else if (const auto* e = std::get_if<Complete>(&effect)) {
        completed(state, node, *e);
    } else if (const auto* e = std::get_if<SetAttributes>(&effect)) {
        // This effect comes alone when a membership ended, and also with a leave.
        Node& self = state.nodes[node];
        if (state.stage != Stage::leave && e->attributes.global_world == 1 && self.member) self.lost = true;
        self.member = false;
    } else if (const auto* e = std::get_if<Halt>(&effect)) {
        violate(state, "the master stopped itself: " + to_text(e->cause));
    } else if (const auto* e = std::get_if<Log>(&effect)) {
        if (trace_ && e->level >= LogLevel::info) say(state, node, "log: " + e->text);
    }
}

void World::store(State& state, std::size_t node, const StoreBytes& effect) {
    write(state, node, effect.target, effect.bytes);
}

void World::compute(State& state, std::size_t node, const Compute& effect) {
    ComputeDone done;
    done.id = effect.id;
    if (!is_well_formed(effect)) return violate(state, "a compute on ranges that do not belong together");
    std::string a = read(state, node, effect.a);
    if (effect.kind == Compute::Kind::hash) {
        done.hash = numeric::hash128(a.data(), a.size());
    } else {
        std::string b = reads_b(effect.kind) ? read(state, node, effect.b) : std::string();
        std::string target = read(state, node, effect.target);
        std::string kept = writes_keep(effect) ? read(state, node, effect.keep) : std::string();
        core::carry_out(effect, {reinterpret_cast<std::uint8_t*>(target.data()),
                                 reinterpret_cast<const std::uint8_t*>(a.data()),
                                 reads_b(effect.kind) ? reinterpret_cast<const std::uint8_t*>(b.data()) : nullptr,
                                 reinterpret_cast<std::uint8_t*>(kept.data())});
        write(state, node, effect.target, target);
        if (writes_keep(effect)) write(state, node, effect.keep, kept);
        if (effect.want_checksum) done.checksum = numeric::checksum64(target.data(), target.size());
    }
    local_.push_back({done, 0});
}

// ---- connections ----------------------------------------------------------------------------------------------------

std::uint32_t World::keep(const Message& message) {
    Bytes bytes;
    bytes << message.kind << message.body << message.word.op << message.word.slice << message.word.value
          << message.word.kind << message.word.phase << message.header.op << message.header.slice
          << message.header.phase << message.header.flags << message.header.entry << message.header.length
          << message.checksum << message.heartbeat;
    const auto [it, is_new] = message_ids_.try_emplace(numeric::hash128(bytes.text().data(), bytes.text().size()),
                                                       static_cast<std::uint32_t>(messages_.size()));
    if (is_new) messages_.push_back(message);
    return it->second;
}

void World::open(State& state, std::size_t node, const OpenLink& effect) {
    const auto other = static_cast<std::size_t>(effect.target.port - 1000);
    if (effect.link % 2 == 0 || other > scope_.peers || other == node) return violate(state, "a wrong OpenLink");
    Connection connection;
    connection.node = {static_cast<std::uint8_t>(node), static_cast<std::uint8_t>(other)};
    // Not a counter, so that it does not depend on the order in which connections are made.
    connection.link = {effect.link, 2 * ((effect.link * 8 + node) * 8 + state.nodes[node].life)};
    Message message;
    if (state.nodes[other].alive) {
        message.kind = Message::Kind::accepted;
        connection.ends[1].queue.push_back(keep(message));
        message.kind = Message::Kind::opened;
    } else {
        connection.ends[1].here = false;
        message.kind = Message::Kind::refused;
    }
    connection.ends[0].queue.push_back(keep(message));
    const auto place = std::upper_bound(
        state.connections.begin(), state.connections.end(), connection,
        [](const auto& a, const auto& b) { return std::pair(a.node[0], a.link[0]) < std::pair(b.node[0], b.link[0]); });
    state.connections.insert(place, std::move(connection));
}

void World::send(State& state, std::size_t node, LinkId link, Message message) {
    std::size_t side = 0;
    Connection* const connection = find(state, node, link, side);
    if (connection == nullptr) return violate(state, "an effect names a link that does not exist");
    if (!connection->ends[1 - side].here) return;
    if (message.kind == Message::Kind::control) {
        const std::size_t other = connection->node[1 - side];
        message.heartbeat = node == 0    ? heartbeat_of<proto::MasterMessage>(message.body)
                            : other == 0 ? heartbeat_of<proto::PeerMessage>(message.body)
                                         : heartbeat_of<proto::LinkMessage>(message.body);
    }
    if (trace_) say(state, node, "sends " + text(message, node, connection->node[1 - side]));
    connection->ends[1 - side].queue.push_back(keep(message));
}

void World::close(State& state, std::size_t node, LinkId link) {
    std::size_t side = 0;
    Connection* const connection = find(state, node, link, side);
    if (connection == nullptr) return violate(state, "CloseLink of a link that does not exist");
    connection->ends[side].here = false;
    Message message;
    message.kind = Message::Kind::closed;
    if (trace_) say(state, node, formatted("closes link {}", link));
    if (connection->ends[1 - side].here) connection->ends[1 - side].queue.push_back(keep(message));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::uint32_t* World::content(State& state, std::size_t node, BufferId id) const {
    for (auto& [buffer, text] : state.nodes[node].buffers) {
        if (buffer == id) return &text;
    }
    return nullptr;
}

const std::string* World::buffer(const State& state, std::size_t node, BufferId id) const {
    for (const auto& [buffer, text] : state.nodes[node].buffers) {
        if (buffer == id) return &texts_[text];
    }
    return nullptr;
}

std::string World::read(State& state, std::size_t node, const BufferRef& range) {
    const std::uint32_t* const id = content(state, node, range.id);
    if (id == nullptr || range.offset > texts_[*id].size() || range.length > texts_[*id].size() - range.offset) {
        violate(state, "a range outside of a buffer");
        return std::string(range.length, '\0');
    }
    return texts_[*id].substr(range.offset, range.length);
}

void World::write(State& state, std::size_t node, const BufferRef& range, std::string_view bytes) {
    std::uint32_t* const id = content(state, node, range.id);
    if (id == nullptr || range.offset > texts_[*id].size() || bytes.size() > texts_[*id].size() - range.offset ||
        bytes.size() != range.length)
        return violate(state, "a range outside of a buffer");
    std::string text = texts_[*id];
    text.replace(range.offset, bytes.size(), bytes);
    *id = texts_.keep(text);
}

}  // namespace pccl::scope
