#include "harness/process.hpp"

#include "core/base/format.hpp"
#include "core/voting/graph.hpp"
#include "harness/collectives.hpp"
#include "harness/quantized.hpp"
#include "harness/reference.hpp"

#include <algorithm>
#include <utility>

namespace pccl::harness {

using namespace core;
using sim::mix;

Process::Process(ProcessWorld& world, const Scenario& scenario, Shared& shared, std::uint32_t node,
                 std::uint32_t number)
    : world_(world), scenario_(scenario), shared_(shared), ledger_(shared.ledger), counters_(shared.counters),
      node_(node), number_(number), plan_(scenario.peers[node - 1]), draw_(0), strategies_(0), interrupts_(0),
      gang_draw_(0) {
    draw_from(scenario.seed);
    revision_ = scenario.workload.first_revision;
}

void Process::draw_from(std::uint64_t seed) {
    draw_ = sim::Draw(mix(seed, mix(500, mix(node_, number_))));
    strategies_ = sim::Draw(mix(seed, mix(800, mix(node_, number_))));
    interrupts_ = sim::Draw(mix(seed, mix(820, mix(node_, number_))));
    gang_draw_ = sim::Draw(mix(seed, mix(840, mix(node_, number_))));
}

void Process::start() {
    make_state();
    load_checkpoint();
    prepare_tensors();
    main_ = main();
    main_.start();
    if (plan_.gang.none()) return;
    gang_watch_ = watch_gang();
    gang_watch_.start();
}

std::string Process::waits_for() const {
    std::string text;
    for (const Slot& slot : slots_) {
        if (slot.sleeping || slot.answered) continue;
        text += formatted("{}{} since {} ms", text.empty() ? "" : ", ", to_text(slot.kind), slot.begin / millisecond);
    }
    return text.empty() ? "nothing of the library" : text;
}

// --- calls and their returns -----------------------------------------------------------------------------------------

bool Process::in_a_call() const {
    return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.sleeping && !slot.answered; });
}

bool Process::only_connects() const {
    return in_a_call() && std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
               return slot.sleeping || slot.answered || slot.kind == CallKind::connect;
           });
}

// Ends the time without a call, and records it in the life if it is the longest.
void Process::note_idle() {
    if ((connected_ || connecting_) && idle_since_ < now()) {
        Life& life = ledger_.lives[life_];
        life.idle_longest = std::max(life.idle_longest, now() - idle_since_);
        if (scenario_.timeouts.vote != 0 && now() - idle_since_ > scenario_.timeouts.vote)
            life.idle.emplace_back(idle_since_, now());
    }
    idle_since_ = never;
}

// The master leaves a freeze out of the clocks of votes, except for up to two ticks. Freezes may overlap.
void Process::frozen(Instant until) {
    const Instant from = std::max(now(), std::exchange(frozen_until_, std::max(frozen_until_, until)));
    if (idle_since_ == never) return;
    const Duration noticed = until - from - 2 * scenario_.timeouts.tick();
    if (noticed > 0) idle_since_ += noticed;
}

// A program that hangs or ends may never look at the answer of a vote.
void Process::note_answered(const Slot& slot) {
    for (auto vote = ledger_.votes.rbegin(); vote != ledger_.votes.rend() && vote->begin >= slot.begin; ++vote) {
        if (vote->process != number_ || vote->kind != slot.kind || vote->begin != slot.begin) continue;
        if (vote->answered == open_end) vote->answered = now();
        return;
    }
}

// Attributes that change outside a completion mean that the communicator is lost.
void Process::attributes_set(const Attributes& attributes) {
    attributes_ = attributes;
    attributes_set_ = now();
    note_idle();
}

void Process::Call::await_suspend(std::coroutine_handle<> awaiter) {
    const Instant idle_before = process.idle_since_;
    process.note_idle();
    ticket = ++process.shared_.tickets;
    begin = process.now();
    std::visit([this](auto& c) { c.ticket = ticket; }, command);
    Slot slot;
    slot.ticket = ticket;
    slot.kind = kind;
    slot.begin = begin;
    slot.idle_before = idle_before;
    slot.awaiter = awaiter;
    process.slots_.push_back(std::move(slot));
    process.may_be_interrupted(kind);
    // The awaiter is never resumed from inside this call: completed() only stores the answer, and the queue resumes it
    // later.
    process.world_.command(process.node_, std::move(command));
}

