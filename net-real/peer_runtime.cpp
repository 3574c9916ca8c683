#include "net-real/peer_runtime.hpp"

#include "core/base/format.hpp"
#include "core/peer_machine.hpp"
#include "core/topology/address_rules.hpp"
#include "include/ccoip.h"
#include "net-real/calls.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/exposure.hpp"
#include "net-real/host_id.hpp"
#include "net-real/port_mapping/port_mapping.hpp"
#include "net-real/resolve.hpp"
#include "net-real/tls/enrolment.hpp"
#include "net-real/tls/operator_keys.hpp"
#include "net-real/wait_check.hpp"
#include "net-real/workers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace pccl::real {

namespace {

constexpr core::Duration leave_time = 2 * core::second;
// A certificate that could not be renewed is tried again after this time.
constexpr std::chrono::seconds renew_again{30};

std::uint64_t random_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
}

core::Secret random_key() {
    std::random_device device;
    core::Secret key;
    for (auto& byte : key) byte = static_cast<std::uint8_t>(device());
    return key;
}

// The machine judges silence. The kernel's own limit only ends connections that nobody watches any more.
core::Duration user_timeout(core::Duration peer_timeout) {
    return std::max<core::Duration>(2 * peer_timeout, 10 * core::second);
}

// Packs four numbers into one word, so that they are read together. peers_max fits into 16 bits.
std::uint64_t pack(const core::Attributes& attributes) {
    auto clamp = [](std::uint32_t value) { return static_cast<std::uint64_t>(std::min<std::uint32_t>(value, 0xFFFF)); };
    return clamp(attributes.global_world) | clamp(attributes.group_world) << 16 | clamp(attributes.groups) << 32 |
           clamp(attributes.largest_group) << 48;
}

core::Attributes unpack(std::uint64_t packed) {
    auto part = [packed](int index) { return static_cast<std::uint32_t>((packed >> (16 * index)) & 0xFFFF); };
    return {part(0), part(1), part(2), part(3), 0};
}

core::Completion failed(core::Result result, std::string message) {
    core::Completion completion;
    completion.result = result;
    completion.cause = core::make_cause<core::CauseKind::text>(std::move(message));
    return completion;
}

}  // namespace

struct PeerRuntime::State final : LoopClient {
    explicit State(PeerSettings given) : settings(std::move(given)), generation(descriptors::fork_generation()) {}

    PeerSettings settings;
    const std::uint64_t generation;
    std::unique_ptr<core::PeerMachine> machine;
    mutable std::mutex who_mutex;
    std::string who = "pccl";                                    // under who_mutex
    core::Uuid identity;                                         // under who_mutex
    core::Uuid known_uuid;                                       // identity named by `who`; the loop's thread only
    core::Duration known_peer_timeout = settings.timeouts.peer;  // the loop's thread only
    Calls calls;
    std::atomic<std::uint64_t> attributes{pack(core::Attributes{})};  // without `gangs`
    std::atomic<std::uint32_t> gangs{0};
    std::atomic<bool> started{false};
    std::atomic<bool> stopped{false};
    std::mutex stop_mutex;
    // ---- a secure run. `credentials` is used by the holder of enrol_mutex only.
    std::unique_ptr<tls::PeerIdentity> credentials;  // null: no invitation
    std::unique_ptr<tls::OperatorKeys> keys;         // null: no certificates of the operator
    std::atomic<int> joining{0};  // calls that wait for enrol_mutex to join
    std::mutex enrol_mutex;
    bool connecting = false;               // under enrol_mutex: a call has got its certificate, and waits to be admitted
    std::atomic<std::uint64_t> aborts{0};  // a call that connects and began before the last one is given up
    std::mutex keeper_mutex;
    std::condition_variable keeper_wakeup;
    bool keeper_stops = false;  // under keeper_mutex
    std::thread keeper;         // renews the certificate; begun under keeper_mutex, and not after keeper_stops
    std::unique_ptr<PortMapping> mapping;  // null: none. Written by start() only
    std::unique_ptr<EventLoop> loop = make_loop();

