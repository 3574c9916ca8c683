// Every command, field and setting of the core must be drawn by some program.
//
// A structured binding takes each structure apart, with as many names as it has fields. So a new field does not compile
// here until it has a name. Then a range of seeds must give each field at least two values, or each value of an enum. A
// list names what cannot be drawn, with the reason. An entry must leave the list when it can be drawn.
#include "harness/run.hpp"
#include "net-sim/describe.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

using namespace pccl;
using namespace pccl::core;
using namespace pccl::harness;

namespace {

const std::map<std::string, std::string> not_drawn = {
    {"PeerConfig.key", "nobody guesses tokens: strangers know what they saw"},
    {"MasterConfig.key", "nobody guesses tokens: strangers know what they saw"},
    {"PeerConfig.listen_port", "the network leads to nodes: each has one listener"},
    {"CommandReduceMany.launches.ticket", "not used there"},
    {"CommandReduceMany.launches.collective", "no function of the interface does that"},
};

// For each public function, the structure of the core that the range of seeds must reach; or, behind a `-`, why there
// is none.
const std::map<std::string, std::string> public_calls = {
    {"pcclConnect", "CommandConnect."},
    {"pcclUpdateTopology", "CommandUpdateTopology."},
    {"pcclArePeersPending", "CommandArePeersPending."},
    {"pcclOptimizeTopology", "CommandOptimizeTopology."},
    {"pcclAllReduce", "CommandLaunch."},
    {"pcclAllReduceAsync", "CommandLaunch."},
    {"pcclAwaitAsyncReduce", "CommandAwait."},
    {"pcclAwaitAsyncReduceThen", "CommandAwait."},
    {"pcclAllReduceMultipleWithRetry", "CommandReduceMany."},
    {"pcclSynchronizeSharedState", "CommandSync."},
    {"pcclSetPieceOrder", "CommandLaunch.order"},
    {"pcclAllGather", "CommandLaunch.collective"},
    {"pcclAllGatherAsync", "CommandLaunch.collective"},
    {"pcclBroadcast", "CommandLaunch.collective"},
    {"pcclBroadcastAsync", "CommandLaunch.collective"},
    {"pcclReduceScatter", "CommandLaunch.collective"},
    {"pcclReduceScatterAsync", "CommandLaunch.collective"},
    {"pcclReduce", "CommandLaunch.collective"},
    {"pcclReduceAsync", "CommandLaunch.collective"},
    {"pcclGather", "CommandLaunch.collective"},
    {"pcclGatherAsync", "CommandLaunch.collective"},
    {"pcclScatter", "CommandLaunch.counts"},
    {"pcclScatterAsync", "CommandLaunch.counts"},
    {"pcclAllToAll", "CommandLaunch.counts"},
    {"pcclAllToAllAsync", "CommandLaunch.counts"},
    {"pcclSend", "CommandLaunch.sends"},
    {"pcclSendAsync", "CommandLaunch.sends"},
    {"pcclRecv", "CommandLaunch.sends"},
    {"pcclRecvAsync", "CommandLaunch.sends"},
    {"pcclBarrier", "CommandLaunch.collective"},
    {"pcclBarrierAsync", "CommandLaunch.collective"},
    {"pcclAwaitCollective", "CommandAwait."},
    {"pcclAwaitCollectiveThen", "CommandAwait."},
    {"pcclGetPeerId", "- reads what the driver knows"},
    {"pcclDestroyCommunicator", "CommandLeave."},
    {"pcclAbort", "CommandLeave.abort"},
    {"pcclCreateCommunicator", "PeerConfig.group"},
    {"pcclCreateCommunicatorWithConfig", "PeerConfig.stripes"},
    {"pcclRunMaster", "MasterConfig.seed"},
    {"pcclInterruptMaster", "- the fault stop-master"},
    {"pcclDestroyMaster", "- the fault stop-master"},
    {"pcclCreateMaster", "- binds an address, which is the driver's"},
    {"pcclMasterAwaitTermination", "- waits for a thread of the runtime"},
    {"pcclGetMasterPort", "- reads what the driver knows"},
    {"pcclGetAttribute", "- reads what each completion told, which the oracles compare"},
    {"pcclGetStats", "- reads the counters that numbers.cpp compares"},
    {"pcclInit", "- reaches no machine"},
    {"pcclGetBuildInfo", "- reaches no machine"},
    {"pcclGetErrorName", "- reaches no machine"},
    {"pcclGetErrorString", "- reaches no machine"},
    {"pcclGetLastErrorMessage", "- reaches no machine"},
    {"pcclGetVersion", "- reaches no machine"},
    {"pcclSetLogCallback", "- reaches no machine"},
    {"pcclSetWaitCheck", "- gives a waiting call up with an abort, which is drawn"},
};

// The same for the settings of users.
const std::map<std::string, std::string> settings = {
    {"PCCL_PEER_TIMEOUT_MS", "Timeouts.peer"},
    {"PCCL_MASTER_TIMEOUT_MS", "Timeouts.master"},
    {"PCCL_MAX_CONCURRENT_COLLECTIVE_OPS", "Limits.concurrent_ops"},
    {"PCCL_ADVERTISE_ADDRESS", "PeerConfig.advertised"},
    {"PCCL_IO_THREADS", "- the driver's: the machine sees one thread"},
    {"PCCL_PORT_MAPPING", "- the driver's; it gives PeerConfig.advertised; tests/integration/nat_test.cpp"},
    {"PCCL_VOTE_WARN_S", "Timeouts.vote_warn"},
    {"PCCL_VOTE_TIMEOUT_S", "Timeouts.vote"},
    {"PCCL_JOURNAL_TIMEOUT_S", "Timeouts.journal"},
    {"PCCL_MULTIPLEX_CHUNK_SIZE", "Limits.slice_bytes"},
    {"PCCL_NUM_BENCHMARK_CONNECTIONS", "Limits.test_connections"},
    {"PCCL_MAX_SCRATCH_BYTES", "Limits.operation_bytes_max"},
    {"PCCL_STATE_DIR", "- every simulated master has a journal; faults empty and lose it"},
    {"PCCL_BIND_ADDRESS", "- the driver's"},
    {"PCCL_PORT_RANGE", "- the driver's"},
    {"PCCL_LOG_LEVEL", "- reaches no machine"},
    {"PCCL_TCP_CONGESTION", "- the kernel's; the simulated network has windows and rates instead"},
    {"PCCL_INVITE", "- the driver's; net-real/tests/secure_run_test.cpp"},
    {"PCCL_TLS_CA", "- the driver's; net-real/tests/operator_keys_test.cpp"},
    {"PCCL_TLS_CERT", "- the driver's; net-real/tests/operator_keys_test.cpp"},
    {"PCCL_TLS_KEY", "- the driver's; net-real/tests/operator_keys_test.cpp"},
    {"PCCL_TLS_MASTER_NAME", "- the driver's; net-real/tests/operator_keys_test.cpp"},
    {"PCCL_HOST", "PeerConfig.host"},
    {"PCCL_SHARED_MEMORY", "- the driver's; tests/integration/one_host_test.cpp"},
    {"PCCL_MAX_STAGING_BYTES", "- the driver's; memory that comes late or never is drawn"},
};

constexpr std::uint64_t last_seed = 1'500;

class Values final : public Reach {
public:
    void peer(const PeerConfig& config) override {
        const auto& [seed, key, master, other_masters, group, gang, gang_patience, host, stripes, listen_port,
                     has_advertised, advertised, limits, timeouts] = config;
        const auto& [gang_name, gang_size, gang_place] = gang;
        in_ = "PeerConfig.";
        see("seed", seed);
        see("key", std::string(key.begin(), key.end()));
        see("master", to_text(master));
        see("other_masters", other_masters.size());
        for (const Endpoint& other : other_masters) see("other_masters.address", to_text(other));
        see("group", group);
        see("gang.name", gang_name);
        see("gang.size", gang_size);
        see("gang.place", gang_place);
        see("gang_patience", gang_patience);
        see("host", host);
        see("stripes", stripes);
        see("listen_port", listen_port);
        see("has_advertised", has_advertised);
        see("advertised", to_text(advertised));
        see_limits(limits);
        see_timeouts(timeouts);
    }

