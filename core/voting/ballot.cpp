#include "core/voting/ballot.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

namespace pccl::core {

bool Ballot::complete(const std::vector<Uuid>& electors) const {
    if (electors.empty() || votes_.size() < electors.size()) return false;
    for (const Uuid& elector : electors) {
        if (!votes_.contains(elector)) return false;
    }
    return true;
}

std::vector<Uuid> Ballot::missing(const std::vector<Uuid>& electors) const {
    std::vector<Uuid> absent;
    for (const Uuid& elector : electors) {
        if (!votes_.contains(elector)) absent.push_back(elector);
    }
    return absent;
}

Ballot& BallotBox::cast(const BallotKey& key, const Uuid& member, const proto::Vote& vote, Instant now) {
    const auto [it, fresh] = ballots_.try_emplace(key);
    Ballot& ballot = it->second;
    if (fresh) ballot.opened = now;
    if (ballot.has(member))
        PROBE(vote_replaced);
    else if (key.kind == proto::VOTE_START)
        ++starts_[member];
    ballot.cast(member, vote, now);
    return ballot;
}

void BallotBox::withdrawn(const BallotKey& key, const Uuid& member) {
    if (key.kind != proto::VOTE_START) return;
    const auto starts = starts_.find(member);
    ASSERT(starts != starts_.end() && starts->second != 0);
    if (--starts->second == 0) starts_.erase(starts);
}

Ballot* BallotBox::find(const BallotKey& key) {
    const auto it = ballots_.find(key);
    return it == ballots_.end() ? nullptr : &it->second;
}

const Ballot* BallotBox::find(const BallotKey& key) const {
    const auto it = ballots_.find(key);
    return it == ballots_.end() ? nullptr : &it->second;
}

Ballot BallotBox::take(const BallotKey& key) {
    const auto it = ballots_.find(key);
    ASSERT(it != ballots_.end());
    Ballot ballot = std::move(it->second);
    ballots_.erase(it);
    for (const auto& [member, cast] : ballot.votes()) withdrawn(key, member);
    return ballot;
}

void BallotBox::withdraw(const Uuid& member) {
    for (auto it = ballots_.begin(); it != ballots_.end();) {
        if (it->second.has(member)) {
            PROBE(vote_withdrawn);
            withdrawn(it->first, member);
        }
        it->second.withdraw(member);
        if (it->second.empty()) PROBE(ballot_abandoned);
        it = it->second.empty() ? ballots_.erase(it) : std::next(it);
    }
}

void BallotBox::withdraw(const BallotKey& key, const Uuid& member) {
    const auto it = ballots_.find(key);
    ASSERT(it != ballots_.end());
    if (it->second.has(member)) withdrawn(key, member);
    it->second.withdraw(member);
    if (it->second.empty()) ballots_.erase(it);
}

void BallotBox::check() const {
    std::map<Uuid, std::size_t> starts;
    for (const auto& [key, ballot] : ballots_) {
        ASSERT(!ballot.empty() && ballot.opened <= ballot.changed);
        if (key.kind != proto::VOTE_START) continue;
        for (const auto& [member, cast] : ballot.votes()) ++starts[member];
    }
    ASSERT(starts == starts_);
}

const char* to_text(proto::VoteKind kind) {
    switch (kind) {
    case proto::VOTE_UPDATE_TOPOLOGY: return "update topology";
    case proto::VOTE_PEERS_PENDING: return "are peers pending";
    case proto::VOTE_START: return "start of a collective";
    case proto::VOTE_END: return "end of a collective";
    case proto::VOTE_SYNC: return "synchronize shared state";
    case proto::VOTE_SYNC_END: return "end of a synchronization";
    case proto::VOTE_OPTIMIZE_TOPOLOGY: return "optimize topology";
    default: return "unknown";
    }
}

}  // namespace pccl::core