    std::unique_ptr<EventLoop> make_loop() {
        LoopSettings loop_settings;
        loop_settings.thread_name = "pccl-io";
        loop_settings.limits = settings.limits;
        descriptors::fit(loop_settings.limits);
        loop_settings.socket_options = {user_timeout(settings.timeouts.peer), settings.congestion_control};
        loop_settings.dial_source = settings.bind_address;
        loop_settings.staging_bytes_max = settings.staging_bytes_max;
        loop_settings.scratch_bytes_max = settings.limits.operation_bytes_max;
        loop_settings.io_threads = settings.io_threads;
        loop_settings.shared_memory.enabled = settings.shared_memory;
        // Connections to the master carry no payload, and a master does not listen for shared memory.
        loop_settings.shared_memory.tcp_only = settings.other_masters;
        loop_settings.shared_memory.tcp_only.push_back(settings.master);
        loop_settings.staging_patience = std::max(settings.timeouts.peer, core::second);
        return std::make_unique<EventLoop>(loop_settings, *this);
    }

    // LoopClient
    void start(core::Instant, core::Effects&) override {}
    core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) override {
        const core::Status status = machine->handle(now, event, out);
        // The master's time-out holds, and it may be longer than ours.
        if (machine->peer_timeout() != known_peer_timeout) {
            known_peer_timeout = machine->peer_timeout();
            loop->set_user_timeout(user_timeout(known_peer_timeout));
        }
        // The identity is drawn when the peer joins a run, and again when it joins again.
        if (machine->uuid() != known_uuid) {
            known_uuid = machine->uuid();
            const std::lock_guard lock(who_mutex);
            identity = known_uuid;
            who = known_uuid.is_nil() ? "pccl" : core::short_name(known_uuid);
        }
        return status;
    }
    core::Instant next_deadline() const override { return machine->next_deadline(); }
    std::string name() const {
        const std::lock_guard lock(who_mutex);
        return settings.name.empty() ? who : core::formatted("{}/{}", settings.name, who);
    }
    void shut_down(core::Instant, core::Effects&) override {}  // stop() has left the run already
    void complete(const core::Complete& effect) override {
        set_attributes(effect.completion.attributes);
        if (auto second = calls.complete(effect.ticket, effect.completion)) loop->deliver(std::move(*second));
    }
    void notice(std::string_view text) override {
        if (settings.notice) settings.notice(text);
    }
    void set_attributes(const core::Attributes& now) override {
        gangs.store(now.gangs, std::memory_order_relaxed);
        attributes.store(pack(now), std::memory_order_release);
    }
    void log(Severity severity, std::string_view text) override {
        if (log_enabled(severity)) log_line(severity, name(), text, settings.log);
    }
    void ended(const std::string& reason) override {
        core::Completion lost;
        lost.result = core::Result::internal_error;
        try {
            if (!reason.empty()) log(Severity::err, reason);
            lost = failed(lost.result,
                          reason.empty() ? "the communicator was closed" : "the communicator is lost: " + reason);
        } catch (const std::exception&) {
            // No memory: without a text. The waiting calls must return.
        }
        set_attributes(core::Attributes{});
        machine->copy_rest([this](const core::Compute& copy) { loop->compute_at_once(copy); });
        calls.fail_all(lost);
    }

    core::Completion run(core::Command command, std::optional<core::Command> second, bool* first_failed,
                         std::optional<core::Duration> limit, GivenUp given_up = {}) {
        if (first_failed != nullptr) *first_failed = true;
        if (auto refused = refusal()) return std::move(*refused);
        const auto call = calls.open(command, std::move(second));
        if (call == nullptr) return calls.failure();
        // If the loop ends before it takes the task, fail_all() wakes the call.
        give(std::move(command), std::move(given_up));
        if (limit) {
            // The limit does not interrupt copies of results into the application's memory, however long they take.
            for (std::uint64_t before = loop->computes_done(); !Calls::wait(*call, limit);) {
                const std::uint64_t computed = loop->computes_done();
                if (std::exchange(before, computed) == computed && !loop->computes())
                    return failed(core::Result::internal_error, "no answer in time");
            }
        } else if (auto refused = wait_for_outcome(*call)) {
            return std::move(*refused);
        }
        if (first_failed != nullptr) *first_failed = call->first_failed;
        return std::move(call->completion);
    }

    // ---- the router

    // Nothing if no port can be had: then others reach this peer as if nobody had asked.
    void map_port() {
        if (!settings.port_mapping || settings.advertised || mapping != nullptr) return;
        const auto& bound = settings.bind_address;
        if (bound && (bound->is_v6 || core::is_confined(*bound))) return;
        std::string why;
        core::Endpoint listener = bound.value_or(core::Endpoint{});
        listener.port = loop->port();
        mapping = PortMapping::ask(
            listener, [this](Severity severity, std::string_view text) { log(severity, text); }, why);
        if (mapping != nullptr && is_private(mapping->outer())) {
            why = core::formatted("{}: its outer address {} is a private one too, so another router is in front of it",
                                  mapping->way(), core::to_text(mapping->outer()));
            mapping.reset();
        }
        if (mapping != nullptr) {
            log(Severity::info, core::formatted("the router forwards {} to port {} of this peer (by {})",
                                                core::to_text(mapping->outer()), loop->port(), mapping->way()));
            if (is_public(mapping->outer()) && !is_secure())
                log(Severity::warn, core::formatted("{}: the router lets everybody reach this peer, and the run is not "
                                                    "secure; see docs/security.md, or unset PCCL_PORT_MAPPING",
                                                    core::to_text(mapping->outer())));
        } else {
            log(Severity::warn, "the router gives this peer no port (" + why + "); forward one by hand, and set "
                                "PCCL_ADVERTISE_ADDRESS, or unset PCCL_PORT_MAPPING");
        }
    }

    // ---- certificates

    // Resolves the invitation. False: `error` names cause and remedy.
    bool read_invitation(std::string& error) {
        if (settings.tls_files.any() && !settings.invite.empty()) {
            error = "give an invitation (PCCL_INVITE) or certificates (PCCL_TLS_CA and so on), not both";
            return false;
        }
        if (settings.tls_files.any() && keys == nullptr) {
            keys = tls::OperatorKeys::open(tls::Context::Side::peer, settings.tls_files, error);
            return keys != nullptr;
        }
        if (settings.invite.empty() || credentials != nullptr) return true;
        auto made = tls::PeerIdentity::make(settings.invite, std::nullopt, error, settings.bind_address);
        std::vector<core::Endpoint> masters;
        if (made == nullptr || !resolve(made->master(), CCOIP_PROTOCOL_PORT_MASTER, masters, error)) return false;
        settings.master = masters.front();
        settings.other_masters.assign(masters.begin() + 1, masters.end());
        credentials = std::move(made);
        return true;
    }
    std::vector<core::Endpoint> masters() const {
        std::vector<core::Endpoint> all{settings.master};
        all.insert(all.end(), settings.other_masters.begin(), settings.other_masters.end());
        return all;
    }
    bool is_secure() const { return credentials != nullptr || keys != nullptr; }
    TlsUse tls_use() const {
        if (keys != nullptr) return {keys->context(), true, true, settings.tls_master_name};
        const bool data = !credentials->data_plaintext();
        return {credentials->context(), data, data, {}};
    }
    bool in_run() {
        auto answer = std::make_shared<std::promise<bool>>();
        std::future<bool> future = answer->get_future();
        const bool posted = loop->post([this, answer] { answer->set_value(machine->in_run()); });
        answer.reset();
        try {
            return posted && future.get();
        } catch (const std::future_error&) {
            return false;  // the loop has ended
        }
    }
    core::Completion connect(core::CommandConnect command, const GivenUp& by_caller) {
        const GivenUp given_up = [this, before = aborts.load(), by_caller] {
            return aborts.load() != before || (by_caller && by_caller());
        };
        if (started && is_secure()) return join(std::move(command), given_up);
        return run(std::move(command), std::nullopt, nullptr, std::nullopt, given_up);
    }
    // Gets a certificate for a new membership, and joins with it. Blocks.
    core::Completion join(core::CommandConnect command, const GivenUp& given_up) {
        if (auto refused = refusal()) return std::move(*refused);
        {
            // A renewal that asks a silent master gives way: this call gets a new certificate anyway, and may be aborted.
            ++joining;
            const std::unique_lock lock(enrol_mutex);
            --joining;
            if (connecting || in_run())
                return core::failure(core::Result::invalid_usage,
                                     core::make_cause<core::CauseKind::connected_already>());
            const auto ends = [&] { return given_up() || stopped || host_ends_wait() || is_forked(); };
            std::string error;
            if (keys != nullptr) {
                command.identity = keys->begin_membership(error);
                // Maybe the files are being replaced just now.
                if (command.identity.is_nil()) return failed(core::Result::master_connection_failed, std::move(error));
            } else {
                if (!credentials->join(masters(), settings.timeouts.master, ends, error))
                    return failed(credentials->was_refused() ? core::Result::invalid_argument
                                                             : core::Result::master_connection_failed,
                                  std::move(error));
                command.identity = credentials->peer();
            }
            loop->post([this, use = tls_use()] { loop->set_tls(use); });
            begin_renewals();
            connecting = true;
        }
        // Without the lock, because the members may take long to admit this peer, and its certificate is renewed.
        struct Over {
            State& state;
            ~Over() {
                if (state.is_forked()) return;  // a thread that does not exist here may have held the lock
                const std::lock_guard lock(state.enrol_mutex);
                state.connecting = false;
            }
        } over{*this};
        return run(std::move(command), std::nullopt, nullptr, std::nullopt, given_up);
    }
    void begin_renewals() {
        const std::lock_guard lock(keeper_mutex);
        if (keeper_stops) return;  // a call that connects may come after stop()
        if (keeper.joinable()) {
            keeper_wakeup.notify_all();
            return;
        }
        const SignalsBlocked blocked;
        keeper = std::thread([this] {
            name_this_thread("pccl-certs");
            // Nothing may leave this thread. The loop begins with a wait.
            for (bool over = false; !over;) {
                try {
                    keep_certificate();
                    over = true;
                } catch (const std::exception&) {  // no memory now, perhaps later
                }
            }
        });
    }
    std::time_t renew_at() {
        if (keys != nullptr) return 0;  // its files are looked at all the time
        const std::lock_guard lock(enrol_mutex);
        return credentials->renew_at();
    }
    // Renews the certificate at half its life. Connections that are open do not need it; those of the future do.
    void keep_certificate() {
        for (bool wait_longer = keys != nullptr;;) {
            const std::time_t at = renew_at(), now = std::time(nullptr);
            {
                std::unique_lock lock(keeper_mutex);
                const auto pause =
                    std::max<std::chrono::seconds>(std::chrono::seconds(std::max<std::time_t>(at - now, 1)),
                                                   wait_longer ? renew_again : std::chrono::seconds(1));
                if (!keeper_stops) keeper_wakeup.wait_for(lock, std::min<std::chrono::seconds>(pause, renew_again));
                if (keeper_stops) return;
            }
            if (keys != nullptr) {
                std::string error;
                if (keys->refresh(error)) loop->post([this, use = tls_use()] { loop->set_tls(use); });
                if (!error.empty()) log(Severity::warn, "the certificate of this peer stays as it was: " + error);
                continue;
            }
            wait_longer = false;
            if (std::time(nullptr) < renew_at()) continue;
            const std::lock_guard lock(enrol_mutex);
            std::string error;
            if (credentials->renew(
                    masters(), [this] { return stopped || joining != 0; }, error)) {
                loop->post([this, use = tls_use()] { loop->set_tls(use); });
                log(Severity::info, "the certificate of this peer was renewed");
            } else if (joining != 0) {
                // The next pass sees the certificate of that call.
            } else if (!stopped) {
                log(Severity::warn, "the certificate of this peer could not be renewed, and is tried again: " + error);
                wait_longer = true;
            }
        }
    }
    void end_renewals() {
        {
            const std::lock_guard lock(keeper_mutex);
            keeper_stops = true;
        }
        keeper_wakeup.notify_all();
        if (keeper.joinable()) keeper.join();  // nobody begins another one
    }

    // Gives the command to the machine. If it throws, nobody waits for the answer any more. The loop asks `given_up`,
    // so an abort either shows there, or comes behind the command and ends it in the machine.
    void give(core::Command command, GivenUp given_up = {}) {
        const core::Ticket ticket = std::visit([](const auto& any) { return any.ticket; }, command);
        try {
            loop->post([this, ticket, command = std::move(command), given_up = std::move(given_up)]() mutable {
                if (!given_up || !given_up()) return loop->deliver(std::move(command));
                static_cast<void>(calls.complete(ticket, core::failure(core::Result::master_connection_failed,
                                                                       core::make_cause<core::CauseKind::aborted>())));
            });
        } catch (...) {
            calls.forget(ticket);
            throw;
        }
    }

    bool is_forked() const { return generation != descriptors::fork_generation(); }

    std::optional<core::Completion> refusal() const {
        if (is_forked()) {
            return failed(core::Result::invalid_usage,
                          "this process was forked after the communicator was made; create a new one here");
        }
        if (EventLoop::on_io_thread())
            return failed(core::Result::invalid_usage,
                          "an I/O thread cannot wait for itself; call from another thread");
        if (!started) return failed(core::Result::internal_error, "the communicator was not started");
        return std::nullopt;
    }

    // Has no limit, because the operation may use the caller's memory. A caller that gives up leaves the run first.
    // Nothing: the call has its completion.
    std::optional<core::Completion> wait_for_outcome(Calls::Call& call) {
        if (has_wait_check()) {
            while (!Calls::wait(call, wait_check_interval)) {
                const bool gives_up = host_ends_wait();
                // The check may have forked. Nobody completes the call in the child.
                if (auto refused = refusal()) return refused;
                if (!gives_up) continue;
                leave_at_once();
                break;
            }
        }
        Calls::wait(call, std::nullopt);
        return std::nullopt;
    }

    core::Completion leave_at_once() {
        ++aborts;
        core::CommandLeave command;
        command.abort = true;
        return run(command, std::nullopt, nullptr, leave_time);
    }
};

