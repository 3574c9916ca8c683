// The log of decisions: what is recorded, what a journal gives again, and what a member may say of it.
#include "core/journal/decision_log.hpp"
#include "core/journal/journal.hpp"
#include "core/wire/convert.hpp"
#include "tests/unit/name.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl;
using namespace pccl::core;

namespace {

const Uuid a = name(1), b = name(2);

class Master : private DecisionLog::Owner {
public:
    explicit Master(Limits limits_ = {}, Timeouts timeouts_ = {}) : limits(limits_), timeouts(timeouts_) {
        turn.begin(0, effects);
    }
    // What a driver would have written.
    std::vector<std::string> journal() const {
        std::vector<std::string> records;
        for (const Effect& effect : effects) {
            const auto* persist = std::get_if<Persist>(&effect);
            if (persist == nullptr) continue;
            if (persist->supersedes) records.clear();
            records.push_back(persist->record);
        }
        return records;
    }
    void run(const std::string& key = "0123456789abcdef") {
        proto::Record record;
        record.set_run(to_bytes(name(9)));
        record.set_run_key(key);
        log.record(record);
        record.Clear();
        record.set_incarnation(1);
        log.record(record);
    }
    void admit(const Uuid& uuid) {
        proto::Decision decision;
        auto* topology = decision.mutable_topology();
        auto* member = topology->add_admitted();
        member->set_uuid(to_bytes(uuid));
        member->set_group(1);
        auto* ring = topology->add_rings();
        ring->set_group(1);
        for (const auto& [other, state] : log.state().members) ring->add_order(to_bytes(other));
        ring->add_order(to_bytes(uuid));
        decision.mutable_sizes()->set_epoch(log.state().epoch + 1);
        auto* size = decision.mutable_sizes()->add_groups();
        size->set_group(1);
        size->set_size(static_cast<std::uint32_t>(ring->order_size()));
        log.append(decision);
    }

    Limits limits;
    Timeouts timeouts;
    Effects effects;
    Turn turn{limits, timeouts, 1};
    std::vector<std::uint64_t> told;  // indices of decisions
    DecisionLog log{turn, *this};

private:
    void recording(const proto::Record&) override {}
    void decided(const proto::Decision& decision) override { told.push_back(decision.index()); }
};

}  // namespace

TEST_CASE("a journal gives the same state again, to the last acknowledgement that it needs") {
    Master first;
    first.run();
    first.admit(a);
    first.admit(b);
    CHECK(first.told == std::vector<std::uint64_t>{1, 2});
    Master again;
    REQUIRE(again.log.read(first.journal()));
    CHECK(again.log.state() == first.log.state());
    CHECK(again.log.state().promised() == first.log.state().promised());
}

TEST_CASE("a record that was not written in full is skipped at the end, and refused anywhere else") {
    Master first;
    first.run();
    first.admit(a);
    std::vector<std::string> journal = first.journal();
    journal.push_back(journal.back().substr(0, journal.back().size() / 2));
    Master again;
    REQUIRE(again.log.read(journal));
    CHECK(again.log.state().members.size() == 1);
    std::swap(journal[journal.size() - 2], journal.back());
    Master third;
    CHECK_FALSE(third.log.read(journal));
}

TEST_CASE("a snapshot supersedes the records before it") {
    Limits limits;
    limits.journal_records = 3;
    Master first(limits);
    first.run();
    first.admit(a);
    first.admit(b);
    first.log.compact_if_due();
    const std::vector<std::string> journal = first.journal();
    CHECK(journal.size() == 1);
    Master again;
    REQUIRE(again.log.read(journal));
    CHECK(again.log.state() == first.log.state());
    first.log.compact_if_due();
    CHECK(first.journal().size() == 1);
}

TEST_CASE("a member names its last decision by number and chain") {
    Master first;
    first.run();
    first.admit(a);
    const RunState& state = first.log.state();
    const std::uint64_t chain = state.chain;
    CHECK(state.recall(a, 1, chain) == RunState::Recall::same);
    CHECK(state.recall(a, 1, chain + 1) == RunState::Recall::unknown);
    CHECK(state.recall(a, 2, chain) == RunState::Recall::unknown);
    first.log.acknowledge(a, 1);
    CHECK(state.kept().empty());
    CHECK(state.recall(a, 1, chain) == RunState::Recall::same);
    CHECK(state.recall(a, 0, 0) == RunState::Recall::older);
}

TEST_CASE("only a chain that a master of the run made is taken for a decision that the journal lost") {
    Master first;
    first.run();
    first.admit(a);
    std::vector<std::string> older = first.journal();
    first.admit(b);
    const std::uint64_t chain = first.log.state().chain;
    Master again;
    REQUIRE(again.log.read(older));
    const RunState& state = again.log.state();
    CHECK(state.recall(a, 2, chain) == RunState::Recall::unknown);
    CHECK(state.made(2, chain));
    CHECK_FALSE(state.made(3, chain));
    for (int bit = 0; bit < 64; ++bit) CHECK_FALSE(state.made(2, chain ^ std::uint64_t{1} << bit));

    Master other;
    other.run("fedcba9876543210");
    CHECK_FALSE(other.log.state().made(2, chain));
    Master of_earlier_version;
    of_earlier_version.run("");
    CHECK(of_earlier_version.log.state().made(2, 0));
}

TEST_CASE("names never repeat, and the next incarnation follows when they are used up") {
    Limits limits;
    limits.ids_per_incarnation = 2;
    Master log(limits);
    log.run();
    const OpId one = log.log.next_id();
    const OpId two = log.log.next_id();
    const OpId three = log.log.next_id();
    CHECK(one < two);
    CHECK(two < three);
    CHECK(three >> 32 == 2);
    CHECK(log.log.state().incarnation == 2);
    CHECK(log.log.last_id() == three);
}

TEST_CASE("a disk that does not answer is named once, and its silence is over with the record") {
    Timeouts timeouts;
    timeouts.journal = 8 * second;
    Master log({}, timeouts);
    log.run();
    CHECK_FALSE(log.log.all_durable());
    log.turn.now = 6 * second;
    CHECK(log.log.complaint().has_value());
    CHECK_FALSE(log.log.complaint().has_value());
    CHECK_FALSE(log.log.gives_up().has_value());
    log.turn.now = 8 * second;
    CHECK(log.log.gives_up().has_value());
    CHECK(log.log.written(log.log.last_sequence()) == 8 * second);
    CHECK(log.log.all_durable());
    CHECK(log.log.unwritten_since() == never);
}
