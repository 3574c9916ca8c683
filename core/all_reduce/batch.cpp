// Many tags in one call: all are launched at once, and what failed because a member was lost is launched again.
//
// Members come to an end together although each may use another window and another order: whether a tag is tried again is
// settled when its result is told, and results are told to all members in the order of the master's decisions. When the
// operation has come to rest here, which is a matter of each member alone, is of no account.
// Windows are kept by the master, which starts complete ballots in one order (MasterCore::start_waiting): what runs needs
// nothing but its members' data, so a place gets free, and the next one starts at all members or at none.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"

#include <algorithm>
#include <set>

namespace pccl::core {

namespace {
// With this many failures of one tag within one membership, and three peer time-outs since the first, the next one will fail,
// too: memory that damages results, or a member without memory.
constexpr std::uint32_t failures_in_vain_max = 16;
}  // namespace

void PeerCore::on_reduce_many(const CommandReduceMany& command) {
    const auto refuse = [&](Result result, const std::string& why) { complete(command.ticket, failure(result, why)); };
    if (state() == State::fresh || state() == State::connecting)
        return refuse(Result::invalid_usage, "the communicator is not connected; call pcclConnect first");
    if (command.launches.empty() || command.window == 0)
        return refuse(Result::invalid_argument, "nothing to reduce, or no operation may run at a time");
    std::set<Tag> tags;
    for (const CommandLaunch& launch : command.launches) {
        if (tags.insert(launch.tag).second && !launches_.contains(launch.tag)) continue;
        PROBE(tag_twice);
        return refuse(Result::invalid_argument,
                      "tag " + std::to_string(launch.tag) + " is launched already or stands twice in this call");
    }
    if (launches_.size() + command.launches.size() > config_.limits.tags_max)
        return refuse(Result::invalid_usage, "too many tags are launched and not awaited");
    if (state() == State::lost) return refuse(Result::too_few_peers, lost_text());
    if (view_.attributes.group_world < 2) {
        PROBE(launch_alone);
        return refuse(Result::too_few_peers, "the peer group has fewer than two members");
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
        launch.shape = one.shape;
        launch.send = one.send;
        launch.receive = one.receive;
        launch.batch = id;
        launch.index = i;
        cast_start(one.tag, launch);
    }
}

void PeerCore::batch_started(const Launch& launch) {
    if (launch.batch == 0) return;
    Batch& batch = batches_.at(launch.batch);
    ++batch.running;
    batch.outcome.peak = std::max(batch.outcome.peak, static_cast<std::uint32_t>(batch.running));
}

// In the order of decisions: of a start that was refused, or of an outcome.
void PeerCore::batch_told(Launch& launch, const Completion& result) {
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
        batch.outcome.message = result.message;
    } else if (result.attributes.group_world < 2) {
        PROBE(batch_left_alone);
        batch.outcome.result = Result::too_few_peers;
        const std::string alone = "all other members of the group are gone";
        batch.outcome.message = result.message.starts_with(alone) ? result.message : alone + ": " + result.message;
    } else {
        launch.again = true;
        // The loss of a member is progress, and so is a tag of this call that was reduced: nobody joins while the call runs,
        // and each tag is reduced once, so both end. Nothing else starts the count anew.
        const std::uint32_t world = result.attributes.group_world;
        if (launch.failures_in_vain == 0 || world < launch.failing_world || batch.reduced != launch.failing_reduced) {
            launch.failures_in_vain = 0;
            launch.failing_since = turn_.now;
        }
        launch.failing_world = world;
        launch.failing_reduced = batch.reduced;
        ++launch.failures_in_vain;
        launch.last_failure = result.message;
    }
}

// Why a tag is given up, or empty. Each member counts for itself; the master refuses the start to all if one says so.
std::string PeerCore::given_up_tag(const Launch& launch) const {
    if (launch.failures_in_vain < failures_in_vain_max || turn_.now - launch.failing_since <= 3 * config_.timeouts.peer)
        return {};
    PROBE(batch_tag_given_up);
    return "it failed " + std::to_string(launch.failures_in_vain) +
           " times in a row, although no member was lost and no other tag was reduced; the last time: " +
           launch.last_failure;
}

// The operation has come to rest, or never began.
void PeerCore::batch_concluded(Tag tag, const Completion& completion) {
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
        // One that fails more often waits for the next tick: whatever it fails for is not to be repeated at network speed.
        if (++launch.failures <= config_.limits.batch_failures_at_once) {
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
    // Success means that each buffer is reduced, whatever was said on the way.
    if (std::find(done.worlds.begin(), done.worlds.end(), 0u) == done.worlds.end()) {
        done.result = Result::success;
        done.message.clear();
    } else if (done.result == Result::success) {
        done.result = Result::internal_error;
        done.message = "the master refused a collective without a reason";
    }
    batches_.erase(found);
    complete(ticket, std::move(done));
}

// The run is lost: nothing is tried again, and what the epochs of that run said is of no account.
void PeerCore::batches_lost(const std::string& reason) {
    for (auto& [id, batch] : batches_) {
        batch.delayed.clear();
        batch.outcome.epoch = 0;
        if (batch.outcome.result != Result::success) continue;
        PROBE(lost_with_batch);
        batch.outcome.result = Result::too_few_peers;
        batch.outcome.message = reason;
    }
    for (auto& [tag, launch] : launches_) launch.again = false;
}

void PeerCore::launch_delayed() {
    for (auto& [id, batch] : batches_) {
        const std::vector<Tag> tags = std::move(batch.delayed);
        batch.delayed.clear();
        counted_.retried += tags.size();
        for (const Tag tag : tags) cast_start(tag, launches_.at(tag));
    }
}

}  // namespace pccl::core
