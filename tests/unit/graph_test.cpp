// Every collective on a ring that is played in a plain loop: each byte arrives exactly where the table of graph.hpp
// says, and nothing else is written. And what the master asks of the members' votes.
#include "core/all_reduce/operation.hpp"
#include "core/voting/in_vote.hpp"
#include "core/wire/bounds.hpp"
#include "tests/unit/master_play.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace pccl::core;

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr BufferId slots_id = 1, scratch_id = 3, send_id = 2, receive_id = 4;
constexpr std::uint8_t untouched = 0xCD;

// One element is one byte. Slices of 16 bytes.
struct Member {
    std::unique_ptr<Operation> op;
    Bytes send, receive, scratch, slots;
    Bytes& of(BufferId id) {
        return id == send_id ? send : id == receive_id ? receive : id == scratch_id ? scratch : slots;
    }
    std::uint8_t* at(const BufferRef& ref) {
        REQUIRE(ref.offset + ref.length <= of(ref.id).size());
        return of(ref.id).data() + ref.offset;
    }
    void is_final(std::uint32_t slice) {
        Half& half = op->half(1, slice);
        half.in = InState::landed;
        ++op->finals;
        REQUIRE(op->finals <= op->finals_due());
        if (op->is_shared()) op->add_digest(slice, slice + 100);
        if (op->forwards_final(slice)) op->enqueue(1, slice);
    }
    BufferRef input(std::uint32_t slice) const {
        return BufferRef{op->send, op->byte_offset(slice), op->byte_length(slice)};
    }
};

struct Ring {
    std::vector<Member> members;
    std::uint64_t moved = 0;  // slices
    std::uint64_t bytes = 0;  // of them

    // `sends` and `receives`: the sizes of the arrays, by position.
    Ring(const Graph& graph, std::uint64_t count, const std::vector<Bytes>& inputs,
         const std::vector<std::size_t>& receives, bool in_place)
        : members(inputs.size()) {
        Limits limits;
        limits.slice_bytes = 16;
        const auto world = static_cast<std::uint32_t>(inputs.size());
        for (std::uint32_t i = 0; i < world; ++i) {
            Member& member = members[i];
            Operation::Identity id;
            id.id = 1;
            id.world = world;
            id.position = i;
            ReduceShape shape;
            shape.count = count;
            shape.type = DataType::u8;
            member.op = std::make_unique<Operation>(id, shape, graph, send_id, in_place ? send_id : receive_id, limits);
            member.op->result = member.op->has_scratch() ? scratch_id : member.op->receive;
            member.op->make_slots(3, member.op->partial_landings());
            member.op->prepared = member.op->neighbour_ready = true;
            member.send = inputs[i];
            member.receive.assign(receives[i], untouched);
            member.scratch.assign(member.op->scratch_bytes(), untouched);
            member.slots.assign(std::size_t{3} * member.op->slot_bytes, untouched);
        }
        for (Member& member : members) member.op->neighbour_slots = member.op->credit = 3;
    }
    bool step(std::uint32_t from) {
        Member& member = members[from];
        Operation& op = *member.op;
        for (std::uint32_t own = op.take_input(); own != Operation::none; own = op.take_input()) {
            const BufferRef input = member.input(own), place = op.final_ref(own);
            if (place != input) std::copy_n(member.at(input), input.length, member.at(place));
            member.is_final(own);
        }
        const Operation::Next next = op.peek(0, Operation::none);
        if (next.slice == Operation::none) return false;
        op.pop(next);
        op.leaves(next.phase, next.slice, 1);
        const BufferRef source = next.phase == 1         ? op.final_ref(next.slice)
                                 : op.starts(next.slice) ? member.input(next.slice)
                                                         : op.slot_ref(next.slice);
        Member& to = members[(from + 1) % members.size()];
        if (!land(to, next.phase, next.slice, Bytes(member.at(source), member.at(source) + source.length))) {
            op.declined(next.phase, next.slice);
            return false;
        }
        ++moved;
        bytes += source.length;
        op.acknowledged(next.phase, next.slice);
        if (next.phase == 0 && !op.starts(next.slice)) {
            op.give_slot(next.slice);
            Member& before = members[(from + members.size() - 1) % members.size()];
            before.op->credit = op.granted;
        }
        op.credit = to.op->granted;
        return true;
    }
    static bool land(Member& to, int phase, std::uint32_t slice, const Bytes& bytes) {
        Operation& op = *to.op;
        REQUIRE(op.takes(phase, slice));
        Half& half = op.half(phase, slice);
        REQUIRE(half.in == InState::none);
        if (phase == 1) {
            std::copy(bytes.begin(), bytes.end(), to.at(op.final_ref(slice)));
            to.is_final(slice);
            return true;
        }
        if (op.take_slot(slice) == Operation::none) return false;
        half.in = InState::landed;
        const BufferRef target = op.finishes(slice) ? op.final_ref(slice) : op.slot_ref(slice);
        const std::uint8_t* mine = to.at(to.input(slice));
        Bytes sum = bytes;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<std::uint8_t>(sum[i] + mine[i]);
        std::copy(sum.begin(), sum.end(), to.at(target));
        if (op.finishes(slice)) {
            op.give_slot(slice);
            to.is_final(slice);
        } else {
            ++op.partials;
            op.enqueue(0, slice);
        }
        return true;
    }
    // Until nothing moves; then the commit.
    void play() {
        for (bool moves = true; moves;) {
            moves = false;
            for (std::uint32_t i = 0; i < members.size(); ++i) moves = step(i) || moves;
        }
        for (Member& member : members) {
            Operation& op = *member.op;
            op.check();
            REQUIRE(op.complete());
            CHECK_FALSE(op.wants_to_send());
            CHECK_FALSE(op.unanswered());
            CHECK(op.digest == members[0].op->digest);
        }
    }
    void commit() {
        for (Member& member : members) {
            const Operation& op = *member.op;
            if (op.copies_all() && op.has_scratch())
                std::copy(member.scratch.begin(), member.scratch.end(), member.of(op.receive).begin());
            for (std::uint32_t slice = 0; !op.copies_all() && slice < op.slices(); ++slice) {
                if (!op.keeps(slice) || !op.is_in_scratch(slice)) continue;
                const BufferRef from = op.final_ref(slice);
                std::copy_n(member.at(from), from.length,
                            member.at({op.receive, op.receive_offset(slice), from.length}));
            }
        }
    }
};

