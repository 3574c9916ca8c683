#include "harness/scope/machines.hpp"

#include "core/base/assert.hpp"
#include "harness/scope/bytes.hpp"

#include <csetjmp>
#include <cstring>

namespace pccl::scope {

using namespace core;

namespace {

std::jmp_buf broken_jump;
char broken_text[256];

void on_broken(const char* expression, const char* file, int line) {
    const char* name = std::strrchr(file, '/');
    std::snprintf(broken_text, sizeof(broken_text), "broken invariant: %s (%s:%d)", expression,
                  name == nullptr ? file : name + 1, line);
    std::longjmp(broken_jump, 1);
}

Bytes& operator<<(Bytes& bytes, const ReduceShape& shape) {
    return bytes << shape.count << shape.type << shape.op << shape.quantization.algorithm << shape.quantization.type
                 << shape.quantization.hint;
}

void add(Bytes& bytes, const Command& command) {
    bytes << command.index();
    if (const auto* launch = std::get_if<CommandLaunch>(&command)) {
        bytes << launch->ticket << launch->tag << launch->shape << launch->send << launch->receive << launch->input;
    } else if (const auto* await = std::get_if<CommandAwait>(&command)) {
        bytes << await->ticket << await->tag;
    } else if (const auto* sync = std::get_if<CommandSync>(&command)) {
        bytes << sync->ticket << sync->revision << sync->strategy;
        for (const StateEntry& entry : sync->entries)
            bytes << entry.name << entry.buffer << entry.count << entry.type << entry.allow_content_inequality;
    } else if (const auto* leave = std::get_if<CommandLeave>(&command)) {
        bytes << leave->ticket << leave->abort;
    } else if (const auto* connect = std::get_if<CommandConnect>(&command)) {
        bytes << connect->ticket;
    } else if (const auto* update = std::get_if<CommandUpdateTopology>(&command)) {
        bytes << update->ticket;
    } else {
        // Scopes use no other command.
        ASSERT(false);
    }
}

}  // namespace

Hash128 hash_of(Instant now, const Event& event) {
    static Bytes bytes;
    bytes.clear();
    bytes << now << event.index();
    if (const auto* e = std::get_if<LinkOpened>(&event)) {
        bytes << e->link;
    } else if (const auto* e = std::get_if<LinkRefused>(&event)) {
        bytes << e->link << e->reason;
    } else if (const auto* e = std::get_if<LinkAccepted>(&event)) {
        bytes << e->link << e->remote.port << e->remote.address[3];
    } else if (const auto* e = std::get_if<LinkClosed>(&event)) {
        bytes << e->link << e->reason;
    } else if (const auto* e = std::get_if<ControlArrived>(&event)) {
        bytes << e->link << std::string_view(reinterpret_cast<const char*>(e->body.data()), e->body.size());
    } else if (const auto* e = std::get_if<FlowArrived>(&event)) {
        bytes << e->link << e->word.op << e->word.slice << e->word.value << e->word.kind << e->word.phase;
    } else if (const auto* e = std::get_if<BulkArrived>(&event)) {
        bytes << e->link << e->header.op << e->header.slice << e->header.phase << e->header.flags << e->header.entry
              << e->header.length;
    } else if (const auto* e = std::get_if<PayloadLanded>(&event)) {
        bytes << e->link << e->verdict << e->checksum;
    } else if (const auto* e = std::get_if<PayloadSent>(&event)) {
        bytes << e->link << e->checksum << e->cancelled;
    } else if (const auto* e = std::get_if<BufferAllocated>(&event)) {
        bytes << e->buffer << e->ok;
    } else if (const auto* e = std::get_if<ComputeDone>(&event)) {
        bytes << e->id << e->checksum << e->hash.low << e->hash.high;
    } else if (const auto* e = std::get_if<RecordPersisted>(&event)) {
        bytes << e->sequence;
    } else if (const auto* e = std::get_if<Command>(&event)) {
        add(bytes, *e);
    } else {
        ASSERT(std::holds_alternative<Timer>(event));
    }
    return numeric::hash128(bytes.text().data(), bytes.text().size());
}

void Machines::add_master(const MasterConfig& config) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->is_master = true;
    slots_.back()->master_config = config;
}

void Machines::add_peer(const PeerConfig& config) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->peer_config = config;
}

