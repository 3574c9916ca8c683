// UPnP's Internet Gateway Device, without threads of its own: every wait is in wait_for().
#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/port_mapping/upnp/http.hpp"
#include "net-real/port_mapping/upnp/messages.hpp"
#include "net-real/port_mapping/way.hpp"
#include "net-real/sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

using namespace upnp;

constexpr core::Duration search_repeat = 400 * core::millisecond;
constexpr std::size_t descriptions_max = 4;
constexpr core::Duration forget_time = core::second / 2;
constexpr int ports_max = 4;  // that are tried, if others have them
constexpr std::uint32_t random_port_first = 32'768, random_ports = 28'000;

// Searches the network of this host. Only answers of the router count.
class Search {
public:
    explicit Search(const Router& router, std::uint16_t port) : router_(router), port_(port) {
        const std::lock_guard lock(descriptors::guard());
        socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (socket_ >= 0) descriptors::track(socket_);
    }
    ~Search() { close_socket(socket_); }
    Search(const Search&) = delete;

    bool begin(std::string& why) {
        const sockaddr_in own = native(router_.own, 0);
        const unsigned char hops = 1;
        if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
            ::setsockopt(socket_, IPPROTO_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof own.sin_addr) != 0 ||
            ::setsockopt(socket_, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops) != 0) {
            why = std::string("socket for the search: ") + std::strerror(errno);
            return false;
        }
        return true;
    }
    // The next place of a description. Nothing: the patience is over.
    std::optional<Place> next(const Patience& patience) {
        for (;;) {
            if (EventLoop::now() >= repeat_at_) {
                send();
                repeat_at_ = EventLoop::now() + search_repeat;
            }
            Patience turn = patience;
            turn.until = std::min(patience.until, repeat_at_);
            if (!wait_for(socket_, POLLIN, turn)) {
                if (patience.is_over()) return std::nullopt;
                continue;
            }
            if (const auto place = receive()) return place;
            if (patience.is_over()) return std::nullopt;
        }
    }

private:
    static sockaddr_in native(const core::Endpoint& endpoint, std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        std::memcpy(&address.sin_addr, endpoint.address.data(), 4);
        return address;
    }
    // To all, and to the router alone, because a firewall of this host may let in only what comes from an address to
    // which something was sent.
    void send() const {
        core::Endpoint all;
        all.address = {239, 255, 255, 250};
        for (core::Endpoint target : {all, router_.address}) {
            target.port = port_;
            const std::string request = search_request(core::to_text(target));
            const sockaddr_in address = native(target, port_);
            static_cast<void>(::sendto(socket_, request.data(), request.size(), MSG_NOSIGNAL,
                                       reinterpret_cast<const sockaddr*>(&address), sizeof address));
        }
    }
    std::optional<Place> receive() const {
        std::array<char, 2048> datagram;
        sockaddr_in from{};
        socklen_t length = sizeof from;
        const ssize_t got =
            ::recvfrom(socket_, datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
        if (got <= 0 || from.sin_addr.s_addr != native(router_.address, 0).sin_addr.s_addr) return std::nullopt;
        return read_found({datagram.data(), static_cast<std::size_t>(got)}, router_.address);
    }

    const Router& router_;
    const std::uint16_t port_;
    int socket_ = -1;
    core::Instant repeat_at_ = 0;
};

class Upnp final : public Way {
public:
    Upnp(const Router& router, std::uint16_t search_port) : router_(router), search_port_(search_port) {}
    const char* name() const override { return "UPnP"; }

    bool map(std::uint16_t port, const core::Endpoint& wished, const Patience& patience, Grant& grant,
             std::string& why) override {
        Grant found{{}, asked_life_s};
        if (!find(patience, found.outer, why)) return false;
        found.outer.port = wished.port;
        for (int tries = 1; tries <= ports_max; ++tries) {
            Added added = add(port, found, patience, why);
            if (added == Added::yes) {
                grant = found;
                return true;
            }
            if (added == Added::no) return false;
            found.outer.port =
                static_cast<std::uint16_t>(random_port_first + std::random_device{}() % random_ports);
        }
        why = core::formatted("other hosts have {} ports of the router that were tried", ports_max);
        return false;
    }
    void forget(std::uint16_t, const Grant& grant) override {
        const Patience patience{EventLoop::now() + forget_time, {}};
        std::uint32_t error = 0;
        std::string why;
        if (service_)
            command("DeletePortMapping",
                    {{"NewRemoteHost", ""},
                     {"NewExternalPort", std::to_string(grant.outer.port)},
                     {"NewProtocol", "TCP"}},
                    patience, error, why);
    }
    bool examine(const Patience& patience, std::optional<core::Endpoint>& outer, std::string& why) override {
        core::Endpoint found;
        if (!find(patience, found, why)) return false;
        outer = found;
        return true;
    }

private:
    enum class Added { yes, no, taken };
    enum class Holder { nobody, us, other, unknown };

