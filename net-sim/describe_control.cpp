// Control messages as text: the name of the protobuf message, and the fields that matter in a trace.
#include "core/wire/convert.hpp"
#include "net-sim/describe.hpp"

namespace pccl::sim {
namespace {

using namespace core;

std::string number(std::uint64_t value) { return std::to_string(value); }
std::string op_name(std::uint64_t op) { return number(op >> 32) + "." + number(op & 0xffffffffu); }
std::string peer_name(const std::string& bytes) { return bytes.empty() ? "nobody" : short_name(uuid_of(bytes)); }

std::string quoted(const std::string& reason) { return reason.empty() ? "" : " \"" + reason + "\""; }

std::string result_text(std::uint32_t result) { return to_text(result_of(result)); }

std::string view_text(const proto::View& view) {
    return ", epoch " + number(view.epoch()) + " group of " + number(view.group_world()) + ", " +
           number(view.groups()) + " groups, " + number(view.global_world()) + " members";
}

std::string vote_text(const proto::Vote& v) {
    const std::string serial = ", serial " + number(v.serial());
    const std::string ended = v.ok() ? " ok, digest " + number(v.digest()) : " not ok" + quoted(v.reason());
    switch (v.kind()) {
    case proto::VOTE_UPDATE_TOPOLOGY: return "vote update_topology" + serial;
    case proto::VOTE_PEERS_PENDING: return "vote peers_pending" + serial;
    case proto::VOTE_OPTIMIZE_TOPOLOGY: return "vote optimize_topology" + serial;
    case proto::VOTE_START:
        return "vote start tag " + number(v.id()) + " count " + number(v.count()) + " type " + number(v.type()) +
               " op " + number(v.op()) + serial;
    case proto::VOTE_END: return "vote end op " + op_name(v.id()) + ended + serial;
    case proto::VOTE_SYNC:
        return "vote sync revision " + number(v.revision()) + " entries " + number(v.entries()) + " strategy " +
               number(v.strategy()) + serial;
    case proto::VOTE_SYNC_END: return "vote sync_end sync " + op_name(v.id()) + ended + serial;
    default: return "vote of unknown kind" + serial;
    }
}

std::string refusal_text(const proto::Refusal& r) {
    static constexpr const char* codes[] = {"other",     "version",  "removed", "superseded",
                                            "other_run", "stopping", "full"};
    const auto code = static_cast<unsigned>(r.code());
    return std::string("refusal ") + (code < std::size(codes) ? codes[code] : "?") + quoted(r.text());
}

std::string text_of(const proto::PeerMessage& m) {
    switch (m.kind_case()) {
    case proto::PeerMessage::kHello: {
        const auto& h = m.hello();
        return "hello " + peer_name(h.uuid()) + " group " + number(h.group()) + " generation " +
               number(h.generation()) + " seen " + number(h.seen()) + (h.run_id().empty() ? " newcomer" : " resumes");
    }
    case proto::PeerMessage::kVote: return vote_text(m.vote());
    case proto::PeerMessage::kEdge: {
        const auto& e = m.edge();
        return std::string("edge ") + (e.outgoing() ? "to " : "from ") + peer_name(e.peer()) +
               (e.up() ? " up" : " down") + (e.unwanted() ? " unwanted" : "") + (e.answered() ? " answered" : "") +
               quoted(e.reason());
    }
    case proto::PeerMessage::kPage:
        return "page of keys, first " + number(m.page().first()) + ", " +
               number(static_cast<std::uint64_t>(m.page().entries_size())) + " entries";
    case proto::PeerMessage::kHeartbeat:
        return "heartbeat seen " + number(m.heartbeat()) + ", heard " + number(m.heard());
    case proto::PeerMessage::kLeave: return "leave";
    case proto::PeerMessage::kResumed: return "resumed";
    case proto::PeerMessage::kMeasured:
        return "measured test " + op_name(m.measured().test()) + ": " + number(m.measured().bytes()) + " bytes in " +
               number(m.measured().nanoseconds()) + " ns";
    case proto::PeerMessage::kHoldersRequest: return "holders_request sync " + op_name(m.holders_request());
    default: return "unknown message";
    }
}

std::string answer_text(const proto::Answer& a) {
    const std::string head = "answer " + number(a.index()) + " ";
    switch (a.kind_case()) {
    case proto::Answer::kTopology:
        return head + (a.topology().serial() == 0 ? "admitted" : "topology") + view_text(a.topology().view());
    case proto::Answer::kPending:
        return head + "pending " + (a.pending().pending() ? "yes" : "no") + view_text(a.pending().view());
    case proto::Answer::kOptimize:
        return head + "optimize " + result_text(a.optimize().result()) + quoted(a.optimize().reason()) +
               view_text(a.optimize().view());
    case proto::Answer::kStart: {
        const auto& s = a.start();
        if (s.op() == 0)
            return head + "start refused, " + result_text(s.result()) + quoted(s.reason()) + view_text(s.view());
        return head + "start op " + op_name(s.op()) + " position " + number(s.position()) + " of " + number(s.world()) +
               ", from " + peer_name(s.predecessor()) + " to " + peer_name(s.successor());
    }
    case proto::Answer::kOutcome: {
        const auto& o = a.outcome();
        return head + "outcome op " + op_name(o.op()) +
               (o.commit() ? " commit" : " abort, " + result_text(o.result()) + quoted(o.reason())) +
               view_text(o.view());
    }
    case proto::Answer::kSync: {
        const auto& s = a.sync();
        return head + "sync " + op_name(s.sync()) +
               (s.final() ? " outcome " + result_text(s.result()) + quoted(s.reason())
                          : std::string(s.again() ? " again" : " plan")) +
               " revision " + number(s.revision()) + (s.receives() ? " receives" : "") +
               (s.receives_unequal() ? " receives what may differ" : "");
    }
    default: return head + "of unknown kind";
    }
}

std::string text_of(const proto::MasterMessage& m) {
    switch (m.kind_case()) {
    case proto::MasterMessage::kWelcome:
        return "welcome, incarnation " + number(m.welcome().incarnation()) +
               (m.welcome().member() ? ", seat resumed" : "");
    case proto::MasterMessage::kRefusal: return refusal_text(m.refusal());
    case proto::MasterMessage::kPlan: {
        std::string text = "plan: dial";
        for (const auto& target : m.plan().targets()) text += " " + peer_name(target.peer());
        return text + (m.plan().targets().empty() ? " nobody" : "") + (m.plan().more() ? ", more follows" : "");
    }
    case proto::MasterMessage::kAnswer: return answer_text(m.answer());
    case proto::MasterMessage::kNotice:
        return (m.notice().warn() ? "notice (warning)" : "notice") + quoted(m.notice().text());
    case proto::MasterMessage::kHeartbeat: return "heartbeat";
    case proto::MasterMessage::kTest:
        return "test " + op_name(m.test().test()) + " to " + peer_name(m.test().target().peer());
    case proto::MasterMessage::kSyncHolders: {
        std::string text = "sync_holders sync " + op_name(m.sync_holders().sync());
        for (const auto& holder : m.sync_holders().holders()) text += " " + peer_name(holder.peer());
        return text;
    }
    case proto::MasterMessage::kPageRequest:
        return "page_request serial " + number(m.page_request().serial()) + " first " +
               number(m.page_request().first());
    default: return "unknown message";
    }
}

std::string text_of(const proto::LinkMessage& m) {
    const auto part = [](const proto::SyncPart& p) {
        const std::string sync = " sync " + op_name(p.sync());
        if (p.kind() == proto::SyncPart::ENTRY_LIST) return sync + " of entries first " + number(p.index());
        const char* what = p.kind() == proto::SyncPart::HASHES ? " first " : " chunk ";
        return sync + " entry " + number(p.entry()) + what + number(p.index());
    };
    switch (m.kind_case()) {
    case proto::LinkMessage::kHello:
        return "hello from " + peer_name(m.hello().from()) + " to " + peer_name(m.hello().to()) + " stripe " +
               number(m.hello().stripe()) + (m.hello().test() != 0 ? " of test " + op_name(m.hello().test()) : "");
    case proto::LinkMessage::kWelcome: return "welcome from " + peer_name(m.welcome().from());
    case proto::LinkMessage::kRefusal: return refusal_text(m.refusal());
    case proto::LinkMessage::kHeartbeat: return m.heartbeat() ? "heartbeat starved" : "heartbeat";
    case proto::LinkMessage::kPartRequest:
        return (m.part_request().kind() == proto::SyncPart::CHUNK ? "chunk_request" : "hash_request") +
               part(m.part_request());
    case proto::LinkMessage::kHashes:
        return "hashes sync " + op_name(m.hashes().sync()) +
               (m.hashes().of_entries() ? " of entries" : " entry " + number(m.hashes().entry())) + " first " +
               number(m.hashes().first()) + ", " + number(static_cast<std::uint64_t>(m.hashes().words_size()) / 2);
    case proto::LinkMessage::kPartDecline: return "part_decline" + part(m.part_decline());
    case proto::LinkMessage::kGoodbye: return "goodbye";
    case proto::LinkMessage::kTestResult:
        return "test_result test " + op_name(m.test_result().test()) + ": " + number(m.test_result().bytes()) +
               " bytes in " + number(m.test_result().nanoseconds()) + " ns";
    default: return "unknown message";
    }
}

template <class Message>
std::string parsed_text(std::span<const std::uint8_t> body) {
    Message message;
    return decode(body, message) ? text_of(message) : "not a message";
}

}  // namespace

Talk talk_between(bool from_master, bool to_master) {
    if (to_master) return Talk::peer_to_master;
    return from_master ? Talk::master_to_peer : Talk::peer_to_peer;
}

void damage_hashes(std::string& body) {
    proto::LinkMessage message;
    if (!message.ParseFromString(body) || message.hashes().words_size() == 0) return;
    message.mutable_hashes()->set_words(0, message.hashes().words(0) ^ 1);
    body = message.SerializeAsString();
}

void fill_text(Talk talk, std::string& body, std::size_t bytes) {
    const auto fill = [&](auto message, const auto& text_of) {
        std::string* text = message.ParseFromString(body) ? text_of(message) : nullptr;
        // Up to 12 bytes for the length prefixes of the text and of the messages around it.
        if (text == nullptr || bytes < body.size() + 12) return;
        text->resize(text->size() + bytes - body.size() - 12, '~');
        body = message.SerializeAsString();
    };
    switch (talk) {
    case Talk::peer_to_master:
        return fill(proto::PeerMessage(), [](proto::PeerMessage& m) -> std::string* {
            if (m.has_edge()) return m.mutable_edge()->mutable_reason();
            const bool ends = m.vote().kind() == proto::VOTE_END || m.vote().kind() == proto::VOTE_SYNC_END;
            return m.has_vote() && ends && !m.vote().ok() ? m.mutable_vote()->mutable_reason() : nullptr;
        });
    case Talk::master_to_peer:
        return fill(proto::MasterMessage(), [](proto::MasterMessage& m) -> std::string* {
            if (m.has_refusal()) return m.mutable_refusal()->mutable_text();
            return m.has_notice() ? m.mutable_notice()->mutable_text() : nullptr;
        });
    default:
        return fill(proto::LinkMessage(), [](proto::LinkMessage& m) -> std::string* {
            return m.has_refusal() ? m.mutable_refusal()->mutable_text() : nullptr;
        });
    }
}

std::string control_text(Talk talk, std::span<const std::uint8_t> body) {
    switch (talk) {
    case Talk::peer_to_master: return parsed_text<proto::PeerMessage>(body);
    case Talk::master_to_peer: return parsed_text<proto::MasterMessage>(body);
    default: return parsed_text<proto::LinkMessage>(body);
    }
}

std::optional<std::string> introduced_name(Talk talk, std::span<const std::uint8_t> body) {
    proto::PeerMessage message;
    if (talk != Talk::peer_to_master || !decode(body, message) || !message.has_hello()) return std::nullopt;
    return peer_name(message.hello().uuid());
}

}  // namespace pccl::sim
