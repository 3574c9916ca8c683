#include "world.hpp"

#include "core/compute.hpp"
#include "core/numeric/kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fuzz {
namespace {

[[noreturn]] void broken(const char* what) {
    std::fprintf(stderr, "fuzz world: %s\n", what);
    std::abort();
}

core::Endpoint endpoint_of(int node) {
    core::Endpoint endpoint;
    endpoint.port = static_cast<std::uint16_t>(1000 + node);
    endpoint.address = {127, 0, 0, 1};
    return endpoint;
}

core::Limits small_limits() {
    core::Limits limits;
    limits.slice_bytes = 64;
    limits.eager_bytes = 128;
    limits.chunk_bytes = 64;
    limits.scratch_bytes = 1024;
    limits.payload_bytes_max = 4096;
    limits.control_bytes_max = 4096;
    limits.unregistered_links_max = 8;
    limits.concurrent_ops = 2;
    return limits;
}

constexpr std::size_t app_bytes = 512;

}  // namespace

World::World(Input& input, Target target) : input_(input), target_(target) {
    core::Effects effects;
    core::MasterConfig master;
    master.seed = 11;
    master.limits = small_limits();
    nodes_[0].master = std::make_unique<core::MasterMachine>(master);
    nodes_[0].master->start(now_, {}, effects);
    carry_out(0, effects);
    for (int node = 1; node < node_count; ++node) {
        core::PeerConfig peer;
        peer.seed = 100 + static_cast<std::uint64_t>(node);
        peer.master = endpoint_of(0);
        peer.stripes = 2;
        peer.listen_port = endpoint_of(node).port;
        peer.limits = small_limits();
        nodes_[static_cast<std::size_t>(node)].peer = std::make_unique<core::PeerMachine>(peer);
    }
}

char* World::at(int node, const core::BufferRef& range) {
    const auto found = nodes_[static_cast<std::size_t>(node)].buffers.find(range.id);
    if (found == nodes_[static_cast<std::size_t>(node)].buffers.end()) broken("a buffer that does not exist");
    if (range.offset > found->second.size() || range.length > found->second.size() - range.offset) {
        broken("a range outside its buffer");
    }
    return found->second.data() + range.offset;
}

// ---- effects ---------------------------------------------------------------------------------------------------------

void World::deliver(int node, const core::Event& event) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    core::Effects effects;
    const core::Status status =
        self.master ? self.master->handle(now_, event, effects) : self.peer->handle(now_, event, effects);
    if (status != core::Status::ok) broken("the machine says that its driver broke the contract");
    carry_out(node, effects);
}

void World::carry_out(int node, core::Effects& effects) {
    for (core::Effect& effect : effects) carry_out(node, effect);
}

void World::answer(int node, core::Event event, core::LinkId link, std::uint64_t send_id) {
    nodes_[static_cast<std::size_t>(node)].answers.push_back({std::move(event), link, send_id});
}

void World::forget_link(int node, core::LinkId link) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    self.links.erase(link);
    std::erase_if(self.answers, [link](const PendingAnswer& pending) { return pending.link == link; });
}

void World::put(int node, core::LinkId link, Message message) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    const auto from = self.links.find(link);
    if (from == self.links.end()) broken("an effect names a link that does not exist");
    if (message.kind == Message::Kind::control && heard_.size() < 64) heard_.push_back(message.bytes);
    if (from->second.other == hostile) return;
    Node& other = nodes_[static_cast<std::size_t>(from->second.other)];
    const auto to = other.links.find(from->second.other_link);
    if (to != other.links.end()) to->second.queue.push_back(std::move(message));
}

void World::open_link(int node, const core::OpenLink& effect) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    if (effect.link % 2 == 0 || self.links.count(effect.link)) broken("OpenLink with a wrong id");
    const int other = effect.target.port - 1000;
    if (other < 0 || other >= node_count || other == node) {
        answer(node, core::LinkRefused{effect.link, "nobody listens there"}, effect.link);
        self.links[effect.link];
        return;
    }
    Node& far = nodes_[static_cast<std::size_t>(other)];
    const core::LinkId far_link = far.next_link;
    far.next_link += 2;
    self.links[effect.link].other = other;
    self.links[effect.link].other_link = far_link;
    far.links[far_link].other = node;
    far.links[far_link].other_link = effect.link;
    core::Endpoint remote = endpoint_of(node);
    remote.port = static_cast<std::uint16_t>(40000 + far_link % 10000);
    answer(node, core::LinkOpened{effect.link}, effect.link);
    answer(other, core::LinkAccepted{far_link, remote}, far_link);
}

