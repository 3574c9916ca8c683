#include "harness/sends.hpp"

#include "core/base/format.hpp"
#include "core/numeric/kernels.hpp"
#include "core/numeric/types.hpp"
#include "harness/process.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

namespace pccl::harness {

using namespace core;
using sim::mix;

namespace {

constexpr std::uint64_t elements_most = 4096;  // memory is real here
constexpr std::uint32_t messages_most = 24;
constexpr std::uint32_t empty_per_million = 100'000;
constexpr std::uint32_t just_enough_room_per_million = 500'000;
constexpr std::uint32_t to_nobody_per_million = 30'000;
constexpr std::uint32_t departure_per_million = 20'000;
constexpr Tag tags = 3;  // pairs share them

std::uint64_t most_elements(const Scenario& scenario) {
    return std::min<std::uint64_t>(scenario.workload.elements_max, elements_most);
}

}  // namespace

std::vector<Message> messages_after(const Scenario& scenario, const LaunchFact& collective) {
    const std::vector<Completion::Part>& members = collective.completion.members;
    std::uint64_t common = mix(collective.group, collective.tag);
    for (const auto& member : members) common = mix(common, member.peer.bytes[0] | member.peer.bytes[1] << 8);
    if (gives_all_the_same(collective.collective.kind) && !collective.output.empty())
        common = mix(common, numeric::checksum64(collective.output.data(), collective.output.size()));
    sim::Draw draw(mix(mix(scenario.seed, 611), common));
    if (members.size() < 2 || !draw.chance(scenario.workload.sends_per_mille * 1000)) return {};
    const auto world = static_cast<std::uint32_t>(members.size());
    std::vector<Message> messages;
    std::set<std::tuple<std::uint32_t, std::uint32_t, Tag>> names;
    std::map<std::uint32_t, std::uint32_t> open;
    const std::uint64_t count = 1 + draw.below(std::min(2 * world, messages_most));
    for (std::uint64_t i = 0; i < count; ++i) {
        Message message;
        message.from = static_cast<std::uint32_t>(draw.below(world));
        message.to = static_cast<std::uint32_t>((message.from + 1 + draw.below(world - 1)) % world);
        message.tag = draw.below(tags);
        // It must be compared in all of its bits.
        if (message.tag == 2 && mix(scenario.seed, 453) % 4 == 0) message.tag = (Tag{1} << 40) + 1;
        message.type = static_cast<DataType>(draw.below(data_type_count));
        message.count = draw.chance(empty_per_million) ? 0 : 1 + draw.below(most_elements(scenario));
        if (!names.emplace(message.from, message.to, message.tag).second) continue;
        if (std::max(open[message.from], open[message.to]) >= scenario.limits.tags_max) continue;
        ++open[message.from];
        ++open[message.to];
        messages.push_back(message);
    }
    return messages;
}

// ---- the program --------------------------------------------------------------------------------------------------

// The first collective of this turn that succeeded and named its members. All of them find the same one.
const LaunchFact* Process::names_members(Instant since) const {
    for (const Tensor& tensor : tensors_) {
        if (!tensor.launched) continue;
        const LaunchFact& fact = ledger_.launches[tensor.launch];
        if (fact.begin >= since && fact.end != open_end && fact.completion.result == Result::success &&
            !fact.completion.members.empty())
            return &fact;
    }
    return nullptr;
}

Process::Parcel& Process::parcel(std::size_t index) {
    while (parcels_.size() <= index) {
        Parcel parcel;
        parcel.buffer = world_.add_buffer(node_, (most_elements(scenario_) + 1) * 8);
        parcels_.push_back(std::move(parcel));
    }
    return parcels_[index];
}

// Launches one end of a send. `other`: the other end.
Task<bool> Process::launch_send(std::size_t index, Message message, bool gives, Uuid other) {
    std::vector<std::uint8_t>& bytes = memory(parcel(index).buffer);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw_.bits());
    const bool mismatched = draw_.chance(scenario_.workload.mismatch_per_mille * 1000);
    if (mismatched && draw_.chance(500'000))
        message.type = static_cast<DataType>((static_cast<std::uint32_t>(message.type) + 1) % data_type_count);
    std::uint64_t room = draw_.chance(just_enough_room_per_million) ? message.count : most_elements(scenario_) + 1;
    if (mismatched) room = draw_.below(room + 1);
    LaunchFact fact;
    fact.process = number_;
    fact.life = life_;
    fact.group = plan_.group;
    fact.tag = message.tag;
    fact.begin = now();
    fact.input = bytes;
    fact.shape = ReduceShape{0, message.type};
    fact.group_world = attributes_.group_world;
    CommandLaunch command;
    command.tag = parcel(index).name = mix(mix(number_, 77), ++sends_begun_);
    command.shape = fact.shape;
    Collective& collective = command.collective;
    collective.kind = CollectiveKind::send;
    collective.pair_tag = message.tag;
    (gives ? collective.target : collective.root) = other;
    (gives ? collective.count : collective.capacity) = gives ? message.count : room;
    (gives ? command.send : command.receive) = parcel(index).buffer;
    const std::uint64_t input = gives ? message.count * element_bytes(message.type) : 0;
    fact.collective = collective;
    (gives ? fact.collective.root : fact.collective.target) = own_peer();
    if (input <= scenario_.limits.vote_input_bytes_max && !leaves_input_out(fact))
        command.input.assign(reinterpret_cast<const char*>(fact.input.data()), input);
    parcel(index).launch = ledger_.launches.size();
    ledger_.launches.push_back(std::move(fact));
    const bool again = draw_.chance(scenario_.workload.twice_per_mille * 1000);
    CommandLaunch twice = command;
    const Completion c = co_await call(CallKind::launch, std::move(command));
    if (c.result != Result::success) {
        LaunchFact& refused = ledger_.launches[parcel(index).launch];
        refused.end = refused.begin;
        refused.completion = c;
        ++counters_.refused;
        if (memory(parcel(index).buffer) != refused.input)
            world_.violate("restore", "a refused launch of a send changed its array");
        if (c.result != Result::too_few_peers && !destroyed())
            world_.violate("contract", std::string("a launch of a send was refused with ") + sim::to_text(c.result));
        co_return false;
    }
    if (again) {
        twice.tag = mix(mix(number_, 78), sends_begun_);
        const Completion second = co_await call(CallKind::launch, std::move(twice));
        if (second.result != Result::invalid_argument && second.result != Result::too_few_peers && !destroyed())
            world_.violate("contract", std::string("a send launched twice gave ") + sim::to_text(second.result));
    }
    co_return true;
}

Task<Completion> Process::await_send(std::size_t index) {
    CommandAwait command;
    command.tag = parcel(index).name;
    const Instant begin = now();
    ledger_.launches[parcel(index).launch].awaited = begin;
    const Completion c = co_await call(CallKind::await, std::move(command));
    if (c.result == Result::rank_connection_lost && interrupted_by(begin)) co_return c;
    send_returned(index, c);
    co_return c;
}

void Process::send_returned(std::size_t index, const Completion& c) {
    LaunchFact& fact = ledger_.launches[parcel(index).launch];
    fact.end = now();
    fact.completion = c;
    std::vector<std::uint8_t>& after = memory(parcel(index).buffer);
    const bool good = c.result == Result::success;
    ++(good ? counters_.committed : counters_.aborted);
    if (good) was_member(fact.life, fact.begin);
    const std::uint64_t written = good ? std::min<std::uint64_t>(result_bytes(fact, own_peer()), after.size()) : 0;
    fact.output.assign(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(written));
    if (!std::equal(after.begin() + static_cast<std::ptrdiff_t>(written), after.end(),
                    fact.input.begin() + static_cast<std::ptrdiff_t>(written)))
        world_.violate("restore", formatted("the array of a send on {} changed behind byte {}, after {}",
                                            sim::Trace::name(node_), written, sim::to_text(c.result)));
    if (good || c.result == Result::rank_connection_lost || c.result == Result::invalid_argument ||
        c.result == Result::too_few_peers || given_up(c))
        return;
    world_.violate("contract", std::string("a send gave ") + sim::to_text(c.result));
}

// The messages that follow a collective of this turn. Some programs send to somebody who is no member, or leave before
// all is awaited. False: not a member any more.
Task<bool> Process::exchange(Instant since) {
    const LaunchFact* named = scenario_.workload.sends_per_mille == 0 ? nullptr : names_members(since);
    if (named == nullptr) co_return true;
    const std::vector<Completion::Part> members = named->completion.members;
    const std::uint32_t own = named->completion.index;
    std::vector<Message> messages = messages_after(scenario_, *named);
    std::erase_if(messages, [&](const Message& message) { return message.from != own && message.to != own; });
    if (messages.empty()) co_return true;
    const bool leaves = draw_.chance(departure_per_million) && now() < scenario_.chaos_end;
    if (leaves && draw_.chance(300'000)) co_return co_await leave();
    shuffle(messages);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Message message = messages[i];
        const bool gives = message.from == own;
        if (co_await launch_send(i, message, gives, members[gives ? message.to : message.from].peer)) open.push_back(i);
        if (draw_.chance(100'000)) co_await sleep(draw_.log_uniform(microsecond, scenario_.workload.compute_max));
        if (leaves && draw_.chance(300'000)) co_return co_await leave();
    }
    if (draw_.chance(to_nobody_per_million) && messages.size() < scenario_.limits.tags_max) {
        Uuid nobody;
        for (std::uint8_t& byte : nobody.bytes) byte = static_cast<std::uint8_t>(draw_.bits());
        const Life& other = ledger_.lives[draw_.below(ledger_.lives.size())];
        if (!other.peer.is_nil() && other.group != plan_.group) nobody = other.peer;
        if (co_await launch_send(messages.size(), messages.front(), draw_.chance(500'000), nobody))
            open.push_back(messages.size());
    }
    if (leaves) co_return co_await leave();
    shuffle(open);
    Completion last;
    bool failed = false;
    for (const std::size_t i : open) {
        const Completion c = co_await await_send(i);
        if (c.result == Result::success) continue;
        failed = true;
        last = c;
    }
    if (failed && !co_await still_member(last)) co_return false;
    co_return true;
}

}  // namespace pccl::harness
