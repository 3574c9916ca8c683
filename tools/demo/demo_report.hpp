// The demo's records of its peers, and their printed form: progress while it runs, tables at the end.
#pragma once

#include "child_process.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pccl::demo {

double now_ms();  // monotonic

struct StepRecord {
    std::string hash;
    double loss = 0;
    int world = 0;
    double at_ms = 0;
};

struct Peer {
    enum class State { starting, training, killed, left, finished, broken };
    std::string name;
    tools::ChildProcess process;
    State state = State::starting;
    int reducing_step = 0;
    std::map<int, StepRecord> steps;
    std::map<int, double> failed_at_ms;  // reduces that failed, by step
    std::map<int, double> recovered_at_ms;
    double started_ms = 0, ended_ms = 0, joined_after_ms = 0;
    long long received_bytes = 0;
    int joined_revision = -1;
    std::string last_line;
};

// One fault, join or leave, printed as a line at the end.
struct Happening {
    std::string what;
    double begin_ms = 0;  // when it was caused
    double end_ms = 0;    // when the peers had overcome it
};

class Report {
public:
    explicit Report(std::vector<Peer>& peers);
    void progress(double start_ms);                       // prints what is new
    void note(const std::string& text, double start_ms);  // a line of its own
    // Prints tables and costs. True if all hashes of each step are equal and the loss went down.
    bool conclude(const std::vector<Happening>& happenings) const;

private:
    double median_step_ms() const;

    std::vector<Peer>& peers_;
    bool terminal_;
    int printed_step_ = 0;
};

}  // namespace pccl::demo
