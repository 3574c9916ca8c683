#include "net-sim/world.hpp"

#include "core/base/format.hpp"

#include <algorithm>

namespace pccl::sim {

using namespace core;

// The runs whose parts are checked after each event: one in so many, unless they are large.
constexpr std::uint64_t checks_parts_in = 192;
constexpr std::uint32_t checks_parts_nodes_max = 64;

World::World(std::uint32_t nodes, std::uint32_t strangers_from, const WorldParameters& parameters, std::uint64_t seed,
             Director& director)
    : parameters_(parameters), checks_parts_(seed % checks_parts_in == 0 && nodes <= checks_parts_nodes_max),
      director_(director), network_(queue_, now_, *this), strangers_from_(strangers_from) {
    draw_from(seed);
    timer_late_most_ = parameters.timer_late_max;
    nodes_.resize(nodes);
    for (std::uint32_t node = strangers_from; node < nodes; ++node)
        trace_.rename(node, formatted("stranger{}", node - strangers_from + 1));
    for (Node& node : nodes_) {
        node.drift_ppm = clocks_.between(-static_cast<std::int64_t>(parameters.drift_ppm), parameters.drift_ppm);
        node.clock_base = clocks_.between(0, 1000 * second);
    }
    network_.start(nodes, parameters.network, mix(seed, 10));
}

void World::draw_from(std::uint64_t seed) {
    clocks_ = Draw(mix(seed, 11));
    disks_ = Draw(mix(seed, 12));
    computes_ = Draw(mix(seed, 13));
    memory_ = Draw(mix(seed, 14));
    compactions_ = Draw(mix(seed, 15));
    lies_ = Draw(mix(seed, 16));
    lists_ = Draw(mix(seed, 21));
    texts_ = Draw(mix(seed, 17));
    network_.draw_from(mix(seed, 10));
}

// --- the loop ----------------------------------------------------------------------------------------------------------

void World::run(Instant horizon, std::uint64_t items_max) {
    while (!stopped_ && !violated() && !queue_.empty()) {
        if (queue_.next_time() > horizon) {
            now_ = horizon;
            return;
        }
        const Item item = queue_.pop();
        now_ = item.time;
        if (++items_ > items_max) return violate("bounded", formatted("more than {} items in one run", items_max));
        dispatch(item);
    }
}

void World::dispatch(const Item& item) {
    switch (item.kind) {
    case ItemKind::arrive:
    case ItemKind::end:
    case ItemKind::syn:
    case ItemKind::release:
    case ItemKind::room:
    case ItemKind::give_up: return network_.handle(item);
    case ItemKind::script:
        if (item.node == no_node) return director_.script_item(item.a, item.b);
        return wake(item.node);
    default: return dispatch_node(item);
    }
}

void World::dispatch_node(const Item& item) {
    Node& node = nodes_[item.node];
    if (node.driver == nullptr || item.incarnation != node.incarnation) return;
    if (item.kind == ItemKind::persisted && node.disk.hangs) return node.disk.kept_back.push_back(item);
    if (paused(item.node)) {
        if (item.kind == ItemKind::timer) {
            node.timer_at = never;  // polled again when the node resumes
        } else {
            node.deferred.push_back(item);
        }
        return;
    }
    if (item.kind == ItemKind::timer) {
        if (item.time >= node.timer_at) node.timer_at = never;
        const Instant deadline = node.driver->machine().next_deadline();
        if (deadline == never || local_time(node) < deadline) return poll_timer(item.node);
        node.idle_timers = node.last_timer == now_ ? node.idle_timers + 1 : 0;
        node.last_timer = now_;
        if (node.idle_timers > 1000) {
            return violate("progress", formatted("{} asks for a timer in the past again and again: {}",
                                                 trace_.name_of(item.node), node.driver->machine().explain()));
        }
        node.driver->handle(item);
    } else if (item.kind == ItemKind::persisted) {
        while (!node.disk_failed && !node.writing.empty() && node.writing.front().sequence <= item.a)
            make_durable(node);
        check_patience_with_disk(item.node);
        disk_answered(node);
        node.driver->handle(item);
    } else if (item.kind == ItemKind::application) {
        director_.application_item(item.node, item.a, item.b);
    } else {
        node.driver->handle(item);
    }
    after(item.node);
}

void World::after(std::uint32_t index) {
    Node& node = nodes_[index];
    if (node.driver == nullptr) return;
    if (node.driver->must_die()) {
        AimedCrash fired;
        std::erase_if(node.aimed, [&](const AimedCrash& crash) {
            if (crash.countdown == 0) fired = crash;
            return crash.countdown == 0;
        });
        end_process(index, fired.with_reset);
        director_.aimed_crash(index, fired.token);
        return;
    }
    if (!node.driver->halted().empty()) {
        end_process(index, true);
        return director_.halted(index);
    }
    const std::uint64_t held = node.driver->buffers().machine_bytes();
    if (held != 0 && node.plays_peer && node.driver->at_rest())
        violate("at-rest",
                formatted("{} holds {} bytes without a link, a call or an operation", Trace::name(index), held));
    // Not after each event: leftovers stay, and the master's tables grow with the number of peers.
    // A liar waits for answers to what it has never said.
    if (++node.looks % (node.plays_peer ? 8 : 128) == 0 && !lied(index)) {
        const std::string kept =
            untruth_ == Untruth::kept_at_rest ? "1 of nothing" : node.driver->machine().leftovers();
        if (!kept.empty()) violate("at-rest", formatted("{} keeps {}", Trace::name(index), kept));
    }
    if (checks_parts_) node.driver->machine().check();
    if (index == master_ && master_machine_ != nullptr) check_growth();
    poll_timer(index);
}

void World::poll_timer(std::uint32_t index) {
    Node& node = nodes_[index];
    const Instant deadline = node.driver->machine().next_deadline();
    if (deadline == never || (deadline == node.timer_for && node.timer_at != never)) return;
    Instant at = std::max(global_time(node, deadline), now_);
    if (at >= node.timer_at) return;
    if (parameters_.timer_late_max > 0 && clocks_.chance(100'000))
        at += clocks_.log_uniform(microsecond, parameters_.timer_late_max);
    if (at >= node.timer_at) return;
    node.timer_for = deadline;
    node.timer_at = at;
    Item item;
    item.time = at;
    item.kind = ItemKind::timer;
    item.node = index;
    item.incarnation = node.incarnation;
    queue_.push(item);
}

// Never decreases: one nanosecond more changes the second term by at most one.
static Instant elapsed_on(std::int64_t drift_ppm, Instant global) { return global + global * drift_ppm / 1'000'000; }

Instant World::local_time(const Node& node) const { return node.clock_base + elapsed_on(node.drift_ppm, now_); }

Instant World::global_time(const Node& node, Instant local) const {
    const Instant elapsed = local - node.clock_base;
    if (elapsed <= 0) return 0;
    // The inverse of local_time, found by correcting the first guess.
    Instant guess = elapsed;
    for (int i = 0; i < 4; ++i) guess += elapsed - elapsed_on(node.drift_ppm, guess);
    while (elapsed_on(node.drift_ppm, guess) < elapsed) ++guess;
    return guess;
}

// --- processes ---------------------------------------------------------------------------------------------------------

void World::start_machine(std::uint32_t index, std::unique_ptr<Machine> machine, const Limits& limits) {
    Node& node = nodes_[index];
    ++node.incarnation;
    node.silent = false;
    node.timer_at = never;
    node.driver = std::make_unique<Driver>(*this, index, node.incarnation, std::move(machine), limits);
    if (recorder_ != nullptr) recorder_->process_starts(now_, index);
    poll_timer(index);
}

void World::start_peer(std::uint32_t index, const PeerConfig& config) {
    start_machine(index, std::make_unique<MachineOf<PeerMachine>>(config), config.limits);
    nodes_[index].plays_peer = true;
}

void World::start_master(const MasterConfig& config) {
    Node& node = nodes_[master_];
    ++node.incarnation;
    node.silent = false;
    node.disk_failed = false;
    node.timer_at = never;
    node.disk.limit = config.timeouts.journal;
    node.disk.tick = config.timeouts.tick();
    auto machine = std::make_unique<MachineOf<MasterMachine>>(config);
    MasterMachine& master = machine->real;
    master_machine_ = &master;
    node.driver = std::make_unique<Driver>(*this, master_, node.incarnation, std::move(machine), config.limits);
    if (recorder_ != nullptr) recorder_->process_starts(now_, master_);
    Effects effects;
    acting_ = master_;
    if (!master.start(local_time(node), journal_, effects)) violate("replay", "the master refuses its own journal");
    growth_ = {0, 0, 0, config.limits.journal_records, 0};
    for (const std::string& record : journal_)
        growth_.snapshot = std::max<std::uint64_t>(growth_.snapshot, record.size());
    node.driver->carry_out(effects);
    trace_.event(mix(now_, journal_.size()));
    after(master_);
}

void World::revoke(const core::Uuid& peer) {
    revoked_.insert(peer);
    nodes_[master_].driver->give(core::PeerRevoked{peer});
    after(master_);
}

bool World::revoked(std::uint32_t node) const {
    const Driver* driver = node < nodes_.size() ? nodes_[node].driver.get() : nullptr;
    const core::PeerMachine* peer = driver == nullptr ? nullptr : driver->machine().peer();
    return peer != nullptr && revoked_.contains(peer->uuid());
}

void World::shut_down_master() {
    Node& node = nodes_[master_];
    Effects effects;
    master_machine_->shut_down(local_time(node), effects);
    node.driver->carry_out(effects);
    node.driver->stop();
    trace_.event(mix(now_, effects.size()));
    after(master_);
}

Instant World::forget_records(std::size_t count) {
    const std::size_t left = journal_.size() - std::min(count, journal_.size());
    const Instant first = left == journal_.size() ? core::never : left == 0 ? 0 : written_[left];
    journal_.resize(left);
    written_.resize(left);
    return first;
}

void World::hand_over_journal(std::uint32_t node) {
    nodes_[master_].disk_failed = true;
    network_.rename(0, node);
    master_ = node;
    nodes_[node].played_master = true;
    if (node != 0) trace_.rename(node, "master2");
}

void World::end_process(std::uint32_t index, bool with_reset, bool torn) {
    Node& node = nodes_[index];
    if (node.driver == nullptr) return;
    machine_bytes_most_ = std::max(machine_bytes_most_, node.driver->buffers().machine_bytes_most());
    if (index == master_) master_machine_ = nullptr;
    node.driver.reset();
    ++node.incarnation;
    node.silent = !with_reset;
    node.deferred.clear();
    node.paused_until = 0;
    // The kernel had written some of the unacknowledged records, in order.
    std::uint64_t lucky = node.writing.empty() || node.disk_failed ? 0 : disks_.below(node.writing.size() + 1);
    while (lucky-- != 0) make_durable(node);
    if (torn && !node.writing.empty() && !node.disk_failed) {
        std::string part = std::move(node.writing.front().record);
        // Cut short, or with zeros at its end, or with one wrong bit.
        const std::size_t from = disks_.below(part.size());
        switch (disks_.below(3)) {
        case 0: part.resize(from); break;
        case 1: std::fill(part.begin() + static_cast<std::ptrdiff_t>(from), part.end(), '\0'); break;
        default: part[from] ^= static_cast<char>(1u << disks_.below(8));
        }
        journal_.push_back(std::move(part));
        written_.push_back(now_);
    }
    node.writing.clear();
    node.disk_free = 0;
    node.disk.kept_back.clear();
    node.disk.silent_since = node.disk.silent_awake = never;
    node.disk.said = false;
    network_.node_gone(index, with_reset);
    const char* how = with_reset ? "process ends" : "process ends, its machine falls silent";
    if (trace_.wants_text()) trace_.line(now_, index, how);
    if (recorder_ != nullptr) recorder_->process_ends(now_, index, how);
}

void World::pause(std::uint32_t index, Duration duration) {
    Node& node = nodes_[index];
    if (node.driver == nullptr || now_ + duration <= node.paused_until) return;
    // Two overlapping pauses are one: the node resumes after the later one.
    if (!paused(index)) node.disk.paused_at = local_time(node);
    node.paused_until = now_ + duration;
    if (recorder_ != nullptr) recorder_->paused(now_, index, duration);
    if (trace_.wants_text()) trace_.line(now_, index, formatted("paused for {} ms", duration / millisecond));
    Item item;
    item.time = node.paused_until;
    item.kind = ItemKind::script;
    item.node = index;
    item.incarnation = node.incarnation;
    queue_.push(item);
}

void World::jump_clock(std::uint32_t index, Duration by) {
    Node& node = nodes_[index];
    if (!paused(index)) node.disk.paused_at = local_time(node);
    node.clock_base += by;
    if (trace_.wants_text()) trace_.line(now_, index, formatted("its clock jumps forward by {} ms", by / millisecond));
    if (node.driver == nullptr || paused(index)) return;
    woke_before_its_disk(node);
    node.timer_at = never;
    poll_timer(index);
}

std::pair<std::uint32_t, std::uint32_t> World::acting() const {
    const bool lives = acting_ != no_node && nodes_[acting_].driver != nullptr;
    return {acting_, lives ? nodes_[acting_].driver->speaks_with() : no_node};
}

void World::wake(std::uint32_t index) {
    Node& node = nodes_[index];
    if (node.driver == nullptr || paused(index) || node.paused_until == 0) return;
    node.paused_until = 0;
    woke_before_its_disk(node);
    if (trace_.wants_text()) trace_.line(now_, index, "goes on");
    // Readable bytes and answers come first, timers after them.
    std::deque<Item> deferred;
    deferred.swap(node.deferred);
    const std::uint64_t incarnation = node.incarnation;
    for (const Item& item : deferred) {
        if (node.driver == nullptr || node.incarnation != incarnation || violated()) return;
        dispatch(item);
    }
    if (node.driver != nullptr) after(index);
}

void World::command(std::uint32_t index, Command command) {
    Node& node = nodes_[index];
    if (node.driver == nullptr) return;
    node.driver->give(Event(std::move(command)));
    // after() handles timers and deaths when the item that brought the command ends.
}

void World::schedule_application(std::uint32_t index, Duration delay, std::uint64_t a, std::uint64_t b) {
    Item item;
    item.time = now_ + delay;
    item.kind = ItemKind::application;
    item.node = index;
    item.incarnation = nodes_[index].incarnation;
    item.a = a;
    item.b = b;
    queue_.push(item);
}

void World::schedule_script(Instant at, std::uint64_t a, std::uint64_t b) {
    Item item;
    item.time = std::max(at, now_);
    item.kind = ItemKind::script;
    item.a = a;
    item.b = b;
    queue_.push(item);
}

void World::violate(std::string oracle, std::string reason) {
    if (violated()) return;
    violation_ = Violation{std::move(oracle), std::move(reason)};
    if (trace_.wants_text())
        trace_.line(now_, no_node, formatted("VIOLATION {}: {}", violation_.oracle, violation_.reason));
}

void World::check_replay(const MasterConfig& config) {
    const Node& node = nodes_[master_];
    if (node.driver == nullptr || master_machine_ == nullptr || !node.writing.empty() || node.disk_failed) return;
    MasterMachine reader(config);
    Effects effects;
    if (untruth_ == Untruth::record_lost) forget_records(1);
    if (!reader.start(local_time(node), journal_, effects)) return violate("replay", "the journal cannot be read");
    const std::string live = master_machine_->promised(), replayed = reader.promised();
    if (live != replayed)
        violate("replay",
                formatted("the journal promises something else.\n  the master:\n{}  replayed:\n{}", live, replayed));
}

std::string World::explain() {
    std::string text;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].driver != nullptr)
            text += formatted("  {}: {}\n", trace_.name_of(i), nodes_[i].driver->machine().explain());
    }
    return text;
}

