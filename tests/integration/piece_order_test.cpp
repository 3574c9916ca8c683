// pcclSetPieceOrder: each member keeps the pieces in its own order, whatever the others do.
#include "collective_calls.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <numeric>
#include <random>

using namespace integration;

namespace {

// The pieces of one array, one behind the other.
Values joined(const std::vector<Values>& pieces, const std::vector<std::uint32_t>& order) {
    Values all;
    for (const std::uint32_t index : order) all.insert(all.end(), pieces[index].begin(), pieces[index].end());
    return all;
}

// What member i sends to the member with index k: some elements, or none.
Values piece(std::size_t from, std::size_t index, std::size_t count) {
    const bool none = (from + index) % 4 == 1;
    return drawn(none ? 0 : count + from + 2 * index, 100 * from + index);
}

class Group {
public:
    explicit Group(std::size_t members) : run(members), world(members), number(order_of(run, members)) {
        index.resize(world);
        for (std::size_t k = 0; k < world; ++k) index[number[k]] = k;
        std::mt19937 random(static_cast<unsigned>(world));
        for (std::size_t i = 0; i < world; ++i) {
            std::vector<std::uint32_t> order(world);
            std::iota(order.begin(), order.end(), 0u);
            std::shuffle(order.begin(), order.end(), random);
            REQUIRE(pcclSetPieceOrder(run[i], order.data(), world) == pcclSuccess);
            orders.push_back(order);
        }
    }
    // What member i gets in `capacity` elements, behind which nothing is written.
    template <class Call>
    std::vector<Values> call(std::size_t capacity, const Call& one) {
        std::vector<Values> got(world, Values(capacity + 3, 77));
        const auto results =
            on_all(run, world, [&](std::size_t i, pcclComm_t* comm) { return one(i, comm, got[i]); });
        REQUIRE(all_are(results, pcclSuccess));
        return got;
    }
    static void is(Values got, Values expected) {
        expected.resize(got.size(), 77);
        CHECK(got == expected);
    }

    LocalRun run;
    std::size_t world;
    std::vector<std::size_t> number, index;  // of the member in this test by index, and the other way round
    std::vector<std::vector<std::uint32_t>> orders;
};

void every_kind(std::size_t world, std::size_t count) {
    INFO(world << " members, " << count << " elements and more");
    Group group(world);
    const std::size_t room = world * (count + 3 * world);
    const std::size_t root = world - 1;
    const pcclPeerId_t id = id_of(group.run[root]);
    std::vector<Values> gathered(world);  // by index
    for (std::size_t k = 0; k < world; ++k) gathered[k] = piece(group.number[k], 0, count);

    const auto all = group.call(room, [&](std::size_t i, pcclComm_t* comm, Values& to) {
        const Values own = piece(i, 0, count);
        const pcclCopyDescriptor_t descriptor = copy_of(own.size(), 1);
        return pcclAllGather(own.data(), to.data(), room, &descriptor, comm, nullptr);
    });
    for (std::size_t i = 0; i < world; ++i) Group::is(all[i], joined(gathered, group.orders[i]));

    const auto at_root = group.call(room, [&](std::size_t i, pcclComm_t* comm, Values& to) {
        const Values own = piece(i, 0, count);
        const pcclCopyDescriptor_t descriptor = copy_of(own.size(), 2);
        return pcclGather(own.data(), to.data(), room, &id, &descriptor, comm, nullptr);
    });
    Group::is(at_root[root], joined(gathered, group.orders[root]));

    std::vector<Values> row(world);
    std::vector<std::uint64_t> counts;
    for (std::size_t k = 0; k < world; ++k) counts.push_back((row[k] = piece(root, k, count)).size());
    const auto from_root = group.call(room, [&](std::size_t i, pcclComm_t* comm, Values& to) {
        const Values whole = joined(row, group.orders[root]);
        const pcclCopyDescriptor_t descriptor = copy_of(0, 3);
        const pcclPieces_t pieces = {counts.data(), world};
        return pcclScatter(i == root ? whole.data() : nullptr, i == root ? &pieces : nullptr, to.data(), room, &id,
                           &descriptor, comm, nullptr);
    });
    for (std::size_t i = 0; i < world; ++i) Group::is(from_root[i], row[group.index[i]]);

    const auto exchanged = group.call(room, [&](std::size_t i, pcclComm_t* comm, Values& to) {
        std::vector<Values> rows(world);
        std::vector<std::uint64_t> sizes;
        for (std::size_t k = 0; k < world; ++k) sizes.push_back((rows[k] = piece(i, k, count)).size());
        const Values whole = joined(rows, group.orders[i]);
        const pcclCopyDescriptor_t descriptor = copy_of(0, 4);
        const pcclPieces_t pieces = {sizes.data(), world};
        return pcclAllToAll(whole.data(), &pieces, to.data(), room, &descriptor, comm, nullptr);
    });
    for (std::size_t i = 0; i < world; ++i) {
        std::vector<Values> column(world);
        for (std::size_t k = 0; k < world; ++k) column[k] = piece(group.number[k], group.index[i], count);
        Group::is(exchanged[i], joined(column, group.orders[i]));
    }

    // The pieces of a reduce-scatter have one length at all members.
    const auto length = [&](std::size_t k) { return k == 1 ? 0 : count + k; };
    const auto reduced = group.call(room, [&](std::size_t i, pcclComm_t* comm, Values& to) {
        std::vector<Values> rows(world);
        for (std::size_t k = 0; k < world; ++k) rows[k] = drawn(length(k), 10 * i + k);
        const Values whole = joined(rows, group.orders[i]);
        const pcclReduceDescriptor_t descriptor = describe(whole.size(), 5, pcclSum, type);
        return pcclReduceScatter(whole.data(), to.data(), length(group.index[i]), &descriptor, comm, nullptr);
    });
    for (std::size_t i = 0; i < world; ++i) {
        const std::size_t k = group.index[i];
        Values sum(length(k));
        for (std::size_t other = 0; other < world; ++other) {
            const Values part = drawn(length(k), 10 * other + k);
            for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += part[at];
        }
        Group::is(reduced[i], sum);
    }
}

}  // namespace