void World::close_link(int node, core::LinkId link) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    if (!self.links.count(link)) broken("CloseLink of a link that does not exist");
    Message closed;
    closed.kind = Message::Kind::closed;
    put(node, link, std::move(closed));
    forget_link(node, link);
}

void World::send_payload(int node, core::SendPayload& effect) {
    const auto link = nodes_[static_cast<std::size_t>(node)].links.find(effect.link);
    if (link == nodes_[static_cast<std::size_t>(node)].links.end()) broken("SendPayload on a link that does not exist");
    if (link->second.sending != 0) broken("a second SendPayload before PayloadSent");
    if (effect.header.length != effect.source.length) broken("length of header and source differ");
    Message message;
    message.kind = Message::Kind::bulk;
    message.header = effect.header;
    message.bytes.assign(at(node, effect.source), effect.source.length);
    message.checksum =
        effect.has_checksum ? effect.checksum : core::numeric::checksum64(message.bytes.data(), message.bytes.size());
    message.send_id = link->second.sending = next_send_++;
    core::PayloadSent sent;
    sent.link = effect.link;
    sent.checksum = message.checksum;
    answer(node, sent, effect.link, message.send_id);
    put(node, effect.link, std::move(message));
}

void World::cancel_send(int node, core::LinkId link) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    const auto found = self.links.find(link);
    if (found == self.links.end() || found->second.sending == 0) broken("CancelSend without a send");
    for (PendingAnswer& pending : self.answers) {
        if (pending.send_id == found->second.sending) std::get<core::PayloadSent>(pending.event).cancelled = true;
    }
    if (found->second.other == hostile) return;
    const auto far = nodes_[static_cast<std::size_t>(found->second.other)].links.find(found->second.other_link);
    if (far == nodes_[static_cast<std::size_t>(found->second.other)].links.end()) return;
    for (Message& message : far->second.queue) {
        if (message.send_id == found->second.sending) message.abandoned = true;
    }
}

void World::compute(int node, const core::Compute& effect) {
    core::ComputeDone done;
    done.id = effect.id;
    const auto bytes = [&](const core::BufferRef& range) { return reinterpret_cast<std::uint8_t*>(at(node, range)); };
    if (!core::is_well_formed(effect)) broken("a compute on ranges that do not belong together");
    if (effect.kind == core::Compute::Kind::hash)
        done.hash = core::numeric::hash128(at(node, effect.a), effect.a.length);
    else
        core::carry_out(effect, bytes(effect.target), bytes(effect.a),
                        core::reads_b(effect.kind) ? bytes(effect.b) : nullptr);
    if (effect.want_checksum) done.checksum = core::numeric::checksum64(at(node, effect.target), effect.target.length);
    answer(node, done);
}

