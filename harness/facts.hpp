// What several oracles ask of the facts in a ledger.
#pragma once

#include "core/base/format.hpp"
#include "harness/excuses.hpp"
#include "harness/intervals.hpp"
#include "harness/ledger.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace pccl::harness {

template <class Fact>
bool succeeded(const Fact& fact) {
    return fact.end != open_end && fact.completion.result == core::Result::success;
}

inline std::string when(core::Instant begin, core::Instant end) {
    return core::formatted("[{} us .. {}]", begin / core::microsecond,
                           end == open_end ? "open" : core::formatted("{} us", end / core::microsecond));
}

inline bool overlap(core::Instant begin, core::Instant end, core::Instant other_begin, core::Instant other_end) {
    return begin < other_end && other_begin < end;
}

// For two facts about one operation: whether the master lost the outcome that the first member had received, before it
// sent the outcome to the second one.
template <class Fact>
bool forgotten(Excuses& excuses, const Ledger& ledger, const Fact& one, const Fact& other) {
    const Fact& first = one.end <= other.end ? one : other;
    const Fact& last = &first == &one ? other : one;
    const core::Instant both_began = std::max(one.begin, other.begin);
    if (excuses.forgotten(both_began, first.end, last.end, ledger.lives[first.life].member_until)) return true;
    // A call for many tags ends with the last of them. So this tag may have been reduced long before.
    return succeeded(last) && !last.completion.worlds.empty() &&
           excuses.forgotten(both_began, last.end, last.end, ledger.lives[last.life].member_until);
}

// Until when the vote of this call may count. If the member gave up in this call and no later call succeeded, its vote
// counts until the master notices that it is gone.
template <class Fact>
core::Instant counted_until(const Ledger& ledger, const Fact& fact, const Excuses& excuses) {
    const bool gave_up = !succeeded(fact) && ledger.gone_by(fact.life, fact.end);
    return gave_up && fact.end != open_end ? fact.end + excuses.seat_kept() : fact.end;
}

// Strangers whose votes the master may count in this time, because they repeat what a member had said to it.
inline std::size_t replaying_strangers(const Ledger& ledger, const Excuses& excuses, core::Instant begin,
                                       core::Instant end) {
    return static_cast<std::size_t>(std::count_if(
        ledger.stranger_hellos.begin(), ledger.stranger_hellos.end(), [&](const Ledger::StrangerHello& hello) {
            return hello.name.empty() && hello.at < end && excuses.counted_until(hello.last_said) >= begin;
        }));
}

// Whether a member lied about that time, so that an error may have any reason.
inline bool liar_beside(const Ledger& ledger, const Excuses& excuses, core::Instant begin, core::Instant end) {
    return std::any_of(ledger.lives.begin(), ledger.lives.end(), [&](const Life& life) {
        return life.liar && life.asked_at < end && life.gone_at > begin - excuses.seat_kept();
    });
}

// A liar may take part with another launch than that of its program. It may also have registered under a name that its
// program does not know.
inline bool may_be_a_liar(const Ledger& ledger, const core::Uuid& peer) {
    const auto life =
        std::find_if(ledger.lives.begin(), ledger.lives.end(), [&](const Life& one) { return one.peer == peer; });
    return life != ledger.lives.end() ? life->liar : !ledger.liars.empty();
}

// Whether the node sent bytes before `end` of which no other member can tell that they are false.
inline bool sent_false_bytes(const Ledger& ledger, std::uint32_t node, core::Instant end) {
    return std::any_of(ledger.false_bytes.begin(), ledger.false_bytes.end(),
                       [&](const auto& bytes) { return bytes.first == node && bytes.second <= end; });
}

template <class Fact>
std::vector<Intervals> by_life(const Ledger& ledger, const Facts<Fact>& facts) {
    std::vector<Intervals> index(ledger.lives.size());
    for (std::size_t i = 0; i < facts.size(); ++i) index[facts[i].life].add(i, facts[i].begin, facts[i].end);
    return index;
}

}  // namespace pccl::harness
