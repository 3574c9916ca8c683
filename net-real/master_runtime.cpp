#include "net-real/master_runtime.hpp"

#include "core/base/format.hpp"
#include "core/master_machine.hpp"
#include "core/wire/convert.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/exposure.hpp"
#include "net-real/journal_store.hpp"
#include "net-real/settings.hpp"
#include "net-real/tls/operator_keys.hpp"
#include "net-real/tls/revocations.hpp"
#include "net-real/workers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <random>

namespace pccl::real {

MasterSettings master_settings_from_environment() {
    const EnvironmentSettings environment = read_environment(Reader::master);
    MasterSettings settings;
    settings.timeouts.peer = environment.peer_timeout;
    settings.timeouts.master = environment.master_timeout;
    settings.timeouts.vote_warn = environment.vote_warn;
    settings.timeouts.vote = environment.vote_timeout;
    settings.timeouts.journal = environment.journal_timeout;
    settings.congestion_control = environment.tcp_congestion;
    settings.limits.concurrent_ops = environment.concurrent_ops;
    settings.state_directory = environment.state_directory;
    settings.tls_files = {environment.tls_ca, environment.tls_cert, environment.tls_key};
    return settings;
}

struct MasterRuntime::State final : LoopClient {
    explicit State(MasterSettings given)
        : settings(std::move(given)), generation(descriptors::fork_generation()), machine(make_config()) {}

    MasterSettings settings;
    const std::uint64_t generation;
    core::MasterMachine machine;
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_ptr<JournalStore> store;
    std::vector<std::string> journal;  // as found on disk; start() replays it
    enum class End : std::uint8_t { none, of_run, of_master };
    std::atomic<End> end{End::none};  // which of interrupt() and stop() came first
    std::atomic<bool> stopped_cleanly{false};
    bool running = false;                           // the thread was started
    bool terminated = false;                        // the thread has ended
    bool failed = false;                            // it ended by itself, not by interrupt() or stop()
    std::unique_ptr<tls::Authority> authority;      // a secure run with invitations
    std::unique_ptr<tls::OperatorKeys> keys;        // a secure run with certificates of the operator
    std::unique_ptr<tls::Revocations> revocations;  // of such a run with a state directory
    static constexpr core::Duration keys_interval = 30 * core::second;
    core::Instant look_at_keys = 0;  // loop's thread only
    static constexpr int enrolments_max = 256;
    std::atomic<int> enrolments_waiting{0};
    std::unique_ptr<EventLoop> loop = make_loop();
    std::unique_ptr<Workers> enrolments;  // after the loop, to which its tasks post: it ends first

    core::MasterConfig make_config() const {
        std::random_device device;
        core::MasterConfig config;
        config.seed = (static_cast<std::uint64_t>(device()) << 32) | device();
        for (auto& byte : config.key) byte = static_cast<std::uint8_t>(device());
        config.limits = settings.limits;
        descriptors::fit(config.limits);
        config.timeouts = settings.timeouts;
        return config;
    }
    std::unique_ptr<EventLoop> make_loop() {
        LoopSettings loop_settings;
        loop_settings.thread_name = "pccl-master";
        loop_settings.limits = settings.limits;
        descriptors::fit(loop_settings.limits);
        loop_settings.socket_options = {std::max<core::Duration>(2 * settings.timeouts.peer, 10 * core::second),
                                        settings.congestion_control, Traffic::control};
        loop_settings.links_max = settings.limits.peers_max + settings.limits.unregistered_links_max + 1024;
        return std::make_unique<EventLoop>(loop_settings, *this);
    }

