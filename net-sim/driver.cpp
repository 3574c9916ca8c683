#include "net-sim/driver.hpp"

#include "core/base/format.hpp"
#include "core/compute.hpp"
#include "core/topology/address_rules.hpp"
#include "net-sim/world.hpp"

#include <algorithm>
#include <cstring>

namespace pccl::sim {

using namespace core;

// Part of the text that a master logs, and sends to its members, when the disk of its journal hangs.
static constexpr const char* disk_is_silent = "journal has not answered";

Driver::Driver(World& world, std::uint32_t node, std::uint64_t incarnation, std::unique_ptr<Machine> machine,
               const Limits& limits)
    : world_(world), node_(node), incarnation_(incarnation), machine_(std::move(machine)), limits_(limits),
      buffers_(world.parameters_.symbolic ? &world.zeros_ : nullptr) {}

void Driver::contract_broken(const std::string& what) {
    world_.violate("contract", formatted("{}: {}", world_.trace_.name_of(node_), what));
}

void Driver::schedule(Instant time, ItemKind kind, std::uint64_t a, std::uint64_t b) {
    Item item;
    item.time = time;
    item.kind = kind;
    item.node = node_;
    item.incarnation = incarnation_;
    item.a = a;
    item.b = b;
    world_.push(item);
}

BufferId Driver::add_application_buffer(std::uint64_t bytes) {
    application_buffers_ += 2;
    buffers_.add(application_buffers_, bytes);
    return application_buffers_;
}

Driver::Link* Driver::find(LinkId id) {
    // Most calls ask for the same link as the one before.
    if (found_last_ == nullptr || found_last_->id != id) {
        const auto found = links_.find(id);
        if (found == links_.end()) return nullptr;
        found_last_ = found->second.get();
    }
    return found_last_->gone ? nullptr : found_last_;
}

void Driver::drop(Link& link) {
    link.gone = true;
    gone_.push_back(link.id);
    if (world_.recorder_ != nullptr) world_.recorder_->link_ends(world_.now_, link.connection, link.side);
    buffers_.unlock(Use::send, link.id);
    buffers_.unlock(Use::receive, link.id);
}

void Driver::tidy() {
    if (!gone_.empty()) found_last_ = nullptr;
    for (const LinkId id : gone_) links_.erase(id);
    gone_.clear();
}

// --- one event, all its effects ----------------------------------------------------------------------------------------

void Driver::give(const Event& event) {
    if (must_die_ || stopped_ || !halted_.empty() || world_.violated()) return;
    if (inside_) return contract_broken("re-entered");
    if (const auto* command = std::get_if<Command>(&event)) note_command(*command);
    inside_ = true;
    World::Node& node = world_.nodes_[node_];
    const std::string said = watched() ? text(event) : std::string();
    if (world_.trace_.wants_text()) world_.trace_.line(world_.now_, node_, said);
    world_.acting_ = node_;
    handling_ = &event;
    const Status status = machine_->handle(world_.local_time(node), event, effects_);
    handling_ = nullptr;
    if (world_.recorder_ != nullptr)
        world_.recorder_->step(world_.now_, node_, said, world_.recorder_->keeps() ? machine_->explain() : "");
    world_.handled(node_, event);
    world_.look_at_status(node_);
    inside_ = false;
    if (status != Status::ok) contract_broken("handle() refused " + to_text(event));
    // A machine whose next timer is already due would be woken in a loop and use up a processor.
    if (machine_->next_deadline() <= world_.local_time(node)) contract_broken("asks for a timer that is due already");
    carry_out(effects_);
    if (!must_die_ && halted_.empty()) world_.check_patience_with_disk(node_);
}

bool Driver::leaving() const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [](const Waiting& w) { return std::holds_alternative<CommandLeave>(w.command); });
}

std::uint32_t Driver::speaks_with() const {
    if (handling_ == nullptr) return no_node;
    return std::visit(
        [this](const auto& event) {
            if constexpr (requires { event.link; })
                return far_end(event.link);
            else
                return no_node;
        },
        *handling_);
}

