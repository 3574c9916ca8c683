#include "core/topology/ring_optimizer.hpp"

#include "core/base/format.hpp"
#include "core/base/probe.hpp"
#include "core/topology/shares.hpp"
#include "core/voting/electors.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pccl::core {

namespace {
constexpr BallotKey key_of_ballot{proto::VOTE_OPTIMIZE_TOPOLOGY, 0, 0};
constexpr Duration piece_pause = 100 * microsecond;  // between two pieces, so that messages come in between
constexpr std::uint64_t better_per_cent = 99;        // a ring is changed only for a gain of more than 1 %
}  // namespace

// Lists the edges to measure: first those of the present rings, then from each member to members farther and farther
// behind it. In this order, tests that are next to each other in the list mostly concern different peers.
void RingOptimizer::begin_survey() {
    Survey& survey = survey_.emplace();
    survey.ends = turn_.now + turn_.timeouts.survey;
    std::size_t farthest = 0;
    for (const auto& [id, group] : state_.groups) farthest = std::max(farthest, group.ring.size());
    for (const auto& [id, group] : state_.groups) {
        for (const Uuid& uuid : group.ring) survey.free.emplace(uuid, true);
    }
    for (std::size_t distance = 1; distance < farthest; ++distance) {
        for (const auto& [id, group] : state_.groups) {
            const std::size_t world = group.ring.size();
            // Two members have only one ring. A group that is too large for the search keeps its own.
            if (distance >= world || world < 3 || world > TourSearch::nodes_max) continue;
            for (std::size_t i = 0; i < world; ++i) {
                const Uuid& from = group.ring[i];
                const Uuid& to = group.ring[(i + distance) % world];
                if (!bandwidths_.known(from, to, turn_.now, turn_.timeouts.edge_age))
                    survey.todo.push_back(Survey::Edge{&*survey.free.find(from), &*survey.free.find(to), false});
            }
        }
    }
    turn_.log(LogLevel::info, formatted("optimizing the topology: {} edges to measure", survey.todo.size()));
}

bool RingOptimizer::outlives_its_ballot() const { return survey_ && ballots_.find(key_of_ballot) == nullptr; }

void RingOptimizer::begin_event() {
    piece_left_ = turn_.limits.search_steps;
    if (!survey_) return;
    // The pause is over. If the search goes on, it sets the next one.
    if (survey_->next_piece <= turn_.now) survey_->next_piece = never;
    agenda_.ballots.push_back(key_of_ballot);
}

void RingOptimizer::removed(const Uuid& member, GroupId group) {
    bandwidths_.forget(member);
    abandon_tests(member, false);
    searches_.erase(group);
    shares_.erase(group);
    if (survey_) survey_->searching.erase(group);
}

void RingOptimizer::forget_run() {
    bandwidths_ = BandwidthTable{};
    survey_.reset();
    searches_.clear();
    shares_.clear();
}

void RingOptimizer::slept(Duration time) {
    if (!survey_) return;
    survey_->ends += time;
    for (auto& [id, test] : survey_->tests) test.began += time;
}