void World::carry_out(int node, core::Effect& effect) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    if (auto* open = std::get_if<core::OpenLink>(&effect)) return open_link(node, *open);
    if (auto* close = std::get_if<core::CloseLink>(&effect)) return close_link(node, close->link);
    if (auto* control = std::get_if<core::SendControl>(&effect)) {
        if (control->body.size() > small_limits().control_bytes_max) broken("a control body over the limit");
        Message message;
        message.bytes = std::move(control->body);
        return put(node, control->link, std::move(message));
    }
    if (auto* flow = std::get_if<core::SendFlow>(&effect)) {
        Message message;
        message.kind = Message::Kind::flow;
        message.word = flow->word;
        return put(node, flow->link, std::move(message));
    }
    if (auto* send = std::get_if<core::SendPayload>(&effect)) return send_payload(node, *send);
    if (auto* cancel = std::get_if<core::CancelSend>(&effect)) return cancel_send(node, cancel->link);
    if (auto* receive = std::get_if<core::ReceivePayload>(&effect)) {
        Link& link = self.links.at(receive->link);
        if (!link.receiving || answered_bulk_) broken("ReceivePayload without BulkArrived");
        at(node, receive->target);
        link.target = receive->target;
        link.discarded = false;
        answered_bulk_ = true;
        return;
    }
    if (auto* discard = std::get_if<core::DiscardPayload>(&effect)) {
        Link& link = self.links.at(discard->link);
        if (!link.receiving || answered_bulk_) broken("DiscardPayload without BulkArrived");
        link.discarded = true;
        answered_bulk_ = true;
        return;
    }
    if (auto* redirect = std::get_if<core::RedirectReceive>(&effect)) {
        Link& link = self.links.at(redirect->link);
        if (!link.receiving || link.discarded) broken("RedirectReceive without a receive");
        link.discarded = true;
        return;
    }
    if (auto* allocate = std::get_if<core::AllocateBuffer>(&effect)) {
        if (allocate->buffer % 2 == 0 || allocate->bytes > (64u << 20)) broken("AllocateBuffer");
        const bool ok = self.buffers.size() < 200;
        if (ok) self.buffers[allocate->buffer].resize(allocate->bytes);
        return answer(node, core::BufferAllocated{allocate->buffer, ok});
    }
    if (auto* release = std::get_if<core::FreeBuffer>(&effect)) {
        self.buffers.erase(release->buffer);
        return;
    }
    if (auto* work = std::get_if<core::Compute>(&effect)) return compute(node, *work);
    if (auto* persist = std::get_if<core::Persist>(&effect))
        return answer(node, core::RecordPersisted{persist->sequence});
    if (auto* complete = std::get_if<core::Complete>(&effect)) {
        if (self.tickets.erase(complete->ticket) != 1) broken("a ticket was completed that nobody holds");
        return;
    }
    if (std::get_if<core::Halt>(&effect)) halted_ = true;
}

// ---- events ----------------------------------------------------------------------------------------------------------

bool World::deliver_answer(int node) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    if (self.answers.empty()) return false;
    PendingAnswer pending = std::move(self.answers.front());
    self.answers.pop_front();
    if (pending.link != 0) {
        if (std::holds_alternative<core::LinkRefused>(pending.event)) {
            self.links.erase(pending.link);
        } else if (const auto link = self.links.find(pending.link); link != self.links.end()) {
            if (pending.send_id != 0) {
                link->second.sending = 0;
            } else {
                link->second.announced = true;
            }
        }
    }
    deliver(node, pending.event);
    return true;
}

void World::deliver_bulk(int node, core::LinkId id, const Message& message) {
    Link& link = nodes_[static_cast<std::size_t>(node)].links.at(id);
    link.receiving = true;
    answered_bulk_ = false;
    deliver(node, core::BulkArrived{id, message.header});
    if (!answered_bulk_ && nodes_[static_cast<std::size_t>(node)].links.count(id))
        broken("BulkArrived was not answered");
}

bool World::deliver_message(int node, bool with_change) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    std::vector<core::LinkId> ready;
    for (const auto& [id, link] : self.links) {
        if (link.announced && !link.queue.empty()) ready.push_back(id);
    }
    if (ready.empty()) return false;
    const core::LinkId id = ready[input_.below(ready.size())];
    Link& link = self.links.at(id);
    if (link.receiving) {
        // Ends the frame whose header was delivered.
        Message message = std::move(link.queue.front());
        link.queue.pop_front();
        core::PayloadLanded landed;
        landed.link = id;
        link.receiving = false;
        if (message.abandoned) {
            landed.verdict = core::PayloadLanded::Verdict::abandoned;
        } else if (link.discarded) {
            landed.verdict = core::PayloadLanded::Verdict::discarded;
        } else {
            const std::uint64_t checksum = core::numeric::checksum64(message.bytes.data(), message.bytes.size());
            const bool corrupt = checksum != message.checksum;
            if (message.bytes.size() != link.target.length) broken("the receive range has another length");
            std::memcpy(at(node, link.target), message.bytes.data(), message.bytes.size());
            landed.verdict = corrupt ? core::PayloadLanded::Verdict::corrupt : core::PayloadLanded::Verdict::landed;
            landed.checksum = checksum;
        }
        deliver(node, landed);
        return true;
    }
    if (with_change) change(link.queue.front());
    if (link.queue.front().kind == Message::Kind::bulk) {
        deliver_bulk(node, id, Message(link.queue.front()));
        return true;
    }
    Message message = std::move(link.queue.front());
    link.queue.pop_front();
    switch (message.kind) {
    case Message::Kind::control:
        deliver(node, core::ControlArrived{
                          id, {reinterpret_cast<const std::uint8_t*>(message.bytes.data()), message.bytes.size()}});
        break;
    case Message::Kind::flow: deliver(node, core::FlowArrived{id, message.word}); break;
    case Message::Kind::refused:
        deliver(node, core::FrameRefused{id, core::wire::WireError::bad_version, 7});
        if (self.links.count(id)) broken("FrameRefused was not answered with CloseLink");
        break;
    default: forget_link(node, id); deliver(node, core::LinkClosed{id, "closed"});
    }
    return true;
}

