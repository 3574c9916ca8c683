// The peer's session with the master: dial, hello, resume, votes and answers.
#include "core/base/assert.hpp"
#include "core/base/probe.hpp"
#include "core/membership/peer_core.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

bool PeerCore::master_open() const {
    const auto it = links_.find(master_link_);
    return state_ == State::member && it != links_.end() && it->second.stage == Stage::open;
}

const Endpoint& PeerCore::master_address() const {
    return master_address_ == 0 ? config_.master : config_.other_masters[master_address_ - 1];
}

void PeerCore::tell(proto::PeerMessage message) {
    if (master_open()) links_.send(master_link_, std::move(message));
}

bool PeerCore::try_next_master_address() {
    master_address_ = (master_address_ + 1) % (1 + config_.other_masters.size());
    return master_address_ != 0;
}

bool PeerCore::away_from_found_master() const {
    return master_lost_since_ != never && master_address_ != master_found_;
}

// Between two others comes the one at which the master was found: a master that was started again waits for the members
// of its journal for a grace only, and the others may be silent for long.
void PeerCore::turn_master_address() {
    const std::size_t addresses = 1 + config_.other_masters.size();
    if (addresses == 1) return;
    if (away_from_found_master()) {
        PROBE(master_dialled_where_it_was);
        master_tried_last_ = std::exchange(master_address_, master_found_);
        return;
    }
    master_address_ = (master_tried_last_ + 1) % addresses;
    if (master_address_ == master_found_) master_address_ = (master_address_ + 1) % addresses;
}

void PeerCore::dial_master() {
    next_master_dial_ = never;
    if (master_link_ != 0 || (state_ != State::member && state_ != State::connecting)) return;
    ++generation_;
    master_heard_ = 0;
    master_link_ = links_.dial(Purpose::master, Uuid{}, 0, master_address(), {});
}

void PeerCore::master_opened() {
    proto::PeerMessage message;
    auto* hello = message.mutable_hello();
    hello->set_protocol_version(wire::protocol_version);
    hello->set_uuid(to_bytes(who_.uuid));
    hello->set_token(token_);
    for (const std::uint64_t former : former_tokens_) hello->add_former_tokens(former);
    if (state_ == State::member) hello->set_run_id(to_bytes(who_.run));
    hello->set_generation(generation_);
    hello->set_group(config_.group);
    if (config_.has_advertised)
        write(config_.advertised, *hello->mutable_advertised());
    else
        hello->mutable_advertised()->set_port(config_.listen_port);
    hello->set_concurrent_ops(config_.limits.concurrent_ops);
    hello->set_seen(seen_);
    hello->set_seen_chain(seen_chain_);
    hello->set_newcomer_links(config_.limits.newcomer_links_max);
    hello->set_control_bytes_max(config_.limits.control_bytes_max);
    links_.send(master_link_, message);
}

bool PeerCore::is_newcomer() const { return state_ == State::connecting && !welcomed_; }

void PeerCore::note_tried_master(const std::string& reason) {
    master_tried_ += (master_tried_.empty() ? "" : ", nor at ") + to_text(master_address()) + ": " + reason;
}

void PeerCore::give_up_connect() {
    const std::string tried = std::exchange(master_tried_, {});
    become_lost("cannot connect to the master at " + tried + "; check that it runs and that the address is right",
                before_connect_);
}

void PeerCore::give_up_master(const std::string& reason) {
    if (!is_newcomer()) return become_lost(reason, State::lost);
    note_tried_master(reason);
    give_up_connect();
}

