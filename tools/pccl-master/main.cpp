// pccl-master: serves one run until it is stopped. Also installed as ccoip_master.
//
// Standard output carries one line, `listening on HOST:PORT` (with the real port if 0 was given), so that scripts can
// wait for it. With --status it carries a second one, `status on HOST:PORT`. Everything else goes to standard error.
//
// The first SIGTERM or SIGINT stops the master. With a state directory the run is kept, and the peers wait for the next
// master on it. Without one the run ends, and the peers are notified. SIGUSR1, which `pccl-master end` sends, ends the
// run in either case. A second SIGTERM or SIGINT ends the program at once. Exit codes: 0 after a signal, 1 if it cannot
// serve, 2 on wrong usage.
#include "admin_socket.hpp"
#include "doctor.hpp"
#include "end_run.hpp"
#include "notify.hpp"

#include "core/base/format.hpp"
#include "core/base/ids.hpp"
#include "include/ccoip.h"
#include "include/pccl.h"
#include "net-real/event_loop.hpp"
#include "net-real/exposure.hpp"
#include "net-real/log.hpp"
#include "net-real/master_runtime.hpp"
#include "net-real/resolve.hpp"
#include "net-real/settings.hpp"
#include "net-real/status/status_document.hpp"
#include "net-real/status/status_server.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

using pccl::core::Endpoint;
using pccl::real::MasterRuntime;
using pccl::real::Severity;
using pccl::real::StatusServer;

namespace {

constexpr int exit_stopped = 0;
constexpr int exit_cannot_serve = 1;
constexpr int exit_usage = 2;
constexpr int no_descriptor = -1;
constexpr std::chrono::seconds exit_time{5};  // for the threads of a master that has ended
constexpr std::uint16_t status_port = CCOIP_PROTOCOL_PORT_MASTER - 1;

struct Options {
    std::string listen = pccl::core::formatted("0.0.0.0:{}", CCOIP_PROTOCOL_PORT_MASTER);
    std::string status;  // empty: not served
    std::string state_directory;
    std::optional<std::uint32_t> journal_timeout;  // seconds
    std::string log_level;
    std::string log_format = "text";
    int ready_descriptor = no_descriptor;
    bool version = false;
    bool secure = false;
    bool data_plaintext = false;
    bool insecure = false;
    pccl::real::tls::OperatorFiles tls_files;
    bool end = false;                                  // the command: end a run instead of serving one
    std::string request;                               // to the running master; empty: none
    std::optional<pccl_master::DoctorOptions> doctor;  // the command: examine the network of this host
};

int cannot_serve(const std::string& why) {
    pccl::real::log_line(Severity::err, "master", why);
    return exit_cannot_serve;
}

int wrong_usage(const std::string& why) {
    std::fprintf(stderr, "pccl-master: %s\n", why.c_str());
    return exit_usage;
}

// Blocks the stop signals in this thread, before the library starts others, and makes them readable.
int stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

// Tries the addresses of a name, IPv4 first. The first one that can be bound is taken.
template <class Bind>
bool bind_one_of(std::vector<Endpoint> endpoints, const Bind& bind) {
    std::stable_partition(endpoints.begin(), endpoints.end(), [](const Endpoint& endpoint) { return !endpoint.is_v6; });
    return std::any_of(endpoints.begin(), endpoints.end(), bind);
}

StatusServer::Pages pages_of(const MasterRuntime& master, const char* security) {
    return {[&master, security] {
                return pccl::real::status_json(master.status(), pccl::real::EventLoop::now(), security);
            },
            [&master, security] {
                return pccl::real::status_text(master.status(), pccl::real::EventLoop::now(), security);
            }};
}

bool read_address(const char* option, const std::string& text, std::uint16_t default_port,
                  std::vector<Endpoint>& endpoints, std::string& error) {
    // ::1:80 is a valid address without a port, but hardly ever meant as one.
    if (std::count(text.begin(), text.end(), ':') > 1 && text.front() != '[') {
        error = pccl::core::formatted("{} {}: write [V6]:PORT", option, text);
        return false;
    }
    if (pccl::real::resolve(text, default_port, endpoints, error)) return true;
    error = pccl::core::formatted("{}: {}", option, error);
    return false;
}

// The address as it was written, with the port that was bound.
std::string name_of(const std::string& listen, std::uint16_t port) {
    const std::size_t colon = listen.rfind(':');
    const bool has_port = colon != std::string::npos && listen.find(']', colon) == std::string::npos &&
                          (listen.front() == '[' || listen.find(':') == colon);
    std::string host = has_port ? listen.substr(0, colon) : listen;
    if (host.find(':') != std::string::npos && host.front() != '[') host = pccl::core::formatted("[{}]", host);
    return pccl::core::formatted("{}:{}", host, port);
}

// Where newcomers reach a master that listens there.
std::string address_in_invitations(const std::string& listen, std::uint16_t port) {
    const std::string name = name_of(listen, port);
    const std::string host = name.substr(0, name.rfind(':'));
    if (host != "0.0.0.0" && host != "*" && host != "[::]") return name;
    Endpoint found = pccl::real::address_for_others();
    found.port = port;
    return pccl::core::to_text(found);
}

// `status`: the address of the status server; empty if there is none.
void announce(const std::string& name, const std::string& status, int ready_descriptor) {
    const std::string line = pccl::core::formatted("listening on {}\n", name);
    std::fputs(line.c_str(), stdout);
    if (!status.empty()) std::fputs(pccl::core::formatted("status on {}\n", status).c_str(), stdout);
    std::fflush(stdout);
    if (ready_descriptor != no_descriptor) {
        for (std::size_t done = 0; done < line.size();) {
            const ssize_t n = ::write(ready_descriptor, line.data() + done, line.size() - done);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) break;  // the reader is gone
            done += static_cast<std::size_t>(n);
        }
        ::close(ready_descriptor);
    }
    pccl_master::notify_service_manager("READY=1\nSTATUS=listening on " + name);
}

