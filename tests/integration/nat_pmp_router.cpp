// nat_pmp_router OUTER LIFETIME: answers NAT-PMP (RFC 6886) at 192.168.1.1, as a router does, and forwards ports by
// nftables. The table `ip box` must have a chain `pre` for destination NAT.
//
// It ignores the first datagram, because the network may lose one. It does not know PCP, and says so. It gives another
// outer port than it is asked for, and prints "mapped INNER OUTER" and "unmapped INNER". It ends with its standard input.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

constexpr std::uint16_t port = 5351;
constexpr unsigned outer_from_inner = 1000;

void put(std::array<unsigned char, 16>& answer, std::size_t at, std::uint32_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) answer[at + i] = static_cast<unsigned char>(value >> (8 * (bytes - 1 - i)));
}

bool forward(unsigned inner, const char* host) {
    std::string rules = "flush chain ip box pre\n";
    if (host != nullptr)
        rules += "add rule ip box pre iifname wan tcp dport " + std::to_string(inner + outer_from_inner) + " dnat to " +
                 host + ":" + std::to_string(inner) + "\n";
    std::FILE* nft = ::popen("PATH=$PATH:/usr/sbin:/sbin nft -f -", "w");
    if (nft == nullptr) return false;
    std::fputs(rules.c_str(), nft);
    return ::pclose(nft) == 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const int router = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(port);
    ::inet_pton(AF_INET, "192.168.1.1", &own.sin_addr);
    if (::bind(router, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) return 1;
    std::puts("ready");
    std::fflush(stdout);
    for (bool first = true;; first = false) {
        pollfd waits[] = {{router, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        if (::poll(waits, 2, -1) < 0 || waits[1].revents != 0) return 0;
        unsigned char request[64] = {};
        sockaddr_in from{};
        socklen_t length = sizeof from;
        const ssize_t got = ::recvfrom(router, request, sizeof request, 0, reinterpret_cast<sockaddr*>(&from), &length);
        if (first || got < 2) continue;
        std::array<unsigned char, 16> answer{};
        if (request[0] != 0) {
            answer[1] = static_cast<unsigned char>(request[1] | 128);
            answer[3] = 1;  // unsupported version
            ::sendto(router, answer.data(), 8, 0, reinterpret_cast<const sockaddr*>(&from), length);
            continue;
        }
        answer[1] = static_cast<unsigned char>(request[1] | 128);
        std::size_t bytes = 12;
        if (request[1] == 0) {
            ::inet_pton(AF_INET, argv[1], &answer[8]);
        } else if (request[1] == 2 && got >= 12) {
            bytes = 16;
            const unsigned inner = static_cast<unsigned>(request[4] << 8 | request[5]);
            const bool maps = (request[8] | request[9] | request[10] | request[11]) != 0;
            char host[INET_ADDRSTRLEN] = {};
            ::inet_ntop(AF_INET, &from.sin_addr, host, sizeof host);
            if (!forward(inner, maps ? host : nullptr)) answer[3] = 3;
            put(answer, 8, inner, 2);
            put(answer, 10, maps ? inner + outer_from_inner : 0, 2);
            put(answer, 12, maps ? static_cast<std::uint32_t>(std::atoi(argv[2])) : 0, 4);
            std::printf(maps ? "mapped %u %u\n" : "unmapped %u\n", inner, inner + outer_from_inner);
            std::fflush(stdout);
        } else {
            answer[3] = 5;
        }
        ::sendto(router, answer.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&from), length);
    }
}
