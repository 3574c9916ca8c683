// Control messages as text: the name of the protobuf message, and the fields that matter in a trace.
#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-sim/describe.hpp"

namespace pccl::sim {
namespace {

using namespace core;

std::string op_name(std::uint64_t op) { return formatted("{}.{}", op >> 32, op & 0xffffffffu); }
std::string peer_name(const std::string& bytes) { return bytes.empty() ? "nobody" : short_name(uuid_of(bytes)); }

std::string quoted(const std::string& reason) { return reason.empty() ? "" : formatted(" \"{}\"", reason); }
std::string quoted(const proto::Cause& cause) { return cause.kind() == 0 ? "" : quoted(to_text(cause_of(cause))); }

std::string result_text(std::uint32_t result) { return to_text(result_of(result)); }

std::string view_text(const proto::View& view) {
    return formatted(", epoch {} group of {}, {} groups, {} members", view.epoch(), view.group_world(), view.groups(),
                     view.global_world());
}

std::string vote_text(const proto::Vote& v) {
    const std::string serial = formatted(", serial {}", v.serial());
    const std::string ended = v.ok() ? formatted(" ok, digest {}", v.digest()) : " not ok" + quoted(v.cause());
    switch (v.kind()) {
    case proto::VOTE_UPDATE_TOPOLOGY: return "vote update_topology" + serial;
    case proto::VOTE_PEERS_PENDING: return "vote peers_pending" + serial;
    case proto::VOTE_OPTIMIZE_TOPOLOGY: return "vote optimize_topology" + serial;
    case proto::VOTE_START:
        return formatted("vote start tag {} count {} type {} op {}{}", v.id(), v.shape().count(), v.shape().type(),
                         v.shape().op(), serial);
    case proto::VOTE_END: return formatted("vote end op {}{}{}", op_name(v.id()), ended, serial);
    case proto::VOTE_SYNC:
        return formatted("vote sync revision {} entries {} strategy {}{}", v.revision(), v.entries(), v.strategy(),
                         serial);
    case proto::VOTE_SYNC_END: return formatted("vote sync_end sync {}{}{}", op_name(v.id()), ended, serial);
    default: return "vote of unknown kind" + serial;
    }
}

std::string refusal_text(const proto::Refusal& r) {
    static constexpr const char* codes[] = {"other",     "version",  "removed", "superseded",
                                            "other_run", "stopping", "full"};
    const auto code = static_cast<unsigned>(r.code());
    return formatted("refusal {}{}", code < std::size(codes) ? codes[code] : "?", quoted(r.cause()));
}

std::string text_of(const proto::PeerMessage& m) {
    switch (m.kind_case()) {
    case proto::PeerMessage::kHello: {
        const auto& h = m.hello();
        const std::string gang =
            h.has_gang() ? formatted(" place {} of {} of gang {}", h.gang().place(), h.gang().size(), h.gang().name())
                         : std::string();
        return formatted("hello {} group {} generation {} seen {}{}{}", peer_name(h.uuid()), h.group(), h.generation(),
                         h.seen(), h.run_id().empty() ? " newcomer" : " resumes", gang);
    }
    case proto::PeerMessage::kVote: return vote_text(m.vote());
    case proto::PeerMessage::kEdge: {
        const auto& e = m.edge();
        return formatted("edge {} {}{}{}{}{}", e.outgoing() ? "to" : "from", peer_name(e.peer()),
                         e.up() ? " up" : " down", e.unwanted() ? " unwanted" : "", e.answered() ? " answered" : "",
                         quoted(e.reason()));
    }
    case proto::PeerMessage::kPage:
        return formatted("page of keys, first {}, {} entries", m.page().first(), m.page().entries_size());
    case proto::PeerMessage::kHeartbeat: return formatted("heartbeat seen {}, heard {}", m.heartbeat(), m.heard());
    case proto::PeerMessage::kLeave: return "leave";
    case proto::PeerMessage::kResumed: return "resumed";
    case proto::PeerMessage::kMeasured:
        return formatted("measured test {}: {} bytes in {} ns", op_name(m.measured().test()), m.measured().bytes(),
                         m.measured().nanoseconds());
    case proto::PeerMessage::kHoldersRequest:
        return formatted("holders_request sync {}{}", op_name(m.holders_request()),
                         m.recalled() == 0 ? std::string() : formatted(", lacks a part, recall {}", m.recalled()));
    default: return "unknown message";
    }
}

std::string answer_text(const proto::Answer& a) {
    const std::string head = formatted("answer {} ", a.index());
    const std::string view = view_text(a.view());
    const std::string failure = result_text(a.result()) + quoted(a.cause());
    switch (a.kind_case()) {
    case proto::Answer::kTopology: return head + (a.serial() == 0 ? "admitted" : "topology") + view;
    case proto::Answer::kPending: return formatted("{}pending {}{}", head, a.pending() ? "yes" : "no", view);
    case proto::Answer::kOptimize: return formatted("{}optimize {}{}", head, failure, view);
    case proto::Answer::kStart: {
        const auto& s = a.start();
        if (s.op() == 0) return formatted("{}start refused, {}{}", head, failure, view);
        return formatted("{}start op {} position {} of {}, from {} to {}", head, op_name(s.op()), s.position(),
                         s.world(), peer_name(s.predecessor()), peer_name(s.successor()));
    }
    case proto::Answer::kOutcome: {
        const auto& o = a.outcome();
        return formatted("{}outcome op {}{}{}", head, op_name(o.op()), o.commit() ? " commit" : " abort, " + failure,
                         view);
    }
    case proto::Answer::kSync: {
        const auto& s = a.sync();
        return formatted("{}sync {}{} revision {}{}{}", head, op_name(s.sync()),
                         s.final() ? " outcome " + failure : std::string(s.again() ? " again" : " plan"), s.revision(),
                         s.receives() ? " receives" : "", s.receives_unequal() ? " receives what may differ" : "");
    }
    default: return head + "of unknown kind";
    }
}

std::string text_of(const proto::MasterMessage& m) {
    switch (m.kind_case()) {
    case proto::MasterMessage::kWelcome:
        return formatted("welcome, incarnation {}{}", m.welcome().incarnation(),
                         m.welcome().member() ? ", seat resumed" : "");
    case proto::MasterMessage::kRefusal: return refusal_text(m.refusal());
    case proto::MasterMessage::kPlan: {
        std::string text = "plan: dial";
        for (const auto& target : m.plan().targets()) text += " " + peer_name(target.peer());
        if (m.plan().targets().empty()) text += " nobody";
        for (std::size_t i = 0; const auto& offer : m.plan().offers())
            text += (i++ == 0 ? ", offer to " : " ") + peer_name(offer.peer());
        return formatted("{}{}", text, m.plan().more() ? ", more follows" : "");
    }
    case proto::MasterMessage::kAnswer: return answer_text(m.answer());
    case proto::MasterMessage::kNotice:
        return (m.notice().warn() ? "notice (warning)" : "notice") + quoted(m.notice().text());
    case proto::MasterMessage::kHeartbeat: return "heartbeat";
    case proto::MasterMessage::kTest:
        return formatted("test {} to {}", op_name(m.test().test()), peer_name(m.test().target().peer()));
    case proto::MasterMessage::kSyncHolders: {
        std::string text = "sync_holders sync " + op_name(m.sync_holders().sync());
        for (const auto& holder : m.sync_holders().holders()) text += " " + peer_name(holder.peer());
        if (m.sync_holders().recall() != 0) text += formatted(" recall {}", m.sync_holders().recall());
        return text;
    }
    case proto::MasterMessage::kPageRequest:
        return formatted("page_request serial {} first {}", m.page_request().serial(), m.page_request().first());
    case proto::MasterMessage::kRevoked: return "revoked " + peer_name(m.revoked());
    case proto::MasterMessage::kUnfinished: return "unfinished op " + op_name(m.unfinished());
    default: return "unknown message";
    }
}

std::string text_of(const proto::LinkMessage& m) {
    const auto part = [](const proto::SyncPart& p) {
        const std::string sync = " sync " + op_name(p.sync());
        if (p.kind() == proto::SyncPart::ENTRY_LIST) return formatted("{} of entries first {}", sync, p.index());
        const char* what = p.kind() == proto::SyncPart::HASHES ? " first " : " chunk ";
        return formatted("{} entry {}{}{}", sync, p.entry(), what, p.index());
    };
    switch (m.kind_case()) {
    case proto::LinkMessage::kHello:
        return formatted("hello from {} to {} stripe {}{}", peer_name(m.hello().from()), peer_name(m.hello().to()),
                         m.hello().stripe(), m.hello().test() != 0 ? " of test " + op_name(m.hello().test()) : "");
    case proto::LinkMessage::kWelcome: return "welcome from " + peer_name(m.welcome().from());
    case proto::LinkMessage::kRefusal: return refusal_text(m.refusal());
    case proto::LinkMessage::kHeartbeat: return m.heartbeat() ? "heartbeat starved" : "heartbeat";
    case proto::LinkMessage::kPartRequest:
        return (m.part_request().kind() == proto::SyncPart::CHUNK ? "chunk_request" : "hash_request") +
               part(m.part_request());
    case proto::LinkMessage::kHashes:
        return formatted("hashes sync {}{} first {}, {}", op_name(m.hashes().sync()),
                         m.hashes().of_entries() ? " of entries" : formatted(" entry {}", m.hashes().entry()),
                         m.hashes().first(), m.hashes().words_size() / 2);
    case proto::LinkMessage::kPartDecline: return "part_decline" + part(m.part_decline());
    case proto::LinkMessage::kGoodbye: return "goodbye";
    case proto::LinkMessage::kTestResult:
        if (m.test_result().running())
            return formatted("test_result test {}: {} bytes so far", op_name(m.test_result().test()),
                             m.test_result().bytes());
        return formatted("test_result test {}: {} bytes in {} ns", op_name(m.test_result().test()),
                         m.test_result().bytes(), m.test_result().nanoseconds());
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

// The first text in a cause and those behind it; null: there is none.
static std::string* text_in(proto::Cause& cause) {
    for (proto::Cause* c = &cause;; c = c->mutable_because()) {
        if (c->texts_size() != 0) return c->mutable_texts(0);
        if (!c->has_because()) return nullptr;
    }
}

void fill_text(Talk talk, std::string& body, std::size_t bytes) {
    const auto fill = [&](auto message, const auto& text_of) {
        std::string* text = message.ParseFromString(body) ? text_of(message) : nullptr;
        // Length prefixes of the text and of the messages around it may grow.
        constexpr std::size_t prefixes = 32;
        if (text == nullptr || bytes < body.size() + prefixes) return;
        text->resize(text->size() + bytes - body.size() - prefixes, '~');
        body = message.SerializeAsString();
    };
    switch (talk) {
    case Talk::peer_to_master:
        return fill(proto::PeerMessage(), [](proto::PeerMessage& m) -> std::string* {
            if (m.has_edge()) return m.mutable_edge()->mutable_reason();
            const bool ends = m.vote().kind() == proto::VOTE_END || m.vote().kind() == proto::VOTE_SYNC_END;
            return m.has_vote() && ends && !m.vote().ok() ? text_in(*m.mutable_vote()->mutable_cause()) : nullptr;
        });
    case Talk::master_to_peer:
        return fill(proto::MasterMessage(), [](proto::MasterMessage& m) -> std::string* {
            if (m.has_refusal()) return text_in(*m.mutable_refusal()->mutable_cause());
            return m.has_notice() ? m.mutable_notice()->mutable_text() : nullptr;
        });
    default:
        return fill(proto::LinkMessage(), [](proto::LinkMessage& m) -> std::string* {
            return m.has_refusal() ? text_in(*m.mutable_refusal()->mutable_cause()) : nullptr;
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
