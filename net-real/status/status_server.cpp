#include "net-real/status/status_server.hpp"

#include "net-real/sockets.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <string_view>
#include <unistd.h>

namespace pccl::real {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Shared = std::shared_ptr<const std::string>;

namespace {

constexpr std::size_t request_bytes_max = 8u << 10;
constexpr std::size_t drained_bytes_max = 64u << 10;
constexpr auto request_time = std::chrono::seconds(5);
constexpr auto response_time = std::chrono::seconds(10);
constexpr auto farewell_time = std::chrono::seconds(1);
constexpr auto page_age = std::chrono::milliseconds(250);
constexpr auto accept_pause = std::chrono::seconds(1);

// A page. It is made again only on request, and only if the last one is too old.
class Page {
public:
    explicit Page(std::function<std::string()> make) : make_(std::move(make)) {}
    Shared get() {
        if (page_ == nullptr || Clock::now() - made_ >= page_age) {
            page_ = std::make_shared<const std::string>(make_());
            made_ = Clock::now();
        }
        return page_;
    }

private:
    std::function<std::string()> make_;
    Shared page_;
    Clock::time_point made_;
};

std::string_view without_port(std::string_view host) {
    const auto colon = host.rfind(':');
    return colon == std::string_view::npos ? host : host.substr(0, colon);
}

// An IPv4 address or an IPv6 address in brackets, perhaps with a port.
bool is_address(std::string_view host) {
    beast::error_code code;
    if (!host.empty() && host.front() == '[') {
        const auto end = host.find(']');
        if (end == std::string_view::npos) return false;
        asio::ip::make_address_v6(std::string(host.substr(1, end - 1)), code);
        return !code;
    }
    asio::ip::make_address_v4(std::string(without_port(host)), code);
    return !code;
}

// Memory may run out and libraries may throw. A visitor must never end a run.
template <class Work>
bool carefully(const Work& work) {
    try {
        work();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace

class StatusServer::Door : public std::enable_shared_from_this<StatusServer::Door> {
public:
    Door(asio::io_context& context, Pages pages, std::vector<std::string> names)
        : acceptor_(context), pause_(context), json_(std::move(pages.json)), text_(std::move(pages.text)),
          names_(std::move(names)) {
        names_.emplace_back("localhost");
        std::array<char, 256> own{};
        if (::gethostname(own.data(), own.size() - 1) == 0) names_.emplace_back(own.data());
    }

    bool listen(const core::Endpoint& address, std::string& error) {
        const int listener = listen_on({address, address.port, address.port,
                                        "; another program listens there: stop it, or give --status another port"},
                                       port_, error);
        if (listener < 0) return false;
        beast::error_code code;
        acceptor_.assign(address.is_v6 ? tcp::v6() : tcp::v4(), listener, code);
        if (code) {
            close_socket(listener);
            error = "cannot serve the status: " + code.message();
            return false;
        }
        accept();
        return true;
    }
    std::uint16_t port() const { return port_; }
    Page& json() { return json_; }
    Page& text() { return text_; }
    bool goes_by(std::string_view host) const {
        return is_address(host) || std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
                   return beast::iequals(without_port(host), name);
               });
    }

private:
    class Visit;
    using Visits = std::list<std::weak_ptr<Visit>>;

    void accept();
    void accepted(const beast::error_code& code, tcp::socket socket);

    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    std::uint16_t port_ = 0;
    Page json_, text_;
    std::vector<std::string> names_;
    Visits visits_;  // the oldest first
};

// One connection: one request, one answer, the end.
class StatusServer::Door::Visit : public std::enable_shared_from_this<StatusServer::Door::Visit> {
public:
    Visit(std::shared_ptr<Door> door, tcp::socket socket) : door_(std::move(door)), stream_(std::move(socket)) {
        parser_.header_limit(request_bytes_max);
    }

