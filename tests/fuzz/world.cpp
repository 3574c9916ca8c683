#include "world.hpp"

#include "core/numeric/kernels.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace fuzz {
namespace {

using namespace pccl;
using core::microsecond, core::millisecond, core::second;

constexpr std::uint32_t peer_count = 3, stranger = peer_count + 1;  // node 0 is the master
constexpr std::size_t application_bytes = 512;
constexpr std::size_t heard_most = 64, calls_most = 16, strangers_most = 12;
constexpr int steps_most = 2000;
constexpr std::uint64_t items_most = 200'000;

core::Limits small_limits() {
    core::Limits limits;
    limits.slice_bytes = 64;
    limits.eager_bytes = 128;
    limits.chunk_bytes = 64;
    limits.scratch_bytes = 1024;
    limits.payload_bytes_max = 4096;
    limits.control_bytes_max = 4096;
    limits.unregistered_links_max = 8;
    limits.concurrent_ops = 2;
    return limits;
}

// A machine whose effects a callback may alter before the driver sees them.
template <class Real, class Alter>
class Altering final : public sim::Machine {
public:
    template <class Config>
    Altering(const Config& config, Alter alter) : real(config), alter_(std::move(alter)) {}
    core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) override {
        const core::Status status = real.handle(now, event, out);
        alter_(out);
        return status;
    }
    core::Instant next_deadline() const override { return real.next_deadline(); }
    std::uint64_t state_hash() const override { return real.state_hash(); }
    std::string explain() const override { return real.explain(); }
    Real real;

private:
    Alter alter_;
};

class Play final : public sim::Director, public sim::MessageWatch {
public:
    Play(Input& input, Target target)
        : input_(input), target_(target), world_(stranger + 1, stranger, sim::WorldParameters{}, 1, *this) {
        world_.watch(static_cast<sim::MessageWatch*>(this));
    }

    void run() {
        for (std::uint32_t node = 0; node <= peer_count; ++node) start(node);
        world_.schedule_script(second, 0, 0);
        world_.run(core::never - 1, items_most);
        if (target_ == Target::master && world_.alive(0)) world_.check_replay(master_config());
        const sim::Violation& found = world_.violation();
        if (found.oracle.empty() || found.oracle == "bounded") return;
        std::fprintf(stderr, "%s: %s\n", found.oracle.c_str(), found.reason.c_str());
        std::abort();
    }

private:
    // --- Director and MessageWatch -----------------------------------------------------------------------------------
    void completed(std::uint32_t node, core::Ticket, const core::Completion&) override { --calls_[node]; }
    void attributes_set(std::uint32_t, const core::Attributes&) override {}
    void application_item(std::uint32_t, std::uint64_t, std::uint64_t) override {}
    void aimed_crash(std::uint32_t, std::uint64_t) override {}
    void halted(std::uint32_t) override {}
    void script_item(std::uint64_t, std::uint64_t) override {
        if (over_) return world_.stop();
        core::Duration wait = 100 * microsecond;
        if (input_.empty() || ++steps_ > steps_most) {
            over_ = true;
            wait = 10 * second;
        } else {
            wait = step();
        }
        world_.schedule_script(world_.now() + wait, 0, 0);
    }
    bool says(std::uint32_t, std::uint32_t, sim::Talk, std::span<const std::uint8_t> body) override {
        if (heard_.size() < heard_most) heard_.emplace_back(body.begin(), body.end());
        return false;
    }
    void chunk_arrived(std::uint32_t, std::uint32_t) override {}

    // --- processes ---------------------------------------------------------------------------------------------------
    static core::MasterConfig master_config() {
        core::MasterConfig config;
        config.seed = 11;
        config.limits = small_limits();
        return config;
    }

