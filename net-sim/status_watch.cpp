#include "net-sim/status_watch.hpp"

#include "core/base/format.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

namespace pccl::sim {

using namespace core;

namespace {

// Members, groups and operations, one line each, in a form that both sides can produce.
using Lines = std::multiset<std::string>;

Lines lines_of_promised(const std::string& promised) {
    Lines lines;
    std::istringstream text(promised);
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line);
        std::vector<std::string> word;
        for (std::string next; words >> next;) word.push_back(next);
        if (word.empty()) continue;
        if (word[0] == "member") {
            const bool synced = word.size() > 8 && word[8] == "synced";
            const std::size_t gang = synced ? 9 : 8;  // place K of N of gang NAME
            const bool on_host = word.size() > 10 && word[word.size() - 3] == "on" && word[word.size() - 2] == "host";
            lines.insert(formatted("member {} of {} at {}{}{}{}", word[1], word[3], word[7], synced ? " synced" : "",
                                   word.size() > gang + 6 ? formatted(" place {} of {}", word[gang + 1], word[gang + 6])
                                                          : std::string(),
                                   on_host ? " on host " + word.back() : std::string()));
        } else if (word[0] == "group") {
            std::string group = formatted("group {} expects {} runs {}", word[1], word[3], word[5]);
            for (std::size_t i = 7; i < word.size() && word[i] != "sync"; ++i) group += " " + word[i];
            const auto sync = std::find(word.begin(), word.end(), "sync");
            if (sync != word.end()) group += " sync " + *(sync + 3);
            lines.insert(group);
        } else if (word[0] == "operation") {
            lines.insert(formatted("operation {} of {} tag {}", word[1], word[3], word[5]));
        }
    }
    return lines;
}

Lines lines_of_status(const MasterStatus& status) {
    Lines lines;
    for (const MasterStatus::Peer& peer : status.peers) {
        if (peer.state == MasterStatus::PeerState::joining || peer.state == MasterStatus::PeerState::unreachable)
            continue;
        lines.insert(formatted(
            "member {} of {} at {}{}{}{}", short_name(peer.uuid), peer.group, to_text(peer.endpoint),
            peer.synced ? " synced" : "",
            peer.gang.empty() ? std::string() : formatted(" place {} of {}", peer.place, peer.gang),
            peer.host == 0 ? std::string() : formatted(" on host {:x}", peer.host)));
    }
    for (const MasterStatus::Group& group : status.groups) {
        std::string line = formatted("group {} expects {} runs {}", group.id, group.expected_revision, group.running);
        for (const Uuid& uuid : group.ring) line += " " + short_name(uuid);
        if (group.sync) line += formatted(" sync {}", group.sync->revision);
        lines.insert(line);
        for (const MasterStatus::Operation& op : group.operations) {
            lines.insert(formatted("operation {} of {} tag {}", op.id, group.id, op.tag));
        }
    }
    return lines;
}

std::string list(const Lines& lines) {
    std::string text;
    for (const std::string& line : lines) text += formatted("    {}\n", line);
    return text;
}

std::string check_votes(const MasterStatus& status) {
    std::set<Uuid> members, waiting;
    for (const MasterStatus::Peer& peer : status.peers) {
        if (peer.state != MasterStatus::PeerState::joining && peer.state != MasterStatus::PeerState::unreachable)
            members.insert(peer.uuid);
        if (peer.call) waiting.insert(peer.uuid);
    }
    if (status.votes.size() > status.votes_open) return "it lists more votes than there are";
    if (waiting.empty() != (status.votes_open == 0)) return "votes are open and nobody waits, or the other way round";
    for (const MasterStatus::Vote& vote : status.votes) {
        const std::string name = formatted("vote '{}' ", vote.kind);
        if (vote.voted == 0 || vote.voted > members.size()) return name + "has a wrong number of voters";
        if (vote.waits_for.size() > vote.missing) return name + "names more than it waits for";
        for (const Uuid& uuid : vote.waits_for) {
            if (!members.contains(uuid)) return formatted("{}waits for {}, no member", name, short_name(uuid));
        }
        if (vote.changed < vote.opened) return name + "changed before it was opened";
    }
    return {};
}

}  // namespace

// Counts of a group are lost when the group ends; all counts are lost when a master's process ends.
std::string StatusWatch::count(const MasterStatus& status) {
    std::map<GroupId, std::uint64_t> now;
    for (const MasterStatus::Group& group : status.groups) {
        if (group.edges.size() != group.ring.size()) return "a ring has not as many edges as members";
        const std::uint64_t ended = group.tally.committed + group.tally.aborted;
        // The first process of a run has counted the start of each operation.
        if (status.incarnation == 1 && group.tally.started != ended + group.running)
            return formatted("of group {} {} operations started, {} ended and {} run", group.id, group.tally.started,
                             ended, group.running);
        const std::uint64_t before = committed_of_[group.id];
        now[group.id] = group.tally.committed;
        committed_ += group.tally.committed >= before ? group.tally.committed - before : group.tally.committed;
    }
    committed_of_ = std::move(now);
    return {};
}

std::string StatusWatch::look(const MasterMachine& machine) {
    ++looks_;
    const MasterStatus status = machine.status();
    const Lines told = lines_of_status(status), promised = lines_of_promised(machine.promised());
    if (told != promised)
        return formatted("it differs from what is promised.\n  status:\n{}  promised:\n{}", list(told), list(promised));
    const std::string votes = check_votes(status);
    return votes.empty() ? count(status) : votes;
}

}  // namespace pccl::sim
