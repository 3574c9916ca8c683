// Answers peers that examine their network before they join, and dials them back.
//
// Such a peer asks in place of a hello (proto Examine). It learns at which address the master sees it. If it names a
// port, the master dials this port at that address, and closes the connection as soon as it is open: the peer sees for
// itself whether it comes.
//
// Bounds: the master dials only the host that asks, at most `dials_max` at a time and each host once in `pause`. A dial
// lasts at most as long as one to a peer may.
#pragma once

#include "core/membership/control_links.hpp"
#include "core/turn.hpp"

#include <map>
#include <vector>

namespace pccl::core {

class Examinations {
public:
    Examinations(Turn& turn, ControlLinks& links) : turn_(turn), links_(links) {}

    void asked(LinkId id, const proto::Examine& question);
    // The dial was answered, in one way or the other.
    void answered(LinkId id, bool opened);
    void tick();
    bool empty() const { return dials_.empty(); }

private:
    struct Dial {
        Endpoint host;
        Instant began = 0;
    };
    bool may_dial(const Endpoint& host) const;

    Turn& turn_;
    ControlLinks& links_;
    std::map<LinkId, Dial> dials_;
    std::vector<Dial> recent_;  // those of the last `pause`
    LinkId next_link_ = 1;
};

}  // namespace pccl::core
