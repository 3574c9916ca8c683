// A master in the real world: a MasterMachine, its listener, its links and the one thread that runs them.
//
// Call bind, then run, then (from any thread) interrupt. await_termination returns when the thread has ended, whether
// it was interrupted or stopped by itself. With a state directory the journal outlives the process: a master that was
// killed, or ended by stop(), continues the run when it is started again on it. interrupt() ends the run and empties
// the journal.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/base/timeouts.hpp"
#include "core/master_status.hpp"
#include "net-real/log.hpp"
#include "net-real/tls/authority.hpp"
#include "net-real/tls/revocations.hpp"
#include "net-real/tls/operator_files.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace pccl::real {

struct MasterSettings {
    core::Limits limits;
    core::Timeouts timeouts;
    std::string congestion_control;
    std::string state_directory;  // empty: no journal; every record is acknowledged at once
    bool ends_at_signal = false;  // the process calls interrupt() on SIGUSR1, so `pccl-master end` may send it
    // Only peers with a certificate of this run's authority join, over TLS. Needs a state directory.
    bool secure = false;
    // In place of `secure`: peers with certificates of the operator's PKI join. Needs no state directory.
    tls::OperatorFiles tls_files;
    bool refuse_public = false;                 // a run that is not secure does not listen on a public address
    bool data_plaintext = false;                // a secure run: connections between peers are not encrypted
    std::int64_t certificate_life = 12 * 3600;  // seconds
    LogSink log;                                // empty: standard error
};

MasterSettings master_settings_from_environment();

class MasterRuntime {
public:
    explicit MasterRuntime(MasterSettings settings);
    ~MasterRuntime();  // interrupt() and await_termination(), bounded
    MasterRuntime(const MasterRuntime&) = delete;
    MasterRuntime& operator=(const MasterRuntime&) = delete;

    // Opens the state directory and the listener. Port 0: any free one. False: `error` names the cause.
    bool bind(const core::Endpoint& address, std::string& error);
    std::uint16_t port() const;  // 0 before bind
    // Starts the thread, after bind. Does nothing if it runs. False: the thread could not be started.
    bool run(std::string& error);
    // Ends the run: informs the peers, flushes (at most about a second), ends the thread and empties the journal.
    // Idempotent, does not block.
    void interrupt();
    // Ends the thread and keeps the run: as after a crash, peers wait for the next master on the state directory.
    // Without a state directory it is the same as interrupt(). The first call of the two decides. Idempotent, does not
    // block.
    void stop();
    // Blocks until the thread has ended. Returns at once if it never ran.
    void await_termination();
    bool failed() const;  // it ended by itself; the log has the reason
    bool in_forked_child() const;
    // For a status server on the loop of this master. Only its handlers may call status().
    boost::asio::io_context& context();
    core::MasterStatus status() const;

    // ---- a secure run, after bind(). Any thread but the I/O thread: these wait for the disk.
    tls::Authority* authority();  // null: the run is not secure, or has certificates of the operator's PKI
    tls::Revocations* revocations();  // null: the certificates are not of the operator's PKI, or no state directory
    // One of the two is not null. Revokes the certificates of a name, removes its peers and closes their connections.
    // `removed`: how many ids.
    bool revoke(const std::string& name, std::size_t& removed, std::string& error);
    // Calls `look` with a copy of the status. Waits for the I/O thread, at most 2 s. False: it did not answer in time.
    bool look_at_status(const std::function<void(const core::MasterStatus&)>& look);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace pccl::real
