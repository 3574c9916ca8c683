#include "net-real/event_loop.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/overload.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/event_loop_impl.hpp"
#include "net-real/remedies.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>

namespace pccl::real {

namespace asio = boost::asio;

namespace {

thread_local bool is_io_thread = false;

// If waking the loop failed, the loop itself looks for posted tasks this often.
constexpr core::Duration look_interval = core::second;

// Never empty, because an empty reason means a requested stop.
std::string reason_of(const char* failure) noexcept {
    try {
        return std::string("the I/O thread failed: ") + failure;
    } catch (const std::exception&) {
        return "out of memory";  // at most 15 characters: a string holds these without an allocation
    }
}

}  // namespace

// ---- life --------------------------------------------------------------------------------------------------------

EventLoop::Impl::Impl(LoopSettings settings, LoopClient& client) : settings_(std::move(settings)), client_(client) {
    descriptors::install();
    buffers.limit_staging(settings_.staging_bytes_max);
    buffers.limit_scratch(settings_.scratch_bytes_max);
    shared_use_.bytes_max = settings_.shared_memory.bytes_max;
    if (const char* chosen = std::getenv("TMPDIR")) staging_directory_ = chosen;
}

EventLoop::Impl::~Impl() {
    request_stop();
    join();
    tear_down();
}

bool EventLoop::Impl::listen(const ListenRequest& request, std::string& error) {
    if (listener_ >= 0) {
        error = "listening already";
        return false;
    }
    listener_ = listen_on(request, port, error);
    if (listener_ >= 0 && settings_.shared_memory.enabled) listen_shared(request);
    return listener_ >= 0;
}

bool EventLoop::Impl::start(std::string& error) {
    try {
        if (listener_ >= 0) listener_watch_.assign(listener_);
        if (shared_listener_ >= 0) shared_listener_watch_.assign(shared_listener_);
        log_threshold();  // reads the environment here, because the I/O thread must not
        log_use_.emplace();
        const SignalsBlocked blocked;
        thread_ = std::thread([this] { thread_main(); });
        return true;
    } catch (const std::exception& failure) {
        log_use_.reset();
        if (listener_watch_.is_open()) listener_watch_.release();
        if (shared_listener_watch_.is_open()) shared_listener_watch_.release();
        error = std::string("cannot start the I/O thread: ") + failure.what();
        return false;
    }
}

bool EventLoop::Impl::post(std::function<void()> task) {
    bool was_empty = false;
    {
        const std::lock_guard lock(posted_mutex_);
        if (ended_) return false;
        was_empty = posted_.empty() && computed_.empty();
        posted_.push_back(std::move(task));
    }
    if (was_empty) wake();
    return true;
}

void EventLoop::Impl::wake() noexcept {
    try {
        asio::post(context_, [this] { run_posted(); });
    } catch (...) {
        wake_missed_ = true;
    }
}

void EventLoop::Impl::request_stop() {
    {
        const std::lock_guard lock(posted_mutex_);
        if (stop_requested_) return;
        stop_requested_ = true;
    }
    wake();
}

void EventLoop::Impl::join() {
    if (!thread_.joinable()) return;
    thread_.join();
    log_use_.reset();
}

void EventLoop::Impl::thread_main() {
    name_this_thread(settings_.thread_name);
    never_wait_for_log();
    is_io_thread = true;
    use_default_arithmetic();
    std::string reason;
    try {
        thread_begins();
        begin_crew();
        run();
        reason = halt_reason_;
    } catch (const std::exception& failure) {
        reason = reason_of(failure.what());
    } catch (...) {
        reason = reason_of("unknown exception");
    }
    tear_down();
    thread_ends();
    {
        const std::lock_guard lock(posted_mutex_);
        ended_ = true;
        posted_.clear();
    }
    // If a task failed, the rest of its batch is here. Others may wait for these tasks (in_run()).
    posted_now_.clear();
    computed_now_.clear();
    try {
        client_.ended(reason);
    } catch (...) {
        // Out of memory while reporting. Nothing is left to do.
    }
}

void EventLoop::Impl::begin_crew() {
    if (settings_.io_threads < 2) return;
    crew_.emplace(settings_.io_threads - 1);
    const std::size_t threads = crew_->size() + 1;
    if (threads == settings_.io_threads) return;
    client_.log(Severity::warn,
                core::formatted("{} threads move payload, and {} were asked for: the system starts no more; raise its "
                                "limit of threads, or set PCCL_IO_THREADS to less",
                                threads, settings_.io_threads));
    if (threads == 1) crew_.reset();
}

void EventLoop::Impl::tear_down() noexcept {
    for (auto& [id, making] : files_) making.file->abandon();
    files_.clear();
    workers_.finish();
    file_workers_.finish();
    crew_.reset();
    finish_computes();
    dirty_.clear();
    receiving_.clear();
    for (auto& [id, connection] : links_) destroy(connection);
    links_.clear();
    for (auto& connection : closing_) destroy(connection);
    closing_.clear();
    close_openings();
    close_listeners();
}

void EventLoop::Impl::run() {
    begin_turn();
    client_.start(now(), effects_);
    carry_out_all();
    finish_turn();
    arm_accept();
    if (!shared_listen_error_.empty())
        client_.log(Severity::info, "connections of peers of this host use TCP: " + shared_listen_error_);
    arm_shared_accept();
    while (!finished_) {
        core::Instant at = now();
        const core::Instant deadline = std::min(stopping_ ? core::never : client_.next_deadline(), own_deadline());
        if (is_round_due()) {
            run_round();
            at = now();
        } else if (deadline > at) {
            const core::Instant until = std::min(deadline, at + look_interval);
            context_.run_one_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)));
            at = now();
        }
        if (wake_missed_.exchange(false)) run_posted();
        if (own_deadline() <= at) own_timers(at);
        if (!stopping_ && client_.next_deadline() <= at) {
            // Handle what arrived before the deadline was noticed, then judge the deadline.
            const std::size_t bound = 2 * links_.size() + 16;
            for (std::size_t i = 0; i < bound && context_.poll_one() > 0; ++i) {
            }
            if (stopping_) continue;
            begin_turn();
            handle_one(core::Timer{});
            finish_turn();
        }
    }
}