    // LoopClient
    void start(core::Instant now, core::Effects& out) override {
        machine.start(now, journal, out);
        journal = {};
    }
    bool persist(core::Persist& record) override {
        if (store == nullptr) return false;
        store->append(record.sequence, std::move(record.record), record.supersedes);
        return true;
    }
    core::Status handle(core::Instant now, const core::Event& event, core::Effects& out) override {
        return machine.handle(now, event, out);
    }
    core::Instant next_deadline() const override { return machine.next_deadline(); }
    void shut_down(core::Instant now, core::Effects& out) override {
        if (end == End::of_master && store != nullptr) {
            // To the peers this is a crash: they dial again and wait. What was not sent yet is sent when they resume.
            log(Severity::info, core::formatted("stopped; the run is kept in {}: start the master again at this "
                                                "address, or end the run with `pccl-master end`",
                                                settings.state_directory));
            return;
        }
        stopped_cleanly = true;
        machine.shut_down(now, out);
    }
    void complete(const core::Complete&) override {}
    void set_attributes(const core::Attributes&) override {}
    void log(Severity severity, std::string_view text) override {
        if (log_enabled(severity)) log_line(severity, "master", text, settings.log);
    }
    // ---- a secure run
    std::shared_ptr<const tls::Context> present_context() override {
        if (authority != nullptr) return authority->context();
        if (const core::Instant now = EventLoop::now(); now >= look_at_keys) {
            look_at_keys = now + keys_interval;
            enrolments->submit([this] {
                std::string error;
                if (keys->refresh(error)) log(Severity::info, "the certificate of the master was read again");
                if (!error.empty()) log(Severity::warn, "the certificate of the master stays as it was: " + error);
            });
        }
        return keys->context();
    }
    bool admits(const tls::CertificateName& name, std::string& why) override {
        if (revocations != nullptr) return revocations->admits(name, why);
        return authority == nullptr || authority->admits(name, why);
    }
    std::string refusal(const std::string& why) override {
        proto::MasterMessage message;
        message.mutable_refusal()->set_code(proto::REFUSED_OTHER);
        message.mutable_refusal()->set_protocol_version(core::wire::protocol_version);
        core::write(core::make_cause<core::CauseKind::text>(why), *message.mutable_refusal()->mutable_cause());
        return core::encode(message);
    }
    void enrol(core::LinkId link, std::string body, const std::optional<tls::CertificateName>& shown) override {
        if (enrolments_waiting.load() >= enrolments_max) {
            proto::EnrolReply busy;
            busy.set_error(proto::ENROL_BUSY);
            busy.set_text("the master has too many requests for certificates; try again");
            loop->answer_enrolment(link, core::encode(busy));
            return;
        }
        ++enrolments_waiting;
        const auto work = [this, link, body = std::move(body), shown] {
            --enrolments_waiting;
            proto::EnrolRequest request;
            proto::EnrolReply reply;
            if (core::decode({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}, request)) {
                reply = authority->enrol(request, shown);
            } else {
                reply.set_error(proto::ENROL_OTHER);
                reply.set_text("the request cannot be read; do both ends run the same version?");
            }
            if (reply.error() == proto::ENROL_OK)
                log(Severity::info, shown ? core::formatted("renewed the certificate of {}", shown->name)
                                          : core::formatted("invitation {} was used", request.invitation()));
            else
                log(Severity::warn,
                    core::formatted("refused a certificate to {}: {}", asker(request, reply, shown), reply.text()));
            (void)loop->post([this, link, answer = core::encode(reply)] { loop->answer_enrolment(link, answer); });
        };
        if (enrolments->submit(work)) return;
        --enrolments_waiting;
        log(Severity::warn, "no thread can be started; a newcomer gets no certificate");
    }
    // For the log. A stranger may have sent anything, and each line would be a new one.
    static std::string asker(const proto::EnrolRequest& request, const proto::EnrolReply& reply,
                             const std::optional<tls::CertificateName>& shown) {
        if (shown) return shown->name;
        return reply.error() == proto::ENROL_UNKNOWN || reply.error() == proto::ENROL_OTHER
                   ? "a newcomer"
                   : "a newcomer with invitation " + request.invitation();
    }
    bool open_authority(std::string& error) {
        if (authority != nullptr || keys != nullptr) return true;
        const std::string& directory = settings.state_directory;
        if (settings.tls_files.any()) {
            if (settings.secure || settings.data_plaintext) {
                error = "--secure and --data-plaintext are for runs with invitations; with certificates of your own "
                        "PKI (PCCL_TLS_CA) give neither";
                return false;
            }
            if (!directory.empty() && tls::Authority::exists(directory)) {
                error = core::formatted("the run in {} has invitations; give --secure and no PCCL_TLS_CA, or another "
                                        "state directory",
                                        directory);
                return false;
            }
            if (!directory.empty() && revocations == nullptr) {
                revocations = tls::Revocations::open(directory, error);
                if (revocations == nullptr) return false;
            }
            keys = tls::OperatorKeys::open(tls::Context::Side::master, settings.tls_files, error);
            if (keys == nullptr) return false;
            enrolments = std::make_unique<Workers>();
            look_at_keys = EventLoop::now() + keys_interval;
            loop->set_tls({keys->context(), true, true, {}});
            return true;
        }
        if (!settings.secure) {
            if (directory.empty() || !tls::Authority::exists(directory)) return true;
            error = core::formatted("the run in {} is secure; give --secure", directory);
            return false;
        }
        if (directory.empty()) {
            error = "a secure run needs a state directory, for its keys; give --state-dir";
            return false;
        }
        const auto log_error = [this](const std::string& text) { log(Severity::err, text); };
        authority =
            tls::Authority::open(directory, {settings.data_plaintext, settings.certificate_life, {}, log_error}, error);
        if (authority == nullptr) return false;
        enrolments = std::make_unique<Workers>();
        loop->set_tls({authority->context(), true, true, {}});
        return true;
    }
    void ended(const std::string& reason) override {
        // Whatever fails below: others wait for the end.
        struct Terminated {
            State& state;
            const bool by_itself;
            ~Terminated() {
                {
                    const std::lock_guard lock(state.mutex);
                    state.terminated = true;
                    state.failed = by_itself;
                }
                state.changed.notify_all();
            }
        } const terminated_at_last{*this, !reason.empty()};
        try {
            if (!reason.empty()) log(Severity::err, "stopped: " + reason);
        } catch (const std::exception&) {
            // No memory: without the line. The journal must be ended.
        }
        if (store != nullptr) {
            // A master that halted has waited for the disk long enough.
            const auto patience = reason.empty() ? JournalStore::close_time : std::chrono::seconds(1);
            // The peers know that the run has ended, so none of them will resume it.
            const bool clears = stopped_cleanly && reason.empty();
            std::string error;
            const JournalStore::Ended how = store->end(patience, clears, error);
            if (how == JournalStore::Ended::not_written && reason.empty())
                log(Severity::err, "the journal could not be written to its end");
            if (how == JournalStore::Ended::not_cleared)
                log(Severity::err,
                    "the run has ended, but its journal could not be emptied, so the next master waits for its "
                    "members: " +
                        error + "; end it with pccl-master end");
        }
    }
};

MasterRuntime::MasterRuntime(MasterSettings settings) : state_(std::make_unique<State>(std::move(settings))) {}

MasterRuntime::~MasterRuntime() {
    if (in_forked_child()) {
        static_cast<void>(state_.release());  // the thread does not exist here; its sockets are closed already
        return;
    }
    interrupt();
    await_termination();
}

bool MasterRuntime::bind(const core::Endpoint& address, std::string& error) {
    State& state = *state_;
    const bool is_secure = state.settings.secure || state.settings.tls_files.any();
    const auto open_to_all = is_secure ? std::nullopt : public_address_of(address);
    if (open_to_all && state.settings.refuse_public) {
        error =
            core::formatted("{} can be reached from everywhere ({}), and whoever reaches a run that is not secure can "
                            "join it; start with --secure, listen on a private address, or give --insecure",
                            core::to_text(address), core::to_text(*open_to_all));
        return false;
    }
    if (open_to_all)
        state.log(Severity::warn, core::formatted("{}: whoever reaches this address can join the run, which is not "
                                                  "secure; see docs/security.md",
                                                  core::to_text(*open_to_all)));
    if (!state.settings.state_directory.empty() && state.store == nullptr) {
        state.store = JournalStore::open(state.settings.state_directory, error, state.settings.ends_at_signal);
        if (state.store == nullptr) return false;
        if (!state.store->read(state.journal, error)) {
            state.store.reset();  // else a second bind() would use half a journal that no thread writes to
            state.journal.clear();
            return false;
        }
        state.store->start([&state](std::uint64_t sequence, const std::string& failure) {
            (void)state.loop->post([&state, sequence, failure] {
                if (failure.empty()) {
                    state.loop->deliver(core::RecordPersisted{sequence});
                } else {
                    state.loop->deliver(core::RecordFailed{sequence, failure});
                }
            });
        });
    }
    if (!state.open_authority(error)) return false;
    return state.loop->listen(
        {address, address.port, address.port, "; another program listens there: stop it, or give another port"}, error);
}

std::uint16_t MasterRuntime::port() const { return state_->loop->port(); }

bool MasterRuntime::run(std::string& error) {
    const std::lock_guard lock(state_->mutex);
    if (state_->running) return true;
    if (!state_->loop->start(error)) return false;
    state_->running = true;
    return true;
}

bool MasterRuntime::failed() const {
    const std::lock_guard lock(state_->mutex);
    return state_->failed;
}

void MasterRuntime::interrupt() {
    State::End none = State::End::none;
    state_->end.compare_exchange_strong(none, State::End::of_run);
    state_->loop->request_stop();
}

void MasterRuntime::stop() {
    State::End none = State::End::none;
    state_->end.compare_exchange_strong(none, State::End::of_master);
    state_->loop->request_stop();
}

void MasterRuntime::await_termination() {
    std::unique_lock lock(state_->mutex);
    if (!state_->running) return;
    state_->changed.wait(lock, [&] { return state_->terminated; });
    // Several threads may wait here. The destructor joins the thread.
}

boost::asio::io_context& MasterRuntime::context() { return state_->loop->context(); }

core::MasterStatus MasterRuntime::status() const { return state_->machine.status(); }

tls::Authority* MasterRuntime::authority() { return state_->authority.get(); }

tls::Revocations* MasterRuntime::revocations() { return state_->revocations.get(); }

bool MasterRuntime::revoke(const std::string& name, std::size_t& removed, std::string& error) {
    State& state = *state_;
    std::vector<core::Uuid> peers;
    const bool is_revoked = state.authority != nullptr ? state.authority->revoke(name, peers, error)
                                                       : state.revocations->revoke(name, peers, error);
    if (!is_revoked) return false;
    removed = peers.size();
    state.log(Severity::warn, core::formatted("the certificates of {} were revoked ({} ids)", name, removed));
    (void)state.loop->post([&state, peers] {
        for (const core::Uuid& peer : peers) state.loop->deliver(core::PeerRevoked{peer});
        state.loop->drop_not_admitted();
    });
    return true;
}

bool MasterRuntime::look_at_status(const std::function<void(const core::MasterStatus&)>& look) {
    State& state = *state_;
    auto answer = std::make_shared<std::promise<core::MasterStatus>>();
    std::future<core::MasterStatus> future = answer->get_future();
    const bool posted = state.loop->post([&state, answer] { answer->set_value(state.machine.status()); });
    answer.reset();
    if (!posted || future.wait_for(std::chrono::seconds(2)) != std::future_status::ready) return false;
    try {
        look(future.get());
        return true;
    } catch (const std::future_error&) {
        return false;
    }
}

bool MasterRuntime::in_forked_child() const { return state_->generation != descriptors::fork_generation(); }

}  // namespace pccl::real
