// See cluster.hpp.
#include "cluster.hpp"

#include <numeric>
#include <stdexcept>

namespace integration {

ReduceAnswer as_reduce(const Answer& answer) {
    ReduceAnswer reduce;
    reduce.result = answer.result;
    reduce.world = static_cast<std::uint32_t>(answer.number(0));
    reduce.sent_bytes = answer.number(1);
    reduce.received_bytes = answer.number(2);
    reduce.matches = answer.number(3) != 0;
    reduce.intact = answer.number(4) != 0;
    reduce.hash = answer.text(5);
    return reduce;
}

ScriptPeer::ScriptPeer(std::uint16_t master_port, unsigned group, const Environment& environment)
    : Process({PCCL_TEST_PEER}, environment) {
    if (ask("create " + std::to_string(master_port) + " " + std::to_string(group)).result != success) {
        throw std::runtime_error("pcclCreateCommunicator failed:\n" + log_text());
    }
}

Answer ScriptPeer::answer(const std::string& name) {
    const std::string line = expect_line();
    std::vector<std::string> list = words(line);
    if (list.size() < 2 || list[0] != name) throw std::runtime_error("asked for " + name + ", got: " + line);
    Answer answer;
    answer.result = std::stoi(list[1]);
    answer.rest.assign(list.begin() + 2, list.end());
    return answer;
}

Answer ScriptPeer::ask(const std::string& command) {
    send(command);
    return answer(words(command).at(0));
}

std::uint32_t ScriptPeer::attribute(int which) {
    const Answer answer = ask("attribute " + std::to_string(which));
    if (answer.result != success) throw std::runtime_error("pcclGetAttribute failed");
    return static_cast<std::uint32_t>(answer.number(0));
}

Cluster::Cluster(std::size_t count, const Environment& environment, const std::vector<std::string>& master_options)
    : environment_(environment), master_options_(master_options),
      master_(std::make_unique<MasterProcess>(environment, std::uint16_t{0}, master_options)) {
    for (std::size_t i = 0; i < count; ++i) admit();
}

void Cluster::vote_in(const std::vector<ScriptPeer*>& members) {
    // Each pass is one vote of all members. The newcomer is pending when the members have connected to it.
    for (bool pending = false; !pending;) {
        for (ScriptPeer* member : members) member->send("pending");
        for (ScriptPeer* member : members) {
            const Answer answer = member->answer("pending");
            if (answer.result != success)
                throw std::runtime_error("pcclArePeersPending failed:\n" + member->log_text());
            pending = answer.number(0) != 0;
        }
    }
    for (ScriptPeer* member : members) member->send("update");
    for (ScriptPeer* member : members) {
        if (member->answer("update").result != success) {
            throw std::runtime_error("pcclUpdateTopology failed:\n" + member->log_text());
        }
    }
}

ScriptPeer& Cluster::admit(unsigned group, const Environment& variables) {
    Environment environment = variables;  // insert() keeps these if the cluster has the same names
    environment.insert(environment_.begin(), environment_.end());
    auto newcomer = std::make_unique<ScriptPeer>(master_->port(), group, environment);
    std::vector<ScriptPeer*> members;
    for (const PeerPtr& peer : peers_) members.push_back(peer.get());
    newcomer->send("connect");
    if (!members.empty()) vote_in(members);
    if (newcomer->answer("connect").result != success) {
        throw std::runtime_error("pcclConnect failed:\n" + newcomer->log_text());
    }
    peers_.push_back(std::move(newcomer));
    return *peers_.back();
}

void Cluster::readmit(std::size_t index, const std::vector<std::size_t>& members) {
    std::vector<ScriptPeer*> voters;
    for (const std::size_t member : members) voters.push_back(peers_.at(member).get());
    peers_.at(index)->send("connect");
    vote_in(voters);
    if (peers_.at(index)->answer("connect").result != success) {
        throw std::runtime_error("pcclConnect failed:\n" + peers_.at(index)->log_text());
    }
}

std::vector<Answer> Cluster::all(const std::string& command, std::vector<std::size_t> members) {
    if (members.empty()) {
        members.resize(peers_.size());
        std::iota(members.begin(), members.end(), std::size_t{0});
    }
    const std::string name = words(command).at(0);
    for (const std::size_t member : members) peers_.at(member)->send(command);
    std::vector<Answer> answers;
    for (const std::size_t member : members) answers.push_back(peers_.at(member)->answer(name));
    return answers;
}

std::string reduce_arguments(int type, int op, std::size_t count, std::uint64_t tag, const std::string& place,
                             const std::vector<std::uint64_t>& seeds, std::size_t index) {
    std::string list;
    for (const std::uint64_t seed : seeds) list += (list.empty() ? "" : ",") + std::to_string(seed);
    return std::to_string(type) + " " + std::to_string(op) + " " + std::to_string(count) + " " + std::to_string(tag) +
           " " + place + " " + std::to_string(seeds.at(index)) + " " + list;
}

}  // namespace integration
