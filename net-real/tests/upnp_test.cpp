// Ports of routers by UPnP: its texts, and gateways on loopback that answer wrongly or not at all.
#include "net-real/event_loop.hpp"
#include "net-real/port_mapping/upnp/http.hpp"
#include "net-real/port_mapping/upnp/messages.hpp"
#include "net-real/port_mapping/way.hpp"
#include "net-real/sockets.hpp"
#include "net-real/tests/fake_router.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace pccl;
using namespace pccl::real;

namespace {

const core::Endpoint gateway = v4(192, 168, 1, 1);

const char* const found = "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=120\r\nST: x\r\nEXT:\r\nSERVER: any UPnP/1.1\r\n"
                          "LOCATION: http://192.168.1.1:5000/rootDesc.xml\r\n\r\n";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
}

std::string described(const std::string& services, const std::string& base = "") {
    return "<?xml version=\"1.0\"?><root xmlns=\"urn:schemas-upnp-org:device-1-0\">" + base +
           "<device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType><serviceList>" +
           services + "</serviceList></device></root>";
}

std::string service(const std::string& type, const std::string& control) {
    return "<service><serviceType>urn:schemas-upnp-org:service:" + type +
           "</serviceType><SCPDURL>/any.xml</SCPDURL><controlURL>" + control + "</controlURL></service>";
}

// Routers that serve HTTP on loopback; one answer for each connection.
class FakeServer {
public:
    using Answers = std::function<std::string(const std::string& request)>;
    // `endless` is sent again and again after each answer, until the other end closes.
    explicit FakeServer(Answers answers, std::string endless = {})
        : endless_(std::move(endless)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof own;
        REQUIRE(::bind(listener_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
        REQUIRE(::listen(listener_, 16) == 0);
        REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length) == 0);
        target = v4(127, 0, 0, 1, ntohs(own.sin_port));
        thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
    }
    ~FakeServer() {
        stops_ = true;
        thread_.join();
        ::close(listener_);
    }
    FakeServer(const FakeServer&) = delete;
    core::Endpoint target;

private:
    void serve(const Answers& answers) {
        while (!stops_) {
            pollfd one{listener_, POLLIN, 0};
            if (::poll(&one, 1, 20) <= 0) continue;
            const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            std::string request(16'384, '\0');
            std::size_t size = 0;
            // Until the end of the header, and what the body must have.
            for (;;) {
                const ssize_t got = ::recv(connection, request.data() + size, request.size() - size, 0);
                if (got <= 0) break;
                size += static_cast<std::size_t>(got);
                const std::string_view so_far(request.data(), size);
                const std::size_t end = so_far.find("\r\n\r\n");
                if (end == std::string_view::npos) continue;
                const std::size_t length = so_far.find("Content-Length: ");
                const std::size_t body =
                    length == std::string_view::npos ? 0 : std::stoul(std::string(so_far.substr(length + 16, 6)));
                if (size >= end + 4 + body) break;
            }
            request.resize(size);
            const std::string answer = answers(request);
            ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
            while (!endless_.empty() && !stops_ &&
                   ::send(connection, endless_.data(), endless_.size(), MSG_NOSIGNAL) > 0) {}
            if (answer.empty() && endless_.empty()) {
                // Silent until the other end closes.
                char byte;
                while (!stops_ && ::recv(connection, &byte, 1, MSG_DONTWAIT) != 0)
                    ::poll(nullptr, 0, 10);
            }
            ::close(connection);
        }
    }
    const std::string endless_;
    int listener_;
    std::atomic<bool> stops_{false};
    std::thread thread_;
};

std::string page(const std::string& body, const std::string& status = "200 OK") {
    return "HTTP/1.1 " + status + "\r\nContent-Type: text/xml\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
}

std::string refusal(int error) {
    return page("<s:Envelope><s:Body><s:Fault><detail><UPnPError><errorCode>" + std::to_string(error) +
                    "</errorCode></UPnPError></detail></s:Fault></s:Body></s:Envelope>",
                "500 Internal Server Error");
}

}  // namespace

