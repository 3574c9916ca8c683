// A protocol by which a router gives a port. Not thread-safe.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/port_mapping/router.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace pccl::real {

struct Grant {
    core::Endpoint outer;      // where others reach the port; neither its address nor its port is 0
    std::uint32_t life_s = 0;  // the router forgets the mapping then; 2 s to a day
};

// Longer ones bring nothing: the mapping is renewed anyway. The router forgets shorter ones sooner after a crash.
inline constexpr std::uint32_t asked_life_s = 3600;

class Way {
public:
    virtual ~Way() = default;
    virtual const char* name() const = 0;
    // Asks for a mapping to the TCP port `port` of this host, or renews it. `wished` is the outer end that would suit
    // best; its address may be none. False: `why` says why, and `grant` is as before.
    virtual bool map(std::uint16_t port, const core::Endpoint& wished, const Patience& patience, Grant& grant,
                     std::string& why) = 0;
    // Asks the router to forget the mapping. Takes at most half a second.
    virtual void forget(std::uint16_t port, const Grant& grant) = 0;
    // Whether the router speaks it; changes nothing there. `outer`: its address to the outside, if it tells that.
    virtual bool examine(const Patience& patience, std::optional<core::Endpoint>& outer, std::string& why) = 0;
};

std::unique_ptr<Way> make_pcp(const Router& router, std::uint16_t server_port = 5351);
std::unique_ptr<Way> make_nat_pmp(const Router& router, std::uint16_t server_port = 5351);
// Null: it is not part of this build.
std::unique_ptr<Way> make_upnp(const Router& router, std::uint16_t search_port = 1900);

// What a router says of the life of a mapping, within bounds.
std::uint32_t bounded_life(std::uint32_t seconds);

}  // namespace pccl::real
