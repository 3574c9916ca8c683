// What a real process did and saw, as a file that it writes while it runs and that survives its death at any point.
//
// Append-only: a record is written before the call that it tells of is made, and another one when the call has returned.
// Each write holds whole records; what a killed process may leave half written at the end is ignored. Both ends are the
// same build on the same machine, so numbers are stored as they lie in memory.
#pragma once

#include "harness/ledger.hpp"
#include "harness/process.hpp"
#include "net-sim/world.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pccl::harness {

// The process's side. Takes from the ledger of its one process whatever is new since the last time.
class FactsWriter {
public:
    explicit FactsWriter(int descriptor) : descriptor_(descriptor) {}
    // False: the file cannot be written.
    bool write(const Ledger& ledger, const Counters& counters);
    // What the process is about to wait in; empty: nothing.
    void waits_in(const std::string& call, Instant since);
    void violated(const std::string& oracle, const std::string& reason);

private:
    struct Progress {  // of one list of facts
        std::size_t begun = 0;
        std::vector<std::size_t> open;  // begun, and not told to the end
    };
    template <class Fact, class Begin, class End>
    void write_list(const std::vector<Fact>& facts, Progress& progress, Begin begin, End end);

    int descriptor_;
    std::string pending_;
    std::vector<std::string> lives_;  // as they were written last
    Progress votes_, launches_, syncs_;
};

struct ProcessFacts {
    Ledger ledger;  // lives are numbered within the process
    Counters counters;
    sim::Violation violation;  // the first that the process noticed itself
    std::string waits_in;
    Instant waits_since = 0;
};

// Nothing if the file cannot be read or is not of this form.
std::optional<ProcessFacts> read_facts(const std::string& path);

// One ledger of several, ordered by the begin of each fact.
Ledger merge_facts(const std::vector<ProcessFacts>& processes);

}  // namespace pccl::harness
