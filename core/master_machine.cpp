#include "core/master_machine.hpp"

#include "core/master_core.hpp"

namespace pccl::core {

MasterMachine::MasterMachine(const MasterConfig& config) : core_(std::make_unique<MasterCore>(config)) {}
MasterMachine::~MasterMachine() = default;

bool MasterMachine::start(Instant now, std::span<const std::string> journal, Effects& out) {
    return core_->start(now, journal, out);
}
Status MasterMachine::handle(Instant now, const Event& event, Effects& out) { return core_->handle(now, event, out); }
Instant MasterMachine::next_deadline() const { return core_->next_deadline(); }
std::uint64_t MasterMachine::state_hash() const { return core_->state_hash(); }
std::uint64_t MasterMachine::abstract_state() const { return core_->abstract_state(); }
std::string MasterMachine::promised() const { return core_->promised(); }
MasterStatus MasterMachine::status() const { return core_->status(); }
std::string MasterMachine::explain() const { return core_->explain(); }
std::string MasterMachine::leftovers() const { return core_->leftovers(); }
void MasterMachine::check() const { core_->check(); }
void MasterMachine::shut_down(Instant now, Effects& out) { core_->shut_down(now, out); }

}  // namespace pccl::core