PeerRuntime::PeerRuntime(PeerSettings settings) : state_(std::make_unique<State>(std::move(settings))) {}

PeerRuntime::~PeerRuntime() {
    if (in_forked_child())
        abandon_in_child();
    else
        stop();
}

bool PeerRuntime::start(std::string& error) {
    State& state = *state_;
    if (in_forked_child()) {
        error = "this process was forked after the communicator was made";
        return false;
    }
    if (state.started) return true;
    if (state.stopped) {
        error = "the communicator was closed";
        return false;
    }
    if (!state.read_invitation(error)) return false;
    if (state.loop->port() == 0) {
        const ListenRequest request{state.settings.bind_address, state.settings.port_first, state.settings.port_last,
                                    "; widen PCCL_PORT_RANGE, or set it to 0 for any free port", true};
        if (!state.loop->listen(request, error)) return false;
        if (const auto open_to_all = public_address_of(state.settings.bind_address);
            open_to_all && !state.is_secure())
            state.log(Severity::warn, core::formatted("{}: this peer listens where everybody can reach it, and the run "
                                                      "is not secure; see docs/security.md, or set PCCL_BIND_ADDRESS",
                                                      core::to_text(*open_to_all)));
    }
    core::PeerConfig config;
    config.seed = random_seed();
    config.key = random_key();
    config.master = state.settings.master;
    config.other_masters = state.settings.other_masters;
    config.group = state.settings.group;
    config.gang = state.settings.gang;
    config.gang_patience = state.settings.gang_patience;
    config.host = state.settings.host.empty() ? host_id() : host_id_of(state.settings.host);
    config.stripes = state.settings.stripes;
    config.listen_port = state.loop->port();
    state.map_port();
    config.has_advertised = state.settings.advertised.has_value() || state.mapping != nullptr;
    if (state.mapping != nullptr) {
        config.advertised = state.mapping->outer();
    } else if (config.has_advertised) {
        config.advertised = *state.settings.advertised;
        if (config.advertised.port == 0) config.advertised.port = config.listen_port;
    }
    config.limits = state.settings.limits;
    descriptors::fit(config.limits);
    config.timeouts = state.settings.timeouts;
    state.machine = std::make_unique<core::PeerMachine>(config);
    if (!state.loop->start(error)) return false;
    state.started = true;
    return true;
}

