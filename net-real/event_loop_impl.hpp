// The inside of EventLoop, shared by event_loop.cpp (thread, turns, effects) and connections.cpp (sockets). It includes
// Asio, so nothing else may include it.
//
// A turn is the work that one ready socket, one timer or one batch of posted tasks causes. Within a turn events are
// handled one by one: handle_one, then the answers that are queued in pending_. Output leaves when the turn ends, so
// that frames for one link share a system call. Every turn does a bounded amount of work per link.
#pragma once

#include "net-real/event_loop.hpp"
#include "net-real/file_payloads.hpp"
#include "net-real/link.hpp"
#include "net-real/log_writer.hpp"
#include "net-real/staging_file.hpp"
#include "net-real/workers.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace pccl::real {

class EventLoop::Impl final : public EventSink {
public:
    Impl(LoopSettings settings, LoopClient& client);
    ~Impl();

    bool listen(const ListenRequest& request, std::string& error);
    bool start(std::string& error);
    bool post(std::function<void()> task);
    std::uint64_t computes_done() const { return computes_done_.load(std::memory_order_relaxed); }
    bool computes() const {
        const std::lock_guard lock(posted_mutex_);
        return computing_ != 0;
    }
    void request_stop();
    void join();
    void deliver(core::Event event) { pending_.push_back(std::move(event)); }
    void set_user_timeout(core::Duration user_timeout);
    void on_event(const core::Event& event) override;
    boost::asio::io_context& context() { return context_; }

    BufferTable buffers;
    std::uint16_t port = 0;

private:
    enum class State : std::uint8_t { dialing, open, flushing, draining, closed };
    struct Connection {
        Connection(boost::asio::io_context& context, core::LinkId id, int descriptor, const core::Limits& limits)
            : watch(context, descriptor), descriptor(descriptor), link(id, descriptor, limits) {}
        boost::asio::posix::stream_descriptor watch;
        int descriptor;
        Link link;
        State state = State::open;
        bool read_armed = false;
        bool write_armed = false;
        bool dirty = false;  // listed in dirty_
        bool unsent_limited = false;
        bool activity_due = false;
        std::uint64_t send_turn = 0;  // the turn that `sent_bytes` belongs to
        std::size_t sent_bytes = 0;
        core::Instant noticed = 0;  // when the machine last got an event of the link
        core::Instant close_at = core::never;
    };
    using ConnectionRef = std::shared_ptr<Connection>;

    static constexpr core::Duration flush_time = 1 * core::second;  // for closed links, and when the loop stops

    // thread
    void thread_main();
    void run();
    void tear_down() noexcept;
    core::Instant own_deadline() const;
    void own_timers(core::Instant now);
    void run_posted();
    void begin_stop();

    // turns
    void begin_turn();
    void finish_turn();
    void handle_pending();
    void handle_one(const core::Event& event);
    void carry_out(core::Effect& effect);
    void compute(const core::Compute& effect);
    struct Computed;
    bool submit(Workers& workers, std::function<Computed()> work);
    void computed(Computed done) noexcept;
    void give_payload(Connection& connection, const core::SendPayload& command, const std::uint8_t* source);
    void read_payload(Connection& connection, const core::SendPayload& command);
    void payload_read(const std::shared_ptr<FileRead>& read);
    void receive_payload(Connection& connection, const core::ReceivePayload& command);
    void cancel_send(Connection& connection);
    void wake() noexcept;

    // memory
    void allocate(const core::AllocateBuffer& effect);
    void file_made(core::BufferId id);
    void examine_files(core::Instant now);

    // links
    Connection* find(core::LinkId id);
    Connection* find_with_room(core::LinkId id, std::size_t bytes);
    ConnectionRef make_connection(core::LinkId id, int descriptor);
    void open_link(const core::OpenLink& effect);
    void close_link(const core::CloseLink& effect);
    void shut_connection(const ConnectionRef& connection, bool flush);
    void make_room_for_flushing(const Connection& next);
    void destroy(const ConnectionRef& connection);
    void lose(const ConnectionRef& connection, const std::string& reason);
    void mark_dirty(Connection& connection);
    void arm_read(const ConnectionRef& connection);
    void arm_write(const ConnectionRef& connection);
    void on_readable(const ConnectionRef& connection);
    void on_writable(const ConnectionRef& connection);
    void receive_from(const ConnectionRef& connection);
    bool drop_input(const ConnectionRef& connection);  // false: end of the input, or an error
    void pump(const ConnectionRef& connection);
    void arm_accept();
    void on_acceptable();

    LoopSettings settings_;
    LoopClient& client_;
    boost::asio::io_context context_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_.get_executor()};
    boost::asio::posix::stream_descriptor listener_watch_{context_};
    int listener_ = -1;
    core::Instant accept_resume_ = core::never;
    bool accept_armed_ = false;
    std::optional<LogWriterUse> log_use_;  // exists while the thread may log
    std::thread thread_;

    mutable std::mutex posted_mutex_;
    std::vector<std::function<void()>> posted_;
    std::vector<std::function<void()>> posted_now_;
    // Results of workers. Storing one must not fail if memory is short: there is always room for all that are under
    // way.
    struct Computed {
        core::ComputeDone done;
        bool failed = false;
        std::shared_ptr<FileRead> read;  // if set, this is the result and `done` is unused
    };
    std::vector<Computed> computed_;  // its capacity is at least its size plus computing_
    std::vector<Computed> computed_now_;
    std::size_t computing_ = 0;
    std::atomic<std::uint64_t> computes_done_{0};
    std::atomic<bool> wake_missed_{false};  // no memory to wake the loop; it looks for tasks by itself
    bool ended_ = false;
    bool stop_requested_ = false;

    struct FileInTheMaking {
        std::shared_ptr<StagingFile> file;
        std::uint64_t bytes = 0;
        std::uint64_t pieces = 0;  // their number at the last examination
        int stalls = 0;            // examinations in a row without a new piece
        core::Instant examine_at = 0;
    };
    std::string staging_directory_;
    std::unordered_map<core::BufferId, FileInTheMaking> files_;
    std::vector<std::weak_ptr<StagingFile>> stuck_files_;  // given up; for each live one a thread still waits
    FilePayloads file_payloads_{buffers};

    std::unordered_map<core::LinkId, ConnectionRef> links_;  // links that the machine knows
    std::vector<ConnectionRef> closing_;                     // closed by the machine and still flushed, oldest first
    core::LinkId next_link_ = 2;
    std::deque<ConnectionRef> dirty_;
    std::deque<core::Event> pending_;
    std::vector<core::Event> sent_events_;
    core::Effects effects_;
    ReceiveSpace space_;
    Workers workers_;
    Workers file_workers_;  // for work on files: if the disk hangs, nothing else waits for it
    std::uint64_t turn_ = 0;
    std::uint64_t inline_bytes_ = 0;
    bool in_handle_ = false;
    bool stopping_ = false;
    bool finished_ = false;
    core::Instant stop_at_ = core::never;
    std::string halt_reason_;
};

}  // namespace pccl::real