    // Finds the service of the router that has an outer address, unless it is known. Sets `outer`.
    bool find(const Patience& patience, core::Endpoint& outer, std::string& why) {
        if (!router_.is_neighbour) {
            why = "the router is outside of the network of this host";
            return false;
        }
        if (service_ && ask_outer(patience, outer, why)) return true;
        service_.reset();
        Search search(router_, search_port_);
        if (!search.begin(why)) return false;
        why = "the router does not answer";
        // Routers may take 1 s for an answer to a search. The other half is for what comes after it.
        const Patience searching = patience.at_most((patience.until - EventLoop::now()) / 2);
        std::vector<Place> seen;
        while (seen.size() < descriptions_max) {
            const auto place = search.next(searching);
            if (!place) return false;
            const auto is_same = [&](const Place& one) { return one.port == place->port && one.path == place->path; };
            if (std::any_of(seen.begin(), seen.end(), is_same)) continue;
            seen.push_back(*place);
            HttpAnswer page;
            if (!http_ask(at(place->port), page_request(router_.address, *place), patience, page, why)) continue;
            const auto services = read_description(page.body, *place, router_.address);
            // Other devices inside the router may have answered.
            if (!services.empty()) return choose(services, patience, outer, why);
            why = "the router does not describe itself as a gateway";
        }
        return false;
    }
    bool choose(const std::vector<Service>& services, const Patience& patience, core::Endpoint& outer,
                std::string& why) {
        for (const Service& service : services) {
            service_ = service;
            if (ask_outer(patience, outer, why)) return true;
        }
        service_.reset();
        return false;
    }
    bool ask_outer(const Patience& patience, core::Endpoint& outer, std::string& why) {
        std::uint32_t error = 0;
        const auto reply = command("GetExternalIPAddress", {}, patience, error, why);
        if (!reply) return false;
        const auto found = reply->address("NewExternalIPAddress");
        if (!found) why = "the router has no outer address";
        if (found) outer = *found;
        return found.has_value();
    }

    Added add(std::uint16_t port, Grant& wanted, const Patience& patience, std::string& why) {
        if (holder(port, wanted, patience) == Holder::other) return Added::taken;
        std::uint32_t error = 0;
        const auto reply = command("AddPortMapping",
                                   {{"NewRemoteHost", ""},
                                    {"NewExternalPort", std::to_string(wanted.outer.port)},
                                    {"NewProtocol", "TCP"},
                                    {"NewInternalPort", std::to_string(port)},
                                    {"NewInternalClient", host_text(router_.own)},
                                    {"NewEnabled", "1"},
                                    {"NewPortMappingDescription", "pccl"},
                                    {"NewLeaseDuration", std::to_string(asked_life_s)}},
                                   patience, error, why);
        if (error == Error::conflict || error == Error::conflict_with_other) return Added::taken;
        // A port that stays open after a crash, for whoever has this address later, is worse than none.
        if (error == Error::only_permanent) why = "the router would forward the port for ever";
        if (!reply) return Added::no;
        wanted.life_s = asked_life_s;
        // Some routers report success, and still forward the port to a host that asked before.
        return holder(port, wanted, patience) == Holder::other ? Added::taken : Added::yes;
    }
    // Who has the outer port. Shortens the life of `wanted` to what is left.
    Holder holder(std::uint16_t port, Grant& wanted, const Patience& patience) {
        std::uint32_t error = 0;
        std::string why;
        const auto reply = command("GetSpecificPortMappingEntry",
                                   {{"NewRemoteHost", ""},
                                    {"NewExternalPort", std::to_string(wanted.outer.port)},
                                    {"NewProtocol", "TCP"}},
                                   patience, error, why);
        if (!reply) return error == Error::no_such_entry ? Holder::nobody : Holder::unknown;
        const auto client = reply->address("NewInternalClient");
        const auto inner = reply->number("NewInternalPort");
        if (!client || !inner) return Holder::unknown;
        if (client->address != router_.own.address || *inner != port) return Holder::other;
        if (const auto left = reply->number("NewLeaseDuration"); left && *left != 0)
            wanted.life_s = bounded_life(std::min(*left, asked_life_s));
        return Holder::us;
    }

    // Nothing: `why` says why, and `error` is the router's, if it refuses.
    std::optional<Reply> command(const char* name, const Arguments& arguments, const Patience& patience,
                                 std::uint32_t& error, std::string& why) {
        HttpAnswer answer;
        if (!http_ask(at(service_->control.port), command_request(router_.address, *service_, name, arguments),
                      patience, answer, why))
            return std::nullopt;
        Reply reply(answer.body);
        if (answer.status == 200) return reply;
        error = reply.number("errorCode").value_or(0);
        why = error != 0 ? error_text(error)
                         : core::formatted("the router answers {} with HTTP status {}", name, answer.status);
        return std::nullopt;
    }
    core::Endpoint at(std::uint16_t port) const {
        core::Endpoint target = router_.address;
        target.port = port;
        return target;
    }

    const Router router_;
    const std::uint16_t search_port_;
    std::optional<Service> service_;  // that has told its outer address
};

}  // namespace

std::unique_ptr<Way> make_upnp(const Router& router, std::uint16_t search_port) {
    return std::make_unique<Upnp>(router, search_port);
}

}  // namespace pccl::real
