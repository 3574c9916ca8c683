#include "core/peer_machine.hpp"

#include "core/peer_core.hpp"

namespace pccl::core {

PeerMachine::PeerMachine(const PeerConfig& config) : core_(std::make_unique<PeerCore>(config)) {}
PeerMachine::~PeerMachine() = default;

Status PeerMachine::handle(Instant now, const Event& event, Effects& out) { return core_->handle(now, event, out); }
Instant PeerMachine::next_deadline() const { return core_->next_deadline(); }
std::uint64_t PeerMachine::state_hash() const { return core_->state_hash(); }
std::uint64_t PeerMachine::abstract_state() const { return core_->abstract_state(); }
std::string PeerMachine::explain() const { return core_->explain(); }
std::string PeerMachine::leftovers() const { return core_->leftovers(); }
void PeerMachine::copy_rest(const std::function<void(const Compute&)>& carry_out) { core_->copy_rest(carry_out); }
void PeerMachine::check() const { core_->check(); }
PeerStatistics PeerMachine::statistics() const { return core_->statistics(); }
const Uuid& PeerMachine::uuid() const { return core_->uuid(); }
bool PeerMachine::in_run() const { return core_->in_run(); }
Duration PeerMachine::peer_timeout() const { return core_->peer_timeout(); }

}  // namespace pccl::core
