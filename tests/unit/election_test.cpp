// The election of a shared state. It is a pure function, so each rule of the contract is tested alone.
#include "core/state_sync/election.hpp"
#include "core/state_sync/state_digest.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace pccl::core;

namespace {

// Candidates, each with its key list. The order of the calls is the order of acceptance.
class Voters {
public:
    Voters& add(std::uint64_t revision, std::uint64_t content, bool synced = true, const std::string& key = "w") {
        Candidate candidate;
        candidate.uuid.bytes[0] = static_cast<std::uint8_t>(candidates_.size() + 1);
        candidate.seniority = candidates_.size() + 1;
        candidate.synced = synced;
        candidate.revision = revision;
        candidate.unequal = true;
        StateDigest schema(64), whole(64);
        schema.add(key, 4, DataType::f32, false);
        whole.add(key, 4, DataType::f32, false);
        whole.add_content(Hash128{content, 0});
        for (StateDigest* digest : {&schema, &whole}) digest->add("zz_cursor", 1, DataType::u64, true);
        candidate.schema = schema.value();
        candidate.content = whole.value();
        candidates_.push_back(candidate);
        return *this;
    }
    Voters& as(SyncStrategy strategy) {
        candidates_.back().strategy = strategy;
        return *this;
    }
    Voters& of_gang(const std::string& name) {
        candidates_.back().gang = name;
        return *this;
    }
    Election elect(std::uint64_t expected) const { return pccl::core::elect(candidates_, expected); }

private:
    std::vector<Candidate> candidates_;
};

std::vector<int> removed(const Election& election) {
    std::vector<int> out;
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.removed) out.push_back(verdict.uuid.bytes[0]);
    }
    return out;
}

std::vector<int> receiving(const Election& election) {
    std::vector<int> out;
    for (const Verdict& verdict : election.verdicts) {
        if (verdict.receives) out.push_back(verdict.uuid.bytes[0]);
    }
    return out;
}

}  // namespace

TEST_CASE("the content held by most wins, and only who differs receives") {
    const Election election = Voters().add(3, 7).add(3, 8).add(3, 8).elect(3);
    CHECK(removed(election).empty());
    CHECK(receiving(election) == std::vector<int>{1});
    CHECK(election.revision == 3);
    CHECK(election.holders.size() == 2);
}

TEST_CASE("on a tie the longest accepted member keeps its content") {
    CHECK(receiving(Voters().add(0, 7, false).add(0, 8, false).elect(0)) == std::vector<int>{2});
}

TEST_CASE("two equal newcomers do not outvote a veteran") {
    CHECK(receiving(Voters().add(5, 7, true).add(5, 8, false).add(5, 8, false).elect(5)) == std::vector<int>{2, 3});
}

TEST_CASE("who is a revision ahead is removed, who is behind receives") {
    const Election election = Voters().add(5, 7).add(7, 9).add(4, 6).elect(5);
    CHECK(removed(election) == std::vector<int>{2});
    CHECK(receiving(election) == std::vector<int>{3});
}

TEST_CASE("a rule removes neither everybody nor the last member that is not outdated") {
    for (const std::uint64_t submitted : {6u, 4u}) {
        const Election election = Voters().add(submitted, 7).add(submitted, 8).elect(5);
        CHECK(election.failed);
        CHECK(removed(election).empty());
        for (const Verdict& verdict : election.verdicts) CHECK(verdict.result == Result::invalid_usage);
    }
    CHECK(Voters().add(6, 7).add(4, 7).elect(5).failed);
}

TEST_CASE("the first synchronization takes the highest revision that was submitted") {
    const Election election = Voters().add(0, 7, false).add(13, 8, false).elect(0);
    CHECK(election.revision == 13);
    CHECK(removed(election).empty());
    CHECK(receiving(election) == std::vector<int>{1});
}

TEST_CASE("other keys: the minority goes and is told which key") {
    const Election election = Voters().add(1, 7).add(1, 7).add(1, 7, true, "other").elect(1);
    CHECK(removed(election) == std::vector<int>{3});
    CHECK(election.verdicts[2].schema_differs);
    CHECK_FALSE(election.verdicts[0].schema_differs);
    CHECK(election.winner == election.verdicts[0].uuid);
}

TEST_CASE("entries that may differ go to newcomers alone") {
    const Election election = Voters().add(5, 7, true).add(5, 7, true).add(5, 7, false).elect(5);
    CHECK_FALSE((election.verdicts[0].receives || election.verdicts[0].receives_unequal));
    CHECK_FALSE((election.verdicts[1].receives || election.verdicts[1].receives_unequal));
    CHECK_FALSE(election.verdicts[2].receives);
    CHECK(election.verdicts[2].receives_unequal);
}