    void master(const MasterConfig& config) override {
        const auto& [seed, key, limits, timeouts] = config;
        in_ = "MasterConfig.";
        see("seed", seed);
        see("key", std::string(key.begin(), key.end()));
        see_limits(limits);
        see_timeouts(timeouts);
    }

    void command(const Command& command) override {
        ++commands_[command.index()];
        std::visit([this](const auto& c) { see_command(c); }, command);
    }

    std::vector<std::string> missing() const {
        std::vector<std::string> names;
        for (const auto& [name, value] : seen_) {
            if (value.different.size() < value.least) names.push_back(name);
        }
        return names;
    }
    bool reached(const std::string& what) const {
        return std::any_of(seen_.begin(), seen_.end(), [&](const auto& entry) {
            const bool whole = what.back() == '.';
            return whole ? entry.first.starts_with(what) && !entry.second.different.empty()
                         : entry.first.ends_with(what) && entry.second.different.size() >= entry.second.least;
        });
    }
    bool all_commands() const {
        return std::all_of(commands_.begin(), commands_.end(), [](std::uint64_t count) { return count != 0; });
    }

private:
    struct Seen {
        std::set<std::string> different;
        std::size_t least = 0;
    };

    void see(const char* name, const std::string& value, std::size_t least = 2) {
        Seen& seen = seen_[in_ + name];
        seen.least = least;
        if (seen.different.size() < least) seen.different.insert(value);
    }
    template <class Number>
    requires std::is_arithmetic_v<Number>
    void see(const char* name, Number value) { see(name, std::to_string(value)); }
    template <class Enum>
    requires std::is_enum_v<Enum>
    void see(const char* name, Enum value, std::size_t values) {
        see(name, std::to_string(static_cast<unsigned>(value)), values);
    }

