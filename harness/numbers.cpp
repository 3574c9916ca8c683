#include "harness/numbers.hpp"

#include "core/all_reduce/ahead.hpp"
#include "core/base/format.hpp"
#include "core/numeric/quantize.hpp"
#include "core/numeric/types.hpp"
#include "core/voting/ballot.hpp"
#include "harness/collectives.hpp"

#include <algorithm>
#include <set>
#include <string_view>

namespace pccl::harness {

using namespace core;

namespace {

// Statistics and status are checked after one in this many successful updates, awaits and synchronizations. The
// statistics are also checked after each leave.
constexpr std::uint32_t looks_apart = 32;

std::string differ(const char* what, std::uint64_t told, const char* how, std::uint64_t known) {
    return formatted("{}: told {}, {} {}", what, told, how, known);
}

std::string equal(const char* what, std::uint64_t told, std::uint64_t known) {
    return told == known ? std::string() : differ(what, told, "and it is", known);
}

std::string at_least(const char* what, std::uint64_t told, std::uint64_t known) {
    return told >= known ? std::string() : differ(what, told, "and it is at least", known);
}

std::string at_most(const char* what, std::uint64_t told, std::uint64_t known) {
    return told <= known ? std::string() : differ(what, told, "and it is at most", known);
}

std::string first_of(std::initializer_list<std::string> wrongs) {
    for (const std::string& wrong : wrongs) {
        if (!wrong.empty()) return wrong;
    }
    return {};
}

bool is_member(const MasterStatus::Peer& peer) {
    return peer.state != MasterStatus::PeerState::joining && peer.state != MasterStatus::PeerState::unreachable;
}

// Whether one of the latest operations carried what the completion reports, perhaps with one of the latest parts that left
// ahead of its start. The list is long, so all of it is searched only if not.
bool carried_lately(const std::vector<sim::Carried::Part>& parts, const Completion& completion) {
    constexpr std::size_t latest = 16;
    const std::size_t first = parts.size() - std::min(parts.size(), latest);
    const auto fits = [&](std::uint64_t sent_ahead, std::uint64_t landed_ahead) {
        return std::any_of(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end(),
                           [&](const sim::Carried::Part& part) {
                               return !part.state && part.sent + sent_ahead == completion.sent_bytes &&
                                      part.landed + landed_ahead >= completion.received_bytes;
                           });
    };
    if (fits(0, 0)) return true;
    for (std::size_t i = first; i < parts.size(); ++i) {
        if (!parts[i].state && is_ahead(parts[i].op) && fits(parts[i].sent, parts[i].landed)) return true;
    }
    return false;
}

}  // namespace

// Some operation of this process must have carried the reported byte counts. Its `landed` may be larger: if a slice
// arrives twice, both copies land, but the core counts it once.
std::string Numbers::bytes_of_reduction(sim::Carried& carried, const Completion& completion, const Told& told) {
    if (completion.sent_bytes == 0 && completion.received_bytes == 0) return {};
    const std::vector<sim::Carried::Part>& parts = carried.parts();
    if (carried_lately(parts, completion)) return {};
    if (std::any_of(parts.rbegin(), parts.rend(), [&](const sim::Carried::Part& part) {
            return !part.state && part.sent == completion.sent_bytes && part.landed >= completion.received_bytes;
        }))
        return {};
    // In a vote, the driver sees only what was stored. check_numbers compares both with what was launched.
    const auto stored = [&](const sim::Carried::Part& part) {
        return !part.state && part.op == 0 && part.landed == completion.received_bytes;
    };
    const bool gave = completion.sent_bytes == 0 || told.vote_inputs.contains(completion.sent_bytes);
    if (!completion.members.empty() && gave &&
        (completion.received_bytes == 0 || std::any_of(parts.begin(), parts.end(), stored)))
        return {};
    // What left or came ahead of the start has a name of its own.
    std::vector<std::uint64_t> sent_ahead{0};
    std::uint64_t landed_ahead = 0;
    for (const sim::Carried::Part& part : parts) {
        if (part.state || !is_ahead(part.op)) continue;
        sent_ahead.push_back(part.sent);
        landed_ahead += part.landed;
    }
    std::sort(sent_ahead.begin(), sent_ahead.end());
    const auto left_ahead = [&](std::uint64_t sent) {
        return std::binary_search(sent_ahead.begin(), sent_ahead.end(), sent);
    };
    if (left_ahead(completion.sent_bytes) && landed_ahead >= completion.received_bytes) return {};
    if (std::any_of(parts.rbegin(), parts.rend(), [&](const sim::Carried::Part& part) {
            return !part.state && part.landed + landed_ahead >= completion.received_bytes &&
                   part.sent <= completion.sent_bytes && left_ahead(completion.sent_bytes - part.sent);
        }))
        return {};
    std::string text = formatted("no operation sent {} bytes and received {}; carried were", completion.sent_bytes,
                                 completion.received_bytes);
    for (const sim::Carried::Part& part : parts) {
        if (!part.state) text += formatted(" {} and {}", part.sent, part.landed);
    }
    return text;
}

// `all`: no other reduction ran at the same time, so all carried bytes belong to this call. What landed for an operation
// in which this member sent nothing is kept: a liar may name the next operation ahead of time, and the core takes that
// payload when the operation starts.
std::string Numbers::bytes_of_many(sim::Carried& carried, const Completion& completion, bool all) {
    std::uint64_t sent = 0, landed = 0;
    for (const sim::Carried::Part& part : carried.parts()) {
        sent += part.state ? 0 : part.sent;
        landed += part.state ? 0 : part.landed;
    }
    if (all) carried.erase_if([](const sim::Carried::Part& part) { return !part.state && part.sent != 0; });
    return first_of({all ? equal("bytes sent by a call for many tags", completion.sent_bytes, sent)
                         : at_most("bytes sent by a call for many tags", completion.sent_bytes, sent),
                     at_most("bytes received by a call for many tags", completion.received_bytes, landed)});
}

// `unsure` is set at the first failure. From then on the driver may have carried more bytes than the core reports,
// because the core does not report chunks that had landed but were not verified before the failure. A call that failed
// with 0 bytes may have been refused because another one was running; the carried bytes then belong to the other one.
std::string Numbers::bytes_of_sync(sim::Carried& carried, const Completion& completion, bool& unsure) {
    unsure = unsure || completion.result != Result::success;
    if (completion.result != Result::success && completion.sent_bytes + completion.received_bytes == 0) return {};
    std::uint64_t sent = 0, landed = 0;
    for (const sim::Carried::Part& part : carried.parts()) {
        sent += part.state ? part.sent : 0;
        landed += part.state ? part.landed : 0;
    }
    carried.erase_if([](const sim::Carried::Part& part) { return part.state; });
    const auto hold = unsure ? at_most : equal;
    return first_of({hold("bytes sent by a synchronization", completion.sent_bytes, sent),
                     hold("bytes received by a synchronization", completion.received_bytes, landed)});
}

std::string Numbers::statistics(const Told& told, sim::Driver& driver) const {
    const PeerStatistics now = driver.machine().peer()->statistics();
    const sim::Carried& carried = driver.carried();
    const std::uint64_t ended = now.committed + now.aborted + now.refused;
    std::string wrong =
        first_of({equal("memberships gained", now.connects, told.connects),
                  at_most("memberships lost", now.losses, now.connects),
                  equal("updates of the topology", now.topology_updates, told.updates),
                  at_least("attempts of reductions", now.launches, told.launched + told.many + now.retried),
                  at_most("reductions that came to an end", ended, now.launches),
                  at_least("reductions that came to an end or are not awaited", ended + now.tags_open, now.launches),
                  at_least("reductions that succeeded", now.committed, told.committed),
                  at_least("reductions that failed", now.aborted + now.refused, told.failed),
                  at_most("payload sent", now.payload_sent, carried.slices_sent() + told.vote_inputs_sum),
                  at_least("payload sent", now.payload_sent, told.sent),
                  at_most("payload received", now.payload_received, carried.slices_landed()),
                  at_least("payload received", now.payload_received, told.received)});
    // Input of an open start vote may have left ahead of the start.
    if (wrong.empty() && now.operations_running == 0 && now.votes_open == 0 && told.vote_inputs.empty())
        wrong = equal("payload sent", now.payload_sent, carried.slices_sent());
    if (wrong.empty() && !told.asked_for_many) {
        wrong = first_of(
            {equal("attempts of reductions", now.launches, told.launched),
             // A machine that leaves drops its open tags before the driver does.
             (driver.leaving() ? at_most : equal)("tags that are not awaited", now.tags_open, driver.tags_open()),
             equal("attempts of a call for many tags", now.retried, 0)});
    }
    // After a leave, reductions may have succeeded that the application never awaited.
    if (wrong.empty() && !told.asked_for_many && !told.has_left && !driver.leaving())
        wrong = at_most("reductions that succeeded", now.committed, told.committed + now.tags_open);
    return wrong.empty() ? wrong : "statistics of a peer: " + wrong;
}

// Each operation has at least two members, and all of them have launched it. A failure tells a member that the operation
// failed for all of them, but only as long as it is a member: its next success shows that.
void Numbers::count_reduced(Told& told, bool in_run, GroupId group, const Command& command,
                            const Completion& completion) {
    const bool good = completion.result == Result::success;
    if (std::get_if<CommandConnect>(&command) != nullptr) {
        for (const auto& [tag, bytes] : told.open) told.left_behind.insert(tag);
        told.open.clear();
        told.failed_bytes = 0;
    } else if (const auto* launch = std::get_if<CommandLaunch>(&command)) {
        if (!good) return;
        std::uint64_t elements = launch->shape.count;
        if (const Collective& other = launch->collective; other.kind != CollectiveKind::all_reduce) {
            // The tally takes the inputs of all members, or the array of the one that gives.
            for (const std::uint64_t count : other.counts) elements += count;
            elements = 2 * (elements + scenario_.peers.size() * other.count);
        }
        const std::uint64_t bytes = elements * element_bytes(launch->shape.type);
        reduced_[group] += bytes;
        told.open[launch->tag] = bytes;
    } else if (const auto* await = std::get_if<CommandAwait>(&command)) {
        const auto open = told.open.find(await->tag);
        if (open == told.open.end()) return;
        if (!good) told.failed_bytes += open->second;
        if (in_run)
            told.left_behind.erase(await->tag);
        else
            told.left_behind.insert(await->tag);
        told.open.erase(open);
    }
    if (good && completion.epoch != 0) {
        reduced_[group] -= told.failed_bytes;
        told.failed_bytes = 0;
    }
}

// `may_be_own`: this peer is a member of the group. `by_this`: only this process of the master has begun operations.
std::string Numbers::status_of(const Told& told, const MasterStatus::Operation& operation, bool may_be_own,
                               bool by_this) const {
    if (by_this && (!operation.started || lies_)) return "an operation has begun, and the time is missing";
    // Both ends of a send name it as they like, and agree on another tag.
    const Workload& w = scenario_.workload;
    if (has_liars(scenario_) || w.many_window != 0 || w.sends_per_mille != 0) return {};
    if (std::none_of(told_.begin(), told_.end(), [&](const Told& one) {
            return one.open.contains(operation.tag) || one.left_behind.contains(operation.tag);
        }))
        return formatted("an operation has tag {}, which nobody has launched", operation.tag);
    const auto open = told.open.find(operation.tag);
    // The bytes of another collective are those of all members.
    const bool known = operation.started && may_be_own && open != told.open.end();
    return known && w.collectives_per_mille == 0 ? equal("bytes of an operation", operation.bytes, open->second)
                                                 : std::string();
}

// Checks that the master's status agrees with itself. If the peer is still a member, the status must also agree with
// the completion that the peer gets now.
std::string Numbers::status(const Told& told, const PeerMachine& peer, GroupId id, const Command& command,
                            const Completion& completion) const {
    const MasterStatus now = world_.master_machine()->status();
    std::set<Uuid> members, in_rings;
    bool is_one = false;
    for (const MasterStatus::Peer& other : now.peers) {
        if (!is_member(other)) continue;
        members.insert(other.uuid);
        is_one = is_one || (other.uuid == peer.uuid() && other.group == id);
    }
    std::size_t largest = 0;
    const MasterStatus::Group* own = nullptr;
    for (const MasterStatus::Group& group : now.groups) {
        if (group.id == id) own = &group;
        largest = std::max(largest, group.ring.size());
        in_rings.insert(group.ring.begin(), group.ring.end());
        const std::string wrong = first_of(
            {equal("operations that started", group.tally.started,
                   group.tally.committed + group.tally.aborted + group.running),
             at_most("operations listed", group.operations.size(), group.running),
             scenario_.workload.many_window != 0 || has_liars(scenario_)
                 ? std::string()
                 : at_most("twice the bytes of operations that were committed", 2 * group.tally.committed_bytes,
                           reduced_.contains(group.id) ? reduced_.at(group.id) : 0)});
        if (!wrong.empty()) return wrong;
        for (const MasterStatus::Operation& operation : group.operations) {
            if (std::string differ = status_of(told, operation, group.id == id && is_one, now.incarnation == 1);
                !differ.empty())
                return differ;
        }
    }
    for (const MasterStatus::Vote& vote : now.votes) {
        const MasterStatus::Group* of = nullptr;
        for (const MasterStatus::Group& group : now.groups) {
            if (vote.group == group.id) of = &group;
        }
        const std::uint64_t all = !vote.group ? members.size() : of == nullptr ? 0 : of->ring.size();
        const std::uint64_t counted = std::uint64_t{vote.voted} + vote.missing;
        // A send has two electors. Those who end a call are those who began it: others may have come meanwhile.
        const std::string_view kind = vote.kind;
        const bool ends = kind == core::to_text(proto::VOTE_END) || kind == core::to_text(proto::VOTE_SYNC_END);
        const bool of_all = !vote.group || (counted != 2 && !ends);
        const std::string wrong =
            first_of({(of_all ? equal : at_most)("votes that came and votes that are missing", counted, all),
                      equal("members named", vote.waits_for.size(),
                            std::min<std::uint64_t>(vote.missing, scenario_.limits.members_named))});
        if (!wrong.empty()) return wrong;
    }
    std::string wrong = first_of({equal("members in rings", in_rings.size(), members.size()),
                                  at_most("members", members.size(), now.admitted),
                                  equal("last removals", now.removals.size(),
                                        std::min<std::uint64_t>(now.removed, scenario_.limits.removals_listed)),
                                  at_least("epoch", now.epoch, is_one ? completion.epoch : 0)});
    if (!wrong.empty() || !is_one) return wrong;
    if (own == nullptr) return "the group of a member is missing";
    if (std::get_if<CommandSync>(&command) != nullptr)
        return equal("the next revision", own->expected_revision, completion.revision + 1);
    if (std::get_if<CommandAwait>(&command) != nullptr)
        return at_least("operations that were committed", own->tally.committed, told.life_committed);
    if (std::get_if<CommandUpdateTopology>(&command) != nullptr && completion.epoch == now.epoch) {
        const Attributes& a = completion.attributes;
        return first_of({equal("members", members.size(), a.global_world),
                         equal("members of a group", own->ring.size(), a.group_world),
                         equal("groups", now.groups.size(), a.groups),
                         equal("members of the largest group", largest, a.largest_group),
                         equal("gangs",
                               static_cast<std::uint64_t>(
                                   std::count_if(now.gangs.begin(), now.gangs.end(),
                                                 [](const MasterStatus::Gang& gang) { return gang.admitted; })),
                               a.gangs)});
    }
    return {};
}

// All completions of one epoch tell the same sizes of the run.
std::string Numbers::sizes(const Completion& completion) {
    if (!epochs_differ_ || completion.epoch == 0) return {};
    const Attributes& own = completion.attributes;
    const Attributes& first = sizes_.try_emplace(completion.epoch, own).first->second;
    if (own.global_world == first.global_world && own.groups == first.groups &&
        own.largest_group == first.largest_group && own.gangs == first.gangs)
        return {};
    return formatted("epoch {} was told with {} members, {} groups, a largest one of {} and {} gangs, and with {}, {}, "
                     "{} and {}",
                     completion.epoch, first.global_world, first.groups, first.largest_group, first.gangs,
                     own.global_world, own.groups, own.largest_group, own.gangs);
}

void Numbers::told(std::uint32_t node, const Command& command, const Completion& completion) {
    if (node >= told_.size() || node == 0) return;
    const bool good = completion.result == Result::success;
    if (good != completion.cause.empty())
        return world_.violate("contract",
                              formatted("a call of {} returns result {} with the cause '{}'", sim::Trace::name(node),
                                        static_cast<int>(completion.result), to_text(completion.cause)));
    if (good && std::get_if<CommandOptimizeTopology>(&command) != nullptr && completion.attributes.global_world < 2)
        return world_.violate("contract",
                              formatted("{} has optimized a ring of its own alone", sim::Trace::name(node)));
    if (const std::string differ = sizes(completion); !differ.empty()) return world_.violate("membership", differ);
    sim::Driver& driver = *world_.driver(node);
    const PeerMachine* peer = driver.machine().peer();
    if (peer == nullptr) return;
    Told& told = told_[node];
    if (told.incarnation != driver.incarnation()) {
        std::set<Tag> left = std::move(told.left_behind);
        for (const auto& [tag, bytes] : told.open) left.insert(tag);
        told = {};
        told.left_behind = std::move(left);
        told.incarnation = driver.incarnation();
    }
    count_reduced(told, peer->in_run(), scenario_.peers[node - 1].group, command, completion);
    std::string wrong;
    bool look = false;
    if (std::get_if<CommandConnect>(&command) != nullptr) {
        told.connects += good ? 1 : 0;
        told.life_committed = 0;
        told.syncs_unsure = false;
        driver.carried().clear();
    } else if (std::get_if<CommandUpdateTopology>(&command) != nullptr) {
        told.updates += good ? 1 : 0;
        look = good;
    } else if (std::get_if<CommandLaunch>(&command) != nullptr) {
        told.launched += good ? 1 : 0;
        const auto& launch = std::get<CommandLaunch>(command);
        if (good && launch.collective.kind != CollectiveKind::all_reduce &&
            scenario_.limits.vote_input_bytes_max != 0) {
            told.vote_inputs.insert(launch.input.size());
            told.vote_inputs_sum += launch.input.size();
        }
    } else if (const auto* many = std::get_if<CommandReduceMany>(&command)) {
        const bool begun = !completion.worlds.empty();
        told.asked_for_many |= begun;
        told.many += begun ? many->launches.size() : 0;
        told.sent += completion.sent_bytes;
        told.received += completion.received_bytes;
        wrong = bytes_of_many(driver.carried(), completion, begun && driver.tags_open() == 0);
    } else if (std::get_if<CommandAwait>(&command) != nullptr) {
        told.committed += good ? 1 : 0;
        told.life_committed += good ? 1 : 0;
        told.sent += completion.sent_bytes;
        told.received += completion.received_bytes;
        wrong = bytes_of_reduction(driver.carried(), completion, told);
        look = good;
    } else if (std::get_if<CommandSync>(&command) != nullptr) {
        wrong = bytes_of_sync(driver.carried(), completion, told.syncs_unsure);
        look = good;
    }
    const bool leaves = std::get_if<CommandLeave>(&command) != nullptr;
    told.has_left |= leaves;
    if (wrong.empty() && (leaves || (look && ++looks_ % looks_apart == 0))) {
        wrong = statistics(told, driver);
        if (wrong.empty() && !leaves && journal_is_safe_ && world_.master_machine() != nullptr) {
            wrong = status(told, *peer, scenario_.peers[node - 1].group, command, completion);
            if (!wrong.empty()) wrong = "status of the master: " + wrong;
        }
    }
    if (!wrong.empty()) world_.violate("numbers", formatted("{}: {}", sim::Trace::name(node), wrong));
}

// Part p begins at element p * count / world. Its partial sum starts at position p + 1, goes around the ring and is
// complete at position p. Its result then goes around from position p to position p - 1. So each member receives every
// part twice, except that position p + 1 receives no partial sum of part p, and position p does not receive its result.
// Each member sends every part twice, except that position p sends no partial sum of part p, and position p - 1 does
// not send its result.
std::vector<RingBytes> ring_bytes(const ReduceShape& shape, std::uint32_t world, std::uint32_t slice_bytes) {
    const std::uint64_t slice = numeric::elements_within(shape.quantization, shape.type, slice_bytes);
    const auto begin = [&](std::uint64_t part) {
        return static_cast<std::uint64_t>(static_cast<unsigned __int128>(shape.count) * part / world);
    };
    std::vector<std::uint64_t> parts(world);
    std::uint64_t all = 0;
    for (std::uint32_t part = 0; part < world; ++part) {
        const std::uint64_t elements = begin(part + 1) - begin(part);
        parts[part] = elements / slice * numeric::wire_bytes(shape.quantization, shape.type, slice);
        if (elements % slice != 0) parts[part] += numeric::wire_bytes(shape.quantization, shape.type, elements % slice);
        all += parts[part];
    }
    std::vector<RingBytes> members(world);
    for (std::uint32_t i = 0; i < world; ++i) {
        members[i].received = 2 * all - parts[i] - parts[(i + world - 1) % world];
        members[i].sent = 2 * all - parts[i] - parts[(i + 1) % world];
    }
    return members;
}

// After a survey, and among members of few hosts, the master may cut the vector into parts that only it knows. Up to two
// of them are received once, all others twice. What each member's driver has carried was compared exactly when its call returned.
bool fits_unequal_parts(const Scenario& scenario, const LaunchFact& fact) {
    const ReduceShape& shape = fact.shape;
    const std::uint64_t element = element_bytes(shape.type);
    const bool hosts =
        std::any_of(scenario.peers.begin(), scenario.peers.end(), [](const PeerPlan& plan) { return plan.host != 0; });
    if ((scenario.workload.optimize_per_mille == 0 && !hosts) || fact.completion.world < 3 ||
        shape.count < scenario.limits.unequal_parts_bytes_min / element)
        return false;
    const std::uint64_t slice = numeric::elements_within(shape.quantization, shape.type, scenario.limits.slice_bytes);
    const std::uint64_t full = numeric::wire_bytes(shape.quantization, shape.type, slice);
    const std::uint64_t whole = shape.count / slice * full;
    const std::uint64_t received = fact.completion.received_bytes;
    return received >= whole && received <= 2 * (whole + fact.completion.world * full);
}

sim::Violation check_numbers(const Scenario& scenario, const Ledger& ledger) {
    for (const LaunchFact& fact : ledger.launches) {
        const Completion& c = fact.completion;
        if (fact.end == open_end || c.result != Result::success || !c.worlds.empty() || ledger.lives[fact.life].liar)
            continue;
        if (fact.collective.kind != CollectiveKind::all_reduce) {
            if (may_have_received(scenario, fact, ledger.lives[fact.life].peer)) continue;
            return {"numbers", formatted("{} was told that it received {} bytes of tag {} in a world of {}",
                                         ledger.name(fact.life), c.received_bytes, fact.tag, c.world)};
        }
        const std::vector<RingBytes> ring = ring_bytes(fact.shape, c.world, scenario.limits.slice_bytes);
        // The ledger does not contain the member's position, so the count of any position is accepted.
        if (std::any_of(ring.begin(), ring.end(),
                        [&](const RingBytes& member) { return member.received == c.received_bytes; }))
            continue;
        if (fits_unequal_parts(scenario, fact)) continue;
        // The vote carried the input.
        const std::uint64_t bytes = fact.shape.count * element_bytes(fact.shape.type);
        if (bytes <= scenario.limits.vote_input_bytes_max && c.received_bytes == bytes) continue;
        std::string known;
        for (const RingBytes& member : ring) known += formatted(" {}", member.received);
        return {"numbers",
                formatted("{} was told that it received {} bytes of tag {} in a world of {}; its members receive{}",
                          ledger.name(fact.life), c.received_bytes, fact.tag, c.world, known)};
    }
    for (const SyncFact& fact : ledger.syncs) {
        const Completion& c = fact.completion;
        if (fact.end == open_end || c.result != Result::success || scenario.world.symbolic ||
            ledger.lives[fact.life].liar)
            continue;
        if (c.received_bytes < fact.changed_bytes)
            return {"numbers", formatted("{} was told that a synchronization received {} bytes, and {} have changed",
                                         ledger.name(fact.life), c.received_bytes, fact.changed_bytes)};
    }
    return {};
}

}  // namespace pccl::harness
