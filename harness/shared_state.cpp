// The shared state of a simulated program: its entries, checkpoints of it, its synchronizations, and how a step of the
// training changes it.
#include "core/base/format.hpp"
#include "core/voting/graph.hpp"
#include "harness/process.hpp"

#include <algorithm>
#include <utility>

namespace pccl::harness {

using namespace core;
using sim::mix;

void Process::make_state() {
    sim::Draw shapes(mix(scenario_.seed, mix(700, plan_.group)));
    for (std::uint32_t i = 0; i < scenario_.workload.entries; ++i) {
        StateEntry entry;
        entry.name = formatted("entry.{}", i);
        if (entry.name.size() < scenario_.workload.key_bytes) entry.name.resize(scenario_.workload.key_bytes, '_');
        entry.type = static_cast<DataType>(shapes.below(data_type_count));
        entry.count = shapes.chance(150'000)
                          ? 0
                          : static_cast<std::uint64_t>(shapes.log_uniform(scenario_.workload.state_elements_min,
                                                                          scenario_.workload.state_elements_max));
        entry.buffer = world_.add_buffer(node_, entry.count * element_bytes(entry.type));
        entry.allow_content_inequality = shapes.chance(scenario_.workload.own_entries_per_mille * 1000);
        // Some start from the same values, as programs with a fixed seed do.
        std::vector<std::uint8_t>& bytes = memory(entry.buffer);
        const std::uint64_t start = shapes.bits();
        const std::uint64_t own = draw_.chance(500'000) ? start : draw_.bits();
        for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::uint8_t>(mix(own, k));
        entries_.push_back(std::move(entry));
    }
}

void Process::load_checkpoint() {
    odd_schema_ = draw_.chance(scenario_.workload.schema_per_mille * 1000);
    if (!scenario_.workload.checkpoints || checkpoint_ == nullptr || checkpoint_->entries.empty()) return;
    if (draw_.chance(200'000)) return;  // sometimes starts without its checkpoint
    revision_ = checkpoint_->revision;
    for (std::size_t i = 0; i < entries_.size(); ++i) memory(entries_[i].buffer) = checkpoint_->entries[i];
}

void Process::save_checkpoint() {
    if (!scenario_.workload.checkpoints || checkpoint_ == nullptr) return;
    checkpoint_->revision = revision_;
    checkpoint_->entries.clear();
    for (const StateEntry& entry : entries_) checkpoint_->entries.push_back(memory(entry.buffer));
}

// Changes one entry so that it fits that of no other member, except one with the same change. Returns which change.
std::uint32_t Process::odd_schema(Schema& schema) {
    StateEntry& odd = schema.back();
    sim::Draw draw(mix(scenario_.seed, mix(860, mix(node_, number_))));
    const std::uint64_t way = draw.below(4);
    if (way == 1) {
        odd.allow_content_inequality = !odd.allow_content_inequality;
        return 2;
    }
    if (way == 2 && odd.count > 1) {
        --odd.count;
        return 3;
    }
    for (std::uint32_t i = 0; way == 3 && i < data_type_count; ++i) {
        const auto type = static_cast<DataType>(i);
        if (type == odd.type || element_bytes(type) != element_bytes(odd.type)) continue;
        odd.type = type;
        return 4;
    }
    odd.name.back() = '!';  // as long as before
    return 1;
}

std::vector<std::uint8_t> Process::state_bytes(const Schema& schema, bool may_differ) {
    std::vector<std::uint8_t> all;
    std::uint64_t bytes_most = 0;
    for (const StateEntry& entry : schema) {
        if (entry.allow_content_inequality == may_differ) bytes_most += memory(entry.buffer).size();
    }
    all.reserve(static_cast<std::size_t>(bytes_most));
    for (const StateEntry& entry : schema) {
        if (entry.allow_content_inequality != may_differ) continue;
        const std::vector<std::uint8_t>& bytes = memory(entry.buffer);
        // Memory of a symbolic payload is empty.
        const std::uint64_t size = std::min<std::uint64_t>(entry.count * element_bytes(entry.type), bytes.size());
        all.insert(all.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return all;
}

// Counted in whole chunks of an entry, because chunks are transferred whole.
std::uint64_t Process::changed_bytes(const Schema& schema, const SyncFact& fact) const {
    if (fact.before == fact.after && fact.own_before == fact.own_after) return 0;
    std::size_t at = 0, own_at = 0;
    std::uint64_t changed = 0;
    for (const StateEntry& entry : schema) {
        const bool own = entry.allow_content_inequality;
        const std::vector<std::uint8_t>& before = own ? fact.own_before : fact.before;
        const std::vector<std::uint8_t>& after = own ? fact.own_after : fact.after;
        const std::size_t bytes = entry.count * element_bytes(entry.type);
        std::size_t& from = own ? own_at : at;
        for (std::size_t chunk = 0; chunk < bytes && !before.empty(); chunk += scenario_.limits.chunk_bytes) {
            const std::size_t length = std::min<std::size_t>(scenario_.limits.chunk_bytes, bytes - chunk);
            const auto begin = before.begin() + static_cast<std::ptrdiff_t>(from + chunk);
            if (!std::equal(begin, begin + static_cast<std::ptrdiff_t>(length),
                            after.begin() + static_cast<std::ptrdiff_t>(from + chunk)))
                changed += length;
        }
        from += bytes;
    }
    return changed;
}

// Like asynchronous DiLoCo: after a change of the topology, members that have synchronized only send, and new members
// only receive.
SyncStrategy Process::strategy() {
    const Workload& w = scenario_.workload;
    if (strategies_.chance(w.odd_strategy_per_mille * 1000) && now() < scenario_.chaos_end)
        return static_cast<SyncStrategy>(strategies_.below(sync_strategy_count));
    if (!w.async_sync || sync_failed_) return SyncStrategy::enforce_popular;
    if (epoch_synced_ != 0)
        return epoch_updated_ != epoch_synced_ ? SyncStrategy::send_only : SyncStrategy::enforce_popular;
    return attributes_.group_world > 1 ? SyncStrategy::receive_only : SyncStrategy::enforce_popular;
}

Task<Completion> Process::sync() {
    const std::size_t index = ledger_.syncs.size();
    SyncFact fact;
    fact.process = number_;
    fact.life = life_;
    fact.group = plan_.group;
    fact.begin = now();
    fact.revision = revision_;
    fact.strategy = strategy();
    Schema schema = entries_;
    if (odd_schema_ && !schema.empty()) fact.schema = odd_schema(schema);
    odd_schema_ = false;
    fact.before = state_bytes(schema, false);
    fact.own_before = state_bytes(schema, true);
    ledger_.syncs.push_back(std::move(fact));
    CommandSync command;
    command.revision = revision_;
    command.strategy = ledger_.syncs[index].strategy;
    command.entries = schema;
    // The order in which a program names its entries is of no account.
    if (!schema.empty())
        std::rotate(command.entries.begin(),
                    command.entries.begin() + static_cast<std::ptrdiff_t>(number_ % schema.size()),
                    command.entries.end());
    const Completion c = co_await call(CallKind::sync, std::move(command));
    SyncFact& done = ledger_.syncs[index];
    done.answered = answered_at_;
    done.end = now();
    done.completion = c;
    sync_failed_ = c.result != Result::success;
    if (!sync_failed_) epoch_synced_ = c.epoch;
    done.after = state_bytes(schema, false);
    done.own_after = state_bytes(schema, true);
    done.changed_bytes = changed_bytes(schema, done);
    if (c.result == Result::success) {
        ++counters_.syncs;
        was_member(done.life, done.begin);
    } else {
        ++counters_.syncs_failed;
        if (done.after != done.before || done.own_after != done.own_before)
            world_.violate("restore",
                           formatted("shared state of {} differs after a failed sync", sim::Trace::name(node_)));
    }
    co_return c;
}

// Changes the state as a training step does. The change depends only on what members have in common, so it is the same
// for all of them, except in entries that may differ.
void Process::apply() {
    std::uint64_t common = mix(revision_, 1);
    for (const Tensor& tensor : tensors_) {
        if (!tensor.launched) continue;
        const LaunchFact& fact = ledger_.launches[tensor.launch];
        if (!gives_all_the_same(fact.collective.kind)) continue;
        common = mix(common, fact.output.empty() ? 0 : numeric::checksum64(fact.output.data(), fact.output.size()));
    }
    for (const StateEntry& entry : entries_) {
        std::vector<std::uint8_t>& bytes = memory(entry.buffer);
        const std::uint64_t change = entry.allow_content_inequality ? mix(common, number_) : common;
        for (std::size_t k = 0; k < bytes.size(); k += 7)
            bytes[k] = static_cast<std::uint8_t>(bytes[k] ^ mix(change, k));
    }
}

}  // namespace pccl::harness