// Suspends a thread of the program that is not in a call of the library.
Ticket Process::suspend(std::coroutine_handle<> awaiter) {
    Slot slot;
    slot.ticket = ++shared_.tickets;
    slot.sleeping = true;
    slot.answered = true;
    slot.begin = now();
    slot.awaiter = awaiter;
    slots_.push_back(std::move(slot));
    return shared_.tickets;
}

void Process::Sleep::await_suspend(std::coroutine_handle<> awaiter) {
    ticket = process.suspend(awaiter);
    process.world_.wake_after(process.node_, duration, ticket);
}

void Process::Wait::await_suspend(std::coroutine_handle<> awaiter) {
    ticket = signal.waiting = process.suspend(awaiter);
}

// The waiting thread is resumed by the queue, after what this thread does now.
void Process::notify(Signal& signal) {
    if (const Ticket ticket = std::exchange(signal.waiting, 0); ticket != 0) world_.wake_after(node_, 0, ticket);
}

void Process::Sleep::await_resume() {
    if (ticket != 0) process.take(ticket);
}

void Process::completed(Ticket ticket, const Completion& completion) {
    for (Slot& slot : slots_) {
        if (slot.ticket != ticket || slot.sleeping) continue;
        if (slot.answered) return world_.violate("contract", "ticket completed twice");
        slot.answered = true;
        if (lie_ == Lie::answered_twice) return completed(ticket, completion);
        slot.completion = completion;
        slot.answered_at = now();
        note_answered(slot);
        attributes_ = completion.attributes;
        // A call that failed at once, or an await whose result was ready, never reached the master. For the master the
        // program made no call.
        const bool local = (completion.result != Result::success || slot.kind == CallKind::await) &&
                           slot.begin == now() && slot.idle_before != never;
        if (!in_a_call()) idle_since_ = local ? slot.idle_before : now();
        if (completion.epoch != 0 && completion.epoch < epoch_seen_) {
            return world_.violate("membership", formatted("{} was told of epoch {} after epoch {}",
                                                          sim::Trace::name(node_), completion.epoch, epoch_seen_));
        }
        epoch_seen_ = std::max(epoch_seen_, completion.epoch);
        // A thread of the application wakes up at once, sometimes a little later.
        const Duration delay = draw_.chance(100'000) ? draw_.log_uniform(microsecond, 20 * millisecond) : 0;
        return world_.wake_after(node_, delay, ticket);
    }
    world_.violate("contract", "a ticket that nobody waits for was completed");
}

void Process::resume(Ticket ticket) {
    if (now() < hangs_until_) return world_.wake_after(node_, hangs_until_ - now(), ticket);
    for (const Slot& slot : slots_) {
        if (slot.ticket != ticket) continue;
        const std::coroutine_handle<> awaiter = slot.awaiter;
        return awaiter.resume();
    }
}

Completion Process::take(Ticket ticket) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].ticket != ticket) continue;
        Completion completion = std::move(slots_[i].completion);
        answered_at_ = slots_[i].answered_at;
        slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(i));
        return completion;
    }
    return {};
}

std::vector<std::uint8_t>& Process::memory(BufferId id) { return world_.memory(node_, id); }

Task<bool> Process::connect() {
    const std::size_t fact = ledger_.votes.size();
    const auto life = static_cast<std::uint32_t>(ledger_.lives.size());
    Life begun;
    begun.process = number_;
    begun.group = plan_.group;
    begun.gang = plan_.gang;
    begun.asked_at = now();
    begun.connected_at = never;
    begun.node = node_;
    ledger_.lives.push_back(begun);
    ledger_.votes.push_back(VoteFact{CallKind::connect, number_, life, now(), open_end, open_end, {}});
    epoch_seen_ = epoch_updated_ = epoch_synced_ = 0;
    interrupted_at_ = never;
    destroyed_ = false;
    sync_failed_ = false;
    life_ = life;
    connecting_ = true;
    if (!plan_.gang.none()) {
        const Duration most = scenario_.workload.gang_wait_max;
        waits_until_ = most == 0 ? never : now() + gang_draw_.log_uniform(millisecond, most);
    }
    idle_since_ = never;  // the time before belongs to no membership
    const Completion c = co_await call(CallKind::connect, CommandConnect{});
    connecting_ = false;
    ledger_.votes[fact].end = now();
    ledger_.votes[fact].completion = c;
    if (c.result != Result::success) {
        ledger_.lives[life].refused = true;
        ledger_.lives[life].gone_at = now();
        co_return false;
    }
    ledger_.lives[life].connected_at = now();
    ledger_.lives[life].peer = world_.peer_id(node_);
    ledger_.lives[life].member_until = answered_at_;  // the time of the answer; the application may look at it later
    connected_ = true;
    epoch_updated_ = c.epoch;  // the update of the members admitted this peer
    ++counters_.connects;
    co_return true;
}