// Ends this process by the signal itself, so that its parent can see that it was stopped and did not fail.
[[noreturn]] void die_by(int number) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, number);
    pthread_sigmask(SIG_UNBLOCK, &wanted, nullptr);
    ::raise(number);
    ::_exit(128 + number);  // the signal is ignored, because our parent made it so
}

// Returns after a signal, once the peers were notified, or when the master has ended by itself.
int serve_until_stopped(MasterRuntime& master, int signals) {
    const int ended = ::eventfd(0, EFD_CLOEXEC);
    if (ended < 0) return cannot_serve(std::string("eventfd: ") + std::strerror(errno));
    std::thread watcher([&] {
        master.await_termination();
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t ignored = ::write(ended, &one, sizeof one);
    });
    int number = 0;
    for (;;) {
        pollfd waiting[] = {{signals, POLLIN, 0}, {ended, POLLIN, 0}};
        if (::poll(waiting, 2, -1) < 0) continue;
        // A second signal counts, even if the first one has ended the master meanwhile.
        if (waiting[0].revents == 0) break;
        signalfd_siginfo signal{};
        if (::read(signals, &signal, sizeof signal) != sizeof signal) continue;
        const int came = static_cast<int>(signal.ssi_signo);
        if (number != 0 && came == SIGUSR1) continue;  // already stopping; `pccl-master end` empties the journal itself
        if (number != 0) die_by(came);
        number = came;
        pccl_master::notify_service_manager("STOPPING=1");
        if (came == SIGUSR1)
            master.interrupt();
        else
            master.stop();
    }
    watcher.join();
    ::close(ended);
    return number != 0 && !master.failed() ? exit_stopped : exit_cannot_serve;
}

// Threads that write invitations and certificates cannot be ended while their disk hangs.
void exit_after(std::chrono::seconds patience, int code) {
    try {
        std::thread([=] {
            std::this_thread::sleep_for(patience);
            ::_exit(code);
        }).detach();
    } catch (const std::exception&) {
        // No thread can be started: then the process waits for its disk.
    }
}

// Options that contradict each other: a run must not be less safe than the command line seems to say.
std::string why_unusable(const Options& options, const pccl::real::MasterSettings& settings) {
    const pccl::real::tls::OperatorFiles& files = settings.tls_files;
    if (files.any() && (options.secure || options.data_plaintext))
        return "--secure and --data-plaintext are for runs with invitations; with certificates of your own PKI "
               "(--tls-ca, PCCL_TLS_CA) give neither";
    if (files.any() && (files.authorities.empty() || files.certificate.empty() || files.key.empty()))
        return "--tls-ca, --tls-cert and --tls-key (or PCCL_TLS_CA, PCCL_TLS_CERT and PCCL_TLS_KEY) go together; give "
               "all of them";
    if (options.data_plaintext && !options.secure)
        return "--data-plaintext goes with --secure; without --secure no connection is encrypted";
    if (options.insecure && (options.secure || files.any()))
        return "--insecure is for runs without --secure; leave one of the two away";
    if (options.secure && settings.state_directory.empty())
        return "--secure needs --state-dir, a directory for the keys of the run";
    return {};
}

