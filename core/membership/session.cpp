#include "core/membership/session.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

using Stage = Link::Stage;

// ---- membership ----------------------------------------------------------------------------------------------------

void Session::begin(const Uuid& identity) {
    for (std::size_t i = 0; i < 16; i += 8) {
        const std::uint64_t word = turn_.random.next();
        for (std::size_t k = 0; k < 8; ++k) who_.uuid.bytes[i + k] = static_cast<std::uint8_t>(word >> (8 * k));
    }
    who_.uuid.bytes[6] = static_cast<std::uint8_t>((who_.uuid.bytes[6] & 0x0F) | 0x40);  // RFC 4122, version 4
    who_.uuid.bytes[8] = static_cast<std::uint8_t>((who_.uuid.bytes[8] & 0x3F) | 0x80);
    if (!identity.is_nil()) who_.uuid = identity;
    who_.run = Uuid{};
    token_ = secrets_.next_token();
    former_tokens_.clear();
    before_connect_ = state_;
    state_ = State::connecting;
    incarnation_ = 0;
    dials_ = 0;
    seen_ = seen_chain_ = 0;
    votes_ = OpenVotes{};
    welcomed_ = false;
    addresses_.begin();
    lost_since_ = never;
    dial();
}

void Session::say_goodbye() {
    if (!link_open()) return;
    proto::PeerMessage message;
    message.set_leave(true);
    links_.send(link_, message);
}

void Session::end(State next, const Cause& cause) {
    if (next == State::lost) lost_ = cause;
    state_ = next;
    votes_.forget();
    link_ = 0;
    lost_since_ = never;
    next_dial_ = never;
    welcomed_ = false;
}

void Session::give_up(const Cause& cause) {
    if (!is_newcomer()) return owner_.membership_over(cause, State::lost);
    addresses_.note_tried(to_text(cause));
    give_up_connect();
}

void Session::give_up_connect() {
    owner_.membership_over(make_cause<CauseKind::master_unreachable>(addresses_.take_tried()), before_connect_);
}

// ---- the link ------------------------------------------------------------------------------------------------------

void Session::dial() {
    next_dial_ = never;
    if (link_ != 0 || !in_run()) return;
    ++dials_;
    heard_ = 0;
    // From the port of the listener: if a translator is in between, the master then sees where others reach this port.
    link_ = links_.dial(Link::Purpose::master, Uuid{}, 0, addresses_.current(), {},
                        config_.has_advertised ? std::uint16_t{0} : config_.listen_port);
}

Duration Session::dial_longest() const {
    const Timeouts& t = turn_.timeouts;
    return away_from_found() ? std::min(t.dial, t.hiccup()) : t.dial;
}

void Session::opened(const Endpoint& local, Duration round_trip) {
    proto::PeerMessage message;
    auto* hello = message.mutable_hello();
    local_ = local;
    round_trip_ = round_trip;
    if (local.port != 0) {
        write(local, *hello->mutable_local());
        hello->set_from_listener(!config_.has_advertised && local.port == config_.listen_port);
    }
    hello->set_protocol_version(wire::protocol_version);
    hello->set_uuid(to_bytes(who_.uuid));
    hello->set_token(token_);
    for (const std::uint64_t former : former_tokens_) hello->add_former_tokens(former);
    if (state_ == State::member) hello->set_run_id(to_bytes(who_.run));
    hello->set_generation(dials_);
    hello->set_group(config_.group);
    if (config_.has_advertised)
        write(config_.advertised, *hello->mutable_advertised());
    else
        hello->mutable_advertised()->set_port(config_.listen_port);
    hello->set_concurrent_ops(turn_.limits.concurrent_ops);
    if (!config_.gang.none()) {
        write(config_.gang, *hello->mutable_gang());
        hello->mutable_gang()->set_patience_ms(static_cast<std::uint32_t>(config_.gang_patience / millisecond));
    }
    hello->set_host(config_.host);
    if (config_.has_advertised) hello->set_listen_port(config_.listen_port);
    hello->set_seen(seen_);
    hello->set_seen_chain(seen_chain_);
    hello->set_newcomer_links(turn_.limits.newcomer_links_max);
    hello->set_control_bytes_max(turn_.limits.control_bytes_max);
    links_.send(link_, message);
}