void Driver::carry_out(Effects& effects) {
    inside_ = true;
    for (Effect& effect : effects) {
        if (world_.count_effect(node_, effect.index())) must_die_ = true;
        if (must_die_ || !halted_.empty() || world_.violated()) break;
        if (world_.trace_.wants_text()) world_.trace_.line(world_.now_, node_, "    " + text(effect));
        if (world_.recorder_ != nullptr)
            world_.recorder_->effect(world_.recorder_->keeps() ? text(effect) : std::string());
        if (world_.lies(node_))
            perform_forged(effect);
        else
            perform(effect);
    }
    effects.clear();
    inside_ = false;
    if (must_die_ || !halted_.empty()) return;
    if (notices_owed_ != 0) contract_broken("does not say to every member that its disk does not answer");
    if (persisted_last_ != 0) {
        world_.records_written(node_, persisted_last_);
        persisted_last_ = 0;
    }
    // Sends begin only after all effects of the event, so several frames may leave in one write.
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
        if (Link* link = find(dirty_[i])) pump(*link);
    }
    dirty_.clear();
}

void Driver::perform(Effect& effect) {
    std::visit([this](auto& known) { on(known); }, effect);
}

// The machine is not told what became of its message.
void Driver::perform_forged(Effect& effect) {
    const LinkId id = std::visit(
        [](const auto& known) {
            if constexpr (requires { known.link; }) return known.link;
            return LinkId{0};
        },
        effect);
    const Link* link = find(id);
    const bool sends = std::holds_alternative<SendControl>(effect) || std::holds_alternative<SendFlow>(effect) ||
                       std::holds_alternative<SendPayload>(effect);
    if (!sends || link == nullptr || link->closing || !link->opened) return perform(effect);
    const std::uint32_t far = world_.network_.peer_of(link->connection, link->side);
    const Talk talk = talk_between(world_.is_master(node_), world_.is_master(far));
    forged_.clear();
    const auto fits = [&](const Effect& what) {
        const auto* control = std::get_if<SendControl>(&what);
        return control == nullptr || control->body.size() <= control_bytes_taken(*link);
    };
    if (world_.forger_->forge(node_, far, talk, effect, forged_) && fits(effect)) perform(effect);
    for (Effect& more : forged_) {
        if (must_die_ || world_.violated()) return;
        if (!fits(more)) continue;
        if (world_.trace_.wants_text()) world_.trace_.line(world_.now_, node_, "    false: " + text(more));
        perform(more);
    }
}

// Whether what comes over the link may be other than what a machine sent.
bool Driver::may_be_false(const Link& link) const {
    return world_.network_.tainted(link.connection, link.side) ||
           world_.lied(world_.network_.peer_of(link.connection, link.side));
}

void Driver::note_command(const Command& command) {
    const Ticket ticket = std::visit([](const auto& c) { return c.ticket; }, command);
    waiting_.push_back(Waiting{ticket, command});
    if (world_.recorder_ != nullptr)
        world_.recorder_->call_begins(world_.now_, node_, ticket, command.index(), to_text(command));
}

// --- links -------------------------------------------------------------------------------------------------------------

void Driver::on(OpenLink& effect) {
    if ((effect.link & 1) == 0) return contract_broken("opens a link with an even name");
    if (effect.link <= last_opened_) return contract_broken("link name used again");
    last_opened_ = effect.link;
    if (is_confined(effect.target))
        return contract_broken(formatted("dials {}, an address of its own host", to_text(effect.target)));
    const std::uint32_t connection = world_.network_.dial(node_, effect.link, effect.target, effect.source_port);
    found_last_ = nullptr;
    links_[effect.link] = std::make_unique<Link>(effect.link, connection, 0, limits_);
    if (world_.recorder_ != nullptr) world_.recorder_->link_begins(connection, 0, node_);
}