int serve(const Options& options, const std::vector<Endpoint>& endpoints,
          const std::vector<Endpoint>& status_endpoints) {
    const int signals = stop_signals();
    if (signals < 0) return cannot_serve(std::string("signalfd: ") + std::strerror(errno));
    // The reader of our output may go away. That must not end the run.
    std::signal(SIGPIPE, SIG_IGN);
    pccl::real::MasterSettings settings = pccl::real::master_settings_from_environment();
    if (!options.state_directory.empty()) settings.state_directory = options.state_directory;
    settings.ends_at_signal = true;
    settings.secure = options.secure;
    settings.data_plaintext = options.data_plaintext;
    settings.refuse_public = !options.insecure;
    if (options.tls_files.any()) settings.tls_files = options.tls_files;
    const bool has_own_pki = settings.tls_files.any();
    if (const std::string why = why_unusable(options, settings); !why.empty()) return wrong_usage(why);
    const std::string state_directory = settings.state_directory;
    if (options.journal_timeout)
        settings.timeouts.journal = static_cast<pccl::core::Duration>(*options.journal_timeout) * pccl::core::second;
    MasterRuntime master(std::move(settings));
    std::string error;
    if (!bind_one_of(endpoints, [&](const Endpoint& endpoint) { return master.bind(endpoint, error); }))
        return cannot_serve(error);
    const bool is_secure = options.secure || has_own_pki;
    const char* const security = !is_secure ? "none" : options.data_plaintext ? "tls-without-data" : "tls";
    StatusServer status(master.context(), pages_of(master, security),
                        {options.status.substr(0, options.status.rfind(':'))});
    const bool has_status = !status_endpoints.empty();
    if (has_status &&
        !bind_one_of(status_endpoints, [&](const Endpoint& endpoint) { return status.listen(endpoint, error); }))
        return cannot_serve("--status: " + error);
    pccl_master::AdminServer admin(master, address_in_invitations(options.listen, master.port()));
    const bool has_admin = options.secure || (has_own_pki && !state_directory.empty());
    if (has_admin && !admin.start(state_directory, error)) return cannot_serve(error);
    if (!master.run(error)) return cannot_serve(error);
    announce(name_of(options.listen, master.port()), has_status ? name_of(options.status, status.port()) : "",
             options.ready_descriptor);
    const int code = serve_until_stopped(master, signals);
    exit_after(exit_time, code);
    return code;
}

int end_command(const Options& options) {
    const char* variable = std::getenv("PCCL_STATE_DIR");
    const std::string directory =
        options.state_directory.empty() && variable != nullptr ? std::string(variable) : options.state_directory;
    if (directory.empty()) return wrong_usage("end: give --state-dir, the directory of the run");
    std::string error;
    if (!pccl_master::end_run(directory, error)) return cannot_serve(error);
    std::printf("the run in %s has ended\n", directory.c_str());
    return exit_stopped;
}

std::string state_directory_of(const Options& options) {
    const char* variable = std::getenv("PCCL_STATE_DIR");
    return options.state_directory.empty() && variable != nullptr ? std::string(variable) : options.state_directory;
}

int ask_command(const Options& options) {
    const std::string directory = state_directory_of(options);
    if (directory.empty()) return wrong_usage("give --state-dir, the directory of the run");
    std::string text;
    const bool done = pccl_master::ask_master(directory, options.request, text);
    std::fprintf(done ? stdout : stderr, "%s%s\n", done ? "" : "pccl-master: ", text.c_str());
    return done ? exit_stopped : exit_cannot_serve;
}

struct InviteOptions {
    std::string name, ttl = "1h", address;
    std::uint32_t uses = 1;
    std::optional<std::uint32_t> group;
};

// Seconds; "90", "90s", "30m", "1h", "2d". 0: not a time.
std::int64_t seconds_of(const std::string& text) {
    std::size_t digits = 0;
    while (digits < text.size() && digits < 7 && text[digits] >= '0' && text[digits] <= '9') ++digits;
    const std::string unit = text.substr(digits);
    const std::int64_t factor = unit == "d" ? 86'400 : unit == "h" ? 3600 : unit == "m" ? 60 : 1;
    if (digits == 0 || (factor == 1 && !unit.empty() && unit != "s")) return 0;
    return std::strtoll(text.c_str(), nullptr, 10) * factor;
}

