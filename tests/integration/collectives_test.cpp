// The collectives of pccl/ext.h over loopback: every kind with 2 to 4 members, from empty arrays to some MiB, uneven
// pieces, several kinds in flight, and calls that must fail.
#include "collective_calls.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>

using namespace integration;

namespace {

void gathers(const LocalRun& run, std::size_t world, const std::vector<std::size_t>& order, std::size_t count) {
    const auto own = [&](std::size_t i) { return count == 0 ? 0 : i % 3 == 1 ? std::size_t{0} : count + i; };
    Values expected;
    for (const std::size_t i : order) {
        const Values piece = drawn(own(i), i);
        expected.insert(expected.end(), piece.begin(), piece.end());
    }
    std::vector<Values> got(world, Values(expected.size() + 3, 77));
    std::vector<Info> infos(world);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const Values send = drawn(own(i), i);
        const pcclCopyDescriptor_t descriptor = copy_of(send.size(), 10);
        return pcclAllGather(send.data(), got[i].data(), got[i].size(), &descriptor, comm, &infos[i].info);
    });
    REQUIRE(all_are(results, pcclSuccess));
    expected.resize(expected.size() + 3, 77);
    for (std::size_t i = 0; i < world; ++i) {
        CHECK(got[i] == expected);
        CHECK(order[infos[i].info.local_index] == i);
        for (std::size_t k = 0; k < world; ++k) CHECK(infos[i].members[k].count == own(order[k]));
    }
}

void broadcasts(const LocalRun& run, std::size_t world, std::size_t count, std::size_t root, bool in_place) {
    const pcclPeerId_t id = id_of(run[root]);
    const Values expected = drawn(count, root);
    std::vector<Values> got(world, Values(count, 77));
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(count, 11);
        if (in_place && i == root) got[i] = expected;
        const void* send = in_place ? got[i].data() : i == root ? expected.data() : nullptr;
        return pcclBroadcast(send, got[i].data(), &id, &descriptor, comm, nullptr);
    });
    REQUIRE(all_are(results, pcclSuccess));
    for (const Values& one : got) CHECK(one == expected);
}

Values sum_of(std::size_t world, std::size_t count) {
    Values sum(count);
    for (std::size_t i = 0; i < world; ++i) {
        const Values one = drawn(count, i);
        for (std::size_t k = 0; k < count; ++k) sum[k] += one[k];
    }
    return sum;
}

void reduces(const LocalRun& run, std::size_t world, std::size_t count, std::size_t root, bool in_place) {
    const pcclPeerId_t id = id_of(run[root]);
    std::vector<Values> send(world), got(world, Values(count, 77));
    for (std::size_t i = 0; i < world; ++i) send[i] = drawn(count, i);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const pcclReduceDescriptor_t descriptor = describe(count, 12, pcclSum, type);
        void* receive = in_place ? send[i].data() : i == root ? got[i].data() : nullptr;
        return pcclReduce(send[i].data(), receive, &id, &descriptor, comm, nullptr);
    });
    REQUIRE(all_are(results, pcclSuccess));
    CHECK((in_place ? send[root] : got[root]) == sum_of(world, count));
    for (std::size_t i = 0; i < world; ++i) {
        if (i != root || !in_place) CHECK(send[i] == drawn(count, i));
    }
}