core::Instant EventLoop::Impl::own_deadline() const {
    core::Instant earliest = std::min({accept_resume_, stop_at_, buffers.next_trim()});
    for (const auto& [id, making] : files_) earliest = std::min(earliest, making.examine_at);
    for (const auto& connection : closing_) earliest = std::min(earliest, connection->close_at);
    for (const auto& connection : opening_) earliest = std::min(earliest, connection->close_at);
    for (const LineBudget& lines : refused_lines_) earliest = std::min(earliest, lines.due());
    return earliest;
}

void EventLoop::Impl::own_timers(core::Instant at) {
    if (accept_resume_ <= at) {
        accept_resume_ = core::never;
        arm_accept();
        arm_shared_accept();
    }
    give_up_openings(at);
    tell_refused(at);
    for (std::size_t i = 0; i < closing_.size();) {
        if (closing_[i]->close_at > at) {
            ++i;
            continue;
        }
        const ConnectionRef connection = closing_[i];
        destroy(connection);
        std::erase(closing_, connection);
    }
    if (buffers.next_trim() <= at) buffers.trim(at);
    examine_files(at);
    if (stop_at_ <= at || (stopping_ && closing_.empty())) finished_ = true;
}

void EventLoop::Impl::run_posted() {
    begin_turn();
    bool stops = false;
    {
        const std::lock_guard lock(posted_mutex_);
        posted_now_.swap(posted_);
        computed_now_.assign(std::make_move_iterator(computed_.begin()), std::make_move_iterator(computed_.end()));
        computed_.clear();
        stops = stop_requested_;
    }
    for (const Computed& computed : computed_now_) {
        if (computed.failed && halt_reason_.empty()) halt_reason_ = "a computation failed for want of memory";
        if (!halt_reason_.empty()) break;
        if (computed.read != nullptr)
            payload_read(computed.read);
        else
            deliver(computed.done);
        handle_pending();
    }
    computed_now_.clear();
    for (auto& task : posted_now_) {
        task();
        handle_pending();
    }
    posted_now_.clear();
    if (stops) begin_stop();
    finish_turn();
}

