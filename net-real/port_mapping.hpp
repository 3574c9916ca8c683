// A port of the router in front of this host, asked for by NAT-PMP (RFC 6886). The router then forwards what comes to
// its outer port, so peers that are behind routers of their own can dial this one.
//
// The router is the gateway of the default route, and only its answers are taken. A thread renews the mapping at half
// its life. The router forgets a mapping that nobody renews.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/log.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pccl::real {

// The address of the router to the outside. Blocks for at most `limit`. Nothing: `why` says why.
std::optional<core::Endpoint> outer_address_of_router(core::Duration limit, std::string& why);

class PortMapping {
public:
    using Log = std::function<void(Severity, std::string_view)>;  // called by the thread that renews

    // For the TCP port `port` of this host. Blocks for at most `limit`. Null: `why` says why.
    static std::unique_ptr<PortMapping> ask(std::uint16_t port, core::Duration limit, Log log, std::string& why);
    ~PortMapping();  // asks the router to forget the mapping, and does not wait for its answer
    PortMapping(const PortMapping&) = delete;
    PortMapping& operator=(const PortMapping&) = delete;

    const core::Endpoint& outer() const;  // where others reach the port

private:
    class Keeper;
    explicit PortMapping(std::unique_ptr<Keeper> keeper);
    std::unique_ptr<Keeper> keeper_;
};

}  // namespace pccl::real