Task<Completion> Process::vote(CallKind kind) {
    const std::size_t fact = ledger_.votes.size();
    const std::uint32_t life = life_;
    ledger_.votes.push_back(VoteFact{kind, number_, life, now(), open_end, open_end, {}});
    Command command = CommandArePeersPending{};
    if (kind == CallKind::update_topology) command = CommandUpdateTopology{};
    if (kind == CallKind::optimize) command = CommandOptimizeTopology{};
    const Completion c = co_await call(kind, std::move(command));
    ledger_.votes[fact].end = now();
    ledger_.votes[fact].completion = c;
    if (c.result == Result::success) {
        was_member(life, ledger_.votes[fact].begin);
        if (kind == CallKind::update_topology) {
            ++counters_.updates;
            epoch_updated_ = c.epoch;
        }
        if (kind == CallKind::optimize) ++counters_.optimized;
    }
    co_return c;
}

// Called when a call succeeded: the life was a member at least until the call began.
void Process::was_member(std::uint32_t life, Instant begin) {
    ledger_.lives[life].member_until = std::max(ledger_.lives[life].member_until, begin);
}

Task<bool> Process::still_member(const Completion& failed) {
    if (failed.attributes.global_world > 1 && attributes_.global_world > 1) co_return true;
    const Completion c = co_await vote(CallKind::are_peers_pending);
    if (c.result == Result::success) co_return true;
    const bool liars = has_liars(scenario_);
    // A false vote can admit others while the program of the liar believes that it is alone. The call then waits for them.
    if (liars && c.attributes.global_world > 1 && attributes_.global_world > 1) co_return true;
    Life& life = ledger_.lives[life_];
    if (interrupted_by(now())) {
        life.ended = true;
        life.gone_at = now();
    } else {
        life.lost = true;
        // A machine that loses its membership sets its attributes.
        life.lost_at = attributes_set_ > life.member_until ? attributes_set_ : now();
        life.gone_at = life.lost_at;
        life.causes = {failed.cause, c.cause};
    }
    // A program that did not notice the loss goes on calling. Every call must fail; none may succeed alone.
    const auto complain = [&](const char* what, const Completion& told) {
        std::string text =
            formatted("{} is lost, and {} said {}", ledger_.name(life_), what, sim::to_text(told.result));
        if (liars)
            ledger_.answered_alone.emplace_back(life_, std::move(text));
        else
            world_.violate("membership", text);
    };
    CommandSync alone;
    alone.revision = revision_;
    alone.entries = entries_;
    const Completion lonely = co_await call(CallKind::sync, std::move(alone));
    if (lonely.result != Result::invalid_usage && lonely.result != Result::pending_async_ops)
        complain("a synchronization", lonely);
    const Completion update = co_await call(CallKind::update_topology, CommandUpdateTopology{});
    if (update.result != Result::update_topology_failed && !(destroyed() && update.result == Result::invalid_usage))
        complain("an update of the topology", update);
    if (scenario_.workload.optimize_per_mille != 0) {
        const Completion optimize = co_await call(CallKind::optimize, CommandOptimizeTopology{});
        if (optimize.result != Result::topology_optimization_failed &&
            !(destroyed() && optimize.result == Result::invalid_usage))
            complain("an optimization of the topology", optimize);
    }
    connected_ = false;
    if (!interrupted_by(now())) ++counters_.lost;
    co_return false;
}

// --- collectives -----------------------------------------------------------------------------------------------------

