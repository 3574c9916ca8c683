#include "core/voting/launches.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/numeric/quantize.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace pccl::core {

namespace {

using State = MasterLine::State;

// A tag that has failed this many times in a row without progress, for more than three peer time-outs since the first
// failure, will fail again: for example, faulty memory damages results, or a member has no memory left.
constexpr std::uint32_t failures_in_vain_max = 16;

// Empty: the command can be carried out.
Cause why_impossible(const CommandLaunch& command) {
    if (const auto why = numeric::why_not_quantizable(command.shape.quantization, command.shape.type))
        return plain_cause(*why);
    const CollectiveKind kind = command.collective.kind;
    if (kind == CollectiveKind::all_reduce) return {};
    if (static_cast<std::uint32_t>(kind) >= collective_kind_count) return make_cause<CauseKind::no_such_collective>();
    if (command.shape.quantization.algorithm != QuantizationAlgorithm::none)
        return make_cause<CauseKind::only_all_reduce_quantized>();
    const bool gathers = kind == CollectiveKind::all_gather || kind == CollectiveKind::gather ||
                         kind == CollectiveKind::all_to_all;
    if (gathers && command.send == command.receive && command.send != 0)
        return make_cause<CauseKind::gather_in_place>();
    const Collective& what = command.collective;
    if (!what.counts.empty() && what.counts.size() != what.world)
        return make_cause<CauseKind::counts_misfit>(what.counts.size(), what.world);
    // One end is nil: this peer.
    if (kind == CollectiveKind::send && what.root.is_nil() == what.target.is_nil())
        return make_cause<CauseKind::send_to_itself>();
    return {};
}

}  // namespace

// ---- calls ---------------------------------------------------------------------------------------------------------

void Launches::launch(const CommandLaunch& command) {
    const auto refuse = [&](Result result, Cause why) { tickets_.fail(command.ticket, result, std::move(why)); };
    if (Cause why = why_impossible(command); !why.empty()) return refuse(Result::invalid_argument, std::move(why));
    if (!master_.was_admitted()) return refuse(Result::invalid_usage, make_cause<CauseKind::not_connected>());
    const bool sends = command.collective.kind == CollectiveKind::send;
    if (sends && (command.collective.root == who_.uuid || command.collective.target == who_.uuid))
        return refuse(Result::invalid_argument, make_cause<CauseKind::send_to_itself>());
    if (launches_.contains(command.tag)) {
        PROBE(tag_twice);
        return refuse(Result::invalid_argument, make_cause<CauseKind::tag_launched_already>(command.tag));
    }
    Launch taken;
    take(taken, command);
    if (sends && sends_.contains(send_name(taken.collective))) {
        PROBE(send_twice);
        return refuse(Result::invalid_argument,
                      make_cause<CauseKind::tag_launched_already>(command.collective.pair_tag));
    }
    if (launches_.size() >= turn_.limits.tags_max)
        return refuse(Result::invalid_usage, make_cause<CauseKind::too_many_tags>());
    if (master_.state() == State::lost || tickets_.attributes().group_world < 2) {
        PROBE(launch_alone);
        return refuse(Result::too_few_peers,
                      master_.state() == State::lost ? master_.lost_cause() : make_cause<CauseKind::alone_in_group>());
    }
    if (sends) sends_.insert(send_name(taken.collective));
    Launch& launch = launches_[command.tag] = std::move(taken);
    cast_start(command.tag, launch);
    tickets_.complete(command.ticket, Completion{});
}

void Launches::reduce_many(const CommandReduceMany& command) {
    const auto refuse = [&](Result result, Cause why) { tickets_.fail(command.ticket, result, std::move(why)); };
    if (!master_.was_admitted()) return refuse(Result::invalid_usage, make_cause<CauseKind::not_connected>());
    if (command.launches.empty() || command.window == 0)
        return refuse(Result::invalid_argument, make_cause<CauseKind::nothing_to_reduce>());
    std::set<Tag> tags;
    for (const CommandLaunch& launch : command.launches) {
        if (Cause why = why_impossible(launch); !why.empty()) return refuse(Result::invalid_argument, std::move(why));
        if (launch.collective.kind == CollectiveKind::send)
            return refuse(Result::invalid_argument, make_cause<CauseKind::no_such_collective>());
        if (tags.insert(launch.tag).second && !launches_.contains(launch.tag)) continue;
        PROBE(tag_twice);
        return refuse(Result::invalid_argument, make_cause<CauseKind::tag_twice_in_call>(launch.tag));
    }
    if (launches_.size() + command.launches.size() > turn_.limits.tags_max)
        return refuse(Result::invalid_usage, make_cause<CauseKind::too_many_tags>());
    if (master_.state() == State::lost) return refuse(Result::too_few_peers, master_.lost_cause());
    if (tickets_.attributes().group_world < 2) {
        PROBE(launch_alone);
        return refuse(Result::too_few_peers, make_cause<CauseKind::alone_in_group>());
    }
    const std::uint64_t id = ++last_batch_;
    Batch& batch = batches_[id];
    batch.ticket = command.ticket;
    batch.window = command.window;
    batch.open = command.launches.size();
    batch.outcome.worlds.resize(command.launches.size(), 0);
    for (std::size_t i = 0; i < command.launches.size(); ++i) {
        const CommandLaunch& one = command.launches[i];
        Launch& launch = launches_[one.tag];
        take(launch, one);
        launch.batch = id;
        launch.index = i;
        cast_start(one.tag, launch);
    }
}