Bytes drawn(std::size_t size, std::size_t salt) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(salt * 37 + i * 11 + i / 251);
    return bytes;
}

Bytes sum_of(const std::vector<Bytes>& inputs) {
    Bytes sum(inputs.front().size());
    for (const Bytes& input : inputs) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<std::uint8_t>(sum[i] + input[i]);
    }
    return sum;
}

Bytes part_of(const Bytes& bytes, std::uint64_t first, std::uint64_t count) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(count));
}

// Indices that differ from positions, and uneven pieces, some of them empty.
std::vector<Piece> pieces_for(std::uint32_t world) {
    std::vector<Piece> pieces;
    for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint64_t count = p % 3 == 1 ? 0 : 7 + p * 23;
        pieces.push_back({(p * (world - 1) + 1) % world, count});
    }
    return pieces;
}

std::uint64_t offset_of(const std::vector<Piece>& pieces, std::uint32_t position) {
    std::uint64_t offset = 0;
    for (const Piece& piece : pieces) offset += piece.index < pieces[position].index ? piece.count : 0;
    return offset;
}

std::uint64_t total_of(const std::vector<Piece>& pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Piece& piece) { return sum + piece.count; });
}

// The members' results, each as long as its receive array.
void expect(Ring& ring, const std::vector<Bytes>& inputs, const std::vector<Bytes>& results, bool in_place) {
    ring.play();
    for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(ring.members[i].send == inputs[i]);
    ring.commit();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        INFO("position " << i);
        if (!in_place) {
            CHECK(ring.members[i].send == inputs[i]);
            CHECK(ring.members[i].receive == results[i]);
            continue;
        }
        Bytes all = inputs[i];
        std::copy(results[i].begin(), results[i].end(), all.begin());
        CHECK(ring.members[i].send == all);
    }
}

std::vector<std::size_t> sizes_of(const std::vector<Bytes>& arrays) {
    std::vector<std::size_t> sizes;
    for (const Bytes& array : arrays) sizes.push_back(array.size());
    return sizes;
}

void check(CollectiveKind kind, std::uint64_t count, std::uint32_t root, const std::vector<Piece>& pieces,
           const std::vector<Bytes>& inputs, const std::vector<Bytes>& results, bool in_place) {
    const auto world = static_cast<std::uint32_t>(inputs.size());
    INFO("kind " << static_cast<int>(kind) << " world " << world << " root " << root << (in_place ? " in place" : ""));
    Ring ring(graph_of(kind, world, count, root, pieces), count, inputs, sizes_of(results), in_place);
    expect(ring, inputs, results, in_place);
}