    void start(std::uint32_t node) {
        const auto alter = [this](core::Effects& effects) { this->alter(effects); };
        if (node == 0 && target_ == Target::master) return world_.start_master(master_config());
        if (node == 0) {
            auto master = std::make_unique<Altering<core::MasterMachine, decltype(alter)>>(master_config(), alter);
            core::Effects effects;
            master->real.start(world_.now(), {}, effects);
            world_.start_machine(0, std::move(master), small_limits());
            return world_.driver(0)->carry_out(effects);
        }
        core::PeerConfig config;
        config.seed = 100 + ++processes_;
        config.master = sim::endpoint_of(0);
        config.stripes = 2;
        config.listen_port = sim::listen_port;
        config.limits = small_limits();
        calls_[node] = 0;
        if (node != peer_count) return world_.start_peer(node, config);
        world_.start_machine(node, std::make_unique<Altering<core::PeerMachine, decltype(alter)>>(config, alter),
                             config.limits);
    }

    void end_or_start(std::uint32_t node) {
        if (world_.alive(node)) return world_.end_process(node, input_.byte() % 2 == 0);
        // A master whose messages are altered keeps no journal.
        if (node != 0 || target_ == Target::master) start(node);
    }

    // --- altered messages --------------------------------------------------------------------------------------------
    void alter(core::Effects& effects) {
        for (core::Effect& effect : effects) {
            if (alterations_ == 0) return;
            if (auto* control = std::get_if<core::SendControl>(&effect))
                alter(control->body);
            else if (auto* flow = std::get_if<core::SendFlow>(&effect))
                flow->word = flow_word();
            else if (auto* send = std::get_if<core::SendPayload>(&effect))
                alter(send->header);
            else
                continue;
            --alterations_;
        }
    }

    // Phases are small: a decoder refuses others.
    void alter(core::wire::BulkHeader& header) {
        header.op ^= input_.number(5);
        header.slice ^= static_cast<std::uint32_t>(input_.number(4));
        header.phase = input_.byte() % 4;
        header.entry ^= input_.number(2);
        header.flags ^= input_.byte();
    }

    // Not longer than before: the receiver may take no more.
    void alter(std::string& body) {
        const std::size_t most = body.size();
        switch (input_.byte() % 4) {
        case 0: body = heard(); break;
        case 1: body.resize(body.size() / 2); break;
        case 2: body.insert(input_.below(body.size() + 1), input_.bytes(input_.below(40))); break;
        default:
            for (int i = 0; i < 3 && !body.empty(); ++i)
                body[input_.below(body.size())] ^= static_cast<char>(input_.byte());
        }
        if (body.size() > most) body.resize(most);
    }

    core::wire::FlowWord flow_word() {
        return {input_.number(5), static_cast<std::uint32_t>(input_.number(4)),
                static_cast<std::uint32_t>(input_.number(4)), static_cast<core::wire::FlowKind>(1 + input_.byte() % 5),
                static_cast<std::uint8_t>(input_.byte() % 3)};
    }

    // A body that was really sent in this run.
    std::string heard() { return heard_.empty() ? std::string() : heard_[input_.below(heard_.size())]; }

    // --- a stranger --------------------------------------------------------------------------------------------------
    void stranger_acts() {
        sim::Network& network = world_.network();
        const std::uint8_t choice = input_.byte();
        if (strangers_.empty() || (choice % 8 == 0 && strangers_.size() < strangers_most)) {
            const std::uint32_t to =
                target_ == Target::master ? 0 : 1 + static_cast<std::uint32_t>(input_.below(peer_count));
            strangers_.push_back(network.dial(stranger, 0, sim::endpoint_of(to)));
            return;
        }
        const std::size_t index = input_.below(strangers_.size());
        const std::uint32_t connection = strangers_[index];
        if (choice % 8 == 1 || !network.open_end(connection, 0)) {
            network.close(connection, 0, input_.byte() % 2 == 0);
            strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
            return;
        }
        std::string frame, body;
        switch (choice % 8) {
        case 2: frame = input_.bytes(input_.below(200)); break;
        case 3: core::wire::append_flow(frame, flow_word()); break;
        case 4: frame = payload_frame(); break;
        case 5: append_control(frame, heard()); break;
        case 6:
            body = heard();
            alter(body);
            append_control(frame, body);
            break;
        default: append_control(frame, input_.bytes(input_.below(200)));
        }
        network.write(connection, 0, {reinterpret_cast<const std::uint8_t*>(frame.data()), frame.size()});
    }