void EventLoop::Impl::begin_stop() {
    if (stopping_) return;
    core::Effects effects;
    client_.shut_down(now(), effects);
    for (auto& effect : effects) carry_out(effect);
    handle_pending();
    stopping_ = true;
    stop_at_ = now() + flush_time;
    std::vector<ConnectionRef> open;
    for (auto& [id, connection] : links_) open.push_back(connection);
    links_.clear();
    for (auto& connection : open) shut_connection(connection, connection->state == State::open);
    close_openings();
    close_listeners();
    accept_resume_ = core::never;
    if (closing_.empty()) finished_ = true;
}

// ---- turns -------------------------------------------------------------------------------------------------------

void EventLoop::Impl::begin_turn() {
    ++turn_;
    inline_bytes_ = 0;
}

void EventLoop::Impl::on_event(const core::Event& event) {
    if (file_payloads_.has_landings()) {
        if (const auto* landed = std::get_if<core::PayloadLanded>(&event))
            file_payloads_.end_landing(landed->link, landed->verdict == core::PayloadLanded::Verdict::landed);
    }
    // In the order in which things happened: what was sent before what was received.
    handle_pending();
    handle_one(event);
    handle_pending();
}

void EventLoop::Impl::handle_one(const core::Event& event) {
    if (stopping_) return;
    ASSERT(!in_handle_);
    in_handle_ = true;
    const core::Status status = client_.handle(now(), event, effects_);
    in_handle_ = false;
    ASSERT(status == core::Status::ok);
    carry_out_all();
}

void EventLoop::Impl::carry_out_all() {
    for (; carried_out_ < effects_.size(); ++carried_out_) carry_out(effects_[carried_out_]);
    effects_.clear();
    carried_out_ = 0;
}

void EventLoop::Impl::handle_pending() {
    while (!pending_.empty()) {
        const core::Event event = std::move(pending_.front());
        pending_.pop_front();
        handle_one(event);
    }
}

void EventLoop::Impl::finish_turn() {
    for (;;) {
        handle_pending();
        if (dirty_.empty() || leaves_output_to_round()) break;
        const ConnectionRef connection = std::move(dirty_.front());
        dirty_.pop_front();
        connection->dirty = false;
        pump(connection);
    }
    if (!halt_reason_.empty()) finished_ = true;
}

void EventLoop::Impl::carry_out(core::Effect& effect) {
    if (!halt_reason_.empty() && !std::holds_alternative<core::Compute>(effect)) return;
    std::visit(core::Overload{
                   [&](const core::OpenLink& e) { open_link(e); },
                   [&](const core::CloseLink& e) { close_link(e); },
                   [&](const core::SendControl& e) {
                       Connection* connection = find_with_room(e.link, e.body.size());
                       if (connection == nullptr) return;
                       ASSERT(e.body.size() <= settings_.limits.control_bytes_max);
                       connection->link.queue_control(e.body);
                       mark_dirty(*connection);
                   },
                   [&](const core::SendFlow& e) {
                       Connection* connection = find_with_room(e.link, core::wire::flow_word_bytes);
                       if (connection == nullptr) return;
                       connection->link.queue_flow(e.word);
                       mark_dirty(*connection);
                   },
                   [&](const core::SendPayload& e) {
                       Connection* connection = find(e.link);
                       if (connection == nullptr) return;
                       if (buffers.is_file(e.source.id))
                           read_payload(*connection, e);
                       else
                           give_payload(*connection, e, buffers.resolve(e.source));
                   },
                   [&](const core::CancelSend& e) {
                       if (Connection* connection = find(e.link)) cancel_send(*connection);
                   },
                   [&](const core::ReceivePayload& e) {
                       if (Connection* connection = find(e.link)) receive_payload(*connection, e);
                   },
                   [&](const core::DiscardPayload& e) {
                       if (Connection* connection = find(e.link)) connection->link.discard_payload();
                   },
                   [&](const core::RedirectReceive& e) {
                       if (Connection* connection = find(e.link)) connection->link.redirect_receive();
                   },
                   [&](const core::AllocateBuffer& e) { allocate(e); },
                   [&](const core::FreeBuffer& e) {
                       file_payloads_.forget_buffer(e.buffer);
                       buffers.free(e.buffer, now());
                   },
                   [&](const core::StoreBytes& e) { store(e); },
                   [&](const core::Compute& e) { compute(e); },
                   [&](core::Persist& e) {
                       const std::uint64_t sequence = e.sequence;
                       if (!client_.persist(e)) pending_.push_back(core::RecordPersisted{sequence});
                   },
                   [&](const core::Complete& e) { client_.complete(e); },
                   [&](const core::SetAttributes& e) { client_.set_attributes(e.attributes); },
                   [&](const core::Log& e) {
                       if (e.for_caller) client_.notice(e.text);
                       client_.log(severity_of(e.level), e.text);
                   },
                   [&](const core::Halt& e) {
                       halt_reason_ = told(e.cause);
                       client_.log(Severity::fatal, halt_reason_);
                   },
               },
               effect);
}

