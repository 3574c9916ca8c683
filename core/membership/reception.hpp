// What the master says to a hello: a newcomer is registered, a member resumes its seat, everybody else is refused with a reason.
//
// It owns nothing: it reads what is promised and who waits, and hands the caller on to Joiners or to the Registry.
//
// Invariants: a seat is resumed only by who proves it with a token that the master gave out. Only such a member can end a run
// whose journal is too old; what anybody else claims concerns nobody else.
#pragma once

#include "core/base/secret.hpp"
#include "core/membership/control_links.hpp"
#include "core/membership/registry.hpp"
#include "core/topology/joiners.hpp"
#include "core/turn.hpp"
#include "core/voting/agenda.hpp"

namespace pccl::core {

class Reception {
public:
    Reception(Turn& turn, const RunState& state, ControlLinks& links, Registry& registry, Joiners& joiners,
              SecretSource& secrets, Agenda& agenda)
        : turn_(turn), state_(state), links_(links), registry_(registry), joiners_(joiners), secrets_(secrets),
          agenda_(agenda) {}

    void hello(LinkId id, const proto::Hello& hello);

private:
    void register_joiner(LinkId id, const proto::Hello& hello, const Uuid& uuid, const Endpoint& address);

    Turn& turn_;
    const RunState& state_;
    ControlLinks& links_;
    Registry& registry_;
    Joiners& joiners_;
    SecretSource& secrets_;
    Agenda& agenda_;
};

}  // namespace pccl::core