void scatters(const LocalRun& run, std::size_t world, const std::vector<std::size_t>& order, std::size_t count,
              bool in_place) {
    // The first piece takes the rest.
    const std::size_t each = count / (world + 1);
    const Values sum = sum_of(world, count);
    std::vector<Values> send(world), got(world);
    for (std::size_t i = 0; i < world; ++i) send[i] = drawn(count, i);
    const auto piece = [&](std::size_t index) { return index == 0 ? count - each * (world - 1) : each; };
    std::vector<std::size_t> index_of(world);
    for (std::size_t k = 0; k < world; ++k) index_of[order[k]] = k;
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        got[i].assign(piece(index_of[i]), 77);
        const pcclReduceDescriptor_t descriptor = describe(count, 13, pcclSum, type);
        return pcclReduceScatter(send[i].data(), in_place ? send[i].data() : got[i].data(), got[i].size(), &descriptor,
                                 comm, nullptr);
    });
    REQUIRE(all_are(results, pcclSuccess));
    std::size_t at = 0;
    for (std::size_t k = 0; k < world; ++k) {
        const std::size_t i = order[k];
        const Values& result = in_place ? send[i] : got[i];
        CHECK(std::equal(sum.begin() + static_cast<std::ptrdiff_t>(at),
                         sum.begin() + static_cast<std::ptrdiff_t>(at + piece(k)), result.begin()));
        at += piece(k);
        const Values before = drawn(count, i);
        if (in_place)
            CHECK(std::equal(before.begin() + static_cast<std::ptrdiff_t>(piece(k)), before.end(),
                             send[i].begin() + static_cast<std::ptrdiff_t>(piece(k))));
        else
            CHECK(send[i] == before);
    }
}

void gathers_at(const LocalRun& run, std::size_t world, const std::vector<std::size_t>& order, std::size_t count,
                std::size_t root) {
    const auto own = [&](std::size_t i) { return count == 0 ? 0 : i % 3 == 1 ? std::size_t{0} : count + i; };
    const pcclPeerId_t id = id_of(run[root]);
    Values expected;
    for (const std::size_t i : order) {
        const Values piece = drawn(own(i), i);
        expected.insert(expected.end(), piece.begin(), piece.end());
    }
    Values got(expected.size() + 3, 77);
    std::vector<Info> infos(world);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const Values send = drawn(own(i), i);
        const pcclCopyDescriptor_t descriptor = copy_of(send.size(), 14);
        return pcclGather(send.data(), i == root ? got.data() : nullptr, i == root ? got.size() : 0, &id, &descriptor,
                          comm, &infos[i].info);
    });
    REQUIRE(all_are(results, pcclSuccess));
    expected.resize(expected.size() + 3, 77);
    CHECK(got == expected);
    for (std::size_t i = 0; i < world; ++i) {
        CHECK(order[infos[i].info.local_index] == i);
        for (std::size_t k = 0; k < world; ++k) CHECK(infos[i].members[k].count == own(order[k]));
    }
}

void scatters_from(const LocalRun& run, std::size_t world, const std::vector<std::size_t>& order, std::size_t count,
                   std::size_t root, bool in_place) {
    // The member with index 1 gets nothing, the others one more than the one before.
    std::vector<std::uint64_t> counts;
    for (std::size_t k = 0; k < world; ++k) counts.push_back(count == 0 || k == 1 ? 0 : count + k);
    const pcclPeerId_t id = id_of(run[root]);
    Values whole = drawn(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), root);
    const Values before = whole;
    std::vector<Values> got(world, Values(count + world, 77));
    std::vector<Info> infos(world);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(0, 15);
        const pcclPieces_t pieces = {counts.data(), world};
        const bool here = i == root;
        const bool same_memory = here && in_place && whole.size() >= got[i].size();
        return pcclScatter(here ? whole.data() : nullptr, here ? &pieces : nullptr,
                           same_memory ? whole.data() : got[i].data(), got[i].size(), &id, &descriptor, comm,
                           &infos[i].info);
    });
    REQUIRE(all_are(results, pcclSuccess));
    std::size_t first = 0;
    for (std::size_t k = 0; k < world; ++k) {
        const std::size_t i = order[k];
        const bool same_memory = i == root && in_place && whole.size() >= got[i].size();
        Values expected = same_memory ? before : Values(got[i].size(), 77);
        std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(first), counts[k], expected.begin());
        CHECK((same_memory ? whole : got[i]) == expected);
        for (std::size_t member = 0; member < world; ++member) CHECK(infos[i].members[member].count == counts[member]);
        first += counts[k];
    }
    if (!in_place) CHECK(whole == before);
}