    void start() {
        stream_.expires_after(request_time);
        http::async_read_header(stream_, buffer_, parser_,
                                [self = shared_from_this()](const beast::error_code& code, std::size_t) {
                                    if (!carefully([&] { self->answer(code); })) self->end();
                                });
    }
    void end() { stream_.close(); }

private:
    void answer(const beast::error_code& code) {
        if (code == http::error::header_limit || code == http::error::buffer_overflow)
            return say(http::status::request_header_fields_too_large, "the request is too large\n");
        // A client that went away, or was too slow, gets no answer.
        if (code && code.category() != beast::error_code(http::error::bad_method).category()) return end();
        if (code == http::error::end_of_stream || code == http::error::partial_message) return end();
        if (code) return say(http::status::bad_request, "this is no HTTP request\n");
        const auto method = parser_.get().method();
        if (method != http::verb::get && method != http::verb::head)
            return say(http::status::method_not_allowed, "only GET and HEAD\n");
        // Browsers always send a Host, so a request without one comes from no browser.
        const auto host = parser_.get().find(http::field::host);
        if (host != parser_.get().end() && !door_->goes_by({host->value().data(), host->value().size()}))
            return say(http::status::misdirected_request,
                       "this server does not go by that name; ask it by its address, or name it with --status\n");
        const auto target = parser_.get().target();
        const auto path = target.substr(0, target.find('?'));
        if (path == "/status") return send(http::status::ok, "application/json", door_->json().get());
        if (path == "/") return send(http::status::ok, "text/plain; charset=utf-8", door_->text().get());
        say(http::status::not_found, "try / or /status\n");
    }

    void say(http::status status, const char* text) {
        send(status, "text/plain; charset=utf-8", std::make_shared<const std::string>(text));
    }

    void send(http::status status, const char* type, Shared body) {
        body_ = std::move(body);
        response_.result(status);
        response_.version(11);
        response_.keep_alive(false);
        response_.set(http::field::server, "pccl-master");
        response_.set(http::field::content_type, type);
        response_.set(http::field::cache_control, "no-store");
        response_.set("X-Content-Type-Options", "nosniff");
        if (status == http::status::method_not_allowed) response_.set(http::field::allow, "GET, HEAD");
        response_.content_length(body_->size());
        if (parser_.is_header_done() && parser_.get().method() == http::verb::head)
            body_ = std::make_shared<const std::string>();
        response_.body() = {body_->data(), body_->size()};
        serializer_.emplace(response_);
        stream_.expires_after(response_time);
        http::async_write(stream_, *serializer_,
                          [self = shared_from_this()](const beast::error_code& code, std::size_t) {
                              if (code || !carefully([&] { self->farewell(); })) self->end();
                          });
    }

    // Closing with unread input would destroy the answer on its way. So what the other end still sends is read and
    // dropped.
    void farewell() {
        beast::error_code ignored;
        stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
        stream_.expires_after(farewell_time);
        drain();
    }
    void drain() {
        stream_.async_read_some(asio::buffer(dropped_),
                                [self = shared_from_this()](const beast::error_code& code, std::size_t bytes) {
                                    self->dropped_bytes_ += bytes;
                                    const bool over = code || self->dropped_bytes_ > drained_bytes_max;
                                    if (over || !carefully([&] { self->drain(); })) self->end();
                                });
    }

    std::shared_ptr<Door> door_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_{request_bytes_max};
    http::request_parser<http::empty_body> parser_;
    Shared body_;
    http::response<http::span_body<const char>> response_;
    std::optional<http::response_serializer<http::span_body<const char>>> serializer_;
    std::array<char, 1024> dropped_{};
    std::size_t dropped_bytes_ = 0;
};

void StatusServer::Door::accept() {
    acceptor_.async_accept([self = shared_from_this()](const beast::error_code& code, tcp::socket socket) {
        if (!carefully([&] { self->accepted(code, std::move(socket)); })) (void)carefully([&] { self->accept(); });
    });
}

void StatusServer::Door::accepted(const beast::error_code& code, tcp::socket socket) {
    if (code == asio::error::operation_aborted) return;
    if (code) {
        // Most likely out of descriptors.
        pause_.expires_after(accept_pause);
        pause_.async_wait([self = shared_from_this()](const beast::error_code& gone) {
            if (!gone) (void)carefully([&] { self->accept(); });
        });
        return;
    }
    std::erase_if(visits_, [](const std::weak_ptr<Visit>& visit) { return visit.expired(); });
    if (visits_.size() >= connections_max) {
        if (const auto oldest = visits_.front().lock()) oldest->end();
        visits_.pop_front();
    }
    const auto visit = std::make_shared<Visit>(shared_from_this(), std::move(socket));
    visits_.push_back(visit);
    visit->start();
    accept();
}

StatusServer::StatusServer(asio::io_context& context, Pages pages, std::vector<std::string> names)
    : door_(std::make_shared<Door>(context, std::move(pages), std::move(names))) {}
StatusServer::~StatusServer() = default;
bool StatusServer::listen(const core::Endpoint& address, std::string& error) { return door_->listen(address, error); }
std::uint16_t StatusServer::port() const { return door_->port(); }

}  // namespace pccl::real
