// The gangs among the newcomers: which newcomer has which place, and which gangs are complete.
//
// The first newcomer that declares a place has it. A later one may be the same process, started again, while the
// master does not know yet that the earlier one is dead. So the later one waits for the place, until the earlier one
// is gone or is known to live. Members may have the name of a waiting gang too, for the same reason: a gang is
// complete only when no member has its name any more.
//
// Invariants: a place has one holder. All holders of a gang have declared the same size. A gang has at least one
// holder, or one newcomer that waits for a place.
#pragma once

#include "core/base/cause.hpp"
#include "core/base/gang.hpp"
#include "core/base/limits.hpp"
#include "core/journal/run_state.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pccl::core {

class WaitingGangs {
public:
    struct Places {
        std::uint32_t size = 0;
        std::map<std::uint32_t, Uuid> holders;
        std::vector<std::pair<std::uint32_t, Uuid>> claims;  // that wait for a place; oldest first
        bool all_taken() const { return holders.size() == size; }
        std::optional<std::uint32_t> first_missing() const;  // none: all are taken
    };

    WaitingGangs(const Limits& limits, const RunState& state) : limits_(limits), state_(state) {}

    // Why a newcomer cannot wait for the rest of this gang; empty: it can.
    Cause why_not(const Gang& gang) const;
    // How many newcomers would be complete if another one took this place; 0: the gang would still wait.
    std::size_t completed_by(const Gang& gang) const;
    // True: the gang is complete now, and was not before.
    bool enter(const Uuid& newcomer, const Gang& gang);
    void leave(const Uuid& newcomer, const Gang& gang);
    // Gives free places to those that wait for them. Returns the gangs that are complete now.
    std::vector<std::string> give_free_places();

    bool empty() const { return gangs_.empty(); }
    const std::map<std::string, Places>& all() const { return gangs_; }
    const Places* find(const std::string& name) const {
        const auto gang = gangs_.find(name);
        return gang == gangs_.end() ? nullptr : &gang->second;
    }
    // The newcomer or member that has the place; none: nobody, or `newcomer` itself.
    std::optional<Uuid> other_at(const Uuid& newcomer, const Gang& gang) const;
    // All its places are taken, and no member has its name.
    bool complete(const std::string& name) const;
    // The newcomer holds a place of a complete gang.
    bool complete_with(const Uuid& newcomer, const Gang& gang) const;
    // The number of newcomers whose gangs are not complete.
    std::size_t waiting() const;
    void check() const;

private:
    const Limits& limits_;
    const RunState& state_;
    std::map<std::string, Places> gangs_;
};

}  // namespace pccl::core