    void see_limits(const Limits& limits) {
        const auto& [control_bytes_max, payload_bytes_max, key_bytes_max, peers_max, unregistered_links_max,
                     newcomer_links_max, stripes_max, untold_max, kept_bytes_max, held_bytes_max, ids_per_incarnation,
                     journal_records, removed_kept, former_tokens_max, joiner_reports_at_once, gang_name_bytes_max,
                     gang_size_max, gang_waiting_max, votes_listed, operations_listed, removals_listed, members_named,
                     slice_bytes, eager_bytes, long_path, near_eager_bytes, near_slots_bytes, vote_input_bytes_max,
                     vote_inputs_launched, vote_inputs_open_bytes, vote_inputs_held_bytes, vote_results_untold,
                     tags_max, concurrent_ops, scratch_bytes, min_slots, operation_bytes_max, slots_max, inputs_ready,
                     batch_failures_at_once, pairwise_bytes_max, near_pairwise_bytes_max, unequal_parts_bytes_min,
                     direct_peers_max, copy_bytes, copies_in_flight, entries_max, chunk_bytes, chunks_in_flight,
                     hashes_in_flight, chunk_requests_max, digest_block_bytes, early_requests_max, hash_lists_in_flight,
                     hashes_first, sources_active_max, sources_max, holders_told_max, holders_told_again_max,
                     abandoned_stagings_max, revision_max, test_connections, test_connections_first, test_bytes,
                     test_frame_least, test_frame_most, search_steps, search_answer_steps, search_background_steps] =
            limits;
        in_ = "Limits.";
        see("control_bytes_max", control_bytes_max);
        see("payload_bytes_max", payload_bytes_max);
        see("key_bytes_max", key_bytes_max);
        see("peers_max", peers_max);
        see("unregistered_links_max", unregistered_links_max);
        see("newcomer_links_max", newcomer_links_max);
        see("stripes_max", stripes_max);
        see("untold_max", untold_max);
        see("kept_bytes_max", kept_bytes_max);
        see("held_bytes_max", std::to_string(held_bytes_max), 1);  // no drawn disk hangs for so long
        see("ids_per_incarnation", ids_per_incarnation);
        see("journal_records", journal_records);
        see("slice_bytes", slice_bytes);
        see("eager_bytes", eager_bytes);
        see("tags_max", tags_max);
        see("long_path", long_path);
        see("near_eager_bytes", near_eager_bytes);
        see("near_slots_bytes", near_slots_bytes);
        see("vote_input_bytes_max", vote_input_bytes_max);
        see("vote_inputs_launched", vote_inputs_launched);
        see("vote_inputs_open_bytes", vote_inputs_open_bytes);
        see("vote_inputs_held_bytes", vote_inputs_held_bytes);
        see("vote_results_untold", vote_results_untold);
        see("concurrent_ops", concurrent_ops);
        see("scratch_bytes", scratch_bytes);
        see("min_slots", min_slots);
        see("operation_bytes_max", operation_bytes_max);
        see("entries_max", entries_max);
        see("chunk_bytes", chunk_bytes);
        see("chunks_in_flight", chunks_in_flight);
        see("hashes_in_flight", hashes_in_flight);
        see("revision_max", revision_max);
        see("test_connections", test_connections);
        see("test_connections_first", test_connections_first);
        see("test_bytes", test_bytes);
        see("search_steps", search_steps);
        see("removed_kept", removed_kept);
        see("former_tokens_max", former_tokens_max);
        see("joiner_reports_at_once", joiner_reports_at_once);
        see("gang_name_bytes_max", gang_name_bytes_max);
        see("gang_size_max", gang_size_max);
        see("gang_waiting_max", gang_waiting_max);
        see("votes_listed", votes_listed);
        see("operations_listed", operations_listed);
        see("removals_listed", removals_listed);
        see("members_named", members_named);
        see("slots_max", slots_max);
        see("inputs_ready", inputs_ready);
        see("batch_failures_at_once", batch_failures_at_once);
        see("pairwise_bytes_max", pairwise_bytes_max);
        see("near_pairwise_bytes_max", near_pairwise_bytes_max);
        see("unequal_parts_bytes_min", unequal_parts_bytes_min);
        see("direct_peers_max", direct_peers_max);
        see("copy_bytes", copy_bytes);
        see("copies_in_flight", copies_in_flight);
        see("chunk_requests_max", chunk_requests_max);
        see("digest_block_bytes", digest_block_bytes);
        see("early_requests_max", early_requests_max);
        see("hash_lists_in_flight", hash_lists_in_flight);
        see("hashes_first", hashes_first);
        see("sources_active_max", sources_active_max);
        see("sources_max", sources_max);
        see("holders_told_max", holders_told_max);
        see("holders_told_again_max", holders_told_again_max);
        see("abandoned_stagings_max", abandoned_stagings_max);
        see("test_frame_least", test_frame_least);
        see("test_frame_most", test_frame_most);
        see("search_answer_steps", search_answer_steps);
        see("search_background_steps", search_background_steps);
    }