TEST_CASE("strategies: one that enforces sends the others away, unless nobody would be left") {
    const auto send = SyncStrategy::send_only, receive = SyncStrategy::receive_only;
    const Election mixed = Voters().add(3, 8).as(send).add(3, 7).add(3, 8).as(receive).elect(3);
    CHECK(removed(mixed) == std::vector<int>{1, 3});
    CHECK_FALSE(mixed.failed);
    const Election outdated = Voters().add(3, 8).as(send).add(2, 7).elect(3);
    CHECK(outdated.failed);
    CHECK(removed(outdated).empty());
    // A member that jumped ahead enforces nothing, because it is removed first.
    const Election jumped = Voters().add(3, 8).as(send).add(5, 7).elect(3);
    CHECK(removed(jumped) == std::vector<int>{2});
    CHECK_FALSE(jumped.failed);
}

TEST_CASE("strategies: receivers are no candidates and no holders, whatever their number") {
    const auto send = SyncStrategy::send_only, receive = SyncStrategy::receive_only;
    const Election election = Voters().add(4, 8).as(receive).add(4, 8).as(receive).add(4, 7).as(send).elect(4);
    CHECK(removed(election).empty());
    CHECK(receiving(election) == std::vector<int>{1, 2});
    CHECK(election.holders.size() == 1);
    const Election nobody = Voters().add(4, 8).as(receive).add(9, 8).as(receive).elect(4);
    CHECK(nobody.failed);
    CHECK(removed(nobody).empty());
    CHECK(Voters().add(4, 7).as(send).add(4, 7).as(receive).elect(4).holders.size() == 1);
}

TEST_CASE("strategies: senders that differ or are behind go") {
    const auto send = SyncStrategy::send_only, receive = SyncStrategy::receive_only;
    CHECK(removed(Voters().add(1, 7).as(send).add(1, 8).as(send).elect(1)) == std::vector<int>{2});
    CHECK(removed(Voters().add(1, 7).as(send).add(1, 8).as(send).add(1, 8).as(send).elect(1)) == std::vector<int>{1});
    CHECK(removed(Voters().add(1, 7).as(send).add(0, 7).as(send).elect(1)) == std::vector<int>{2});
    // The outdated member is removed although the rest can only be refused: only the last member that is not outdated
    // must stay.
    const Election rest = Voters().add(1, 7).as(receive).add(0, 8).as(send).elect(1);
    CHECK(rest.failed);
    CHECK(removed(rest) == std::vector<int>{2});
    CHECK(rest.verdicts[0].result == Result::invalid_usage);
}

TEST_CASE("strategies: a newcomer that only sends receives nothing, not even what may differ") {
    const Election election = Voters().add(5, 7, true).add(5, 7, false).as(SyncStrategy::send_only).elect(5);
    CHECK(removed(election) == std::vector<int>{2});  // the veteran enforces
    const Election both =
        Voters().add(5, 7, true).as(SyncStrategy::send_only).add(5, 7, false).as(SyncStrategy::send_only).elect(5);
    CHECK(removed(both).empty());
    CHECK_FALSE((both.verdicts[1].receives || both.verdicts[1].receives_unequal));
}

TEST_CASE("a rule that would remove everybody together with their gangs removes nobody") {
    Voters voters;
    voters.add(0, 7).of_gang("A").add(0, 7).of_gang("A").as(SyncStrategy::send_only);
    const Election mixed = voters.elect(0);
    CHECK(mixed.failed);
    CHECK(removed(mixed).empty());
    Voters keys;
    keys.add(0, 7).of_gang("A").add(0, 7, true, "v").of_gang("A");
    CHECK(keys.elect(0).failed);
    CHECK(removed(keys.elect(0)).empty());
    Voters behind;
    behind.add(1, 7).of_gang("A").add(0, 7).of_gang("A").as(SyncStrategy::send_only).add(0, 7);
    CHECK(behind.elect(1).failed);
    CHECK(removed(behind.elect(1)).empty());
}

TEST_CASE("a schema may be elected although nobody is: whoever has another one is compared with a member that has it") {
    Voters voters;
    voters.add(0, 7, true, "v").as(SyncStrategy::receive_only);
    voters.add(0, 7).of_gang("A").as(SyncStrategy::send_only).add(0, 8).of_gang("A").as(SyncStrategy::send_only);
    const Election election = voters.elect(0);
    CHECK(election.failed);
    CHECK(election.winner.is_nil());
    CHECK(election.verdicts[0].schema_differs);
    CHECK(election.model.bytes[0] == 2);
}

TEST_CASE("a place whose gang goes is not elected") {
    Voters voters;
    voters.add(0, 7).of_gang("A").as(SyncStrategy::send_only).add(0, 8).of_gang("A").as(SyncStrategy::send_only);
    voters.add(0, 7).as(SyncStrategy::receive_only).add(0, 9).as(SyncStrategy::send_only);
    const Election election = voters.elect(0);
    CHECK(removed(election) == std::vector<int>{2, 4});
    CHECK(election.failed);  // nobody that may send is left
    Voters more;
    more.add(0, 7).of_gang("A").add(0, 7, true, "v").of_gang("A").add(0, 8).add(0, 9);
    CHECK(removed(more.elect(0)) == std::vector<int>{2});
    CHECK(more.elect(0).winner.bytes[0] == 3);
    CHECK(more.elect(0).holders.front().bytes[0] == 3);
}