TEST_CASE("each member keeps the pieces in an order of its own, of any length, in a vote and over the ring") {
    for (const std::size_t world : {2, 3, 4}) {
        for (const std::size_t count : {0, 5, 50'000}) every_kind(world, count);
    }
}

TEST_CASE("pieces keep their order when they come to travel one hop") {
    constexpr std::size_t world = 4, each = 40'000, tries_max = 200;
    Group group(world);
    // Over direct edges all but the pieces that stay travel, and each once.
    constexpr std::size_t fewest = sizeof(Values::value_type) * each * (world - 1) * world;
    std::size_t sent = 0;
    for (std::size_t attempt = 0; attempt < tries_max && sent != fewest; ++attempt) {
        std::vector<Info> infos(world);
        const auto row = [&](std::size_t i, std::size_t k) { return drawn(each, 100 * attempt + 10 * i + k); };
        const auto got = group.call(world * each, [&](std::size_t i, pcclComm_t* comm, Values& to) {
            std::vector<Values> rows(world);
            for (std::size_t k = 0; k < world; ++k) rows[k] = row(i, k);
            const Values whole = joined(rows, group.orders[i]);
            const pcclCopyDescriptor_t descriptor = copy_of(each, 6);
            const pcclPieces_t pieces = {nullptr, world};
            return pcclAllToAll(whole.data(), &pieces, to.data(), world * each, &descriptor, comm, &infos[i].info);
        });
        sent = 0;
        for (std::size_t i = 0; i < world; ++i) {
            sent += infos[i].info.tx_bytes;
            std::vector<Values> column(world);
            for (std::size_t k = 0; k < world; ++k) column[k] = row(group.number[k], group.index[i]);
            Group::is(got[i], joined(column, group.orders[i]));
        }
    }
    CHECK(sent == fewest);
}

TEST_CASE("an order that names an index twice, or none of the group, changes nothing") {
    constexpr std::size_t world = 2;
    Group group(world);
    const std::uint32_t twice[] = {1, 1}, beyond[] = {0, 2};
    for (std::size_t i = 0; i < world; ++i) {
        CHECK(pcclSetPieceOrder(group.run[i], twice, 2) == pcclInvalidArgument);
        CHECK(pcclSetPieceOrder(group.run[i], beyond, 2) == pcclInvalidArgument);
        CHECK(pcclSetPieceOrder(group.run[i], nullptr, 2) == pcclInvalidArgument);
        CHECK(pcclSetPieceOrder(group.run[i], twice, 100'000) == pcclInvalidArgument);
    }
    const auto gather = [&] {
        return group.call(world, [&](std::size_t i, pcclComm_t* comm, Values& to) {
            const Values own(1, static_cast<Values::value_type>(10 + group.index[i]));
            const pcclCopyDescriptor_t descriptor = copy_of(1, 1);
            return pcclAllGather(own.data(), to.data(), world, &descriptor, comm, nullptr);
        });
    };
    const std::vector<Values> pieces = {Values(1, 10), Values(1, 11)};
    auto got = gather();
    for (std::size_t i = 0; i < world; ++i) Group::is(got[i], joined(pieces, group.orders[i]));
    // For more and for fewer members than there are; and the usual order again.
    const std::uint32_t more[] = {2, 1, 0}, fewer[] = {0};
    for (std::size_t i = 0; i < world; ++i) REQUIRE(pcclSetPieceOrder(group.run[i], more, 3) == pcclSuccess);
    got = gather();
    for (std::size_t i = 0; i < world; ++i) Group::is(got[i], joined(pieces, {1, 0}));
    for (std::size_t i = 0; i < world; ++i)
        REQUIRE(pcclSetPieceOrder(group.run[i], i == 0 ? nullptr : fewer, i == 0 ? 0 : 1) == pcclSuccess);
    got = gather();
    for (std::size_t i = 0; i < world; ++i) Group::is(got[i], joined(pieces, {0, 1}));
}
