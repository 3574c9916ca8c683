// The session with the master, as the parts of a peer use it that have something to report or to vote on.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <string>

namespace pccl::core {

inline constexpr const char* not_connected_text = "the communicator is not connected; call pcclConnect first";

class MasterLine {
public:
    // fresh: never connected, or left on purpose; lost: removed, or without its master.
    enum class State : std::uint8_t { fresh, connecting, member, lost };
    virtual State state() const = 0;
    // Of calls of a peer that was removed or has left: says why.
    virtual std::string lost_text() const = 0;
    bool was_admitted() const { return state() == State::member || state() == State::lost; }
    // Nothing is sent while there is no connection, or it is not open.
    virtual void tell(proto::PeerMessage message) = 0;
    // An edge is told while the link is open, before this peer is a member too; it is declared again after a resume.
    virtual void tell_edge(proto::EdgeReport report) = 0;
    // A vote is open until its answer comes, and is cast again after a resume. Returns its serial.
    virtual Serial cast(proto::Vote& vote) = 0;
    virtual bool master_open() const = 0;

protected:
    ~MasterLine() = default;
};

}  // namespace pccl::core
