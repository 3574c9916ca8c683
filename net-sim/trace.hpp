// What happened in a run, as a running hash and (on request) as text or as one hash per event.
//
// Two runs of one seed must give the same hashes. If they differ, the list shows the first event that does.
#pragma once

#include "core/base/format.hpp"
#include "net-sim/draw.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace pccl::sim {

class Trace {
public:
    void keep_hashes(bool keep) { keep_ = keep; }
    void write_to(std::FILE* file) { file_ = file; }
    bool wants_text() const { return file_ != nullptr; }
    bool wants_state() const { return keep_ || (events_ & 15u) == 0; }

    void event(std::uint64_t content) {
        hash_ = mix(hash_, content);
        ++events_;
        if (keep_) hashes_.push_back(hash_);
    }
    void line(Instant time, std::uint32_t node, const std::string& text) {
        if (file_ == nullptr) return;
        std::fprintf(file_, "%14.6f ms  %-6s %s\n", static_cast<double>(time) / 1e6, name_of(node).c_str(),
                     text.c_str());
    }
    // For nodes that are not called `master` or `peerN`: strangers, and a second master.
    void rename(std::uint32_t node, std::string name) { names_[node] = std::move(name); }
    std::string name_of(std::uint32_t node) const {
        const auto known = names_.find(node);
        return known == names_.end() ? name(node) : known->second;
    }
    static std::string name(std::uint32_t node) {
        if (node == 0xffffffffu) return "-";
        return node == 0 ? std::string("master") : core::formatted("peer{}", node);
    }

    std::uint64_t hash() const { return hash_; }
    std::uint64_t events() const { return events_; }
    const std::vector<std::uint64_t>& hashes() const { return hashes_; }

private:
    using Instant = std::int64_t;
    std::uint64_t hash_ = 0x7063636c20736964ull;
    std::uint64_t events_ = 0;
    bool keep_ = false;
    std::FILE* file_ = nullptr;
    std::vector<std::uint64_t> hashes_;
    std::map<std::uint32_t, std::string> names_;
};

}  // namespace pccl::sim
