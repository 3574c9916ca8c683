#include "core/membership/control_links.hpp"

#include "core/base/assert.hpp"
#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/links/waiting_room.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"

#include <algorithm>
#include <utility>

namespace pccl::core {

namespace {

// The host without the port. The port of a stranger differs each time, and would make each log line a new one.
std::string host_of(const Endpoint& remote) {
    const std::string text = to_text(remote);
    return text.substr(0, text.rfind(':'));
}

// A member that forwards a send of others is told of it without a call.
bool answers_a_call(const proto::MasterMessage& message) {
    const proto::Answer& answer = message.answer();
    return message.has_answer() && (answer.serial() != 0 || !(answer.has_start() || answer.has_outcome()));
}

}  // namespace

void ControlLinks::accept(const LinkAccepted& event, bool member_host, std::size_t members) {
    const bool known =
        member_host || std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
            return entry.second.stage == Link::Stage::member && same_host(entry.second.remote, event.remote);
        });
    std::vector<WaitingLink> waiting;
    for (const auto& [id, link] : links_) {
        if (link.stage == Link::Stage::fresh || link.stage == Link::Stage::closing)
            waiting.push_back({id, link.remote, link.opened, link.known});
    }
    const Room room{turn_.limits.unregistered_links_max, members, turn_.timeouts.place()};
    const Place place = place_for(event.remote, known, waiting, room, turn_.now);
    if (!place.free || place.gives_way != 0) ++refused_frames_;
    if (!place.free) {
        PROBE(stranger_turned_away);
        turn_.add(CloseLink{event.link, false});
        return;
    }
    if (place.gives_way != 0) {
        PROBE(stranger_gave_way);
        turn_.add(CloseLink{place.gives_way, false});
        closed(place.gives_way);
    }
    Link& link = links_[event.link];
    link.known = known;
    link.remote = event.remote;
    link.identity = event.identity;
    link.group = event.group;
    link.opened = link.last_received = link.last_sent = turn_.now;
}

void ControlLinks::closed(LinkId id) {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    const Link link = it->second;
    links_.erase(it);
    owner_.link_lost(id, link);
}

void ControlLinks::drop(LinkId id, bool flush) {
    links_.erase(id);
    turn_.add(CloseLink{id, flush});
}

void ControlLinks::close(LinkId id, const std::string& why) {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    turn_.log(it->second.stage == Link::Stage::fresh ? LogLevel::warn : LogLevel::info,
              formatted("closed a connection from {}: {}", host_of(it->second.remote), why));
    turn_.add(CloseLink{id, false});
    closed(id);
}

// Members send more than two heartbeats in a peer time-out. A member that was silent for half of it did not run, or was
// cut off. Its neighbours could not connect with it in that time.
void ControlLinks::heard(Link& link) {
    const Duration silence = turn_.now - link.last_received;
    link.last_received = turn_.now;
    if (link.stage != Link::Stage::member || silence <= turn_.timeouts.quiet()) return;
    PROBE(heard_after_silence);
    owner_.heard_again(link.uuid);
}

void ControlLinks::acknowledges(Link& link, std::uint64_t messages) {
    messages = std::min(messages, link.said);
    if (messages <= link.heard) return;
    const bool was_deaf = deaf(link);
    link.heard = messages;
    link.unheard_since = messages == link.said ? never : turn_.now;
    if (was_deaf) owner_.heard_again(link.uuid);
    owner_.acknowledged(link.uuid, messages);
}

std::vector<LinkId> ControlLinks::tick() {
    std::vector<LinkId> late, full, silent;
    for (auto& [id, link] : links_) {
        if (link.held_too_much && link.stage != Link::Stage::closing) {
            full.push_back(id);
        } else if (link.stage == Link::Stage::fresh) {
            if (turn_.now - link.opened > turn_.timeouts.handshake) late.push_back(id);
        } else if (link.stage == Link::Stage::closing) {
            // Its refusal waits for the disk, without a time-out. accept() limits the number of such links. A member that
            // heard nothing would take the master for dead, and never learn why it was removed.
            if (link.welcomed && turn_.now - link.last_sent >= turn_.timeouts.heartbeat()) say_heartbeat(id, link);
        } else if (!link.welcomed) {
            // Its welcome waits for the disk. The peer sends nothing before it has the welcome.
            PROBE(welcome_waits_for_the_disk);
        } else if (turn_.now - link.last_received > turn_.timeouts.peer) {
            silent.push_back(id);
        } else if (turn_.now - link.last_sent >= turn_.timeouts.heartbeat()) {
            say_heartbeat(id, link);
        }
    }
    for (const LinkId id : late) close(id, "said nothing within the handshake time");
    for (const LinkId id : full) close(id, "more messages wait for the disk than the limit");
    return silent;
}