void World::change(Message& message) {
    switch (input_.byte() % 8) {
    case 0: message.kind = Message::Kind::refused; return;
    case 1:
        if (!heard_.empty()) message.bytes = heard_[input_.below(heard_.size())];
        message.kind = Message::Kind::control;
        return;
    case 2:
        message.kind = Message::Kind::flow;
        message.word = {input_.number(5), static_cast<std::uint32_t>(input_.number(4)),
                        static_cast<std::uint32_t>(input_.number(4)),
                        static_cast<core::wire::FlowKind>(1 + input_.byte() % 4), input_.byte()};
        return;
    case 3:
        message.header.op ^= input_.number(5);
        message.header.slice ^= static_cast<std::uint32_t>(input_.number(4));
        message.header.phase ^= input_.byte();
        message.header.entry ^= input_.number(2);
        message.header.flags ^= input_.byte();
        return;
    case 4: message.checksum ^= 1; return;
    case 5: message.bytes.resize(message.bytes.size() / 2); break;
    case 6: message.bytes += input_.bytes(input_.below(40)); break;
    default:
        for (int i = 0; i < 3 && !message.bytes.empty(); ++i) {
            message.bytes[input_.below(message.bytes.size())] ^= static_cast<char>(input_.byte());
        }
    }
    // A decoder delivers nothing longer.
    message.bytes.resize(std::min<std::size_t>(message.bytes.size(), small_limits().control_bytes_max));
    message.header.length = static_cast<std::uint32_t>(message.bytes.size());
}

// A hostile link from outside that sends anything: raw bytes, or messages that a node really sent.
void World::be_hostile() {
    const int node = target_ == Target::master ? 0 : 1 + static_cast<int>(input_.below(node_count - 1));
    Node& self = nodes_[static_cast<std::size_t>(node)];
    std::vector<core::LinkId> ours;
    for (const auto& [id, link] : self.links) {
        if (link.other == hostile && link.announced) ours.push_back(id);
    }
    const std::uint8_t choice = input_.byte();
    if (ours.empty() || (choice % 8 == 0 && ours.size() < 12)) {
        const core::LinkId id = self.next_link;
        self.next_link += 2;
        self.links[id].announced = true;
        core::Endpoint remote = endpoint_of(0);
        remote.port = static_cast<std::uint16_t>(50000 + id % 1000);
        deliver(node, core::LinkAccepted{id, remote});
        return;
    }
    const core::LinkId id = ours[input_.below(ours.size())];
    Message message;
    switch (choice % 8) {
    case 1: message.kind = Message::Kind::closed; break;
    case 2: message.kind = Message::Kind::refused; break;
    case 3:
        message.kind = Message::Kind::flow;
        message.word.op = input_.number(5);
        message.word.kind = static_cast<core::wire::FlowKind>(1 + input_.byte() % 4);
        break;
    case 4:
        message.kind = Message::Kind::bulk;
        message.bytes = input_.bytes(input_.below(100));
        message.header.op = input_.number(5);
        message.header.slice = input_.byte();
        message.header.phase = input_.byte();
        message.header.entry = input_.byte();
        message.header.length = static_cast<std::uint32_t>(message.bytes.size());
        message.checksum = core::numeric::checksum64(message.bytes.data(), message.bytes.size());
        break;
    case 5:
        if (!heard_.empty()) message.bytes = heard_[input_.below(heard_.size())];
        break;
    case 6:
        if (!heard_.empty()) message.bytes = heard_[input_.below(heard_.size())];
        change(message);
        break;
    default: message.bytes = input_.bytes(input_.below(200));
    }
    self.links.at(id).queue.push_back(std::move(message));
}

