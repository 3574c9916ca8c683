#include "net-real/port_mapping/pcp_messages.hpp"
#include "net-real/port_mapping/way.hpp"

#include <fstream>
#include <random>

namespace pccl::real {

namespace {

// Known to this host only, and the same after a restart if the system has a machine id. That id itself must not leave
// the host (machine-id(5)), and does not: it is hashed.
std::string secret_of_host() {
    std::string secret;
    std::ifstream file("/etc/machine-id");
    std::getline(file, secret);
    if (secret.size() >= 32) return secret;
    std::random_device device;
    for (int i = 0; i < 4; ++i) secret += std::to_string(device()) + " ";
    return secret;
}

class Pcp final : public Way {
public:
    Pcp(const Router& router, std::uint16_t server_port) : router_(router), server_(router.address) {
        server_.port = server_port;
    }
    const char* name() const override { return "PCP"; }

    bool map(std::uint16_t port, const core::Endpoint& wished, const Patience& patience, Grant& grant,
             std::string& why) override {
        const pcp::Map request{router_.own, nonce(port), port, wished, asked_life_s};
        pcp::Answer answer;
        const auto takes = [&](std::span<const std::uint8_t> datagram) {
            answer = pcp::read_map(datagram, request);
            return answer.kind != pcp::Kind::ignored;
        };
        if (!socket_.open(server_, why) || !socket_.ask(pcp::write_map(request), takes, patience, why)) return false;
        if (!is_granted(answer, why)) return false;
        grant = {answer.outer, bounded_life(answer.life_s)};
        return true;
    }
    void forget(std::uint16_t port, const Grant&) override {
        std::string why;
        if (socket_.open(server_, why)) socket_.send(pcp::write_map({router_.own, nonce(port), port, {}, 0}));
    }
    bool examine(const Patience& patience, std::optional<core::Endpoint>&, std::string& why) override {
        pcp::Answer answer;
        const auto takes = [&](std::span<const std::uint8_t> datagram) {
            answer = pcp::read_announce(datagram);
            return answer.kind != pcp::Kind::ignored;
        };
        return socket_.open(server_, why) &&
               socket_.ask(pcp::write_announce(router_.own), takes, patience, why) && is_granted(answer, why);
    }

private:
    pcp::Nonce nonce(std::uint16_t port) const { return pcp::make_nonce(secret_, router_.own, port); }
    static bool is_granted(const pcp::Answer& answer, std::string& why) {
        switch (answer.kind) {
        case pcp::Kind::granted: return true;
        case pcp::Kind::unusable: why = "the router has given no outer address or no port"; return false;
        case pcp::Kind::other_version: why = "the router does not speak it"; return false;
        default: why = pcp::text_of(answer.result); return false;
        }
    }

    const Router router_;
    core::Endpoint server_;
    const std::string secret_ = secret_of_host();
    RouterSocket socket_;
};

}  // namespace

std::unique_ptr<Way> make_pcp(const Router& router, std::uint16_t server_port) {
    return std::make_unique<Pcp>(router, server_port);
}

}  // namespace pccl::real
