#include "net-real/exchange.hpp"

#include "core/base/format.hpp"
#include "net-real/event_loop.hpp"

#include <cerrno>
#include <cstring>
#include <vector>

#include <poll.h>

namespace pccl::real {

namespace {

constexpr int poll_ms = 50;

struct AnswerSink final : EventSink {
    explicit AnswerSink(Link& from) : link(from) {}
    void on_event(const core::Event& event) override {
        if (const auto* control = std::get_if<core::ControlArrived>(&event)) {
            body.assign(reinterpret_cast<const char*>(control->body.data()), control->body.size());
            has_body = true;
        } else if (const auto* refused = std::get_if<core::FrameRefused>(&event)) {
            why = core::wire::to_text(refused->error);
        }
        is_over = true;
        link.close_input();
    }
    Link& link;
    std::string body, why;
    bool has_body = false;
    bool is_over = false;
};

}  // namespace

Exchange::Exchange(std::unique_ptr<Stream> stream, const Stop& stop, core::Duration limit)
    : stream_(std::move(stream)), stop_(stop), link_(1, *stream_, core::Limits{}), limit_(limit),
      deadline_(EventLoop::now() + limit) {}

bool Exchange::open(std::string& error) {
    // A connection that was dialled is not made yet, unless the path is very short.
    for (;;) {
        if (!wait(stream_->opening_wait() == Stream::Wait::writable ? POLLOUT : POLLIN, error)) return false;
        switch (stream_->open(error)) {
        case Stream::Opening::open: return true;
        case Stream::Opening::failed: return false;
        case Stream::Opening::waiting: break;
        }
    }
}

bool Exchange::ask(const std::string& request, std::string& answer, std::string& error) {
    link_.queue_control(request);
    AnswerSink sink(link_);
    ReceiveSpace space;
    std::vector<core::Event> sent;
    while (!sink.is_over) {
        const Link::Outcome out = link_.send(1u << 20, sent);
        if (out.progress == Link::Progress::closed || !stream_->send_unsent()) {
            error = core::formatted("the master closed the connection ({})", out.reason);
            return false;
        }
        const Link::Outcome in = link_.receive(space, sink, 1u << 20);
        if (sink.is_over) break;
        if (in.progress == Link::Progress::closed) {
            error = core::formatted("the master closed the connection without an answer ({})", in.reason);
            return false;
        }
        const bool writes = link_.has_output() || stream_->has_unsent();
        if (!wait(static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), error)) return false;
    }
    answer = std::move(sink.body);
    if (!sink.has_body)
        error = core::formatted("the master's answer cannot be read{}{}; do both ends run the same version?",
                                sink.why.empty() ? "" : ": ", sink.why);
    return sink.has_body;
}

bool Exchange::wait(short events, std::string& error) {
    for (;;) {
        pollfd one{stream_->descriptor(), events, 0};
        const int ready = ::poll(&one, 1, poll_ms);
        // Also if bytes trickle in: whoever is there must not hold the caller for longer.
        if (ready > 0 && EventLoop::now() <= deadline_) return true;
        if (ready < 0 && errno != EINTR) {
            error = std::string("poll: ") + std::strerror(errno);
            return false;
        }
        if (stop_ && stop_()) {
            error = "ended by the caller";
            return false;
        }
        if (EventLoop::now() > deadline_) {
            error = core::formatted("no answer within {} s", limit_ / core::second);
            return false;
        }
    }
}

}  // namespace pccl::real