std::vector<Bytes> inputs_of(std::uint32_t world, std::uint64_t count) {
    std::vector<Bytes> inputs;
    for (std::uint32_t p = 0; p < world; ++p) inputs.push_back(drawn(count, p + 1));
    return inputs;
}

}  // namespace

TEST_CASE("each byte of a collective arrives where it belongs, in worlds of 2 to 9") {
    for (std::uint32_t world = 2; world <= 9; ++world) {
        const std::vector<Piece> pieces = pieces_for(world);
        const std::uint64_t total = total_of(pieces);
        const std::uint32_t root = world / 2;
        for (const bool in_place : {false, true}) {
            for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{333}}) {
                const std::vector<Bytes> inputs = inputs_of(world, count);
                const Bytes sum = sum_of(inputs);
                check(CollectiveKind::all_reduce, count, 0, {}, inputs, std::vector<Bytes>(world, sum), in_place);
                check(CollectiveKind::broadcast, count, root, {}, inputs, std::vector<Bytes>(world, inputs[root]),
                      in_place);
                std::vector<Bytes> at_root(world);
                at_root[root] = sum;
                check(CollectiveKind::reduce, count, root, {}, inputs, at_root, in_place);
            }
            const std::vector<Bytes> inputs = inputs_of(world, total);
            std::vector<Bytes> scattered;
            for (std::uint32_t p = 0; p < world; ++p)
                scattered.push_back(part_of(sum_of(inputs), offset_of(pieces, p), pieces[p].count));
            check(CollectiveKind::reduce_scatter, total, 0, pieces, inputs, scattered, in_place);
        }
        std::vector<Bytes> own;
        Bytes gathered(total);
        for (std::uint32_t p = 0; p < world; ++p) {
            own.push_back(drawn(pieces[p].count, p + 1));
            std::copy(own[p].begin(), own[p].end(),
                      gathered.begin() + static_cast<std::ptrdiff_t>(offset_of(pieces, p)));
        }
        check(CollectiveKind::all_gather, 0, 0, pieces, own, std::vector<Bytes>(world, gathered), false);
        std::vector<Bytes> at_root(world);
        at_root[root] = gathered;
        check(CollectiveKind::gather, 0, root, pieces, own, at_root, false);
        std::vector<Bytes> whole(world), parts;
        whole[root] = drawn(total, 99);
        for (std::uint32_t p = 0; p < world; ++p)
            parts.push_back(part_of(whole[root], offset_of(pieces, p), pieces[p].count));
        check(CollectiveKind::scatter, 0, root, pieces, whole, parts, false);
        std::vector<Piece> even = pieces;
        for (Piece& piece : even) piece.count = 21;
        const std::vector<Bytes> rows = inputs_of(world, 21 * std::uint64_t{world});
        std::vector<Bytes> columns(world);
        for (std::uint32_t to = 0; to < world; ++to) {
            columns[to].resize(21 * std::size_t{world});
            for (std::uint32_t from = 0; from < world; ++from) {
                const Bytes piece = part_of(rows[from], even[to].index * 21, 21);
                std::copy(piece.begin(), piece.end(), columns[to].begin() + even[from].index * 21);
            }
        }
        check(CollectiveKind::all_to_all, 0, 0, even, rows, columns, false);
        std::vector<Bytes> sent(world), received(world);
        sent.front() = received.back() = drawn(500, 3);
        check(CollectiveKind::send, 500, 0, {}, sent, received, false);
    }
}

namespace {

// Member at position `from` has this many bytes for the member with that index.
std::uint64_t count_for(std::uint32_t from, std::uint32_t index) {
    return (from + index) % 4 == 1 ? 0 : 5 + 11 * from + 3 * index;
}

// An all_to_all in which each member has pieces of other sizes, and one has pieces of one size.
struct Uneven {
    std::vector<Piece> pieces;
    std::vector<Bytes> rows, columns;

    explicit Uneven(std::uint32_t world) : pieces(pieces_for(world)), columns(world) {
        for (std::uint32_t from = 0; from < world; ++from) {
            pieces[from].count = from == 0 ? 9 : 0;
            for (std::uint32_t index = 0; from != 0 && index < world; ++index)
                pieces[from].counts.push_back(count_for(from, index));
            std::uint64_t row = 0;
            for (std::uint32_t index = 0; index < world; ++index) row += pieces[from].for_member(index);
            rows.push_back(drawn(row, from + 1));
        }
        for (std::uint32_t to = 0; to < world; ++to) {
            for (std::uint32_t sender = 0; sender < world; ++sender) {
                const auto from = static_cast<std::uint32_t>(
                    std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.index == sender; }) -
                    pieces.begin());
                std::uint64_t first = 0;
                for (std::uint32_t index = 0; index < pieces[to].index; ++index)
                    first += pieces[from].for_member(index);
                const Bytes piece = part_of(rows[from], first, pieces[from].for_member(pieces[to].index));
                columns[to].insert(columns[to].end(), piece.begin(), piece.end());
            }
        }
    }
};

}  // namespace