void EventLoop::Impl::store(const core::StoreBytes& effect) {
    std::memcpy(buffers.resolve(effect.target), effect.bytes.data(), effect.bytes.size());
}

// ---- payload --------------------------------------------------------------------------------------------------------

void EventLoop::Impl::give_payload(Connection& connection, const core::SendPayload& command,
                                   const std::uint8_t* source) {
    connection.stream->limit_unsent();
    connection.link.send_payload(command, source);
    mark_dirty(connection);
}

void EventLoop::Impl::read_payload(Connection& connection, const core::SendPayload& command) {
    std::shared_ptr<FileRead> read = file_payloads_.begin_read(command);
    if (read == nullptr) {
        lose(links_.at(command.link), "no memory to read a part of the shared state from its file");
        return;
    }
    const auto work = [read] {
        read_from_file(*read);
        return Computed{{}, false, read};
    };
    if (submit(file_workers_, work)) return;
    give_payload(connection, command, buffers.resolve(command.source));
}

void EventLoop::Impl::payload_read(const std::shared_ptr<FileRead>& read) {
    const core::LinkId link = read->command.link;
    if (file_payloads_.reading(link) != read.get()) return;  // cancelled, or the link is gone
    read->done = true;
    give_payload(*find(link), read->command, read->data.get());
}

void EventLoop::Impl::cancel_send(Connection& connection) {
    const core::LinkId link = connection.link.id();
    const FileRead* read = file_payloads_.reading(link);
    const bool still_read = read != nullptr && !read->done && !connection.link.is_sending();
    // The frame may have left already. Then its PayloadSent is the next event.
    if (!still_read && !connection.link.is_sending()) return;
    if (!still_read && !connection.link.cancel_send()) return;
    file_payloads_.end_read(link);
    pending_.push_back(core::PayloadSent{link, 0, true});
}

void EventLoop::Impl::receive_payload(Connection& connection, const core::ReceivePayload& command) {
    std::uint8_t* const target = buffers.is_file(command.target.id)
                                     ? file_payloads_.begin_landing(command.link, command.target)
                                     : buffers.resolve(command.target);
    if (target == nullptr && command.target.length > 0)
        connection.link.discard_payload();
    else
        connection.link.receive_payload(target, command.target.length);
}

// ---- memory ------------------------------------------------------------------------------------------------------

void EventLoop::Impl::allocate(const core::AllocateBuffer& effect) {
    using Allocation = BufferTable::Allocation;
    const Allocation allocation = buffers.allocate(effect.buffer, effect.bytes, effect.may_be_file);
    if (allocation != Allocation::needs_file) {
        pending_.push_back(core::BufferAllocated{effect.buffer, allocation == Allocation::done});
        return;
    }
    std::erase_if(stuck_files_, [](const std::weak_ptr<StagingFile>& file) { return file.expired(); });
    if (stuck_files_.size() >= settings_.limits.abandoned_stagings_max) {
        client_.log(Severity::warn,
                    "no file for incoming shared state: the disk still owes those that were given up; set TMPDIR "
                    "to a directory on a disk that works");
        pending_.push_back(core::BufferAllocated{effect.buffer, false});
        return;
    }
    try {
        PendingFile& making = files_[effect.buffer];
        making.bytes = effect.bytes;
        making.examine_at = now() + settings_.staging_patience / 2;
        // Nothing may throw after this: the file's thread calls this object until the file is abandoned.
        making.file = StagingFile::begin(staging_directory_, static_cast<std::size_t>(effect.bytes),
                                         [this, id = effect.buffer] { post([this, id] { file_made(id); }); });
    } catch (const std::exception&) {
        files_.erase(effect.buffer);
        pending_.push_back(core::BufferAllocated{effect.buffer, false});
    }
}

