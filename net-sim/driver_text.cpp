// Texts of a driver's events and effects, for the text trace and the recorder.
#include "core/base/format.hpp"
#include "net-sim/world.hpp"

#include <type_traits>

namespace pccl::sim {

using namespace core;

bool Driver::watched() const {
    return world_.trace_.wants_text() || (world_.recorder_ != nullptr && world_.recorder_->keeps());
}

std::uint32_t Driver::far_end(LinkId id) const {
    const auto found = links_.find(id);
    if (found == links_.end()) return ended_far_end_;
    return world_.network_.peer_of(found->second->connection, found->second->side);
}

namespace {

template <class Variant>
LinkId link_of(const Variant& any) {
    return std::visit(
        [](const auto& known) {
            if constexpr (requires { known.link; }) {
                return known.link;
            } else {
                return LinkId{0};
            }
        },
        any);
}

}  // namespace

std::string Driver::text(const Event& event) const {
    std::string said = to_text(event);
    const LinkId link = link_of(event);
    if (link == 0) return said;
    const std::uint32_t far = far_end(link);
    if (const auto* control = std::get_if<ControlArrived>(&event))
        said += ": " + control_text(talk_between(world_.is_master(far), world_.is_master(node_)), control->body);
    return formatted("{} [{}]", said, world_.trace_.name_of(far));
}

std::string Driver::text(const Effect& effect) const {
    std::string said = to_text(effect);
    const LinkId link = link_of(effect);
    if (link == 0) return said;
    const auto* open = std::get_if<OpenLink>(&effect);
    const std::uint32_t far = open != nullptr ? node_of(open->target) : far_end(link);
    if (const auto* control = std::get_if<SendControl>(&effect)) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(control->body.data());
        said += ": " + control_text(talk_between(world_.is_master(node_), world_.is_master(far)),
                                    std::span(bytes, control->body.size()));
    }
    return formatted("{} [{}]", said, world_.trace_.name_of(far));
}

void Driver::record_control(const Link& link, std::span<const std::uint8_t> body) {
    const std::uint32_t far = world_.network_.peer_of(link.connection, link.side);
    const Talk talk = talk_between(world_.is_master(node_), world_.is_master(far));
    if (const auto name = introduced_name(talk, body)) world_.recorder_->introduced(*name, node_);
    record_sent(link, Recorder::Kind::control, world_.recorder_->keeps() ? control_text(talk, body) : std::string());
}

void Driver::record_sent(const Link& link, Recorder::Kind kind, const std::string& text) {
    world_.recorder_->sent(world_.now_, kind, link.connection, link.side, node_,
                           world_.network_.peer_of(link.connection, link.side), text);
}

void Driver::record_arrived(const Link& link, bool bulk) {
    if (world_.recorder_ != nullptr) world_.recorder_->arrived(world_.now_, link.connection, link.side ^ 1, bulk);
}

}  // namespace pccl::sim