void Machines::load(Slot& slot, StateId state) {
    if (slot.loaded == state) return;
    slot.arena.load(slot.states[state].image);
    slot.loaded = state;
}

// The number of the state in which the machine is now. Saves the state if it is new.
StateId Machines::note(Slot& slot, const Hash128& history) {
    const Hash128 fingerprint = identity_ == Identity::memory ? slot.arena.fingerprint() : history;
    const auto [it, is_new] = slot.known.try_emplace(fingerprint, static_cast<StateId>(slot.states.size()));
    if (is_new) {
        State& state = slot.states.emplace_back();
        state.fingerprint = fingerprint;
        state.deadline = slot.is_master ? slot.master->next_deadline() : slot.peer->next_deadline();
        if (!slot.is_master) state.refused = slot.peer->statistics().refused_frames;
        state.image = slot.arena.save(chunks_);
        slot.loaded = it->second;
    } else {
        // A known state, but its blocks may lie elsewhere in the arena.
        slot.loaded = no_state;
    }
    return it->second;
}

std::string Machines::guarded(Slot& slot, Effects& effects, const std::function<bool(Effects&)>& act) {
    set_assertion_handler(&on_broken);
    clear_stack();
    // The jump leaves the core's stack frames without running destructors. The core's memory is in the arena, and that
    // state is not used again.
    if (setjmp(broken_jump) != 0) return broken_text;
    bool fine = false;
    {
        auto* const made = new Effects;
        {
            const Arena::Use use(slot.arena);
            fine = act(*made);
        }
        effects = *made;  // copies into the memory of the process
        delete made;
    }
    return fine ? std::string() : "the machine refused an event: misuse by its driver";
}

const Step& Machines::run(Slot& slot, const Key& key, const std::function<bool(Effects&)>& act) {
    auto step = std::make_unique<Step>();
    step->broken = guarded(slot, step->effects, act);
    if (step->broken.empty()) {
        Bytes history;
        const Hash128 before = key.state == no_state ? Hash128{} : slot.states[key.state].fingerprint;
        history << before.low << before.high << key.event.low << key.event.high;
        step->next = note(slot, numeric::hash128(history.text().data(), history.text().size()));
    } else {
        slot.loaded = no_state;
    }
    return *(slot.steps[key] = std::move(step));
}

const Step& Machines::handle(std::size_t node, StateId state, Instant now, const Event& event) {
    Slot& slot = *slots_[node];
    const Key key{state, hash_of(now, event)};
    if (const auto found = slot.steps.find(key); found != slot.steps.end()) return *found->second;
    load(slot, state);
    return run(slot, key, [&](Effects& out) {
        const Status status =
            slot.is_master ? slot.master->handle(now, event, out) : slot.peer->handle(now, event, out);
        return status == Status::ok;
    });
}

const Step& Machines::start_master(Instant now, const std::vector<std::string>& journal) {
    Slot& slot = *slots_[0];
    Bytes bytes;
    bytes << now;
    for (const std::string& record : journal) bytes << record;
    const Key key{no_state, numeric::hash128(bytes.text().data(), bytes.text().size())};
    if (const auto found = slot.steps.find(key); found != slot.steps.end()) return *found->second;
    slot.arena.clear();
    return run(slot, key, [&](Effects& out) {
        MasterConfig config = slot.master_config;
        slot.master = new MasterMachine(config);
        return slot.master->start(now, journal, out);
    });
}

StateId Machines::start_peer(std::size_t node) {
    Slot& slot = *slots_[node];
    slot.arena.clear();
    Effects effects;
    guarded(slot, effects, [&](Effects&) {
        slot.peer = new PeerMachine(slot.peer_config);
        return true;
    });
    return note(slot, Hash128{});
}

std::string Machines::explain(std::size_t node, StateId state) {
    Slot& slot = *slots_[node];
    load(slot, state);
    return slot.is_master ? slot.master->explain() : slot.peer->explain();
}

std::size_t Machines::states() const {
    std::size_t sum = 0;
    for (const auto& slot : slots_) sum += slot->states.size();
    return sum;
}

std::size_t Machines::steps() const {
    std::size_t sum = 0;
    for (const auto& slot : slots_) sum += slot->steps.size();
    return sum;
}

}  // namespace pccl::scope