void Launches::await(const CommandAwait& command) {
    const auto it = launches_.find(command.tag);
    if (it == launches_.end() || it->second.await != 0 || it->second.batch != 0) {
        tickets_.fail(command.ticket, Result::rank_connection_lost,
                      make_cause<CauseKind::tag_not_launched>(command.tag));
        return;
    }
    if (it->second.outcome) {
        PROBE(awaited_late);
        Completion completion = std::move(*it->second.outcome);
        erase(it);
        tickets_.complete(command.ticket, std::move(completion));
        return;
    }
    it->second.await = command.ticket;
}

// ---- what becomes of them ------------------------------------------------------------------------------------------

void Launches::take(Launch& launch, const CommandLaunch& command) {
    launch.shape = command.shape;
    launch.send = command.send;
    launch.receive = command.receive;
    launch.input = command.input;
    launch.collective = command.collective;
    if (launch.collective.kind != CollectiveKind::send) return;
    if (launch.collective.root.is_nil()) launch.collective.root = who_.uuid;
    if (launch.collective.target.is_nil()) launch.collective.target = who_.uuid;
}

std::map<Tag, Launches::Launch>::iterator Launches::erase(std::map<Tag, Launch>::iterator launch) {
    const Collective& collective = launch->second.collective;
    if (collective.kind == CollectiveKind::send) sends_.erase(send_name(collective));
    return launches_.erase(launch);
}

// What a vote says for another collective than an all-reduce.
void Launches::describe(const Launch& launch, proto::Vote& vote) const {
    const Collective& collective = launch.collective;
    proto::Shape& shape = *vote.mutable_shape();
    shape.set_collective(static_cast<std::uint32_t>(collective.kind));
    if (!collective.root.is_nil()) shape.set_root(to_bytes(collective.root));
    if (collective.kind == CollectiveKind::send) {
        shape.set_target(to_bytes(collective.target));
        vote.set_id(collective.pair_tag);
    }
    vote.set_count(collective.count);
    vote.set_capacity(collective.capacity);
    vote.set_room(master_.answer_room());
    if (collective.kind == CollectiveKind::reduce_scatter) vote.set_world(tickets_.attributes().group_world);
    if (collective.world != 0) vote.set_world(collective.world);
    if (wire::counts_bytes(collective.counts) > wire::counts_bytes_max) {
        // The others must not wait for this member's vote, so the master refuses the start to all.
        vote.set_refused(true);
        write(make_cause<CauseKind::too_many_counts>(collective.counts.size()), *vote.mutable_cause());
        return;
    }
    vote.mutable_counts()->Assign(collective.counts.begin(), collective.counts.end());
    const auto bytes = whole_input(vote, who_.uuid, master_.vote_input_bytes_max());
    if (!bytes || !may_carry(*bytes) || master_.vote_input_bytes_max() == 0) return;
    if (*bytes != 0) {
        if (launch.input.size() != *bytes) return;
        const auto input = input_in_vote(collective, element_bytes(launch.shape.type), launch.input);
        if (!input) return;
        vote.set_input(*input);
    }
    vote.set_whole(true);
}

void Launches::cast_start(Tag tag, Launch& launch) {
    ++counted_.launches;
    proto::Vote vote;
    vote.set_kind(proto::VOTE_START);
    vote.set_id(tag);
    proto::Shape& shape = *vote.mutable_shape();
    shape.set_count(launch.shape.count);
    shape.set_type(static_cast<std::uint32_t>(launch.shape.type));
    shape.set_op(static_cast<std::uint32_t>(launch.shape.op));
    shape.set_slice_bytes(turn_.limits.slice_bytes);
    if (const Quantization& how = launch.shape.quantization; how.algorithm != QuantizationAlgorithm::none) {
        shape.set_quantization(static_cast<std::uint32_t>(how.algorithm));
        shape.set_quantized_type(static_cast<std::uint32_t>(how.type));
        shape.set_distribution_hint(static_cast<std::uint32_t>(how.hint));
    }
    if (launch.batch != 0) {
        vote.set_batch(launch.batch);
        vote.set_window(batches_.at(launch.batch).window);
        if (const Cause why = given_up(launch); !why.empty()) {
            vote.set_refused(true);
            write(why, *vote.mutable_cause());
        }
    }
    if (launch.collective.kind != CollectiveKind::all_reduce) {
        describe(launch, vote);
        // Fewer bytes than the master takes: some room is left for the rest of the vote.
    } else if (!launch.input.empty() && may_carry(launch.input.size()) &&
               input_bytes_in_vote(shape, master_.vote_input_bytes_max()) == launch.input.size()) {
        vote.set_input(launch.input);
    } else {
        vote.set_near(owner_.successor_is_near());
    }
    launch.op = 0;
    launch.serial = master_.cast(vote);
    by_serial_[launch.serial] = tag;
    launch.carried = vote.input().size();
    inputs_open_ += launch.carried;
    if (vote.input().empty() && !vote.refused()) owner_.start_cast(start_of(tag, launch));
}