TEST_CASE("an all_to_all moves pieces of any size") {
    for (std::uint32_t world = 2; world <= 9; ++world) {
        const Uneven uneven(world);
        check(CollectiveKind::all_to_all, 0, 0, uneven.pieces, uneven.rows, uneven.columns, false);
        // The same when the votes carry the rows.
        std::string all;
        for (std::uint32_t index = 0; index < world; ++index) {
            for (std::uint32_t p = 0; p < world; ++p) {
                if (uneven.pieces[p].index == index) all.append(uneven.rows[p].begin(), uneven.rows[p].end());
            }
        }
        for (std::uint32_t p = 0; p < world; ++p) {
            Collective exchange;
            exchange.kind = CollectiveKind::all_to_all;
            const std::string column = own_part(exchange, 1, all, uneven.pieces, p, 0);
            CHECK(Bytes(column.begin(), column.end()) == uneven.columns[p]);
        }
    }
}

namespace {

// Bytes that cross the edges of a ring of `pieces`, and the fewest that can: each piece crosses each edge between its
// sender and its receiver once.
struct Crossed {
    std::uint64_t moved = 0;
    std::uint64_t fewest = 0;
};

Crossed crossed(CollectiveKind kind, std::uint32_t world, std::uint32_t root, const std::vector<Piece>& pieces,
                const std::vector<Bytes>& inputs, const std::vector<Bytes>& results) {
    Ring ring(graph_of(kind, world, 0, root, pieces), 0, inputs, sizes_of(results), false);
    ring.play();
    Crossed bytes{ring.bytes, 0};
    const auto hops = [world](std::uint32_t from, std::uint32_t to) { return (to + world - from) % world; };
    for (std::uint32_t p = 0; p < world; ++p) {
        if (kind == CollectiveKind::gather) bytes.fewest += pieces[p].count * hops(p, root);
        if (kind == CollectiveKind::scatter) bytes.fewest += pieces[p].count * hops(root, p);
        for (std::uint32_t to = 0; kind == CollectiveKind::all_to_all && to < world; ++to)
            bytes.fewest += pieces[p].for_member(pieces[to].index) * hops(p, to);
    }
    return bytes;
}

}  // namespace

TEST_CASE("pieces cross only the edges between their two members, each once") {
    for (std::uint32_t world = 2; world <= 9; ++world) {
        for (std::uint32_t root = 0; root < world; ++root) {
            const std::vector<Piece> pieces = pieces_for(world);
            const std::uint64_t total = total_of(pieces);
            std::vector<Bytes> own, whole(world), at_root(world), parts;
            whole[root] = drawn(total, 1);
            at_root[root] = Bytes(total);
            for (std::uint32_t p = 0; p < world; ++p) {
                own.push_back(drawn(pieces[p].count, p));
                parts.emplace_back(pieces[p].count);
            }
            const Crossed gather = crossed(CollectiveKind::gather, world, root, pieces, own, at_root);
            CHECK(gather.moved == gather.fewest);
            const Crossed scatter = crossed(CollectiveKind::scatter, world, root, pieces, whole, parts);
            CHECK(scatter.moved == scatter.fewest);
        }
        const Uneven uneven(world);
        const Crossed pairs =
            crossed(CollectiveKind::all_to_all, world, 0, uneven.pieces, uneven.rows, uneven.columns);
        CHECK(pairs.moved == pairs.fewest);
    }
}

