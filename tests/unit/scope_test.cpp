// Small scopes: they are explored completely, they hold, and an error in only some orders is found.
#include "harness/scope/arena.hpp"
#include "harness/scope/explore.hpp"

#include <catch2/catch.hpp>

#include <list>
#include <string>
#include <utility>
#include <vector>

using namespace pccl::scope;

namespace {

Report explore_by_name(const std::string& name, Bounds bounds = {}) {
    const Scope* const scope = find_scope(name);
    REQUIRE(scope != nullptr);
    return explore(*scope, bounds);
}

}  // namespace

TEST_CASE("the smallest scopes are explored to the end, and hold") {
    for (const char* name :
         {"reduce", "reduce-slow", "connect", "join", "sync", "sync-death", "sync-cut", "reduce-death"}) {
        const Report report = explore_by_name(name);
        INFO(name << ": " << (report.findings.empty() ? "" : report.findings.front().what));
        CHECK(report.complete);
        CHECK(report.findings.empty());
        CHECK(report.ends > 0);
        CHECK(report.states > report.depth);
        CHECK(report.transitions >= report.states - 1);
    }
}

TEST_CASE("a scope without faults has one outcome, and a death has several") {
    CHECK(explore_by_name("reduce").outcomes == 1);
    CHECK(explore_by_name("reduce-death").outcomes > 1);
}

TEST_CASE("an exploration that is cut says so") {
    Bounds bounds;
    bounds.states = 100;
    const Report report = explore_by_name("reduce", bounds);
    CHECK_FALSE(report.complete);
    CHECK(report.states == 100);
}

TEST_CASE("two explorations see the same") {
    // The number of states is not compared: leftovers in padding may keep equal states apart (arena.hpp).
    const Report one = explore_by_name("sync-cut"), other = explore_by_name("sync-cut");
    CHECK(one.complete == other.complete);
    CHECK(one.outcomes == other.outcomes);
    CHECK(one.waited == other.waited);
}

TEST_CASE("merging equal states loses no outcome") {
    Bounds apart;
    apart.identity = Identity::history;
    for (const char* name : {"sync", "connect", "sync-death"}) {
        const Report merged = explore_by_name(name), full = explore_by_name(name, apart);
        INFO(name);
        REQUIRE(full.complete);
        CHECK(merged.outcomes == full.outcomes);
        CHECK(merged.states < full.states);
    }
}

TEST_CASE("a lie that is told in some orders only is found, and its replay shows it") {
    for (const Lie lie : {Lie::value, Lie::outcome, Lie::input, Lie::memory}) {
        Scope scope = *find_scope("reduce");
        scope.lie = lie;
        const Report report = explore(scope, {});
        INFO("lie " << static_cast<int>(lie));
        REQUIRE(report.findings.size() == 1);
        // The first order that was tried held.
        CHECK(report.ends > 1);
        CHECK(replay(scope, report.findings.front().sequence, false) == report.findings.front().what);
        scope.lie = Lie::none;
        CHECK(replay(scope, report.findings.front().sequence, false).empty());
    }
}

TEST_CASE("a fingerprint does not depend on where memory lies, and an image brings everything back") {
    struct Node {
        int number = 0;
        Node* next = nullptr;
    };
    // A root and two nodes behind it, created in either order, with freed memory between them.
    const auto make = [](Arena& arena, bool reversed, int last) {
        arena.clear();
        const Arena::Use use(arena);
        auto* const root = new Node;
        Node* nodes[2] = {};
        for (const int i : {reversed ? 1 : 0, reversed ? 0 : 1}) {
            delete new std::string(static_cast<std::size_t>(40 + 100 * i), 'x');
            nodes[i] = new Node;
        }
        *nodes[1] = {last, root};
        *nodes[0] = {1, nodes[1]};
        root->next = nodes[0];
        return nodes[1];
    };
    Arena arena(1u << 16);
    ChunkTable table;
    make(arena, false, 2);
    const Hash128 one = arena.fingerprint();
    const Arena::Image image = arena.save(table);
    make(arena, true, 2);
    CHECK(arena.fingerprint() == one);
    make(arena, true, 3);
    CHECK(arena.fingerprint() != one);
    arena.load(image);
    CHECK(arena.fingerprint() == one);
}
