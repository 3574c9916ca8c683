// See address.hpp.
#include "address.hpp"

#include <charconv>
#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace pccl_master {
namespace {

bool split(const std::string& text, std::string& host, std::string& port) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return false;
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.front() != '[') return host.find(':') == std::string::npos;
    return host.size() > 2 && host.back() == ']';
}

bool parse_port(const std::string& text, std::uint16_t& port) {
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, port);
    return code == std::errc{} && stop == end && !text.empty();
}

void store(const addrinfo& found, ccoip_inet_address_t& inet) {
    if (found.ai_family == AF_INET) {
        sockaddr_in v4{};
        std::memcpy(&v4, found.ai_addr, sizeof v4);
        inet.protocol = inetIPv4;
        std::memcpy(inet.ipv4.data, &v4.sin_addr, sizeof inet.ipv4.data);
        return;
    }
    sockaddr_in6 v6{};
    std::memcpy(&v6, found.ai_addr, sizeof v6);
    inet.protocol = inetIPv6;
    std::memcpy(inet.ipv6.data, &v6.sin6_addr, sizeof inet.ipv6.data);
}

bool resolve(const std::string& host, int family, ccoip_inet_address_t& inet, std::string& error) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (code != 0) {
        error = gai_strerror(code);
        return false;
    }
    store(*found, inet);
    freeaddrinfo(found);
    return true;
}

}  // namespace

bool parse_listen_address(const std::string& text, ListenAddress& listen, std::string& error) {
    std::string port_text;
    if (!split(text, listen.host, port_text)) {
        error = "expected HOST:PORT or [V6]:PORT";
        return false;
    }
    if (!parse_port(port_text, listen.address.port)) {
        error = "the port must be a number from 0 to 65535";
        return false;
    }
    if (listen.host.front() == '[') {
        return resolve(listen.host.substr(1, listen.host.size() - 2), AF_INET6, listen.address.inet, error);
    }
    return resolve(listen.host, AF_INET, listen.address.inet, error) ||
           resolve(listen.host, AF_INET6, listen.address.inet, error);
}

}  // namespace pccl_master
