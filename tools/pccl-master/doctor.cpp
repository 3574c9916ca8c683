#include "doctor.hpp"

#include "core/base/format.hpp"
#include "core/links/waiting_room.hpp"
#include "core/topology/address_rules.hpp"
#include "core/wire/control.pb.h"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"
#include "include/ccoip.h"
#include "net-real/event_loop.hpp"
#include "net-real/exchange.hpp"
#include "net-real/exposure.hpp"
#include "net-real/port_mapping/port_mapping.hpp"
#include "net-real/resolve.hpp"
#include "net-real/settings.hpp"
#include "net-real/sockets.hpp"
#include "net-real/streams/tcp_stream.hpp"
#include "net-real/streams/tls_stream.hpp"
#include "net-real/tls/enrolment.hpp"
#include "net-real/tls/invitation.hpp"
#include "net-real/tls/operator_keys.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pccl_master {

using namespace pccl;
using core::Endpoint;
using core::formatted;

namespace {

constexpr int exit_good = 0, exit_bad = 1, exit_usage = 2;
constexpr core::Duration exchange_time = 5 * core::second;
constexpr int call_back_ms = 4000;
constexpr int mtu_usual = 1500;
constexpr core::Duration long_path = 5 * core::millisecond;

enum class Mark : std::uint8_t { good, note, bad };

class Report {
public:
    void add(Mark mark, const char* what, const std::string& text, const std::string& remedy = "") {
        static constexpr const char* marks[] = {"ok  ", "note", "BAD "};
        static constexpr const char* colours[] = {"\033[32m", "\033[33m", "\033[1;31m"};
        const auto index = static_cast<std::size_t>(mark);
        std::printf("%s%s%s  %-11s %s\n", is_terminal_ ? colours[index] : "", marks[index],
                    is_terminal_ ? "\033[0m" : "", what, text.c_str());
        if (!remedy.empty()) std::printf("                  %s\n", remedy.c_str());
        std::fflush(stdout);
        is_bad_ = is_bad_ || mark == Mark::bad;
    }
    bool is_bad() const { return is_bad_; }

private:
    const bool is_terminal_ = ::isatty(STDOUT_FILENO) != 0;
    bool is_bad_ = false;
};

std::string milliseconds(core::Duration time) {
    return formatted("{}.{} ms", time / core::millisecond, time / (100 * core::microsecond) % 10);
}

std::string host_of(const Endpoint& endpoint) {
    const std::string text = core::to_text(endpoint);
    return text.substr(0, text.rfind(':'));
}

class Doctor {
public:
    explicit Doctor(const DoctorOptions& options) : options_(options), settings_(real::read_environment()) {
        if (options_.invitation.empty()) options_.invitation = settings_.invite;
    }
    ~Doctor() { real::close_socket(listener_); }
    Doctor(const Doctor&) = delete;

    int run() {
        if (!find_master()) return exit_usage;
        if (!resolve_name() || !reach_master()) return finish();
        look_at_path();
        if (secure_) {
            check_authority();
        } else {
            report_.add(Mark::note, "encryption", "none: this run is not secure, or no invitation was given",
                        "on networks that are not private, start the master with --secure (docs/security.md)");
        }
        if (report_.is_bad()) return finish();
        if (secure_ && !options_.enrol && keys_ == nullptr) {
            report_.add(Mark::note, "others", "not examined: a secure master answers such questions only to members",
                        "doctor --enrol asks, and uses the invitation once");
        } else {
            look_from_outside();
        }
        return finish();
    }

private:
    int finish() const {
        const bool asked = options_.invitation.empty() || options_.enrol;
        std::printf("\n%s\n", report_.is_bad() ? "A peer cannot join from here yet: see the lines marked BAD."
                              : asked          ? "A peer can join from here."
                                      : "A peer can join from here, if the invitation is not spent, withdrawn or "
                                        "expired: doctor --enrol asks the master, and uses it once.");
        return report_.is_bad() ? exit_bad : exit_good;
    }

