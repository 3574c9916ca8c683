// bridge-peer: one application process of a scenario, on real sockets. Started by `sim-run --real`.
//
// Reads the scenario, runs the program of harness/training.cpp over libpccl, and writes what the program did and saw to
// a file. The end of its standard input tells it to end. Exit codes: 0 the program came to its end, 1 something of the
// machine failed, 2 usage.
#include "harness/scenario_text.hpp"
#include "tools/bridge-peer/real_world.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace {

using namespace pccl;

bool read_scenario(const std::string& path, harness::Scenario& scenario) {
    std::FILE* in = std::fopen(path.c_str(), "r");
    if (in == nullptr) {
        std::fprintf(stderr, "bridge-peer: cannot read %s: %s\n", path.c_str(), std::strerror(errno));
        return false;
    }
    std::string text(harness::scenario_bytes_max + 1, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), in));
    std::fclose(in);
    harness::ScenarioError error;
    const auto read = harness::parse_scenario(text, error);
    if (!read) {
        std::fprintf(stderr, "%s:%u:%u: %s\n", path.c_str(), error.line, error.column, error.expected.c_str());
        return false;
    }
    scenario = *read;
    return true;
}

bool parse_address(const std::string& text, ccoip_socket_address_t& address) {
    unsigned a = 0, b = 0, c = 0, d = 0, port = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%u.%u.%u.%u:%u%n", &a, &b, &c, &d, &port, &used) != 5 ||
        used != static_cast<int>(text.size()) || a > 255 || b > 255 || c > 255 || d > 255 || port > 65'535)
        return false;
    address.inet.protocol = inetIPv4;
    const std::uint8_t bytes[] = {static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b),
                                  static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(d)};
    std::memcpy(address.inet.ipv4.data, bytes, sizeof bytes);
    address.port = static_cast<std::uint16_t>(port);
    return true;
}

int run(const harness::Scenario& scenario, std::uint32_t node, std::uint32_t number, ccoip_socket_address_t master,
        core::Instant origin, int facts_file) {
    if (pcclInit() != pcclSuccess) return 1;
    pcclCommCreateParams_t parameters{};
    parameters.master_address = master;
    parameters.peer_group = scenario.peers[node - 1].group;
    parameters.p2p_connection_pool_size = scenario.peers[node - 1].stripes;

    harness::FactsWriter facts(facts_file);
    harness::Shared shared;
    shared.goals.assign(scenario.peers.size() + 1, false);
    shared.core = shared.goals;
    bridge::RealWorld world(parameters, origin, facts, shared);
    harness::Process process(world, scenario, shared, node, number);
    if (world.run(process)) return 0;
    std::fprintf(stderr, "bridge-peer: the facts cannot be written: %s\n", std::strerror(errno));
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"One application process of a scenario, over libpccl. Started by sim-run --real."};
    std::string scenario_path, master_text, facts_path;
    std::uint32_t node = 0, number = 0;
    core::Instant origin = 0;
    app.add_option("--scenario", scenario_path, "the scenario's file")->required();
    app.add_option("--node", node, "which peer of the scenario, from 1")->required();
    app.add_option("--number", number, "counts the processes of the run")->required();
    app.add_option("--master", master_text, "A.B.C.D:PORT of the master")->required();
    app.add_option("--origin", origin, "the monotonic clock, in ns, at time 0 of the run")->required();
    app.add_option("--facts", facts_path, "where to write what the program did and saw")->required();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    harness::Scenario scenario;
    ccoip_socket_address_t master{};
    if (!read_scenario(scenario_path, scenario)) return 2;
    if (node == 0 || node > scenario.peers.size() || !parse_address(master_text, master)) {
        std::fprintf(stderr, "bridge-peer: --node %u or --master %s makes no sense for this scenario\n", node,
                     master_text.c_str());
        return 2;
    }
    const int facts_file = open(facts_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (facts_file < 0) {
        std::fprintf(stderr, "bridge-peer: cannot write %s: %s\n", facts_path.c_str(), std::strerror(errno));
        return 1;
    }
    return run(scenario, node, number, master, origin, facts_file);
}
