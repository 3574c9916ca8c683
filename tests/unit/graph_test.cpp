// Every collective on a ring that is played in a plain loop: each byte arrives exactly where the table of graph.hpp
// says, and nothing else is written.
#include "core/all_reduce/operation.hpp"
#include "core/voting/in_vote.hpp"

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
        if (op->is_shared()) op->add_digest(slice, op->receive_offset(slice) + 100);
        if (op->forwards_final(slice)) op->enqueue(1, slice);
    }
    BufferRef input(std::uint32_t slice) const {
        return BufferRef{op->send, op->byte_offset(slice), op->byte_length(slice)};
    }
};

struct Ring {
    std::vector<Member> members;
    std::vector<Part> parts;
    std::uint64_t moved = 0;  // slices
    std::uint64_t bytes = 0;  // of them
    std::vector<std::uint64_t> sent_by;

    // `sends` and `receives`: the sizes of the arrays, by position.
    Ring(const Graph& graph, std::uint64_t count, const std::vector<Bytes>& inputs,
         const std::vector<std::size_t>& receives, bool in_place)
        : members(inputs.size()), parts(graph.parts), sent_by(inputs.size()) {
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
        sent_by[from] += source.length;
        op.acknowledged(next.phase, next.slice);
        if (next.phase == 0 && !op.starts(next.slice)) {
            op.give_slot(next.slice);
            Member& before = members[(from + members.size() - 1) % members.size()];
            before.op->credit = op.granted;
        }
        op.credit = to.op->granted;
        return true;
    }
    // The direct edge from the source of a part to the member behind the last copy.
    bool branches(const Part& part, std::uint32_t number) {
        bool moved_one = false;
        Member& from = members[part.source];
        Member& to = members[(part.source + part.copy_hops + 1) % members.size()];
        for (std::uint32_t slice = 0; slice < from.op->slices() && part.branch_hops != 0; ++slice) {
            if (from.op->part_of(slice) != number || from.op->half(1, slice).in != InState::landed ||
                to.op->half(1, slice).in == InState::landed)
                continue;
            REQUIRE_FALSE(to.op->takes(1, slice));
            const BufferRef place = from.op->final_ref(slice);
            std::copy_n(from.at(place), place.length, to.at(to.op->final_ref(slice)));
            to.is_final(slice);
            moved_one = true;
        }
        return moved_one;
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
            for (std::uint32_t part = 0; part < parts.size(); ++part) moves = branches(parts[part], part) || moves;
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

TEST_CASE("a hierarchical all-reduce sends the array across the network once for each host") {
    for (std::uint32_t world = 3; world <= 9; ++world) {
        for (std::uint32_t drawn_hosts = 0; drawn_hosts < 1u << world; ++drawn_hosts) {
            std::vector<std::uint32_t> ends;
            for (std::uint32_t p = 0; p < world; ++p) {
                if ((drawn_hosts >> p & 1) != 0) ends.push_back(p);
            }
            if (ends.size() < 2 || ends.size() == world || (world > 6 && drawn_hosts % 7 != 0)) continue;
            std::vector<Piece> shares;
            for (std::uint32_t p = 0; p < world; ++p) shares.push_back({0, 1 + (drawn_hosts + p) % 3});
            for (const bool even : {true, false}) {
                const std::uint64_t count = even ? 64 * ends.size() : 333;
                const bool in_place = drawn_hosts % 2 == 0;
                INFO("world " << world << ", hosts " << drawn_hosts << (even ? ", equal parts" : ""));
                const std::vector<Bytes> inputs = inputs_of(world, count);
                Ring ring(hierarchical_of(world, count, ends, even ? std::span<const Piece>{} : shares), count, inputs,
                          std::vector<std::size_t>(world, count), in_place);
                expect(ring, inputs, std::vector<Bytes>(world, sum_of(inputs)), in_place);
                if (!even) continue;
                for (const std::uint32_t end : ends)
                    CHECK(ring.sent_by[end] == 2 * (ends.size() - 1) * count / ends.size());
            }
        }
    }
}

TEST_CASE("two members send each other the whole array, and count slices alike") {
    for (const bool in_place : {false, true}) {
        for (const std::uint64_t count : {0u, 1u, 16u, 333u}) {
            INFO(count << " elements" << (in_place ? " in place" : ""));
            const std::vector<Bytes> inputs = inputs_of(2, count);
            Ring ring(pairwise_of(count), count, inputs, {count, count}, in_place);
            expect(ring, inputs, std::vector<Bytes>(2, sum_of(inputs)), in_place);
            CHECK(ring.bytes == 2 * count);
            for (std::uint32_t at = 0; at < 2; ++at) {
                const Operation& op = *ring.members[at].op;
                for (std::uint32_t slice = 0; slice < op.slices(); ++slice) CHECK(op.keeps(slice) == op.finishes(slice));
            }
        }
    }
}

TEST_CASE("a pairwise all-reduce has two members, and is neither large nor quantized") {
    CHECK(goes_pairwise(2, 256, DataType::f32, false, 1024));
    CHECK_FALSE(goes_pairwise(2, 257, DataType::f32, false, 1024));
    CHECK_FALSE(goes_pairwise(2, 1, DataType::f32, false, 0));
    CHECK_FALSE(goes_pairwise(3, 256, DataType::f32, false, 1024));
    CHECK_FALSE(goes_pairwise(2, 256, DataType::f32, true, 1024));
    CHECK_FALSE(goes_pairwise(2, ~std::uint64_t{0}, DataType::f64, false, 1024));
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
