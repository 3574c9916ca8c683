#include "net-real/port_mapping/upnp/http.hpp"

#include "net-real/sockets.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

namespace pccl::real::upnp {

namespace http = boost::beast::http;

namespace {

class Connection {
public:
    Connection(const core::Endpoint& target, std::string& why) : descriptor_(dial(target, std::nullopt, why)) {}
    ~Connection() { close_socket(descriptor_); }
    Connection(const Connection&) = delete;

    bool send(std::string_view request, const Patience& patience, std::string& why) {
        while (!request.empty()) {
            if (!wait_for(descriptor_, POLLOUT, patience)) return gave_up(why);
            if (why = dial_result(descriptor_); !why.empty()) return false;
            const ssize_t sent = ::send(descriptor_, request.data(), request.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) return failed(why);
            if (sent > 0) request.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    bool receive(const Patience& patience, HttpAnswer& answer, std::string& why) {
        http::response_parser<http::string_body> parser;
        parser.header_limit(header_bytes_max);
        parser.body_limit(body_bytes_max);
        parser.eager(true);
        std::string pending;  // bytes that the parser has not taken: at most a header, and a part
        std::array<char, 4096> part;
        boost::beast::error_code error;
        while (!parser.is_done()) {
            if (!wait_for(descriptor_, POLLIN, patience)) return gave_up(why);
            const ssize_t got = ::recv(descriptor_, part.data(), part.size(), 0);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (got < 0) return failed(why);
            if (got == 0) {
                parser.put_eof(error);
            } else {
                pending.append(part.data(), static_cast<std::size_t>(got));
                pending.erase(0, parser.put(boost::asio::buffer(pending), error));
                if (error == http::error::need_more && pending.size() <= header_bytes_max) error = {};
            }
            if (error || (got == 0 && !parser.is_done())) {
                why = "its answer by HTTP cannot be read: " + (error ? error.message() : std::string("it is cut off"));
                return false;
            }
        }
        answer.status = parser.get().result_int();
        answer.body = std::move(parser.get().body());
        return true;
    }
    bool is_open() const { return descriptor_ >= 0; }

private:
    static bool gave_up(std::string& why) {
        why = "the router does not answer by HTTP in time";
        return false;
    }
    static bool failed(std::string& why) {
        why = std::string("its HTTP connection failed: ") + std::strerror(errno);
        return false;
    }

    const int descriptor_;
};

}  // namespace

bool http_ask(const core::Endpoint& target, std::string_view request, const Patience& patience, HttpAnswer& answer,
              std::string& why) {
    Connection connection(target, why);
    return connection.is_open() && connection.send(request, patience, why) &&
           connection.receive(patience, answer, why);
}

}  // namespace pccl::real::upnp