// Encodes a message for `link`, and cuts its texts to the limit of the other end. Lists in it were paged before.
std::string ControlLinks::encode_for(const Link& link, proto::MasterMessage& message) {
    wire::bound_texts(message, wire::text_limit(link.control_bytes));
    std::string body = encode(message);
    ASSERT(body.size() <= link.control_bytes);
    return body;
}

void ControlLinks::say(LinkId id, proto::MasterMessage message) {
    const auto it = links_.find(id);
    if (it == links_.end() || it->second.held_too_much) return;
    if (must_wait()) {
        PROBE(held_for_a_record);
        std::string body = encode_for(it->second, message);
        if (!message.has_answer()) {
            if (it->second.held_bytes + body.size() > turn_.limits.held_bytes_max) {
                it->second.held_too_much = true;
                return;
            }
            it->second.held_bytes += body.size();
        }
        if (message.has_plan() && it->second.plans_held++ == 0) it->second.plan_held_since = turn_.now;
        keep_held({decisions_.last_sequence(), id, std::move(body), false, answers_a_call(message), message.has_plan(),
                   message.has_welcome(), !message.has_answer(), turn_.now});
        return;
    }
    if (answers_a_call(message)) owner_.answer_leaves(it->second.uuid, it->second.said + 1);
    say_at_once(id, it->second, std::move(message));
}

// Drops messages for lost links from time to time: the disk may hang for long, and links come and go.
void ControlLinks::keep_held(Held held) {
    held_.push_back(std::move(held));
    if (held_.size() < 2 * held_kept_ + 64) return;
    std::erase_if(held_, [&](const Held& one) { return !links_.contains(one.link); });
    held_kept_ = held_.size();
}

void ControlLinks::say_at_once(LinkId id, Link& link, proto::MasterMessage message) {
    if (message.has_welcome()) welcome_leaves(link);
    leaves(id, link, encode_for(link, message));
}

void ControlLinks::say_heartbeat(LinkId id, Link& link) {
    proto::MasterMessage message;
    message.set_heartbeat(true);
    say_at_once(id, link, std::move(message));
}

void ControlLinks::say_to_members_at_once(const proto::MasterMessage& message) {
    for (auto& [id, link] : links_) {
        if (link.stage == Link::Stage::member) say_at_once(id, link, message);
    }
}

void ControlLinks::close_unnamed(const Uuid& identity, const char* why) {
    std::vector<LinkId> unnamed;
    for (const auto& [id, link] : links_) {
        if (link.stage == Link::Stage::fresh && link.identity == identity) unnamed.push_back(id);
    }
    for (const LinkId id : unnamed) {
        PROBE(revoked_before_its_hello);
        close(id, why);
    }
}

void ControlLinks::tell_all(const proto::MasterMessage& message) {
    for (auto& [id, link] : links_) {
        if (link.stage != Link::Stage::member && link.stage != Link::Stage::registered) continue;
        if (link.welcomed)
            say_at_once(id, link, message);
        else
            say(id, message);
    }
}

// The other end may send from now on, so its silence is measured from here.
void ControlLinks::welcome_leaves(Link& link) {
    link.welcomed = true;
    link.last_received = turn_.now;
}

void ControlLinks::leaves(LinkId id, Link& link, std::string body) {
    link.last_sent = turn_.now;
    ++link.said;
    link.unheard_since = std::min(link.unheard_since, turn_.now);
    turn_.add(SendControl{id, std::move(body)});
}

