// The votes of a peer that have no answer yet. Each is cast again after a resume, until its answer comes.
//
// Invariant: serials grow and are never used twice within a membership.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

#include <map>
#include <set>
#include <utility>

namespace pccl::core {

class OpenVotes {
public:
    using Map = std::map<Serial, proto::Vote>;

    Serial add(proto::Vote& vote) {
        vote.set_serial(++last_serial_);
        votes_[last_serial_] = vote;
        if (vote.kind() == proto::VOTE_END || vote.kind() == proto::VOTE_SYNC_END)
            end_votes_.emplace(vote.id(), last_serial_);
        return last_serial_;
    }
    void close(Serial serial) { votes_.erase(serial); }
    // The operation or synchronization has its outcome. Ids of both come from one counter.
    void close_end_votes(OpId id) {
        auto vote = end_votes_.lower_bound({id, 0});
        for (; vote != end_votes_.end() && vote->first == id; vote = end_votes_.erase(vote)) votes_.erase(vote->second);
    }

    Map::iterator begin() { return votes_.begin(); }
    Map::iterator end() { return votes_.end(); }
    Map::const_iterator begin() const { return votes_.begin(); }
    Map::const_iterator end() const { return votes_.end(); }
    std::size_t size() const { return votes_.size(); }
    std::size_t end_votes() const { return end_votes_.size(); }
    Serial last_serial() const { return last_serial_; }
    // The membership is over, but serials continue.
    void forget() {
        votes_.clear();
        end_votes_.clear();
    }

private:
    Serial last_serial_ = 0;
    Map votes_;
    std::set<std::pair<OpId, Serial>> end_votes_;  // votes for the end of an operation or a synchronization
};

}  // namespace pccl::core
