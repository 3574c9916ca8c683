// pccl-master: serves one run until it is told to stop. Also installed as ccoip_master.
//
// It uses the C interface only. Standard output carries one line, `listening on HOST:PORT` (with the real port when 0 was
// asked for), so that scripts can wait for it; everything else is on standard error. Exit codes: 0 after SIGTERM or
// SIGINT, 1 if it cannot serve, 2 on wrong usage.
#include "address.hpp"

#include "include/ccoip.h"
#include "include/pccl.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include <unistd.h>

namespace {

constexpr int exit_stopped = 0;
constexpr int exit_cannot_serve = 1;
constexpr int exit_usage = 2;

// Waits for a stop signal, or for the master to end by itself. True: a signal came.
bool serve_until_stopped(pcclMasterInstance_t* master, const sigset_t& stop_signals) {
    std::atomic<bool> ended_by_itself{false};
    std::atomic<bool> stop_requested{false};
    std::thread watcher([&] {
        pcclMasterAwaitTermination(master);
        if (stop_requested.load()) return;
        ended_by_itself.store(true);
        ::kill(::getpid(), SIGTERM);  // wakes the wait below; the signal is blocked in every thread
    });
    int signal_number = 0;
    while (sigwait(&stop_signals, &signal_number) != 0) {
    }
    stop_requested.store(true);
    pcclInterruptMaster(master);
    watcher.join();
    return !ended_by_itself.load();
}

int serve(const pccl_master::ListenAddress& listen) {
    // Blocked before the library starts threads, so that they inherit it and only sigwait sees the signals.
    sigset_t stop_signals;
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGTERM);
    sigaddset(&stop_signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);

    pcclMasterInstance_t* master = nullptr;
    if (pcclCreateMaster(listen.address, &master) != pcclSuccess) return exit_cannot_serve;
    uint16_t port = 0;
    if (pcclRunMaster(master) != pcclSuccess || pcclGetMasterPort(master, &port) != pcclSuccess) {
        pcclDestroyMaster(master);
        return exit_cannot_serve;
    }
    std::printf("listening on %s:%u\n", listen.host.c_str(), static_cast<unsigned>(port));
    std::fflush(stdout);
    const bool stopped = serve_until_stopped(master, stop_signals);
    pcclDestroyMaster(master);
    return stopped ? exit_stopped : exit_cannot_serve;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Serves one PCCL run: peers meet here. Stops cleanly on SIGTERM and SIGINT."};
    const std::string default_address = "0.0.0.0:" + std::to_string(CCOIP_PROTOCOL_PORT_MASTER);
    std::string listen_text = default_address;
    app.add_option("--listen,--listen-address", listen_text,
                   "HOST:PORT to listen on; [V6]:PORT for IPv6; port 0 takes a free one")
        ->capture_default_str()
        ->type_name("HOST:PORT");
    std::string state_dir;
    app.add_option(
           "--state-dir", state_dir,
           "keep the journal in DIR: a master that was killed and is started again on it, at the same address,\n"
           "takes up the run (same as PCCL_STATE_DIR). Each vote then waits for the disk.")
        ->type_name("DIR");
    bool show_version = false;
    app.add_flag("--version", show_version, "Print the version and exit");
    app.footer("Prints `listening on HOST:PORT` on standard output when it serves.\n"
               "Environment: PCCL_LOG_LEVEL (TRACE DEBUG INFO WARN ERR FATAL NONE), PCCL_PEER_TIMEOUT_MS (silence "
               "after which\n"
               "a peer is removed, 10000). Exit codes: 0 stopped by a signal, 1 cannot serve, 2 wrong usage.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& done) {
        return app.exit(done);
    } catch (const CLI::ParseError& error) {
        app.exit(error);
        return exit_usage;
    }
    if (show_version) {
        std::printf("pccl-master %d.%d.%d\n", PCCL_VERSION_MAJOR, PCCL_VERSION_MINOR, PCCL_VERSION_PATCH);
        return exit_stopped;
    }
    if (!state_dir.empty()) ::setenv("PCCL_STATE_DIR", state_dir.c_str(), 1);
    pccl_master::ListenAddress listen;
    std::string error;
    if (!pccl_master::parse_listen_address(listen_text, listen, error)) {
        std::fprintf(stderr, "pccl-master: --listen %s: %s\n", listen_text.c_str(), error.c_str());
        return exit_usage;
    }
    return serve(listen);
}
