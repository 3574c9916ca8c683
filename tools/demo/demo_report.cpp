#include "demo_report.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>
#include <unistd.h>

namespace pccl::demo {

namespace {

// For each step, the time of the last report of it.
std::map<int, double> step_ends(const std::vector<Peer>& peers) {
    std::map<int, double> ends;
    for (const auto& peer : peers) {
        for (const auto& [step, record] : peer.steps) ends[step] = std::max(ends[step], record.at_ms);
    }
    return ends;
}

}  // namespace

double now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Report::Report(std::vector<Peer>& peers) : peers_(peers), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Report::note(const std::string& text, double start_ms) {
    std::printf("%s%6.2f s  %s\n", terminal_ ? "\r\033[K" : "", (now_ms() - start_ms) / 1000, text.c_str());
    std::fflush(stdout);
}

void Report::progress(double start_ms) {
    for (int step = printed_step_ + 1;; ++step) {
        const StepRecord* shown = nullptr;
        int reports = 0;
        bool complete = true;
        std::set<std::string> contents;
        for (const auto& peer : peers_) {
            if (const auto found = peer.steps.find(step); found != peer.steps.end()) {
                shown = &found->second;
                contents.insert(shown->hash);
                ++reports;
            } else if (peer.state == Peer::State::training && peer.joined_revision < step) {
                complete = false;
            }
        }
        if (shown == nullptr || !complete) return;
        char text[160];
        std::snprintf(text, sizeof text, "step %3d  loss %.4f  %d peers  %s %s", step, shown->loss, reports,
                      contents.size() == 1 ? "all equal" : "DIFFERENT", shown->hash.substr(0, 8).c_str());
        if (terminal_) {
            std::printf("\r\033[K%6.2f s  %s", (now_ms() - start_ms) / 1000, text);
            std::fflush(stdout);
        } else {
            note(text, start_ms);
        }
        printed_step_ = step;
    }
}

double Report::median_step_ms() const {
    std::vector<double> lengths;
    double before = 0;
    for (const auto& [step, at] : step_ends(peers_)) {
        if (before > 0) lengths.push_back(at - before);
        before = at;
    }
    if (lengths.empty()) return 0;
    std::nth_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2), lengths.end());
    return lengths[lengths.size() / 2];
}

bool Report::conclude(const std::vector<Happening>& happenings) const {
    std::map<int, std::set<std::string>> contents;
    std::map<int, double> losses;
    for (const auto& peer : peers_) {
        for (const auto& [step, record] : peer.steps) {
            contents[step].insert(record.hash);
            losses[step] = record.loss;
        }
    }
    std::printf("%s\nContent of parameters and momentum, by step and peer\n\n step     loss",
                terminal_ ? "\r\033[K" : "");
    for (const auto& peer : peers_) std::printf("  %-8s", peer.name.c_str());
    std::printf("\n");
    bool parity = !contents.empty();
    for (const auto& [step, hashes] : contents) {
        std::printf("%5d  %7.4f", step, losses[step]);
        for (const auto& peer : peers_) {
            const auto found = peer.steps.find(step);
            std::printf("  %-8s", found == peer.steps.end() ? "-" : found->second.hash.substr(0, 8).c_str());
        }
        std::printf("  %s\n", hashes.size() == 1 ? "equal" : "DIFFERENT");
        parity = parity && hashes.size() == 1;
    }

    std::printf("\nWhat each event cost (a usual step takes %.0f ms)\n\n", median_step_ms());
    const auto ends = step_ends(peers_);
    for (const auto& happening : happenings) {
        // The longest time between two finished steps that overlaps the event, beyond a usual step.
        double longest = 0, before = 0;
        for (const auto& [step, at] : ends) {
            if (before > 0 && at >= happening.begin_ms && before <= happening.end_ms)
                longest = std::max(longest, at - before);
            before = at;
        }
        std::printf("  %s; took %.0f ms, delayed the run by %.0f ms\n", happening.what.c_str(),
                    happening.end_ms - happening.begin_ms, std::max(0.0, longest - median_step_ms()));
    }
    const double first = losses.empty() ? 0 : losses.begin()->second;
    const double last = losses.empty() ? 0 : losses.rbegin()->second;
    const bool learned = last < first * 0.8;
    std::printf("\nloss %.4f -> %.4f: %s\n", first, last, learned ? "learned" : "NOT LEARNED");
    std::printf("parity over %zu steps: %s\n", contents.size(), parity ? "held" : "BROKEN");
    return parity && learned;
}

}  // namespace pccl::demo
