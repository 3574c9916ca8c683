#include "tools/sim-run/classes.hpp"

#include "harness/scenario.hpp"

#include <algorithm>
#include <cstdio>

namespace pccl::tools {

using namespace pccl::harness;

bool read_classes(const std::string& names, std::uint32_t& classes) {
    static constexpr struct {
        const char* name;
        std::uint32_t bit;
    } known[] = {{"none", 0},
                 {"latency", class_latency},
                 {"bandwidth", class_bandwidth},
                 {"segmentation", class_segmentation},
                 {"partition", class_partition},
                 {"connection", class_connection},
                 {"crash", class_crash},
                 {"master", class_master},
                 {"pause", class_pause},
                 {"limits", class_limits},
                 {"application", class_application},
                 {"shape", class_shape},
                 {"clock", class_clock},
                 {"sync", class_sync},
                 {"corrupt", class_corrupt},
                 {"hostile", class_hostile},
                 {"journal", class_journal},
                 {"slow", class_slow},
                 {"forever", class_forever},
                 {"steady", class_steady},
                 {"even", class_even},
                 {"liars", class_liars},
                 {"nat", class_nat},
                 {"gangs", class_gangs},
                 {"hosts", class_hosts},
                 {"mild", class_mild},
                 // Not `gangs` and `hosts`, which change the world of every run.
                 {"all", (class_gangs - 1) | class_mild}};
    classes = 0;
    for (std::size_t at = 0; at <= names.size();) {
        const std::size_t comma = std::min(names.find(',', at), names.size());
        const std::string name = names.substr(at, comma - at);
        at = comma + 1;
        bool found = false;
        for (const auto& entry : known) {
            if (name != entry.name) continue;
            classes |= entry.bit;
            found = true;
        }
        if (!found) {
            std::string names_known;
            for (const auto& entry : known) names_known += std::string(names_known.empty() ? "" : ", ") + entry.name;
            std::fprintf(stderr, "sim-run: no fault class is called '%s'; there are: %s\n", name.c_str(),
                         names_known.c_str());
            return false;
        }
    }
    return true;
}

}  // namespace pccl::tools
