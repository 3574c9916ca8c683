#include "core/base/probe.hpp"

namespace pccl::core {

ProbeHandler probe_handler = nullptr;

void set_probe_handler(ProbeHandler handler) { probe_handler = handler; }

}  // namespace pccl::core
