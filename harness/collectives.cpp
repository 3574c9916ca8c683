#include "harness/collectives.hpp"

#include "core/base/format.hpp"
#include "core/numeric/types.hpp"
#include "core/voting/graph.hpp"
#include "harness/process.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;
using sim::mix;

namespace {

constexpr std::uint32_t no_piece_per_million = 200'000;
constexpr std::uint32_t even_pieces_per_million = 300'000;
constexpr std::uint32_t largest_piece_per_million = 200'000;
constexpr std::uint32_t room_for_members_per_million = 300'000;  // else for many more
constexpr std::uint32_t no_buffer_per_million = 300'000;
constexpr std::uint32_t no_input_per_million = 50'000;
constexpr std::uint32_t own_order_per_million = 300'000;
constexpr std::uint32_t odd_order_per_million = 100'000;  // of those: for another number of members

sim::Draw draw_for(const Scenario& scenario, std::uint64_t what, const Agreements::Key& key) {
    return sim::Draw(mix(mix(scenario.seed, what), mix(key.group, mix(key.tag, key.round))));
}

CollectiveKind draw_kind(sim::Draw& draw, std::uint32_t pieces_per_mille = 0) {
    if (pieces_per_mille != 0 && draw.chance(pieces_per_mille * 1000)) {
        constexpr CollectiveKind kinds[] = {CollectiveKind::gather, CollectiveKind::scatter,
                                            CollectiveKind::all_to_all};
        return kinds[draw.below(std::size(kinds))];
    }
    // Sends have programs of their own (sends.cpp).
    return static_cast<CollectiveKind>(1 + draw.below(static_cast<std::uint64_t>(CollectiveKind::send) - 1));
}

}  // namespace

// ---- what members agree on ------------------------------------------------------------------------------------------

CollectiveKind Agreements::kind(const Scenario& scenario, const Key& key) const {
    sim::Draw draw = draw_for(scenario, 602, key);
    if (!draw.chance(scenario.workload.collectives_per_mille * 1000)) return CollectiveKind::all_reduce;
    return draw_kind(draw, scenario.workload.pieces_per_mille);
}

Uuid Agreements::root(const Scenario& scenario, const Ledger& ledger, const Key& key) {
    std::vector<Uuid> members;
    for (const Life& life : ledger.lives) {
        if (life.group == key.group && !life.peer.is_nil() && life.gone_at == open_end && !refused_.contains(life.peer))
            members.push_back(life.peer);
    }
    Uuid& root = roots_[key];
    if (members.empty() || std::find(members.begin(), members.end(), root) != members.end()) return root;
    sim::Draw draw = draw_for(scenario, 603, key);
    return root = members[draw.below(members.size())];
}

std::uint64_t Agreements::piece(const Scenario& scenario, const Ledger& ledger, const Key& key, std::uint64_t count,
                                std::uint32_t world, std::uint32_t process) {
    Pieces& pieces = pieces_[{key, world, count}];
    if (pieces.counts.empty()) {
        sim::Draw draw = draw_for(scenario, 604 + world, key);
        std::uint64_t left = count;
        const bool even = draw.chance(even_pieces_per_million);
        for (std::uint32_t i = 0; i + 1 < world; ++i) {
            std::uint64_t piece = left / (world - i);
            if (!even) piece = draw.chance(no_piece_per_million) ? 0 : draw.below(left + 1);
            pieces.counts.push_back(piece);
            left -= piece;
        }
        pieces.counts.push_back(left);
    }
    const auto end_of_seats = [&] {
        const auto seats = std::min<std::size_t>(world, pieces.processes.size());
        return pieces.processes.begin() + static_cast<std::ptrdiff_t>(seats);
    };
    pieces.asked_at[process] = ++moment_;
    auto place = std::find(pieces.processes.begin(), pieces.processes.end(), process);
    if (place >= end_of_seats()) {
        // The piece of one that has gone, if there is such a one.
        const std::array<std::uint64_t, 3>& misfits = misfits_[{key, process}];
        const auto has_gone = [&](std::uint32_t other) {
            // A member asks for the next vote once it has heard of the last one, maybe before this process heard of it.
            if (pieces.asked_at[other] < misfits.front()) return true;
            return std::none_of(ledger.lives.begin(), ledger.lives.end(),
                                [&](const Life& life) { return life.process == other && life.gone_at == open_end; });
        };
        const auto free = std::find_if(pieces.processes.begin(), end_of_seats(), has_gone);
        if (free != end_of_seats())
            *(place = free) = process;
        else if (place == pieces.processes.end())
            place = pieces.processes.insert(place, process);
    }
    const auto index = static_cast<std::size_t>(place - pieces.processes.begin());
    return index < pieces.counts.size() ? pieces.counts[index] : 0;
}