core::BufferId PeerRuntime::register_buffer(void* data, std::uint64_t bytes) {
    if (in_forked_child()) return 0;  // a thread that does not exist here may have held its lock
    return state_->loop->buffers().register_buffer(data, bytes);
}

void PeerRuntime::release_buffer(core::BufferId buffer) {
    if (!in_forked_child()) state_->loop->buffers().release_buffer(buffer);
}

core::Completion PeerRuntime::call(core::Command command) {
    if (const auto* command_connect = std::get_if<core::CommandConnect>(&command))
        return state_->connect(*command_connect, {});
    return state_->run(std::move(command), std::nullopt, nullptr, std::nullopt);
}

core::Completion PeerRuntime::connect(const GivenUp& given_up) { return state_->connect({}, given_up); }

core::Completion PeerRuntime::call(core::Command first, core::Command second, bool* first_failed) {
    return state_->run(std::move(first), std::move(second), first_failed, std::nullopt);
}

core::Attributes PeerRuntime::attributes() const {
    core::Attributes now = unpack(state_->attributes.load(std::memory_order_acquire));
    now.gangs = state_->gangs.load(std::memory_order_relaxed);
    return now;
}

std::uint16_t PeerRuntime::listen_port() const { return state_->loop->port(); }

std::string PeerRuntime::name() const { return in_forked_child() ? "pccl" : state_->name(); }

