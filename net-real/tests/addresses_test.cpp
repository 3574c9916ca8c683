// Addresses as people write them, addresses that cannot work, and several addresses of one master.
#include "core/topology/address_rules.hpp"
#include "net-real/master_runtime.hpp"
#include "net-real/peer_runtime.hpp"
#include "net-real/resolve.hpp"
#include "net-real/settings.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace pccl;
using namespace pccl::real;

// Replaces the system's resolver: it never answers for one name, and resolves another one.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* name, const char* service,
                                                                  const addrinfo* hints, addrinfo** found) {
    while (name != nullptr && std::strcmp(name, "owed.test") == 0) ::pause();
    const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(name != nullptr && std::strcmp(name, "free.test") == 0 ? "127.0.0.1" : name, service, hints, found);
}

namespace {

std::vector<std::string> addresses(const std::string& text, std::uint16_t port = 7) {
    std::vector<core::Endpoint> found;
    std::string error;
    std::vector<std::string> list;
    if (!resolve(text, port, found, error)) return {"error"};
    for (const core::Endpoint& endpoint : found) list.push_back(core::to_text(endpoint));
    return list;
}

core::Endpoint endpoint(const std::string& text) {
    core::Endpoint parsed;
    parsed.port = 7;
    REQUIRE(parse_endpoint(text, parsed));
    return parsed;
}

// The address of a master that was bound and is gone: nobody listens there.
core::Endpoint closed_port() {
    MasterRuntime master(MasterSettings{});
    std::string error;
    REQUIRE(master.bind(endpoint("127.0.0.1:0"), error));
    core::Endpoint closed = endpoint("127.0.0.1");
    closed.port = master.port();
    return closed;
}

core::Completion connect(std::vector<core::Endpoint> masters) {
    PeerSettings settings;
    settings.master = masters.front();
    settings.other_masters.assign(masters.begin() + 1, masters.end());
    settings.port_first = settings.port_last = 0;
    PeerRuntime peer(settings);
    std::string error;
    REQUIRE(peer.start(error));
    return peer.call(core::CommandConnect{});
}

}  // namespace

TEST_CASE("addresses are read as people write them") {
    using List = std::vector<std::string>;
    CHECK(addresses("1.2.3.4") == List{"1.2.3.4:7"});
    CHECK(addresses("1.2.3.4:80") == List{"1.2.3.4:80"});
    CHECK(addresses("::1") == List{"[0:0:0:0:0:0:0:1]:7"});
    CHECK(addresses("[::1]:80") == List{"[0:0:0:0:0:0:0:1]:80"});
    CHECK(addresses("localhost:80") == List{"127.0.0.1:80"});
    for (const char* bad : {"", ":80", "1.2.3", "1.2.3.4:", "1.2.3.4:66000", "1.2.3.4.5:80", "[::1", "[::1]80",
                            "[1.2.3.4]:80", "a b", "host:port", "/etc/hosts", "fe80::1%eth0"}) {
        INFO(bad);
        CHECK(addresses(bad) == List{"error"});
    }
}

TEST_CASE("a name that does not exist is an error with the name and a remedy") {
    std::vector<core::Endpoint> found;
    std::string error;
    CHECK_FALSE(resolve("no-such-host.invalid:80", 7, found, error));
    CHECK(error.find("no-such-host.invalid") != std::string::npos);
    CHECK(error.find("numeric address") != std::string::npos);
}

TEST_CASE("which addresses can be a target") {
    for (const char* good : {"1.2.3.4", "127.0.0.1", "10.0.0.1", "169.254.1.1", "::1", "fd00::1", "2001:db8::1"})
        CHECK(core::why_not_a_target(endpoint(good)) == nullptr);
    for (const char* bad :
         {"0.0.0.0", "224.0.0.1", "239.1.1.1", "255.255.255.255", "::", "fe80::1", "febf::1", "ff02::1"})
        CHECK(core::why_not_a_target(endpoint(bad)) != nullptr);
    CHECK(core::why_not_a_target(core::Endpoint{}) != nullptr);
    CHECK(core::is_loopback(endpoint("127.1.2.3")));
    CHECK(core::is_loopback(endpoint("::1")));
    CHECK_FALSE(core::is_loopback(endpoint("::2")));
    CHECK_FALSE(core::is_loopback(endpoint("128.0.0.1")));
}

TEST_CASE("the addresses of a master are tried in order, and all are named when none answers") {
    MasterRuntime master(MasterSettings{});
    std::string error;
    REQUIRE(master.bind(endpoint("127.0.0.1:0"), error));
    REQUIRE(master.run(error));
    core::Endpoint right = endpoint("127.0.0.1");
    right.port = master.port();
    const core::Endpoint wrong = closed_port();
    CHECK(connect({wrong, wrong, right}).result == core::Result::success);
    const core::Completion failed = connect({wrong, wrong});
    CHECK(failed.result == core::Result::master_connection_failed);
    const std::string text = core::to_text(failed.cause);
    const std::size_t first = text.find(core::to_text(wrong));
    REQUIRE(first != std::string::npos);
    CHECK(text.find(core::to_text(wrong), first + 1) != std::string::npos);
}

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer ends a forked child that starts a thread
TEST_CASE("a child looks names up, however many answers its parent is owed") {
    std::vector<core::Endpoint> found;
    std::string error;
    for (int i = 0; i < 8; ++i) CHECK_FALSE(resolve("owed.test:80", 7, found, error, core::millisecond));
    CHECK_FALSE(resolve("free.test:80", 7, found, error));
    CHECK(error.find("owes too many answers") != std::string::npos);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(resolve("free.test:80", 7, found, error) ? 0 : 1);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
#endif