std::size_t RingOptimizer::searches_of_no_group() const {
    return static_cast<std::size_t>(std::count_if(
        searches_.begin(), searches_.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
}

std::size_t RingOptimizer::shares_of_no_group() const {
    return static_cast<std::size_t>(std::count_if(
        shares_.begin(), shares_.end(), [&](const auto& entry) { return !state_.groups.contains(entry.first); }));
}

const std::vector<std::uint32_t>& RingOptimizer::shares_of(GroupId id, const std::vector<std::uint32_t>& host_ends) {
    const std::vector<Uuid>& ring = state_.groups.at(id).ring;
    Shares& known = shares_[id];
    if (known.survey == surveys_ended_ && known.ring == ring && known.host_ends == host_ends) return known.shares;
    std::vector<std::uint32_t> finishers = host_ends;
    for (std::uint32_t i = 0; i < ring.size() && host_ends.empty(); ++i) finishers.push_back(i);
    // Edges within a host are not the slow ones.
    std::vector<std::uint64_t> rates;
    for (const std::uint32_t at : finishers) {
        const BandwidthTable::Entry* entry = bandwidths_.find(ring[at], ring[(at + 1) % ring.size()]);
        rates.push_back(entry == nullptr ? 0 : entry->bytes_per_second);
    }
    const std::vector<std::uint32_t> shares = shares_for(rates);
    known = Shares{ring, host_ends, surveys_ended_, std::vector<std::uint32_t>(shares.empty() ? 0 : ring.size())};
    for (std::size_t i = 0; i < shares.size(); ++i) known.shares[finishers[i]] = shares[i];
    return known.shares;
}

void RingOptimizer::end_test(std::uint64_t id) {
    const auto test = survey_->tests.find(id);
    test->second.edge->from->second = test->second.edge->to->second = true;
    survey_->tests.erase(test);
}

void RingOptimizer::abandon_tests(const Uuid& uuid, bool as_sender_only) {
    if (!survey_) return;
    std::vector<std::uint64_t> over;
    for (const auto& [id, test] : survey_->tests) {
        if (test.edge->from->first == uuid || (!as_sender_only && test.edge->to->first == uuid)) over.push_back(id);
    }
    if (!over.empty()) PROBE(bandwidth_test_given_up);
    for (const std::uint64_t id : over) end_test(id);
}

void RingOptimizer::start_tests() {
    Survey& survey = *survey_;
    std::vector<std::uint64_t> late;
    const Duration time = turn_.timeouts.dial + 2 * turn_.timeouts.test + turn_.timeouts.handshake;
    for (const auto& [id, test] : survey.tests) {
        if (turn_.now - test.began > time) late.push_back(id);
    }
    if (!late.empty()) PROBE(bandwidth_test_given_up);
    for (const std::uint64_t id : late) end_test(id);
    if (turn_.now >= survey.ends) {
        if (survey.next < survey.todo.size()) PROBE(survey_cut_off);
        survey.next = survey.todo.size();
    }
    for (std::size_t i = survey.next; i < survey.todo.size(); ++i) {
        Survey::Edge& edge = survey.todo[i];
        if (i == survey.next && edge.tried) ++survey.next;
        if (edge.tried || !edge.from->second || !edge.to->second) continue;
        const Uuid& from = edge.from->first;
        const Uuid& to = edge.to->first;
        const auto target = roster_.addresses_for(from, to);
        if (!state_.members.contains(from) || !target) {
            edge.tried = true;
            continue;
        }
        if (!roster_.present(from) || !roster_.present(to)) continue;
        edge.tried = true;
        edge.from->second = edge.to->second = false;
        const std::uint64_t id = decisions_.next_id();
        survey.tests.emplace(id, Survey::Test{&edge, turn_.now});
        survey.searching.clear();  // a search that has begun does not know what this test will measure
        proto::MasterMessage message;
        message.mutable_test()->set_test(id);
        message.mutable_test()->mutable_target()->set_peer(to_bytes(to));
        write(*target, *message.mutable_test()->mutable_target());
        roster_.add_pass(from, *message.mutable_test()->mutable_target());
        roster_.say(from, std::move(message));
    }
}

void RingOptimizer::measured(const Uuid& uuid, const proto::Measured& measured) {
    const auto test =
        survey_ ? survey_->tests.find(measured.test()) : std::map<std::uint64_t, Survey::Test>::iterator{};
    if (!survey_ || test == survey_->tests.end() || test->second.edge->from->first != uuid) {
        PROBE(bandwidth_report_late);
        return;
    }
    const Uuid to = test->second.edge->to->first;
    end_test(measured.test());
    if (measured.bytes() == 0) {
        turn_.log(LogLevel::info, formatted("the bandwidth from peer {} to peer {} could not be measured",
                                            short_name(uuid), short_name(to)));
        return;
    }
    const auto longest = static_cast<std::uint64_t>(turn_.timeouts.survey);
    const auto duration = static_cast<Duration>(std::clamp<std::uint64_t>(measured.nanoseconds(), 1, longest));
    bandwidths_.record(uuid, to, measured.bytes(), duration, turn_.now);
    turn_.log(LogLevel::debug, formatted("bandwidth from peer {} to peer {}: {} bytes per second", short_name(uuid),
                                         short_name(to), bandwidths_.find(uuid, to)->bytes_per_second));
}

// The search for the group as it is now. Keeps the existing search if neither members nor costs have changed.
RingOptimizer::RingSearch& RingOptimizer::search_of(GroupId id) {
    const std::vector<Uuid>& ring = state_.groups.at(id).ring;
    const auto existing = searches_.find(id);
    const std::vector<Uuid> nodes =
        existing != searches_.end() && existing->second.nodes.size() == ring.size() ? existing->second.nodes : ring;
    std::vector<std::uint32_t> costs = bandwidths_.costs(nodes);
    for (std::size_t from = 0; from < nodes.size(); ++from) {
        for (std::size_t to = 0; to < nodes.size(); ++to) {
            if (from != to && edges_.marked(nodes[from], nodes[to], turn_.now))
                costs[from * nodes.size() + to] = TourSearch::cost_max;
        }
    }
    const bool same_members = std::is_permutation(nodes.begin(), nodes.end(), ring.begin(), ring.end());
    if (existing != searches_.end() && same_members && existing->second.tour.costs() == costs) return existing->second;
    if (!same_members) {
        searches_.erase(id);
        return search_of(id);
    }
    std::vector<TourSearch::Node> start;
    for (const Uuid& uuid : ring)
        start.push_back(static_cast<TourSearch::Node>(std::find(nodes.begin(), nodes.end(), uuid) - nodes.begin()));
    const std::uint64_t seed = turn_.random.next();
    searches_.erase(id);
    return searches_
        .emplace(id, RingSearch{nodes, TourSearch(std::move(costs), std::move(start), seed,
                                                  turn_.limits.search_background_steps)})
        .first->second;
}

// Returns true when the searches that the callers wait for are done.
bool RingOptimizer::search_rings() {
    for (const auto& [id, group] : state_.groups) {
        if (group.ring.size() < 3 || group.ring.size() > TourSearch::nodes_max) continue;
        RingSearch& search = survey_->searching.contains(id) ? searches_.at(id) : search_of(id);
        survey_->searching.try_emplace(id, search.tour.steps());
        while (!search.tour.over() &&
               search.tour.steps() - survey_->searching.at(id) < turn_.limits.search_answer_steps) {
            if (piece_left_ == 0) {
                PROBE(ring_searched_in_pieces);
                survey_->next_piece = turn_.now + piece_pause;
                return false;
            }
            const std::uint64_t before = search.tour.steps();
            search.tour.run(piece_left_);
            piece_left_ -= std::min(piece_left_, search.tour.steps() - before);
        }
    }
    return true;
}

void RingOptimizer::search_in_background() {
    if (survey_) return;
    for (auto& [id, search] : searches_) {
        if (search.tour.over()) continue;
        search.tour.run(turn_.limits.search_steps);
        return;
    }
}

void RingOptimizer::adopt_rings() {
    std::vector<GroupId> groups;
    for (const auto& [id, searched] : survey_->searching) groups.push_back(id);
    for (const GroupId id : groups) {
        const RingSearch& search = searches_.at(id);
        std::vector<TourSearch::Node> present;
        for (const Uuid& uuid : state_.groups.at(id).ring) {
            const auto node = std::find(search.nodes.begin(), search.nodes.end(), uuid);
            present.push_back(static_cast<TourSearch::Node>(node - search.nodes.begin()));
        }
        const std::uint64_t cost = search.tour.cost_of(present);
        const std::uint64_t best = search.tour.best_cost();
        turn_.log(LogLevel::info,
                  formatted("ring of group {}: {} ps per byte over its edges, the best that was found has {}{}", id,
                            cost, best, search.tour.proved() ? ", which is optimal" : ""));
        if (best >= cost * better_per_cent / 100) continue;
        const auto& ring = search.tour.best();
        bool marked = false;
        for (std::size_t i = 0; i < ring.size(); ++i)
            marked =
                marked || edges_.marked(search.nodes[ring[i]], search.nodes[ring[(i + 1) % ring.size()]], turn_.now);
        if (marked) continue;
        PROBE(ring_optimized);
        proto::Decision decision;
        decision.mutable_ring()->set_group(id);
        std::string text = formatted("ring of group {} changed from", id);
        for (const Uuid& uuid : state_.groups.at(id).ring) text += " " + short_name(uuid);
        text += " to";
        for (const TourSearch::Node node : search.tour.best()) {
            decision.mutable_ring()->add_order(to_bytes(search.nodes[node]));
            text += " " + short_name(search.nodes[node]);
        }
        turn_.log(LogLevel::info, text);
        decisions_.append(decision);
        agenda_.topology = agenda_.everything = true;
    }
}

void RingOptimizer::examine() {
    const Ballot* ballot = ballots_.find(key_of_ballot);
    const std::vector<Uuid> electors = electors_of(state_, key_of_ballot);
    if (ballot == nullptr || !ballot->complete(electors)) {
        survey_.reset();
        return;
    }
    proto::Decision decision;
    decision.set_optimize(true);
    if (electors.size() < 2) {
        PROBE(optimize_left_alone);
        decision.set_result(static_cast<std::uint32_t>(Result::topology_optimization_failed));
        write(make_cause<CauseKind::run_left_alone>(), *decision.mutable_cause());
    } else {
        if (!survey_) begin_survey();
        start_tests();
        if (!survey_->tests.empty() || !search_rings()) return;
        adopt_rings();
        ++surveys_ended_;
    }
    survey_.reset();
    add_seats(ballots_.take(key_of_ballot), *decision.mutable_seats());
    *decision.mutable_sizes() = state_.sizes();
    decisions_.append(decision);
}

}  // namespace pccl::core