void Session::lost(LinkId id, const std::string& reason, bool by_remote) {
    if (id != link_) return;
    link_ = 0;
    owner_.master_away();
    // A master that very many peers dial at once closes some of the connections. The peer dials again, as after a loss.
    if (is_newcomer() && by_remote) PROBE(master_turned_newcomer_away);
    if (is_newcomer() && !by_remote) {
        addresses_.note_tried(reason);
        if (addresses_.try_next()) return dial();
        PROBE(master_unreachable_at_connect);
        give_up_connect();
        return;
    }
    if (!in_run()) return;
    if (lost_since_ == never) {
        PROBE(master_link_lost);
        ++links_lost_;
        lost_since_ = turn_.now;
        addresses_.lost_here();
        backoff_ = turn_.timeouts.redial_min;
        // From now on calls wait without any output, so the application gets this text too, as its last error message.
        if (turn_.timeouts.master > 0)
            turn_.log(LogLevel::warn,
                      formatted("the connection to the master is gone ({}); it is dialled again for at most {} ms, and "
                                "calls wait meanwhile",
                                reason, turn_.timeouts.master / millisecond),
                      true);
    } else {
        PROBE(master_dialled_again_in_vain);
        addresses_.turn();
        backoff_ = std::min(backoff_ * 2, turn_.timeouts.redial_longest());
    }
    if (turn_.now - lost_since_ >= turn_.timeouts.master) {
        give_up(make_cause<CauseKind::master_gone>(reason));
        return;
    }
    next_dial_ =
        turn_.now + backoff_ / 2 + static_cast<Duration>(turn_.random.below(static_cast<std::uint64_t>(backoff_)));
}

void Session::slept(Duration time) {
    if (lost_since_ != never) lost_since_ = std::min(turn_.now, lost_since_ + time);
}

bool Session::gave_up() {
    if (lost_since_ == never || turn_.now - lost_since_ < turn_.timeouts.master) return false;
    PROBE(master_given_up);
    give_up(make_cause<CauseKind::master_away>(turn_.timeouts.master / millisecond));
    return true;
}

void Session::beat(LinkId id) {
    proto::PeerMessage message;
    message.set_heartbeat(seen_);
    message.set_heard(heard_);
    message.set_works(std::exchange(computed_, false));
    links_.send(id, message);
}

std::size_t Session::link_stage() const {
    const auto link = links_.find(link_);
    return link == links_.end() ? 0 : 1 + static_cast<std::size_t>(link->second.stage);
}

// ---- messages ------------------------------------------------------------------------------------------------------

void Session::message_arrived(const ControlArrived& event) {
    proto::MasterMessage message;
    if (event.link != link_) return;
    ++heard_;
    if (!decode(event.body, message)) return refuse("the master sent a message that cannot be read");
    wire::bound_texts(message, text_bytes_max);
    const Link& link = links_.at(link_);
    // A notice may come first: the welcome waits for the disk of the master.
    if (!link.is_open() && message.kind_case() != proto::MasterMessage::kWelcome &&
        message.kind_case() != proto::MasterMessage::kRefusal && message.kind_case() != proto::MasterMessage::kNotice)
        return refuse("the master did not begin with a welcome");
    switch (message.kind_case()) {
    case proto::MasterMessage::kWelcome: on_welcome(message.welcome()); break;
    case proto::MasterMessage::kRefusal: on_refusal(message.refusal()); break;
    case proto::MasterMessage::kAnswer: on_answer(message.answer()); break;
    case proto::MasterMessage::kNotice:
        turn_.log(message.notice().warn() ? LogLevel::warn : LogLevel::info, message.notice().text(),
                  message.notice().warn());
        break;
    case proto::MasterMessage::kHeartbeat: break;
    case proto::MasterMessage::kPlan:
    case proto::MasterMessage::kPageRequest:
    case proto::MasterMessage::kTest:
    case proto::MasterMessage::kRevoked:
    case proto::MasterMessage::kUnfinished:
    case proto::MasterMessage::kSyncHolders: owner_.master_message(message, link.control_bytes); break;
    default: refuse("the master sent an unknown message"); break;
    }
}

