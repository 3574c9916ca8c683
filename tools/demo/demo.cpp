// pccl-demo: a training run on this machine in which peers die, join and leave. Contents are checked at every step.
//
// Starts a master and four trainers. Kills one in the middle of an all-reduce, starts a newcomer, and asks one to
// leave. The kill counts only if a survivor's reduce failed; otherwise a replacement joins and the kill is repeated.
// Exit status: 0 if all contents were equal at all steps, the loss went down and every survivor finished; 1 otherwise;
// 2 usage.
#include "child_process.hpp"
#include "demo_report.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>

namespace pccl::demo {

namespace {

using tools::ChildProcess;
using State = Peer::State;

constexpr int total_steps = 40;
constexpr int first_kill_step = 6;
constexpr int steps_between_events = 5;
constexpr std::size_t initial_peers = 4;
constexpr int kill_attempts = 5;
constexpr double time_limit_ms = 58'000;

class Demo {
public:
    Demo() : start_ms_(now_ms()), report_(peers_) { peers_.reserve(16); }

    bool run() {
        start_master();
        for (std::size_t i = 0; i < initial_peers; ++i) start_peer();
        while (any_running()) {
            if (now_ms() - start_ms_ > time_limit_ms) throw std::runtime_error("the time limit is over");
            wait_for_output(next_action_ms_ > 0 ? std::clamp(next_action_ms_ - now_ms(), 0.0, 50.0) : 50.0);
            act();
            report_.progress(start_ms_);
        }
        return conclude();
    }

private:
    // --- processes -------------------------------------------------------------------------------------------------

    void start_master() {
        master_ = ChildProcess::start({tools::program_directory() + "pccl-master", "--listen", "127.0.0.1:0"}, {});
        const auto line = master_.read_line(10'000);
        const std::string prefix = "listening on ";
        if (!line || line->compare(0, prefix.size(), prefix) != 0)
            throw std::runtime_error("the master does not serve");
        address_ = line->substr(prefix.size());
        report_.note("master " + *line, start_ms_);
    }

    Peer& start_peer() {
        if (peers_.size() == peers_.capacity()) throw std::runtime_error("too many peers were needed");
        Peer peer;
        peer.name = std::string(1, static_cast<char>('A' + peers_.size()));
        peer.started_ms = now_ms();
        peer.process = ChildProcess::start({tools::program_directory() + "demo_trainer", address_,
                                            std::to_string(total_steps), std::to_string(1000 + peers_.size())},
                                           {"PCCL_PORT_RANGE=0"});
        peers_.push_back(std::move(peer));
        return peers_.back();
    }

    bool any_running() const {
        return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.process.running(); });
    }

