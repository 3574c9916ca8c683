#include "core/all_reduce/predecessors.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/packed.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <optional>

namespace pccl::core {

// ---- who may dial --------------------------------------------------------------------------------------------------

void Predecessors::named(const google::protobuf::RepeatedPtrField<std::string>& callers, bool all) {
    const std::set<Uuid> callers_before = all ? std::set<Uuid>{} : callers_;
    callers_.clear();
    for (const std::string& caller : callers) {
        Uuid from;
        if (callers_.size() < turn_.limits.peers_max && read(caller, from)) callers_.insert(from);
    }
    for (auto& [remote, reserve] : reserves_) {
        if (reserve.links.empty()) continue;
        const bool waits = callers_.contains(remote);
        if (!waits) prepare(remote);
        if (waits ? !callers_before.contains(remote) : all) report(remote, true, false);
    }
}

// Empty: the connection is accepted. `gives_way`: a connection of the same neighbour to close for it; 0: none.
std::string Predecessors::why_refused(const Link& link, const proto::LinkHello& hello, Uuid& from,
                                      std::optional<LinkPass>& pass, LinkId& gives_way) const {
    if (hello.protocol_version() != wire::protocol_version)
        return formatted("this peer speaks protocol version {}, the other one version {}", +wire::protocol_version,
                         hello.protocol_version());
    if (hello.to() != to_bytes(who_.uuid)) return "the peer that was dialled is not at this address any more";
    // The plan by which the other peer dials may arrive there before our welcome arrives here.
    if (!session_.welcomed() || hello.run_id() != to_bytes(who_.run))
        return "the peer that was dialled does not take part in this run yet";
    if (!read(hello.from(), from) || from == who_.uuid) return "impossible hello";
    if (link.dialled && (from != link.remote || hello.offer() || hello.test() != 0))
        return "it did not take the connection that was offered";
    if (std::string why = links_.why_not_the_caller(link, from); !why.empty()) return why;
    pass = link_keys_.pass_of(from, hello.pass());
    if (!pass) {
        // The pass may also come from a master that was restarted since. The dialler then gets another one.
        PROBE(data_link_without_proof);
        return "whoever dialled does not prove to be peer " + short_name(from);
    }
    if (hello.offer()) return {};
    const auto reserve = reserves_.find(from);
    if (reserve == reserves_.end() && reserves_.size() >= turn_.limits.peers_max) return "too many connections";
    if (reserve != reserves_.end() && reserve->second.links.size() >= turn_.limits.stripes_max) {
        // The neighbour may redial a connection that it knows to be lost. Here the old one may still look open, but
        // nothing comes over it.
        gives_way = quietest_link(reserve->second);
        if (gives_way == 0) return "too many connections";
    }
    return {};
}

void Predecessors::hello(LinkId id, const proto::LinkHello& hello) {
    Uuid from;
    std::optional<LinkPass> pass;
    LinkId gives_way = 0;
    if (const std::string refusal = why_refused(links_.at(id), hello, from, pass, gives_way); !refusal.empty()) {
        PROBE(data_link_refused);
        links_.count_refused();
        return links_.turn_away(id, refusal, hello.to() == to_bytes(who_.uuid));
    }
    if (hello.offer()) {
        links_.at(id).control_bytes = wire::control_limit(turn_.limits, hello.control_bytes_max());
        return owner_.offer_came(id, from, hello.stripe());
    }
    if (hello.test() != 0) return owner_.tester_came(id, from, hello, *pass);
    Link& link = links_.at(id);
    link.purpose = Link::Purpose::incoming;
    link.stripe = hello.stripe();
    link.remote = from;
    link.stage = Link::Stage::open;
    link.control_bytes = wire::control_limit(turn_.limits, hello.control_bytes_max());
    Reserve& reserve = reserves_[from];
    if (reserve.links.empty()) {
        // The neighbour gets time to report that it is starved, and to send slices that it could not send before.
        Arrivals& arrivals = arrivals_[from];
        if (arrivals.at != 0) PROBE(predecessor_back);
        arrivals.starved_at = turn_.now;
        report(from, true, false);
    }
    reserve.links.insert(id);
    if (!callers_.contains(from)) prepare(from);
    proto::LinkMessage message;
    message.mutable_welcome()->set_from(to_bytes(who_.uuid));
    message.mutable_welcome()->set_pass(to_bytes(pass->welcome));
    message.mutable_welcome()->set_control_bytes_max(turn_.limits.control_bytes_max);
    links_.send(id, message);
    if (gives_way != 0) {
        PROBE(silent_stripe_gives_way);
        links_.drop(gives_way, "the neighbour has dialled anew");
    }
    owner_.neighbour_connected(from);
    owner_.caller_uses(from, hello.stripes());
}

// The connection of a neighbour that was silent for the longest time, if heartbeats are missing on it; otherwise 0.
LinkId Predecessors::quietest_link(const Reserve& reserve) const {
    const auto quietest = std::min_element(reserve.links.begin(), reserve.links.end(), [&](LinkId a, LinkId b) {
        return links_.at(a).last_received < links_.at(b).last_received;
    });
    const bool silent =
        quietest != reserve.links.end() && turn_.now - links_.at(*quietest).last_received > turn_.timeouts.quiet();
    return silent ? *quietest : 0;
}

void Predecessors::lost(LinkId id, const Link& link) {
    const auto it = reserves_.find(link.remote);
    if (link.stage != Link::Stage::open || it == reserves_.end()) return;
    it->second.links.erase(id);
    if (it->second.links.empty()) {
        if (const auto arrivals = arrivals_.find(link.remote); arrivals != arrivals_.end())
            arrivals->second.starved = false;
        PROBE(neighbour_vanished);
        report(link.remote, false, link.goodbye);
        // None of these slices was acknowledged, so the neighbour sends them again if their operation starts after all.
        forget_landed(link.remote, [](const Early&) { return true; });
        free_cell(link.remote, Operation::none);
        return;
    }
    // Flow words that were sent on the lost link may not have arrived.
    owner_.neighbour_lost_a_link(link.remote);
}

std::size_t Predecessors::connections(const Uuid& neighbour) const {
    const auto reserve = reserves_.find(neighbour);
    return reserve == reserves_.end() ? 0 : reserve->second.links.size();
}

bool Predecessors::has_stripe(const Uuid& neighbour, std::uint32_t stripe) const {
    const auto reserve = reserves_.find(neighbour);
    return reserve != reserves_.end() &&
           std::any_of(reserve->second.links.begin(), reserve->second.links.end(),
                       [&](LinkId id) { return links_.at(id).stripe == stripe; });
}

bool Predecessors::any_on_host(const Endpoint& remote) const {
    return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
        return entry.second.purpose == Link::Purpose::incoming && entry.second.stage == Link::Stage::open &&
               same_host(entry.second.from, remote);
    });
}