    bool find_master() {
        std::string error;
        if (!options_.invitation.empty()) {
            identity_ = real::tls::PeerIdentity::make(options_.invitation, std::nullopt, error, settings_.bind_address);
            if (identity_ == nullptr || !real::tls::parse_invitation(options_.invitation, invitation_, error)) {
                std::fprintf(stderr, "doctor: the invitation cannot be read: %s\n", error.c_str());
                return false;
            }
            secure_ = true;
            if (options_.master.empty()) options_.master = identity_->master();
        }
        const real::tls::OperatorFiles files{settings_.tls_ca, settings_.tls_cert, settings_.tls_key};
        if (files.any()) {
            if (secure_) error = "give an invitation or PCCL_TLS_CA, not both";
            if (!secure_) keys_ = real::tls::OperatorKeys::open(real::tls::Context::Side::peer, files, error);
            if (keys_ == nullptr || keys_->begin_membership(error).is_nil()) {
                std::fprintf(stderr, "doctor: %s\n", error.c_str());
                return false;
            }
            secure_ = true;
        }
        if (!options_.master.empty()) return true;
        std::fprintf(stderr, "doctor: give --master HOST:PORT, or an invitation (PCCL_INVITE)\n");
        return false;
    }

    bool resolve_name() {
        std::string error;
        const core::Instant began = real::EventLoop::now();
        if (!real::resolve(options_.master, CCOIP_PROTOCOL_PORT_MASTER, masters_, error)) {
            report_.add(Mark::bad, "name", error);
            return false;
        }
        std::string all;
        for (const Endpoint& master : masters_) all += (all.empty() ? "" : ", ") + core::to_text(master);
        report_.add(Mark::good, "name",
                    formatted("{} is {} ({})", options_.master, all, milliseconds(real::EventLoop::now() - began)));
        return true;
    }

    // Finds the first address that answers.
    bool reach_master() {
        std::string tried;
        for (const Endpoint& master : masters_) {
            std::string error;
            const int descriptor = real::dial(master, settings_.bind_address, error);
            if (descriptor >= 0) {
                auto stream = std::make_unique<real::TcpStream>(descriptor);
                const real::Exchange::Stop no_stop;
                real::Exchange exchange(std::move(stream), no_stop, exchange_time);
                if (exchange.open(error)) {
                    master_ = master;
                    local_ = real::local_address(descriptor);
                    tcp_info info{};
                    socklen_t length = sizeof info;
                    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
                        round_trip_ = info.tcpi_rtt * core::microsecond;
                        mtu_ = static_cast<int>(info.tcpi_pmtu);
                    }
                    report_.add(tried.empty() ? Mark::good : Mark::note, "master",
                                formatted("{} answers after {}{}", core::to_text(master), milliseconds(round_trip_),
                                          tried.empty() ? "" : "; not " + tried));
                    return true;
                }
            }
            tried += (tried.empty() ? "" : ", ") + core::to_text(master) + " (" + error + ")";
        }
        report_.add(Mark::bad, "master", "cannot be connected: " + tried,
                    "check that it runs, the address and the port, and that firewalls let this port through");
        return false;
    }

    void look_at_path() {
        if (mtu_ >= mtu_usual)
            report_.add(Mark::good, "path", formatted("packets of {} bytes", mtu_));
        else if (mtu_ > 0)
            report_.add(Mark::note, "path", formatted("packets of at most {} bytes; {} are usual", mtu_, mtu_usual),
                        "a tunnel or VPN is on the way. If transfers stall, it drops larger packets without saying so: "
                        "set the MTU of this host's interface to this value");
        std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
        std::string available;
        std::getline(file, available);
        std::ifstream now("/proc/sys/net/ipv4/tcp_congestion_control");
        std::string usual;
        std::getline(now, usual);
        const char* suits =
            real::congestion_control_for(real::Traffic::payload, core::is_loopback(master_), round_trip_);
        const std::string chosen = !settings_.tcp_congestion.empty() ? settings_.tcp_congestion : suits ? suits : usual;
        if (available.find(chosen) == std::string::npos)
            report_.add(Mark::note, "congestion",
                        formatted("{} would suit this path, but the kernel has only: {}", chosen, available),
                        formatted("as root: modprobe tcp_{}; without it, long paths are slower", chosen));
        else
            report_.add(Mark::good, "congestion", formatted("{} (the kernel has: {})", chosen, available));
        std::ifstream buffers("/proc/sys/net/ipv4/tcp_wmem");
        long least = 0, initial = 0, most = 0;
        if (round_trip_ >= long_path && buffers >> least >> initial >> most && most < (4 << 20))
            report_.add(Mark::note, "buffers",
                        formatted("a connection may hold {} bytes, little for a path this long", most),
                        "as root: sysctl -w net.ipv4.tcp_wmem='4096 16384 16777216', and the same for tcp_rmem");
    }

