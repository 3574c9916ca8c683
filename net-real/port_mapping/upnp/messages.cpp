#include "net-real/port_mapping/upnp/messages.hpp"

#include "core/base/format.hpp"
#include "net-real/port_mapping/router.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnperrors.h>
#include <miniupnpc/upnpreplyparse.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include <arpa/inet.h>

namespace pccl::real::upnp {

namespace {

namespace http = boost::beast::http;

constexpr std::size_t values_max = 64;

bool is_visible(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// It goes into our own requests.
bool is_known_type(std::string_view type) {
    for (const std::string_view known : {"urn:schemas-upnp-org:service:WANIPConnection:",
                                         "urn:schemas-upnp-org:service:WANPPPConnection:"}) {
        if (type.size() == known.size() + 1 && type.starts_with(known) && type.back() >= '1' && type.back() <= '9')
            return true;
    }
    return false;
}

// The fields of miniupnpc's structures are terminated.
std::optional<Service> service_of(const IGDdatas_service& given, const Place& base, const core::Endpoint& router) {
    const std::string_view url = given.controlurl;
    if (!is_known_type(given.servicetype) || url.empty() || !is_visible(url)) return std::nullopt;
    if (url.starts_with('/')) return Service{given.servicetype, {base.port, std::string(url)}};
    if (const auto place = read_url(url, router)) return Service{given.servicetype, *place};
    if (url.find(':') != std::string_view::npos) return std::nullopt;
    return Service{given.servicetype, {base.port, "/" + std::string(url)}};
}

}  // namespace

std::string search_request(std::string_view to) {
    return core::formatted("M-SEARCH * HTTP/1.1\r\nHOST: {}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n"
                           "ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\n\r\n",
                           to);
}

std::optional<Place> read_found(std::string_view datagram, const core::Endpoint& router) {
    http::response_parser<http::empty_body> parser;
    boost::beast::error_code error;
    parser.put(boost::asio::buffer(datagram.data(), datagram.size()), error);
    if (!parser.is_header_done() || parser.get().result() != http::status::ok) return std::nullopt;
    const auto location = parser.get()["Location"];
    return read_url({location.data(), location.size()}, router);
}

std::optional<Place> read_url(std::string_view url, const core::Endpoint& router) {
    const std::string begin = "http://" + host_text(router);
    if (!url.starts_with(begin) || !is_visible(url)) return std::nullopt;
    url.remove_prefix(begin.size());
    const std::size_t slash = std::min(url.find('/'), url.size());
    std::string_view port = url.substr(0, slash);
    Place place{80, slash == url.size() ? "/" : std::string(url.substr(slash))};
    if (port.empty()) return place;
    if (!port.starts_with(':')) return std::nullopt;
    port.remove_prefix(1);
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), place.port);
    if (code != std::errc{} || end != port.data() + port.size() || place.port == 0) return std::nullopt;
    return place;
}

std::vector<Service> read_description(const std::string& description, const Place& from,
                                      const core::Endpoint& router) {
    IGDdatas data{};
    ::parserootdesc(description.data(), static_cast<int>(description.size()), &data);
    std::vector<Service> found;
    std::optional<Place> base = from;
    if (data.urlbase[0] != '\0') base = read_url(data.urlbase, router);
    if (!base) return found;
    for (const IGDdatas_service* one : {&data.first, &data.second}) {
        if (auto service = service_of(*one, *base, router)) found.push_back(std::move(*service));
    }
    return found;
}

std::string page_request(const core::Endpoint& router, const Place& page) {
    return core::formatted("GET {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nUser-Agent: pccl UPnP/1.1\r\n\r\n",
                           page.path, host_text(router), page.port);
}

std::string command_request(const core::Endpoint& router, const Service& service, const char* command,
                            const Arguments& arguments) {
    std::string body =
        core::formatted("<?xml version=\"1.0\"?>\r\n<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" "
                        "s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body><u:{} xmlns:u=\"{}\">",
                        command, service.type);
    for (const auto& [name, value] : arguments) body += core::formatted("<{}>{}</{}>", name, value, name);
    body += core::formatted("</u:{}></s:Body></s:Envelope>\r\n", command);
    return core::formatted("POST {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nUser-Agent: pccl UPnP/1.1\r\n"
                           "Content-Type: text/xml; charset=\"utf-8\"\r\nSOAPAction: \"{}#{}\"\r\n"
                           "Content-Length: {}\r\n\r\n{}",
                           service.control.path, host_text(router), service.control.port, service.type, command,
                           body.size(), body);
}

// ---- Reply -------------------------------------------------------------------------------------------------------

Reply::Reply(const std::string& body) {
    NameValueParserData data{};
    ::ParseNameValue(body.data(), static_cast<int>(body.size()), &data);
    for (const NameValue* one = data.l_head; one != nullptr && values_.size() < values_max; one = one->l_next)
        values_.emplace_back(one->name, one->value);
    ::ClearNameValueList(&data);
}

std::string Reply::text(const char* name) const {
    for (const auto& [own, value] : values_) {
        if (own == name) return value;
    }
    return {};
}

std::optional<std::uint32_t> Reply::number(const char* name) const {
    const std::string digits = text(name);
    std::uint32_t value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

std::optional<core::Endpoint> Reply::address(const char* name) const {
    core::Endpoint found;
    if (::inet_pton(AF_INET, text(name).c_str(), found.address.data()) != 1 || found == core::Endpoint{})
        return std::nullopt;
    return found;
}

std::string error_text(std::uint32_t error) {
    const char* known = ::strupnperror(static_cast<int>(error));
    return core::formatted("the router refuses with error {}{}{}", error, known == nullptr ? "" : ", ",
                           known == nullptr ? "" : known);
}

}  // namespace pccl::real::upnp
