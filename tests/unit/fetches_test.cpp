// The table of what a receiver fetches: which entries are in it, what is left to request, and what a restart undoes.
#include "core/state_sync/fetches.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl;
using namespace pccl::core;

namespace {

constexpr std::uint32_t chunk = 100;

class Table {
public:
    // Of u8. The entry at `free` may differ between members; each other hash is 1.
    Table(const std::vector<std::uint64_t>& counts, std::uint32_t free)
        : content((limits.chunk_bytes = chunk, limits), entries(counts, free)) {
        while (const auto place = content.next_unhashed()) content.hashed(*place, Hash128{1, 0});
        content.all_hashed();
    }
    // The elected hashes: as here, but for those entries.
    std::vector<Hash128> elected_but(const std::vector<std::uint32_t>& other) const {
        std::vector<Hash128> hashes = content.hashes();
        for (const std::uint32_t entry : other) ++hashes[entry].low;
        return hashes;
    }

    Limits limits;
    SyncContent content;
    SyncFetches fetches{content};

private:
    static std::vector<StateEntry> entries(const std::vector<std::uint64_t>& counts, std::uint32_t free) {
        std::vector<StateEntry> made(counts.size());
        for (std::uint32_t i = 0; i < made.size(); ++i) {
            made[i].name = std::string(1, static_cast<char>('a' + i));
            made[i].type = DataType::u8;
            made[i].count = counts[i];
            made[i].allow_content_inequality = i == free;
        }
        return made;
    }
};

}  // namespace

TEST_CASE("what differs is fetched, and what may differ comes last") {
    Table table({250, 10, 0, 30}, 1);
    REQUIRE(table.fetches.find_out(table.elected_but({0, 3}), true, true) == 256 + 64 + 64);
    REQUIRE(table.fetches.size() == 3);
    CHECK(table.fetches[0].entry == 0);
    CHECK(table.fetches[0].asked.size() == 3);
    CHECK(table.fetches[1].entry == 3);
    CHECK(table.fetches[1].offset == 256);
    CHECK(table.fetches[2].entry == 1);
    CHECK(table.fetches[2].any_content);
    CHECK(table.fetches.find(2) == nullptr);
    CHECK(table.fetches.find(4) == nullptr);
    CHECK(table.fetches.open_compared() == 2);
    CHECK(table.fetches.open_unequal() == 1);
    table.fetches.check();
}

TEST_CASE("a side that lacks nothing fetches nothing of it") {
    Table table({10, 10}, 1);
    CHECK(table.fetches.find_out({}, false, true) == 64);
    CHECK(table.fetches.size() == 1);
    CHECK(table.fetches.open_compared() == 0);
    CHECK(table.fetches.find(0) == nullptr);
}

TEST_CASE("an entry without content is complete at once") {
    Table table({0, 10}, 2);
    CHECK(table.fetches.find_out(table.elected_but({0}), true, false) == 0);
    CHECK(table.fetches.size() == 1);
    CHECK(table.fetches.open_compared() == 0);
}

TEST_CASE("a chunk that is asked again opens its entry") {
    Table table({200, 100}, 2);
    table.fetches.find_out(table.elected_but({0, 1}), true, false);
    SyncFetch& first = table.fetches[0];
    first.asked = {true, true};
    first.next_request = 2;
    table.fetches.requested(1);  // not the first open one: it does not move
    CHECK(table.fetches.first_open() == 0);
    table.fetches.requested(0);
    CHECK(table.fetches.first_open() == 1);
    table.fetches.ask_again(0, 1);
    CHECK(table.fetches.first_open() == 0);
    CHECK(first.next_request == 1);
    CHECK_FALSE(first.asked[1]);
    CHECK(first.asked[0]);
    table.fetches.verified(first);
    CHECK(table.fetches.open_compared() == 2);
    table.fetches.verified(first);
    CHECK(table.fetches.open_compared() == 1);
}

TEST_CASE("a restart drops what was verified of entries that may differ, and of no other") {
    Table table({100, 200}, 1);
    table.fetches.find_out(table.elected_but({0}), true, true);
    SyncFetch &compared = table.fetches[0], &unequal = table.fetches[1];
    table.fetches.verified(compared);
    unequal.asked = {true, true};
    unequal.next_request = 2;
    unequal.hashes = {Hash128{1, 0}, Hash128{1, 0}};
    table.fetches.set_hash_link(unequal, 5);
    table.fetches.verified(unequal);
    table.fetches.verified(unequal);
    CHECK(table.fetches.open_unequal() == 0);
    table.fetches.requested(0);
    table.fetches.requested(1);
    table.fetches.begin_unequal_anew();
    CHECK(table.fetches.open_unequal() == 1);
    CHECK(table.fetches.open_compared() == 0);
    CHECK(table.fetches.first_open() == 1);
    CHECK(unequal.generation == 1);
    CHECK(unequal.done == 0);
    CHECK(unequal.hashes.empty());
    CHECK(unequal.asked == std::vector<bool>{false, false});
    CHECK(table.fetches.hash_lists().empty());
    CHECK(compared.done == 1);
}

TEST_CASE("the entries whose list is awaited") {
    Table table({200, 200}, 2);
    table.fetches.find_out(table.elected_but({0, 1}), true, false);
    table.fetches.set_hash_link(table.fetches[1], 7);
    table.fetches.set_hash_link(table.fetches[0], 8);
    CHECK(table.fetches.hash_lists() == std::vector<std::uint32_t>{1, 0});
    table.fetches.set_hash_link(table.fetches[1], 8);  // asked on another link: it stands once
    CHECK(table.fetches.hash_lists() == std::vector<std::uint32_t>{0, 1});
    table.fetches.set_hash_link(table.fetches[0], 0);
    CHECK(table.fetches.hash_lists() == std::vector<std::uint32_t>{1});
    CHECK(table.fetches[0].hash_link == 0);
}
