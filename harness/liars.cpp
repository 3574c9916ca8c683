#include "harness/liars.hpp"

#include "core/numeric/types.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

constexpr std::size_t said_max = 12;
constexpr std::size_t names_max = 16;

std::string noise(sim::Draw& draw, std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(draw.bits());
    return text;
}

// Another number: near the true one, near a limit, or any.
std::uint64_t other_number(sim::Draw& draw, std::uint64_t truth) {
    switch (draw.below(6)) {
    case 0: return 0;
    case 1: return truth + 1;
    case 2: return truth == 0 ? 1 : truth - 1;
    case 3: return ~std::uint64_t{0} - draw.below(3);
    case 4: return truth ^ std::uint64_t{1} << draw.below(64);
    default: return draw.bits() >> draw.below(64);
    }
}
std::uint32_t other_number32(sim::Draw& draw, std::uint32_t truth) {
    return static_cast<std::uint32_t>(other_number(draw, truth));
}

void other_hash(sim::Draw& draw, proto::Hash& hash) {
    hash.set_low(other_number(draw, hash.low()));
    if (draw.chance(500'000)) hash.set_high(draw.bits());
}

}  // namespace

void Liars::begin(std::uint32_t node, std::uint32_t about, std::uint32_t per_mille) {
    Liar& liar = liars_[node];
    lied_.insert(node);
    about &= lie_about_all | lie_stalls;
    liar.about = about != 0 ? about : lie_about_all;
    if ((about & lie_stalls) != 0) liar.declines = draw_.chance(500'000);
    liar.per_million = std::clamp(per_mille, 1u, 1'000u) * 1'000;
}

std::string Liars::other_name(Liar& liar) {
    if (liar.names.empty() || draw_.chance(100'000)) return noise(draw_, draw_.chance(500'000) ? 16 : 7);
    auto name = liar.names.begin();
    std::advance(name, static_cast<std::ptrdiff_t>(draw_.below(liar.names.size())));
    return *name;
}

void Liars::garble(std::string& body) {
    if (body.empty()) return;
    char& c = body[draw_.below(body.size())];
    c = draw_.chance(500'000) ? static_cast<char>(c ^ 1 << draw_.below(8)) : static_cast<char>(draw_.bits());
    if (draw_.chance(100'000)) body.resize(draw_.below(body.size() + 1));
}

bool Liars::false_vote(Liar& liar, std::uint32_t node, proto::Vote& vote) {
    if (vote.kind() == proto::VOTE_END || vote.kind() == proto::VOTE_SYNC_END) {
        if (!now_and(liar, lie_results)) return false;
        switch (draw_.below(5)) {
        case 0: vote.set_digest(draw_.bits()); break;
        case 1: vote.set_ok(!vote.ok()); break;
        case 2: vote.set_id(other_number(draw_, vote.id())); break;
        case 3:
            vote.set_ok(false);
            vote.set_stuck(other_name(liar));
            break;
        default: vote.set_refused(!vote.refused());
        }
        return true;
    }
    if (!now_and(liar, lie_votes)) return false;
    proto::Shape& shape = *vote.mutable_shape();
    switch (draw_.below(vote.kind() == proto::VOTE_SYNC ? 6 : 17)) {
    case 0: vote.set_revision(other_number(draw_, vote.revision())); break;
    case 1: vote.set_strategy(other_number32(draw_, vote.strategy())); break;
    case 2: other_hash(draw_, *vote.mutable_schema()); break;
    case 3:
        vote.set_serial(other_number(draw_, vote.serial()));
        false_bytes_.push_back({node, world_.now()});  // its peer may take the start for one of another call
        break;
    case 4: other_hash(draw_, *vote.mutable_content()); break;
    case 5: vote.set_entries(other_number32(draw_, vote.entries())); break;
    case 6: shape.set_count(other_number(draw_, shape.count())); break;
    case 7: shape.set_type(other_number32(draw_, shape.type())); break;
    case 8: shape.set_slice_bytes(other_number32(draw_, shape.slice_bytes())); break;
    case 9: vote.set_window(other_number32(draw_, vote.window())); break;
    case 10: vote.set_batch(other_number(draw_, vote.batch())); break;
    case 11: shape.set_collective(other_number32(draw_, shape.collective())); break;
    case 12:
        vote.set_id(other_number(draw_, vote.id()));
        false_bytes_.push_back({node, world_.now()});  // the input of a call with another tag
        break;
    case 13: {
        // As many as fit a vote, or a few.
        const std::uint64_t most = draw_.chance(500'000) ? 4'000 : 10;
        vote.set_world(static_cast<std::uint32_t>(1 + draw_.below(most)));
        vote.clear_counts();
        for (std::uint32_t i = 0; i < vote.world(); ++i) vote.add_counts(draw_.below(3));
        false_bytes_.push_back({node, world_.now()});
        break;
    }
    case 14: vote.set_room(other_number32(draw_, vote.room())); break;
    case 15: shape.set_slice_bytes(0); break;
    default:
        if (vote.input().empty() || draw_.chance(300'000))
            vote.set_input(noise(draw_, draw_.below(64)));
        else
            vote.mutable_input()->front() ^= 1;
        vote.set_whole(true);
        false_bytes_.push_back({node, world_.now()});
    }
    return true;
}

void Liars::false_hello(Liar& liar, proto::Hello& hello) {
    switch (draw_.below(8)) {
    case 0: hello.set_concurrent_ops(other_number32(draw_, hello.concurrent_ops())); break;
    case 1: hello.set_control_bytes_max(other_number32(draw_, hello.control_bytes_max())); break;
    case 2: hello.set_newcomer_links(other_number32(draw_, hello.newcomer_links())); break;
    case 3: hello.set_seen(other_number(draw_, hello.seen())); break;
    case 4: hello.set_seen_chain(draw_.bits()); break;
    case 5: hello.set_generation(other_number(draw_, hello.generation())); break;
    case 6: hello.set_uuid(other_name(liar)); break;
    default: hello.set_token(draw_.bits());
    }
}

// False: nothing is sent.
bool Liars::to_master(Liar& liar, std::uint32_t node, std::string& body, std::vector<std::string>& more) {
    proto::PeerMessage m;
    if (!m.ParseFromString(body)) return true;
    bool changed = false;
    switch (m.kind_case()) {
    case proto::PeerMessage::kVote: {
        proto::Vote& vote = *m.mutable_vote();
        liar.serial = std::max<std::uint64_t>(liar.serial, vote.serial());
        if (vote.kind() == proto::VOTE_END && now_and(liar, lie_stalls)) return false;
        if (now_and(liar, lie_silence)) return false;
        if (now_and(liar, lie_votes_anew)) {
            proto::PeerMessage another = m;
            another.mutable_vote()->set_serial(liar.serial + 1 + draw_.below(3));
            if (draw_.chance(500'000)) false_vote(liar, node, *another.mutable_vote());
            if (draw_.chance(300'000)) another.mutable_vote()->set_kind(static_cast<proto::VoteKind>(draw_.below(7)));
            false_bytes_.push_back({node, world_.now()});
            more.push_back(another.SerializeAsString());
        }
        changed = false_vote(liar, node, vote);
        break;
    }
    case proto::PeerMessage::kEdge: {
        proto::EdgeReport& edge = *m.mutable_edge();
        if (liar.names.size() < names_max) liar.names.insert(edge.peer());
        if (!now_and(liar, lie_edges)) break;
        changed = true;
        switch (draw_.below(4)) {
        case 0: edge.set_up(!edge.up()); break;
        case 1: edge.set_peer(other_name(liar)); break;
        case 2: edge.set_answered(!edge.answered()); break;
        default: edge.set_outgoing(!edge.outgoing());
        }
        break;
    }
    case proto::PeerMessage::kHeartbeat:
        if (now_and(liar, lie_works)) {
            changed = true;
            m.set_works(true);
        }
        if (now_and(liar, lie_heard)) {
            changed = true;
            switch (draw_.below(3)) {
            case 0: m.set_heartbeat(other_number(draw_, m.heartbeat())); break;
            case 1: m.set_heard(other_number(draw_, m.heard())); break;
            default: m.set_works(!m.works());
            }
        }
        if (now_and(liar, lie_edges) && !liar.names.empty()) {
            proto::PeerMessage report;
            report.mutable_edge()->set_peer(other_name(liar));
            report.mutable_edge()->set_outgoing(draw_.chance(500'000));
            report.mutable_edge()->set_up(draw_.chance(300'000));
            more.push_back(report.SerializeAsString());
        }
        break;
    case proto::PeerMessage::kHello:
        if (!now_and(liar, lie_hello)) break;
        changed = true;
        false_hello(liar, *m.mutable_hello());
        break;
    case proto::PeerMessage::kPage:
        if (now_and(liar, lie_silence)) return false;
        if (!now_and(liar, lie_votes)) break;
        changed = true;
        m.mutable_page()->set_first(other_number32(draw_, m.page().first()));
        if (m.page().entries_size() != 0) m.mutable_page()->mutable_entries(0)->set_name(noise(draw_, draw_.below(40)));
        break;
    case proto::PeerMessage::kMeasured:
        if (now_and(liar, lie_silence)) return false;
        if (!now_and(liar, lie_edges)) break;
        changed = true;
        m.mutable_measured()->set_bytes(other_number(draw_, m.measured().bytes()));
        m.mutable_measured()->set_nanoseconds(other_number(draw_, m.measured().nanoseconds()));
        break;
    case proto::PeerMessage::kHoldersRequest:
        if (now_and(liar, lie_silence)) return false;
        break;
    default: break;
    }
    if (changed) body = m.SerializeAsString();
    return true;
}

// A slice that has landed was declined, or a part of it has come.
void Liars::stall(Liar& liar, SendFlow& flow) {
    if (flow.word.kind != wire::FlowKind::ack || !now_and(liar, lie_stalls)) return;
    flow.word.kind = liar.declines ? wire::FlowKind::decline : wire::FlowKind::moving;
    flow.word.value = 1;
    if (!liar.declines) liar.moves = flow;
}

bool Liars::to_peer(Liar& liar, std::string& body, std::vector<std::string>& more) {
    proto::LinkMessage m;
    if (!m.ParseFromString(body)) return true;
    bool changed = false;
    switch (m.kind_case()) {
    case proto::LinkMessage::kHello: {
        if (!now_and(liar, lie_hello)) break;
        changed = true;
        proto::LinkHello& hello = *m.mutable_hello();
        switch (draw_.below(5)) {
        case 0: hello.set_from(other_name(liar)); break;
        case 1: hello.set_to(other_name(liar)); break;
        case 2: hello.set_stripe(other_number32(draw_, hello.stripe())); break;
        case 3: hello.set_control_bytes_max(other_number32(draw_, hello.control_bytes_max())); break;
        default:
            hello.set_test(other_number(draw_, hello.test()));
            hello.set_test_bytes(other_number(draw_, hello.test_bytes()));
        }
        break;
    }
    case proto::LinkMessage::kWelcome:
        if (!now_and(liar, lie_hello)) break;
        changed = true;
        if (draw_.chance(500'000))
            m.mutable_welcome()->set_from(other_name(liar));
        else
            m.mutable_welcome()->set_control_bytes_max(other_number32(draw_, m.welcome().control_bytes_max()));
        break;
    case proto::LinkMessage::kHeartbeat:
        if (!now_and(liar, lie_links)) break;
        changed = true;
        switch (draw_.below(3)) {
        case 0: m.set_heartbeat(true); break;
        case 1: m.set_started(other_number(draw_, m.started())); break;
        default: m.set_ahead_from(other_number(draw_, m.ahead_from()));
        }
        break;
    case proto::LinkMessage::kPartRequest: {
        if (now_and(liar, lie_silence)) return false;
        if (!now_and(liar, lie_links)) break;
        changed = true;
        proto::SyncPart& part = *m.mutable_part_request();
        switch (draw_.below(4)) {
        case 0: part.set_sync(other_number(draw_, part.sync())); break;
        case 1: part.set_entry(other_number32(draw_, part.entry())); break;
        case 2: part.set_index(other_number32(draw_, part.index())); break;
        default: part.set_most(other_number32(draw_, part.most()));
        }
        if (draw_.chance(200'000)) more.insert(more.end(), 1 + draw_.below(20), m.SerializeAsString());
        break;
    }
    case proto::LinkMessage::kHashes: {
        if (now_and(liar, lie_silence)) return false;
        if (!now_and(liar, lie_links)) break;
        changed = true;
        proto::HashPage& page = *m.mutable_hashes();
        if (draw_.chance(300'000)) {
            // It serves nothing.
            proto::SyncPart part;
            part.set_sync(page.sync());
            part.set_entry(page.entry());
            part.set_index(page.first());
            part.set_kind(page.of_entries() ? proto::SyncPart::ENTRY_LIST : proto::SyncPart::HASHES);
            *m.mutable_part_decline() = part;
        } else if (page.words_size() != 0 && draw_.chance(700'000)) {
            page.set_words(static_cast<int>(draw_.below(static_cast<std::uint64_t>(page.words_size()))), draw_.bits());
        } else {
            page.set_first(other_number32(draw_, page.first()));
        }
        break;
    }
    case proto::LinkMessage::kTestResult:
        if (now_and(liar, lie_silence)) return false;
        if (!now_and(liar, lie_links)) break;
        changed = true;
        m.mutable_test_result()->set_bytes(other_number(draw_, m.test_result().bytes()));
        break;
    default: break;
    }
    if (changed) body = m.SerializeAsString();
    return true;
}

// `meant`: the message of its machine from which the other one was made.
void Liars::note_false_vote(std::uint32_t node, const std::string& meant, const std::string& said) {
    proto::PeerMessage truth, lie;
    if (said == meant || !lie.ParseFromString(said) || lie.vote().kind() != proto::VOTE_SYNC) return;
    const proto::Vote& vote = lie.vote();
    const bool same = truth.ParseFromString(meant) && truth.vote().kind() == proto::VOTE_SYNC &&
                      truth.vote().revision() == vote.revision() && truth.vote().strategy() == vote.strategy();
    if ((same && truth.vote().serial() == vote.serial()) || vote.strategy() >= sync_strategy_count) return;
    false_votes_.push_back({node, world_.now(), vote.revision(), static_cast<SyncStrategy>(vote.strategy()), same});
}

bool Liars::forge(std::uint32_t node, std::uint32_t, sim::Talk talk, Effect& effect, Effects& more) {
    Liar& liar = liars_.at(node);
    if (auto* control = std::get_if<SendControl>(&effect)) {
        const std::string meant = control->body;
        auto& said = liar.said[static_cast<std::size_t>(talk)];
        said.push_back(control->body);
        if (said.size() > said_max) said.pop_front();
        std::vector<std::string> bodies;
        const bool goes = talk == sim::Talk::peer_to_master ? to_master(liar, node, control->body, bodies)
                                                            : to_peer(liar, control->body, bodies);
        if (goes && now_and(liar, lie_garble)) {
            garble(control->body);
            false_bytes_.push_back({node, world_.now()});
        }
        // A vote of before may carry an input of before.
        if (now_and(liar, lie_replay)) {
            bodies.push_back(said[draw_.below(said.size())]);
            false_bytes_.push_back({node, world_.now()});
        }
        if (talk == sim::Talk::peer_to_master) {
            if (goes) note_false_vote(node, meant, control->body);
            for (const std::string& body : bodies) note_false_vote(node, meant, body);
        }
        for (std::string& body : bodies) more.push_back(SendControl{control->link, std::move(body)});
        if (liar.moves && liar.moves->link == control->link) more.push_back(*liar.moves);
        return goes;
    }
    if (auto* flow = std::get_if<SendFlow>(&effect)) {
        wire::FlowWord& word = flow->word;
        const wire::FlowWord before = liar.word;
        liar.word = word;
        if (now_and(liar, lie_silence)) return false;
        if (now_and(liar, lie_replay)) more.push_back(SendFlow{flow->link, before});
        stall(liar, *flow);
        if (!now_and(liar, lie_flow)) return true;
        switch (draw_.below(5)) {
        case 0: word.op = other_number(draw_, word.op); break;
        case 1: word.slice = other_number32(draw_, word.slice); break;
        case 2: word.value = other_number32(draw_, word.value); break;
        case 3: word.kind = static_cast<wire::FlowKind>(1 + draw_.below(5)); break;
        default: word.phase = static_cast<std::uint8_t>(draw_.below(2));
        }
        return true;
    }
    auto& payload = std::get<SendPayload>(effect);
    const wire::BulkHeader before = liar.header;
    liar.header = payload.header;
    if (!now_and(liar, lie_headers)) return true;
    wire::BulkHeader& header = payload.header;
    switch (draw_.below(5)) {
    case 0: header.op = draw_.chance(500'000) && before.op != 0 ? before.op : other_number(draw_, header.op); break;
    case 1: header.slice = other_number32(draw_, header.slice); break;
    case 2: header.entry = other_number(draw_, header.entry); break;
    case 3: header.phase = static_cast<std::uint16_t>(draw_.below(4)); break;
    default: header.slice = before.slice;
    }
    false_bytes_.push_back({node, world_.now()});
    return true;
}

bool Liars::forge_payload(std::uint32_t node, const wire::BulkHeader&, std::span<std::uint8_t> payload) {
    Liar& liar = liars_.at(node);
    if (!now_and(liar, lie_payload)) return false;
    payload[draw_.below(payload.size())] ^= static_cast<std::uint8_t>(1 + draw_.below(255));
    false_bytes_.push_back({node, world_.now()});
    return draw_.chance(700'000);
}

}  // namespace pccl::harness
