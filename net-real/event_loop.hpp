// The driver: one thread that runs a machine, its sockets, timers and computes. It follows the contract in
// core/events.hpp.
//
// Peer and master differ only in their client: it supplies the machine and carries out Complete, SetAttributes and Log.
// All virtual functions of the client are called on the loop's thread, except where stated, so machine and links need
// no locks. With more than one I/O thread, helpers move payload and compute while the loop's thread waits for them
// (rounds.cpp); they call nothing of the client. Answers that are known at once (BufferAllocated, RecordPersisted, small computes) are queued behind the
// running event and never delivered inside it.
//
// This header does not include Asio; event_loop_impl.hpp does.
#pragma once

#include "core/base/limits.hpp"
#include "core/events.hpp"
#include "net-real/buffers.hpp"
#include "net-real/log.hpp"
#include "net-real/sockets.hpp"
#include "net-real/tls/certificate_name.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace pccl::real::tls {
class Context;
}

namespace pccl::real {

class LoopClient {
public:
    virtual ~LoopClient() = default;
    virtual void start(core::Instant now, core::Effects& out) = 0;  // before the first event
    virtual core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) = 0;
    virtual core::Instant next_deadline() const = 0;
    virtual void shut_down(core::Instant now, core::Effects& out) = 0;  // after request_stop
    // True: the client took the record and delivers RecordPersisted or RecordFailed later (through post). False: the
    // client keeps no journal, and the loop answers RecordPersisted at once.
    virtual bool persist(core::Persist&) { return false; }
    virtual void complete(const core::Complete& effect) = 0;
    virtual void set_attributes(const core::Attributes& attributes) = 0;
    virtual void log(Severity severity, std::string_view text) = 0;
    // A message for the callers of this machine. It is logged too.
    virtual void notice(std::string_view) {}
    // ---- secure runs
    // What TLS connections that are accepted from now on use. Null: as set_tls() said.
    virtual std::shared_ptr<const tls::Context> present_context() { return nullptr; }
    // The caller has authenticated itself with this certificate. False: it is refused, and `why` says why.
    virtual bool admits(const tls::CertificateName&, std::string& /*why*/) { return true; }
    // The body of a control frame for a caller that is refused for `why`. Empty: it is told nothing.
    virtual std::string refusal(const std::string& /*why*/) { return {}; }
    // Somebody asks for a certificate. `shown`: the certificate that it has already. Must not block; the answer goes to
    // EventLoop::answer_enrolment().
    virtual void enrol(core::LinkId, std::string /*request*/, const std::optional<tls::CertificateName>& /*shown*/) {}
    // The thread is about to end: no socket, compute or event is left. `reason` is empty after a requested stop.
    virtual void ended(const std::string& reason) = 0;
};

// Connections through shared memory with processes of this host (streams/shared_stream.hpp).
struct SharedMemorySettings {
    bool enabled = false;                                // listen for them, and try them before TCP
    std::size_t ring_bytes = 1u << 20;                   // for each direction of a connection; a power of two
    std::uint64_t bytes_max = std::uint64_t{128} << 20;  // of all connections; beyond that TCP is used
    core::Duration opening_time = core::second;          // an opening that takes longer is given up
    std::vector<core::Endpoint> tcp_only;                // endpoints that are never dialled this way
};

struct LoopSettings {
    const char* thread_name = "pccl-io";  // at most 15 characters
    core::Limits limits;
    SocketOptions socket_options;
    std::optional<core::Endpoint> dial_source;
    std::uint64_t staging_bytes_max = std::uint64_t{4} << 30;  // see BufferTable::limit_staging
    std::uint64_t scratch_bytes_max = 0;                       // see BufferTable::limit_scratch
    core::Duration staging_patience = 10 * core::second;  // a staging file that gets no piece for so long is given up
    std::size_t links_max = 8192;                         // accepted connections beyond that are closed at once
    std::size_t io_threads = 1;                           // that move payload: the loop's own, and helpers (rounds.cpp)
    SharedMemorySettings shared_memory;
};

// How connections are encrypted.
struct TlsUse {
    std::shared_ptr<const tls::Context> context;  // null: none is
    bool accepted = true;                         // those that come in
    bool data = true;                             // those that this end dials to peers; those to the master always are
    std::string master_name;  // of the operator's PKI: the host in the master's certificate; empty: the dialled address
};

class EventLoop {
public:
    EventLoop(LoopSettings settings, LoopClient& client);
    ~EventLoop();  // request_stop() and join()
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    // Before start().
    bool listen(const ListenRequest& request, std::string& error);
    std::uint16_t port() const;
    bool start(std::string& error);

    // Any thread. The task runs on the loop's thread and may call deliver(). False: the loop has ended. If post()
    // throws (std::bad_alloc), the task never runs.
    bool post(std::function<void()> task);
    // How many tasks the workers have finished. Any thread.
    std::uint64_t computes_done() const;
    bool computes() const;  // whether a worker has any left; any thread
    void request_stop();
    void join();
    BufferTable& buffers();
    void compute_at_once(const core::Compute& effect);  // on the loop's thread; no event tells of it
    std::uint64_t shared_memory_bytes() const;  // mapped for connections; loop's thread only

    // For other servers on this loop's thread (status/status_server.hpp). Their handlers must neither throw nor block.
    boost::asio::io_context& context();

    // Loop's thread only. Sets SocketOptions::user_timeout of all open and future connections.
    void set_user_timeout(core::Duration user_timeout);
    // Loop's thread only, from posted tasks and from LoopClient::complete. Queues an event behind the running one.
    void deliver(core::Event event);

    // Loop's thread only. For connections from now on.
    void set_tls(TlsUse use);
    // Loop's thread only. Sends the body of a control frame to a caller of LoopClient::enrol(), then closes.
    void answer_enrolment(core::LinkId link, const std::string& body);
    // Loop's thread only. Closes the connections of callers that the client does not admit any more, except those that
    // the machine has closed.
    void drop_not_admitted();

    static core::Instant now();
    // True if the calling thread is the I/O thread of some loop. Such a thread must never wait.
    static bool on_io_thread();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::real