std::uint64_t World::situation() const {
    std::uint64_t all = 0;
    for (const auto& node : nodes_)
        all = mix(all, node.driver == nullptr ? 0 : 1 + node.driver->machine().abstract_state());
    return all;
}

// --- for drivers ---------------------------------------------------------------------------------------------------------

void World::handled(std::uint32_t index, const Event& event) {
    const std::uint64_t state = trace_.wants_state() ? nodes_[index].driver->machine().state_hash() : 0;
    trace_.event(mix(mix(index, static_cast<std::uint64_t>(now_)), mix(fingerprint(event), state)));
    if (machine_watch_ != nullptr) machine_watch_->handled(index, now_, event, nodes_[index].driver->machine());
}

void World::look_at_status(std::uint32_t index) {
    if (status_watch_ == nullptr || index != master_ || master_machine_ == nullptr) return;
    const std::string wrong = status_watch_->look(*master_machine_);
    if (!wrong.empty()) violate("status", "what the master tells spectators: " + wrong);
}

bool World::count_effect(std::uint32_t index, std::size_t kind) {
    ++effects_counted_[kind];
    for (Trigger& trigger : triggers_) {
        if (trigger.effect == kind && trigger.countdown != 0 && --trigger.countdown == 0)
            schedule_script(now_ + trigger.delay, trigger.a, trigger.b | std::uint64_t{index + 1} << 32);
    }
    bool fires = false;
    for (AimedCrash& crash : nodes_[index].aimed) {
        if (crash.effect == kind && crash.countdown != 0 && --crash.countdown == 0) fires = true;
    }
    return fires;
}

