// The implementation of EventLoop, in event_loop.cpp (thread, turns, effects), connections.cpp (streams),
// openings.cpp (streams that are not open yet), computes.cpp and rounds.cpp (payload that several threads move). Only
// these include this header, so that Asio stays out of all users of EventLoop.
//
// A turn is the work that one ready socket, one timer or one batch of posted tasks causes. Within a turn, handle_one
// gives one event at a time to the machine; then handle_pending gives it the events in pending_. Frames are sent when
// the turn ends, so that frames for one link share a system call. Every turn does a bounded amount of work per link.
//
// While the loop's thread runs, it alone calls the private functions, except wake (any thread) and computed (workers).
// event_loop.hpp names the public functions that any thread may call.
#pragma once

#include "core/compute.hpp"
#include "net-real/crew.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/file_payloads.hpp"
#include "net-real/line_budget.hpp"
#include "net-real/link.hpp"
#include "net-real/log_writer.hpp"
#include "net-real/staging_file.hpp"
#include "net-real/streams/own_addresses.hpp"
#include "net-real/streams/shared_stream.hpp"
#include "net-real/streams/stream.hpp"
#include "net-real/streams/tls_stream.hpp"
#include "net-real/workers.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
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
    void request_stop();  // needs no memory
    void join();
    void deliver(core::Event event) { pending_.push_back(std::move(event)); }
    void set_user_timeout(core::Duration user_timeout);
    std::uint64_t shared_memory_bytes() const { return shared_use_.bytes; }
    void set_tls(TlsUse use);
    void answer_enrolment(core::LinkId link, const std::string& body);
    void drop_not_admitted();
    void on_event(const core::Event& event) override;
    boost::asio::io_context& context() { return context_; }
    core::ComputeMemory memory_of(const core::Compute& effect);

    BufferTable buffers;
    std::uint16_t port = 0;