void Driver::on(CloseLink& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing)
        return contract_broken(formatted("closes link {}, which is not open", effect.link));
    const bool waits = link->encoder.queued_bytes() != 0;
    if (effect.flush && link->opened && waits) {
        link->closing = true;
        link->receiving = Receiving::nothing;
        buffers_.unlock(Use::send, link->id);
        buffers_.unlock(Use::receive, link->id);
        if (link->encoder.has_payload()) link->encoder.cancel_payload();
        link->sending.cancelled = true;
        schedule(world_.now_ + second, ItemKind::flush_over, link->id, 0);
        dirty_.push_back(link->id);
        return;
    }
    // If a flush is wanted and everything was handed to the kernel, the end follows the bytes. Otherwise the kernel may
    // drop what it holds.
    world_.network_.close(link->connection, link->side, effect.flush || (world_.network_.segments().below(2) == 0));
    drop(*link);
}

bool Driver::flushing() const {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& entry) { return entry.second->closing && !entry.second->gone; });
}

// The largest control frame for this link: the smaller limit of both ends (the other end may be gone, or a stranger).
std::uint32_t Driver::control_bytes_taken(const Link& link) const {
    const std::uint32_t far = world_.network_.peer_of(link.connection, link.side);
    const Driver* other = far < world_.nodes_.size() ? world_.nodes_[far].driver.get() : nullptr;
    return other == nullptr ? limits_.control_bytes_max
                            : std::min(limits_.control_bytes_max, other->limits_.control_bytes_max);
}

void Driver::on(SendControl& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || !link->opened)
        return contract_broken(formatted("sends control on link {}, which is not open", effect.link));
    const std::uint32_t most = control_bytes_taken(*link);
    if (effect.body.size() > most)
        return contract_broken(formatted("sends {} bytes of control on link {}, whose other end takes {}",
                                         effect.body.size(), effect.link, most));
    if (world_.message_watch_ != nullptr && !must_die_) {
        const std::uint32_t far = world_.network_.peer_of(link->connection, link->side);
        const auto said = std::span(reinterpret_cast<const std::uint8_t*>(effect.body.data()), effect.body.size());
        const Talk talk = talk_between(world_.is_master(node_), world_.is_master(far));
        if (world_.message_watch_->says(node_, far, talk, said)) return dies_before_this();
    }
    if (notices_owed_ != 0 && effect.body.find(disk_is_silent) != std::string::npos) --notices_owed_;
    if (world_.parameters_.long_texts_per_million != 0 &&
        world_.texts_.chance(world_.parameters_.long_texts_per_million)) {
        const std::uint32_t far = world_.network_.peer_of(link->connection, link->side);
        fill_text(talk_between(node_ == world_.master_, far == world_.master_), effect.body, most);
    }
    if (world_.parameters_.wrong_chunks_per_million != 0 && node_ != world_.master_ &&
        world_.network_.peer_of(link->connection, link->side) != world_.master_ &&
        world_.lists_.chance(world_.parameters_.wrong_chunks_per_million))
        damage_hashes(effect.body);
    const auto body = std::span(reinterpret_cast<const std::uint8_t*>(effect.body.data()), effect.body.size());
    link->encoder.queue_control(body);
    control_added(*link);
    if (world_.recorder_ != nullptr) record_control(*link, body);
    dirty_.push_back(link->id);
}

// Frames that it sent earlier within the same event still leave.
void Driver::dies_before_this() {
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
        if (Link* link = find(dirty_[i])) pump(*link);
    }
    dirty_.clear();
    must_die_ = true;
}

void Driver::on(SendFlow& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || !link->opened)
        return contract_broken(formatted("sends a flow word on link {}, which is not open", effect.link));
    link->encoder.queue_flow(effect.word);
    control_added(*link);
    if (world_.recorder_ != nullptr) record_sent(*link, Recorder::Kind::flow, to_text(effect.word));
    dirty_.push_back(link->id);
}