void ControlLinks::say_and_close(LinkId id, proto::MasterMessage message, bool hold) {
    const auto it = links_.find(id);
    if (it == links_.end() || it->second.stage == Link::Stage::closing) return;
    const Link link = it->second;
    if (hold && must_wait()) {
        it->second.stage = Link::Stage::closing;
        it->second.uuid = Uuid{};
        it->second.opened = turn_.now;
        PROBE(refusal_held);
        keep_held(
            {decisions_.last_sequence(), id, encode_for(link, message), true, false, false, false, false, turn_.now});
    } else {
        links_.erase(it);
        turn_.add(SendControl{id, encode_for(link, message)});
        turn_.add(CloseLink{id, true});
    }
    owner_.link_lost(id, link);
}

void ControlLinks::refuse(LinkId link, proto::RefusalCode code, const Cause& cause) {
    proto::MasterMessage message;
    message.mutable_refusal()->set_code(code);
    write(cause, *message.mutable_refusal()->mutable_cause());
    message.mutable_refusal()->set_protocol_version(wire::protocol_version);
    const auto it = links_.find(link);
    turn_.log(LogLevel::warn,
              formatted("refused {}: {}", it == links_.end() ? "a peer" : host_of(it->second.remote), to_text(cause)));
    say_and_close(link, message, code == proto::REFUSED_REMOVED || code == proto::REFUSED_OTHER_RUN);
}

void ControlLinks::release_held() {
    while (!held_.empty() && decisions_.durable(held_.front().sequence)) {
        Held held = std::move(held_.front());
        held_.pop_front();
        const auto it = links_.find(held.link);
        if (it == links_.end()) PROBE(held_for_a_lost_link);
        if (it == links_.end()) continue;
        if (held.counts) it->second.held_bytes -= held.body.size();
        if (held.answer) owner_.answer_leaves(it->second.uuid, it->second.said + 1);
        if (held.welcome) welcome_leaves(it->second);
        if (held.welcome) owner_.held_welcome_leaves(it->second.uuid, turn_.now - held.since);
        if (held.plan && --it->second.plans_held == 0)
            owner_.held_plan_leaves(it->second.uuid, turn_.now - it->second.plan_held_since);
        leaves(held.link, it->second, std::move(held.body));
        if (held.close) {
            links_.erase(it);
            turn_.add(CloseLink{held.link, true});
        }
    }
}

bool ControlLinks::welcome_waits(LinkId link) const {
    return std::any_of(held_.begin(), held_.end(), [&](const Held& held) {
        return held.welcome && held.link == link && turn_.now - held.since >= turn_.timeouts.tick();
    });
}

std::set<Uuid> ControlLinks::owed_answers() const {
    std::set<Uuid> owed;
    for (const Held& held : held_) {
        const auto link = links_.find(held.link);
        if (held.answer && link != links_.end()) owed.insert(link->second.uuid);
    }
    return owed;
}

void ControlLinks::shut_down(const proto::MasterMessage& message) {
    for (auto& [id, link] : links_) {
        say_at_once(id, link, message);
        turn_.add(CloseLink{id, true});
    }
    links_.clear();
    held_.clear();
}

void ControlLinks::slept(const Sleep& sleep) {
    for (auto& [id, link] : links_) {
        sleep.leave_out(link.last_received);
        sleep.leave_out(link.opened);
        if (link.unheard_since != never) sleep.leave_out(link.unheard_since);
    }
}

std::size_t ControlLinks::strangers() const {
    return static_cast<std::size_t>(std::count_if(
        links_.begin(), links_.end(), [](const auto& entry) { return entry.second.stage == Link::Stage::fresh; }));
}

std::vector<LinkId> ControlLinks::of_stage(Link::Stage stage) const {
    std::vector<LinkId> found;
    for (const auto& [id, link] : links_) {
        if (link.stage == stage) found.push_back(id);
    }
    return found;
}

void ControlLinks::check() const {
    std::uint64_t last = 0;
    std::map<LinkId, std::uint64_t> bytes;
    for (const Held& held : held_) {
        ASSERT(held.sequence >= last);
        last = held.sequence;
        if (held.counts) bytes[held.link] += held.body.size();
    }
    for (const auto& [id, link] : links_) {
        ASSERT(link.held_bytes <= turn_.limits.held_bytes_max && link.held_bytes == bytes[id]);
        ASSERT(id != 0 && link.heard <= link.said && link.control_bytes >= control_bytes_least);
        ASSERT(link.stage == Link::Stage::fresh || link.stage == Link::Stage::closing || !link.uuid.is_nil());
    }
}

}  // namespace pccl::core
