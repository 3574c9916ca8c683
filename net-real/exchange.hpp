// One request and one answer over one connection, for threads that may block: enrolments, examinations of a network.
//
// Not thread-safe. Each wait ends when the time of the whole exchange is over, or when `stop` says so, which is asked
// every 50 ms.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/link.hpp"
#include "net-real/streams/stream.hpp"

#include <functional>
#include <memory>
#include <string>

namespace pccl::real {

class Exchange {
public:
    using Stop = std::function<bool()>;
    // The stream may still have to be opened.
    Exchange(std::unique_ptr<Stream> stream, const Stop& stop, core::Duration limit);

    // False: `error` names the cause.
    bool open(std::string& error);
    // After open(). Both are bodies of control frames.
    bool ask(const std::string& request, std::string& answer, std::string& error);

private:
    bool wait(short events, std::string& error);

    std::unique_ptr<Stream> stream_;
    const Stop& stop_;
    Link link_;
    const core::Duration limit_;
    const core::Instant deadline_;
};

}  // namespace pccl::real
