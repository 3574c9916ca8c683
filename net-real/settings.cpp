#include "net-real/settings.hpp"

#include "core/base/format.hpp"
#include "core/topology/address_rules.hpp"
#include "net-real/log.hpp"
#include "net-real/resolve.hpp"

#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstdlib>

namespace pccl::real {

namespace {

constexpr std::uint64_t day_ms = 86'400'000;

constexpr std::array<SettingInfo, static_cast<std::size_t>(Setting::count)> table{{
    {"PCCL_PEER_TIMEOUT_MS", "10000", "200..86400000", "both",
     "Silence in milliseconds after which a connection counts as dead and its peer is removed. The master's value "
     "rules."},
    {"PCCL_MASTER_TIMEOUT_MS", "30000", "0..86400000", "both",
     "How long in milliseconds peers wait for a lost master before their calls fail; 0: they fail at once."},
    {"PCCL_BIND_ADDRESS", "*", "numeric IPv4 or IPv6 address", "peers",
     "Address on which a peer listens and from which it connects; *: all addresses of the host."},
    {"PCCL_PORT_RANGE", "48149-48404", "FIRST-LAST, one port, or 0", "peers",
     "A peer listens on the first free port of this range; 0: on any free port."},
    {"PCCL_MAX_CONCURRENT_COLLECTIVE_OPS", "16", "1..4096", "peers",
     "Collectives of one group that run at the same time; the smallest value of any member counts."},
    {"PCCL_STATE_DIR", "none", "a directory", "the master",
     "The directory for the master's journal. A master that was killed and is started again with the same directory "
     "resumes the run."},
    {"PCCL_LOG_LEVEL", "WARN", "TRACE, DEBUG, INFO, WARN, ERR, FATAL, NONE", "the process",
     "The lowest level that is written to standard error or to the log callback."},
    {"PCCL_ADVERTISE_ADDRESS", "as the master sees the peer", "HOST, HOST:PORT or [V6]:PORT", "peers",
     "The address at which the other peers reach this one, if it is not the address that the master sees (port "
     "forwarding, a peer on the master's host). Without a port: the port of its listener."},
    {"PCCL_VOTE_WARN_S", "30", "1..86400", "the master",
     "When a vote has waited for so many seconds, the master and the waiting peers log which peers are missing and "
     "what these do instead."},
    {"PCCL_VOTE_TIMEOUT_S", "0", "0..86400", "the master",
     "When nobody has joined a vote for so many seconds, the master removes missing members that make no call. If all "
     "missing members wait in different calls, these calls fail with pcclInvalidUsage. 0: never. A member that still "
     "hashes its content for a vote, or copies a result, has up to twenty times as long."},
    {"PCCL_JOURNAL_TIMEOUT_S", "0", "0..86400", "the master",
     "When the disk of the journal has not answered for so many seconds, the master stops with exit code 1, so that it "
     "can be started again; 0: never."},
    {"PCCL_MULTIPLEX_CHUNK_SIZE", "262144", "4096..4194304, a multiple of 8", "peers",
     "Bytes of one slice of an all-reduce, the unit in which operations share connections. All members of a group need "
     "the same value."},
    {"PCCL_NUM_BENCHMARK_CONNECTIONS", "16", "1..64", "peers",
     "Connections with which pcclOptimizeTopology measures the bandwidth between two peers."},
    {"PCCL_MAX_SCRATCH_BYTES", "0", "0, or 1048576..", "peers",
     "Memory that the running collectives of one communicator may take beside the application's buffers (an operation "
     "in place needs as much as its buffer). What does not fit fails for the group. 0: no limit."},
    {"PCCL_TCP_CONGESTION", "by path", "a name the kernel knows", "both",
     "TCP congestion control, cubic or bbr for example. By path: cubic on loopback and to the master, bbr between peers "
     "where a round trip takes 5 ms or more, if the kernel has them; else the system's."},
    {"PCCL_MAX_STAGING_BYTES", "4294967296", "0..281474976710656", "peers",
     "A synchronization keeps received shared state in memory until it is complete, if it is at most this size. Larger "
     "state is kept in a nameless file under TMPDIR, else /var/tmp or /tmp."},
    {"PCCL_SHARED_MEMORY", "1", "0 or 1", "peers",
     "1: data connections between two peers of one host, in one network namespace and of one user, go through shared "
     "memory if both peers allow it; 0: through TCP."},
    {"PCCL_HOST", "kernel and network namespace", "a name", "peers",
     "Names the host of the peer. Peers with equal names are neighbours in the ring, and an all-reduce of 4 MiB and "
     "more crosses the network once for each host."},
    {"PCCL_IO_THREADS", "1", "1..64", "peers",
     "Threads of one communicator that move payload and reduce it. More than one need cores of their own, and as many "
     "connections between two peers."},
    {"PCCL_PORT_MAPPING", "0", "0 or 1", "peers",
     "1: a peer without PCCL_ADVERTISE_ADDRESS asks its router to forward a port, by PCP, NAT-PMP or UPnP, and other "
     "peers dial that port. This takes at most 5 s when the peer starts. The peer gives the port back when it ends."},
    {"PCCL_INVITE", "none", "what `pccl-master invite` printed", "peers",
     "Joins a secure run (docs/security.md). It contains the address of the master, which replaces the program's, the "
     "hash of the run's authority, and a secret."},
    {"PCCL_TLS_CA", "none", "a PEM file", "both",
     "Secures the run with certificates of the operator's own PKI (docs/security.md): the authorities that are "
     "trusted. If the file has CRLs, they are checked."},
    {"PCCL_TLS_CERT", "none", "a PEM file", "both",
     "The certificate of this process, with the certificates between it and an authority of PCCL_TLS_CA."},
    {"PCCL_TLS_KEY", "none", "a PEM file", "both", "The private key of PCCL_TLS_CERT, without a pass phrase."},
    {"PCCL_TLS_MASTER_NAME", "the dialled address", "a host name or address", "peers",
     "With PCCL_TLS_CA: the name that the certificate of the master must have."},
}};

const char* value_of(Setting setting) {
    const char* text = std::getenv(info_of(setting).name);
    return text == nullptr || *text == '\0' ? nullptr : text;
}

bool parse_number(std::string_view text, std::uint64_t min, std::uint64_t max, std::uint64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() && number >= min && number <= max;
}

bool parse_range(std::string_view text, std::uint16_t& first, std::uint16_t& last) {
    const std::size_t dash = text.find('-');
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    if (dash == std::string_view::npos) {
        if (!parse_number(text, 0, 65535, low)) return false;
        high = low;
    } else {
        if (!parse_number(text.substr(0, dash), 1, 65535, low)) return false;
        if (!parse_number(text.substr(dash + 1), low, 65535, high)) return false;
    }
    first = static_cast<std::uint16_t>(low);
    last = static_cast<std::uint16_t>(high);
    return true;
}

bool parse_address(std::string_view text, bool port_too, std::optional<core::Endpoint>& address) {
    core::Endpoint endpoint;
    if (!parse_endpoint(text, endpoint) || (endpoint.port != 0 && !port_too)) return false;
    address = endpoint;
    return true;
}

// All numbers are in the unit of the setting.
bool parse_duration(std::string_view text, std::uint64_t min, std::uint64_t max, core::Duration unit,
                    core::Duration& duration) {
    std::uint64_t number = 0;
    if (!parse_number(text, min, max, number)) return false;
    duration = static_cast<core::Duration>(number) * unit;
    return true;
}

template <class Number>
bool parse_count(std::string_view text, std::uint64_t min, std::uint64_t max, Number& count) {
    std::uint64_t number = 0;
    if (!parse_number(text, min, max, number)) return false;
    count = static_cast<Number>(number);
    return true;
}

// A name is looked up once, here. Other peers get the address.
bool parse_advertised(std::string_view text, std::optional<core::Endpoint>& address, std::string& why) {
    std::vector<core::Endpoint> found;
    if (!resolve(text, 0, found, why)) return false;
    core::Endpoint probe = found.front();
    if (probe.port == 0) probe.port = 1;  // the listener's port is not known yet
    if (const char* reason = core::why_not_a_target(probe)) {
        why = reason;
        return false;
    }
    address = found.front();
    return true;
}

bool parse(Setting setting, std::string_view text, EnvironmentSettings& settings, std::string& why) {
    switch (setting) {
    case Setting::peer_timeout: return parse_duration(text, 200, day_ms, core::millisecond, settings.peer_timeout);
    case Setting::master_timeout: return parse_duration(text, 0, day_ms, core::millisecond, settings.master_timeout);
    case Setting::bind_address:
        if (text == "*") settings.bind_address.reset();
        return text == "*" || parse_address(text, false, settings.bind_address);
    case Setting::port_range: return parse_range(text, settings.port_first, settings.port_last);
    case Setting::concurrent_ops: return parse_count(text, 1, 4096, settings.concurrent_ops);
    case Setting::state_dir: settings.state_directory = text; return true;
    case Setting::log_level: {
        Severity ignored;  // the log reads the variable itself, at its first line
        return parse_severity(text, ignored);
    }
    case Setting::advertise_address: return parse_advertised(text, settings.advertised, why);
    case Setting::vote_warn: return parse_duration(text, 1, day_ms / 1000, core::second, settings.vote_warn);
    case Setting::vote_timeout: return parse_duration(text, 0, day_ms / 1000, core::second, settings.vote_timeout);
    case Setting::journal_timeout:
        return parse_duration(text, 0, day_ms / 1000, core::second, settings.journal_timeout);
    case Setting::chunk_size: {
        std::uint32_t bytes = 0;
        if (!parse_count(text, 4096, 4u << 20, bytes) || bytes % 8 != 0) return false;
        settings.chunk_bytes = bytes;
        return true;
    }
    case Setting::benchmark_connections: return parse_count(text, 1, 64, settings.benchmark_connections);
    case Setting::scratch_bytes: {
        std::uint64_t bytes = 0;
        if (!parse_count(text, 0, ~std::uint64_t{0}, bytes) || (bytes != 0 && bytes < (1u << 20))) return false;
        settings.scratch_bytes = bytes;
        return true;
    }
    case Setting::staging_bytes: return parse_count(text, 0, std::uint64_t{1} << 48, settings.staging_bytes);
    case Setting::shared_memory:
        if (text != "0" && text != "1") return false;
        settings.shared_memory = text == "1";
        return true;
    case Setting::host: settings.host = text; return true;
    case Setting::io_threads: return parse_count(text, 1, 64, settings.io_threads);
    case Setting::port_mapping:
        if (text != "0" && text != "1") return false;
        settings.port_mapping = text == "1";
        return true;
    case Setting::invite: settings.invite = text; return true;  // examined when the peer connects
    case Setting::tls_ca: settings.tls_ca = text; return true;  // these are read when they are used
    case Setting::tls_cert: settings.tls_cert = text; return true;
    case Setting::tls_key: settings.tls_key = text; return true;
    case Setting::tls_master_name: settings.tls_master_name = text; return true;
    case Setting::tcp_congestion:
        if (text.size() > 15) return false;  // TCP_CA_NAME_MAX
        settings.tcp_congestion = text;
        return true;
    case Setting::count: break;
    }
    return false;
}

}  // namespace

std::span<const SettingInfo> setting_table() { return table; }

const SettingInfo& info_of(Setting setting) { return table[static_cast<std::size_t>(setting)]; }

std::string setting_help() {
    std::string text;
    for (const SettingInfo& info : table) {
        text +=
            core::formatted("  {}  (default {}; {})\n      {}\n", info.name, info.default_value, info.range, info.help);
    }
    return text;
}

std::string setting_markdown() {
    std::string text = "| variable | default | values | read by | meaning |\n|---|---|---|---|---|\n";
    for (const SettingInfo& info : table) {
        text += core::formatted("| `{}` | {} | {} | {} | {} |\n", info.name, info.default_value, info.range,
                                info.reader, info.help);
    }
    return text;
}

bool apply_setting(Setting setting, std::string_view text, EnvironmentSettings& settings, std::string& why) {
    std::string cause;
    if (parse(setting, text, settings, cause)) return true;
    const SettingInfo& info = info_of(setting);
    why = core::formatted("{}={} cannot be used ({}range: {})", info.name, text, cause.empty() ? "" : cause + "; ",
                          info.range);
    return false;
}

EnvironmentSettings read_environment(Reader reader) {
    EnvironmentSettings settings;
    for (std::size_t i = 0; i < table.size(); ++i) {
        const auto setting = static_cast<Setting>(i);
        if (setting == Setting::log_level) continue;  // the log warns about it
        if (reader == Reader::master && std::string_view(table[i].reader) == "peers") continue;
        const char* text = value_of(setting);
        std::string why;
        if (text == nullptr || apply_setting(setting, text, settings, why)) continue;
        log_line(Severity::warn, "pccl", core::formatted("{}; the default {} is taken", why, table[i].default_value));
    }
    return settings;
}

bool parse_endpoint(std::string_view text, core::Endpoint& endpoint) {
    std::string host(text);
    std::string port;
    if (!host.empty() && host.front() == '[') {
        const std::size_t end = host.find(']');
        if (end == std::string::npos) return false;
        const std::string rest = host.substr(end + 1);
        host = host.substr(1, end - 1);
        if (!rest.empty()) {
            if (rest.front() != ':') return false;
            port = rest.substr(1);
            if (port.empty()) return false;
        }
        if (host.find(':') == std::string::npos) return false;
    } else if (const std::size_t colon = host.find(':');
               colon != std::string::npos && host.find(':', colon + 1) == std::string::npos) {
        port = host.substr(colon + 1);
        host = host.substr(0, colon);
        if (port.empty()) return false;
    }
    core::Endpoint parsed;
    parsed.port = endpoint.port;
    std::uint64_t number = 0;
    if (!port.empty()) {
        if (!parse_number(port, 0, 65535, number)) return false;
        parsed.port = static_cast<std::uint16_t>(number);
    }
    if (host == "*") host = "0.0.0.0";
    if (host == "localhost") host = "127.0.0.1";
    if (::inet_pton(AF_INET, host.c_str(), parsed.address.data()) != 1) {
        if (::inet_pton(AF_INET6, host.c_str(), parsed.address.data()) != 1) return false;
        parsed.is_v6 = true;
    }
    endpoint = parsed;
    return true;
}

}  // namespace pccl::real
