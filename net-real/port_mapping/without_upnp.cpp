// In builds without libminiupnpc.
#include "net-real/port_mapping/way.hpp"

namespace pccl::real {

std::unique_ptr<Way> make_upnp(const Router&, std::uint16_t) { return nullptr; }

}  // namespace pccl::real
