#include "net-real/port_mapping/nat_pmp_messages.hpp"
#include "net-real/port_mapping/way.hpp"

namespace pccl::real {

namespace {

class NatPmp final : public Way {
public:
    NatPmp(const Router& router, std::uint16_t server_port) : server_(router.address) { server_.port = server_port; }
    const char* name() const override { return "NAT-PMP"; }

    bool map(std::uint16_t port, const core::Endpoint& wished, const Patience& patience, Grant& grant,
             std::string& why) override {
        nat_pmp::Answer address, answer;
        if (!ask_address(patience, address, why)) return false;
        const auto takes = [&](std::span<const std::uint8_t> datagram) {
            answer = nat_pmp::read_port(datagram, port);
            return answer.kind != nat_pmp::Kind::ignored;
        };
        if (!socket_.ask(nat_pmp::write_port_request(port, wished.port, asked_life_s), takes, patience, why) ||
            !is_granted(answer, "the router has given no port", why))
            return false;
        grant = {address.outer, bounded_life(answer.life_s)};
        grant.outer.port = answer.outer.port;
        return true;
    }
    void forget(std::uint16_t port, const Grant&) override {
        std::string why;
        if (socket_.open(server_, why)) socket_.send(nat_pmp::write_port_request(port, 0, 0));
    }
    bool examine(const Patience& patience, std::optional<core::Endpoint>& outer, std::string& why) override {
        nat_pmp::Answer address;
        if (!ask_address(patience, address, why)) return false;
        outer = address.outer;
        return true;
    }

private:
    bool ask_address(const Patience& patience, nat_pmp::Answer& answer, std::string& why) {
        const auto takes = [&](std::span<const std::uint8_t> datagram) {
            answer = nat_pmp::read_address(datagram);
            return answer.kind != nat_pmp::Kind::ignored;
        };
        return socket_.open(server_, why) && socket_.ask(nat_pmp::write_address_request(), takes, patience, why) &&
               is_granted(answer, "the router has no outer address", why);
    }
    static bool is_granted(const nat_pmp::Answer& answer, const char* nothing, std::string& why) {
        if (answer.kind == nat_pmp::Kind::granted) return true;
        why = answer.kind == nat_pmp::Kind::unusable ? nothing : nat_pmp::text_of(answer.result);
        return false;
    }

    core::Endpoint server_;
    RouterSocket socket_;
};

}  // namespace

std::unique_ptr<Way> make_nat_pmp(const Router& router, std::uint16_t server_port) {
    return std::make_unique<NatPmp>(router, server_port);
}

}  // namespace pccl::real
