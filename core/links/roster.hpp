// Peers of the run by name, as the parts of the master use them: which way leads to them, and what they are told.
//
// A peer here is a member, or a newcomer that has registered.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pccl::core {

class Roster {
public:
    // Its link to the master; 0: it has none, or is no peer of the run.
    virtual LinkId link_of(const Uuid& peer) const = 0;
    // It has a link, and has declared everything that was unanswered on an earlier one.
    virtual bool present(const Uuid& peer) const = 0;
    // Where others reach it; none: it is no peer of the run.
    virtual std::optional<Endpoint> endpoint_of(const Uuid& peer) const = 0;
    // With what `from` proves to the target who it is.
    virtual void add_pass(const Uuid& from, proto::DialTarget& target) const = 0;
    virtual void add_pass(const Uuid& from, proto::SyncHolder& target) const = 0;

    // Nothing has come from it for so long. It has a link.
    virtual Duration silence_of(const Uuid& peer) const = 0;
    // It speaks, but has acknowledged nothing that it was told for long: neither does it know whom to dial. It has a link.
    virtual bool deaf(const Uuid& peer) const = 0;
    // The name that was given out last when the member had resumed: the starts of later operations left on its present link.
    virtual OpId resumed_after(const Uuid& member) const = 0;

    // How many connections with peers that wait it can hold; 0: it did not say.
    virtual std::uint32_t newcomer_links(const Uuid& member) const = 0;

    // ---- telling it something. Nothing is sent to a peer without a link; what is sent waits until the last record is durable.
    virtual void say(const Uuid& peer, proto::MasterMessage message) = 0;
    // The largest control frame that it takes. It has a link.
    virtual std::uint32_t control_bytes(const Uuid& peer) const = 0;
    // The plan of whom it is to dial waits for a record: it cannot know of it.
    virtual bool plan_waits(const Uuid& peer) const = 0;

    // ---- membership
    // For good, with a decision. Does nothing if it is no member.
    virtual void remove(const Uuid& member, const std::string& reason) = 0;

protected:
    ~Roster() = default;
};

}  // namespace pccl::core
