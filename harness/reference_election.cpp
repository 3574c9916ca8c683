#include "harness/reference_election.hpp"

#include <algorithm>
#include <map>

namespace pccl::harness {

using core::SyncStrategy;

namespace {

// Whether every one of `winners` was certainly accepted later than `rival`.
bool surely_older(const Submission& rival, const std::vector<const Submission*>& winners) {
    return std::all_of(winners.begin(), winners.end(),
                       [&](const Submission* winner) { return rival.accepted_by < winner->asked_at; });
}

}  // namespace

bool may_win(const std::vector<Submission>& group, std::uint64_t revision, const std::vector<std::uint8_t>& content) {
    std::vector<const Submission*> offers;
    bool any_veteran = false;
    for (const Submission& submission : group) {
        if (!submission.offers(revision)) continue;
        offers.push_back(&submission);
        any_veteran = any_veteran || submission.veteran;
    }
    if (any_veteran) std::erase_if(offers, [](const Submission* offer) { return !offer->veteran; });
    std::map<std::vector<std::uint8_t>, std::vector<const Submission*>> holders;
    for (const Submission* offer : offers) holders[offer->fact->before].push_back(offer);
    const auto winners = holders.find(content);
    if (winners == holders.end()) return false;
    for (const auto& [other, members] : holders) {
        if (members.size() > winners->second.size()) return false;
        if (other == content || members.size() < winners->second.size()) continue;
        for (const Submission* rival : members) {
            if (surely_older(*rival, winners->second)) return false;
        }
    }
    return true;
}

bool may_win_with_some(const std::vector<Submission>& group, const std::vector<Submission>& unknown,
                       std::uint64_t revision, const std::vector<std::uint8_t>& content) {
    if (unknown.size() > 10) return true;
    for (unsigned some = 1; some < 1u << unknown.size(); ++some) {
        std::vector<Submission> both = group;
        for (std::size_t i = 0; i < unknown.size(); ++i) {
            if ((some >> i & 1) != 0) both.push_back(unknown[i]);
        }
        if (may_win(both, revision, content)) return true;
    }
    return false;
}

const char* broken_strategy(const SyncFact& own, const SyncFact& other) {
    const bool enforces = own.strategy == SyncStrategy::enforce_popular;
    if (enforces != (other.strategy == SyncStrategy::enforce_popular))
        return "one member enforced the popular content, another one did not, and both succeeded";
    return nullptr;
}

const char* broken_strategy(const SyncFact& own) {
    const bool changed = own.after != own.before || own.own_after != own.own_before;
    if (own.strategy == SyncStrategy::send_only && (changed || own.completion.received_bytes != 0))
        return "a member that only sends received something";
    if (own.strategy == SyncStrategy::receive_only && own.completion.sent_bytes != 0)
        return "a member that only receives sent something";
    return nullptr;
}

}  // namespace pccl::harness
