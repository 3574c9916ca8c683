#include "core/membership/examinations.hpp"

#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <algorithm>

namespace pccl::core {

namespace {
constexpr std::size_t dials_max = 4, recent_max = 64;
constexpr Duration pause = second;
}  // namespace

bool Examinations::may_dial(const Endpoint& host) const {
    return dials_.size() < dials_max && recent_.size() < recent_max &&
           std::none_of(recent_.begin(), recent_.end(), [&](const Dial& dial) { return same_host(dial.host, host); });
}

void Examinations::asked(LinkId id, const proto::Examine& question) {
    PROBE(network_examined);
    const ControlLinks::Link& link = links_.at(id);
    const Endpoint remote = link.remote;
    const Uuid identity = link.identity;
    std::erase_if(recent_, [&](const Dial& dial) { return turn_.now - dial.began > pause; });
    const bool dials = question.port() > 0 && question.port() <= 65'535 && may_dial(remote);
    proto::MasterMessage message;
    message.mutable_examined()->set_protocol_version(wire::protocol_version);
    message.mutable_examined()->set_dials(dials);
    message.mutable_examined()->set_peer_timeout_ms(static_cast<std::uint32_t>(turn_.timeouts.peer / millisecond));
    write(remote, *message.mutable_examined()->mutable_seen());
    links_.say_and_close(id, std::move(message), false);
    if (!dials) return;
    Endpoint target = remote;
    target.port = static_cast<std::uint16_t>(question.port());
    const LinkId dial = next_link_;
    next_link_ += 2;
    dials_[dial] = {remote, turn_.now};
    recent_.push_back(dials_[dial]);
    turn_.add(OpenLink{dial, target, identity});
}

void Examinations::answered(LinkId id, bool opened) {
    if (dials_.erase(id) != 0 && opened) turn_.add(CloseLink{id, false});
}

void Examinations::tick() {
    for (auto it = dials_.begin(); it != dials_.end();) {
        if (turn_.now - it->second.began <= turn_.timeouts.dial) {
            ++it;
            continue;
        }
        turn_.add(CloseLink{it->first, false});
        it = dials_.erase(it);
    }
}

}  // namespace pccl::core