private:
    // greeting: accepted, but its stream is not open yet, and the machine does not know it.
    // enrolling: an authenticated stream that asks for a certificate. The machine never knows it.
    // flushing: the machine has closed the link, and queued output is still sent.
    // draining: all output is sent, the write side is shut down, and input is dropped until the other end closes.
    enum class State : std::uint8_t { dialing, greeting, enrolling, open, flushing, draining, closed };
    struct Connection {
        Connection(boost::asio::io_context& context, core::LinkId id, std::unique_ptr<Stream> carrier,
                   const core::Limits& limits)
            : stream(std::move(carrier)), watch(context, stream->descriptor()), link(id, *stream, limits) {}
        ~Connection() {
            if (watch.is_open()) watch.release();  // the stream closes the descriptor
        }
        std::unique_ptr<Stream> stream;
        boost::asio::posix::stream_descriptor watch;
        Link link;
        State state = State::open;
        // What each direction waits for; nothing: it does not wait. Opening waits like output.
        std::optional<Stream::Wait> input_wait;
        std::optional<Stream::Wait> output_wait;
        // Whether the loop will call on_ready() for that readiness. One call serves all that waits when it comes.
        std::array<bool, 3> expected{};
        bool dirty = false;           // listed in dirty_
        bool receiving = false;       // listed in receiving_
        std::size_t round_job = 0;    // of round_jobs_, while a round is put together
        std::uint64_t send_turn = 0;  // the turn that `sent_bytes` belongs to
        std::size_t sent_bytes = 0;   // sent in that turn
        core::Instant noticed = 0;    // when the link was opened, or last gave the machine an event
        // When an opening is given up, or a closed link is destroyed although the other end is still open.
        core::Instant close_at = core::never;
        std::optional<core::OpenLink> by_tcp;  // if the stream cannot be opened, this is dialled by TCP
        TlsStream* tls = nullptr;              // the stream, if it is one
        bool to_master = false;                // dialled: the master is at the other end
        core::Uuid wanted;                          // dialled: who must be there; nil: the master
        core::Endpoint remote;                      // accepted by TCP
        std::optional<tls::CertificateName> other;  // accepted: the certificate that was shown
    };
    using ConnectionRef = std::shared_ptr<Connection>;
    // What became of output that was offered to a stream.
    struct Sent {
        Link::Outcome outcome;
        bool is_full = false;  // the system has not taken what an earlier call gave; nothing more was offered
        std::string failure;   // of that
        std::vector<core::Event> events;
    };

    // Limits one link in a turn, so that the other links and the timers are served too.
    static constexpr std::size_t receive_budget_bytes = 512u << 10;
    static constexpr core::Duration flush_time = 1 * core::second;  // limit for closed links, and for the loop's stop

    // thread
    struct Live;
    static Live& live();
    [[gnu::constructor]] static void make_live();
    static void end_tls();
    void thread_begins();
    void thread_ends();
    void thread_main();
    void begin_crew();
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
    void carry_out_all();
    void carry_out(core::Effect& effect);
    void store(const core::StoreBytes& effect);
    void compute(const core::Compute& effect);
    void compute_at_once(const core::Compute& effect, const core::ComputeMemory& memory);
    void finish_computes() noexcept;
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
    ConnectionRef watch_stream(core::LinkId id, std::unique_ptr<Stream> stream);
    ConnectionRef make_connection(core::LinkId id, std::unique_ptr<Stream> stream);
    void open_link(const core::OpenLink& effect);
    void close_link(const core::CloseLink& effect);
    void shut_connection(const ConnectionRef& connection, bool flush);
    void make_room_for_flushing(const Connection& next);
    void destroy(const ConnectionRef& connection);
    void lose(const ConnectionRef& connection, const std::string& reason);
    void mark_dirty(Connection& connection);
    void arm_read(const ConnectionRef& connection);
    void arm_write(const ConnectionRef& connection);
    void expect(const ConnectionRef& connection, Stream::Wait readiness);
    void on_ready(const ConnectionRef& connection, Stream::Wait readiness);
    void on_readable(const ConnectionRef& connection);
    void on_writable(const ConnectionRef& connection);
    bool receive_from(const ConnectionRef& connection, Link::Until until, const Link::Outcome& before = {});
    void received(const ConnectionRef& connection, const Link::Outcome& outcome);
    bool drop_input(const ConnectionRef& connection);  // false: the input has ended, by a close or an error
    void pump(const ConnectionRef& connection);
    bool may_send(const ConnectionRef& connection);
    static void send_from(Connection& connection, Sent& sent);
    void sent_from(const ConnectionRef& connection, Sent& sent);
    void arm_accept();
    void on_acceptable();
    void accept_later(const char* what);

    // rounds
    bool receive_later(const ConnectionRef& connection);
    bool leaves_output_to_round() const;
    bool compute_later(const core::Compute& effect, const core::ComputeMemory& memory);
    bool is_round_due() const { return crew_ && (!receiving_.empty() || !round_computes_.empty() || !dirty_.empty()); }
    void run_round();
    void put_round_together();
    std::size_t job_of(const ConnectionRef& connection);
    void work_in_round(std::size_t job) noexcept;
    void finish_round();
    void received_in_round(const ConnectionRef& connection, const Link::Outcome& outcome);

    // openings
    void dial_tcp(const core::OpenLink& dial);
    bool dial_shared(const core::OpenLink& dial);
    void on_opening(const ConnectionRef& connection);
    void opened(const ConnectionRef& connection);
    void greeted(const ConnectionRef& connection);
    void opening_failed(const ConnectionRef& connection, const std::string& reason);
    void give_up_openings(core::Instant now);
    void tell_fallback(const core::Endpoint& target, const SharedStream::Failure& failure);
    void listen_shared(const ListenRequest& request);
    void arm_shared_accept();
    void on_shared_acceptable();
    void make_room_for_greeting(std::size_t most);
    void greet_by_tls(int descriptor, const core::Endpoint& remote);
    void apply_options(Connection& connection);
    bool is_expected(Connection& connection, std::string& why) const;
    void authenticated(const ConnectionRef& connection);
    void receive_enrolment(const ConnectionRef& connection);
    void refuse_caller(const ConnectionRef& connection, const std::string& why);
    void tell_refused(core::Instant now);
    void answer_and_close(const ConnectionRef& connection, const std::string& body);
    void close_openings();
    void close_listeners();

    LoopSettings settings_;
    LoopClient& client_;
    TlsUse tls_;
    tls::Sessions sessions_;      // of peers that were dialled; outlives the streams
    SharedMemoryUse shared_use_;  // outlives the streams
    boost::asio::io_context context_{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_.get_executor()};
    boost::asio::posix::stream_descriptor listener_watch_{context_};
    int listener_ = -1;
    core::Instant accept_resume_ = core::never;
    // Of callers without a certificate: [0] those that were refused, [1] those that gave up.
    std::array<LineBudget, 2> refused_lines_;
    bool accept_armed_ = false;
    boost::asio::posix::stream_descriptor shared_listener_watch_{context_};
    int shared_listener_ = -1;
    bool shared_accept_armed_ = false;
    std::string shared_listen_error_;  // logged when the thread runs
    bool told_no_offer_ = false;       // the log has the reason why a dial within this host uses TCP
    bool told_forbidden_ = false;
    OwnAddresses own_addresses_;
    std::optional<LogWriterUse> log_use_;  // set while the thread may log
    std::thread thread_;

    mutable std::mutex posted_mutex_;  // guards posted_, computed_, computing_, ended_ and stop_requested_
    std::vector<std::function<void()>> posted_;
    std::vector<std::function<void()>> posted_now_;  // the batch that runs; loop's thread only
    // Result of a worker's task. A worker must be able to store it even if memory is short, so submit() reserves its
    // place in computed_.
    struct Computed {
        core::ComputeDone done;
        bool failed = false;
        std::shared_ptr<FileRead> read;  // if set, this is the result and `done` is unused
    };
    std::vector<Computed> computed_;      // its capacity is at least its size plus computing_
    std::vector<Computed> computed_now_;  // the batch that is handled; loop's thread only
    std::size_t computing_ = 0;           // tasks of workers without a result yet
    std::atomic<std::uint64_t> computes_done_{0};
    std::atomic<bool> wake_missed_{false};  // no memory to wake the loop: run() itself looks for tasks
    bool ended_ = false;                    // the thread takes no more tasks
    bool stop_requested_ = false;
    bool uses_tls_ = false;  // under the mutex of live()

    struct PendingFile {
        std::shared_ptr<StagingFile> file;
        std::uint64_t bytes = 0;
        std::uint64_t pieces = 0;  // their number at the last examination
        int stalls = 0;            // examinations in a row without a new piece
        core::Instant examine_at = 0;
    };
    std::string staging_directory_;
    std::unordered_map<core::BufferId, PendingFile> files_;
    std::vector<std::weak_ptr<StagingFile>> stuck_files_;  // given up; a thread still waits for each live one
    FilePayloads file_payloads_{buffers};

    std::unordered_map<core::LinkId, ConnectionRef> links_;  // links that the machine knows
    std::vector<ConnectionRef> closing_;                     // flushing or draining, oldest first
    std::vector<ConnectionRef> opening_;                     // shared streams that are not open yet, oldest first
    core::LinkId next_link_ = 2;       // of the next accepted link; the machine chooses the odd ids of dialled ones
    std::deque<ConnectionRef> dirty_;  // may have output, which leaves when the turn ends
    std::deque<core::Event> pending_;  // events to give to the machine after the running one
    Sent sent_;
    core::Effects effects_;
    std::size_t carried_out_ = 0;  // of these
    ReceiveSpace space_;
    // ---- rounds: empty if there are no helpers
    struct RoundJob {
        ConnectionRef connection;
        bool receives = false;
        bool sends = false;
        bool failed = false;
        Link::Outcome received;
        Sent sent;
    };
    struct RoundCompute {
        core::Compute effect;
        core::ComputeMemory memory;
        core::ComputeDone done;
        bool failed = false;
    };
    std::optional<Crew> crew_;
    std::vector<ConnectionRef> receiving_;  // payload may be there whose place is known
    std::vector<RoundCompute> round_computes_;
    std::vector<RoundJob> round_jobs_;  // of the round that runs: the first round_jobs_used_
    std::size_t round_jobs_used_ = 0;
    std::vector<ConnectionRef> round_receiving_;
    std::vector<RoundCompute> round_computing_;
    bool round_has_run_ = true;

    Workers workers_;
    Workers file_workers_;  // for files only: a disk that hangs blocks no other work
    std::uint64_t turn_ = 0;
    std::uint64_t inline_bytes_ = 0;  // of computes that ran on the loop's thread in this turn
    bool in_handle_ = false;
    bool stopping_ = false;
    bool finished_ = false;
    core::Instant stop_at_ = core::never;
    std::string halt_reason_;
};

// Any thread.
core::ComputeDone run_compute(const core::Compute& compute, const core::ComputeMemory& memory);

}  // namespace pccl::real