// Pieces of `each` elements. With `uneven` the one from index i to index k has i + k more, and the one from 0 to 1
// none.
void all_to_alls(const LocalRun& run, std::size_t world, const std::vector<std::size_t>& order, std::size_t each,
                 bool uneven) {
    const auto piece = [&](std::size_t from, std::size_t to) {
        if (!uneven) return each;
        return from == 0 && to == 1 ? std::size_t{0} : each + from + to;
    };
    const auto first_of = [&](std::size_t from, std::size_t to) {
        std::size_t first = 0;
        for (std::size_t k = 0; k < to; ++k) first += piece(from, k);
        return first;
    };
    std::vector<std::size_t> index_of(world);
    for (std::size_t k = 0; k < world; ++k) index_of[order[k]] = k;
    std::vector<Values> send(world), got(world, Values(world * (each + 2 * world), 77));
    std::vector<Info> infos(world);
    for (std::size_t i = 0; i < world; ++i) send[i] = drawn(first_of(index_of[i], world), i);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        std::vector<std::uint64_t> counts;
        for (std::size_t k = 0; k < world; ++k) counts.push_back(piece(index_of[i], k));
        const pcclCopyDescriptor_t descriptor = copy_of(each, 16);
        const pcclPieces_t pieces = {uneven ? counts.data() : nullptr, world};
        return pcclAllToAll(send[i].data(), &pieces, got[i].data(), got[i].size(), &descriptor, comm, &infos[i].info);
    });
    REQUIRE(all_are(results, pcclSuccess));
    for (std::size_t i = 0; i < world; ++i) {
        Values expected;
        for (std::size_t k = 0; k < world; ++k) {
            const Values row = drawn(first_of(k, world), order[k]);
            const auto first = row.begin() + static_cast<std::ptrdiff_t>(first_of(k, index_of[i]));
            expected.insert(expected.end(), first, first + static_cast<std::ptrdiff_t>(piece(k, index_of[i])));
            CHECK(infos[i].members[k].count == piece(k, index_of[i]));
        }
        expected.resize(got[i].size(), 77);
        CHECK(got[i] == expected);
        CHECK(send[i] == drawn(first_of(index_of[i], world), i));
    }
}

void every_collective(std::size_t world) {
    const LocalRun run(world);
    const std::vector<std::size_t> order = order_of(run, world);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{70'000}, std::size_t{262'144}}) {
        INFO("count " << count);
        gathers(run, world, order, count);
        gathers_at(run, world, order, count, (count + 1) % world);
        for (const bool in_place : {false, true}) {
            broadcasts(run, world, count, count % world, in_place);
            reduces(run, world, count, (count + 1) % world, in_place);
            scatters(run, world, order, count, in_place);
            scatters_from(run, world, order, count, count % world, in_place);
            all_to_alls(run, world, order, count, in_place);
        }
    }
}

}  // namespace

TEST_CASE("two members: every collective, every size") { every_collective(2); }

TEST_CASE("three members: every collective, every size") { every_collective(3); }

TEST_CASE("four members: every collective, every size") { every_collective(4); }

// The first ones go around the ring, and make the master want the direct edges.
TEST_CASE("pieces come to travel one hop") {
    constexpr std::size_t world = 4, each = 40'000, tries_max = 200;
    const LocalRun run(world);
    const std::vector<std::size_t> order = order_of(run, world);
    std::vector<std::size_t> index_of(world);
    for (std::size_t k = 0; k < world; ++k) index_of[order[k]] = k;
    const pcclPeerId_t root = id_of(run[order[2]]);
    const pcclPieces_t pieces = {nullptr, world};
    for (const char* kind : {"gather", "scatter", "all_to_all"}) {
        INFO(kind);
        const bool gathers = kind == std::string("gather"), scatters = kind == std::string("scatter");
        // Of a gather and a scatter all pieces but the root's, of an all_to_all all but those that stay.
        const std::size_t fewest = sizeof(std::uint32_t) * each * (world - 1) * (gathers || scatters ? 1 : world);
        std::size_t sent = 0;
        for (std::size_t attempt = 0; attempt < tries_max && sent != fewest; ++attempt) {
            std::vector<Values> send(world), got(world, Values(world * each, 77));
            std::vector<Info> infos(world);
            for (std::size_t i = 0; i < world; ++i) send[i] = drawn(world * each, 10 * attempt + i);
            const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
                const pcclCopyDescriptor_t descriptor = copy_of(each, 17);
                pcclCollectiveInfo_t* info = &infos[i].info;
                if (gathers)
                    return pcclGather(send[i].data(), got[i].data(), got[i].size(), &root, &descriptor, comm, info);
                if (scatters)
                    return pcclScatter(send[i].data(), &pieces, got[i].data(), got[i].size(), &root, &descriptor, comm,
                                       info);
                return pcclAllToAll(send[i].data(), &pieces, got[i].data(), got[i].size(), &descriptor, comm, info);
            });
            REQUIRE(all_are(results, pcclSuccess));
            sent = 0;
            for (std::size_t i = 0; i < world; ++i) {
                sent += infos[i].info.tx_bytes;
                const auto piece = [&](std::size_t from, std::size_t number, std::size_t to) {
                    return std::equal(send[from].begin() + static_cast<std::ptrdiff_t>(number * each),
                                      send[from].begin() + static_cast<std::ptrdiff_t>((number + 1) * each),
                                      got[i].begin() + static_cast<std::ptrdiff_t>(to * each));
                };
                if (scatters) CHECK(piece(order[2], index_of[i], 0));
                for (std::size_t k = 0; k < world && !scatters && (!gathers || i == order[2]); ++k)
                    CHECK(piece(order[k], gathers ? 0 : index_of[i], k));
            }
            CHECK(sent >= fewest);
        }
        CHECK(sent == fewest);
    }
}

