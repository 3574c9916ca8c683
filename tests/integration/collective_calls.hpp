// Calls of the collectives of pccl/ext.h at all members of a run in this process.
#pragma once

#include "arrays.hpp"
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

namespace integration {

struct Info {
    std::vector<pcclMemberInfo_t> members = std::vector<pcclMemberInfo_t>(8);
    pcclCollectiveInfo_t info{};
    Info() {
        info.members = members.data();
        info.members_capacity = members.size();
    }
    Info(const Info&) = delete;
    Info& operator=(const Info&) = delete;
};

inline pcclCopyDescriptor_t copy_of(std::size_t count, std::uint64_t tag) { return {count, type, tag}; }

// Calls `call` for each member in a thread of its own, and returns the results.
inline std::vector<pcclResult_t> on_all(const LocalRun& run, std::size_t count,
                                 const std::function<pcclResult_t(std::size_t, pcclComm_t*)>& call) {
    std::vector<pcclResult_t> results(count, pcclInternalError);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { results[i] = call(i, run[i]); });
    for (std::thread& thread : threads) thread.join();
    return results;
}

inline bool all_are(const std::vector<pcclResult_t>& results, pcclResult_t result) {
    return std::all_of(results.begin(), results.end(), [&](pcclResult_t one) { return one == result; });
}

// The members' numbers in this test, by index.
inline std::vector<std::size_t> order_of(const LocalRun& run, std::size_t count) {
    std::vector<std::size_t> order(count);
    std::vector<Info> infos(count);
    REQUIRE(all_are(
        on_all(run, count, [&](std::size_t i, pcclComm_t* comm) { return pcclBarrier(1, comm, &infos[i].info); }),
        pcclSuccess));
    for (std::size_t i = 0; i < count; ++i) {
        CHECK(infos[i].info.local_world_size == count);
        REQUIRE(infos[i].info.local_index < count);
        order[infos[i].info.local_index] = i;
        for (std::size_t k = 0; k < count; ++k) CHECK(same(infos[i].members[k].peer, infos[0].members[k].peer));
    }
    for (std::size_t k = 0; k < count; ++k) CHECK(same(infos[0].members[k].peer, id_of(run[order[k]])));
    return order;
}

}  // namespace integration