TEST_CASE("UPnP: only answers to searches that stay with the router are believed") {
    const auto place = upnp::read_found(found, gateway);
    REQUIRE(place);
    CHECK(place->port == 5000);
    CHECK(place->path == "/rootDesc.xml");
    const std::string whole = found;
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
        CHECK_FALSE(upnp::read_found(whole.substr(0, bytes), gateway));
    CHECK_FALSE(upnp::read_found(found, v4(192, 168, 1, 2)));
    CHECK_FALSE(upnp::read_found(replaced(found, "200 OK", "404 No"), gateway));
    CHECK_FALSE(upnp::read_found(replaced(found, "HTTP/1.1 200 OK", "NOTIFY * HTTP/1.1"), gateway));
    CHECK_FALSE(upnp::read_found(replaced(found, "LOCATION", "ELSE"), gateway));
}

TEST_CASE("UPnP: URLs must be on the router") {
    const auto read = [](const char* url) {
        const auto place = upnp::read_url(url, gateway);
        return place ? std::to_string(place->port) + place->path : std::string("refused");
    };
    CHECK(read("http://192.168.1.1/a") == "80/a");
    CHECK(read("http://192.168.1.1:49152/a/b?c") == "49152/a/b?c");
    CHECK(read("http://192.168.1.1") == "80/");
    CHECK(read("http://192.168.1.1:49152") == "49152/");
    for (const char* url : {"", "/a", "https://192.168.1.1/a", "http://192.168.1.10/a", "http://192.168.1.1.example/a",
                            "http://192.168.1.1@198.51.100.1/a", "http://192.168.1.1:80@198.51.100.1/a",
                            "http://192.168.1.1:0/a", "http://192.168.1.1:65536/a", "http://192.168.1.1:/a",
                            "http://192.168.1.1:-1/a", "http://192.168.1.1/a b", "http://192.168.1.1/a\r\nX: y",
                            "http://198.51.100.1/a", "http://router/a", "http://192.168.1.1?a"}) {
        INFO(url);
        CHECK(read(url) == "refused");
    }
}