TEST_CASE("collectives of several kinds are in flight together") {
    constexpr std::size_t world = 3, count = 60'000, each = count / world, kinds = 9;
    const LocalRun run(world);
    const std::vector<std::size_t> order = order_of(run, world);
    const pcclPeerId_t root = id_of(run[1]);
    struct Member {
        Values gathered = Values(world * count), reduced = Values(count), copied = Values(count),
               scattered = Values(each), reduced_at = Values(count), gathered_at = Values(world * count),
               piece = Values(each), exchanged = Values(count);
        Info gather_info;
    };
    std::vector<Member> members(world);
    const auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const Values send = drawn(count, i);
        Member& own = members[i];
        const bool is_root = i == 1;
        const pcclPieces_t pieces = {nullptr, world};
        pcclAsyncReduceOp_t handles[kinds] = {};
        const auto reduction = [&](std::uint64_t tag) { return describe(count, tag, pcclSum, type); };
        const pcclCopyDescriptor_t gather = copy_of(count, 1), broadcast = copy_of(count, 3),
                                   gather_at = copy_of(count, 7), scatter = copy_of(each, 8),
                                   exchange = copy_of(each, 9);
        const pcclReduceDescriptor_t reduce = reduction(2), scatter_sum = reduction(5), reduce_at = reduction(6);
        const std::function<pcclResult_t()> launches[kinds] = {
            [&] {
                return pcclAllGatherAsync(send.data(), own.gathered.data(), world * count, &gather, comm, &handles[0]);
            },
            [&] { return pcclAllReduceAsync(send.data(), own.reduced.data(), &reduce, comm, &handles[1]); },
            [&] { return pcclBroadcastAsync(send.data(), own.copied.data(), &root, &broadcast, comm, &handles[2]); },
            [&] { return pcclBarrierAsync(4, comm, &handles[3]); },
            [&] {
                return pcclReduceScatterAsync(send.data(), own.scattered.data(), each, &scatter_sum, comm, &handles[4]);
            },
            [&] {
                return pcclReduceAsync(send.data(), is_root ? own.reduced_at.data() : nullptr, &root, &reduce_at, comm,
                                       &handles[5]);
            },
            [&] {
                return pcclGatherAsync(send.data(), is_root ? own.gathered_at.data() : nullptr, world * count, &root,
                                       &gather_at, comm, &handles[6]);
            },
            [&] {
                return pcclScatterAsync(is_root ? send.data() : nullptr, is_root ? &pieces : nullptr, own.piece.data(),
                                        each, &root, &scatter, comm, &handles[7]);
            },
            [&] {
                return pcclAllToAllAsync(send.data(), &pieces, own.exchanged.data(), count, &exchange, comm,
                                         &handles[8]);
            },
        };
        // Each member has another order.
        for (std::size_t k = 0; k < kinds; ++k) {
            if (const pcclResult_t result = launches[(k + i) % kinds](); result != pcclSuccess) return result;
        }
        pcclReduceInfo_t info{};
        for (std::size_t k = 1; k < kinds; ++k) {
            if (const pcclResult_t result = k < 5 ? pcclAwaitAsyncReduce(&handles[k], &info)
                                                  : pcclAwaitCollective(&handles[k], nullptr);
                result != pcclSuccess)
                return result;
        }
        return pcclAwaitCollective(&handles[0], &own.gather_info.info);
    });
    REQUIRE(all_are(results, pcclSuccess));
    const Values sum = sum_of(world, count);
    const auto piece_of = [](const Values& values, std::size_t index) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(index * each);
        return Values(begin, begin + static_cast<std::ptrdiff_t>(each));
    };
    Values all;
    for (const std::size_t i : order) {
        const Values one = drawn(count, i);
        all.insert(all.end(), one.begin(), one.end());
    }
    for (std::size_t k = 0; k < world; ++k) {
        const Member& member = members[order[k]];
        CHECK(member.gathered == all);
        CHECK(member.gather_info.members[2].count == count);
        CHECK(member.reduced == sum);
        CHECK(member.copied == drawn(count, 1));
        CHECK(member.scattered == piece_of(sum, k));
        CHECK(member.piece == piece_of(drawn(count, 1), k));
        for (std::size_t from = 0; from < world; ++from)
            CHECK(piece_of(member.exchanged, from) == piece_of(drawn(count, order[from]), k));
    }
    CHECK(members[1].reduced_at == sum);
    CHECK(members[1].gathered_at == all);
}

