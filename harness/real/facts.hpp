// What a real process did and saw, as a file that survives the death of the process at any point.
//
// The file is append-only. One record is written before a call is made, and another one when the call has returned.
// Each write holds whole records. A killed process may leave a half-written record at the end; it is ignored. Writer
// and reader are the same build on the same machine, so numbers are stored in their memory layout.
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

// The side of the process. Each write() takes from the ledger of this one process what is new since the last write.
class FactsWriter {
public:
    explicit FactsWriter(int descriptor) : descriptor_(descriptor) {}
    // False: the file cannot be written.
    bool write(const Ledger& ledger, const Counters& counters);
    // The call that the process is about to wait in; empty: none.
    void waits_in(const std::string& call, Instant since);
    void violated(const std::string& oracle, const std::string& reason);

private:
    struct Progress {  // of one list of facts
        std::size_t begun = 0;
        std::vector<std::size_t> open;  // begin written, end not written yet
    };
    template <class Fact, class Begin, class End>
    void write_list(const Facts<Fact>& facts, Progress& progress, Begin begin, End end);

    int descriptor_;
    std::string pending_;
    std::vector<std::string> lives_;  // records as they were written last
    Progress votes_, launches_, syncs_;
};

struct ProcessFacts {
    Ledger ledger;  // lives are numbered within the process
    Counters counters;
    sim::Violation violation;  // the first one that the process itself found
    std::string waits_in;
    Instant waits_since = 0;
};

// Nothing if the file cannot be read or is malformed.
std::optional<ProcessFacts> read_facts(const std::string& path);

// Merges the ledgers of all processes into one, ordered by the begin of each fact.
Ledger merge_facts(const std::vector<ProcessFacts>& processes);

}  // namespace pccl::harness
