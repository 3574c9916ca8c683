// A client of an event loop that has no deadline, and ignores what a test does not look at.
#pragma once

#include "net-real/event_loop.hpp"

#include <string>
#include <string_view>

namespace pccl::real {

class QuietClient : public LoopClient {
public:
    void start(core::Instant, core::Effects&) override {}
    core::Instant next_deadline() const override { return core::never; }
    void shut_down(core::Instant, core::Effects&) override {}
    void complete(const core::Complete&) override {}
    void set_attributes(const core::Attributes&) override {}
    void log(Severity, std::string_view) override {}
    void ended(const std::string&) override {}
};

}  // namespace pccl::real