void World::call(int node) {
    Node& self = nodes_[static_cast<std::size_t>(node)];
    if (self.tickets.size() > 16) return;
    const core::Ticket ticket = next_ticket_++;
    self.tickets.insert(ticket);
    const auto buffer = [&] {
        const core::BufferId id = self.next_buffer;
        self.next_buffer += 2;
        self.buffers[id].assign(app_bytes, static_cast<char>(id));
        return id;
    };
    core::Command command;
    switch (input_.byte() % 8) {
    case 0: command = core::CommandConnect{ticket}; break;
    case 1: command = core::CommandUpdateTopology{ticket}; break;
    case 2: command = core::CommandArePeersPending{ticket}; break;
    case 3:
    case 4: {
        core::CommandLaunch launch;
        launch.ticket = ticket;
        launch.tag = input_.below(3);
        launch.shape = {input_.below(app_bytes / 8 + 1),
                        static_cast<core::DataType>(input_.below(12)),
                        static_cast<core::ReduceOp>(input_.below(5)),
                        {static_cast<core::QuantizationAlgorithm>(input_.byte() % core::quantization_algorithm_count),
                         static_cast<core::CodeType>(input_.below(core::code_type_count)),
                         static_cast<core::DistributionHint>(input_.byte() % core::distribution_hint_count)}};
        launch.send = buffer();
        launch.receive = input_.byte() % 2 == 0 ? launch.send : buffer();
        command = launch;
        break;
    }
    case 5: command = core::CommandAwait{ticket, input_.below(3)}; break;
    case 6: {
        core::CommandSync sync;
        sync.ticket = ticket;
        sync.revision = input_.below(3);
        sync.strategy = static_cast<core::SyncStrategy>(input_.byte() % core::sync_strategy_count);
        for (std::size_t i = input_.below(4); i > 0; --i) {
            sync.entries.push_back({std::string(1, static_cast<char>('a' + i)), buffer(), input_.below(app_bytes),
                                    core::DataType::u8, input_.byte() % 4 == 0});
        }
        command = std::move(sync);
        break;
    }
    default:
        if (const std::uint8_t choice = input_.byte(); choice % 4 == 0) {
            command = core::CommandLeave{ticket, choice % 8 == 4};
        } else if (choice % 4 == 1) {
            core::CommandReduceMany many;
            many.ticket = ticket;
            many.window = choice / 4 % 3;
            for (std::size_t i = choice / 16 % 4; i > 0; --i) {
                core::CommandLaunch launch;
                launch.tag = i;
                launch.shape = {input_.below(app_bytes / 8 + 1), core::DataType::i32, core::ReduceOp::sum};
                launch.send = launch.receive = buffer();
                many.launches.push_back(launch);
            }
            command = std::move(many);
        } else {
            command = core::CommandConnect{ticket};
        }
    }
    deliver(node, command);
}

void World::pass_time() {
    const std::uint8_t choice = input_.byte();
    now_ += choice < 128 ? choice * core::millisecond : (choice - 127) * (core::second / 4);
    for (int node = 0; node < node_count && !halted_; ++node) deliver(node, core::Timer{});
}

bool World::settle_one(int node) { return deliver_answer(node) || deliver_message(node, false); }

void World::step() {
    const std::uint8_t choice = input_.byte();
    const int node = static_cast<int>(input_.below(node_count));
    switch (choice % 8) {
    case 0:
    case 1:
        if (node != 0) call(node);
        return;
    case 2: deliver_answer(node); return;
    case 3: deliver_message(node, false); return;
    case 4: deliver_message(node, true); return;
    case 5: be_hostile(); return;
    case 6: pass_time(); return;
    default:
        // Everything in flight arrives, as on a quick network.
        for (int turn = 0; turn < 400 && !halted_; ++turn) {
            bool moved = false;
            for (int each = 0; each < node_count; ++each) moved = settle_one(each) || moved;
            if (!moved) break;
        }
    }
}

void World::play() {
    for (int steps = 0; steps < 2000 && !input_.empty() && !halted_; ++steps) step();
}

}  // namespace fuzz
