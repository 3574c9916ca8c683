// Records a run for people: processes, pauses, calls, messages, and events with the state after each.
//
// The world and its drivers call the recorder only if one is attached. It must not change the run or its trace hash. It
// is bounded: of the entries (events, effects, messages), those numbered `skip` to `skip + entries_max` are kept. The
// others are only counted, and truncated() is true then. Processes, pauses and calls are few and kept in full.
//
// A message is a frame in flight. Frames in one direction of a connection arrive in the order in which they left. Bulk
// frames have an order of their own, because control frames overtake a bulk frame that has not begun. So sent and
// arrived frames are matched first in, first out. Frames that the receiving end did not take are lost.
#pragma once

#include "core/base/ids.hpp"
#include "core/events.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace pccl::sim {

class Recorder {
public:
    using Instant = core::Instant;
    using Text = std::uint32_t;  // index into texts()
    static constexpr std::uint32_t none = 0xffffffffu;

    struct Bounds {
        std::uint64_t entries_max = 100'000;
        std::uint64_t skip = 0;
    };
    enum class Kind : std::uint8_t { control, flow, bulk };
    enum class Fate : std::uint8_t {
        on_the_way,
        arrived,
        lost,
        withdrawn
    };  // withdrawn: cancelled before its first byte

    struct Life {
        std::uint32_t node = 0;
        Instant begin = 0;
        Instant end = core::never;  // never: alive at the end of the run
        std::string how;            // how it ended
    };
    struct Pause {
        std::uint32_t node = 0;
        Instant begin = 0, end = 0;
    };
    struct Call {  // one ticket
        std::uint32_t node = 0;
        core::Ticket ticket = 0;
        std::size_t command = 0;  // index in core::Command
        Instant begin = 0;
        Instant end = core::never;  // never: not answered while the process lived
        std::string text;
        core::Result result = core::Result::success;
        std::string message;
    };
    struct Message {
        Kind kind = Kind::control;
        Fate fate = Fate::on_the_way;
        std::uint32_t from = 0, to = 0;
        Instant sent = 0;   // handed to the link
        Instant ended = 0;  // arrived completely, or known to be lost
        Text text = 0;
        std::uint32_t sent_step = none, arrived_step = none;
    };
    struct Step {  // one event of a node and its effects
        Instant at = 0;
        std::uint32_t node = 0;
        Text event = 0;
        Text state = 0;  // the machine's own description of its state afterwards
        std::uint32_t effects_begin = 0, effects_count = 0;
    };
    struct Log {
        Instant at = 0;
        std::uint32_t node = 0;
        core::LogLevel level = core::LogLevel::info;
        Text text = 0;
    };

    Recorder() : Recorder(Bounds{}) {}
    explicit Recorder(const Bounds& bounds) : bounds_(bounds) { (void)intern(""); }

    // --- from the world ----------------------------------------------------------------------------------------------
    void process_starts(Instant now, std::uint32_t node);
    void process_ends(Instant now, std::uint32_t node, const std::string& how);
    void explain_end(std::uint32_t node,
                     const std::string& how);  // replaces the text of the node's last process end
    void paused(Instant now, std::uint32_t node, core::Duration duration);

    // --- from a driver -----------------------------------------------------------------------------------------------
    // True if the next entry is kept. Otherwise its text need not be built.
    bool keeps() const { return entries_ >= bounds_.skip && entries_ - bounds_.skip < bounds_.entries_max; }
    void step(Instant now, std::uint32_t node, const std::string& event, const std::string& state);
    void effect(const std::string& text);
    void log(Instant now, std::uint32_t node, core::LogLevel level, const std::string& text);
    void call_begins(Instant now, std::uint32_t node, core::Ticket ticket, std::size_t command, std::string text);
    void call_ends(Instant now, std::uint32_t node, core::Ticket ticket, core::Result result,
                   const std::string& message);
    // `listener` is called for every log line of every machine, kept or not.
    void listen(std::function<void(const std::string& text)> listener) { listener_ = std::move(listener); }
    void introduced(const std::string& name, std::uint32_t node) { names_[name] = node; }

    void link_begins(std::uint32_t connection, std::uint32_t side, std::uint32_t node);
    void link_ends(Instant now, std::uint32_t connection, std::uint32_t side);
    void sent(Instant now, Kind kind, std::uint32_t connection, std::uint32_t side, std::uint32_t from,
              std::uint32_t to, const std::string& text);
    void withdrawn(std::uint32_t connection, std::uint32_t side);                        // marks the newest bulk frame
    void arrived(Instant now, std::uint32_t connection, std::uint32_t side, bool bulk);  // `side` sent it

    // --- afterwards --------------------------------------------------------------------------------------------------
    std::uint64_t entries() const { return entries_; }  // kept or not
    bool truncated() const { return entries_ > bounds_.entries_max; }
    const Bounds& bounds() const { return bounds_; }
    const std::vector<Life>& lives() const { return lives_; }
    const std::vector<Pause>& pauses() const { return pauses_; }
    const std::vector<Call>& calls() const { return calls_; }
    const std::vector<Message>& messages() const { return messages_; }
    const std::vector<Step>& steps() const { return steps_; }
    const std::vector<Text>& effects() const { return effects_; }
    const std::vector<Log>& logs() const { return logs_; }
    const std::vector<std::string>& texts() const { return texts_; }
    const std::map<std::string, std::uint32_t>& names() const { return names_; }  // of peers, by their names in logs

private:
    struct Direction {
        std::deque<std::uint32_t> frames[2];  // indices into messages_ (or none); [1]: bulk
        std::uint32_t node = none;            // owner of the sending end
        bool held = false;                    // the sending end is open
        bool deaf = false;                    // the receiving end is gone
    };
    Direction& direction(std::uint32_t connection, std::uint32_t side);
    Text intern(const std::string& text);
    bool count_entry();
    void lose(Instant now, Direction& direction);

    Bounds bounds_;
    std::uint64_t entries_ = 0;
    std::vector<Life> lives_;
    std::vector<Pause> pauses_;
    std::vector<Call> calls_;
    std::vector<Message> messages_;
    std::vector<Step> steps_;
    std::vector<Text> effects_;
    std::vector<Log> logs_;
    std::vector<std::string> texts_;
    std::map<std::string, Text> known_;
    std::map<std::string, std::uint32_t> names_;
    std::function<void(const std::string&)> listener_;
    std::vector<Direction> directions_;  // by connection and side
    std::uint32_t step_ = none;          // the step that effects belong to
    std::uint32_t arriving_ = none;      // message that the next step handles
};

}  // namespace pccl::sim
