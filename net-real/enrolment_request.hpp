// The first frame of a connection that asks for a certificate, as the master takes it.
#pragma once

#include "net-real/link.hpp"

#include <cstddef>
#include <string>
#include <variant>

namespace pccl::real {

struct EnrolmentRequest final : EventSink {
    static constexpr std::size_t bytes_max = 16u << 10;

    explicit EnrolmentRequest(Link& from) : link(from) {}
    void on_event(const core::Event& event) override {
        if (const auto* control = std::get_if<core::ControlArrived>(&event);
            control != nullptr && !is_refused && control->body.size() <= bytes_max)
            body.assign(reinterpret_cast<const char*>(control->body.data()), control->body.size());
        else
            is_refused = true;
        has_come = true;
        link.close_input();
    }
    Link& link;
    std::string body;
    bool has_come = false;
    bool is_refused = false;  // what came is no control frame, or too long
};

}  // namespace pccl::real