void World::count_record(const Persist& record) {
    if (record.supersedes && untruth_ != Untruth::snapshot_lost) {
        growth_ = {0, 0, record.record.size(), growth_.records_max, 0};
        return;
    }
    ++growth_.records;
    growth_.bytes += record.record.size();
}

// A snapshot comes at the end of an event, but not in the grace after a restart.
void World::check_growth() {
    constexpr std::uint64_t records_more = 32, bytes_more = 8192;
    if (growth_.records <= 2ull * growth_.records_max + records_more ||
        growth_.bytes <= 2 * growth_.snapshot + bytes_more || master_machine_->status().grace_until)
        growth_.events_too_long = 0;
    else if (++growth_.events_too_long > 2)
        violate("bounded", formatted("the journal has grown by {} records and {} bytes without a snapshot",
                                     growth_.records, growth_.bytes));
}

void World::persist(std::uint32_t index, Persist record) {
    Node& node = nodes_[index];
    if (index == master_) count_record(record);
    if (node.disk.silent_since == never) node.disk.silent_since = node.disk.silent_awake = local_time(node);
    node.writing.push_back(std::move(record));
}

// A snapshot removes the records that it supersedes. Sometimes they stay until the next one, because a master may die
// in between.
void World::make_durable(Node& node) {
    Record& record = node.writing.front();
    if (record.supersedes && !compactions_.chance(250'000)) {
        journal_.clear();
        written_.clear();
    }
    journal_.push_back(std::move(record.record));
    written_.push_back(now_);
    node.writing.pop_front();
}

void World::records_written(std::uint32_t index, std::uint64_t sequence) {
    Node& node = nodes_[index];
    const Instant begin = std::max(node.disk_free, now_);
    node.disk_free = begin + disks_.log_uniform(parameters_.disk_low, parameters_.disk_high);
    if (disk_extra_ > 0) node.disk_free += disks_.log_uniform(microsecond, disk_extra_);
    Item item;
    item.time = node.disk_free;
    item.kind = ItemKind::persisted;
    item.node = index;
    item.incarnation = node.incarnation;
    item.a = sequence;
    queue_.push(item);
}

// --- a disk that does not answer -------------------------------------------------------------------------------------------

// After this time the master reports a disk that does not answer (docs/operating.md).
static constexpr Duration disk_named_after = 5 * second;

// A master that slept longer than this must not blame its disk. One tick is due before the sleep, and one after it.
static Duration sleep_noticed(Duration limit) {
    return (limit == 0 ? disk_named_after : std::min(limit, disk_named_after)) / 4;
}

void World::free_disk() {
    for (Node& node : nodes_) {
        node.disk.hangs = false;
        for (Item& item : node.disk.kept_back) {
            item.time = now_;
            queue_.push(item);
        }
        node.disk.kept_back.clear();
    }
}

void World::disk_answered(Node& node) {
    node.disk.silent_since = node.disk.silent_awake = node.writing.empty() ? never : local_time(node);
    node.disk.said = false;
}

void World::woke_before_its_disk(Node& node) {
    Disk& disk = node.disk;
    if (disk.silent_since == never) return;
    disk.silent_awake = local_time(node);
    if (local_time(node) - disk.paused_at - disk.tick > sleep_noticed(disk.limit))
        disk.silent_since = disk.silent_awake;
}

bool World::may_give_up_disk(std::uint32_t index) const {
    const Node& node = nodes_[index];
    const Disk& disk = node.disk;
    return node.disk_failed ||
           (disk.limit != 0 && disk.silent_since != never && local_time(node) - disk.silent_since >= disk.limit);
}

std::uint32_t World::disk_is_named(std::uint32_t index) {
    Node& node = nodes_[index];
    if (node.disk.silent_since == never || local_time(node) - node.disk.silent_since < disk_named_after)
        violate("contract", "the master blames a disk that has not been silent for long");
    if (node.disk.said) violate("bounded", "the master says again that its disk does not answer");
    node.disk.said = true;
    if (index != master_) return 0;
    const MasterStatus status = master_machine_->status();
    // A member that was admitted at this moment came after the notice.
    return static_cast<std::uint32_t>(
        std::count_if(status.peers.begin(), status.peers.end(), [&](const MasterStatus::Peer& peer) {
            return (peer.state == MasterStatus::PeerState::member || peer.state == MasterStatus::PeerState::resuming) &&
                   peer.since != local_time(node);
        }));
}

// Calls of members wait for each record. So a master must report a hanging disk, and must give it up if there is a
// limit.
void World::check_patience_with_disk(std::uint32_t index) {
    const Node& node = nodes_[index];
    const Disk& disk = node.disk;
    if (disk.silent_awake == never || node.disk_failed || sleep_noticed(disk.limit) <= 2 * timer_late_most_) return;
    const Duration silent = local_time(node) - disk.silent_awake - 2 * disk.tick - 2 * timer_late_most_;
    if (disk.limit != 0 && silent > disk.limit)
        return violate("progress", "the disk has been silent for longer than the limit, and the master goes on");
    if (silent > disk_named_after && !disk.said)
        violate("progress", "the disk does not answer, every call waits for it, and the master does not say so");
}

// --- for the network -----------------------------------------------------------------------------------------------------

Reach World::reach(std::uint32_t index, std::uint16_t port) {
    const Node& node = nodes_[index];
    if (node.driver == nullptr) return node.silent ? Reach::silent : Reach::refusing;
    return port == listen_port && !node.driver->stopped() ? Reach::listening : Reach::refusing;
}

void World::payload_begins(std::uint32_t to, const wire::BulkHeader& header) {
    constexpr std::size_t payloads_kept = 8;
    std::deque<wire::BulkHeader>& payloads = nodes_[to].payloads;
    payloads.push_back(header);
    if (payloads.size() > payloads_kept) payloads.pop_front();
}

void World::bytes_arrived(std::uint32_t index, LinkId link, std::span<const Piece> pieces) {
    if (nodes_[index].driver == nullptr) return;
    nodes_[index].driver->bytes_arrived(link, pieces);
    after(index);
}

void World::link_ended(std::uint32_t index, LinkId link, const char* reason) {
    if (nodes_[index].driver == nullptr) return;
    nodes_[index].driver->link_ended(link, reason);
    after(index);
}

void World::room_made(std::uint32_t index, LinkId link) {
    if (nodes_[index].driver == nullptr) return;
    nodes_[index].driver->room_made(link);
}

}  // namespace pccl::sim