    void wait_for_output(double timeout_ms) {
        std::vector<pollfd> descriptors;
        for (const auto& peer : peers_) {
            if (peer.process.output_descriptor() >= 0)
                descriptors.push_back({peer.process.output_descriptor(), POLLIN, 0});
        }
        poll(descriptors.data(), descriptors.size(), static_cast<int>(timeout_ms));
        for (auto& peer : peers_) {
            while (const auto line = peer.process.read_line(0)) read_report(peer, *line);
            // A process that has closed its output is about to end.
            if (peer.process.running() && peer.process.output_descriptor() < 0 && peer.process.wait(10'000))
                ended(peer);
        }
    }

    void read_report(Peer& peer, const std::string& line) {
        std::istringstream words(line);
        std::string kind;
        int step = 0;
        words >> kind >> step;
        peer.last_line = line;
        if (kind == "joined") {
            peer.joined_revision = step;
            words >> peer.received_bytes;
            peer.joined_after_ms = now_ms() - peer.started_ms;
            if (peer.state == State::starting) peer.state = State::training;
        } else if (kind == "reducing") {
            peer.reducing_step = step;
        } else if (kind == "failed") {
            peer.failed_at_ms[step] = now_ms();
        } else if (kind == "recovered") {
            peer.recovered_at_ms[step] = now_ms();
        } else if (kind == "step") {
            StepRecord& record = peer.steps[step];
            words >> record.loss >> record.hash >> record.world;
            record.at_ms = now_ms();
        } else if (kind == "left") {
            peer.state = State::left;
        } else if (kind == "finished") {
            peer.state = State::finished;
        } else if (kind == "error") {
            if (peer.state != State::killed) peer.state = State::broken;
            report_.note("peer " + peer.name + " reports: " + line, start_ms_);
        }
    }

    void ended(Peer& peer) {
        peer.ended_ms = now_ms();
        if (peer.state == State::killed) return;
        const int status = peer.process.wait(0).value_or(-1);
        if (status != 0) {
            report_.note("peer " + peer.name + " ended with status " + std::to_string(status) +
                             " after: " + peer.last_line,
                         start_ms_);
            peer.state = State::broken;
        }
    }

    // --- the scenario ----------------------------------------------------------------------------------------------

    std::vector<Peer*> trainers() {
        std::vector<Peer*> result;
        for (auto& peer : peers_)
            if (peer.state == State::training) result.push_back(&peer);
        return result;
    }

    int last_common_step() {
        int last = total_steps;
        for (const Peer* peer : trainers())
            last = std::min(last, peer->steps.empty() ? 0 : peer->steps.rbegin()->first);
        return last;
    }

    void act() {
        switch (phase_) {
        case Phase::before_kill: return wait_for_reduce();
        case Phase::aiming: return kill_when_due();
        case Phase::after_kill: return judge_kill();
        case Phase::before_newcomer:
            if (last_common_step() < event_step_ + steps_between_events) return;
            report_.note("newcomer " + start_peer().name + " starts", start_ms_);
            phase_ = Phase::joining;
            return;
        case Phase::joining: return welcome_newcomer();
        case Phase::before_leave: return ask_to_leave();
        case Phase::leaving: return see_off();
        case Phase::done: return;
        }
    }

    // Waits until all peers are in the reduce of the same step, so that it can run.
    void wait_for_reduce() {
        const auto group = trainers();
        if (group.size() < initial_peers) return;
        const int step = group.front()->reducing_step;
        if (step < first_kill_step || step <= event_step_) return;
        for (const Peer* peer : group)
            if (peer->reducing_step != step || peer->steps.count(step) != 0) return;
        // Milliseconds into the operation, different for each attempt.
        static constexpr double moments_ms[kill_attempts] = {6, 3, 12, 1, 20};
        event_step_ = step;
        next_action_ms_ = now_ms() + moments_ms[attempt_];
        phase_ = Phase::aiming;
    }

    void kill_when_due() {
        if (now_ms() < next_action_ms_) return;
        next_action_ms_ = 0;
        Peer& victim = *trainers().back();
        victim.state = State::killed;
        event_ms_ = now_ms();
        victim.process.send_signal(SIGKILL);
        report_.note("peer " + victim.name + " killed while it reduced step " + std::to_string(event_step_), start_ms_);
        victim_name_ = victim.name;
        phase_ = Phase::after_kill;
    }

    // Once all survivors are past the step, checks whether the reduce of one of them failed.
    void judge_kill() {
        double failed_ms = 0, recovered_ms = 0;
        for (const Peer* peer : trainers()) {
            if (peer->joined_revision < event_step_ && peer->steps.count(event_step_) == 0) return;
            if (const auto found = peer->failed_at_ms.find(event_step_); found != peer->failed_at_ms.end()) {
                failed_ms = std::max(failed_ms, found->second);
            }
            if (const auto found = peer->recovered_at_ms.find(event_step_); found != peer->recovered_at_ms.end()) {
                recovered_ms = std::max(recovered_ms, found->second);
            }
        }
        if (failed_ms > 0) {
            char text[160];
            std::snprintf(text, sizeof text,
                          "SIGKILL of %s in the reduce of step %d: failed for all after %.0f ms, retried",
                          victim_name_.c_str(), event_step_, failed_ms - event_ms_);
            happenings_.push_back({text, event_ms_, std::max(recovered_ms, failed_ms)});
            report_.note("the survivors saw the failure and reduced again without the dead peer", start_ms_);
            phase_ = Phase::before_newcomer;
            return;
        }
        if (++attempt_ == kill_attempts) throw std::runtime_error("no kill hit a running all-reduce");
        report_.note("the reduce was not hit; peer " + start_peer().name + " takes the seat for another attempt",
                     start_ms_);
        phase_ = Phase::before_kill;
    }

    void welcome_newcomer() {
        const Peer& newcomer = peers_.back();
        if (newcomer.state != State::training) return;
        char text[160];
        std::snprintf(text, sizeof text, "newcomer %s received the state of revision %d, %.1f MB",
                      newcomer.name.c_str(), newcomer.joined_revision,
                      static_cast<double>(newcomer.received_bytes) * 1e-6);
        report_.note(text, start_ms_);
        if (newcomer.received_bytes == 0) throw std::runtime_error("the newcomer received no state");
        happenings_.push_back({text, newcomer.started_ms, newcomer.started_ms + newcomer.joined_after_ms});
        event_step_ = newcomer.joined_revision;
        phase_ = Phase::before_leave;
    }

    void ask_to_leave() {
        if (last_common_step() < event_step_ + steps_between_events) return;
        leaver_ = trainers()[1];
        event_ms_ = now_ms();
        leaver_->process.send_signal(SIGTERM);
        report_.note("peer " + leaver_->name + " was asked to leave", start_ms_);
        phase_ = Phase::leaving;
    }

    void see_off() {
        if (leaver_->process.running()) return;
        if (leaver_->state != State::left) throw std::runtime_error("the peer that was asked to leave did not");
        happenings_.push_back({"peer " + leaver_->name + " left after its step", event_ms_, leaver_->ended_ms});
        report_.note("peer " + leaver_->name + " has left", start_ms_);
        phase_ = Phase::done;
    }

    bool conclude() {
        const bool good_content = report_.conclude(happenings_);
        int finished = 0, broken = 0;
        for (const auto& peer : peers_) {
            finished += peer.state == State::finished;
            broken += peer.state != State::finished && peer.state != State::killed && peer.state != State::left;
        }
        master_.send_signal(SIGTERM);
        const auto master_status = master_.wait(5'000);
        const bool good_master = master_status && *master_status == 0;
        const bool complete = phase_ == Phase::done;
        std::printf(
            "peers that finished: %d; broken: %d; all events took place: %s; master ended cleanly: %s; %.1f s in all\n",
            finished, broken, complete ? "yes" : "NO", good_master ? "yes" : "NO", (now_ms() - start_ms_) / 1000);
        return good_content && complete && good_master && broken == 0 &&
               finished == static_cast<int>(initial_peers) - 1;
    }

    enum class Phase { before_kill, aiming, after_kill, before_newcomer, joining, before_leave, leaving, done };

    double start_ms_;
    std::vector<Peer> peers_;
    Report report_;
    ChildProcess master_;
    std::string address_;
    Phase phase_ = Phase::before_kill;
    int event_step_ = 0;
    int attempt_ = 0;
    double event_ms_ = 0, next_action_ms_ = 0;
    std::string victim_name_;
    Peer* leaver_ = nullptr;
    std::vector<Happening> happenings_;
};

}  // namespace

}  // namespace pccl::demo

int main(int argc, char** argv) {
    if (argc > 1) {
        const bool help = std::strcmp(argv[1], "--help") == 0;
        std::fprintf(help ? stdout : stderr, "usage: pccl-demo\n\nTrains a small model with four peers on this "
                                             "machine; one is killed in the middle of an "
                                             "all-reduce,\none joins, one leaves. Takes less than a minute. Exit "
                                             "status 0 only if all contents were equal at "
                                             "every step.\n");
        return help ? 0 : 2;
    }
    pccl::tools::kill_children_on_interrupt();
    try {
        const bool good = pccl::demo::Demo().run();
        std::printf("demo: %s\n", good ? "held" : "FAILED");
        return good ? 0 : 1;
    } catch (const std::exception& error) {
        std::printf("\ndemo: FAILED: %s\n", error.what());
        return 1;
    }
}
