// Last message, abort and counters of a communicator, and pcclGetStats.
#include "core/base/format.hpp"
#include "net-real/c_api/door.hpp"

#include <cstring>

namespace pccl::c_api {

namespace {

// Writes a JSON object field by field. It escapes nothing: names are ours, values are numbers or hex digits of an
// identity.
class Json {
public:
    Json& open(const char* name = nullptr) { return put(name, "{", true); }
    Json& close() {
        text_ += '}';
        first_ = false;
        return *this;
    }
    Json& list(const char* name) { return put(name, "[", true); }
    Json& end_list() {
        text_ += ']';
        first_ = false;
        return *this;
    }
    Json& number(const char* name, std::uint64_t value) { return put(name, std::to_string(value), false); }
    Json& word(const char* name, const std::string& value) {
        return put(name, core::formatted("\"{}\"", value), false);
    }
    const std::string& text() const { return text_; }

private:
    Json& put(const char* name, const std::string& value, bool first_next) {
        if (!first_) text_ += ',';
        if (name != nullptr) text_ += core::formatted("\"{}\":", name);
        text_ += value;
        first_ = first_next;
        return *this;
    }
    std::string text_;
    bool first_ = true;
};

}  // namespace

void Communicator::remember(std::string message) noexcept {
    if (belongs_to_another_process()) return;
    const std::lock_guard lock(message_mutex_);
    message_ = std::move(message);
}

std::string Communicator::last_message() const {
    const std::lock_guard lock(message_mutex_);
    return message_;
}

Outcome Communicator::abort() {
    // Either this finds the runtime that connect() has started, or connect() finds this abort. Both are sequentially
    // consistent, so that not each can miss the other.
    ++aborts_;
    real::PeerRuntime* started = published_.load();
    if (started == nullptr) return success();
    return from(started->abort());
}

std::string Communicator::statistics() const {
    const real::PeerRuntime* started = runtime();
    const real::Statistics now = started == nullptr ? real::Statistics{} : started->statistics();
    const core::PeerStatistics& m = now.machine;
    Json json;
    json.open();
    json.open("membership")
        .number("connects", m.connects)
        .number("losses", m.losses)
        .number("topology_updates", m.topology_updates)
        .number("master_links_lost", m.master_links_lost)
        .number("epoch", m.epoch)
        .number("global_world", m.attributes.global_world)
        .number("group_world", m.attributes.group_world)
        .number("gangs", m.attributes.gangs)
        .number("votes_open", m.votes_open)
        .close();
    json.open("all_reduce")
        .number("launched", m.launches)
        .number("committed", m.committed)
        .number("aborted", m.aborted)
        .number("refused", m.refused)
        .number("retried", m.retried)
        .number("running", m.operations_running)
        .number("not_awaited", m.tags_open)
        .number("sent_bytes", m.payload_sent)
        .number("received_bytes", m.payload_received)
        .close();
    json.open("shared_state")
        .number("done", syncs_.done)
        .number("failed", syncs_.failed)
        .number("sent_bytes", syncs_.sent_bytes)
        .number("received_bytes", syncs_.received_bytes)
        .close();
    json.open("wire").number("refused_frames", m.refused_frames).number("late_frames", m.dead_frames).close();
    json.open("memory").number("scratch_bytes", now.scratch_bytes).number("shared_bytes", now.shared_bytes).close();
    json.list("neighbours");
    for (const core::PeerStatistics::Edge& edge : m.edges) {
        json.open()
            .word("peer", core::short_name(edge.peer))
            .number("connections", edge.connections)
            .number("open", edge.connections_open)
            .close();
    }
    json.end_list();
    json.close();
    return json.text();
}

}  // namespace pccl::c_api

using namespace pccl::c_api;

extern "C" PCCL_EXPORT pcclResult_t pcclGetStats(const pcclComm_t* comm, char* buffer, size_t size,
                                                 size_t* needed_out) {
    return on_communicator(
        "pcclGetStats", comm,
        [&]() -> Outcome {
            if (buffer == nullptr && size != 0) return invalid_argument("buffer is null while size is not 0");
            return success();
        },
        [&](Communicator& live) -> Outcome {
            const std::string text = live.statistics();
            if (needed_out != nullptr) *needed_out = text.size() + 1;
            if (buffer == nullptr) return success();
            if (size < text.size() + 1) {
                return invalid_argument(
                    pccl::core::formatted("the buffer has {} bytes, {} are needed", size, text.size() + 1));
            }
            std::memcpy(buffer, text.c_str(), text.size() + 1);
            return success();
        });
}
