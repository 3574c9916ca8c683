#include "core/state_sync/election.hpp"

#include "core/base/assert.hpp"
#include "core/base/probe.hpp"

#include <algorithm>
#include <map>

namespace pccl::core {

namespace {

void append_number(std::string& out, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

Hash128 digest(const std::vector<EntryInfo>& entries, bool with_contents) {
    std::string bytes;
    for (const EntryInfo& entry : entries) {
        append_number(bytes, entry.name.size());
        bytes += entry.name;
        append_number(bytes, entry.count);
        bytes.push_back(static_cast<char>(entry.type));
        bytes.push_back(entry.allow_content_inequality ? 1 : 0);
        if (with_contents && !entry.allow_content_inequality) {
            append_number(bytes, entry.hash.low);
            append_number(bytes, entry.hash.high);
        }
    }
    return numeric::hash128(bytes.data(), bytes.size());
}

// The winning value among candidates: highest rank, then most common, then the value of the longest accepted member.
Hash128 popular(const std::vector<const Candidate*>& candidates, const std::map<Uuid, Hash128>& value_of) {
    const bool any_synced =
        std::any_of(candidates.begin(), candidates.end(), [](const Candidate* c) { return c->synced; });
    struct Support {
        std::uint32_t votes = 0;
        std::uint64_t eldest = ~0ull;
    };
    std::map<Hash128, Support> support;
    for (const Candidate* candidate : candidates) {
        if (any_synced && !candidate->synced) PROBE(sync_newcomers_outranked);
        if (any_synced && !candidate->synced) continue;
        Support& entry = support[value_of.at(candidate->uuid)];
        ++entry.votes;
        entry.eldest = std::min(entry.eldest, candidate->seniority);
    }
    ASSERT(!support.empty());
    const auto best = std::max_element(support.begin(), support.end(), [](const auto& a, const auto& b) {
        if (a.second.votes != b.second.votes) return a.second.votes < b.second.votes;
        return a.second.eldest > b.second.eldest;
    });
    return best->first;
}

std::string first_difference(const std::vector<EntryInfo>& mine, const std::vector<EntryInfo>& winner) {
    std::size_t i = 0;
    while (i < mine.size() && i < winner.size() && mine[i].name == winner[i].name && mine[i].type == winner[i].type &&
           mine[i].count == winner[i].count && mine[i].allow_content_inequality == winner[i].allow_content_inequality) {
        ++i;
    }
    if (i < mine.size() && i < winner.size() && mine[i].name == winner[i].name) {
        return "key '" + mine[i].name + "' differs in type, count or flag";
    }
    if (i < winner.size() && (i >= mine.size() || winner[i].name < mine[i].name)) {
        return "key '" + winner[i].name + "' is missing";
    }
    return i < mine.size() ? "key '" + mine[i].name + "' is unknown to the others" : "keys differ";
}

}  // namespace

Hash128 schema_digest(const std::vector<EntryInfo>& entries) { return digest(entries, false); }
Hash128 content_digest(const std::vector<EntryInfo>& entries) { return digest(entries, true); }

Election elect(const std::vector<Candidate>& candidates, std::uint64_t expected) {
    ASSERT(!candidates.empty());
    Election election;
    std::vector<Candidate> sorted = candidates;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.seniority < b.seniority; });

    std::uint64_t revision = expected;
    if (expected == 0) {
        for (const Candidate& candidate : sorted) revision = std::max(revision, candidate.revision);
    }
    if (expected == 0 && revision != 0) PROBE(sync_starts_above_zero);
    election.revision = revision;

    std::vector<const Candidate*> matching;
    for (const Candidate& candidate : sorted) {
        if (candidate.revision == revision) matching.push_back(&candidate);
    }
    if (matching.empty()) {
        PROBE(sync_refused_all);
        election.failed = true;
        for (const Candidate& candidate : sorted) {
            Verdict verdict;
            verdict.uuid = candidate.uuid;
            verdict.result = Result::invalid_usage;
            verdict.reason = "no member submitted the expected shared-state revision " + std::to_string(revision) +
                             " (this one submitted " + std::to_string(candidate.revision) +
                             "): increment it by one after each synchronization";
            election.verdicts.push_back(std::move(verdict));
        }
        return election;
    }

    const bool all_equal = std::all_of(sorted.begin(), sorted.end(),
                                       [&](const Candidate& c) { return c.content == sorted.front().content; });
    std::map<Uuid, Hash128> schema, content;
    for (const Candidate& candidate : sorted) {
        ASSERT(all_equal || candidate.entries != nullptr);
        schema[candidate.uuid] = all_equal ? Hash128{} : schema_digest(*candidate.entries);
        content[candidate.uuid] = candidate.content;
    }
    const Hash128 winning_schema = popular(matching, schema);
    std::vector<const Candidate*> fitting;
    for (const Candidate* candidate : matching) {
        if (schema[candidate->uuid] == winning_schema) fitting.push_back(candidate);
    }
    const Hash128 winning_content = popular(fitting, content);
    const Candidate* winner = nullptr;
    for (const Candidate* candidate : fitting) {
        if (candidate->content == winning_content) {
            winner = candidate;
            break;
        }
    }
    ASSERT(winner != nullptr);

    for (const Candidate& candidate : sorted) {
        Verdict verdict;
        verdict.uuid = candidate.uuid;
        if (candidate.revision > revision) {
            PROBE(sync_revision_ahead);
            verdict.removed = true;
            verdict.result = Result::invalid_usage;
            verdict.reason = "shared-state revision " + std::to_string(candidate.revision) + " submitted where " +
                             std::to_string(revision) + " is expected: increment it by one after each synchronization";
        } else if (schema[candidate.uuid] != winning_schema) {
            PROBE(sync_schema_differs);
            verdict.removed = true;
            verdict.result = Result::invalid_usage;
            verdict.reason = "shared state differs from that of the others: " +
                             first_difference(*candidate.entries, *winner->entries);
        } else {
            const bool holds = candidate.content == winning_content;
            if (holds) election.holders.push_back(candidate.uuid);
            if (candidate.revision < revision) PROBE(sync_outdated_member);
            // Entries that may differ are received once, by members that never completed a sync from ones that did.
            const bool newcomer = winner->synced && !candidate.synced;
            for (std::size_t i = 0;
                 winner->entries != nullptr && candidate.entries != nullptr && i < winner->entries->size(); ++i) {
                const EntryInfo& theirs = (*winner->entries)[i];
                const bool any_content = theirs.allow_content_inequality;
                if (any_content ? !newcomer : (holds || (*candidate.entries)[i].hash == theirs.hash)) continue;
                if (any_content) PROBE(sync_any_content);
                verdict.fetch.push_back({static_cast<std::uint32_t>(i), theirs.hash, any_content});
            }
        }
        election.verdicts.push_back(std::move(verdict));
    }
    return election;
}

}  // namespace pccl::core
