#include "net-sim/status_watch.hpp"

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
            lines.insert("member " + word[1] + " of " + word[3] + " at " + word[7] +
                         (word.size() > 8 ? " synced" : ""));
        } else if (word[0] == "group") {
            std::string group = "group " + word[1] + " expects " + word[3] + " runs " + word[5];
            for (std::size_t i = 7; i < word.size() && word[i] != "sync"; ++i) group += " " + word[i];
            const auto sync = std::find(word.begin(), word.end(), "sync");
            if (sync != word.end()) group += " sync " + *(sync + 3);
            lines.insert(group);
        } else if (word[0] == "operation") {
            lines.insert("operation " + word[1] + " of " + word[3] + " tag " + word[5]);
        }
    }
    return lines;
}

Lines lines_of_status(const MasterStatus& status) {
    Lines lines;
    for (const MasterStatus::Peer& peer : status.peers) {
        if (peer.state == MasterStatus::PeerState::joining || peer.state == MasterStatus::PeerState::unreachable)
            continue;
        lines.insert("member " + short_name(peer.uuid) + " of " + std::to_string(peer.group) + " at " +
                     to_text(peer.endpoint) + (peer.synced ? " synced" : ""));
    }
    for (const MasterStatus::Group& group : status.groups) {
        std::string line = "group " + std::to_string(group.id) + " expects " + std::to_string(group.expected_revision) +
                           " runs " + std::to_string(group.running);
        for (const Uuid& uuid : group.ring) line += " " + short_name(uuid);
        if (group.sync) line += " sync " + std::to_string(group.sync->revision);
        lines.insert(line);
        for (const MasterStatus::Operation& op : group.operations) {
            lines.insert("operation " + std::to_string(op.id) + " of " + std::to_string(group.id) + " tag " +
                         std::to_string(op.tag));
        }
    }
    return lines;
}

std::string list(const Lines& lines) {
    std::string text;
    for (const std::string& line : lines) text += "    " + line + "\n";
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
        const std::string name = std::string("vote '") + vote.kind + "' ";
        if (vote.voted == 0 || vote.voted > members.size()) return name + "has a wrong number of voters";
        if (vote.waits_for.size() > vote.missing) return name + "names more than it waits for";
        for (const Uuid& uuid : vote.waits_for) {
            if (!members.contains(uuid)) return name + "waits for " + short_name(uuid) + ", no member";
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
            return "of group " + std::to_string(group.id) + " " + std::to_string(group.tally.started) +
                   " operations started, " + std::to_string(ended) + " ended and " + std::to_string(group.running) +
                   " run";
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
        return "it differs from what is promised.\n  status:\n" + list(told) + "  promised:\n" + list(promised);
    const std::string votes = check_votes(status);
    return votes.empty() ? count(status) : votes;
}

}  // namespace pccl::sim
