// Interface to the session with the master, for the parts of a peer that report to it or vote.
#pragma once

#include "core/base/cause.hpp"
#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>

namespace pccl::core {

class MasterLine {
public:
    // fresh: never connected, or left on purpose; lost: removed, or it gave up the master.
    enum class State : std::uint8_t { fresh, connecting, member, lost };
    virtual State state() const = 0;
    // Why calls fail after the membership was lost. The cause of the loss is behind it.
    virtual Cause lost_cause() const = 0;
    bool was_admitted() const { return state() == State::member || state() == State::lost; }
    // Nothing is sent unless this peer is a member and its link to the master is open.
    virtual void tell(proto::PeerMessage message) = 0;
    // Sends the report if the link is open, even before this peer is a member. Edges are declared again after a resume.
    virtual void tell_edge(proto::EdgeReport report) = 0;
    // The vote is open until its answer comes, and is cast again after a resume. Returns its serial.
    virtual Serial cast(proto::Vote& vote) = 0;
    virtual bool master_open() const = 0;
    // Of the last dial that reached it; 0: none did.
    virtual Duration round_trip() const = 0;
    // Longest input that a start vote may carry to this master; 0: none.
    virtual std::uint32_t vote_input_bytes_max() const = 0;
    // Bytes that an answer of this master may have beside control_bytes_least.
    virtual std::uint32_t answer_room() const = 0;

protected:
    ~MasterLine() = default;
};

}  // namespace pccl::core
