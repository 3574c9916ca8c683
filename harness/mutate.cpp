#include "harness/mutate.hpp"

#include "harness/draw_units.hpp"
#include "harness/fault_refs.hpp"
#include "harness/settle.hpp"
#include "harness/triggers.hpp"

#include <algorithm>
#include <utility>

namespace pccl::harness {

using namespace core;
using sim::Draw;

namespace {

constexpr std::size_t faults_most = 24;
constexpr std::uint32_t peers_most = 6;
constexpr std::uint64_t phase_count_most = 30;

// Moves a time earlier or later, mostly by up to 100 ms, sometimes by up to 5 s. Never below 0.
Duration near(Duration time, Draw& draw) {
    const Duration step = draw.log_uniform(microsecond, draw.chance(800'000) ? 100 * millisecond : 5 * second);
    return std::max<Duration>(draw.chance(500'000) ? time + step : time - step, 0);
}

// A count from 1 to `most`: mostly near `count`, sometimes any.
std::uint32_t near_count(std::uint32_t count, std::uint64_t most, Draw& draw) {
    if (draw.chance(300'000)) return static_cast<std::uint32_t>(draw.log_uniform(1, static_cast<std::int64_t>(most)));
    const auto step = static_cast<std::int64_t>(draw.log_uniform(1, 1 + count / 2));
    const std::int64_t near = draw.chance(500'000) ? count + step : count - step;
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(near, 1, static_cast<std::int64_t>(most)));
}

class Mutation {
public:
    Mutation(Scenario& scenario, const Scenario& donor, const EffectCounts& effects, Draw& draw)
        : s_(scenario), donor_(donor), effects_(effects), draw_(draw) {}

    void change() {
        struct Way {
            std::uint32_t weight;
            bool (Mutation::*apply)();
        };
        static constexpr Way ways[] = {
            {30, &Mutation::redraw_the_rest}, {12, &Mutation::move_fault},   {10, &Mutation::tie_fault},
            {10, &Mutation::follow_fault},    {5, &Mutation::splice_faults}, {8, &Mutation::change_fault},
            {16, &Mutation::remove_fault},    {4, &Mutation::repeat_fault},  {8, &Mutation::change_workload},
            {6, &Mutation::change_limit},     {3, &Mutation::take_workload}, {3, &Mutation::take_network},
            {3, &Mutation::take_limits},      {6, &Mutation::change_peers},
        };
        std::uint32_t sum = 0;
        for (const Way& way : ways) sum += way.weight;
        for (int tries = 0; tries < 10; ++tries) {
            auto at = static_cast<std::uint32_t>(draw_.below(sum));
            const Way* way = ways;
            while (at >= way->weight) at -= (way++)->weight;
            if ((this->*way->apply)()) return;
        }
    }

private:
    Fault* any_fault() { return s_.faults.empty() ? nullptr : &s_.faults[draw_.below(s_.faults.size())]; }
    // A fault of the donor that follows no other fault, or null. While the scenario has few faults, the kind is mostly
    // one that it already has: the fewer kinds of faults a run has, the less its oracles forgive.
    const Fault* any_of_donor() {
        if (donor_.faults.empty()) return nullptr;
        const Fault& f = donor_.faults[draw_.below(donor_.faults.size())];
        return f.follows == 0 && may_join(f) ? &f : nullptr;
    }
    bool may_join(const Fault& f) {
        return s_.faults.size() > 3 || draw_.chance(300'000) ||
               std::any_of(s_.faults.begin(), s_.faults.end(), [&](const Fault& own) { return own.kind == f.kind; });
    }
    bool room() const { return s_.faults.size() < faults_most; }
    std::uint32_t any_node() { return draw_.number(0, static_cast<std::uint32_t>(s_.peers.size())); }
    std::uint32_t any_peer() { return draw_.number(1, static_cast<std::uint32_t>(s_.peers.size())); }

    // Keeps conditions and faults. Delays, contents and the choices of the programs change.
    bool redraw_the_rest() {
        s_.seed = draw_.bits() >> 1;
        return true;
    }

    bool move_fault() {
        Fault* f = any_fault();
        if (f == nullptr) return false;
        if (f->trigger != 0 && draw_.chance(700'000)) {
            f->trigger_count = near_count(f->trigger_count, effect_count(f->trigger), draw_);
        } else {
            f->at = near(f->at, draw_);
        }
        return true;
    }

    std::uint64_t effect_count(std::uint32_t trigger) const {
        if (!is_effect(trigger)) return trigger == 0 ? 1 : phase_count_most;
        return std::max<std::uint64_t>(effects_[trigger - 1], 1);
    }

    bool tie_fault() {
        Fault* f = any_fault();
        if (f == nullptr) return false;
        if (f->trigger != 0 && draw_.chance(200'000)) {
            f->trigger = f->trigger_count = 0;
            f->place = FaultPlace::named;
            f->at = draw_.between(0, std::min(s_.chaos_end, busy_time(s_)));
            return true;
        }
        return draw_.chance(300'000) ? tie_to_phase(*f) : tie(*f);
    }

    bool tie(Fault& f) {
        const auto effect = static_cast<std::uint32_t>(draw_.below(sim::effect_kinds));
        if (effects_[effect] == 0) return false;
        f.trigger = effect + 1;
        f.follows = 0;
        const auto most = static_cast<std::int64_t>(effects_[effect]);
        f.trigger_count =
            static_cast<std::uint32_t>(draw_.chance(500'000) ? draw_.log_uniform(1, most) : draw_.between(1, most));
        f.at = draw_.chance(200'000) ? 0 : draw_.log_uniform(microsecond, 30 * millisecond);
        return true;
    }

    bool tie_to_phase(Fault& f) {
        f.trigger = trigger_of(static_cast<Phase>(draw_.below(static_cast<std::uint64_t>(Phase::count))));
        if (draw_.chance(200'000)) f.trigger = trigger_of(static_cast<Probe>(draw_.below(probe_count)));
        f.trigger_count = static_cast<std::uint32_t>(draw_.log_uniform(1, phase_count_most));
        f.follows = 0;
        f.at = draw_.chance(300'000) ? 0 : draw_.log_uniform(10 * microsecond, 50 * millisecond);
        f.place = static_cast<FaultPlace>(draw_.below(3));
        return true;
    }

    // Adds a copy of a donor's fault or of an own fault. It begins some time after one of the own faults.
    bool follow_fault() {
        const Fault* first = any_fault();
        const Fault* behind = draw_.chance(700'000) ? any_of_donor() : any_fault();
        if (first == nullptr || behind == nullptr || !room()) return false;
        Fault f = *behind;
        if (draw_.chance(600'000)) {
            f.trigger = f.trigger_count = 0;
            f.follows = static_cast<std::uint32_t>(first - s_.faults.data()) + 1;
            f.behind_its_end = draw_.chance(200'000);
            f.place = static_cast<FaultPlace>(draw_.below(3));
            f.at = draw_.log_uniform(draw_.chance(300'000) ? microsecond : 2 * millisecond,
                                     draw_.chance(700'000) ? 50 * millisecond : s_.timeouts.peer);
            s_.faults.push_back(f);
            return true;
        }
        f.trigger = first->trigger;
        f.trigger_count = first->trigger_count;
        f.follows = first->follows;
        f.behind_its_end = first->behind_its_end;
        f.at =
            first->at + (draw_.chance(200'000) ? first->duration : 0) + draw_.log_uniform(10 * microsecond, 2 * second);
        if (draw_.chance(300'000)) f.a = first->a;
        s_.faults.push_back(f);
        return true;
    }

    bool splice_faults() {
        if (donor_.faults.empty()) return false;
        const bool instead = draw_.chance(400'000);
        if (instead) s_.faults.clear();
        std::vector<std::uint32_t> places(donor_.faults.size());
        for (std::size_t i = 0; i < donor_.faults.size(); ++i) {
            const Fault& f = donor_.faults[i];
            if (!room() || (!instead && (!draw_.chance(500'000) || !may_join(f)))) continue;
            // The copy keeps its reference if the fault that it follows was copied before it. Otherwise it is untied.
            const std::uint32_t first = f.follows == 0 ? 0 : places[f.follows - 1];
            s_.faults.push_back(first == 0 ? untied(donor_.faults, f) : f);
            s_.faults.back().follows = first;
            places[i] = static_cast<std::uint32_t>(s_.faults.size());
        }
        return true;
    }

    bool change_fault() {
        Fault* f = any_fault();
        if (f == nullptr) return false;
        switch (draw_.below(5)) {
        case 0: f->a = f->kind == FaultKind::partition ? f->a ^ (1u << any_peer() % 31) : any_node(); break;
        case 1: change_b(*f); break;
        case 2: change_value(*f); break;
        case 3: f->forever = !f->forever && may_last(s_, *f); break;
        default:
            f->duration = std::clamp<Duration>(f->duration * draw_.between(1, 16) / draw_.between(1, 16), microsecond,
                                               60 * second);
        }
        return true;
    }

    void change_b(Fault& f) {
        switch (f.kind) {
        case FaultKind::one_way:
        case FaultKind::flap:
        case FaultKind::cut_pair: f.b = any_node(); break;
        case FaultKind::swallow:
        case FaultKind::garble:
        case FaultKind::snap: f.b = any_peer(); break;
        case FaultKind::reset:
        case FaultKind::end_early:
        case FaultKind::half_open:
        case FaultKind::stall:
        case FaultKind::corrupt: f.b = f.trigger != 0 ? draw_.number(0, 31) : draw_.number(0, 1); break;
        case FaultKind::pause: f.b = draw_.number(0, 1); break;
        case FaultKind::stuck_disk: f.b = near_count(f.b, 3'000, draw_); break;
        case FaultKind::hostile:
        case FaultKind::replayed_hello: f.b = near_count(f.b, 30, draw_); break;
        case FaultKind::liar: f.b = static_cast<std::uint32_t>(draw_.log_uniform(1, 1'000)); break;
        case FaultKind::older_journal: f.b = near_count(f.b, 20, draw_); break;
        default: f.b = near_count(f.b, 100, draw_);
        }
    }

    void change_value(Fault& f) {
        switch (f.kind) {
        case FaultKind::slow_disk: f.value = static_cast<std::uint64_t>(draw_.log_uniform(1, 2'000)); break;
        case FaultKind::slow_compute: f.value = static_cast<std::uint64_t>(draw_.log_uniform(2, 1'000)) - 1; break;
        case FaultKind::swallow:
            f.value = static_cast<std::uint64_t>(draw_.log_uniform(32, 2 * s_.limits.slice_bytes + 32));
            break;
        case FaultKind::snap:
            f.value = draw_.chance(500'000)
                          ? static_cast<std::uint64_t>(draw_.log_uniform(100, 8 * s_.limits.slice_bytes + 100))
                          : draw_.bits() | 1ull << 32;
            break;
        case FaultKind::flap: f.value = static_cast<std::uint64_t>(draw_.log_uniform(1, 2'000)); break;
        case FaultKind::garble: f.value = draw_.bits() | 1ull << 32; break;
        default: f.value = draw_.chance(500'000) ? draw_.bits() : f.value ^ (1ull << draw_.below(4));
        }
    }

    bool remove_fault() {
        if (s_.faults.empty()) return false;
        const Fault gone = *any_fault();
        if (draw_.chance(500'000)) {
            remove_faults(
                s_.faults, [&](const Fault& f) { return f.kind == gone.kind; }, Followers::stay);
        } else {
            const Fault* one = any_fault();
            remove_faults(
                s_.faults, [one](const Fault& f) { return &f == one; },
                draw_.chance(500'000) ? Followers::go : Followers::stay);
        }
        return true;
    }

    bool repeat_fault() {
        Fault* f = any_fault();
        if (f == nullptr) return false;
        if (draw_.chance(300'000)) {
            f->again = draw_.number(1, 12);
            f->every = draw_.log_uniform(millisecond, 500 * millisecond);
            return true;
        }
        Fault again = *f;
        const Duration gap = draw_.log_uniform(millisecond, 2 * second);
        for (std::uint32_t i = draw_.number(1, 4); i-- != 0 && room();) {
            again.at += again.duration % (2 * second) + gap;
            s_.faults.push_back(again);
        }
        return true;
    }

    static void per_mille(std::uint32_t& value, std::uint32_t most, Draw& draw) {
        value = value != 0 && draw.chance(300'000) ? 0 : draw.number(1, most);
    }

    bool change_workload() {
        Workload& w = s_.workload;
        switch (draw_.below(25)) {
        case 0: w.pump = !w.pump; break;
        case 1: w.tags = draw_.number(w.tags == 0 ? 0 : 1, 9); break;
        case 2: w.elements_max = static_cast<std::uint32_t>(draw_.log_uniform(1, 1'200)); break;
        case 3: w.entries = draw_.number(1, 4); break;
        case 4: w.own_entries_per_mille = w.own_entries_per_mille != 0 ? 0 : 500; break;
        case 5: w.compute_max = draw_.log_uniform(10 * microsecond, 300 * millisecond); break;
        case 6: w.in_place_per_mille = 500 * draw_.number(0, 2); break;
        case 7: per_mille(w.mismatch_per_mille, 80, draw_); break;
        case 8: per_mille(w.twice_per_mille, 300, draw_); break;
        case 9: per_mille(w.leave_in_flight_per_mille, 100, draw_); break;
        case 10: per_mille(w.drift_per_mille, 600, draw_); break;
        case 11: per_mille(w.hasty_revision_per_mille, 500, draw_); break;
        case 12: per_mille(w.schema_per_mille, 300, draw_); break;
        case 13: w.async_sync = !w.async_sync; break;
        case 14: per_mille(w.odd_strategy_per_mille, 300, draw_); break;
        case 15: w.checkpoints = !w.checkpoints; break;
        case 16: per_mille(w.cross_per_mille, 100, draw_); break;
        case 17: per_mille(w.early_update_per_mille, 1000, draw_); break;
        case 18:
            w.many_window =
                w.many_window != 0 && draw_.chance(300'000) ? 0 : static_cast<std::uint32_t>(draw_.log_uniform(1, 16));
            break;
        case 19: per_mille(w.quantized_per_mille, 1000, draw_); break;
        case 20: per_mille(w.optimize_per_mille, 1000, draw_); break;
        case 21: per_mille(w.collectives_per_mille, 1000, draw_); break;
        case 22: per_mille(w.sends_per_mille, 1000, draw_); break;
        case 23: per_mille(w.pieces_per_mille, 1000, draw_); break;
        default: w.state_elements_max = static_cast<std::uint32_t>(draw_.log_uniform(1, 1'500)); break;
        }
        return true;
    }

    bool change_limit() {
        Limits& l = s_.limits;
        switch (draw_.below(16)) {
        case 0: l.concurrent_ops = draw_.number(1, 16); break;
        case 1: l.eager_bytes = l.slice_bytes * draw_.number(1, 4); break;
        case 2: l.min_slots = draw_.number(1, 4); break;
        case 3: l.scratch_bytes = std::uint64_t{l.slice_bytes} * l.min_slots * draw_.number(1, 4); break;
        case 4: l.chunks_in_flight = draw_.number(1, 16); break;
        case 5: l.hashes_in_flight = draw_.number(1, 4); break;
        case 6: l.journal_records = static_cast<std::uint32_t>(draw_.log_uniform(1, 60)); break;
        case 7: l.ids_per_incarnation = static_cast<std::uint32_t>(draw_.log_uniform(1, 200)); break;
        case 8: l.newcomer_links_max = draw_.number(1, 6); break;
        case 9: l.slice_bytes = static_cast<std::uint32_t>(draw_.log_uniform(16, 4096)) / 8 * 8; break;
        case 10: l.chunk_bytes = static_cast<std::uint32_t>(draw_.log_uniform(16, 4096)) / 8 * 8; break;
        case 11:
            s_.world.allocation_fails_per_million =
                static_cast<std::uint32_t>(draw_.chance(300'000) ? 0 : draw_.log_uniform(500, 300'000));
            break;
        case 12:
            s_.world.wrong_chunks_per_million =
                static_cast<std::uint32_t>(draw_.chance(300'000) ? 0 : draw_.log_uniform(1'000, 300'000));
            break;
        case 13: s_.timeouts.peer = draw_.log_uniform(second, 10 * second); break;
        case 14: s_.timeouts.master = draw_.log_uniform(second, 30 * second); break;
        default: s_.timeouts.vote = draw_.chance(300'000) ? 0 : draw_.log_uniform(5 * second, 60 * second); break;
        }
        return true;
    }

    bool take_workload() {
        s_.workload = donor_.workload;
        s_.limits = donor_.limits;  // the sizes of a workload must fit its limits
        s_.uneven_limits = donor_.uneven_limits;
        s_.timeouts.vote = donor_.timeouts.vote;
        return true;
    }

    bool take_network() {
        if (!donor_.world.network.regions.empty()) return false;
        const std::uint32_t texts = s_.world.long_texts_per_million;
        s_.world = donor_.world;
        s_.world.long_texts_per_million = std::min(texts, donor_.world.long_texts_per_million);
        return true;
    }

    bool take_limits() {
        s_.timeouts = donor_.timeouts;
        s_.limits.concurrent_ops = donor_.limits.concurrent_ops;
        s_.limits.chunks_in_flight = donor_.limits.chunks_in_flight;
        s_.limits.hashes_in_flight = donor_.limits.hashes_in_flight;
        s_.limits.journal_records = donor_.limits.journal_records;
        s_.limits.ids_per_incarnation = donor_.limits.ids_per_incarnation;
        s_.limits.newcomer_links_max = donor_.limits.newcomer_links_max;
        take_units(s_.limits, donor_.limits);
        if (draw_.chance(300'000)) draw_units(s_.limits, draw_, 150'000);
        return true;
    }

    bool change_peers() {
        PeerPlan& plan = s_.peers[draw_.below(s_.peers.size())];
        switch (draw_.below(7)) {
        case 6: plan.host = draw_.number(0, 3); break;
        case 0: plan.start = draw_.log_uniform(millisecond, 2 * second); break;
        case 1: plan.turns = draw_.number(3, 14); break;
        case 2: plan.rejoins = !plan.rejoins; break;
        case 3: {
            const std::uint32_t stripes = draw_.number(1, 4);
            for (PeerPlan& each : s_.peers) each.stripes = stripes;
            break;
        }
        case 4:
            if (s_.peers.size() >= peers_most || !s_.world.network.regions.empty()) return false;
            s_.peers.push_back(PeerPlan(plan));
            break;
        default:
            if (s_.peers.size() <= 2 || !s_.world.network.regions.empty()) return false;
            s_.peers.pop_back();
        }
        return true;
    }

    Scenario& s_;
    const Scenario& donor_;
    const EffectCounts& effects_;
    Draw& draw_;
};

// A run keeps what each call was given and has returned. This many bytes, so that a search runs on a small machine.
constexpr std::uint64_t kept_bytes_max = std::uint64_t{1} << 30;

void fit_memory(Scenario& s) {
    Workload& w = s.workload;
    std::uint64_t turns = 0;
    for (const PeerPlan& plan : s.peers) turns += plan.turns;
    const auto fit = [&](std::uint64_t arrays, std::uint32_t& least, std::uint32_t& most) {
        const std::uint64_t elements = kept_bytes_max / (16 * std::max<std::uint64_t>(turns * arrays, 1));
        most = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, std::max<std::uint64_t>(elements, 1)));
        least = std::min(least, most);
    };
    fit(w.entries, w.state_elements_min, w.state_elements_max);
    if (!s.world.symbolic) fit(w.tags, w.elements_min, w.elements_max);
}

// What all stripes of a member have on their way must not delay a heartbeat for more than half of the peer time-out.
void fit_queues(Scenario& s) {
    const sim::NetworkParameters& n = s.world.network;
    std::uint32_t stripes = 1;
    for (const PeerPlan& plan : s.peers) stripes = std::max(stripes, plan.stripes);
    const std::int64_t rate = std::max<std::int64_t>(n.rate_least() / 1000, 1);
    s.timeouts.peer = std::max(s.timeouts.peer, 2 * stripes * n.window_high / rate * millisecond);
}

}  // namespace

Scenario mutate(const Scenario& parent, const Scenario& donor, const EffectCounts& effects, Draw& draw) {
    // The sizes of a huge scenario depend on each other, so it is never mixed or changed.
    if (is_huge(parent)) return parent;
    if (is_huge(donor)) return mutate(parent, parent, effects, draw);
    Scenario child = parent;
    child.expectations.clear();
    Mutation mutation(child, donor, effects, draw);
    std::uint32_t changes = 1;
    while (changes < 5 && draw.chance(500'000)) ++changes;
    while (changes-- != 0) mutation.change();
    fit_memory(child);
    fit_queues(child);
    settle(child);
    // Programs that wait for more members than there are never go on.
    const auto core = static_cast<std::uint32_t>(child.core.size());
    child.workload.world_min = std::clamp(child.workload.world_min, 1u, std::max(core, 1u));
    return child;
}

}  // namespace pccl::harness
