// Members that lie: their machines are honest, and what they say is changed on its way out.
//
// A liar votes, reduces and serves like the others, but claims other results, edges and limits, says things twice or not
// at all, and sends other bytes than it has. It knows the secrets of its own membership, and those of no other.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/control.pb.h"
#include "harness/ledger.hpp"
#include "net-sim/draw.hpp"
#include "net-sim/world.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pccl::harness {

// What a liar lies about (bits of Fault::value, from bit 8 on; none: everything).
enum LieAbout : std::uint32_t {
    lie_results = 1,        // end votes: success, digests, accusations
    lie_votes = 2,          // other votes: shapes, counts, windows, contents, revisions, inputs
    lie_edges = 4,          // reports about connections with others
    lie_replay = 8,         // earlier messages, again
    lie_silence = 16,       // votes and answers that never come
    lie_heard = 32,         // what it has received; that it works
    lie_garble = 64,        // any byte of any message
    lie_links = 128,        // between peers: that it is starved, what it serves, declines and wants
    lie_flow = 256,         // acknowledgements, credits
    lie_payload = 512,      // other bytes, with a checksum that fits or does not
    lie_headers = 1024,     // payload under another name
    lie_hello = 2048,       // limits, names, what it has seen
    lie_votes_anew = 4096,  // votes that its machine has not cast
    lie_works = 8192,       // that it works, and nothing else
    lie_stalls = 16384,     // operations without end: no end votes, and slices are declined, or move and never land
};
inline constexpr std::uint32_t lie_about_all = 16383;  // but lie_stalls

class Liars final : public sim::Forger {
public:
    Liars(const sim::World& world, std::uint64_t seed) : world_(world), draw_(sim::mix(seed, 920)) {}

    // The node lies about that from now on; one of so many thousand messages that could be a lie is one.
    void begin(std::uint32_t node, std::uint32_t about, std::uint32_t per_mille);
    void end(std::uint32_t node) { liars_.erase(node); }
    void draw_from(std::uint64_t seed) { draw_ = sim::Draw(sim::mix(seed, 920)); }

    bool any() const { return !liars_.empty(); }

    // When a node sent bytes or an input of which no other member can tell that they are false.
    struct FalseBytes {
        std::uint32_t node = 0;
        core::Instant at = 0;
    };
    const std::vector<FalseBytes>& false_bytes() const { return false_bytes_; }
    // What it said of its shared state.
    const std::vector<Ledger::FalseVote>& false_votes() const { return false_votes_; }

    bool lies(std::uint32_t node) const override { return liars_.contains(node); }
    bool lied(std::uint32_t node) const override { return lied_.contains(node); }
    bool forge(std::uint32_t node, std::uint32_t far, sim::Talk talk, core::Effect& effect,
               core::Effects& more) override;
    bool forge_payload(std::uint32_t node, const core::wire::BulkHeader& header,
                       std::span<std::uint8_t> payload) override;

private:
    struct Liar {
        std::uint32_t about = 0;
        std::uint32_t per_million = 0;
        std::array<std::deque<std::string>, 3> said;  // by Talk
        std::set<std::string> names;                  // of other peers, as it has named them itself
        std::uint64_t serial = 0;                     // the largest that it has used
        core::wire::BulkHeader header;                // of an earlier payload
        core::wire::FlowWord word;
        bool declines = false;                // lie_stalls: slices are declined; else they move
        std::optional<core::SendFlow> moves;  // the last slice of which it said so
    };
    bool now_and(Liar& liar, LieAbout what) {
        return (liar.about & what) != 0 && draw_.chance(liar.per_million);
    }
    bool to_master(Liar& liar, std::uint32_t node, std::string& body, std::vector<std::string>& more);
    void stall(Liar& liar, core::SendFlow& flow);
    bool to_peer(Liar& liar, std::string& body, std::vector<std::string>& more);
    bool false_vote(Liar& liar, std::uint32_t node, pccl::proto::Vote& vote);
    void false_hello(Liar& liar, pccl::proto::Hello& hello);
    void garble(std::string& body);
    void note_false_vote(std::uint32_t node, const std::string& meant, const std::string& said);
    std::string other_name(Liar& liar);

    const sim::World& world_;
    std::map<std::uint32_t, Liar> liars_;
    std::set<std::uint32_t> lied_;
    std::vector<FalseBytes> false_bytes_;
    std::vector<Ledger::FalseVote> false_votes_;
    sim::Draw draw_;
};

}  // namespace pccl::harness