void Predecessors::report(const Uuid& remote, bool up, bool unwanted) {
    proto::EdgeReport message;
    message.set_peer(to_bytes(remote));
    message.set_up(up);
    message.set_unwanted(unwanted);
    session_.tell_edge(std::move(message));
}

// The links of the neighbours are closed already.
void Predecessors::forget_run() {
    std::vector<Uuid> remotes;
    for (auto& [remote, reserve] : reserves_) {
        reserve.links.clear();
        remotes.push_back(remote);
    }
    for (const Uuid& remote : remotes) {
        const std::vector<Early> slices = std::move(reserves_.at(remote).slices);
        reserves_.at(remote).slices.clear();
        for (const Early& early : slices) {
            if (early.landed) free_cell(remote, early.cell);
        }
        free_cell(remote, Operation::none);
    }
    arrivals_.clear();
    link_keys_.forget();
    callers_.clear();
}

// ---- words to them -------------------------------------------------------------------------------------------------

// The link on which bytes arrived last. A dead or stalled link falls behind at once, long before it is closed.
LinkId Predecessors::liveliest(const Reserve& reserve) const {
    return *std::max_element(reserve.links.begin(), reserve.links.end(), [this](LinkId a, LinkId b) {
        return links_.at(a).last_received < links_.at(b).last_received;
    });
}

void Predecessors::send(LinkId preferred, const Uuid& remote, const wire::FlowWord& word) {
    auto link = links_.find(preferred);
    if (link == links_.end()) {
        const auto reserve = reserves_.find(remote);
        if (reserve == reserves_.end() || reserve->second.links.empty()) return;
        link = links_.find(liveliest(reserve->second));
        ASSERT(link != links_.end());
    }
    turn_.add(SendFlow{link->first, word});
}

const std::set<LinkId>* Predecessors::links_to_choose(const Uuid& remote) const {
    const auto reserve = reserves_.find(remote);
    return reserve == reserves_.end() || reserve->second.links.size() < 2 ? nullptr : &reserve->second.links;
}

// ---- early slices --------------------------------------------------------------------------------------------------

