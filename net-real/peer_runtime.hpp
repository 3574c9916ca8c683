// One communicator in the real world: a PeerMachine, its sockets and the one thread that runs them.
//
// The application's threads use call(): a command goes to the I/O thread, and the caller sleeps until the machine
// completes its ticket. Any thread may call, any number at a time. The memory of an operation is registered before its
// command and released after its completion. In between the runtime and the kernel may read and write it.
//
// This header includes neither Asio nor sockets. Nothing here throws except std::bad_alloc; nothing ends the process.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/events.hpp"
#include "core/peer_machine.hpp"
#include "net-real/log.hpp"
#include "net-real/tls/operator_files.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pccl::real {

struct PeerSettings {
    core::Endpoint master;
    std::vector<core::Endpoint> other_masters;  // further addresses of the master (a name may have several), in order
    core::GroupId group = 0;
    core::Gang gang;                   // with which it joins and leaves; none: alone
    core::Duration gang_patience = 0;  // how long it waits for missing places of its gang; 0: without limit
    std::uint32_t stripes = 0;  // connections to the ring neighbour; 0: the default
    core::Limits limits;
    core::Timeouts timeouts;
    std::optional<core::Endpoint> bind_address;  // port ignored; none: every address of the host, IPv4 and IPv6
    std::uint16_t port_first = 48149;            // the listener takes the first free port of first..last;
    std::uint16_t port_last = 48404;             // both 0: any free port
    std::optional<core::Endpoint> advertised;    // sent to other peers instead of the address that the master sees
    bool port_mapping = false;  // without `advertised`: start() asks the router for a port, for at most 5 s
    std::uint64_t staging_bytes_max = std::uint64_t{4} << 30;  // memory for incoming shared state; beyond it a file
    std::string congestion_control;                            // empty: what suits the path (congestion_control_for)
    bool shared_memory = true;                                 // data connections within this host use it
    std::string host;                                          // its name; empty: that of the system (host_id.hpp)
    std::size_t io_threads = 1;                                // see LoopSettings
    // Of a secure run: where its master is, and a secret; `master` above is then not used. Empty: nothing is encrypted.
    std::string invite;
    tls::OperatorFiles tls_files;  // in place of an invitation: certificates of the operator's PKI
    std::string tls_master_name;   // with tls_files: the host in the master's certificate; empty: the dialled address
    std::string name;  // printed before the identity in log lines
    LogSink log;       // empty: standard error
    // Called with messages for callers that wait (for whom a vote waits), and with the reason why the membership ended.
    // Runs on the I/O thread: it must not block.
    std::function<void(std::string_view)> notice;
};

struct EnvironmentSettings;
// PeerSettings from the environment (see settings.hpp).
PeerSettings peer_settings_from_environment();
PeerSettings peer_settings_from(const EnvironmentSettings& environment);

struct Statistics {
    core::PeerStatistics machine;
    std::uint64_t scratch_bytes = 0;  // memory in use now for running operations and early data
    std::uint64_t shared_bytes = 0;   // memory shared now with peers of this host for connections
};

class PeerRuntime {
public:
    explicit PeerRuntime(PeerSettings settings);
    ~PeerRuntime();  // stop()
    PeerRuntime(const PeerRuntime&) = delete;
    PeerRuntime& operator=(const PeerRuntime&) = delete;

    // Binds the listener and starts the thread. False: `error` names the cause; it may be tried again.
    bool start(std::string& error);

    // Registers memory for commands. Thread-safe, does not touch the memory.
    core::BufferId register_buffer(void* data, std::uint64_t bytes);
    void release_buffer(core::BufferId buffer);

    // Sets a fresh ticket and blocks until it is completed. Before start() and after stop(): internal_error.
    // In a forked child, and on an I/O thread, which would wait for itself: invalid_usage.
    core::Completion call(core::Command command);
    // call() with CommandConnect. If `given_up` is true when the machine would get the command, or while a certificate
    // is asked for, the call fails as if abort() had come then. Any thread may ask it.
    using GivenUp = std::function<bool()>;
    core::Completion connect(const GivenUp& given_up);
    // If `first` succeeds, the machine gets `second` in the same turn (launch, then await: one sleep instead of two).
    // Returns the completion of the last command given. `first_failed` tells which one that was.
    core::Completion call(core::Command first, core::Command second, bool* first_failed = nullptr);
    // Returns at once. `then` is called once, by the I/O thread (so it must not wait), or by this thread if the command
    // is refused.
    void call_then(core::Command command, std::function<void(const core::Completion&)> then);

    // The current attributes. Never blocks.
    core::Attributes attributes() const;
    std::uint16_t listen_port() const;
    // First 8 hex digits of the identity, as in log lines; `pccl` before there is one.
    std::string name() const;
    core::Uuid identity() const;  // nil: there is none yet

    // Leaves the run and completes every waiting call as on a lost communicator. Takes at most about 2 s, or as long as
    // results are being copied into the application's memory.
    core::Completion abort();
    // Counters, read on the I/O thread. All are zero when that thread has ended.
    Statistics statistics() const;

    // Leaves the run, which completes the waiting calls as abort does. Calls that still wait then fail with
    // internal_error. Closes everything and ends the thread. Idempotent.
    void stop();

    // True in a child of fork() that was made after construction. There descriptors are closed already, call() refuses,
    // stop() does nothing, and the destructor leaks the state.
    bool in_forked_child() const;
    void abandon_in_child();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace pccl::real