void EventLoop::Impl::file_made(core::BufferId id) {
    const auto found = files_.find(id);
    if (found == files_.end()) return;
    std::uint8_t* data = found->second.file->take();
    bool ok = data != nullptr;
    try {
        if (ok) buffers.adopt_file(id, data, found->second.bytes);
    } catch (const std::bad_alloc&) {
        ok = false;
    }
    files_.erase(found);
    deliver(core::BufferAllocated{id, ok});
}

// A disk that gives no piece of a file for too long is treated like a full one.
void EventLoop::Impl::examine_files(core::Instant at) {
    std::vector<core::BufferId> given_up;
    for (auto& [id, making] : files_) {
        if (making.examine_at > at) continue;
        making.examine_at = at + settings_.staging_patience / 2;
        const std::uint64_t pieces = making.file->pieces();
        making.stalls = pieces == making.pieces ? making.stalls + 1 : 0;
        making.pieces = pieces;
        // Twice in a row: after a pause of the whole process the disk has not had its full time at the first
        // examination.
        if (making.stalls >= 2) given_up.push_back(id);
    }
    for (const core::BufferId id : given_up) {
        client_.log(Severity::warn,
                    core::formatted("the file for incoming shared state is given up: the disk has not answered for {} "
                                    "ms; set TMPDIR to a directory on a disk that works",
                                    settings_.staging_patience / core::millisecond));
        files_.at(id).file->abandon();
        stuck_files_.emplace_back(files_.at(id).file);
        files_.erase(id);
        begin_turn();
        on_event(core::BufferAllocated{id, false});
        finish_turn();
    }
}

// ---- the face ----------------------------------------------------------------------------------------------------

EventLoop::EventLoop(LoopSettings settings, LoopClient& client)
    : impl_(std::make_unique<Impl>(std::move(settings), client)) {}
EventLoop::~EventLoop() = default;
bool EventLoop::listen(const ListenRequest& request, std::string& error) { return impl_->listen(request, error); }
std::uint16_t EventLoop::port() const { return impl_->port; }
bool EventLoop::start(std::string& error) { return impl_->start(error); }
bool EventLoop::post(std::function<void()> task) { return impl_->post(std::move(task)); }
std::uint64_t EventLoop::computes_done() const { return impl_->computes_done(); }
bool EventLoop::computes() const { return impl_->computes(); }
void EventLoop::request_stop() { impl_->request_stop(); }
void EventLoop::join() { impl_->join(); }
boost::asio::io_context& EventLoop::context() { return impl_->context(); }
BufferTable& EventLoop::buffers() { return impl_->buffers; }
void EventLoop::compute_at_once(const core::Compute& effect) { run_compute(effect, impl_->memory_of(effect)); }
std::uint64_t EventLoop::shared_memory_bytes() const { return impl_->shared_memory_bytes(); }
void EventLoop::set_user_timeout(core::Duration user_timeout) { impl_->set_user_timeout(user_timeout); }
void EventLoop::set_tls(TlsUse use) { impl_->set_tls(std::move(use)); }
void EventLoop::answer_enrolment(core::LinkId link, const std::string& body) { impl_->answer_enrolment(link, body); }
void EventLoop::drop_not_admitted() { impl_->drop_not_admitted(); }
void EventLoop::deliver(core::Event event) { impl_->deliver(std::move(event)); }

bool EventLoop::on_io_thread() { return is_io_thread; }

core::Instant EventLoop::now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace pccl::real