// Requests memory for the early slices of a neighbour. Not called for newcomers: they send no slices, so many of them
// cost no memory. After a long pause, many connections of peers that have gone may be accepted at once: all but a few
// get no memory before one of those is freed, and what they send early is declined.
void Predecessors::prepare(const Uuid& remote) {
    Reserve& reserve = reserves_.at(remote);
    if (reserve.buffer != 0 || turn_.limits.eager_slices() == 0 || !reserve.free_cells.empty()) return;
    const auto with_memory = std::count_if(reserves_.begin(), reserves_.end(),
                                           [](const auto& entry) { return entry.second.buffer != 0; });
    if (with_memory >= reserves_with_memory_max) {
        PROBE(reserve_waits_for_others);
        return;
    }
    reserve.buffer = memory_.request(static_cast<std::uint64_t>(turn_.limits.eager_slices()) * turn_.limits.slice_bytes,
                                     ReserveMemory{remote});
    for (std::uint32_t cell = turn_.limits.eager_slices(); cell > 0; --cell) reserve.free_cells.push_back(cell - 1);
}

void Predecessors::memory_came(const ReserveMemory& owner, const BufferAllocated& event) {
    const auto found = reserves_.find(owner.remote);
    ASSERT(found != reserves_.end() && found->second.buffer == event.buffer);
    if (!event.ok) PROBE(reserve_not_allocated);
    if (event.ok)
        found->second.usable = true;
    else
        found->second.buffer = 0;
    free_cell(owner.remote, Operation::none);
}

const Predecessors::Early* Predecessors::keep(LinkId id, const Link& link, const wire::BulkHeader& header) {
    Reserve& reserve = reserves_.at(link.remote);
    const bool known = std::any_of(reserve.slices.begin(), reserve.slices.end(), [&](const Early& early) {
        return early.op == header.op && early.slice == header.slice;
    });
    if (known || !reserve.usable || reserve.free_cells.empty() || header.length > turn_.limits.slice_bytes)
        return nullptr;
    const std::uint32_t cell = reserve.free_cells.back();
    reserve.free_cells.pop_back();
    return &reserve.slices.emplace_back(Early{header.op, header.slice, cell, header.length, false, id, header.entry});
}

BufferRef Predecessors::place_of(const Uuid& remote, const Early& early) const {
    return BufferRef{reserves_.at(remote).buffer, static_cast<std::uint64_t>(early.cell) * turn_.limits.slice_bytes,
                     early.length};
}

std::vector<Predecessors::Early>::iterator Predecessors::find_early(const Uuid& remote, std::uint32_t cell) {
    auto& slices = reserves_.at(remote).slices;
    const auto early =
        std::find_if(slices.begin(), slices.end(), [&](const Early& entry) { return entry.cell == cell; });
    ASSERT(early != slices.end() && !early->landed);
    return early;
}

void Predecessors::landed(const Uuid& remote, std::uint32_t cell) { find_early(remote, cell)->landed = true; }

void Predecessors::never_landed(const Uuid& remote, std::uint32_t cell) {
    reserves_.at(remote).slices.erase(find_early(remote, cell));
    free_cell(remote, cell);
}

std::vector<Predecessors::Early> Predecessors::take(const Uuid& remote, OpId op) {
    std::vector<Early> mine;
    const auto found = reserves_.find(remote);
    if (found == reserves_.end()) return mine;
    std::erase_if(found->second.slices, [&](const Early& early) {
        if (early.op != op || !early.landed) return false;
        mine.push_back(early);
        return true;
    });
    return mine;
}

std::uint64_t Predecessors::cut_for(const Operation::Identity& operation) {
    return cut_of(operation.world, (operation.position + operation.world - 1) % operation.world, operation.shares);
}

void Predecessors::started(const Operation::Identity& operation) {
    const OpId ahead = theirs_ahead_of(operation.predecessor_serial);
    const std::uint64_t cut = cut_for(operation);
    if (const auto found = reserves_.find(operation.predecessor); found != reserves_.end()) {
        for (Early& early : found->second.slices) {
            if (early.op != ahead) continue;
            if (early.cut == cut)
                early.op = operation.id;
            else
                PROBE(ahead_cut_otherwise);
        }
    }
    for (auto& [id, link] : links_) {
        if (link.remote == operation.predecessor && link.receiving.op == ahead && link.receiving.entry == cut)
            link.receiving.op = operation.id;
    }
}

void Predecessors::forget_ahead(const Uuid& remote, Serial from) {
    forget_landed(remote, [&](const Early& early) { return is_ahead(early.op) && serial_of(early.op) < from; });
}

