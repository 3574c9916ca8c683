// Checks the promises of a scope against what the calls of its programs returned.
#include "core/base/format.hpp"
#include "harness/scope/explore.hpp"
#include "net-sim/describe.hpp"

#include <cstdint>
#include <cstring>

namespace pccl::scope {

using core::Result;

namespace {

std::string name_of(std::size_t node) { return core::formatted("peer{}", node); }

std::string sum_of(const World& world, std::uint32_t collective, std::uint32_t members) {
    std::string sum;
    for (std::uint64_t i = 0; i < world.scope().count; ++i) {
        std::int32_t value = 0;
        for (std::size_t node = 1; node <= world.scope().peers; ++node) {
            if ((members >> node & 1) == 0) continue;
            std::int32_t part = 0;
            std::memcpy(&part, world.input(node, collective).data() + 4 * i, sizeof(part));
            value += part;
        }
        sum.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return sum;
}

// The set of members whose inputs sum to `bytes`, as bits; 0: no set does.
std::uint32_t members_of(const World& world, std::uint32_t collective, const std::string& bytes) {
    for (std::uint32_t members = 2; members < 2u << world.scope().peers; members += 2) {
        if (sum_of(world, collective, members) == bytes) return members;
    }
    return 0;
}

// Without a fault, the world of an epoch counts exactly the peers that were admitted up to it.
std::string judge_worlds(const World& world, const State& state) {
    for (std::size_t node = 1; node <= world.scope().peers; ++node) {
        for (const Told& told : state.nodes[node].told) {
            if (told.call != Call::connect && told.call != Call::update) continue;
            std::uint32_t admitted = 0;
            for (std::size_t other = 1; other <= world.scope().peers; ++other) {
                const auto& heard = state.nodes[other].told;
                const bool connected = !heard.empty() && heard.front().call == Call::connect;
                admitted += !connected || heard.front().epoch <= told.epoch;
            }
            if (told.world != admitted) {
                return core::formatted("{}: {} tells a world of {}, and {} were admitted", name_of(node),
                                       to_text(told.call), told.world, admitted);
            }
        }
    }
    return {};
}

}  // namespace

std::string judge(const World& world, const State& state) {
    const std::size_t peers = world.scope().peers;
    const std::uint32_t collective = state.collective;
    const Told* success = nullptr;
    std::string content;  // of the members that succeeded
    std::size_t failed = 0;
    bool somebody_died = false;
    for (std::size_t node = 1; node <= peers; ++node) somebody_died = somebody_died || !state.nodes[node].alive;
    for (std::size_t node = 1; node <= peers; ++node) {
        const Node& self = state.nodes[node];
        if (!self.alive) continue;
        // One fault alone never costs a seat: the connection comes back, and so does the master.
        if (self.lost && self.touched < 2) return name_of(node) + " was lost without a reason";
        // A connection may be refused because it comes too early while peers join, or again after a fault.
        const bool quiet = state.faults == 0 && world.scope().joiners == 0;
        if (quiet && world.machines().refused_frames(node, self.machine) != self.refused)
            return name_of(node) + " refused a frame or a connection";
        for (const Told& told : self.told) {
            if (told.result == Result::success) continue;
            if (told.result == Result::internal_error)
                return core::formatted("{}: {} returns an internal error", name_of(node), to_text(told.call));
            // One broken connection is replaced and one master restarts, so neither makes a collective fail.
            const bool is_collective = told.call == Call::await || told.call == Call::sync;
            const bool may_fail = is_collective ? somebody_died || state.faults > 1 : state.faults != 0;
            if (!may_fail) return core::formatted("{}: {} fails without a reason", name_of(node), to_text(told.call));
        }
        if (self.told.empty()) continue;
        const Told& told = self.told.back();
        // At this end no live peer may still wait for its admission. Dead members may still be counted.
        if (state.stage == Stage::explored && !self.member && !self.lost) return name_of(node) + " is no member";
        if (told.call != Call::await && told.call != Call::sync) {
            if (told.call == Call::launch && told.result == Result::success)
                return name_of(node) + " launched and did not await";
            failed += told.call == Call::launch && !self.lost;
            continue;
        }
        const core::BufferId source = world.send_buffer(collective);
        const std::string& input = *world.buffer(state, node, source);
        const std::string mine = world.input(node, collective);
        if (told.result != Result::success) {
            if (input != mine) return name_of(node) + " failed, and its input is not as before";
            failed += self.lost ? 0 : 1;
            continue;
        }
        const bool is_sync = told.call == Call::sync;
        const std::string& output = is_sync ? input : *world.buffer(state, node, world.receive_buffer(collective));
        if (!is_sync && source != world.receive_buffer(collective) && input != mine)
            return name_of(node) + " succeeded, and its source changed";
        if (success != nullptr && output != content)
            return name_of(node) + " holds other bytes than a peer that succeeded too";
        if (success != nullptr && (success->world != told.world || success->revision != told.revision))
            return name_of(node) + " was told another world or revision than a peer that succeeded too";
        success = &told;
        content = output;
        if (is_sync) {
            bool somebodys = false;
            for (std::size_t other = 1; other <= peers; ++other)
                somebodys = somebodys || output == world.input(other, collective);
            if (!somebodys) return name_of(node) + " holds a state that nobody had";
            continue;
        }
        const std::uint32_t members = members_of(world, collective, output);
        if ((members >> node & 1) == 0) return name_of(node) + " holds a wrong sum";
        if (static_cast<std::uint32_t>(__builtin_popcount(members)) != told.world)
            return core::formatted("{} was told a world of {} that is not that of the sum", name_of(node), told.world);
    }
    if (success != nullptr && failed != 0) return "the collective succeeded for one member and failed for another";
    return state.stage == Stage::explored && state.faults == 0 ? judge_worlds(world, state) : std::string();
}

}  // namespace pccl::scope