namespace {

// Plays a collective over direct edges. Returns the bytes that cross edges.
std::uint64_t play_direct(const Graph& graph, std::vector<Bytes> inputs, const std::vector<Bytes>& results,
                          bool in_place) {
    const auto world = static_cast<std::uint32_t>(inputs.size());
    Limits limits;
    limits.slice_bytes = 16;
    ReduceShape shape;
    shape.type = DataType::u8;
    const auto make = [&](const Lane& lane, std::uint32_t position) {
        Operation::Identity id;
        id.id = 1;
        id.world = 2;
        id.position = position;
        Graph part;
        part.shared = false;
        part.parts.push_back(lane.part);
        auto op = std::make_unique<Operation>(id, shape, part, send_id, in_place ? send_id : receive_id, limits);
        op->direct = op->prepared = op->neighbour_ready = true;
        op->result = op->has_scratch() ? scratch_id : op->receive;
        return op;
    };
    std::vector<Bytes> outputs = inputs;
    for (std::uint32_t p = 0; p < world && !in_place; ++p) outputs[p] = Bytes(results[p].size(), untouched);
    std::uint64_t crossed = 0;
    for (std::uint32_t from = 0; from < world; ++from) {
        for (const Lane& lane : lanes_of(graph, from)) {
            const bool stays = lane.peer == from;
            if (!lane.sends && !stays) continue;
            const std::vector<Lane> theirs = lanes_of(graph, lane.peer);
            const auto same = std::find_if(theirs.begin(), theirs.end(), [&](const Lane& other) {
                return other.peer == from && !other.sends;
            });
            REQUIRE(same != theirs.end());
            const auto source = make(lane, 0), target = make(*same, stays ? 0 : 1);
            REQUIRE(source->slices() == target->slices());
            CHECK_FALSE(source->finished());
            std::uint32_t left = 0;
            for (std::uint32_t own = source->take_input(); own != Operation::none; own = source->take_input()) {
                source->half(1, own).in = InState::landed;
                ++source->finals;
                if (source->forwards_final(own)) source->enqueue(1, own);
                ++left;
            }
            REQUIRE(left == source->slices());
            CHECK(source->finished() == stays);
            Bytes scratch(target->scratch_bytes());
            for (std::uint32_t slice = 0; slice < source->slices(); ++slice) {
                REQUIRE(source->byte_length(slice) == target->byte_length(slice));
                const BufferRef place = target->final_ref(slice);
                const auto begin = inputs[from].begin() + static_cast<std::ptrdiff_t>(source->byte_offset(slice));
                // Where its input already is.
                if (place.id == send_id) CHECK((stays && place.offset == target->receive_offset(slice)));
                Bytes& to = place.id == scratch_id ? scratch : outputs[lane.peer];
                REQUIRE(place.offset + place.length <= to.size());
                std::copy_n(begin, place.length, to.begin() + static_cast<std::ptrdiff_t>(place.offset));
                if (stays) continue;
                REQUIRE(target->takes(1, slice));
                const Operation::Next next = source->peek(0, Operation::none);
                REQUIRE((next.phase == 1 && next.slice == slice));
                source->pop(next);
                source->leaves(1, slice, 1);
                CHECK_FALSE(source->finished());
                source->acknowledged(1, slice);
                ++target->finals;
                crossed += place.length;
            }
            CHECK(source->finished());
            CHECK((stays || target->finished()));
            source->check();
            for (std::uint32_t slice = 0; slice < target->slices() && target->has_scratch(); ++slice) {
                CHECK(target->keeps(slice));
                std::copy_n(scratch.begin() + static_cast<std::ptrdiff_t>(target->final_ref(slice).offset),
                            target->byte_length(slice),
                            outputs[lane.peer].begin() + static_cast<std::ptrdiff_t>(target->receive_offset(slice)));
            }
        }
    }
    for (std::uint32_t p = 0; p < world; ++p) {
        INFO("position " << p);
        Bytes expected = in_place ? inputs[p] : results[p];
        if (in_place) std::copy(results[p].begin(), results[p].end(), expected.begin());
        CHECK(outputs[p] == expected);
    }
    return crossed;
}

}  // namespace

TEST_CASE("over direct edges each piece crosses one edge, once, and arrives where it belongs") {
    for (std::uint32_t world = 2; world <= 9; ++world) {
        for (std::uint32_t root = 0; root < world; ++root) {
            INFO("world " << world << " root " << root);
            const std::vector<Piece> pieces = pieces_for(world);
            const std::uint64_t total = total_of(pieces);
            std::vector<Bytes> own, whole(world), at_root(world), parts;
            whole[root] = drawn(total, 1);
            for (std::uint32_t p = 0; p < world; ++p) {
                own.push_back(drawn(pieces[p].count, p));
                parts.push_back(part_of(whole[root], offset_of(pieces, p), pieces[p].count));
            }
            at_root[root] = Bytes(total);
            for (std::uint32_t p = 0; p < world; ++p)
                std::copy(own[p].begin(), own[p].end(),
                          at_root[root].begin() + static_cast<std::ptrdiff_t>(offset_of(pieces, p)));
            const Graph gather = graph_of(CollectiveKind::gather, world, 0, root, pieces);
            CHECK(play_direct(gather, own, at_root, false) == total - pieces[root].count);
            const Graph scatter = graph_of(CollectiveKind::scatter, world, 0, root, pieces);
            CHECK(play_direct(scatter, whole, parts, false) == total - pieces[root].count);
            std::vector<Bytes> rooms = whole;
            for (std::uint32_t p = 0; p < world; ++p) {
                if (p != root) rooms[p].assign(parts[p].size(), untouched);
            }
            CHECK(play_direct(scatter, rooms, parts, true) == total - pieces[root].count);
        }
        const Uneven uneven(world);
        std::uint64_t fewest = 0;
        for (std::uint32_t p = 0; p < world; ++p) {
            for (std::uint32_t to = 0; to < world; ++to)
                fewest += p == to ? 0 : uneven.pieces[p].for_member(uneven.pieces[to].index);
        }
        const Graph pairs = graph_of(CollectiveKind::all_to_all, world, 0, 0, uneven.pieces);
        CHECK(play_direct(pairs, uneven.rows, uneven.columns, false) == fewest);
    }
}

