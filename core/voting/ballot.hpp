// Ballots. Every unanimous step of the protocol is a Ballot, opened by its first vote.
//
// A ballot stores votes; other parts interpret them. Its electors are the members concerned at the moment of
// examination (electors.hpp): the vote of a member that is gone is withdrawn, and a member that was admitted is waited
// for. When the master decides, it takes the ballot out of the box and appends the decision to the journal in the same
// step. So nothing can be examined twice, or be overturned while its record is on the way to the disk.
#pragma once

#include "core/base/assert.hpp"
#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

#include <map>
#include <vector>

namespace pccl::core {

struct BallotKey {
    proto::VoteKind kind = proto::VOTE_UPDATE_TOPOLOGY;
    GroupId group = 0;     // 0 for run-wide ballots
    std::uint64_t id = 0;  // start: tag; end: operation; sync_end: sync id
    Uuid sender = {};      // start of a send, whose electors are these two; else nil
    Uuid receiver = {};
    bool is_send() const { return !receiver.is_nil(); }
    friend auto operator<=>(const BallotKey&, const BallotKey&) = default;
};

class Ballot {
public:
    struct Cast {
        Serial serial = 0;
        proto::Vote vote;
        Instant at = never;
    };

    // Each member has one vote. A later vote of the same member replaces the earlier one (it can only be a newer
    // launch). A vote that is declared again has the same serial, and restarts no clock.
    void cast(const Uuid& member, const proto::Vote& vote, Instant now) {
        Cast& cast = votes_[member];
        if (cast.vote.serial() != vote.serial() || cast.at == never) cast.at = changed = now;
        cast.serial = vote.serial();
        cast.vote = vote;
    }
    void withdraw(const Uuid& member) { votes_.erase(member); }
    // A member cannot take a longer answer than this, whatever its vote says.
    void limit_room(const Uuid& member, std::uint32_t most) {
        proto::Vote& vote = votes_.at(member).vote;
        vote.set_room(std::min(vote.room(), most));
    }
    void ignore_input(const Uuid& member) {
        votes_.at(member).vote.clear_input();
        votes_.at(member).vote.clear_whole();
    }
    // Restarts all clocks: the time before does not count.
    void restart_clocks(Instant now) {
        opened = changed = now;
        for (auto& [member, cast] : votes_) cast.at = now;
    }
    // Leaves `time` out of all clocks.
    void shift_clocks(Duration time, Instant now) {
        opened = std::min(now, opened + time);
        changed = std::min(now, changed + time);
        for (auto& [member, cast] : votes_) cast.at = std::min(now, cast.at + time);
    }
    bool has(const Uuid& member) const { return votes_.contains(member); }
    // Every elector has voted. False for an empty electorate; the caller must handle that case.
    bool complete(const std::vector<Uuid>& electors) const;
    std::vector<Uuid> missing(const std::vector<Uuid>& electors) const;
    const std::map<Uuid, Cast>& votes() const { return votes_; }
    bool empty() const { return votes_.empty(); }

    Instant opened = 0;
    Instant changed = 0;  // when the last vote was cast
    bool warned = false;
    std::uint64_t completed_order = 0;  // start ballots wait for a place in this order; 0: not complete yet

private:
    std::map<Uuid, Cast> votes_;
};

class BallotBox {
public:
    // Casts a vote, and opens its ballot if it is the first one.
    Ballot& cast(const BallotKey& key, const Uuid& member, const proto::Vote& vote, Instant now);
    Ballot* find(const BallotKey& key);
    const Ballot* find(const BallotKey& key) const;
    // Removes and returns the ballot. The caller decides it.
    Ballot take(const BallotKey& key);
    // Withdraws all votes of a member that is gone. Closes ballots that have no votes left.
    void withdraw(const Uuid& member);
    void withdraw(const BallotKey& key, const Uuid& member);  // from this ballot only
    std::map<BallotKey, Ballot>& all() { return ballots_; }
    const std::map<BallotKey, Ballot>& all() const { return ballots_; }
    // How many collectives the member has voted to start, of those that are not decided.
    std::size_t starts_of(const Uuid& member) const {
        const auto starts = starts_.find(member);
        return starts == starts_.end() ? 0 : starts->second;
    }
    // Every ballot has a vote, and it is older than none of its votes. Votes for starts are counted.
    void check() const;

private:
    void withdrawn(const BallotKey& key, const Uuid& member);

    std::map<BallotKey, Ballot> ballots_;
    std::map<Uuid, std::size_t> starts_;  // by member; only of members with such votes
};

const char* to_text(proto::VoteKind kind);

}  // namespace pccl::core