std::optional<Launches::Start> Launches::answered(const proto::Answer& answer) {
    const auto by_serial = by_serial_.find(answer.serial());
    if (by_serial == by_serial_.end()) return {};
    const Tag tag = by_serial->second;
    by_serial_.erase(by_serial);
    Launch& launch = launches_.at(tag);
    inputs_open_ -= std::exchange(launch.carried, 0);
    if (answer.start().op() != 0) return start_of(tag, launch);
    Completion completion = failure_in(answer);
    told(launch, completion);
    concluded(tag, launch.serial, std::move(completion));
    return {};
}

void Launches::begun(Tag tag, OpId op) {
    Launch& launch = launches_.at(tag);
    launch.op = op;
    if (launch.batch == 0) return;
    Batch& batch = batches_.at(launch.batch);
    ++batch.running;
    batch.outcome.peak = std::max(batch.outcome.peak, static_cast<std::uint32_t>(batch.running));
}

void Launches::reduced_in_vote(Tag tag, OpId op, Completion result) {
    Launch& launch = launches_.at(tag);
    told(launch, result);
    launch.op = op;
    concluded(tag, launch.serial, std::move(result));
}

void Launches::told(Tag tag, const Completion& result) { told(launches_.at(tag), result); }

void Launches::concluded(Tag tag, Serial serial, Completion completion) {
    const auto it = launches_.find(tag);
    ASSERT(it != launches_.end() && it->second.serial == serial && !it->second.outcome);
    const bool was_started = it->second.op != 0;
    completion.sent_bytes += std::exchange(it->second.sent_in_vain, 0);
    // A launch without a serial waits for its retry; it was counted when it failed.
    if (serial != 0)
        ++(completion.result == Result::success ? counted_.committed
           : was_started                        ? counted_.aborted
                                                : counted_.refused);
    counted_.payload_sent += completion.sent_bytes;
    counted_.payload_received += completion.received_bytes;
    if (it->second.batch != 0) return concluded_of_many(tag, completion);
    if (it->second.await == 0) {
        it->second.outcome = std::move(completion);
        return;
    }
    const Ticket ticket = it->second.await;
    erase(it);
    tickets_.complete(ticket, std::move(completion));
}

void Launches::run_lost(const Cause& cause) {
    by_serial_.clear();
    inputs_open_ = 0;
    for (auto& [id, batch] : batches_) {
        batch.delayed.clear();
        batch.outcome.epoch = 0;
        if (batch.outcome.result != Result::success) continue;
        PROBE(lost_with_batch);
        batch.outcome.result = Result::too_few_peers;
        batch.outcome.cause = cause;
    }
    for (auto& [tag, launch] : launches_) {
        launch.again = false;
        launch.carried = 0;
    }
}

void Launches::conclude_unstarted(const Cause& cause) {
    std::vector<std::pair<Tag, Serial>> waiting;
    for (auto& [tag, launch] : launches_) {
        if (launch.outcome) PROBE(lost_after_outcome);
        if (launch.outcome)
            launch.outcome->epoch = 0;
        else if (launch.op == 0)
            waiting.emplace_back(tag, launch.serial);
    }
    if (!waiting.empty()) PROBE(lost_before_start);
    for (const auto& [tag, serial] : waiting) concluded(tag, serial, failure(Result::rank_connection_lost, cause));
}

// ---- many tags in one call --------------------------------------------------------------------------------------------