void Session::on_welcome(const proto::Welcome& welcome) {
    Uuid run;
    if (welcome.protocol_version() != wire::protocol_version || !read(welcome.run_id(), run) ||
        (state_ == State::member && (run != who_.run || welcome.incarnation() < incarnation_ || !welcome.member())))
        return refuse("the master at this address is not the one of this run, or an older one of it");
    Secret key;
    if (!read(welcome.link_key(), key)) return refuse("the master sent no key for data connections");
    who_.run = run;
    incarnation_ = welcome.incarnation();
    if (const std::uint64_t former = std::exchange(token_, welcome.token()); former != token_) {
        former_tokens_.push_front(former);
        if (former_tokens_.size() > turn_.limits.former_tokens_max) former_tokens_.pop_back();
    }
    welcomed_ = true;
    if (const Instant since = std::exchange(lost_since_, never); since != never) {
        const Duration away = turn_.now - since;
        owner_.master_back(away);
        turn_.log(LogLevel::warn, formatted("connected to the master again after {} ms", away / millisecond));
    }
    Link& link = links_.at(link_);
    link.stage = Stage::open;
    link.control_bytes = wire::control_limit(turn_.limits, welcome.control_bytes_max());
    const auto told = [](std::uint32_t value, std::uint32_t own) { return value == 0 ? own : value; };
    entries_max_ = told(welcome.entries_max(), turn_.limits.entries_max);
    key_bytes_max_ =
        std::min(told(welcome.key_bytes_max(), turn_.limits.key_bytes_max), link.control_bytes - key_overhead);
    // The answer must fit, too.
    answer_room_ = wire::input_limit(link.control_bytes);
    vote_input_bytes_max_ = std::min(welcome.vote_input_bytes_max(), answer_room_);
    owner_.welcomed(welcome, key);
    tell_if_translated(welcome);
    if (welcome.member()) declare_again();
}

void Session::tell_if_translated(const proto::Welcome& welcome) {
    Endpoint seen;
    if (local_.port == 0 || !read(welcome.seen(), seen) || same_host(seen, local_) || same_host(seen, told_translated_))
        return;
    told_translated_ = seen;
    turn_.log(LogLevel::info, formatted("the master sees this peer at {}, its own address is {}: its network "
                                        "translates addresses, so it also dials the peers that cannot reach it",
                                        to_text(seen), to_text(local_)));
}

void Session::declare_again() {
    for (auto& [serial, vote] : votes_) {
        proto::PeerMessage message;
        PROBE(vote_cast_again);
        vote.set_seen(seen_);
        // This master may take less. Then an empty input does not fit either, if others have one that is too long.
        if (carries_input(vote) && whole_input(vote, who_.uuid, vote_input_bytes_max_) != vote.input().size()) {
            vote.clear_input();
            vote.clear_whole();
        }
        if (vote.room() != 0) vote.set_room(answer_room_);
        *message.mutable_vote() = vote;
        links_.send(link_, message);
    }
    owner_.declare_edges();
    proto::PeerMessage message;
    message.set_resumed(true);
    links_.send(link_, message);
}

void Session::on_refusal(const proto::Refusal& refusal) {
    PROBE(refusal_read);
    if (refusal.code() == proto::REFUSED_VERSION)
        return owner_.membership_over(
            make_cause<CauseKind::versions_differ>(refusal.protocol_version(), +wire::protocol_version),
            state_outside());
    owner_.membership_over(cause_of(refusal.cause()), state_outside());
}

void Session::on_answer(const proto::Answer& answer) {
    if (answer.index() <= seen_) return;  // sent again after a resume
    seen_ = answer.index();
    seen_chain_ = answer.chain();
    owner_.answered(answer);
}

// ---- what others tell the master -----------------------------------------------------------------------------------

bool Session::master_open() const { return state_ == State::member && link_open(); }

void Session::tell(proto::PeerMessage message) {
    if (master_open()) links_.send(link_, std::move(message));
}

void Session::tell_edge(proto::EdgeReport report) {
    if (!link_open()) return;
    proto::PeerMessage message;
    *message.mutable_edge() = std::move(report);
    links_.send(link_, message);
}

Serial Session::cast(proto::Vote& vote) {
    vote.set_seen(seen_);
    const Serial serial = votes_.add(vote);
    if (master_open()) {
        proto::PeerMessage message;
        *message.mutable_vote() = vote;
        links_.send(link_, message);
    } else {
        PROBE(vote_kept_for_the_master);
    }
    return serial;
}

// ---- observation ---------------------------------------------------------------------------------------------------

std::string Session::explain() const {
    static constexpr const char* names[] = {"fresh", "connecting", "member", "lost"};
    std::string text = formatted("peer {} {}", short_name(who_.uuid), names[static_cast<int>(state_)]);
    if (lost_since_ != never) text += formatted(", master lost since {} ms", lost_since_ / millisecond);
    for (const auto& [serial, vote] : votes_) {
        text += formatted(", vote kind {} id {} open", static_cast<int>(vote.kind()), vote.id());
    }
    return text;
}

void Session::check() const {
    const auto link = links_.find(link_);
    ASSERT(link_ == 0 || (link != links_.end() && link->second.purpose == Link::Purpose::master));
    ASSERT(lost_since_ == never || in_run());
    ASSERT(in_run() || (link_ == 0 && votes_.size() == 0));
    ASSERT(former_tokens_.size() <= turn_.limits.former_tokens_max);
    for (const auto& [serial, vote] : votes_) ASSERT(serial != 0 && serial == vote.serial());
}

}  // namespace pccl::core
