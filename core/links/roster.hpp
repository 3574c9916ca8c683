// Interface to the peers of the run, by name, for the parts of the master: their links, addresses and messages.
//
// A peer here is a member, or a newcomer that has registered.
#pragma once

#include "core/base/cause.hpp"
#include "core/base/ids.hpp"
#include "core/base/way.hpp"
#include "core/wire/control.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pccl::core {

class Roster {
public:
    // Its link to the master; 0: it has none, or is not a peer of the run.
    virtual LinkId link_of(const Uuid& peer) const = 0;
    // True: it has a link, and has declared everything that was unanswered on an earlier one.
    virtual bool present(const Uuid& peer) const = 0;
    // The address at which others reach it; none: it is not a peer of the run.
    virtual std::optional<Endpoint> endpoint_of(const Uuid& peer) const = 0;
    // The addresses at which `dialler` may reach it. Two peers that may be in one network get the address there, too.
    virtual std::optional<Addresses> addresses_for(const Uuid& dialler, const Uuid& peer) const = 0;
    // True: a translator is in front of the peer, and it advertises no address outside.
    virtual bool is_translated(const Uuid& peer) const = 0;
    // The port from which `source` dials a target that has to know it; see DialTarget. 0: any.
    virtual std::uint16_t dial_port_of(const Uuid& source) const = 0;
    // The same port, as its target sees it.
    virtual std::uint16_t outer_dial_port_of(const Uuid& source) const = 0;
    // Adds the pass by which `from` proves its name to the target.
    virtual void add_pass(const Uuid& from, proto::DialTarget& target) const = 0;
    // Writes the addresses at which `from` may reach the holder, and the same pass.
    virtual void add_way(const Uuid& from, proto::SyncHolder& holder) const = 0;

    // How long nothing has come from it. Only for a peer with a link.
    virtual Duration silence_of(const Uuid& peer) const = 0;
    // True: its messages arrive, but it has acknowledged no message of the master for Timeouts::quiet. So it may not
    // have received whom to dial. Only for a peer with a link.
    virtual bool deaf(const Uuid& peer) const = 0;
    // The last id that the master had assigned when the member was admitted or had resumed. The starts of operations
    // with later ids were sent on its present link.
    virtual OpId resumed_after(const Uuid& member) const = 0;

    // How many connections with newcomers it can hold; 0: it did not declare a number.
    virtual std::uint32_t newcomer_links(const Uuid& member) const = 0;

    // ---- telling it something. A peer without a link gets nothing. Messages wait until the last record is durable.
    virtual void say(const Uuid& peer, proto::MasterMessage message) = 0;
    // The largest control frame that it accepts. Only for a peer with a link.
    virtual std::uint32_t control_bytes(const Uuid& peer) const = 0;
    // True: its dial plan waits for a record to be durable, so it cannot have received the plan.
    virtual bool plan_waits(const Uuid& peer) const = 0;

    // ---- membership
    // Removes it for good, by a decision, and with it its gang. Does nothing if it is not a member.
    virtual void remove(const Uuid& member, const Cause& cause) = 0;
    // Refuses a newcomer that has registered: its connect call fails with this cause. Ignores other peers.
    virtual void turn_away(const Uuid& newcomer, const Cause& cause) = 0;

protected:
    ~Roster() = default;
};

}  // namespace pccl::core
