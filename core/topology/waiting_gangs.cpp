#include "core/topology/waiting_gangs.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

std::optional<std::uint32_t> WaitingGangs::Places::first_missing() const {
    std::uint32_t place = 0;
    for (const auto& [taken, holder] : holders) {
        if (taken != place) break;
        ++place;
    }
    return place < size ? std::optional(place) : std::nullopt;
}

Cause WaitingGangs::why_not(const Gang& gang) const {
    if (!is_possible(gang, limits_)) {
        PROBE(gang_impossible);
        return make_cause<CauseKind::gang_impossible>(limits_.gang_name_bytes_max, limits_.gang_size_max);
    }
    const Places* places = find(gang.name);
    if (places != nullptr && places->size != gang.size) {
        PROBE(gang_sizes_differ);
        return make_cause<CauseKind::gang_sizes_differ>(gang.name, places->size, gang.size);
    }
    const std::size_t already = waiting();
    if (already < limits_.gang_waiting_max || completed_by(gang) != 0) return {};
    PROBE(gangs_wait);
    return make_cause<CauseKind::gangs_wait>(already);
}

std::size_t WaitingGangs::completed_by(const Gang& gang) const {
    if (state_.gangs.contains(gang.name)) return 0;
    const Places* places = find(gang.name);
    const std::size_t others = places == nullptr ? 0 : places->holders.size();
    const bool is_free = places == nullptr || !places->holders.contains(gang.place);
    return is_free && others + 1 == gang.size ? gang.size : 0;
}

bool WaitingGangs::enter(const Uuid& newcomer, const Gang& gang) {
    Places& places = gangs_[gang.name];
    places.size = gang.size;
    if (!places.holders.try_emplace(gang.place, newcomer).second) {
        PROBE(gang_place_claimed);
        places.claims.emplace_back(gang.place, newcomer);
        return false;
    }
    return places.all_taken();
}

void WaitingGangs::leave(const Uuid& newcomer, const Gang& gang) {
    const auto found = gangs_.find(gang.name);
    if (found == gangs_.end()) return;
    Places& places = found->second;
    const auto holder = places.holders.find(gang.place);
    if (holder != places.holders.end() && holder->second == newcomer) places.holders.erase(holder);
    std::erase(places.claims, std::pair(gang.place, newcomer));
    if (places.holders.empty() && places.claims.empty()) gangs_.erase(found);
}

std::vector<std::string> WaitingGangs::give_free_places() {
    std::vector<std::string> complete;
    for (auto& entry : gangs_) {
        Places& places = entry.second;
        if (places.claims.empty()) continue;
        const bool before = places.all_taken();
        std::erase_if(places.claims, [&](const auto& claim) {
            const bool got = places.holders.try_emplace(claim.first, claim.second).second;
            if (got) PROBE(gang_place_inherited);
            return got;
        });
        if (!before && places.all_taken()) complete.push_back(entry.first);
    }
    return complete;
}

std::optional<Uuid> WaitingGangs::other_at(const Uuid& newcomer, const Gang& gang) const {
    if (const Places* places = find(gang.name)) {
        const auto holder = places->holders.find(gang.place);
        if (holder != places->holders.end() && holder->second != newcomer) return holder->second;
    }
    const auto members = state_.gangs.find(gang.name);
    if (members == state_.gangs.end() || gang.place >= members->second.size()) return std::nullopt;
    return members->second[gang.place];
}

bool WaitingGangs::complete(const std::string& name) const {
    const Places* places = find(name);
    return places != nullptr && places->all_taken() && !state_.gangs.contains(name);
}

bool WaitingGangs::complete_with(const Uuid& newcomer, const Gang& gang) const {
    return complete(gang.name) && find(gang.name)->holders.at(gang.place) == newcomer;
}

std::size_t WaitingGangs::waiting() const {
    std::size_t count = 0;
    for (const auto& [name, places] : gangs_)
        count += places.claims.size() + (complete(name) ? 0 : places.holders.size());
    return count;
}

void WaitingGangs::check() const {
    for (const auto& [name, places] : gangs_) {
        ASSERT(!name.empty() && places.size != 0 && places.holders.size() <= places.size);
        ASSERT(!places.holders.empty() || !places.claims.empty());
        ASSERT(places.holders.empty() || places.holders.rbegin()->first < places.size);
    }
}

}  // namespace pccl::core