    // Without using the invitation.
    void check_authority() {
        std::string error;
        const auto context = keys_ != nullptr
                                 ? keys_->context()
                                 : real::tls::Context::make_newcomer(invitation_.authority, std::nullopt, error);
        const int descriptor = context == nullptr ? -1 : real::dial(master_, settings_.bind_address, error);
        auto stream = descriptor < 0
                          ? nullptr
                          : dialled(descriptor, context,
                                    keys_ != nullptr ? real::tls::Protocol::link : real::tls::Protocol::enrolment);
        const real::Exchange::Stop no_stop;
        if (stream == nullptr || !real::Exchange(std::move(stream), no_stop, exchange_time).open(error)) {
            if (error.find("wrong clock") != std::string::npos)
                report_.add(Mark::bad, "clock", error, "timedatectl tells whether the clock of a host is kept");
            else
                report_.add(Mark::bad, "encryption", error,
                            keys_ != nullptr ? "docs/security.md says what the master's certificate must have"
                                             : "if the master is not secure, unset PCCL_INVITE; else ask its operator "
                                               "for a new invitation");
            return;
        }
        report_.add(Mark::good, "encryption",
                    keys_ != nullptr ? "TLS 1.3; the certificate of the master is for the host that is dialled"
                                     : "TLS 1.3; the master belongs to the run of the invitation");
        report_.add(Mark::good, "clock", "the certificate of the master is valid by the clock of this host");
    }

    // A connection to the master. Null: memory is short.
    std::unique_ptr<real::TlsStream> dialled(int descriptor, const std::shared_ptr<const real::tls::Context>& context,
                                             real::tls::Protocol protocol) const {
        auto stream = real::TlsStream::dialled(descriptor, context, protocol);
        const std::string& given = settings_.tls_master_name;
        const std::string host = given.empty() ? real::certificate_host(master_) : given;
        if (stream != nullptr && keys_ != nullptr && !stream->expect_host(host)) stream.reset();
        return stream;
    }

    // Asks the master from this local port (0: any). `listens`: it is to call back at the listener.
    bool ask(std::uint16_t source_port, bool listens, proto::Examined& answer, Endpoint& local, std::string& error) {
        const int descriptor = real::dial(master_, settings_.bind_address, error, source_port);
        if (descriptor < 0) return false;
        local = Endpoint{};
        std::unique_ptr<real::Stream> stream;
        if (secure_)
            stream = dialled(descriptor, keys_ != nullptr ? keys_->context() : identity_->context(),
                             real::tls::Protocol::link);
        else
            stream = std::make_unique<real::TcpStream>(descriptor);
        if (stream == nullptr) {
            error = "no memory for a TLS connection";
            return false;
        }
        const real::Exchange::Stop no_stop;
        real::Exchange exchange(std::move(stream), no_stop, exchange_time);
        if (!exchange.open(error)) return false;
        local = real::local_address(descriptor);
        proto::PeerMessage question;
        question.mutable_examine()->set_port(listens ? port_ : 0);
        std::string body;
        proto::MasterMessage message;
        if (!exchange.ask(core::encode(question), body, error)) return false;
        if (!message.ParseFromString(body) || !message.has_examined()) {
            error = message.has_refusal() ? core::to_text(core::cause_of(message.refusal().cause()))
                                          : "its answer cannot be read; do both ends run the same version?";
            return false;
        }
        answer = message.examined();
        return true;
    }

    void look_from_outside() {
        std::string error;
        const bool enrols = identity_ != nullptr;
        if (enrols && !identity_->join(masters_, 0, nullptr, error)) {
            report_.add(Mark::bad, "invitation", error);
            return;
        }
        if (enrols) report_.add(Mark::good, "invitation", "the master has given a certificate for it");
        const real::ListenRequest request{settings_.bind_address, settings_.port_first, settings_.port_last,
                                          "; widen PCCL_PORT_RANGE, or set it to 0 for any free port", true};
        listener_ = real::listen_on(request, port_, error);
        if (listener_ < 0) report_.add(Mark::bad, "listener", error);
        if (listener_ < 0) return;
        proto::Examined answer;
        Endpoint local, seen;
        if (!ask(port_, true, answer, local, error) || !core::read(answer.seen(), seen)) {
            report_.add(Mark::bad, "answer", error);
            return;
        }
        report_.add(Mark::good, "version",
                    formatted("the master speaks protocol version {}, as this host does", answer.protocol_version()));
        const bool translated = !core::same_host(seen, local);
        const bool keeps_ports = translated && seen.port == local.port;
        tell_address(local, seen, translated, keeps_ports);
        tell_reached(answer.dials(), translated, keeps_ports, seen);
    }