void Driver::on(SendPayload& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || !link->opened)
        return contract_broken(formatted("sends payload on link {}, which is not open", effect.link));
    if (link->sending.active) return contract_broken(formatted("second SendPayload on link {}", effect.link));
    if (effect.header.length != effect.source.length)
        return contract_broken("bulk header does not tell the length of its source");
    if (effect.header.length > limits_.payload_bytes_max) return contract_broken("payload too long");
    if (!buffers_.contains(effect.source))
        return contract_broken("sends from memory that is not there: " + to_text(Effect(effect)));
    if (!buffers_.lock(effect.source, false, Use::send, link->id))
        return contract_broken("sends a range that is being written: " + to_text(Effect(effect)));
    link->sending = Sending{effect, {}, true, false, false, false};
    const bool symbolic = buffers_.symbolic();
    const std::uint8_t* source = symbolic ? nullptr : buffers_.at(effect.source);
    if (effect.header.phase == 2 && !symbolic && effect.header.length != 0 &&
        world_.parameters_.wrong_chunks_per_million != 0) {
        link->sending.copy.assign(source, source + effect.header.length);
        source = link->sending.copy.data();
    }
    std::optional<std::uint64_t> checksum;
    bool tells_of_copy = false;
    if (world_.lies(node_) && !symbolic && effect.header.length != 0) {
        link->sending.copy.assign(source, source + effect.header.length);
        source = link->sending.copy.data();
        tells_of_copy = world_.forger_->forge_payload(node_, effect.header, link->sending.copy);
    }
    if (effect.has_checksum && !tells_of_copy)
        checksum = effect.checksum;
    else if (symbolic)
        checksum = buffers_.checksum(effect.source);
    else if (!link->sending.copy.empty() && !tells_of_copy && world_.lies(node_))
        checksum = buffers_.checksum(effect.source);
    link->encoder.begin_payload(effect.header, source, checksum);
    if (world_.recorder_ != nullptr) record_sent(*link, Recorder::Kind::bulk, to_text(effect.header));
    world_.payload_begins(far_end(effect.link), effect.header);
    dirty_.push_back(link->id);
}

void Driver::on(CancelSend& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing)
        return contract_broken(formatted("cancels a send on link {}, which is not open", effect.link));
    Sending& sending = link->sending;
    if (!sending.active) return contract_broken("cancels a send that does not run");
    buffers_.unlock(Use::send, link->id);
    sending.withdrawn = true;
    if (sending.complete || sending.cancelled) return;
    sending.cancelled = true;
    if (link->encoder.cancel_payload()) {
        sending.complete = true;
        if (world_.recorder_ != nullptr) world_.recorder_->withdrawn(link->connection, link->side);
        schedule(world_.now_, ItemKind::payload_sent, link->id, 0);
    } else {
        dirty_.push_back(link->id);
    }
}

void Driver::on(ReceivePayload& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || link->receiving != Receiving::undecided)
        return contract_broken("receives on a link that asked nothing");
    if (!buffers_.contains(effect.target))
        return contract_broken("receives into memory that is not there: " + to_text(Effect(effect)));
    if (effect.target.length != link->decoder.payload_remaining())
        return contract_broken("receives into a range of another length");
    if (!buffers_.lock(effect.target, true, Use::receive, link->id))
        return contract_broken("receives into a range in use: " + to_text(Effect(effect)));
    link->receiving = Receiving::into;
    link->target = effect.target;
}

void Driver::on(DiscardPayload& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || link->receiving != Receiving::undecided)
        return contract_broken("discards on a link that asked nothing");
    link->receiving = Receiving::nowhere;
}

void Driver::on(RedirectReceive& effect) {
    Link* link = find(effect.link);
    if (link == nullptr || link->closing || link->receiving != Receiving::into)
        return contract_broken("redirects a receive that does not run");
    buffers_.unlock(Use::receive, link->id);
    link->receiving = Receiving::nowhere;
}

// --- memory, computes, journal -------------------------------------------------------------------------------------------

void Driver::on(AllocateBuffer& effect) {
    if ((effect.buffer & 1) == 0) return contract_broken("allocates a buffer with an even name");
    const bool ok = !world_.memory_.chance(world_.parameters_.allocation_fails_per_million);
    if (ok && !buffers_.add(effect.buffer, effect.bytes))
        return contract_broken("allocates a buffer that is there already");
    const Duration slow = effect.may_be_file ? world_.parameters_.staging_max : 0;
    const Duration delay = slow == 0 ? 0 : world_.memory_.log_uniform(core::microsecond, slow);
    schedule(world_.now_ + delay, ItemKind::allocated, effect.buffer, ok ? 1 : 0);
    ++allocating_;
    world_.machine_bytes_most_ = std::max(world_.machine_bytes_most_, buffers_.machine_bytes());
}

