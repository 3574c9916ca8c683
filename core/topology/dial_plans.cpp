#include "core/topology/dial_plans.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <utility>

namespace pccl::core {

void DialPlans::send() {
    std::map<Uuid, Callers> callers;
    for (const auto& [uuid, wanted] : rings_.wanted()) {
        const bool newcomer = joiners_.contains(uuid);
        for (const Uuid& other : wanted) {
            if (newcomer || rings_.is_direct(uuid, other)) callers[other].silent.push_back(uuid);
            if (rings_.offered(uuid, other)) callers[other].offered.push_back(uuid);
        }
    }
    std::map<LinkId, Told> told;  // for links that still exist
    const auto to = [&](const Uuid& uuid) {
        const LinkId link = roster_.link_of(uuid);
        if (link == 0) return;
        auto known = told_.extract(link);
        Told& here = known ? told.insert(std::move(known)).position->second : told[link];
        send(uuid, callers[uuid], here);
    };
    for (const auto& [uuid, member] : state_.members) to(uuid);
    for (const auto& [uuid, joiner] : joiners_.all()) to(uuid);
    told_ = std::move(told);
}

void DialPlans::send(const Uuid& uuid, const Callers& callers, Told& told) {
    const proto::DialPlan plan = plan_of(uuid, callers, {});
    std::string encoded = encode(plan);
    const bool waits = roster_.plan_waits(uuid) && told.last;
    if (told.last == encoded && (waits || told.unnamed.empty())) return;
    if (waits) {
        // Only one plan waits at a time: while a disk hangs, they would pile up. If a name is dropped in the meantime
        // and wanted again later, the master has forgotten the connections of that peer. So they must begin anew.
        PROBE(plan_waits_for_the_disk);
        proto::DialPlan before;
        const bool own_words = before.ParseFromString(*told.last);
        ASSERT(own_words);
        const Names still = names(plan);
        for (const auto& name : names(before)) {
            if (!still.contains(name)) told.unnamed.insert(name);
        }
        return;
    }
    if (const Names unnamed = std::exchange(told.unnamed, {}); !unnamed.empty()) {
        if (const proto::DialPlan before = plan_of(uuid, callers, unnamed); encode(before) != encoded)
            say(uuid, before);
    }
    told.last = std::move(encoded);
    say(uuid, plan);
}

DialPlans::Names DialPlans::names(const proto::DialPlan& plan) {
    Names all;
    for (const std::string& caller : plan.callers()) all.emplace(true, caller);
    for (const proto::DialTarget& target : plan.targets()) all.emplace(false, target.peer());
    return all;
}

// The targets and callers of `uuid`, without those in `but`.
proto::DialPlan DialPlans::plan_of(const Uuid& uuid, const Callers& callers, const Names& but) const {
    const auto left_out = [&](bool calls, const Uuid& peer) {
        return !but.empty() && but.contains({calls, to_bytes(peer)});
    };
    proto::DialPlan plan;
    const auto own = roster_.endpoint_of(uuid);
    // The addresses of `other` that may be given to this peer; none: it cannot be dialled.
    const auto addresses_of = [&](const Uuid& other) {
        auto addresses = own ? roster_.addresses_for(uuid, other) : std::nullopt;
        if (addresses && !may_dial(*own, addresses->usual)) addresses.reset();
        return addresses;
    };
    const auto write_target = [&](const Uuid& other, const Addresses& addresses, proto::DialTarget& target) {
        target.set_peer(to_bytes(other));
        write(addresses, target);
        roster_.add_pass(uuid, target);
        target.set_single(joiners_.contains(uuid) || joiners_.contains(other) || rings_.is_direct(uuid, other));
    };
    if (const auto wanted = rings_.wanted().find(uuid); wanted != rings_.wanted().end()) {
        for (const Uuid& other : wanted->second) {
            const auto addresses = addresses_of(other);
            if (!addresses || left_out(false, other)) continue;
            auto* target = plan.add_targets();
            write_target(other, *addresses, *target);
            if (rings_.meets(uuid, other)) target->set_source_port(roster_.dial_port_of(uuid));
        }
    }
    for (const Uuid& caller : callers.silent) {
        if (!left_out(true, caller)) plan.add_callers(to_bytes(caller));
    }
    for (const Uuid& caller : callers.offered) {
        const auto addresses = addresses_of(caller);
        if (!addresses) continue;
        auto* offer = plan.add_offers();
        write_target(caller, *addresses, *offer);
        if (rings_.meets(caller, uuid)) offer->set_source_port(roster_.outer_dial_port_of(caller));
    }
    return plan;
}

void DialPlans::say(const Uuid& uuid, const proto::DialPlan& plan) {
    const int page_max = static_cast<int>(wire::items_per_page(roster_.control_bytes(uuid), wire::dial_target_bytes));
    int target = 0, caller = 0, offer = 0;
    const auto is_all = [&] {
        return target == plan.targets_size() && caller == plan.callers_size() && offer == plan.offers_size();
    };
    do {
        proto::MasterMessage message;
        proto::DialPlan& page = *message.mutable_plan();
        for (; target < plan.targets_size() && page.targets_size() < page_max; ++target)
            *page.add_targets() = plan.targets(target);
        for (; caller < plan.callers_size() && page.targets_size() + page.callers_size() < page_max; ++caller)
            page.add_callers(plan.callers(caller));
        for (; offer < plan.offers_size() &&
               page.targets_size() + page.callers_size() + page.offers_size() < page_max;
             ++offer)
            *page.add_offers() = plan.offers(offer);
        page.set_more(!is_all());
        if (page.more()) PROBE(plan_in_pages);
        roster_.say(uuid, message);
    } while (!is_all());
}

}  // namespace pccl::core