namespace {

// What a callback was told. The arrays of the call are gone when the test reads it.
struct Told {
    struct Outcome {
        pcclResult_t result = pcclInternalError;
        pcclCollectiveInfo_t info{};
        std::vector<pcclMemberInfo_t> members;
        std::string message;
    };
    std::promise<Outcome> promise;
    static void tell(pcclResult_t result, const pcclCollectiveInfo_t* info, const char* message, void* user) {
        Outcome outcome{result, *info, {}, message};
        if (info->members_capacity != 0) outcome.members.assign(info->members, info->members + info->members_capacity);
        static_cast<Told*>(user)->promise.set_value(std::move(outcome));
    }
};

}  // namespace

TEST_CASE("a callback gets the members of a collective, or the cause of its failure") {
    constexpr std::size_t world = 3;
    const LocalRun run(world);
    const std::vector<std::size_t> order = order_of(run, world);
    std::vector<Values> got(world, Values(6));
    std::vector<Told> told(world);
    auto results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        const Values send(i + 1, 7);
        const pcclCopyDescriptor_t descriptor = copy_of(send.size(), 1);
        pcclAsyncReduceOp_t handle{};
        if (const pcclResult_t result =
                pcclAllGatherAsync(send.data(), got[i].data(), got[i].size(), &descriptor, comm, &handle);
            result != pcclSuccess)
            return result;
        if (pcclAwaitCollectiveThen(&handle, nullptr, nullptr) != pcclInvalidArgument) return pcclInternalError;
        const pcclResult_t result = pcclAwaitCollectiveThen(&handle, &Told::tell, &told[i]);
        if (result != pcclSuccess) return result;
        const Told::Outcome outcome = told[i].promise.get_future().get();
        bool right = outcome.info.local_world_size == world && outcome.members.size() == world &&
                     order[outcome.info.local_index] == i && outcome.message.empty();
        for (std::size_t k = 0; right && k < world; ++k) right = outcome.members[k].count == order[k] + 1;
        return right ? outcome.result : pcclInternalError;
    });
    CHECK(all_are(results, pcclSuccess));
    for (const Values& one : got) CHECK(one == Values(6, 7));

    std::vector<Told> refused(world);
    results = on_all(run, world, [&](std::size_t i, pcclComm_t* comm) {
        pcclAsyncReduceOp_t handle{};
        const pcclReduceDescriptor_t descriptor = describe(6, 1, pcclSum, type);
        const pcclResult_t launched =
            i == 0 ? pcclBarrierAsync(1, comm, &handle)
                   : pcclReduceScatterAsync(got[i].data(), got[i].data(), 2, &descriptor, comm, &handle);
        if (launched != pcclSuccess) return launched;
        const pcclResult_t result = pcclAwaitCollectiveThen(&handle, &Told::tell, &refused[i]);
        if (result != pcclSuccess) return result;
        const Told::Outcome outcome = refused[i].promise.get_future().get();
        const bool right = outcome.info.local_world_size == 0 && outcome.info.members == nullptr &&
                           outcome.members.empty() && !outcome.message.empty();
        return right ? outcome.result : pcclInternalError;
    });
    CHECK(all_are(results, pcclInvalidArgument));
    const pcclAsyncReduceOp_t unknown = {run[0], 4711};
    CHECK(pcclAwaitCollectiveThen(&unknown, &Told::tell, nullptr) == pcclRankConnectionLost);
    CHECK(pcclAwaitCollectiveThen(nullptr, &Told::tell, nullptr) == pcclInvalidArgument);
}