    static void append_control(std::string& frame, const std::string& body) {
        core::wire::append_control(frame, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
    }

    std::string payload_frame() {
        const std::string payload = input_.bytes(input_.below(100));
        core::wire::BulkHeader header;
        header.length = static_cast<std::uint32_t>(payload.size());
        alter(header);
        const auto front = core::wire::encode_bulk(header);
        const auto back = core::wire::encode_trailer({core::numeric::checksum64(payload.data(), payload.size())});
        return std::string(front.begin(), front.end()) + payload + std::string(back.begin(), back.end());
    }

    // --- faults and calls --------------------------------------------------------------------------------------------
    void hurt_a_connection() {
        sim::Network& network = world_.network();
        const std::vector<std::uint32_t> open = network.established();
        if (open.empty()) return;
        const std::uint32_t connection = open[input_.below(open.size())];
        const std::uint8_t how = input_.byte();
        const std::uint32_t side = how / 4 % 2;
        switch (how % 4) {
        case 0: network.reset(connection); break;
        case 1: network.end_early(connection, side); break;
        case 2: network.half_open(connection, how / 8 % 2 == 0, side); break;
        default: network.corrupt(connection, side, input_.number(4));
        }
    }

    core::CommandLaunch launch(std::uint32_t node, core::Tag tag, const core::ReduceShape& shape) {
        core::CommandLaunch command;
        command.tag = tag;
        command.shape = shape;
        command.send = command.receive = buffer(node);
        return command;
    }

    // Also kinds that no command may name.
    void draw_collective(core::CommandLaunch& command) {
        core::Collective& collective = command.collective;
        collective.kind = static_cast<core::CollectiveKind>(input_.byte() % (core::collective_kind_count + 3));
        const auto elements = [this] { return input_.below(application_bytes / 8 + 1); };
        const auto draw_peer = [&](core::Uuid& uuid) {
            const auto peer = static_cast<std::uint32_t>(1 + input_.below(peer_count));
            auto* const driver = world_.alive(peer) ? world_.driver(peer) : nullptr;
            if (driver != nullptr && driver->machine().peer() != nullptr) uuid = driver->machine().peer()->uuid();
        };
        if (core::is_rooted(collective.kind)) draw_peer(collective.root);
        switch (collective.kind) {
        case core::CollectiveKind::reduce_scatter: collective.count = elements(); return;
        case core::CollectiveKind::send: {
            const std::uint8_t ends = input_.byte();
            if (ends % 4 != 0) draw_peer(collective.target);
            if (ends % 4 != 1) draw_peer(collective.root);
            collective.pair_tag = ends / 64;
            command.shape.count = 0;
            (collective.root.is_nil() ? collective.count : collective.capacity) = elements();
            return;
        }
        case core::CollectiveKind::all_gather:
        case core::CollectiveKind::gather: collective.count = elements(); break;
        case core::CollectiveKind::scatter:
        case core::CollectiveKind::all_to_all:
            // Not more than the buffer in all.
            collective.world = static_cast<std::uint32_t>(1 + input_.below(peer_count));
            collective.count = input_.below(application_bytes / 8 / peer_count + 1);
            for (std::uint32_t i = input_.byte() % 2 != 0 ? 0 : collective.world; i < collective.world; ++i)
                collective.counts.push_back(input_.below(application_bytes / 8 / peer_count + 1));
            if (!collective.counts.empty()) collective.count = 0;
            break;
        default: return;
        }
        collective.capacity = elements();
        command.shape.count = 0;
    }

    core::BufferId buffer(std::uint32_t node) { return world_.driver(node)->add_application_buffer(application_bytes); }

    void call(std::uint32_t node) {
        if (!world_.alive(node) || calls_[node] >= calls_most) return;
        ++calls_[node];
        core::Command command = drawn(node);
        std::visit([this](auto& any) { any.ticket = ++ticket_; }, command);
        world_.command(node, std::move(command));
    }

    core::Command drawn(std::uint32_t node) {
        switch (input_.byte() % 8) {
        case 0: return core::CommandConnect{};
        case 1: return core::CommandUpdateTopology{};
        case 2: return core::CommandArePeersPending{};
        case 3:
        case 4: {
            const core::Tag tag = input_.below(3);
            const core::ReduceShape shape = {
                input_.below(application_bytes / 8 + 1),
                static_cast<core::DataType>(input_.below(12)),
                static_cast<core::ReduceOp>(input_.below(5)),
                {static_cast<core::QuantizationAlgorithm>(input_.byte() % core::quantization_algorithm_count),
                 static_cast<core::CodeType>(input_.below(core::code_type_count)),
                 static_cast<core::DistributionHint>(input_.byte() % core::distribution_hint_count)}};
            core::CommandLaunch command = launch(node, tag, shape);
            if (input_.byte() % 2 != 0) command.receive = buffer(node);
            if (input_.byte() % 2 != 0) draw_collective(command);
            return command;
        }
        case 5: return core::CommandAwait{0, input_.below(3)};
        case 6: {
            core::CommandSync sync;
            sync.revision = input_.below(3);
            sync.strategy = static_cast<core::SyncStrategy>(input_.byte() % core::sync_strategy_count);
            for (std::size_t i = input_.below(4); i > 0; --i) {
                sync.entries.push_back({std::string(1, static_cast<char>('a' + i)), buffer(node),
                                        input_.below(application_bytes), core::DataType::u8, input_.byte() % 4 == 0});
            }
            return sync;
        }
        default: return drawn_rarely(node, input_.byte());
        }
    }

    core::Command drawn_rarely(std::uint32_t node, std::uint8_t choice) {
        switch (choice % 4) {
        case 0: return core::CommandLeave{0, choice % 8 == 4};
        case 1: {
            core::CommandReduceMany many;
            many.window = choice / 4 % 3;
            for (std::size_t i = choice / 16 % 4; i > 0; --i)
                many.launches.push_back(launch(
                    node, i, {input_.below(application_bytes / 8 + 1), core::DataType::i32, core::ReduceOp::sum}));
            return many;
        }
        case 2: return core::CommandOptimizeTopology{};
        default: return core::CommandConnect{};
        }
    }

    // Returns the time until the next step.
    core::Duration step() {
        const std::uint8_t choice = input_.byte();
        const auto node = static_cast<std::uint32_t>(input_.below(peer_count + 1));
        switch (choice % 8) {
        case 0:
        case 1:
            if (node != 0) call(node);
            break;
        case 2: stranger_acts(); break;
        case 3: alterations_ = 1 + choice / 8 % 4; break;
        case 4: hurt_a_connection(); break;
        case 5: end_or_start(node); break;
        case 6: {
            const std::uint8_t time = input_.byte();
            return time < 128 ? time * millisecond : (time - 127) * (second / 4);
        }
        default: return second / 10;  // most of what is in flight arrives
        }
        return 100 * microsecond;
    }

    Input& input_;
    Target target_;
    sim::World world_;
    std::array<std::size_t, peer_count + 1> calls_{};  // not answered
    core::Ticket ticket_ = 0;
    std::uint64_t processes_ = 0;
    std::vector<std::string> heard_;        // bodies of messages
    std::vector<std::uint32_t> strangers_;  // connections
    int alterations_ = 0;                   // messages still to be altered
    int steps_ = 0;
    bool over_ = false;
};

}  // namespace

void play(Input& input, Target target) { Play(input, target).run(); }

}  // namespace fuzz
