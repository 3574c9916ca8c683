#include "harness/hostile.hpp"

#include "core/numeric/kernels.hpp"
#include "core/wire/control.pb.h"
#include "core/wire/convert.hpp"
#include "core/wire/frame.hpp"
#include "net-sim/network.hpp"

#include <string>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

std::string noise(Draw& draw, std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(draw.bits());
    return text;
}

// A number that may break a check: small, close to the largest, like the id of an operation, or of any size.
std::uint64_t number(Draw& draw) {
    switch (draw.below(4)) {
    case 0: return draw.below(8);
    case 1: return ~std::uint64_t{0} - draw.below(3);
    case 2: return (draw.below(4) << 32) | draw.below(30);  // an id: incarnation and counter
    default: return draw.bits() >> draw.below(64);
    }
}
std::uint32_t number32(Draw& draw) { return static_cast<std::uint32_t>(number(draw)); }

// A cause that may have any kind, and parameters that may not fit it.
void fill_cause(sim::Draw& draw, proto::Cause& cause, int depth = 0) {
    cause.set_kind(static_cast<std::uint32_t>(draw.below(cause_kinds + 2)));
    for (std::uint64_t i = draw.below(3); i != 0; --i) cause.add_numbers(number(draw));
    for (std::uint64_t i = draw.below(3); i != 0; --i) cause.add_peers(noise(draw, draw.chance(800'000) ? 16 : 5));
    for (std::uint64_t i = draw.below(3); i != 0; --i) cause.add_texts(noise(draw, draw.below(8'000)));
    if (depth < 9 && draw.chance(300'000)) fill_cause(draw, *cause.mutable_because(), depth + 1);
}

void fill_hash(Draw& draw, proto::Hash* hash) {
    hash->set_low(draw.bits());
    hash->set_high(draw.bits());
}

// `sound`: the master can accept the hello. Otherwise some fields may be wrong. Draw::chance() takes parts per million.
void fill_hello(Draw& draw, std::uint32_t own_node, proto::Hello* hello, bool sound) {
    const bool lies = !sound && draw.chance(600'000);
    hello->set_protocol_version(lies && draw.chance(300'000) ? number32(draw) : wire::protocol_version);
    hello->set_uuid(noise(draw, lies && draw.chance(300'000) ? draw.below(40) : 16));
    hello->set_token(draw.chance(250'000) ? 0 : draw.bits());
    hello->set_generation(1 + draw.below(3));
    hello->set_group(lies ? number32(draw) : draw.number(0, 2));
    hello->set_concurrent_ops(lies ? number32(draw) : draw.number(1, 16));
    hello->set_control_bytes_max(number32(draw));
    if (lies) {
        hello->set_run_id(noise(draw, draw.below(40)));
        hello->set_seen(number(draw));
    }
    auto* address = hello->mutable_advertised();
    const Endpoint own = sim::endpoint_of(own_node);
    address->set_port(lies ? number32(draw) : own.port);
    address->set_address(lies ? noise(draw, draw.below(20))
                              : std::string(reinterpret_cast<const char*>(own.address.data()), 4));
}

// The sender of a hello as the master's log names it. "?": the uuid is invalid, so no master accepts the hello.
std::string name_of(const proto::Hello& hello) {
    Uuid uuid;
    return read(hello.uuid(), uuid) ? short_name(uuid) : "?";
}

// A message that only a peer sends to the master. `newcomer` is set if it is a hello.
std::string peer_message(Draw& draw, std::uint32_t own_node, std::string& newcomer) {
    proto::PeerMessage m;
    switch (draw.below(8)) {
    case 0:
    case 1:
        fill_hello(draw, own_node, m.mutable_hello(), false);
        newcomer = name_of(m.hello());
        break;
    case 2:
    case 3: {
        auto* vote = m.mutable_vote();
        vote->set_kind(static_cast<proto::VoteKind>(draw.below(8)));
        vote->set_serial(number(draw));
        vote->set_seen(number(draw));
        vote->set_id(number(draw));
        vote->mutable_shape()->set_count(number(draw));
        vote->mutable_shape()->set_type(number32(draw));
        vote->mutable_shape()->set_op(number32(draw));
        vote->set_ok(draw.chance(500'000));
        vote->set_digest(draw.bits());
        vote->set_entries(number32(draw));
        vote->set_revision(number(draw));
        vote->mutable_shape()->set_slice_bytes(number32(draw));
        if (draw.chance(500'000)) fill_hash(draw, vote->mutable_content());
        if (draw.chance(500'000)) fill_cause(draw, *vote->mutable_cause());
        break;
    }
    case 4: {
        auto* edge = m.mutable_edge();
        edge->set_peer(noise(draw, draw.chance(700'000) ? 16 : draw.below(40)));
        edge->set_outgoing(draw.chance(500'000));
        edge->set_up(draw.chance(500'000));
        edge->set_reason(noise(draw, draw.below(300)));
        break;
    }
    case 5: {
        auto* page = m.mutable_page();
        page->set_serial(number(draw));
        page->set_first(number32(draw));
        for (std::uint64_t i = draw.below(6); i-- != 0;) {
            auto* entry = page->add_entries();
            entry->set_name(noise(draw, draw.below(2000)));
            entry->set_count(number(draw));
            entry->set_type(number32(draw));
        }
        break;
    }
    case 6: m.set_heartbeat(number(draw)); break;
    default:
        if (draw.chance(500'000)) {
            m.set_leave(true);
        } else {
            m.set_resumed(true);
        }
    }
    return m.SerializeAsString();
}

std::string master_message(Draw& draw) {
    proto::MasterMessage m;
    switch (draw.below(5)) {
    case 0: {
        auto* welcome = m.mutable_welcome();
        welcome->set_protocol_version(wire::protocol_version);
        welcome->set_run_id(noise(draw, 16));
        welcome->set_incarnation(number32(draw));
        welcome->set_peer_timeout_ms(number32(draw));
        break;
    }
    case 1: m.mutable_refusal()->set_code(static_cast<proto::RefusalCode>(draw.below(8))); break;
    case 2: {
        auto* outcome = m.mutable_answer()->mutable_outcome();
        m.mutable_answer()->set_index(number(draw));
        outcome->set_op(number(draw));
        outcome->set_commit(true);
        break;
    }
    case 3: m.mutable_notice()->set_text(noise(draw, draw.below(2000))); break;
    default: m.mutable_page_request()->set_serial(number(draw)); m.mutable_page_request()->set_first(number32(draw));
    }
    return m.SerializeAsString();
}

std::string link_message(Draw& draw) {
    proto::LinkMessage m;
    switch (draw.below(6)) {
    case 0:
    case 1: {
        auto* hello = m.mutable_hello();
        hello->set_protocol_version(draw.chance(800'000) ? wire::protocol_version : number32(draw));
        hello->set_run_id(noise(draw, 16));
        hello->set_from(noise(draw, 16));
        hello->set_to(noise(draw, draw.chance(800'000) ? 16 : draw.below(40)));
        hello->set_stripe(number32(draw));
        break;
    }
    case 2: m.mutable_welcome()->set_from(noise(draw, 16)); break;
    case 3:
        m.set_heartbeat(draw.chance(500'000));
        m.set_started(number(draw));
        break;
    case 4: {
        auto* request = m.mutable_part_request();
        request->set_sync(number(draw));
        request->set_entry(number32(draw));
        request->set_index(number32(draw));
        request->set_kind(static_cast<proto::SyncPart::Kind>(draw.below(4)));
        break;
    }
    default: {
        auto* decline = m.mutable_part_decline();
        decline->set_sync(number(draw));
        decline->set_entry(number32(draw));
        decline->set_index(number32(draw));
    }
    }
    return m.SerializeAsString();
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// A valid bulk frame with random payload.
void append_payload(Draw& draw, const wire::BulkHeader& header, std::string& out) {
    const auto head = wire::encode_bulk(header);
    out.append(reinterpret_cast<const char*>(head.data()), head.size());
    const std::string payload = noise(draw, header.length);
    out += payload;
    wire::Trailer trailer;
    trailer.checksum = numeric::checksum64(payload.data(), payload.size());
    const auto end = wire::encode_trailer(trailer);
    out.append(reinterpret_cast<const char*>(end.data()), end.size());
}

// A bulk frame whose header, checksum and mark may be wrong.
void append_bulk(Draw& draw, std::string& out) {
    wire::BulkHeader header;
    header.op = number(draw);
    header.slice = number32(draw);
    header.phase = static_cast<std::uint16_t>(draw.below(4));
    header.entry = number(draw);
    header.length = static_cast<std::uint32_t>(draw.chance(700'000) ? draw.below(600) : number(draw));
    const auto head = wire::encode_bulk(header);
    out.append(reinterpret_cast<const char*>(head.data()), head.size());
    if (header.length > 4096) return;  // a long frame ends with its header
    const std::string payload = noise(draw, header.length);
    out += payload;
    wire::Trailer trailer;
    trailer.abandoned = draw.chance(300'000);
    trailer.checksum = draw.chance(700'000) ? numeric::checksum64(payload.data(), payload.size()) : draw.bits();
    const auto end = wire::encode_trailer(trailer);
    out.append(reinterpret_cast<const char*>(end.data()), end.size());
}

// A loopback, link-local or similar address. It would lead each peer that dials it to a different host.
void fill_confined(Draw& draw, proto::Address* address) {
    static constexpr std::uint8_t confined[][4] = {{127, 0, 0, 1}, {169, 254, 169, 254}, {0, 1, 2, 3}};
    std::string bytes(reinterpret_cast<const char*>(confined[draw.below(3)]), 4);
    if (draw.chance(500'000)) {
        address->set_is_v6(true);
        bytes = draw.chance(500'000) ? std::string(10, '\0') + "\xff\xff" + bytes : std::string(15, '\0') + '\1';
    }
    address->set_address(bytes);
    address->set_port(draw.number(1, 65'535));
}

// False messages to the master. The stranger knows the id of the run and the names of two members.
std::string informed_lies_to_master(Draw& draw, std::uint32_t own_node, const Knowledge& known, std::string& newcomer) {
    std::string out;
    bool joins = false;
    proto::PeerMessage m;
    auto* hello = m.mutable_hello();
    fill_hello(draw, own_node, hello, true);
    switch (draw.below(3)) {
    case 0:  // claims to have received decisions that the master never made, perhaps in the name of a member
        hello->set_run_id(known.run_id);
        hello->set_seen(draw.chance(700'000) ? std::uint64_t{1} << draw.number(10, 63) : number(draw));
        if (draw.chance(600'000)) hello->set_uuid(draw.chance(500'000) ? known.from : known.to);
        hello->set_generation(draw.chance(500'000) ? ~std::uint64_t{0} - draw.below(2) : 1 + draw.below(30));
        joins = hello->seen() == 0;
        break;
    case 1: fill_confined(draw, hello->mutable_advertised()); break;
    default: joins = true;
    }
    // Sometimes sends only reports, as if the hello had been sent earlier on this connection.
    const bool goes_on = joins && draw.chance(600'000);
    joins = joins && !goes_on;
    if (joins) newcomer = name_of(*hello);
    if (!goes_on) wire::append_control(out, bytes_of(m.SerializeAsString()));
    for (std::uint64_t reports = joins || goes_on ? draw.number(1, 8) : 0; reports-- != 0;) {
        m.Clear();
        auto* edge = m.mutable_edge();
        edge->set_peer(draw.chance(500'000) ? known.from : known.to);
        edge->set_outgoing(draw.chance(500'000));
        edge->set_up(draw.chance(500'000));
        wire::append_control(out, bytes_of(m.SerializeAsString()));
    }
    return out;
}

// False messages to a peer, in the name of a member that has dialled it: a hello, then slices of operations that run or
// start soon.
std::string informed_lies_to_peer(Draw& draw, const Knowledge& known) {
    std::string out;
    proto::LinkMessage m;
    auto* hello = m.mutable_hello();
    hello->set_protocol_version(wire::protocol_version);
    hello->set_run_id(known.run_id);
    hello->set_from(known.from);
    hello->set_to(known.to);
    hello->set_stripe(draw.number(0, 3));
    if (draw.chance(300'000)) hello->set_pass(noise(draw, 16));
    wire::append_control(out, bytes_of(m.SerializeAsString()));
    for (std::uint64_t frames = draw.number(1, 8); frames-- != 0 && !known.payloads.empty();) {
        wire::BulkHeader header = known.payloads[draw.below(known.payloads.size())];
        header.op += draw.below(3);
        header.slice = static_cast<std::uint32_t>(draw.below(header.slice + 2));
        append_payload(draw, header, out);
    }
    return out;
}

}  // namespace

Knowledge learn(const std::vector<std::uint8_t>& greeting) {
    Knowledge known;
    if (greeting.size() < wire::prefix_bytes) return known;
    const std::size_t length = greeting[4] | greeting[5] << 8;  // lower half; a kept greeting is shorter than 64 KiB
    proto::LinkMessage m;
    if (greeting.size() < wire::prefix_bytes + length ||
        !m.ParseFromArray(greeting.data() + wire::prefix_bytes, static_cast<int>(length)) || !m.has_hello())
        return known;
    known.run_id = m.hello().run_id();
    known.from = m.hello().from();
    known.to = m.hello().to();
    return known;
}

std::vector<std::uint8_t> newcomer_lies(Draw& draw, std::uint32_t own_node, const Knowledge& known, bool registered,
                                        std::string& newcomer) {
    std::string out;
    proto::PeerMessage m;
    newcomer.clear();
    if (!registered) {
        fill_hello(draw, own_node, m.mutable_hello(), true);
        newcomer = name_of(m.hello());
        m.mutable_hello()->set_group(0);
        wire::append_control(out, bytes_of(m.SerializeAsString()));
    }
    for (std::uint64_t reports = draw.number(1, 4); reports-- != 0 && !known.run_id.empty();) {
        m.Clear();
        auto* edge = m.mutable_edge();
        edge->set_peer(draw.chance(500'000) ? known.from : known.to);
        edge->set_outgoing(draw.chance(500'000));
        edge->set_up(draw.chance(300'000));
        wire::append_control(out, bytes_of(m.SerializeAsString()));
    }
    m.set_heartbeat(0);
    wire::append_control(out, bytes_of(m.SerializeAsString()));
    return {out.begin(), out.end()};
}

std::vector<std::uint8_t> hostile_bytes(Draw& draw, std::uint32_t own_node, bool to_master, const Knowledge& known,
                                        std::string& newcomer) {
    std::string out;
    newcomer.clear();
    if (!known.run_id.empty() && draw.chance(500'000)) {
        out = to_master ? informed_lies_to_master(draw, own_node, known, newcomer) : informed_lies_to_peer(draw, known);
        return {out.begin(), out.end()};
    }
    if (draw.chance(150'000)) {
        // A valid hello of a newcomer. Nothing, or false messages, follow it.
        proto::PeerMessage m;
        fill_hello(draw, own_node, m.mutable_hello(), true);
        wire::append_control(out, bytes_of(m.SerializeAsString()));
        newcomer = name_of(m.hello());
    }
    for (std::uint64_t frames = draw.below(4) + (out.empty() ? 1 : 0); frames-- != 0;) {
        switch (draw.below(8)) {
        case 0: out += noise(draw, 1 + draw.below(200)); break;
        case 1: {
            const std::size_t at = out.size();
            wire::append_control(out, bytes_of(noise(draw, draw.below(50))));
            out[at + 2 + draw.below(6)] = static_cast<char>(draw.bits());  // version, type or length
            if (draw.chance(500'000)) wire::seal_prefix(reinterpret_cast<std::uint8_t*>(out.data()) + at);
            break;
        }
        case 2: wire::append_control(out, bytes_of(noise(draw, draw.below(400)))); break;
        case 3:
        case 4: wire::append_control(out, bytes_of(peer_message(draw, own_node, newcomer))); break;
        case 5:
            wire::append_control(out, bytes_of(draw.chance(500'000) ? link_message(draw) : master_message(draw)));
            break;
        case 6: {
            wire::FlowWord word;
            word.op = number(draw);
            word.slice = number32(draw);
            word.value = number32(draw);
            word.kind = static_cast<wire::FlowKind>(draw.below(6));
            word.phase = static_cast<std::uint8_t>(draw.below(4));
            wire::append_flow(out, word);
            break;
        }
        default: append_bulk(draw, out);
        }
    }
    if (draw.chance(200'000)) out.resize(draw.below(out.size() + 1));
    return {out.begin(), out.end()};
}

}  // namespace pccl::harness
