// Data that the parts of a machine share while it handles one event: the time, the effects, the settings and the random
// source.
//
// The machine owns one Turn and begins it with each event. Parts hold a reference to it and use it only inside
// handle(). A Turn decides nothing. Between two events it keeps only the time of the last event and the state of the
// random source.
#pragma once

#include "core/base/limits.hpp"
#include "core/base/random.hpp"
#include "core/base/timeouts.hpp"
#include "core/events.hpp"

#include <string>
#include <utility>

namespace pccl::core {

struct Turn {
    Turn(const Limits& limits_, const Timeouts& timeouts_, std::uint64_t seed)
        : limits(limits_), timeouts(timeouts_), random(seed) {}

    void begin(Instant now_, Effects& out) {
        now = now_;
        effects = &out;
    }
    void end() { effects = nullptr; }

    void add(Effect effect) { effects->push_back(std::move(effect)); }
    void log(LogLevel level, std::string text, bool for_caller = false) {
        add(Log{level, std::move(text), for_caller});
    }

    const Limits& limits;
    const Timeouts& timeouts;
    Random random;
    Instant now = 0;             // time of the current event, or of the last one
    Effects* effects = nullptr;  // of the current event; null between two events
};

}  // namespace pccl::core
