// A port of the router in front of this host. The router forwards what comes to its outer port, so peers that are
// behind routers of their own can dial this one.
//
// The router is the gateway of the default route for IPv4, and only its answers are taken. It is asked by PCP, then by
// NAT-PMP, then by UPnP. A thread renews the mapping at half its life. The router forgets a mapping that nobody renews.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/log.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::real {

// What came of asking the router in one way.
struct ExaminedWay {
    std::string name;
    bool speaks = false;
    std::optional<core::Endpoint> outer;  // the address of the router to the outside, without port, if it tells that
    std::string why;                      // if not `speaks`
};

// Asks the router which ways it speaks, without changing anything there. Blocks for at most 5 s. Empty: `why` says why.
std::vector<ExaminedWay> examine_router(std::string& why);

class PortMapping {
public:
    using Log = std::function<void(Severity, std::string_view)>;  // called by the thread that renews

    // For the TCP port of `listener`; its address is none if it listens on all. Blocks for at most 5 s. Null: `why`
    // names what was tried, and what came of it.
    static std::unique_ptr<PortMapping> ask(const core::Endpoint& listener, Log log, std::string& why);
    ~PortMapping();  // asks the router to forget the mapping; takes at most half a second
    PortMapping(const PortMapping&) = delete;
    PortMapping& operator=(const PortMapping&) = delete;

    const core::Endpoint& outer() const;  // where others reach the port
    const char* way() const;              // "PCP", "NAT-PMP" or "UPnP"

private:
    class Keeper;
    explicit PortMapping(std::unique_ptr<Keeper> keeper);
    std::unique_ptr<Keeper> keeper_;
};

}  // namespace pccl::real