void PeerCore::master_gone(const std::string& reason, bool by_remote) {
    master_link_ = 0;
    probe_.end();  // nobody waits for its result any more
    // A master to which very many come at once closes some of the connections. Those are dialled again, as lost ones are.
    if (is_newcomer() && by_remote) PROBE(master_turned_newcomer_away);
    if (is_newcomer() && !by_remote) {
        note_tried_master(reason);
        if (try_next_master_address()) {
            dial_master();
            return;
        }
        PROBE(master_unreachable_at_connect);
        give_up_connect();
        return;
    }
    if (state_ != State::member && state_ != State::connecting) return;
    if (master_lost_since_ == never) {
        PROBE(master_link_lost);
        ++counted_.master_links_lost;
        master_lost_since_ = turn_.now;
        master_found_ = master_tried_last_ = master_address_;
        master_backoff_ = config_.timeouts.redial_min;
        // Calls wait in silence from now on, so this is said where everybody reads it.
        if (config_.timeouts.master > 0)
            turn_.log(LogLevel::warn,
                      "the connection to the master is gone (" + reason + "); it is dialled again for at most " +
                          std::to_string(config_.timeouts.master / millisecond) + " ms, and calls wait meanwhile",
                      true);
    } else {
        PROBE(master_dialled_again_in_vain);
        turn_master_address();
        master_backoff_ = std::min(master_backoff_ * 2, config_.timeouts.redial_longest());
    }
    if (turn_.now - master_lost_since_ >= config_.timeouts.master) {
        give_up_master("the master is gone: " + reason);
        return;
    }
    next_master_dial_ = turn_.now + master_backoff_ / 2 +
                        static_cast<Duration>(turn_.random.below(static_cast<std::uint64_t>(master_backoff_)));
}

void PeerCore::on_master_message(const ControlArrived& event) {
    proto::MasterMessage message;
    if (event.link != master_link_) return;
    ++master_heard_;
    if (!decode(event.body, message)) {
        links_.drop(event.link, "the master sent a message that cannot be read");
        return;
    }
    wire::bound_texts(message, text_bytes_max);
    const bool open = links_.at(event.link).stage == Stage::open;
    // A notice says that the welcome waits for the disk of the master.
    if (!open && message.kind_case() != proto::MasterMessage::kWelcome &&
        message.kind_case() != proto::MasterMessage::kRefusal && message.kind_case() != proto::MasterMessage::kNotice) {
        links_.drop(event.link, "the master did not begin with a welcome");
        return;
    }
    switch (message.kind_case()) {
    case proto::MasterMessage::kWelcome: on_welcome(message.welcome()); break;
    case proto::MasterMessage::kRefusal: on_refusal(message.refusal()); break;
    case proto::MasterMessage::kPlan: on_plan(message.plan()); break;
    case proto::MasterMessage::kAnswer: on_answer(message.answer()); break;
    case proto::MasterMessage::kNotice:
        turn_.log(message.notice().warn() ? LogLevel::warn : LogLevel::info, message.notice().text(),
                  message.notice().warn());
        break;
    case proto::MasterMessage::kPageRequest:
        sync_.send_keys(message.page_request().serial(), message.page_request().first(),
                        links_.at(event.link).control_bytes);
        break;
    case proto::MasterMessage::kTest: probe_.begin(message.test()); break;
    case proto::MasterMessage::kHeartbeat: break;
    case proto::MasterMessage::kSyncHolders: sync_.holders_named(message.sync_holders()); break;
    default: links_.drop(event.link, "the master sent an unknown message"); break;
    }
}

void PeerCore::on_welcome(const proto::Welcome& welcome) {
    Uuid run;
    if (welcome.protocol_version() != wire::protocol_version || !read(welcome.run_id(), run) ||
        (state_ == State::member && (run != who_.run || welcome.incarnation() < incarnation_ || !welcome.member()))) {
        links_.drop(master_link_, "the master at this address is not the one of this run, or an older one of it");
        return;
    }
    Secret key;
    if (!read(welcome.link_key(), key)) {
        links_.drop(master_link_, "the master sent no key for data connections");
        return;
    }
    who_.run = run;
    incarnation_ = welcome.incarnation();
    if (const std::uint64_t former = std::exchange(token_, welcome.token()); former != token_) {
        former_tokens_.push_front(former);
        if (former_tokens_.size() > config_.limits.former_tokens_max) former_tokens_.pop_back();
    }
    link_keys_.renew(key);
    tell_all_ = true;
    welcomed_ = true;
    if (master_lost_since_ != never) {
        const Duration away = turn_.now - master_lost_since_;
        leave_out(away);
        sync_.slept(away);
        turn_.log(LogLevel::warn, "connected to the master again after " + std::to_string(away / millisecond) + " ms");
    }
    master_lost_since_ = never;
    if (welcome.peer_timeout_ms() > 0)
        config_.timeouts.peer = static_cast<Duration>(welcome.peer_timeout_ms()) * millisecond;
    Link& link = links_.at(master_link_);
    link.stage = Stage::open;
    link.control_bytes = wire::control_limit(config_.limits, welcome.control_bytes_max());
    const auto told = [](std::uint32_t value, std::uint32_t own) { return value == 0 ? own : value; };
    master_entries_max_ = told(welcome.entries_max(), config_.limits.entries_max);
    master_key_bytes_max_ =
        std::min(told(welcome.key_bytes_max(), config_.limits.key_bytes_max), link.control_bytes - key_overhead);
    plan_pages_.Clear();
    if (welcome.member()) declare_again();
}