TEST_CASE("UPnP: services of a description, and those that are left out") {
    const upnp::Place from{5000, "/rootDesc.xml"};
    const auto read = [&](const std::string& text) { return upnp::read_description(text, from, gateway); };
    const std::string usual = described(service("Layer3Forwarding:1", "/l3") + service("WANIPConnection:2", "/ctl"));
    const auto services = read(usual);
    REQUIRE(services.size() == 1);
    CHECK(services[0].type == "urn:schemas-upnp-org:service:WANIPConnection:2");
    CHECK(services[0].control.port == 5000);
    CHECK(services[0].control.path == "/ctl");
    const auto both = read(described(service("WANPPPConnection:1", "ppp") +
                                     service("WANIPConnection:1", "http://192.168.1.1:80/ip")));
    REQUIRE(both.size() == 2);
    CHECK(both[0].control.path == "/ppp");
    CHECK(both[1].control.port == 80);
    const std::string one = service("WANIPConnection:1", "/ctl");
    const auto based = read(described(one, "<URLBase>http://192.168.1.1:49000/</URLBase>"));
    REQUIRE(based.size() == 1);
    CHECK(based[0].control.port == 49000);
    CHECK(read(described(one, "<URLBase>http://198.51.100.1/</URLBase>")).empty());
    CHECK(read(described(service("WANIPConnection:1", "http://198.51.100.1/ctl"))).empty());
    CHECK(read(described(service("WANIPConnection:1", "gopher://192.168.1.1/ctl"))).empty());
    CHECK(read(described(service("WANIPConnection:1&#13;", "/ctl"))).empty());
    CHECK(read(described(service("WANIPConnection:1\"><evil", "/ctl"))).empty());
    CHECK(read(described(service("WANIPConnection:1", ""))).empty());
    CHECK(read(described("")).empty());
    CHECK(read("").empty());
    CHECK(read("not found").empty());
    for (std::size_t bytes = 0; bytes < usual.size(); ++bytes)
        CHECK(read(usual.substr(0, bytes)).size() <= 1);
    // Much deeper than any.
    std::string deep;
    for (int i = 0; i < 20'000; ++i) deep += "<a>";
    CHECK(read(deep).empty());
    CHECK(read(described(service("WANIPConnection:1", "/" + std::string(60'000, 'x')))).size() <= 1);
}

TEST_CASE("UPnP: damaged texts are read without harm, and lead nowhere but to the router") {
    const std::string usual = described(service("WANPPPConnection:1", "/ppp") + service("WANIPConnection:1", "/ctl"),
                                        "<URLBase>http://192.168.1.1:49000/</URLBase>");
    const std::string reply = "<s:Body><u:R><NewExternalIPAddress>203.0.113.11</NewExternalIPAddress></u:R></s:Body>";
    const std::string pieces = "<>/:!-[]CDAT\"'=?& \r\n\t0aA\x80";
    std::mt19937 random(1);
    const auto damaged = [&](std::string text) {
        for (unsigned changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
            const std::size_t at = random() % text.size();
            switch (random() % 4) {
            case 0: text.erase(at, 1 + random() % 8); break;
            case 1: text.insert(at, 1 + random() % 8, pieces[random() % pieces.size()]); break;
            case 2: text[at] = pieces[random() % pieces.size()]; break;
            default: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
            }
        }
        return text;
    };
    std::size_t services = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string text = damaged(usual);
        for (const auto& one : upnp::read_description(text, {5000, "/rootDesc.xml"}, gateway)) {
            ++services;
            const bool is_sound = one.type.starts_with("urn:schemas-upnp-org:service:WAN") && one.type.size() < 60 &&
                                  one.control.path.starts_with('/') && one.control.port != 0 &&
                                  one.control.path.find_first_of(" \r\n") == std::string::npos;
            if (!is_sound) FAIL(text);
        }
        static_cast<void>(upnp::Reply(damaged(reply)).address("NewExternalIPAddress"));
        if (const auto place = upnp::read_found(damaged(found), gateway))
            if (!place->path.starts_with('/') || place->port == 0) FAIL(place->path);
    }
    CHECK(services > 1000);
}

TEST_CASE("UPnP: values of replies are read whole or not at all") {
    const upnp::Reply reply("<s:Envelope><s:Body><u:R><NewExternalIPAddress>203.0.113.11</NewExternalIPAddress>"
                            "<a>48149</a><b>48149x</b><c>99999999999</c><d>-1</d><e>0.0.0.0</e><f></f></u:R></s:Body>"
                            "</s:Envelope>");
    CHECK(reply.address("NewExternalIPAddress") == v4(203, 0, 113, 11));
    CHECK(reply.number("a") == 48149);
    for (const char* name : {"b", "c", "d", "e", "f", "g"}) {
        INFO(name);
        CHECK_FALSE(reply.number(name));
        CHECK_FALSE(reply.address(name));
    }
    CHECK(upnp::error_text(718).find("718, ConflictInMappingEntry") != std::string::npos);
    CHECK(upnp::error_text(123'456).starts_with("the router refuses with error 123456"));
}

TEST_CASE("UPnP: answers over HTTP are bounded in size and time") {
    upnp::HttpAnswer answer;
    std::string why;
    const auto ask = [&](FakeServer& server, const Patience& limit) {
        why.clear();
        answer = {};
        return upnp::http_ask(server.target, upnp::page_request(server.target, {server.target.port, "/"}), limit,
                              answer, why);
    };
    {
        FakeServer server([](const std::string&) { return page(std::string(65'536, 'x')); });
        CHECK(ask(server, patience()));
        CHECK(answer.status == 200);
        CHECK(answer.body.size() == 65'536);
    }
    {
        FakeServer server([](const std::string&) {
            return std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        });
        CHECK(ask(server, patience()));
        CHECK(answer.body == "abcde");
    }
    {
        FakeServer server([](const std::string&) { return std::string("HTTP/1.0 404 No\r\n\r\nto the end"); });
        CHECK(ask(server, patience()));
        CHECK(answer.status == 404);
        CHECK(answer.body == "to the end");
    }
    for (const std::string begin : {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n",
                                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n"}) {
        INFO(begin);
        const std::string endless = begin.ends_with("OK\r\n")             ? "A: b\r\n"
                                    : begin.ends_with("chunked\r\n\r\n") ? "3\r\nabc\r\n"
                                                                         : std::string(4096, 'x');
        FakeServer server([&](const std::string&) { return begin; }, endless);
        CHECK_FALSE(ask(server, patience()));
        CHECK(why.find("cannot be read") != std::string::npos);
    }
    for (const std::string broken : {"SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"}) {
        FakeServer server([&](const std::string&) { return broken; });
        CHECK_FALSE(ask(server, patience()));
        CHECK(why.find("cannot be read") != std::string::npos);
    }
    {
        FakeServer server([](const std::string&) { return std::string(); });
        CHECK_FALSE(ask(server, patience(300 * core::millisecond)));
        CHECK(why == "the router does not answer by HTTP in time");
        std::atomic<int> asked{0};
        CHECK_FALSE(ask(server, {EventLoop::now() + 3600 * core::second, [&] { return ++asked > 3; }}));
    }
    {
        core::Endpoint closed;
        { closed = FakeServer([](const std::string&) { return std::string(); }).target; }
        CHECK_FALSE(upnp::http_ask(closed, "x", patience(), answer, why));
        CHECK(why.find("connect") != std::string::npos);
    }
}

namespace {

// A gateway on loopback: it answers searches, and keeps one mapping.
class FakeGateway {
public:
    std::string outer_address = "203.0.113.11";
    std::string holder, inner_port = "1";  // of the port that is asked for; empty: nobody
    int add_error = 0;
    bool forwards_elsewhere = false;
    std::vector<std::string> added, removed;  // outer ports

    FakeGateway()
        : server_([this](const std::string& request) { return answer(request); }),
          search_([this](const Bytes& request) {
              const std::string text(request.begin(), request.end());
              if (!text.starts_with("M-SEARCH * HTTP/1.1\r\n")) return std::vector<Bytes>{};
              const std::string port = std::to_string(server_.target.port);
              const std::string here = replaced(found, "192.168.1.1:5000", "127.0.0.1:" + port);
              const std::string elsewhere = replaced(found, "192.168.1.1:5000", "127.0.0.2:" + port);
              return std::vector<Bytes>{{'x'}, bytes_of(elsewhere), bytes_of(here)};
          }) {}
    std::unique_ptr<Way> way() const { return make_upnp(search_.router(), search_.port); }

private:
    static std::string value(const std::string& request, const std::string& name) {
        const std::size_t found_at = request.find("<" + name + ">");
        if (found_at == std::string::npos) return {};
        const std::size_t begin = found_at + name.size() + 2;
        return request.substr(begin, request.find("</" + name + ">") - begin);
    }
    std::string answer(const std::string& request) {
        if (request.starts_with("GET /rootDesc.xml ")) return page(described(service("WANIPConnection:1", "/ctl")));
        if (!request.starts_with("POST /ctl ")) return page("", "404 Not Found");
        const auto is = [&](const char* name) {
            return request.find(std::string("SOAPAction: \"urn:schemas-upnp-org:service:WANIPConnection:1#") + name +
                                "\"\r\n") != std::string::npos;
        };
        const std::string port = value(request, "NewExternalPort");
        if (port != "" && value(request, "NewProtocol") != "TCP") return refusal(402);
        if (is("GetExternalIPAddress"))
            return page("<R><NewExternalIPAddress>" + outer_address + "</NewExternalIPAddress></R>");
        if (is("GetSpecificPortMappingEntry")) {
            if (holder.empty()) return refusal(714);
            return page("<R><NewInternalClient>" + holder + "</NewInternalClient><NewInternalPort>" + inner_port +
                        "</NewInternalPort><NewLeaseDuration>1200</NewLeaseDuration></R>");
        }
        if (is("AddPortMapping")) {
            if (add_error != 0) return refusal(std::exchange(add_error, add_error == 718 ? 0 : add_error));
            added.push_back(port);
            holder = forwards_elsewhere ? "192.168.1.77" : value(request, "NewInternalClient");
            inner_port = value(request, "NewInternalPort");
            return page("<R></R>");
        }
        if (is("DeletePortMapping")) {
            removed.push_back(port);
            return page("<R></R>");
        }
        return refusal(401);
    }
    FakeServer server_;
    FakeRouter search_;
};

}  // namespace

TEST_CASE("UPnP: a port is given, renewed and given back") {
    FakeGateway gateway;
    const auto way = gateway.way();
    Grant grant;
    std::string why;
    const bool mapped = way->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why);
    INFO(why);
    REQUIRE(mapped);
    CHECK(grant.outer == v4(203, 0, 113, 11, 48149));
    CHECK(grant.life_s == 1200);
    REQUIRE(way->map(48149, grant.outer, patience(), grant, why));
    CHECK(gateway.added == std::vector<std::string>{"48149", "48149"});
    way->forget(48149, grant);
    CHECK(gateway.removed == std::vector<std::string>{"48149"});
    std::optional<core::Endpoint> outer;
    CHECK(way->examine(patience(), outer, why));
    CHECK(outer == v4(203, 0, 113, 11));
}

TEST_CASE("UPnP: a port that another host has is left to it") {
    FakeGateway gateway;
    Grant grant;
    std::string why;
    SECTION("the router says so") {
        gateway.add_error = 718;
        REQUIRE(gateway.way()->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
        CHECK(grant.outer.port != 48149);
        CHECK(grant.outer.port >= 32'768);
    }
    SECTION("all that are tried") {
        gateway.holder = "192.168.1.77";
        CHECK_FALSE(gateway.way()->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
        CHECK(why == "other hosts have 4 ports of the router that were tried");
        CHECK(gateway.added.empty());
    }
    SECTION("the router does as if it had given it") {
        gateway.forwards_elsewhere = true;
        CHECK_FALSE(gateway.way()->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
    }
}

TEST_CASE("UPnP: the reason why there is no mapping") {
    FakeGateway gateway;
    Grant grant;
    std::string why;
    const auto asked = [&] {
        CHECK_FALSE(gateway.way()->map(48149, v4(0, 0, 0, 0, 48149), patience(), grant, why));
        return why;
    };
    SECTION("no outer address") {
        gateway.outer_address = "0.0.0.0";
        CHECK(asked() == "the router has no outer address");
        gateway.outer_address = "evil";
        CHECK(asked() == "the router has no outer address");
    }
    SECTION("only for ever") {
        gateway.add_error = 725;
        CHECK(asked() == "the router would forward the port for ever");
    }
    SECTION("refused") {
        gateway.add_error = 606;
        CHECK(asked().find("the router refuses with error 606") == 0);
    }
    SECTION("the router is elsewhere") {
        Router router{v4(127, 0, 0, 1), v4(127, 0, 0, 1), false};
        CHECK_FALSE(make_upnp(router, 1)->map(48149, {}, patience(), grant, why));
        CHECK(why == "the router is outside of the network of this host");
    }
    CHECK(grant.outer == core::Endpoint{});
}

TEST_CASE("UPnP: a search ends when it is stopped, or when nobody answers") {
    FakeRouter fake([](const Bytes&) { return std::vector<Bytes>{{'x'}}; });
    Grant grant;
    std::string why;
    CHECK_FALSE(make_upnp(fake.router(), fake.port)->map(48149, {}, patience(core::second), grant, why));
    CHECK(why == "the router does not answer");
    std::atomic<int> asked{0};
    const Patience stopped{EventLoop::now() + 3600 * core::second, [&] { return ++asked > 3; }};
    CHECK_FALSE(make_upnp(fake.router(), fake.port)->map(48149, {}, stopped, grant, why));
}