// ---- the program --------------------------------------------------------------------------------------------------

std::uint64_t Process::piece_most(const Tensor& tensor) const {
    return std::max<std::uint64_t>(tensor.shape.count / scenario_.peers.size(), 1);
}

// Of all-gathers: room for some processes more than there are, because new ones may come before old ones are removed.
std::uint64_t Process::room_of(const Tensor& tensor) const {
    return std::max(tensor.shape.count + 1, piece_most(tensor) * (scenario_.peers.size() + 2));
}

Agreements::Key Process::agreement_of(const Tensor& tensor) const {
    return {plan_.group, tensor.tag, scenario_.workload.beside != 0 ? 0 : round_};
}

// Makes the command that of a collective of this kind.
void Process::become(CollectiveKind kind, Tensor& tensor, CommandLaunch& command) {
    Collective& collective = command.collective;
    collective = {};
    collective.kind = kind;
    command.shape = tensor.shape;
    command.shape.quantization = {};
    const Agreements::Key key = agreement_of(tensor);
    if (is_rooted(kind)) collective.root = shared_.agreements.root(scenario_, ledger_, key);
    const bool is_root = collective.root == own_peer();
    const auto draw_piece = [&](std::uint64_t most) -> std::uint64_t {
        if (draw_.chance(no_piece_per_million)) return 0;
        return draw_.chance(largest_piece_per_million) ? most : draw_.below(most + 1);
    };
    const auto room_for_all = [&] {
        return draw_.chance(room_for_members_per_million)
                   ? std::min(piece_most(tensor) * attributes_.group_world, room_of(tensor))
                   : room_of(tensor);
    };
    // A piece for each member, from the whole of the send array at most.
    const auto draw_row = [&] {
        const std::uint64_t most = std::min(piece_most(tensor), tensor.shape.count / attributes_.group_world);
        collective.world = attributes_.group_world;
        if (draw_.chance(even_pieces_per_million)) {
            collective.count = draw_piece(most);
            return;
        }
        for (std::uint32_t i = 0; i < collective.world; ++i) collective.counts.push_back(draw_piece(most));
    };
    switch (kind) {
    case CollectiveKind::all_gather:
        collective.count = draw_piece(piece_most(tensor));
        collective.capacity = room_for_all();
        command.shape.count = 0;
        tensor.in_place = false;
        break;
    case CollectiveKind::gather:
        collective.count = draw_piece(piece_most(tensor));
        if (is_root) collective.capacity = room_for_all();
        command.shape.count = 0;
        tensor.in_place = false;
        break;
    case CollectiveKind::scatter:
        if (is_root) draw_row();
        // The whole buffer, or just enough.
        collective.capacity = draw_.chance(room_for_members_per_million) ? piece_most(tensor) : tensor.shape.count + 1;
        command.shape.count = 0;
        break;
    case CollectiveKind::all_to_all:
        draw_row();
        collective.capacity = room_for_all();
        command.shape.count = 0;
        tensor.in_place = false;
        break;
    case CollectiveKind::reduce_scatter:
        collective.count =
            shared_.agreements.piece(scenario_, ledger_, key, tensor.shape.count, attributes_.group_world, number_);
        break;
    case CollectiveKind::barrier:
        command.shape.count = 0;
        tensor.in_place = false;
        break;
    default: break;
    }
    const bool has_pieces = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_gather ||
                            kind == CollectiveKind::all_to_all ||
                            (is_root && (kind == CollectiveKind::gather || kind == CollectiveKind::scatter));
    // A draw of its own, so that what the program does otherwise does not depend on it.
    sim::Draw draw(mix(mix(scenario_.seed, 605), mix(number_, ledger_.launches.size())));
    if (has_pieces && draw.chance(own_order_per_million)) {
        std::uint32_t named = attributes_.group_world;
        if (draw.chance(odd_order_per_million)) named += draw.chance(500'000) ? 1 : -1;
        for (std::uint32_t index = 0; index < named; ++index) collective.order.push_back(index);
        for (std::size_t i = named; i > 1; --i) std::swap(collective.order[i - 1], collective.order[draw.below(i)]);
    }
}

// A program that differs from the others: another kind, another root, or other numbers.
void Process::differ(Tensor& tensor, CommandLaunch& command) {
    Collective& collective = command.collective;
    if (collective.kind == CollectiveKind::all_reduce) return become(draw_kind(draw_), tensor, command);
    switch (draw_.below(4)) {
    case 0: become(draw_kind(draw_), tensor, command); break;
    case 1:
        if (!is_rooted(collective.kind)) return become(draw_kind(draw_), tensor, command);
        collective.root = ledger_.lives[draw_.below(ledger_.lives.size())].peer;
        if (collective.root.is_nil()) collective.root = own_peer();
        break;
    case 2:
        if (collective.capacity != 0)
            collective.capacity = draw_.below(collective.capacity + 1);
        else if (collective.kind == CollectiveKind::reduce_scatter)
            collective.count = draw_.below(command.shape.count + 1);
        else
            become(draw_kind(draw_), tensor, command);
        break;
    default:
        if (command.shape.count != 0) ++command.shape.count;
        if (collective.world > 1) {  // as if it knew of one member less
            --collective.world;
            if (!collective.counts.empty()) collective.counts.pop_back();
        }
    }
}

// Fills in what the launch is, and its buffers.
void Process::choose_collective(Tensor& tensor, CommandLaunch& command, bool mismatched) {
    // The completion of a call for many tags names no members.
    if (scenario_.workload.collectives_per_mille == 0 || scenario_.workload.many_window != 0) return;
    const CollectiveKind kind = shared_.agreements.kind(scenario_, agreement_of(tensor));
    if (kind == CollectiveKind::all_reduce && !(mismatched && draw_.chance(500'000))) return;
    if (kind != CollectiveKind::all_reduce) become(kind, tensor, command);
    if (mismatched) differ(tensor, command);
    const Collective& chosen = command.collective;
    const bool is_root = chosen.root == own_peer();
    command.send = tensor.send;
    command.receive = tensor.in_place ? tensor.send : tensor.receive;
    if (chosen.kind == CollectiveKind::barrier) command.send = command.receive = 0;
    const bool drops = !tensor.in_place && !is_root && draw_.chance(no_buffer_per_million);
    const bool from_root = chosen.kind == CollectiveKind::broadcast || chosen.kind == CollectiveKind::scatter;
    const bool to_root = chosen.kind == CollectiveKind::reduce || chosen.kind == CollectiveKind::gather;
    if (drops && from_root) command.send = 0;
    if (drops && to_root) command.receive = 0;
}

// As a machine does that takes shorter inputs than the master.
bool Process::leaves_input_out(const LaunchFact& fact) {
    return fact.collective.kind != CollectiveKind::all_reduce && scenario_.limits.vote_input_bytes_max != 0 &&
           draw_.chance(no_input_per_million);
}

Uuid Process::own_peer() const { return ledger_.lives[life_].peer; }

std::uint64_t result_bytes(const LaunchFact& fact, const Uuid& own) {
    const Completion& c = fact.completion;
    std::uint64_t count = fact.shape.count;
    switch (fact.collective.kind) {
    case CollectiveKind::gather:
        if (fact.collective.root != own) return 0;
        [[fallthrough]];
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
        for (const Completion::Part& member : c.members) count += member.count;
        break;
    case CollectiveKind::scatter: count = c.index < c.members.size() ? c.members[c.index].count : 0; break;
    case CollectiveKind::reduce_scatter: count = fact.collective.count; break;
    case CollectiveKind::send:
        count = fact.collective.target == own && c.members.size() == 2 ? c.members[0].count : 0;
        break;
    case CollectiveKind::reduce: count = fact.collective.root == own ? count : 0; break;
    case CollectiveKind::barrier: return 0;
    default: break;
    }
    return count * element_bytes(fact.shape.type);
}

std::vector<std::size_t> piece_places(const Collective& collective, std::size_t world) {
    std::vector<std::size_t> places;
    for (const std::uint32_t index : collective.order) {
        if (index < world) places.push_back(index);
    }
    for (std::size_t index = 0; index < world; ++index) {
        if (std::find(collective.order.begin(), collective.order.end(), index) == collective.order.end())
            places.push_back(index);
    }
    return places;
}

void order_output(LaunchFact& fact) {
    const CollectiveKind kind = fact.collective.kind;
    const bool has_pieces =
        kind == CollectiveKind::all_gather || kind == CollectiveKind::gather || kind == CollectiveKind::all_to_all;
    if (!has_pieces || fact.collective.order.empty() || fact.output.empty()) return;
    const std::vector<Completion::Part>& members = fact.completion.members;
    std::vector<std::vector<std::uint8_t>> pieces(members.size());
    auto from = fact.output.cbegin();
    for (const std::size_t index : piece_places(fact.collective, members.size())) {
        const auto bytes = members[index].count * element_bytes(fact.shape.type);
        if (bytes > static_cast<std::uint64_t>(fact.output.cend() - from)) return;  // too short: the oracle sees it
        pieces[index].assign(from, from + static_cast<std::ptrdiff_t>(bytes));
        from += static_cast<std::ptrdiff_t>(bytes);
    }
    std::vector<std::uint8_t> ordered;
    for (const auto& piece : pieces) ordered.insert(ordered.end(), piece.begin(), piece.end());
    ordered.insert(ordered.end(), from, fact.output.cend());
    fact.output = std::move(ordered);
}

// Nothing is written outside of the result. After a failure out of place the result is undefined.
void Process::check_rest(const Tensor& tensor, const LaunchFact& fact) {
    const CollectiveKind kind = fact.collective.kind;
    if (kind == CollectiveKind::all_reduce) return;
    const bool good = fact.completion.result == Result::success;
    if (tensor.in_place && !good) return;  // returned() compares all of it
    const std::vector<std::uint8_t>& before = tensor.in_place ? fact.input : tensor.receive_before;
    const std::vector<std::uint8_t>& after = memory(tensor.in_place ? tensor.send : tensor.receive);
    std::uint64_t written = result_bytes(fact, own_peer());
    if (!good && fact.collective.capacity != 0) written = fact.collective.capacity * element_bytes(fact.shape.type);
    written = std::min<std::uint64_t>(written, after.size());
    if (lie_ == Lie::rest_written && good && written < after.size())
        memory(tensor.in_place ? tensor.send : tensor.receive).back() ^= 1;
    if (before.size() == after.size() && std::equal(before.begin() + static_cast<std::ptrdiff_t>(written), before.end(),
                                                    after.begin() + static_cast<std::ptrdiff_t>(written)))
        return;
    world_.violate("no-phantom", formatted("{} of tag {} on {} wrote outside of its {} bytes", sim::to_text(kind),
                                           tensor.tag, sim::Trace::name(node_), written));
}

// ---- numbers ------------------------------------------------------------------------------------------------------

bool may_have_received(const Scenario& scenario, const LaunchFact& fact, const Uuid& own) {
    const Completion& c = fact.completion;
    const std::uint64_t element = element_bytes(fact.shape.type);
    const bool is_root = fact.collective.root == own;
    std::uint64_t pieces = 0;
    std::uint64_t largest_input =
        std::max(fact.shape.count, input_elements(fact.collective, fact.shape.count, is_root));
    for (const Completion::Part& member : c.members) {
        pieces += member.count;
        largest_input = std::max(largest_input, member.count);
    }
    const auto told = [&](std::uint64_t count) { return c.received_bytes == count * element; };
    const std::uint64_t all = fact.collective.kind == CollectiveKind::all_gather ? pieces : fact.shape.count;
    // The votes carried the inputs.
    const std::uint64_t bytes_max = scenario.limits.vote_input_bytes_max;
    const std::uint64_t input = input_elements(fact.collective, fact.shape.count, is_root);
    if (bytes_max != 0 && largest_input * element <= bytes_max && c.received_bytes == result_bytes(fact, own) &&
        c.sent_bytes == input * element)
        return true;
    // Pieces for others may have come through, and the ledger has no positions. graph_test.cpp counts exactly.
    const std::uint64_t elements = c.received_bytes / element;
    const std::uint64_t own_piece = c.index < c.members.size() ? c.members[c.index].count : 0;
    switch (fact.collective.kind) {
    case CollectiveKind::all_gather: return told(pieces - fact.collective.count);
    case CollectiveKind::broadcast: return told(is_root ? 0 : all);
    // The member behind the root starts.
    case CollectiveKind::reduce: return told(all) || (!is_root && told(0));
    // All but the part that it starts, which is that of its predecessor.
    case CollectiveKind::reduce_scatter:
        return std::any_of(c.members.begin(), c.members.end(),
                           [&](const Completion::Part& other) { return other.peer != own && told(all - other.count); });
    case CollectiveKind::gather: return is_root ? told(pieces - own_piece) : elements <= pieces - own_piece;
    case CollectiveKind::scatter: return is_root ? told(0) : elements >= own_piece && elements <= pieces;
    case CollectiveKind::all_to_all: return elements >= pieces - own_piece;
    case CollectiveKind::send: return c.received_bytes == result_bytes(fact, own);
    default: return told(0);
    }
}

}  // namespace pccl::harness
