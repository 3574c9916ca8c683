#include "harness/ledger.hpp"

#include "core/base/format.hpp"

namespace pccl::harness {

using namespace core;

const char* to_text(CallKind kind) {
    static constexpr const char* names[] = {"connect", "update_topology", "are_peers_pending", "launch",  "await",
                                            "sync",    "leave",           "reduce_many",       "optimize"};
    return names[static_cast<std::size_t>(kind)];
}

std::string Ledger::name(std::uint32_t life) const {
    return formatted("process {} (life {})", lives[life].process, life);
}

}  // namespace pccl::harness