void Process::prepare_tensors() {
    sim::Draw shapes(mix(scenario_.seed, mix(600, plan_.group))), ways(mix(scenario_.seed, mix(601, plan_.group)));
    const Workload& w = scenario_.workload;
    for (std::uint32_t i = 0; i < w.tags; ++i) {
        Tensor tensor;
        tensor.tag = shapes.chance(500'000) ? i : shapes.bits();
        for (const Tensor& other : tensors_) {
            if (other.tag == tensor.tag) tensor.tag = 1'000'000 + i;
        }
        tensor.shape.type = static_cast<DataType>(shapes.below(data_type_count));
        tensor.shape.op = static_cast<ReduceOp>(shapes.below(reduce_op_count));
        tensor.shape.count =
            shapes.chance(20'000) ? 0 : static_cast<std::uint64_t>(shapes.log_uniform(w.elements_min, w.elements_max));
        tensor.shape.count *= w.elements_times;
        if (w.f32_sum) tensor.shape = ReduceShape{std::max<std::uint64_t>(tensor.shape.count, w.elements_min)};
        if (ways.chance(w.quantized_per_mille * 1000)) {
            if (!w.f32_sum) {
                tensor.shape.type = ways.chance(700'000) ? DataType::f32 : DataType::f64;
                tensor.shape.quantization = draw_quantization(ways);
            } else {
                tensor.shape.quantization = {QuantizationAlgorithm::min_max, CodeType::u8, DistributionHint::none};
            }
        }
        // One element more than the shape, because a mismatched launch may have a count that is larger by one.
        const std::uint64_t bytes = (tensor.shape.count + 1) * element_bytes(tensor.shape.type);
        tensor.send = world_.add_buffer(node_, bytes);
        tensor.receive = world_.add_buffer(
            node_, w.collectives_per_mille == 0 ? bytes : room_of(tensor) * element_bytes(tensor.shape.type));
        tensors_.push_back(std::move(tensor));
    }
}

void Process::refill(Tensor& tensor) {
    check_untouched(tensor, "before it was used again");
    // Fills the element after the shape too: if several members launch the same mismatched count, it is reduced.
    core::ReduceShape whole = tensor.shape;
    ++whole.count;
    if (!scenario_.world.symbolic) draw_inputs(whole, scenario_.workload.exact, draw_, memory(tensor.send));
    tensor.in_place = draw_.chance(scenario_.workload.in_place_per_mille * 1000);
    tensor.untouched_since = false;
}

void Process::check_untouched(Tensor& tensor, const char* moment) {
    if (!tensor.untouched_since) return;
    if (lie_ == Lie::output_overwritten) memory(tensor.send)[0] ^= 1;
    const bool receive_same =
        tensor.in_place || tensor.kept_receive.empty() || memory(tensor.receive) == tensor.kept_receive;
    if (memory(tensor.send) != tensor.kept_send || !receive_same) {
        world_.violate("no-phantom", formatted("buffers of tag {} on {} changed after the return, seen {}", tensor.tag,
                                               sim::Trace::name(node_), moment));
    }
}

// Symbolic payload has no content, so only the places can be wrong. All of the input must have been read and all of the
// result written, and nothing after them.
void Process::check_geometry(const Tensor& tensor, const LaunchFact& fact) {
    if (!scenario_.world.symbolic || fact.completion.world < 2) return;
    const std::uint64_t bytes = fact.shape.count * element_bytes(fact.shape.type);
    const std::uint64_t written = world_.written(node_, tensor.in_place ? tensor.send : tensor.receive);
    const std::uint64_t read = world_.read(node_, tensor.send);
    if (lie_ != Lie::part_not_written && written == bytes && read == bytes) return;
    world_.violate("geometry",
                   formatted("tag {} on {}: of {} bytes {} of the input were read and {} of the result written",
                             tensor.tag, sim::Trace::name(node_), bytes, read, written));
}

// Changes the shape to another one that fits into the same buffers.
void Process::mismatch(core::ReduceShape& shape) {
    core::Quantization& how = shape.quantization;
    if (how.algorithm == QuantizationAlgorithm::none || draw_.chance(500'000)) {
        ++shape.count;
        return;
    }
    const core::Quantization was = how;
    while (how == was) {
        how = draw_quantization(draw_);
        if (draw_.chance(200'000)) how = {};
    }
}

// Enters the launch into the ledger.
CommandLaunch Process::prepare_launch(std::size_t index, bool mismatched) {
    Tensor& tensor = tensors_[index];
    check_untouched(tensor, "at a launch");
    if (scenario_.world.symbolic) {
        world_.forget_uses(node_, tensor.send);
        world_.forget_uses(node_, tensor.receive);
    }
    LaunchFact fact;
    fact.process = number_;
    fact.life = life_;
    fact.group = plan_.group;
    fact.tag = tensor.tag;
    fact.begin = now();
    fact.input = memory(tensor.send);
    CommandLaunch command;
    command.tag = tensor.tag;
    command.shape = tensor.shape;
    choose_collective(tensor, command, mismatched);
    if (command.collective.kind == CollectiveKind::all_reduce) {
        if (mismatched) mismatch(command.shape);
        command.send = tensor.send;
        command.receive = tensor.in_place ? tensor.send : tensor.receive;
    } else {
        tensor.receive_before = memory(tensor.receive);
    }
    fact.shape = command.shape;
    fact.collective = command.collective;
    fact.group_world = attributes_.group_world;
    fact.in_place = tensor.in_place;
    const bool gives = fact.collective.kind == CollectiveKind::broadcast || fact.collective.root == own_peer();
    const std::uint64_t bytes =
        input_elements(fact.collective, fact.shape.count, gives) * element_bytes(fact.shape.type);
    if (bytes <= scenario_.limits.vote_input_bytes_max && bytes <= fact.input.size() && !leaves_input_out(fact))
        command.input.assign(reinterpret_cast<const char*>(fact.input.data()), bytes);
    tensor.launch = ledger_.launches.size();
    tensor.untouched_since = false;
    ledger_.launches.push_back(std::move(fact));
    return command;
}

Task<Completion> Process::launch(std::size_t index, bool mismatched) {
    CommandLaunch command = prepare_launch(index, mismatched);
    const Completion c = co_await call(CallKind::launch, std::move(command));
    Tensor& again = tensors_[index];
    again.waiting = c.result == Result::success;
    again.launched = true;
    if (!again.waiting) {
        // It was not launched, so no other member can have counted it.
        LaunchFact& launched = ledger_.launches[again.launch];
        launched.end = launched.begin;
        launched.completion = c;
        ++counters_.refused;
        if (memory(again.send) != launched.input) world_.violate("restore", "a refused launch changed its input");
    }
    co_return c;
}

Task<Completion> Process::await(std::size_t index) {
    CommandAwait command;
    command.tag = tensors_[index].tag;
    const Instant begin = now();
    ledger_.launches[tensors_[index].launch].awaited = begin;
    const Completion c = co_await call(CallKind::await, std::move(command));
    if (c.result == Result::rank_connection_lost && interrupted_by(begin)) {
        // Awaited after the communicator had left. An outcome may have existed, but the leave dropped it.
        tensors_[index].waiting = false;
        tensors_[index].untouched_since = false;
    } else {
        returned(index, c);
    }
    co_return c;
}

// The application owns the buffers of the launch again. Checks them and records the answer in the ledger.
void Process::returned(std::size_t index, const Completion& c) {
    Tensor& tensor = tensors_[index];
    tensor.waiting = false;
    LaunchFact& fact = ledger_.launches[tensor.launch];
    fact.end = now();
    fact.completion = c;
    if (lie_ == Lie::input_overwritten) memory(tensor.send)[0] ^= 1;
    const std::vector<std::uint8_t>& send = memory(tensor.send);
    if (c.result == Result::success) {
        ++counters_.committed;
        if (fact.begin >= scenario_.chaos_end) shared_.goal_reached(node_, now());
        check_geometry(tensor, fact);
        // Only the part that the operation covers: a larger buffer keeps the tail of an earlier, longer operation.
        fact.output = memory(tensor.in_place ? tensor.send : tensor.receive);
        if (!scenario_.world.symbolic) {
            fact.output.resize(std::min<std::uint64_t>(result_bytes(fact, own_peer()), fact.output.size()));
            order_output(fact);
        }
        was_member(fact.life, fact.begin);
    } else {
        ++counters_.aborted;
        // The limit never allows this operation, so the goal cannot be reached.
        if (c.result == Result::invalid_usage && scenario_.limits.operation_bytes_max != 0)
            shared_.goal_reached(node_, now());
    }
    check_rest(tensor, fact);
    if (c.cause.has(CauseKind::root_not_member)) shared_.agreements.refused(fact.collective.root);
    if (c.cause.has(CauseKind::pieces_misfit)) shared_.agreements.misfit(agreement_of(tensor), number_);
    if ((c.result != Result::success || !tensor.in_place) && send != fact.input) {
        world_.violate("restore",
                       formatted("the input of tag {} on {} differs after {}", tensor.tag, sim::Trace::name(node_),
                                 c.result == Result::success ? "success out of place" : "a failure"));
    }
    tensor.kept_send = send;
    tensor.kept_receive =
        tensor.in_place || c.result != Result::success ? std::vector<std::uint8_t>{} : memory(tensor.receive);
    tensor.untouched_since = true;
}

}  // namespace pccl::harness