    void tell_address(const Endpoint& local, const Endpoint& seen, bool translated, bool keeps_ports) {
        if (!translated) {
            report_.add(Mark::good, "address",
                        formatted("the master sees this host at its own address, {}", host_of(local)));
            return;
        }
        tell_router();
        const std::string text =
            formatted("{} here, {} for others: a translator (NAT) is in between", host_of(local), host_of(seen));
        if (local.port != port_) {
            report_.add(Mark::note, "address", text + "; what it does with ports could not be seen");
        } else if (keeps_ports) {
            report_.add(Mark::good, "address", text + ". It keeps ports, so two peers behind such ones can connect");
        } else {
            report_.add(Mark::note, "address",
                        formatted("{}. It makes port {} of {}: peers here can only connect with those that "
                                  "others reach",
                                  text, seen.port, local.port),
                        "if it is a router of yours, forward a port to this host, and set PCCL_ADVERTISE_ADDRESS, or "
                        "let it do so for peers (PCP, NAT-PMP or UPnP) and set PCCL_PORT_MAPPING=1");
        }
    }

    void tell_router() {
        std::string spoken, others, why;
        std::optional<Endpoint> outer;
        for (const real::ExaminedWay& way : real::examine_router(why)) {
            if (way.speaks)
                spoken += (spoken.empty() ? "" : ", ") + way.name;
            else
                others += (others.empty() ? "" : "; ") + way.name + ": " + way.why;
            if (way.outer) outer = way.outer;
        }
        const std::string other_ways = others.empty() ? "" : formatted(" ({})", others);
        if (spoken.empty())
            report_.add(Mark::note, "router",
                        formatted("gives no ports{}", others.empty() ? " (" + why + ")" : other_ways),
                        "if it is a router of yours, switch on PCP, NAT-PMP or UPnP there and set PCCL_PORT_MAPPING=1, "
                        "or forward a port to this host");
        else if (outer && real::is_private(*outer))
            report_.add(Mark::note, "router",
                        formatted("speaks {}{}, but is itself behind another router: its outer address {} is private",
                                  spoken, other_ways, host_of(*outer)),
                        "PCCL_PORT_MAPPING does not help here; forward a port in both routers, or let the first one "
                        "only bridge");
        else
            report_.add(Mark::good, "router",
                        formatted("gives ports to peers that ask with PCCL_PORT_MAPPING=1: it speaks {}{}{}", spoken,
                                  other_ways, outer ? formatted(", and is {} for others", host_of(*outer)) : ""));
    }

    void tell_reached(bool dials, bool translated, bool keeps_ports, const Endpoint& seen) {
        if (!dials) {
            report_.add(Mark::note, "others", "not examined: the master is asked by others at the moment; try again");
            return;
        }
        pollfd waits{listener_, POLLIN, 0};
        Endpoint caller;
        bool reached = false;
        const core::Instant end = real::EventLoop::now() + call_back_ms * core::millisecond;
        // Somebody else may dial, too.
        while (!reached && real::EventLoop::now() < end && ::poll(&waits, 1, 100) >= 0) {
            const int descriptor = real::accept_from(listener_, caller);
            reached = descriptor >= 0 && core::same_host(caller, master_);
            real::close_socket(descriptor);
        }
        if (reached) {
            report_.add(Mark::good, "others", formatted("reach this host: the master has dialled port {}", port_));
            return;
        }
        const std::string text =
            formatted("do not reach this host: the master dialled {}:{}, and nothing came", host_of(seen), port_);
        const char* const remedy = "open this port, or forward it (PCCL_PORT_RANGE, PCCL_ADVERTISE_ADDRESS)";
        if (!translated || keeps_ports)
            report_.add(Mark::note, "others", text + ". This peer will dial them instead", remedy);
        else
            report_.add(Mark::note, "others", text + ". It can only be with peers that others reach", remedy);
    }

    DoctorOptions options_;
    const real::EnvironmentSettings settings_;
    Report report_;
    bool secure_ = false;
    std::unique_ptr<real::tls::PeerIdentity> identity_;  // of an invitation
    std::unique_ptr<real::tls::OperatorKeys> keys_;      // of PCCL_TLS_CA
    real::tls::Invitation invitation_;
    std::vector<Endpoint> masters_;
    Endpoint master_, local_;
    core::Duration round_trip_ = 0;
    int mtu_ = 0;
    int listener_ = -1;
    std::uint16_t port_ = 0;
};

}  // namespace

int doctor(const DoctorOptions& options) { return Doctor(options).run(); }

}  // namespace pccl_master