void PeerCore::declare_edges(const std::set<Uuid>& but) {
    for (auto& [target, edge] : edges_) {
        if (but.contains(target) || edge.report == Edge::Report::none || !edge.planned) continue;
        PROBE(edge_declared_again);
        const Edge::Report report = std::exchange(edge.report, Edge::Report::none);
        report_edge(target, edge, report, "reported again");
    }
}

void PeerCore::declare_again() {
    for (auto& [serial, vote] : open_votes_) {
        proto::PeerMessage message;
        PROBE(vote_cast_again);
        vote.set_seen(seen_);
        *message.mutable_vote() = vote;
        links_.send(master_link_, message);
    }
    declare_edges();
    proto::PeerMessage message;
    message.set_resumed(true);
    links_.send(master_link_, message);
}

void PeerCore::on_refusal(const proto::Refusal& refusal) {
    PROBE(refusal_read);
    std::string text = refusal.text();
    if (refusal.code() == proto::REFUSED_VERSION) {
        text += " (this peer speaks version " + std::to_string(wire::protocol_version) + ", the master version " +
                std::to_string(refusal.protocol_version()) + ")";
    }
    become_lost(text, state_ == State::connecting ? before_connect_ : State::lost);
}

Serial PeerCore::cast(proto::Vote& vote) {
    const Serial serial = ++next_serial_;
    vote.set_serial(serial);
    vote.set_seen(seen_);
    open_votes_[serial] = vote;
    if (vote.kind() == proto::VOTE_END || vote.kind() == proto::VOTE_SYNC_END)
        open_end_votes_.emplace(vote.id(), serial);
    if (master_open()) {
        proto::PeerMessage message;
        *message.mutable_vote() = vote;
        links_.send(master_link_, message);
    } else {
        PROBE(vote_kept_for_the_master);
    }
    return serial;
}

// The operation or synchronization has its outcome. Ids of both come from one counter.
void PeerCore::close_end_votes(OpId id) {
    auto vote = open_end_votes_.lower_bound({id, 0});
    for (; vote != open_end_votes_.end() && vote->first == id; vote = open_end_votes_.erase(vote))
        open_votes_.erase(vote->second);
}

void PeerCore::on_answer(const proto::Answer& answer) {
    if (answer.index() <= seen_) return;  // told again after a resume
    seen_ = answer.index();
    seen_chain_ = answer.chain();
    switch (answer.kind_case()) {
    case proto::Answer::kTopology: answer_topology(answer.topology()); break;
    case proto::Answer::kPending: answer_pending(answer.pending()); break;
    case proto::Answer::kStart: answer_start(answer.start()); break;
    case proto::Answer::kOutcome: answer_outcome(answer.outcome()); break;
    case proto::Answer::kSync:
        open_votes_.erase(answer.sync().serial());
        if (answer.sync().final() || answer.sync().again()) close_end_votes(answer.sync().sync());
        sync_.answered(answer.sync());
        break;
    case proto::Answer::kOptimize: answer_optimize(answer.optimize()); break;
    default: break;
    }
}

}  // namespace pccl::core
