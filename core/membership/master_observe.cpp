// What tests and the simulator ask the master: one number for its state, what it keeps of nobody, a text for people. Nothing
// here changes what it decides.
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/membership/master_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

std::uint64_t MasterCore::abstract_state() const {
    bool kinds[7] = {};
    for (const auto& [key, ballot] : ballots_.all()) kinds[std::min(static_cast<unsigned>(key.kind), 6u)] = true;
    std::size_t absent = 0, resuming = 0, strangers = 0, fewest_holders = 3;
    for (const auto& [uuid, session] : sessions_) {
        absent += session.link == 0 ? 1 : 0;
        resuming += session.link != 0 && !session.resumed ? 1 : 0;
    }
    for (const auto& [id, link] : links_) strangers += link.stage == Link::Stage::fresh ? 1 : 0;
    bool sync = false, unusable = false;
    for (const auto& [id, group] : state_.groups) {
        sync |= group.sync.has_value();
        unusable |= !ring_usable(group);
        if (group.sync) fewest_holders = std::min(fewest_holders, group.sync->holders.size());
    }
    Packed state;
    // phase
    state.flags(in_grace(), sync, !state_.ops.empty(), survey_.has_value(), !joiners_.empty(), absent != 0, unusable,
                durable_sequence_ != last_sequence_);
    state.count(state_.members.size(), 3);
    state.count(joiners_.size(), 2);
    state.count(absent, 2);
    state.count(resuming, 2);
    state.count(strangers, 2);
    state.count(state_.ops.size(), 2);
    state.count(state_.groups.size(), 2);
    state.count(state_.kept().size(), 1);
    state.count(fewest_holders, 2);
    state.flags(kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], kinds[5], kinds[6]);
    state.flags(!waiting_starts_.empty(), !key_comparisons_.empty(), !searches_.empty(), !held_.empty(),
                unwritten_told_, stopped_);
    return state.word();
}

std::uint64_t MasterCore::state_hash() const {
    std::uint64_t hash = 0x9E3779B97F4A7C15ull;
    const auto mix = [&hash](std::uint64_t value) {
        hash = (hash ^ value) * 0xBF58476D1CE4E5B9ull;
        hash ^= hash >> 29;
    };
    mix(state_.last_index);
    mix(state_.chain);
    mix(state_.epoch);
    mix(state_.incarnation);
    mix(state_.members.size());
    mix(state_.ops.size());
    mix(state_.kept().size());
    mix(durable_sequence_);
    mix(last_sequence_);
    mix(links_.size());
    mix(joiners_.size());
    mix(bandwidths_.size());
    if (survey_) mix(survey_->tests.size() + 1);
    for (const auto& [id, group] : state_.groups) {
        mix(id);
        mix(group.expected);
        mix(group.ring.size());
    }
    for (const auto& [key, ballot] : ballots_.all()) {
        mix(static_cast<std::uint64_t>(key.kind));
        mix(key.id);
        mix(ballot.votes().size());
    }
    return hash;
}

std::string MasterCore::leftovers() const {
    const auto known = [&](const Uuid& uuid) { return state_.members.contains(uuid) || joiners_.contains(uuid); };
    const auto gone = [&](const auto& entry) { return !state_.members.contains(entry.first); };
    std::size_t votes = 0;
    for (const auto& [key, ballot] : ballots_.all()) {
        votes += static_cast<std::size_t>(std::count_if(ballot.votes().begin(), ballot.votes().end(), gone));
        votes += ballot.empty() ? 1 : 0;
    }
    const auto without_group = [&](const auto& table) {
        return static_cast<std::size_t>(std::count_if(
            table.begin(), table.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
    };
    const auto strange_wanted =
        std::count_if(wanted_.begin(), wanted_.end(), [&](const auto& entry) { return !known(entry.first); });
    return name_leftovers(
        {{"sessions of nobody", static_cast<std::size_t>(std::count_if(sessions_.begin(), sessions_.end(), gone))},
         {"edges of nobody", edges_.strange(known)},
         {"bandwidths of nobody", bandwidths_.strange(known)},
         {"votes of nobody", votes},
         {"wanted edges of nobody", static_cast<std::size_t>(strange_wanted)},
         {"key lists of no group", without_group(key_comparisons_)},
         {"starts of no group", without_group(waiting_starts_)},
         {"searches of no group", without_group(searches_)}});
}

std::string MasterCore::explain() const {
    std::string text = "master: " + std::to_string(state_.members.size()) + " members, " +
                       std::to_string(joiners_.size()) + " joiners, epoch " + std::to_string(state_.epoch) +
                       (in_grace() ? ", in grace" : "");
    for (const auto& [id, group] : state_.groups) {
        text += "; group " + std::to_string(id) + " ring";
        for (std::size_t i = 0; i < group.ring.size(); ++i) {
            const Uuid& a = group.ring[i];
            text += " " + short_name(a) + (edges_.up(a, group.ring[(i + 1) % group.ring.size()]) ? ">" : "x");
        }
        text += " revision " + std::to_string(group.expected) + " running " + std::to_string(group.running_ops);
        if (group.sync) text += " in sync";
    }
    if (survey_) text += "; optimizes, " + std::to_string(survey_->tests.size()) + " bandwidth tests run";
    for (const auto& [uuid, session] : sessions_) {
        if (session.link == 0)
            text += "; " + short_name(uuid) + " absent";
        else if (!session.resumed)
            text += "; " + short_name(uuid) + " resuming";
    }
    for (const auto& [key, ballot] : ballots_.all()) {
        text += "; " + std::string(to_text(key.kind)) + " " + std::to_string(key.id) + " waits for";
        const auto missing = ballot.missing(electors_of(key));
        for (const Uuid& uuid : missing) text += " " + short_name(uuid);
        if (missing.empty()) text += " nobody";
    }
    return text;
}

}  // namespace pccl::core