// Words that go into a request contain no space.
CLI::Validator one_word() {
    return {[](const std::string& text) {
                return text.find_first_of(" \n") == std::string::npos && !text.empty() ? "" : "must be one word";
            },
            ""};
}

void describe_requests(CLI::App& app, Options& options) {
    const auto add = [&](const char* verb, const char* text) {
        CLI::App* command = app.add_subcommand(verb, text);
        command->add_option("--state-dir", options.state_directory, "the directory of the run (same as PCCL_STATE_DIR)")
            ->type_name("DIR");
        return command;
    };
    static InviteOptions wish;
    CLI::App* invite = add("invite", "Print an invitation to a secure run. The newcomer gives it in PCCL_INVITE");
    invite->add_option("--name", wish.name, "what `members` shows, and `revoke` takes")->check(one_word());
    invite->add_option("--ttl", wish.ttl, "how long it can be used: 90s, 30m, 1h, 2d")->capture_default_str();
    invite->add_option("--uses", wish.uses, "how many newcomers can use it")->capture_default_str();
    invite->add_option("--group", wish.group, "the only peer group that they may join");
    invite->add_option("--address", wish.address, "where newcomers reach the master, if not where it listens")
        ->check(one_word())
        ->type_name("HOST:PORT");
    invite->callback([&options] {
        const std::int64_t ttl = seconds_of(wish.ttl);
        if (ttl <= 0) throw CLI::ValidationError("--ttl", "a time such as 90s, 30m, 1h or 2d");
        options.request = pccl::core::formatted("invite ttl={} uses={}", ttl, wish.uses);
        if (!wish.name.empty()) options.request += " name=" + wish.name;
        if (!wish.address.empty()) options.request += " address=" + wish.address;
        if (wish.group) options.request += pccl::core::formatted(" group={}", *wish.group);
    });
    add("members", "List the peers of a secure run with their names")->callback([&options] {
        options.request = "members";
    });
    add("invites", "List the invitations of a secure run")->callback([&options] { options.request = "invites"; });
    static std::string what;
    CLI::App* withdraw = add("withdraw", "Withdraw an invitation; those who have used it stay");
    withdraw->add_option("ID", what, "as `invites` shows it")->required()->check(one_word());
    withdraw->callback([&options] { options.request = "withdraw " + what; });
    CLI::App* revoke = add("revoke", "Revoke the certificates of a name: its peers are removed and cannot come back");
    revoke
        ->add_option("NAME", what,
                     "of a peer, or of an invitation and all its peers; with your own PKI the "
                     "common name of a certificate, or serial:HEX")
        ->required()
        ->check(one_word());
    revoke->callback([&options] { options.request = "revoke " + what; });
}