    void see_timeouts(const Timeouts& timeouts) {
        const auto& [peer, master, handshake, dial, redial_min, redial_max, vote_warn, vote, journal, test, survey,
                     edge_age] = timeouts;
        in_ = "Timeouts.";
        see("peer", peer);
        see("master", master);
        see("handshake", handshake);
        see("dial", dial);
        see("redial_min", redial_min);
        see("redial_max", redial_max);
        see("vote_warn", vote_warn);
        see("vote", vote);
        see("journal", journal);
        see("test", test);
        see("survey", survey);
        see("edge_age", edge_age);
    }

    void see_shape(const ReduceShape& shape) {
        const auto& [count, type, op, quantization] = shape;
        const auto& [algorithm, code, hint] = quantization;
        see("shape.count", count);
        see("shape.type", type, data_type_count);
        see("shape.op", op, reduce_op_count);
        see("shape.quantization.algorithm", algorithm, 3);
        see("shape.quantization.type", code, 8);
        see("shape.quantization.hint", hint, 3);
    }

    void see_command(const CommandConnect& command) {
        const auto& [ticket, identity] = command;
        in_ = "CommandConnect.";
        see("ticket", ticket);
        see("identity", short_name(identity), 1);  // the simulator has no certificates
    }
    void see_command(const CommandUpdateTopology& command) {
        const auto& [ticket] = command;
        in_ = "CommandUpdateTopology.";
        see("ticket", ticket);
    }
    void see_command(const CommandArePeersPending& command) {
        const auto& [ticket] = command;
        in_ = "CommandArePeersPending.";
        see("ticket", ticket);
    }
    void see_launch(const CommandLaunch& command) {
        const auto& [ticket, tag, shape, send, receive, input, collective] = command;
        see("ticket", ticket);
        see("tag", tag);
        see_shape(shape);
        see("send", send);
        see("receive", receive);
        see("in_place", send == receive);
        see("input", !input.empty());
        see("collective", collective.kind, collective_kind_count);
        if (collective.world != 0) see("counts", !collective.counts.empty());
        if (!collective.order.empty()) see("order", !std::is_sorted(collective.order.begin(), collective.order.end()));
        if (collective.kind == CollectiveKind::send) see("sends", collective.root.is_nil());
    }
    void see_command(const CommandLaunch& command) {
        in_ = "CommandLaunch.";
        see_launch(command);
    }
    void see_command(const CommandAwait& command) {
        const auto& [ticket, tag] = command;
        in_ = "CommandAwait.";
        see("ticket", ticket);
        see("tag", tag);
    }
    void see_command(const CommandSync& command) {
        const auto& [ticket, revision, entries, strategy] = command;
        in_ = "CommandSync.";
        see("ticket", ticket);
        see("revision", revision);
        see("entries", entries.size());
        see("strategy", strategy, sync_strategy_count);
        for (const StateEntry& entry : entries) {
            const auto& [name, buffer, count, type, allow_content_inequality] = entry;
            see("entries.name", name);
            see("entries.buffer", buffer);
            see("entries.count", count);
            see("entries.type", type, data_type_count);
            see("entries.allow_content_inequality", allow_content_inequality);
        }
    }
    void see_command(const CommandLeave& command) {
        const auto& [ticket, abort] = command;
        in_ = "CommandLeave.";
        see("ticket", ticket);
        see("abort", abort);
    }
    void see_command(const CommandReduceMany& command) {
        const auto& [ticket, launches, window] = command;
        in_ = "CommandReduceMany.";
        see("ticket", ticket);
        see("launches", launches.size());
        see("window", window);
        in_ = "CommandReduceMany.launches.";
        for (const CommandLaunch& launch : launches) see_launch(launch);
    }
    void see_command(const CommandOptimizeTopology& command) {
        const auto& [ticket] = command;
        in_ = "CommandOptimizeTopology.";
        see("ticket", ticket);
    }