void Launches::told(Launch& launch, const Completion& result) {
    if (launch.batch == 0) return;
    Batch& batch = batches_.at(launch.batch);
    if (launch.op != 0) --batch.running;
    if (result.result == Result::success) {
        ++batch.reduced;
        return;
    }
    const bool has_stopped = batch.outcome.result != Result::success;
    launch.again = false;
    if (has_stopped) return;
    if (result.result != Result::rank_connection_lost) {
        PROBE(batch_stopped);
        batch.outcome.result = result.result;
        batch.outcome.cause = result.cause;
    } else if (result.attributes.group_world < 2) {
        PROBE(batch_left_alone);
        batch.outcome.result = Result::too_few_peers;
        batch.outcome.cause = result.cause.kind == CauseKind::group_left_alone
                                  ? result.cause
                                  : make_cause<CauseKind::group_left_alone_after>(result.cause);
    } else {
        launch.again = true;
        // The loss of a member is progress, and so is a reduced tag of this call. Both are bounded, because nobody
        // joins while the call runs and each tag is reduced once. Nothing else resets the count.
        const std::uint32_t world = result.attributes.group_world;
        if (launch.failures_in_vain == 0 || world < launch.failing_world || batch.reduced != launch.failing_reduced) {
            launch.failures_in_vain = 0;
            launch.failing_since = turn_.now;
        }
        launch.failing_world = world;
        launch.failing_reduced = batch.reduced;
        ++launch.failures_in_vain;
        launch.last_failure = result.cause;
    }
}

// Why this member gives the tag up, or empty. Each member counts for itself. If one gives up, the master refuses the
// start to all.
Cause Launches::given_up(const Launch& launch) const {
    if (launch.failures_in_vain < failures_in_vain_max || turn_.now - launch.failing_since <= turn_.timeouts.starved())
        return {};
    PROBE(batch_tag_given_up);
    return make_cause<CauseKind::tag_failed_often>(launch.failures_in_vain, launch.last_failure);
}

void Launches::concluded_of_many(Tag tag, const Completion& completion) {
    const auto at = launches_.find(tag);
    Launch& launch = at->second;
    const auto found = batches_.find(launch.batch);
    ASSERT(found != batches_.end());
    Batch& batch = found->second;
    Completion& total = batch.outcome;
    total.sent_bytes += completion.sent_bytes;
    total.received_bytes += completion.received_bytes;
    if (completion.epoch != 0 && completion.epoch >= total.epoch) {
        total.epoch = completion.epoch;
        total.attributes = completion.attributes;
    }
    if (launch.again) {
        launch.again = false;
        // A tag that fails more often waits for the next tick, so that it is not retried at network speed.
        if (++launch.failures <= turn_.limits.batch_failures_at_once) {
            PROBE(batch_tag_again);
            ++counted_.retried;
            cast_start(tag, launch);
        } else {
            PROBE(batch_tag_delayed);
            launch.op = 0;
            launch.serial = 0;
            batch.delayed.push_back(tag);
        }
        return;
    }
    if (completion.result == Result::success) {
        total.worlds[launch.index] = completion.world;
        total.world = completion.world;
    }
    launches_.erase(at);
    if (--batch.open != 0) return;
    const Ticket ticket = batch.ticket;
    Completion done = std::move(total);
    // The call succeeds if each buffer is reduced, whatever errors came before.
    if (std::find(done.worlds.begin(), done.worlds.end(), 0u) == done.worlds.end()) {
        done.result = Result::success;
        done.cause = {};
    } else if (done.result == Result::success) {
        done.result = Result::internal_error;
        done.cause = make_cause<CauseKind::no_cause_given>();
    }
    batches_.erase(found);
    tickets_.complete(ticket, std::move(done));
}

void Launches::launch_delayed() {
    for (auto& [id, batch] : batches_) {
        const std::vector<Tag> tags = std::move(batch.delayed);
        batch.delayed.clear();
        counted_.retried += tags.size();
        for (const Tag tag : tags) cast_start(tag, launches_.at(tag));
    }
}

// ---- observation -----------------------------------------------------------------------------------------------------

void Launches::check() const {
    for (const auto& [serial, tag] : by_serial_) {
        const auto launch = launches_.find(tag);
        ASSERT(launch != launches_.end() && launch->second.serial == serial);
        ASSERT(launch->second.op == 0 && !launch->second.outcome);
    }
    std::map<std::uint64_t, std::size_t> open;
    std::size_t sends = 0;
    std::uint64_t carried = 0;
    for (const auto& [tag, launch] : launches_) {
        carried += launch.carried;
        ASSERT(launch.carried == 0 || by_serial_.contains(launch.serial));
        sends += sends_.count(send_name(launch.collective));
        if (launch.batch == 0) continue;
        ASSERT(launch.await == 0 && !launch.outcome);
        ++open[launch.batch];
    }
    ASSERT(open.size() == batches_.size() && sends == sends_.size() && carried == inputs_open_);
    for (const auto& [id, batch] : batches_) {
        ASSERT(batch.open != 0 && batch.open == open.at(id));
        // What a lost run has not told does not count any more.
        ASSERT(batch.outcome.result != Result::success || batch.running <= batch.open);
        for (const Tag tag : batch.delayed) ASSERT(launches_.at(tag).batch == id && launches_.at(tag).serial == 0);
    }
}

}  // namespace pccl::core