core::Uuid PeerRuntime::identity() const {
    const std::lock_guard lock(state_->who_mutex);
    return state_->identity;
}

void PeerRuntime::call_then(core::Command command, std::function<void(const core::Completion&)> then) {
    State& state = *state_;
    if (const auto refused = state.refusal()) return then(*refused);
    const auto call = state.calls.open(command, std::nullopt, then);
    if (call == nullptr) return then(state.calls.failure());
    state.give(std::move(command));
}

core::Completion PeerRuntime::abort() { return state_->leave_at_once(); }

Statistics PeerRuntime::statistics() const {
    State& state = *state_;
    if (in_forked_child() || !state.started || EventLoop::on_io_thread()) return {};
    // Shared with the task, which may run after this wait was given up.
    auto answer = std::make_shared<std::promise<Statistics>>();
    std::future<Statistics> future = answer->get_future();
    const bool posted = state.loop->post([&state, answer] {
        answer->set_value(
            {state.machine->statistics(), state.loop->buffers().scratch_bytes(), state.loop->shared_memory_bytes()});
    });
    answer.reset();  // so that a dropped task breaks the promise
    if (!posted || future.wait_for(std::chrono::nanoseconds(leave_time)) != std::future_status::ready) return {};
    try {
        return future.get();
    } catch (const std::future_error&) {
        return {};
    }
}

void PeerRuntime::stop() {
    if (in_forked_child()) return;
    State& state = *state_;
    const std::lock_guard lock(state.stop_mutex);
    if (state.stopped) return;
    ++state.aborts;
    if (state.started) state.run(core::CommandLeave{}, std::nullopt, nullptr, leave_time);
    state.stopped = true;
    state.end_renewals();
    state.mapping.reset();
    state.loop->request_stop();
    state.loop->join();
    state.calls.fail_all(failed(core::Result::internal_error, "the communicator was closed"));
}

bool PeerRuntime::in_forked_child() const { return state_ != nullptr && state_->is_forked(); }

void PeerRuntime::abandon_in_child() {
    // The thread does not exist here and may have held any lock, so nothing is touched. The sockets are closed already.
    static_cast<void>(state_.release());
}

}  // namespace pccl::real