void describe(CLI::App& app, Options& options) {
    app.add_option("--listen,--listen-address", options.listen,
                   "where to listen: an address or a name, [V6]:PORT for IPv6, [::]:PORT for both families;\n"
                   "port 0 takes a free one")
        ->capture_default_str()
        ->type_name("HOST:PORT");
    app.add_option(
           "--status", options.status,
           pccl::core::formatted(
               "serve a read-only status there: GET /status as JSON, GET / as text; off unless it is given.\n"
               "It has no authentication: 127.0.0.1 keeps it on this host. Port 0 takes a free one, the default is {}",
               status_port))
        ->type_name("HOST:PORT");
    app.add_option(
           "--state-dir", options.state_directory,
           "keep the journal in DIR: a master that was killed and is started again on it, at the same address,\n"
           "takes up the run (same as PCCL_STATE_DIR). Each vote then waits for the disk.")
        ->type_name("DIR");
    app.add_option(
           "--journal-timeout", options.journal_timeout,
           "stop with exit code 1 when the disk of the journal has not answered for so many seconds, so that a\n"
           "service manager can start the master again; 0: never (same as PCCL_JOURNAL_TIMEOUT_S)")
        ->check(CLI::Range(0, 86'400))
        ->type_name("SECONDS");
    app.add_option("--log-level", options.log_level, "lowest level that is written (same as PCCL_LOG_LEVEL)")
        ->type_name("LEVEL");
    app.add_option("--log-format", options.log_format, "text, or json: one object per line")
        ->capture_default_str()
        ->check(CLI::IsMember({"text", "json"}))
        ->type_name("FORMAT");
    app.add_option("--ready-fd", options.ready_descriptor,
                   "write the line `listening on HOST:PORT` to this descriptor when the master serves, and close it")
        ->check(CLI::NonNegativeNumber)
        ->type_name("N");
    app.add_flag(
        "--secure", options.secure,
        "encrypt connections, and admit only peers that were invited (`pccl-master invite`); needs --state-dir");
    app.add_flag("--data-plaintext", options.data_plaintext,
                 "with --secure: do not encrypt connections between peers. For networks that are trusted");
    app.add_option("--tls-ca", options.tls_files.authorities,
                   "in place of --secure: admit peers whose certificate one of these authorities has signed\n"
                   "(same as PCCL_TLS_CA; --tls-cert and --tls-key go with it)")
        ->type_name("FILE");
    app.add_option("--tls-cert", options.tls_files.certificate,
                   "the certificate of this master, for the host that peers dial (same as PCCL_TLS_CERT)")
        ->type_name("FILE");
    app.add_option("--tls-key", options.tls_files.key, "its private key (same as PCCL_TLS_KEY)")->type_name("FILE");
    app.add_flag("--insecure", options.insecure,
                 "without --secure: listen even on a public address, where everybody who reaches it can join");
    app.add_flag("--version", options.version, "Print the version and exit");
    CLI::App* end = app.add_subcommand("end", "End the run of a state directory: its master tells the peers and stops, "
                                              "and the journal is emptied");
    end->add_option("--state-dir", options.state_directory, "the directory of the run (same as PCCL_STATE_DIR)")
        ->type_name("DIR");
    end->callback([&options] { options.end = true; });
    describe_requests(app, options);
    static pccl_master::DoctorOptions examined;
    CLI::App* doctor = app.add_subcommand(
        "doctor", "Examine what is between this host and a master: name, address, firewalls, translators, TLS");
    doctor->add_option("--master", examined.master, "the master; not needed with an invitation")
        ->type_name("HOST:PORT");
    doctor->add_option("--invite", examined.invitation,
                       "an invitation (same as PCCL_INVITE); it is not used up, nor is it checked that it can be used");
    doctor->add_flag("--enrol", examined.enrol,
                     "get a certificate, for what a secure master tells only "
                     "members; this uses the invitation once");
    doctor->callback([&options] { options.doctor = examined; });
    app.footer(
        "Prints `listening on HOST:PORT` on standard output when it serves, with --status also `status on HOST:PORT`;\n"
        "tells a service manager (NOTIFY_SOCKET).\n"
        "SIGTERM and SIGINT stop it; a second one ends it at once. With --state-dir the run is kept: the peers wait "
        "for\n"
        "the next master on it as after a crash. `pccl-master end` (or SIGUSR1) ends the run: the peers are told.\n"
        "Without --state-dir every stop ends the run.\n"
        "Exit codes: 0 stopped by a signal or by `pccl-master end`, 1 cannot serve, 2 wrong usage.\n\n"
        "Environment of peers and master (the master's PCCL_PEER_TIMEOUT_MS rules):\n" +
        pccl::real::setting_help());
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Serves one PCCL run: keeps the list of its peers and decides the outcome of their calls."};
    Options options;
    describe(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& done) {
        return app.exit(done);
    } catch (const CLI::ParseError& error) {
        app.exit(error);
        return exit_usage;
    }
    if (options.version) {
        std::printf("pccl-master %d.%d.%d\n", PCCL_VERSION_MAJOR, PCCL_VERSION_MINOR, PCCL_VERSION_PATCH);
        return exit_stopped;
    }
    if (options.end) return end_command(options);
    if (options.doctor) return pccl_master::doctor(*options.doctor);
    if (!options.request.empty()) return ask_command(options);
    if (options.log_format == "json") pccl::real::set_log_format(pccl::real::LogFormat::json);
    if (!options.log_level.empty()) {
        Severity severity{};
        if (!pccl::real::parse_severity(options.log_level, severity))
            return wrong_usage(pccl::core::formatted(
                "--log-level {}: one of TRACE, DEBUG, INFO, WARN, ERR, FATAL, NONE", options.log_level));
        pccl::real::set_log_threshold(severity);
    }
    if (options.ready_descriptor != no_descriptor && ::fcntl(options.ready_descriptor, F_GETFD) < 0)
        return wrong_usage(
            pccl::core::formatted("--ready-fd {}: no such descriptor is open", options.ready_descriptor));
    std::vector<Endpoint> endpoints;
    std::vector<Endpoint> status_endpoints;
    std::string error;
    if (!read_address("--listen", options.listen, CCOIP_PROTOCOL_PORT_MASTER, endpoints, error) ||
        (!options.status.empty() && !read_address("--status", options.status, status_port, status_endpoints, error)))
        return wrong_usage(error);
    return serve(options, endpoints, status_endpoints);
}
