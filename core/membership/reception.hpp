// The master's answer to a hello: a newcomer is registered, a member resumes its seat, everybody else is refused with a
// reason.
//
// It owns no state. It reads RunState and Joiners, and passes the caller on to Joiners or Registry.
//
// Invariants: only a peer that proves a seat with one of its tokens resumes it. Only such a member can end a run whose
// journal is too old. A claim of any other caller affects no other peer.
#pragma once

#include "core/base/secret.hpp"
#include "core/membership/control_links.hpp"
#include "core/membership/registry.hpp"
#include "core/topology/joiners.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

#include <optional>
#include <utility>

namespace pccl::core {

class Reception {
public:
    Reception(Turn& turn, const RunState& state, ControlLinks& links, Registry& registry, Joiners& joiners,
              SecretSource& secrets, Agenda& agenda)
        : turn_(turn), state_(state), links_(links), registry_(registry), joiners_(joiners), secrets_(secrets),
          agenda_(agenda) {}

    void hello(LinkId id, const proto::Hello& hello);

private:
    std::optional<std::pair<Uuid, Endpoint>> other_side(const Uuid& newcomer, const Gang& gang,
                                                        const Endpoint& endpoint) const;
    void register_joiner(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address,
                         const Location& location);

    Turn& turn_;
    const RunState& state_;
    ControlLinks& links_;
    Registry& registry_;
    Joiners& joiners_;
    SecretSource& secrets_;
    Agenda& agenda_;
};

}  // namespace pccl::core