TEST_CASE("a broadcast and an all-gather move each slice over each edge but one") {
    const std::vector<Bytes> inputs = inputs_of(5, 160);
    Ring ring(graph_of(CollectiveKind::broadcast, 5, 160, 2), 160, inputs, std::vector<std::size_t>(5, 160), false);
    ring.play();
    CHECK(ring.moved == 10 * 4);
    Ring sum(graph_of(CollectiveKind::reduce, 5, 160, 2), 160, inputs, std::vector<std::size_t>(5, 160), false);
    sum.play();
    CHECK(sum.moved == 10 * 4);
}

// ---- the master ----------------------------------------------------------------------------------------------------

namespace {

namespace proto = pccl::proto;

struct Group {
    play::World world;
    play::Member a{play::name(1)}, b{play::name(2)};

    Group() {
        world.say_hello(a);
        world.say_hello(b);
        join_edges();
        proto::Vote update;
        update.set_kind(proto::VOTE_UPDATE_TOPOLOGY);
        world.vote(a, update);
        REQUIRE(b.seen > 0);
        join_edges();
    }
    void join_edges() {
        world.report_edges(a, b);
        world.report_edges(b, a);
    }
    static proto::Vote vote(CollectiveKind kind, std::uint64_t count, std::uint64_t own = 0,
                            std::uint64_t capacity = 0) {
        proto::Vote vote;
        vote.set_kind(proto::VOTE_START);
        vote.set_id(5);
        vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(kind));
        vote.mutable_shape()->set_count(count);
        vote.set_count(own);
        vote.set_capacity(capacity);
        vote.set_world(2);
        vote.set_room(10'000);
        return vote;
    }
    static proto::Vote with_root(proto::Vote vote, const Uuid& root) {
        vote.mutable_shape()->set_root(to_bytes(root));
        return vote;
    }
    static proto::Vote with_input(proto::Vote vote, const std::string& input) {
        vote.set_input(input);
        vote.set_whole(true);
        return vote;
    }
    // The answer to both votes, as `a` gets it.
    proto::Answer start(const proto::Vote& one, const proto::Vote& other) {
        world.vote(a, one);
        world.vote(b, other);
        REQUIRE(a.answers.back().has_start());
        REQUIRE(b.answers.back().has_start());
        CHECK(a.answers.back().start().op() == b.answers.back().start().op());
        CHECK(a.answers.back().start().result() == b.answers.back().start().result());
        return a.answers.back();
    }
    std::string refused(const proto::Vote& one, const proto::Vote& other, Result result = Result::invalid_argument) {
        const proto::Answer answer = start(one, other);
        CHECK(answer.start().op() == 0);
        CHECK(answer.result() == static_cast<std::uint32_t>(result));
        return to_text(cause_of(answer.cause()));
    }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the master refuses a collective whose members disagree, and says in what") {
    Group run;
    using Kind = CollectiveKind;
    CHECK(contains(run.refused(run.vote(Kind::all_gather, 0, 1, 9), run.vote(Kind::barrier, 0)), "differ in kind"));
    const proto::Vote copy = run.vote(Kind::broadcast, 7);
    CHECK(contains(run.refused(run.with_root(copy, run.a.uuid), run.with_root(copy, run.b.uuid)), "differ in root"));
    CHECK(contains(run.refused(run.with_root(copy, play::name(9)), run.with_root(copy, play::name(9))),
                   "is not a member of the group"));
    CHECK(contains(run.refused(run.with_root(run.vote(Kind::reduce, 7), run.a.uuid),
                               run.with_root(run.vote(Kind::reduce, 8), run.a.uuid)),
                   "differ in count"));
    CHECK(
        contains(run.refused(run.vote(Kind::all_gather, 0, 4, 9), run.vote(Kind::all_gather, 0, 4, 7)), "room for, 7"));
    CHECK(contains(run.refused(run.vote(Kind::reduce_scatter, 8, 4), run.vote(Kind::reduce_scatter, 8, 3)),
                   "7 elements in all"));
    proto::Vote late = run.vote(Kind::reduce_scatter, 8, 4);
    late.set_world(3);
    CHECK(contains(run.refused(late, run.vote(Kind::reduce_scatter, 8, 4), Result::rank_connection_lost), "for 3"));
    const auto root = [&](Kind kind, std::uint64_t own, std::uint64_t capacity) {
        return run.with_root(run.vote(kind, 0, own, capacity), run.a.uuid);
    };
    CHECK(contains(run.refused(root(Kind::gather, 4, 7), root(Kind::gather, 4, 99)), "room for, 7"));
    CHECK(contains(run.refused(root(Kind::scatter, 4, 9), root(Kind::scatter, 0, 3)),
                   "has room for 3 elements, and the pieces for it have 4"));
    proto::Vote late_root = root(Kind::scatter, 4, 9);
    late_root.set_world(3);
    CHECK(contains(run.refused(late_root, root(Kind::scatter, 0, 9), Result::rank_connection_lost), "for 3"));
    proto::Vote row = run.vote(Kind::all_to_all, 0, 0, 9);
    row.add_counts(6);
    row.add_counts(6);
    CHECK(contains(run.refused(row, run.vote(Kind::all_to_all, 0, 4, 99)),
                   "has room for 9 elements, and the pieces for it have 10"));
    proto::Vote other_row = run.vote(Kind::all_to_all, 0, 4, 99);
    other_row.set_world(3);
    CHECK(contains(run.refused(row, other_row, Result::rank_connection_lost), "for 3"));
    // 2^22 slices of one byte, and one more.
    proto::Vote huge = root(Kind::gather, slices_of_pieces_max, ~std::uint64_t{0} >> 14);
    huge.mutable_shape()->set_slice_bytes(1);
    proto::Vote short_one = root(Kind::gather, 1, 0);
    short_one.mutable_shape()->set_slice_bytes(1);
    CHECK(contains(run.refused(huge, short_one, Result::invalid_usage), "more than one collective can have"));
    proto::Vote gave_up = root(Kind::scatter, 0, 9);
    gave_up.set_refused(true);
    write(make_cause<CauseKind::too_many_counts>(1000), *gave_up.mutable_cause());
    CHECK(contains(run.refused(gave_up, root(Kind::scatter, 0, 9), Result::invalid_usage), "1000 members do not fit"));
    proto::Vote cramped = run.vote(Kind::barrier, 0);
    CHECK(run.start(cramped, cramped).start().op() != 0);
}

TEST_CASE("the length of a list of counts in a message is known before") {
    proto::Vote vote;
    for (const std::uint64_t count : {0ull, 1ull, 127ull, 128ull, 16'383ull, 16'384ull, 1ull << 49, ~0ull})
        vote.add_counts(count);
    // A byte each for the tag, in two bytes, and the length.
    CHECK(vote.ByteSizeLong() == wire::counts_bytes(vote.counts()) + 3);
}

TEST_CASE("a vote for a collective that cannot be removes its member") {
    for (const int which : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
        Group run;
        proto::Vote vote = run.vote(CollectiveKind::all_gather, 0, 4, 9);
        if (which == 0) vote.mutable_shape()->set_collective(collective_kind_count);
        if (which == 1) vote.set_count(~std::uint64_t{0});
        if (which == 2) vote.mutable_shape()->set_root("short");
        if (which == 3) vote = run.with_input(vote, "five5");
        if (which == 4) vote.mutable_shape()->set_quantization(1);
        if (which >= 5) vote.mutable_shape()->set_collective(static_cast<std::uint32_t>(CollectiveKind::all_to_all));
        if (which == 5) vote.add_counts(4);  // for two members
        if (which == 6) vote.set_count(~std::uint64_t{0} >> 14);
        if (which == 7) vote.add_counts(1);
        if (which == 7) vote.add_counts(~std::uint64_t{0});
        if (which == 8) vote = run.with_input(vote, "seven77");  // and not twice 4
        run.world.vote(run.a, vote);
        CHECK(run.a.closed);
    }
}

TEST_CASE("a start tells each member the pieces of all, also after a restart of the master") {
    Group run;
    const proto::Answer answer = run.start(run.vote(CollectiveKind::all_gather, 0, 40'000, 99'999),
                                           run.vote(CollectiveKind::all_gather, 0, 5, 99'999));
    const auto check = [&](const proto::StartAnswer& start) {
        CHECK_FALSE(start.reduced());
        CHECK(start.collective() == static_cast<std::uint32_t>(CollectiveKind::all_gather));
        REQUIRE(start.members_size() == 2);
        for (const auto& member : start.members()) {
            CHECK(member.count() == (member.peer() == to_bytes(run.a.uuid) ? 40'000u : 5u));
            CHECK(member.index() < 2);
        }
        CHECK(start.members(0).index() != start.members(1).index());
    };
    check(answer.start());
    const std::uint64_t seen = run.b.answers[run.b.answers.size() - 2].index();
    const std::size_t before = run.b.answers.size();
    run.world.restart();
    run.b.answers.pop_back();
    run.b.seen = seen;
    run.world.say_hello(run.b);
    REQUIRE(run.b.answers.size() == before);
    check(run.b.answers.back().start());
}

TEST_CASE("small collectives end with their start") {
    Group run;
    using Kind = CollectiveKind;
    const auto first_index = [&](const proto::StartAnswer& start) {
        for (const auto& member : start.members()) {
            if (member.index() == 0) return member.peer() == to_bytes(run.a.uuid) ? 'a' : 'b';
        }
        return '?';
    };
    // u8 is type 0.
    proto::StartAnswer start = run.start(run.with_input(run.vote(Kind::all_gather, 0, 3, 9), "aaa"),
                                         run.with_input(run.vote(Kind::all_gather, 0, 0, 9), ""))
                                   .start();
    CHECK(start.reduced());
    CHECK(start.result() == "aaa");
    start = run.start(run.with_input(run.vote(Kind::all_gather, 0, 1, 9), "a"),
                      run.with_input(run.vote(Kind::all_gather, 0, 1, 9), "b"))
                .start();
    CHECK(start.result() == (first_index(start) == 'a' ? "ab" : "ba"));
    start = run.start(run.with_input(run.with_root(run.vote(Kind::broadcast, 2), run.b.uuid), ""),
                      run.with_input(run.with_root(run.vote(Kind::broadcast, 2), run.b.uuid), "xy"))
                .start();
    CHECK(start.reduced());
    CHECK(start.result() == "xy");
    for (const Kind kind : {Kind::reduce, Kind::reduce_scatter}) {
        proto::Vote one = run.vote(kind, 2, kind == Kind::reduce ? 0 : 2), other = run.vote(kind, 2);
        if (kind == Kind::reduce) one = run.with_root(one, run.a.uuid);
        if (kind == Kind::reduce) other = run.with_root(other, run.a.uuid);
        start = run.start(run.with_input(one, "\x01\x02"), run.with_input(other, "\x10\x20")).start();
        CHECK(start.reduced());
        CHECK(start.result() == "\x11\x22");
    }
    const auto rooted = [&](Kind kind, std::uint64_t own, std::uint64_t capacity, const std::string& input) {
        return run.with_input(run.with_root(run.vote(kind, 0, own, capacity), run.b.uuid), input);
    };
    start = run.start(rooted(Kind::gather, 1, 0, "a"), rooted(Kind::gather, 2, 3, "bb")).start();
    CHECK(start.reduced());
    CHECK(start.result() == (first_index(start) == 'a' ? "abb" : "bba"));
    start = run.start(rooted(Kind::scatter, 0, 2, ""), rooted(Kind::scatter, 2, 2, "xxyy")).start();
    CHECK(start.reduced());
    CHECK(start.result() == "xxyy");
    CHECK(start.members(0).count() == 2);
    proto::Vote row = run.vote(Kind::all_to_all, 0, 0, 9);
    row.add_counts(1);
    row.add_counts(2);
    start = run.start(run.with_input(row, "abb"), run.with_input(run.vote(Kind::all_to_all, 0, 1, 9), "cd")).start();
    CHECK(start.reduced());
    CHECK(start.result() == (first_index(start) == 'a' ? "abbcd" : "cdabb"));
    for (const auto& member : start.members()) {
        const bool is_a = member.peer() == to_bytes(run.a.uuid);
        CHECK(member.counts_size() == (is_a ? 2 : 0));
        CHECK(member.count() == (is_a ? 0u : 1u));
    }
    start = run.start(run.with_input(run.vote(Kind::barrier, 0), ""), run.with_input(run.vote(Kind::barrier, 0), ""))
                .start();
    CHECK(start.reduced());
    CHECK(start.members_size() == 2);
}