template <class Vain>
void Predecessors::forget_landed(const Uuid& remote, const Vain& vain) {
    const auto found = reserves_.find(remote);
    if (found == reserves_.end()) return;
    std::vector<std::uint32_t> cells;
    std::erase_if(found->second.slices, [&](const Early& early) {
        if (!early.landed || !vain(early)) return false;
        if (is_ahead(early.op)) PROBE(ahead_in_vain);
        cells.push_back(early.cell);
        return true;
    });
    for (const std::uint32_t cell : cells) free_cell(remote, cell);
}

void Predecessors::free_cell(const Uuid& remote, std::uint32_t cell) {
    const auto it = reserves_.find(remote);
    if (it == reserves_.end()) return;
    Reserve& reserve = it->second;
    if (cell != Operation::none) reserve.free_cells.push_back(cell);
    if (!reserve.links.empty() || (reserve.buffer != 0 && reserve.free_cells.size() < turn_.limits.eager_slices()))
        return;
    if (reserve.buffer != 0 && !reserve.usable) return;  // the allocation has no answer yet
    PROBE(reserve_freed);
    const bool had_memory = reserve.buffer != 0;
    if (had_memory) memory_.free(reserve.buffer);
    reserves_.erase(it);
    if (!had_memory) return;
    const auto waits = std::find_if(reserves_.begin(), reserves_.end(), [&](const auto& entry) {
        const auto& [neighbour, other] = entry;
        return other.buffer == 0 && other.free_cells.empty() && !other.links.empty() && !callers_.contains(neighbour);
    });
    if (waits != reserves_.end()) prepare(waits->first);
}

// ---- what comes ----------------------------------------------------------------------------------------------------

Predecessors::Arrivals Predecessors::arrivals(const Uuid& neighbour) const {
    const auto found = arrivals_.find(neighbour);
    return found == arrivals_.end() ? Arrivals{} : found->second;
}

void Predecessors::came(const Uuid& neighbour, Instant before) {
    Arrivals& arrivals = arrivals_[neighbour];
    arrivals.longest_wait = std::max(arrivals.longest_wait, turn_.now - before);
    arrivals.at = turn_.now;
    arrivals.fillers = 0;
}

void Predecessors::filler_came(const Uuid& neighbour, bool begins) {
    if (!reserves_.contains(neighbour)) return;
    Arrivals& arrivals = arrivals_[neighbour];
    arrivals.filler_at = turn_.now;
    if (begins) ++arrivals.fillers;
}

void Predecessors::says_starved(const Uuid& neighbour, bool starved) {
    if (!reserves_.contains(neighbour)) return;
    Arrivals& arrivals = arrivals_[neighbour];
    if (starved) PROBE(neighbour_starved);
    // When it is no longer starved, it gets time to forward what it waited for.
    if (starved) arrivals.starved_at = turn_.now;
    arrivals.starved = starved;
}

void Predecessors::leave_out(Duration time) {
    for (auto& [remote, arrivals] : arrivals_) {
        for (Instant* clock : {&arrivals.at, &arrivals.filler_at, &arrivals.starved_at})
            *clock = std::min(turn_.now, *clock + time);
    }
}

// ---- observation ---------------------------------------------------------------------------------------------------

void Predecessors::describe(Packed& state) const {
    bool early = false, starved = false;
    for (const auto& [remote, reserve] : reserves_) early |= !reserve.slices.empty();
    for (const auto& [remote, arrivals] : arrivals_) starved |= arrivals.starved;
    state.flags(early, starved);
}

std::size_t Predecessors::reserves_kept() const {
    return static_cast<std::size_t>(std::count_if(reserves_.begin(), reserves_.end(), [](const auto& entry) {
        return entry.second.buffer == 0 || entry.second.usable;
    }));
}

void Predecessors::check() const {
    for (const auto& [neighbour, reserve] : reserves_) {
        for (const LinkId id : reserve.links) {
            const auto link = links_.find(id);
            ASSERT(link != links_.end() && link->second.purpose == Link::Purpose::incoming);
            ASSERT(link->second.remote == neighbour);
        }
        std::set<std::uint32_t> cells(reserve.free_cells.begin(), reserve.free_cells.end());
        ASSERT(cells.size() == reserve.free_cells.size());
        for (const Early& early : reserve.slices) ASSERT(cells.insert(early.cell).second);
        ASSERT(cells.size() <= turn_.limits.eager_slices());
        ASSERT(reserve.usable || reserve.slices.empty());
    }
}

}  // namespace pccl::core
