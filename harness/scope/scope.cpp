#include "harness/scope/scope.hpp"

namespace pccl::scope {
namespace {

Scope with(Scope scope, const std::string& name, const std::string& about) {
    scope.name = name;
    scope.about = about;
    return scope;
}

void cuts(Scope& scope) { scope.cut = true; }
void deaths(Scope& scope) {
    scope.death = true;
    scope.patience = 2 * core::second;
}
void fast_restarts(Scope& scope) { scope.master = true; }
void restarts(Scope& scope) { scope.master = scope.slow_disk = true; }
using Fault = void (*)(Scope&);

Scope one(const Scope& from, Fault fault, const char* name, const char* about) {
    Scope scope = from;
    fault(scope);
    scope.faults = 1;
    return with(scope, name, about);
}

Scope two(const Scope& from, Fault first, Fault second, const char* name, const char* about) {
    Scope scope = one(from, first, name, about);
    second(scope);
    scope.faults = 2;
    return scope;
}

Scope larger(Scope scope) {
    scope.nightly = false;
    return scope;
}

std::vector<Scope> make() {
    Scope base;
    base.program = {{Call::launch}, {Call::await}};
    base.nightly = true;
    const Scope reduce = with(base, "reduce", "one all-reduce of two slices");
    Scope slow = with(base, "reduce-slow", "the same in place; disk and payload take their time");
    slow.slow_payload = slow.slow_disk = slow.in_place = true;
    slow.count = 2;
    Scope four = with(base, "reduce-4", "one all-reduce of four slices");
    four.count = 8;
    Scope three = with(base, "reduce-3", "three peers, three slices");
    three.peers = 3;
    three.count = 6;
    three.program = {{Call::launch}, {Call::await, false, true}};

    Scope connect = with(base, "connect", "the first peers connect; who waits is admitted");
    connect.joiners = connect.peers;
    connect.program = {};
    connect.joiner = {{Call::connect}, {Call::update, true}};
    Scope join = with(base, "join", "two members admit a third peer");
    join.peers = 3;
    join.joiners = 1;
    join.program = {{Call::update, true}};
    join.joiner = {{Call::connect}, {Call::update, true}};

    Scope sync = with(base, "sync", "one synchronization of contents that differ");
    sync.program = {{Call::sync}};
    Scope sync_three = with(sync, "sync-3", "three peers");
    sync_three.peers = 3;

    return {
        reduce,
        slow,
        four,
        connect,
        join,
        sync,
        sync_three,
        one(reduce, cuts, "reduce-cut", "one connection breaks, or one dial is refused, at any point"),
        one(slow, cuts, "reduce-slow-cut", "the same in place, with slow disk and payload"),
        one(reduce, deaths, "reduce-death", "one peer dies"),
        one(slow, deaths, "reduce-slow-death", "the same in place, with slow disk and payload"),
        one(reduce, restarts, "reduce-restart", "the master dies and starts again with what is durable"),
        one(connect, cuts, "connect-cut", "one connection breaks, or one dial is refused"),
        one(connect, deaths, "connect-death", "one peer dies"),
        one(connect, restarts, "connect-restart", "the master starts again"),
        one(join, cuts, "join-cut", "one connection breaks, or one dial is refused"),
        one(join, deaths, "join-death", "one peer dies"),
        one(join, fast_restarts, "join-restart", "the master starts again, with all that it wrote"),
        one(sync, cuts, "sync-cut", "one connection breaks"),
        one(sync, deaths, "sync-death", "one peer dies"),
        one(sync, restarts, "sync-restart", "the master starts again"),
        one(sync_three, deaths, "sync-3-death", "three peers, one dies"),
        two(sync, cuts, deaths, "sync-two-faults", "connections break and peers die"),
        two(sync, cuts, restarts, "sync-restart-cut", "the master starts again, connections break"),
        two(reduce, cuts, deaths, "reduce-two-faults", "connections break and peers die"),
        larger(two(reduce, cuts, restarts, "reduce-restart-cut", "the master starts again, connections break")),
        larger(two(join, cuts, deaths, "join-two-faults", "connections break and peers die")),
        three,
        larger(one(three, cuts, "reduce-3-cut", "three peers, one connection breaks")),
        larger(one(three, deaths, "reduce-3-death", "three peers, one dies")),
    };
}

}  // namespace

const std::vector<Scope>& all_scopes() {
    static const std::vector<Scope> all = make();
    return all;
}

const Scope* find_scope(const std::string& name) {
    for (const Scope& scope : all_scopes()) {
        if (scope.name == name) return &scope;
    }
    return nullptr;
}

}  // namespace pccl::scope
