// Scripted peers (integration_peer) around one master, and the steps with which most tests begin.
#pragma once

#include "process.hpp"

#include <memory>
#include <string>
#include <vector>

namespace integration {

// Result codes as integration_peer prints them.
inline constexpr int success = 0;
inline constexpr int invalid_argument = 3;
inline constexpr int invalid_usage = 4;
inline constexpr int too_few_peers = 5;
inline constexpr int master_connection_failed = 6;
inline constexpr int rank_connection_lost = 8;
inline constexpr int pending_async_ops = 10;
inline constexpr int update_topology_failed = 11;
inline constexpr int topology_optimization_failed = 12;

// The words of an answer after the name of the command.
struct Answer {
    int result = -1;
    std::vector<std::string> rest;
    std::uint64_t number(std::size_t index) const { return std::stoull(rest.at(index)); }
    const std::string& text(std::size_t index) const { return rest.at(index); }
};

struct ReduceAnswer {
    int result = -1;
    std::uint32_t world = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    bool matches = false;  // equals the naive reference (only if seeds were given)
    bool intact = false;   // the input is unchanged, if it had to be
    std::string hash;      // of the receive buffer
};
ReduceAnswer as_reduce(const Answer& answer);

class ScriptPeer : public Process {
public:
    // Created, not connected.
    ScriptPeer(std::uint16_t master_port, unsigned group = 0, const Environment& environment = {});
    // send() and answer() in one.
    Answer ask(const std::string& command);
    // The answer to the oldest command that has none yet. Throws if it belongs to another command.
    Answer answer(const std::string& name);
    std::uint32_t attribute(int which);
};

using PeerPtr = std::unique_ptr<ScriptPeer>;

class Cluster {
public:
    // Starts a master with its own additional options, and `count` peers of group 0, all admitted.
    explicit Cluster(std::size_t count, const Environment& environment = {},
                     const std::vector<std::string>& master_options = {});
    ScriptPeer& operator[](std::size_t index) { return *peers_.at(index); }
    std::size_t size() const { return peers_.size(); }
    MasterProcess& master() { return *master_; }
    void stop_master() { master_.reset(); }
    // Kills the master (SIGKILL) and starts another one at the same address.
    void kill_and_restart_master() {
        const std::uint16_t port = master_->port();
        master_.reset();
        master_ = std::make_unique<MasterProcess>(environment_, port, master_options_);
    }

    // Adds a connected newcomer: it connects while all present members look for pending peers and then update.
    // `variables` are for this peer only, in addition to those of the cluster.
    ScriptPeer& admit(unsigned group = 0, const Environment& variables = {});
    // The same for a peer that exists: peer `index` connects, and the peers in `members` vote.
    void readmit(std::size_t index, const std::vector<std::size_t>& members);
    // Sends `command` to the peers in `members` (all of them if empty), then reads their answers.
    std::vector<Answer> all(const std::string& command, std::vector<std::size_t> members = {});
    void remove(std::size_t index) { peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(index)); }

private:
    void vote_in(const std::vector<ScriptPeer*>& members);

    Environment environment_;
    std::vector<std::string> master_options_;
    std::unique_ptr<MasterProcess> master_;
    std::vector<PeerPtr> peers_;
};

// Arguments of reduce and launch. `seeds` are those of all members; peer `index` contributes seeds[index].
std::string reduce_arguments(int type, int op, std::size_t count, std::uint64_t tag, const std::string& place,
                             const std::vector<std::uint64_t>& seeds, std::size_t index);

}  // namespace integration