void Driver::on(FreeBuffer& effect) {
    if ((effect.buffer & 1) == 0) return contract_broken("frees a buffer of the application");
    if (buffers_.in_use(effect.buffer)) return contract_broken("frees a buffer in use");
    if (!buffers_.remove(effect.buffer)) return contract_broken("frees a buffer that is not there");
}

void Driver::on(StoreBytes& effect) {
    if (buffers_.symbolic() || effect.bytes.size() != effect.target.length || !buffers_.contains(effect.target))
        return contract_broken("stores bytes where none fit");
    if (!buffers_.lock(effect.target, true, Use::store, 0)) return contract_broken("stores bytes into a range in use");
    buffers_.unlock(Use::store, 0);
    std::memcpy(buffers_.at(effect.target), effect.bytes.data(), effect.bytes.size());
    carried_.in_vote(effect.bytes.size());
}

void Driver::on(Compute& effect) {
    const bool writes = writes_target(effect.kind);
    const bool two = reads_b(effect.kind);
    const bool keeps = writes_keep(effect);
    if (!buffers_.contains(effect.a) || (writes && !buffers_.contains(effect.target)) ||
        (two && !buffers_.contains(effect.b)) || (keeps && !buffers_.contains(effect.keep))) {
        return contract_broken("computes on memory that is not there: " + to_text(Effect(effect)));
    }
    if (!is_well_formed(effect)) {
        return contract_broken("computes on ranges that do not belong together: " + to_text(Effect(effect)));
    }
    const bool free = buffers_.lock(effect.a, false, Use::compute, effect.id) &&
                      (!two || buffers_.lock(effect.b, false, Use::compute, effect.id)) &&
                      (!writes || buffers_.lock(effect.target, true, Use::compute, effect.id)) &&
                      (!keeps || buffers_.lock(effect.keep, true, Use::compute, effect.id));
    if (!free) return contract_broken("computes on a range in use: " + to_text(Effect(effect)));
    for (const Computing& other : computing_) {
        if (other.what.id == effect.id) return contract_broken("compute name used again");
    }
    Duration delay = 0;
    if (world_.parameters_.compute_max > 0 && !world_.computes_.chance(250'000)) {
        delay = world_.computes_.log_uniform(microsecond, world_.parameters_.compute_max);
    }
    delay *= world_.nodes_[node_].compute_factor;
    schedule(world_.now_ + delay, ItemKind::computed, effect.id, 0);
    computing_.push_back(Computing{effect});
}

void Driver::finish_compute(std::uint64_t id) {
    const auto found =
        std::find_if(computing_.begin(), computing_.end(), [&](const Computing& c) { return c.what.id == id; });
    if (found == computing_.end()) return;
    const Compute what = found->what;
    computing_.erase(found);
    buffers_.unlock(Use::compute, id);
    ComputeDone done;
    done.id = id;
    if (!buffers_.contains(what.a)) return contract_broken("freed memory under a compute");
    if (!buffers_.symbolic()) {
        core::carry_out(what, {writes_target(what.kind) ? buffers_.at(what.target) : nullptr, buffers_.at(what.a),
                               reads_b(what.kind) ? buffers_.at(what.b) : nullptr,
                               writes_keep(what) ? buffers_.at(what.keep) : nullptr});
    }
    if (what.kind == Compute::Kind::hash && !what.want_checksum) done.hash = buffers_.hash(what.a);
    if (what.want_checksum) done.checksum = buffers_.checksum(what.kind == Compute::Kind::hash ? what.a : what.target);
    give(done);
}

void Driver::on(Persist& effect) {
    if (node_ != world_.master_ && !world_.nodes_[node_].disk_failed) return contract_broken("a peer persists");
    persisted_last_ = effect.sequence;
    world_.director_.recorded(effect.record);
    world_.persist(node_, std::move(effect));
}

void Driver::on(Complete& effect) {
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.ticket == effect.ticket; });
    if (found == waiting_.end())
        return contract_broken(formatted("completes ticket {}, which nobody waits for", effect.ticket));
    const Command command = std::move(found->command);
    waiting_.erase(found);
    if (world_.recorder_ != nullptr)
        world_.recorder_->call_ends(world_.now_, node_, effect.ticket, effect.completion.result,
                                    to_text(effect.completion.cause));
    if (const auto* launch = std::get_if<CommandLaunch>(&command)) {
        if (effect.completion.result == Result::success)
            operations_.push_back(Operation{launch->tag, launch->send, launch->receive});
    } else if (const auto* await = std::get_if<CommandAwait>(&command)) {
        const auto operation = std::find_if(operations_.begin(), operations_.end(),
                                            [&](const Operation& o) { return o.tag == await->tag; });
        if (operation != operations_.end()) {
            if (buffers_.in_use(operation->send) || buffers_.in_use(operation->receive))
                contract_broken(formatted("returns buffers of tag {} that are in use", await->tag));
            operations_.erase(operation);
        }
    } else if (const auto* many = std::get_if<CommandReduceMany>(&command)) {
        for (const CommandLaunch& one : many->launches) {
            if (buffers_.in_use(one.send) || buffers_.in_use(one.receive))
                contract_broken(formatted("returns buffers of tag {} that are in use", one.tag));
        }
    } else if (const auto* sync = std::get_if<CommandSync>(&command)) {
        // A sync that was refused because another one runs does not return its buffers.
        const bool another = std::any_of(waiting_.begin(), waiting_.end(), [](const Waiting& w) {
            return std::get_if<CommandSync>(&w.command) != nullptr;
        });
        for (const StateEntry& entry : sync->entries) {
            if (!another && buffers_.in_use(entry.buffer)) contract_broken("returns shared state that is in use");
        }
    } else if (std::get_if<CommandLeave>(&command) != nullptr) {
        const bool others = std::any_of(waiting_.begin(), waiting_.end(), [](const Waiting& w) {
            return std::get_if<CommandLeave>(&w.command) == nullptr;
        });
        if (others) contract_broken("has left while other calls wait");
        for (const Operation& o : operations_) {
            if (buffers_.in_use(o.send) || buffers_.in_use(o.receive))
                contract_broken("has left while buffers are in use");
        }
        operations_.clear();
    }
    world_.director_.told(node_, command, effect.completion);
    if (world_.violated()) return;
    world_.director_.completed(node_, effect.ticket, effect.completion);
}

