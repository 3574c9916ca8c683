// A read-only HTTP/1.1 server on a loop that does other work: GET /status (JSON) and GET / (text). No path changes
// anything.
//
// Everything is bounded: connections (a further one ends the oldest), 8 KiB per request, seconds for each step, one
// request per connection. Pages are made at most four times a second, however many clients ask. No client can disturb
// the loop's other work: no exception leaves the server, and the server waits for no reader.
#pragma once

#include "core/base/ids.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace pccl::real {

class StatusServer {
public:
    // Both are called on the loop's thread.
    struct Pages {
        std::function<std::string()> json;
        std::function<std::string()> text;
    };
    // `context` must outlive the server's handlers: they end with it, not with this object. A request is answered if
    // its Host is an address, `localhost`, the name of this machine or one of `names`. This stops DNS rebinding: a web
    // page whose name was made to lead here has another Host, and must not read what a browser on this machine can
    // reach.
    StatusServer(boost::asio::io_context& context, Pages pages, std::vector<std::string> names = {});
    ~StatusServer();
    StatusServer(const StatusServer&) = delete;
    StatusServer& operator=(const StatusServer&) = delete;

    // Before the loop runs. Port 0: any free one. False: `error` names the cause.
    bool listen(const core::Endpoint& address, std::string& error);
    std::uint16_t port() const;

    static constexpr std::size_t connections_max = 16;

private:
    class Door;
    std::shared_ptr<Door> door_;
};

}  // namespace pccl::real
