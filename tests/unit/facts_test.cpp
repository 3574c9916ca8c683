// The facts of a real process survive its death at any byte: complete records are read, the rest is ignored.
#include "harness/real/facts.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace pccl;
using namespace pccl::harness;

namespace {

struct TemporaryFile {
    TemporaryFile() {
        std::string name = (std::filesystem::temp_directory_path() / "facts-XXXXXX").string();
        descriptor = ::mkstemp(name.data());
        path = name;
    }
    ~TemporaryFile() {
        ::close(descriptor);
        std::filesystem::remove(path);
    }
    int descriptor = -1;
    std::string path;
};

Ledger one_launch() {
    Ledger ledger;
    Life life;
    life.process = 7;
    life.node = 2;
    life.connected_at = 1100;
    ledger.lives.push_back(life);
    LaunchFact fact;
    fact.process = 7;
    fact.tag = 99;
    fact.begin = 1200;
    fact.input = {1, 2, 3};
    ledger.launches.push_back(fact);
    return ledger;
}

void complete(Ledger& ledger) {
    LaunchFact& fact = ledger.launches[0];
    fact.end = 1300;
    fact.completion.world = 3;
    fact.output = {4, 5, 6};
    ledger.lives[0].member_until = 1200;
}

}  // namespace

TEST_CASE("a call is told when it begins and completed when it returns") {
    const TemporaryFile file;
    FactsWriter writer(file.descriptor);
    Ledger ledger = one_launch();
    Counters counters;
    writer.waits_in("pcclAwaitAsyncReduce", 1250);
    REQUIRE(writer.write(ledger, counters));

    auto facts = read_facts(file.path);
    REQUIRE(facts);
    CHECK(facts->waits_in == "pcclAwaitAsyncReduce");
    REQUIRE(facts->ledger.launches.size() == 1);
    CHECK(facts->ledger.launches[0].end == open_end);
    CHECK(facts->ledger.launches[0].input == std::vector<std::uint8_t>{1, 2, 3});

    complete(ledger);
    counters.committed = 1;
    writer.violated("restore", "seen");
    REQUIRE(writer.write(ledger, counters));
    facts = read_facts(file.path);
    REQUIRE(facts);
    CHECK(facts->ledger.launches[0].end == 1300);
    CHECK(facts->ledger.launches[0].output == std::vector<std::uint8_t>{4, 5, 6});
    CHECK(facts->ledger.lives[0].member_until == 1200);
    CHECK(facts->counters.committed == 1);
    CHECK(facts->violation.oracle == "restore");

    const Ledger merged = merge_facts({*facts, *facts});
    REQUIRE(merged.launches.size() == 2);
    CHECK(merged.launches[1].life == 1);
    CHECK(merged.lives[1].connected_at == 1100);
}

TEST_CASE("facts that end at any byte are read up to the last whole record") {
    const TemporaryFile file;
    FactsWriter writer(file.descriptor);
    Ledger ledger = one_launch();
    REQUIRE(writer.write(ledger, {}));
    const auto begun = static_cast<off_t>(std::filesystem::file_size(file.path));
    complete(ledger);
    REQUIRE(writer.write(ledger, {}));
    for (auto size = static_cast<off_t>(std::filesystem::file_size(file.path)); size-- > 0;) {
        REQUIRE(::ftruncate(file.descriptor, size) == 0);
        const auto facts = read_facts(file.path);
        REQUIRE(facts);
        if (size >= begun) CHECK(facts->ledger.launches.size() == 1);
        for (const LaunchFact& fact : facts->ledger.launches) CHECK(fact.input.size() == 3);
    }
}