void Driver::on(SetAttributes& effect) { world_.director_.attributes_set(node_, effect.attributes); }
void Driver::on(Log& effect) {
    if (world_.recorder_ != nullptr) world_.recorder_->log(world_.now_, node_, effect.level, effect.text);
    if (node_ == world_.master_) world_.director_.logged(effect.text);
    if (world_.is_master(node_) && effect.text.find(disk_is_silent) != std::string::npos)
        notices_owed_ = world_.disk_is_named(node_);
    if (effect.text.find("cannot be compacted") != std::string::npos) world_.violate("replay", effect.text);
}
void Driver::on(Halt& effect) {
    halted_ = to_text(effect.cause);
    if (!world_.may_give_up_disk(node_)) contract_broken("halts: " + halted_);
}

// As the driver of a secure run would authenticate whoever dialled. Without World::authenticate_all every other connection
// is not authenticated, so that both kinds of runs are played. A stranger has a certificate too, in a name of its own.
Uuid Driver::identity_of(std::uint32_t from, std::uint32_t connection) {
    if (connection % 2 == 0 && !world_.all_authenticated_) return {};
    if (world_.stranger(from)) {
        Uuid own;
        own.bytes.fill(0xEE);
        return own;
    }
    Driver* const dialler = world_.driver(from);
    const PeerMachine* const peer = dialler == nullptr ? nullptr : dialler->machine().peer();
    return peer == nullptr ? Uuid{} : peer->uuid();
}

}  // namespace pccl::sim