TEST_CASE("collectives that cannot be are refused to all members, and the communicator works on") {
    const LocalRun run(2);
    std::vector<Values> memory(2, Values(16));
    const pcclPeerId_t first = id_of(run[0]);
    auto results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const Values send(4 + i);
        const pcclCopyDescriptor_t descriptor = copy_of(send.size(), 1);
        return pcclAllGather(send.data(), memory[i].data(), 8, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    CHECK(std::string(pcclGetLastErrorMessage(run[0])).find("room for, 8") != std::string::npos);
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(4, 1);
        return i == 0 ? pcclBarrier(1, comm, nullptr)
                      : pcclBroadcast(nullptr, memory[i].data(), &first, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        pcclPeerId_t stranger{};
        stranger.bytes[3] = 1;
        const pcclCopyDescriptor_t descriptor = copy_of(4, 1);
        return pcclBroadcast(memory[i].data(), memory[i].data(), &stranger, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    CHECK(std::string(pcclGetLastErrorMessage(run[0])).find("not a member of the group") != std::string::npos);
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclReduceDescriptor_t descriptor = describe(9, 1, pcclSum, type);
        return pcclReduceScatter(memory[i].data(), memory[i].data(), 4, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(4, 1);
        return pcclGather(memory[i].data(), memory[i].data() + 4, 7, &first, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    CHECK(std::string(pcclGetLastErrorMessage(run[1])).find("room for, 7 (recv_capacity)") != std::string::npos);
    const pcclPieces_t halves = {nullptr, 2}, thirds = {nullptr, 3};
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(4, 1);
        return pcclScatter(memory[i].data(), &halves, memory[i].data() + 8, i == 0 ? 4 : 3, &first, &descriptor, comm,
                           nullptr);
    });
    CHECK(all_are(results, pcclInvalidArgument));
    CHECK(std::string(pcclGetLastErrorMessage(run[0])).find("has room for 3 elements, and the pieces for it have 4") !=
          std::string::npos);
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(2, 1);
        return pcclAllToAll(memory[i].data(), i == 0 ? &halves : &thirds, memory[i].data() + 8, 8, &descriptor, comm,
                            nullptr);
    });
    CHECK(all_are(results, pcclRankConnectionLost));
    CHECK(std::string(pcclGetLastErrorMessage(run[0])).find("for 3 members, and the group has 2") !=
          std::string::npos);
    // More counts than a message takes, and the group is smaller than that anyway: refused, and nobody waits.
    const std::vector<std::uint64_t> counts(2'100, 0);
    const pcclPieces_t many = {counts.data(), counts.size()};
    results = on_all(run, 2, [&](std::size_t i, pcclComm_t* comm) {
        const pcclCopyDescriptor_t descriptor = copy_of(0, 1);
        return pcclAllToAll(nullptr, i == 0 ? &many : &halves, memory[i].data(), 8, &descriptor, comm, nullptr);
    });
    CHECK(all_are(results, pcclInvalidUsage));
    CHECK(std::string(pcclGetLastErrorMessage(run[1])).find("2100 members do not fit") != std::string::npos);
    CHECK(all_are(on_all(run, 2, [](std::size_t, pcclComm_t* comm) { return pcclBarrier(1, comm, nullptr); }),
                  pcclSuccess));
}

TEST_CASE("arguments of collectives that can never work") {
    const LocalRun run(2);
    Values memory(16);
    std::uint32_t* const data = memory.data();
    pcclComm_t* const comm = run[0];
    const pcclPeerId_t self = id_of(comm), nobody{};
    pcclCopyDescriptor_t copy = copy_of(4, 1);
    pcclReduceDescriptor_t reduce = describe(4, 1, pcclSum, type);
    pcclAsyncReduceOp_t handle{};
    CHECK(pcclGetPeerId(comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGather(data, data, 16, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGather(data, data + 3, 8, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGather(nullptr, data, 16, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGather(data, nullptr, 16, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGather(data, data + 4, 12, nullptr, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllGatherAsync(data, data + 4, 12, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBroadcast(data, data + 2, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBroadcast(nullptr, data, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBroadcast(data, data, nullptr, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBroadcastAsync(data, data, &nobody, &copy, comm, &handle) == pcclInvalidArgument);
    CHECK(pcclReduce(data, nullptr, &self, &reduce, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclReduceAsync(data, data + 1, &self, &reduce, comm, &handle) == pcclInvalidArgument);
    CHECK(pcclReduceScatter(data, data + 8, 5, &reduce, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclReduceScatterAsync(data, data + 8, 2, nullptr, comm, &handle) == pcclInvalidArgument);
    const pcclPieces_t pieces = {nullptr, 2}, no_members = {nullptr, 0};
    CHECK(pcclGather(data, data, 16, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclGather(data, nullptr, 16, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclGather(data, data + 4, 12, nullptr, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclGatherAsync(data, data + 4, 12, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclScatter(data, nullptr, data + 8, 4, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclScatter(data, &no_members, data + 8, 4, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclScatter(data, &pieces, data + 7, 4, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclScatterAsync(nullptr, &pieces, data + 8, 4, &self, &copy, comm, &handle) == pcclInvalidArgument);
    CHECK(pcclAllToAll(data, &pieces, data, 8, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllToAll(data, nullptr, data + 8, 8, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclAllToAllAsync(data, &pieces, nullptr, 8, &copy, comm, &handle) == pcclInvalidArgument);
    const std::uint64_t endless[] = {~std::uint64_t{0}, 2};
    const pcclPieces_t too_large = {endless, 2};
    CHECK(pcclAllToAll(data, &too_large, data + 8, 8, &copy, comm, nullptr) == pcclInvalidArgument);
    reduce.src_descriptor.datatype = pcclFloat;
    reduce.quantization_options.algorithm = pcclQuantMinMax;
    reduce.quantization_options.quantized_datatype = pcclUint8;
    CHECK(pcclReduce(data, data, &self, &reduce, comm, nullptr) == pcclInvalidArgument);
    const int strange = 99;
    std::memcpy(&copy.datatype, &strange, sizeof strange);
    CHECK(pcclBroadcast(data, data, &self, &copy, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBarrierAsync(1, comm, nullptr) == pcclInvalidArgument);
    CHECK(pcclBarrier(1, nullptr, nullptr) == pcclInvalidArgument);
    CHECK(pcclAwaitCollective(nullptr, nullptr) == pcclInvalidArgument);
    handle = {comm, 4711};
    CHECK(pcclAwaitCollective(&handle, nullptr) == pcclRankConnectionLost);
    const pcclCommCreateParams_t params = params_for(run.port());
    pcclComm_t* fresh = nullptr;
    REQUIRE(pcclCreateCommunicator(&params, &fresh) == pcclSuccess);
    pcclPeerId_t id{};
    CHECK(pcclGetPeerId(fresh, &id) == pcclInvalidUsage);
    CHECK(pcclBarrier(1, fresh, nullptr) == pcclInvalidUsage);
    CHECK(pcclBarrierAsync(1, fresh, &handle) == pcclInvalidUsage);
    pcclDestroyCommunicator(fresh);
}