    std::string in_;
    std::map<std::string, Seen> seen_;
    std::array<std::uint64_t, std::variant_size_v<Command>> commands_{};
};

std::string text_of(const char* path) {
    std::ifstream file(std::string(PCCL_SOURCE) + "/" + path);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the first group of each match.
std::set<std::string> all_of(const std::string& text, const char* pattern) {
    std::set<std::string> names;
    const std::regex regex(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), regex); match != std::sregex_iterator(); ++match)
        names.insert((*match)[1]);
    return names;
}

void check_names(const std::set<std::string>& names, const std::map<std::string, std::string>& table) {
    for (const std::string& name : names) {
        INFO(name << " is new: say what draws it, or why nothing can");
        CHECK(table.contains(name));
    }
    for (const auto& [name, what] : table) {
        INFO(name << " does not exist");
        CHECK(names.contains(name));
    }
}

void check_reached(const Values& values, const std::map<std::string, std::string>& table) {
    for (const auto& [name, what] : table) {
        INFO(name << " comes to " << what << ", which no program draws");
        CHECK((what.front() == '-' || values.reached(what)));
    }
}

}  // namespace

TEST_CASE("every public function and setting has a place in the programs, or a reason") {
    std::string headers = text_of("include/pccl.h") + text_of("include/pccl/ext.h");
    check_names(all_of(headers, "PCCL_EXPORT[^;(]*[ *](pccl[A-Za-z]+)\\("), public_calls);
    check_names(all_of(text_of("docs/settings.md"), "\n\\| `(PCCL_[A-Z_]+)` "), settings);
}

TEST_CASE("every command, field and setting of the core has a program that draws it") {
    Values values;
    RunOptions options;
    options.reach = &values;
    std::uint64_t stops = 0, queued = 0, beside = 0, aborted = 0, destroyed = 0;
    for (std::uint64_t seed = 1; seed <= last_seed; ++seed) {
        const Verdict verdict = run(generate(seed), options);
        stops += verdict.faults[static_cast<std::size_t>(FaultKind::stop_master)];
        queued += verdict.counters.queued;
        beside += verdict.counters.beside;
        aborted += verdict.counters.aborted_lives;
        destroyed += verdict.counters.destroyed_lives;
    }
    CHECK(values.all_commands());
    check_reached(values, public_calls);
    check_reached(values, settings);
    const std::vector<std::string> missing = values.missing();
    for (const std::string& name : missing) {
        INFO(name << " has fewer values than it can have in the seeds 1.." << last_seed
                  << ": let the generator draw it, or say in not_drawn why it cannot");
        CHECK(not_drawn.contains(name));
    }
    for (const auto& [name, reason] : not_drawn) {
        INFO(name << " is drawn now, or has another name: take it out of not_drawn");
        CHECK(std::find(missing.begin(), missing.end(), name) != missing.end());
    }
    // MasterMachine::shut_down and concurrent calls must be reached, too.
    CHECK(stops > 0);
    CHECK(queued > 0);
    CHECK(beside > 0);
    CHECK(aborted > 0);
    CHECK(destroyed > 0);
}
