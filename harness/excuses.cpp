#include "harness/excuses.hpp"

#include "core/base/format.hpp"

#include <algorithm>

namespace pccl::harness {

using namespace core;

namespace {

// After a blockade each stream goes on within this time (Network::unblock). The ends of a reset connection notice the
// reset within it.
constexpr Duration network_notices = 400 * millisecond;

constexpr Duration witness_fresh = 1 * second;  // connections that closed within this time look like a death

bool overlap(Instant from, Instant until, Instant other_from, Instant other_until) {
    return from <= other_until && other_from <= until;
}

// Adds `by`, but leaves `never` as it is: a span may last for ever.
Instant later(Instant until, Duration by) { return until == never ? never : until + by; }

}  // namespace

const char* to_text(Excuse excuse) {
    static constexpr const char* names[] = {
        "silence",       "both-links",   "no-ring",        "master-gone",  "narrow-path", "revision",   "late-vote",
        "copied-token",  "lost-journal", "master-stopped", "stranger",     "gang",        "revoked",    "other-loss",
        "unknown-voter", "departed",     "forgotten",      "early-update", "starved",     "stuck-edge", "unreachable",
        "liar"};
    static_assert(std::size(names) == excuse_kinds);
    return names[static_cast<std::size_t>(excuse)];
}

Excuses::Excuses(const Scenario& scenario)
    : timeouts_(scenario.timeouts), nodes_(static_cast<std::uint32_t>(scenario.peers.size() + 1)) {
    const sim::NetworkParameters& n = scenario.world.network;
    Duration latency = n.latency_high;
    for (const Duration of_region : n.region_latency) latency = std::max(latency, of_region);
    const Duration one_way = latency + latency * n.jitter_per_mille / 1000;
    slow_ = one_way + 2 * scenario.world.timer_late_max;
    heartbeat_ = timeouts_.peer / 5 + timeouts_.tick() + 2 * scenario.world.timer_late_max;
    beat_ = timeouts_.peer / 5 + timeouts_.tick() + 2 * slow_;
    reconnect_ = network_notices + 2 * timeouts_.redial_min + 4 * slow_;
    redial_ = network_notices + timeouts_.dial + 2 * timeouts_.redial_max + 4 * slow_;
    std::size_t addresses = 0;
    for (const PeerPlan& plan : scenario.peers) addresses = std::max(addresses, plan.masters.size());
    // Between two of them, the member tries the address that it was connected to.
    round_ = static_cast<Duration>(addresses) * (timeouts_.dial + 2 * timeouts_.redial_max + 4 * slow_);

    // A setting counts as a fault that lasts for all of chaos.
    const auto setting = [&](Excuse excuse, bool is_set) {
        const bool for_ever = scenario.world.allocation_fails_per_million == 1'000'000;
        if (is_set) hardship(excuse, no_fault, every_peer, 0, for_ever ? never / 2 : scenario.chaos_end);
    };
    setting(Excuse::starved, scenario.world.allocation_fails_per_million != 0);
    setting(Excuse::stuck_edge, scenario.world.allocation_fails_per_million != 0);
    setting(Excuse::unreachable, scenario.world.wrong_chunks_per_million != 0);
    control_.resize(nodes_);
    data_.resize(static_cast<std::size_t>(nodes_) * nodes_);
    late_.resize(static_cast<std::size_t>(nodes_) * nodes_);
    path_.assign(late_.size(), one_way);
    jitter_per_mille_ = n.jitter_per_mille;
}

std::vector<Excuses::Span>& Excuses::between(std::uint32_t a, std::uint32_t b) {
    if (a == 0 || b == 0) return control_[std::max(a, b)];
    return data_[static_cast<std::size_t>(std::min(a, b)) * nodes_ + std::max(a, b)];
}

void Excuses::record(std::uint32_t a, std::uint32_t b, const Span& span) {
    if (a != b && a < nodes_ && b < nodes_) between(a, b).push_back(span);
}

void Excuses::apart(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant from, Instant until,
                    Duration gives_up) {
    Span span{fault, from, until, true, false, true, false};
    span.closes = ends_links(until - from) || until - from > gives_up;
    span.until = later(until, network_notices + slow_);
    record(a, b, span);
}

void Excuses::closed(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at) {
    if (a == b || a >= nodes_ || b >= nodes_) return;
    std::vector<Span>& spans = between(a, b);
    // Each connection that ends before it has carried anything doubles the time until the next dial.
    Duration redial = timeouts_.redial_min;
    Instant next = at;
    for (auto span = spans.rbegin(); span != spans.rend() && redial < timeouts_.redial_longest(); ++span) {
        if (!span->closes || later(span->until, beat_) < next) break;
        next = span->from;
        redial = std::min(2 * redial, timeouts_.redial_longest());
    }
    spans.push_back({fault, at, at + reconnect_ + 2 * (redial - timeouts_.redial_min), false, true, false, false});
}

void Excuses::half_open(std::size_t fault, std::uint32_t a, std::uint32_t b, Instant at) {
    // An end that does not notice gets nothing for the peer time-out. Then it dials, and waits for the answer up to the
    // handshake time-out.
    record(a, b,
           Span{fault, at, at + timeouts_.peer + beat_ + timeouts_.handshake + redial_, true, true, false, false});
}

void Excuses::asleep(std::size_t fault, std::uint32_t node, Instant from, Instant until) {
    Span span{fault, from, until, true, ends_links(until - from), true, false};
    span.until = later(until, slow_);
    for (std::uint32_t other = 0; other < nodes_; ++other) record(node, other, span);
}

void Excuses::master_away(std::size_t fault, Instant from, Instant until) {
    // A peer whose first hello reached the dying master waits for the answer up to the handshake time-out.
    const Instant back = later(until, timeouts_.handshake + redial_);
    control_[0].push_back(Span{fault, from, back, true, true, true, false});
    if (master_moved_) searches_.push_back({from, later(back, round_)});
    // A restarted master does not remove a dead member before its grace is over.
    hardship(Excuse::starved, fault, every_peer, from, back);
    hardship(Excuse::stuck_edge, fault, every_peer, from, back);
}

void Excuses::slow_records(std::size_t fault, Instant from, Instant until) {
    control_[0].push_back(Span{fault, from, until, false, false, false, true});
    hardship(Excuse::stuck_edge, fault, every_peer, from, until);
}

void Excuses::dial_failed(std::uint32_t from, std::uint32_t to, Instant at, bool swallowed) {
    record(from, to,
           Span{no_fault, at, at + (swallowed ? redial_ : reconnect_ + 2 * timeouts_.redial_max), false, true, true,
                false});
}

void Excuses::late(std::uint32_t from, std::uint32_t to, Instant since, Instant until, Duration longest) {
    if (from != to && from < nodes_ && to < nodes_)
        late_[static_cast<std::size_t>(from) * nodes_ + to].push_back(Late{since, until, longest});
}

// Shorter silences do not add up to a peer time-out, because something arrives between them. So a network that is
// always slow does not explain a silence.
void Excuses::silent(std::uint32_t from, std::uint32_t to, Instant since, Instant until) {
    if (until - since + heartbeat_ < timeouts_.peer) return;
    record(from, to, Span{no_fault, since, until + reconnect_, true, true, false, false});
}

// A dial that takes longer than its time-out is given up and repeated.
void Excuses::dial_late(std::uint32_t from, std::uint32_t to, Instant since, Instant until) {
    const bool again = until - since + slow_ > timeouts_.dial;
    const Instant ends = (again ? since + timeouts_.dial + timeouts_.redial_max : until) + 4 * slow_;
    record(from, to, Span{no_fault, since, ends, false, true, false, false});
}

void Excuses::path(std::uint32_t from, std::uint32_t to, Duration latency) {
    if (from < nodes_ && to < nodes_)
        path_[static_cast<std::size_t>(from) * nodes_ + to] = latency + latency * jitter_per_mille_ / 1000;
}

Duration Excuses::connects(std::uint32_t from, std::uint32_t to) const {
    const auto path = [&](std::uint32_t a, std::uint32_t b) { return path_[static_cast<std::size_t>(a) * nodes_ + b]; };
    // The plan, then the dial with its greeting and the answer, then the report.
    return path(0, from) + 2 * (path(from, to) + path(to, from)) + path(from, 0) + timeouts_.tick();
}

Duration Excuses::latest(std::uint32_t from, std::uint32_t to, Instant since, Instant until) const {
    const std::vector<Span>& spans =
        from == 0 || to == 0 ? control_[std::max(from, to)]
                             : data_[static_cast<std::size_t>(std::min(from, to)) * nodes_ + std::max(from, to)];
    Duration longest = 0;
    for (const Late& late : late_[static_cast<std::size_t>(from) * nodes_ + to]) {
        const bool faulty = std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
            return overlap(span.from, span.until, late.from, late.until);
        });
        if (!faulty && overlap(late.from, late.until, since, until)) longest = std::max(longest, late.longest);
    }
    return longest;
}

bool Excuses::vote_on_its_way(std::uint32_t node, Instant from, Instant until) {
    return latest(0, node, from, until) + latest(node, 0, from, until) + heartbeat_ >= 2 * timeouts_.peer &&
           use(Excuse::narrow_path);
}

Duration Excuses::latest_of_all(Instant since) const {
    Duration longest = 0;
    for (const std::vector<Late>& list : late_) {
        for (const Late& late : list) longest = late.until >= since ? std::max(longest, late.longest) : longest;
    }
    return longest;
}

void Excuses::touch(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until) {
    touches_.push_back(Touch{excuse, fault, node == 0 || node >= nodes_ ? every_peer : node, from, until});
}

// Joins spans that have at most `gap` between them. A connection that closed while dials are blocked comes back only
// some time after the blockade.
std::vector<Excuses::Span> Excuses::merged(std::vector<Span> spans, Duration gap) const {
    std::sort(spans.begin(), spans.end(), [](const Span& x, const Span& y) { return x.from < y.from; });
    for (bool changed = true; changed;) {
        changed = false;
        std::vector<Span> result;
        for (const Span& span : spans) {
            Span* last = result.empty() ? nullptr : &result.back();
            if (last == nullptr || (span.from > later(last->until, gap))) {
                result.push_back(span);
                continue;
            }
            last->until = std::max(last->until, span.until);
            last->silent |= span.silent;
            last->closes |= span.closes;
            last->blocked |= span.blocked;
            last->extends &= span.extends;
        }
        for (Span& span : result) {
            if (!span.closes || !span.blocked || span.until == never) continue;
            span.until += redial_;
            span.blocked = false;
            changed = true;
        }
        spans = std::move(result);
    }
    std::erase_if(spans, [](const Span& span) { return span.extends; });
    return spans;
}

std::vector<Excuses::Span> Excuses::control_of(std::uint32_t node, bool with_master) const {
    std::vector<Span> spans = control_[node];
    if (with_master) spans.insert(spans.end(), control_[0].begin(), control_[0].end());
    return merged(std::move(spans), beat_);
}

bool Excuses::run_ended(std::uint32_t node, Instant asked_at, Instant lost_at, bool told) {
    const bool found = std::any_of(stops_.begin(), stops_.end(), [&](const Stop& stop) {
        if (stop.at < asked_at || stop.at > lost_at) return false;
        if (told || stop.cut_short) return true;
        std::vector<Span> others = control_[node];
        others.insert(others.end(), control_[0].begin(), control_[0].end());
        std::erase_if(others, [&](const Span& span) { return span.fault == stop.fault; });
        others = merged(std::move(others), beat_);
        return std::any_of(others.begin(), others.end(),
                           [&](const Span& span) { return overlap(span.from, span.until, stop.at, stop.until); });
    });
    return found && use(Excuse::master_stopped);
}

std::vector<Excuses::Span> Excuses::data_of(std::uint32_t node, std::uint32_t other) const {
    return merged(data_[static_cast<std::size_t>(std::min(node, other)) * nodes_ + std::max(node, other)], reconnect_);
}

bool Excuses::touched(std::uint32_t node, Instant member_until, Instant lost_at, std::optional<Excuse> kind) const {
    const std::vector<Span> control = control_of(node, true);
    return std::any_of(touches_.begin(), touches_.end(), [&](const Touch& touch) {
        if ((touch.node != node && touch.node != every_peer) || touch.excuse != kind.value_or(touch.excuse))
            return false;
        Instant until = touch.until;
        for (const Span& span : control) {
            if (overlap(span.from, span.until, touch.from, until)) until = std::max(until, later(span.until, redial_));
        }
        return overlap(touch.from, until, member_until, lost_at);
    });
}

Instant Excuses::first_disturbed(std::uint32_t node, Instant since) const {
    Instant first = never;
    const auto note = [&](const auto& period) {
        if (period.until >= since) first = std::min(first, std::max(period.from, since));
    };
    for (const std::uint32_t end : {0u, node}) std::ranges::for_each(control_[end], note);
    for (const auto* all : {&touches_, &hardships_}) {
        for (const Touch& touch : *all) {
            if (touch.node == node || touch.node == 0 || touch.node == every_peer) note(touch);
        }
    }
    std::ranges::for_each(standstills_, note);
    for (const std::size_t way : {std::size_t{node}, std::size_t{node} * nodes_}) {
        for (const Late& late : late_[way]) {
            if (late.longest >= timeouts_.peer / 4) note(late);
        }
    }
    return first;
}

bool Excuses::sought(Instant member_until, Instant lost_at, Duration limit) {
    return std::any_of(searches_.begin(), searches_.end(),
                       [&](const Period& search) {
                           return search.until - search.from >= limit &&
                                  overlap(search.from, search.until, member_until, lost_at);
                       }) &&
           use(Excuse::master_gone);
}

// Before it resumes, a peer may have to dial an address that does not answer. It waits before each dial.
bool Excuses::kept_away(std::uint32_t node, Instant member_until, Instant lost_at, Duration limit) {
    const Duration again = timeouts_.dial + 2 * timeouts_.redial_longest() + notice();
    Instant since = never, until = 0;
    for (const Span& span : control_of(node, true)) {
        if (!span.closes || span.until < member_until || span.from > lost_at) continue;
        if (since == never || span.from - until > again) since = span.from;
        until = std::max(until, span.until);
    }
    return since != never && lost_at - until <= again && lost_at - since >= limit && use(Excuse::silence);
}

bool Excuses::control_closed(std::uint32_t node, Instant member_until, Instant lost_at) {
    const std::vector<Span> control = control_of(node, true);
    return std::any_of(control.begin(), control.end(), [&](const Span& span) {
        return span.closes && overlap(span.from, later(span.until, notice()), member_until, lost_at);
    });
}

// A jump by hiccup() and some ticks is a sleep for the master.
Duration Excuses::jumps_counted(Instant from, Instant until) const {
    Duration sum = 0;
    for (const Jump& jump : jumps_) {
        const bool counts = jump.by < timeouts_.hiccup() + 2 * timeouts_.tick();
        if (counts && from <= jump.at && jump.at <= until) sum += jump.by;
    }
    return sum;
}

bool Excuses::loss(std::uint32_t node, Instant member_until, Instant lost_at, bool unconnected) {
    const auto then = [&](const Span& span) {
        return overlap(span.from, later(span.until, notice()), member_until, lost_at);
    };
    for (const Touch& touch : touches_) {
        if ((touch.node == node || touch.node == every_peer) &&
            overlap(touch.from, touch.until, member_until, lost_at) && use(touch.excuse))
            return true;
    }
    for (const Span& span : control_of(node, false)) {
        const Duration silence = span.until - span.from + jumps_counted(span.from, span.until);
        if (then(span) && ends_links(silence) && use(Excuse::silence)) return true;
    }
    const std::vector<Span> control = control_of(node, true);
    for (const Span& span : control) {
        if (then(span) && span.closes && later(span.until, beat_) - span.from >= timeouts_.master &&
            use(Excuse::master_gone))
            return true;
    }
    // A member that resumes sends nothing before the master's welcome. So the lateness of both ways adds up.
    for (const Span& span : control) {
        if (!then(span) || !span.closes) continue;
        Duration lateness = 0;
        for (const std::size_t way : {std::size_t{node}, std::size_t{node} * nodes_}) {
            Duration longest = 0;
            for (const Late& late : late_[way]) {
                if (overlap(late.from, late.until, span.from, lost_at)) longest = std::max(longest, late.longest);
            }
            lateness += longest;
        }
        if (lateness > 0 && lateness + 2 * slow_ + heartbeat_ >= timeouts_.peer && use(Excuse::silence)) return true;
    }
    for (std::uint32_t other = 1; other < nodes_; ++other) {
        if (other == node) continue;
        for (const Span& data : data_of(node, other)) {
            if (then(data) && ends_links(data.until - data.from) && use(Excuse::no_ring)) return true;
            for (const Span& span : control) {
                if (data.closes && span.closes && then(data) && then(span) &&
                    overlap(data.from, later(data.until, witness_fresh), span.from, later(span.until, witness_fresh)) &&
                    use(Excuse::both_links))
                    return true;
            }
        }
    }
    if (!unconnected) return false;
    const auto with_master = [&](std::uint32_t one) {
        return latest(0, one, member_until, lost_at) + latest(one, 0, member_until, lost_at);
    };
    for (std::uint32_t other = 1; other < nodes_; ++other) {
        if (other == node) continue;
        const Duration lateness = std::max(with_master(node), with_master(other)) +
                                  latest(node, other, member_until, lost_at) +
                                  latest(other, node, member_until, lost_at);
        // A connection that broke meanwhile adds the time until it is back.
        Duration again = 0;
        for (const Span& data : data_of(node, other)) {
            if (data.closes && then(data)) again = std::max(again, std::min(data.until, lost_at) - data.from);
        }
        if (again + lateness + std::max(connects(node, other), connects(other, node)) >= timeouts_.peer &&
            use(Excuse::narrow_path))
            return true;
    }
    return false;
}

void Excuses::hardship(Excuse excuse, std::size_t fault, std::uint32_t node, Instant from, Instant until) {
    hardships_.push_back(Touch{excuse, fault, node, from, later(until, aftermath())});
}

bool Excuses::hard_for(Excuse excuse, const std::vector<std::uint32_t>& nodes, Instant from, Instant until) {
    const auto in_group = [&](std::uint32_t node) {
        return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    };
    bool found = std::any_of(hardships_.begin(), hardships_.end(), [&](const Touch& touch) {
        return touch.excuse == excuse && (touch.node == every_peer || in_group(touch.node)) &&
               overlap(touch.from, touch.until, from, until);
    });
    const auto held_up = [&](const Span& span) {
        return (span.silent || span.blocked) && overlap(span.from, span.until, from, until);
    };
    if (excuse != Excuse::starved) {
        for (const std::uint32_t a : nodes) {
            found = found || std::any_of(control_[a].begin(), control_[a].end(), held_up);
            for (const std::uint32_t b : nodes) {
                if (a < b) found = found || std::any_of(between(a, b).begin(), between(a, b).end(), held_up);
            }
        }
    }
    // Only the master reports that a holder is gone, and starts a new election among the live members.
    if (excuse == Excuse::unreachable) found = found || std::any_of(control_[0].begin(), control_[0].end(), held_up);
    return found && use(excuse);
}

bool Excuses::edge_down(const std::vector<std::uint32_t>& nodes, Instant from, Instant until) {
    const Duration grace = timeouts_.edge_grace();
    const auto long_enough = [&](const Span& span) {
        return overlap(span.from, later(span.until, aftermath()), from, until) &&
               later(span.until, 2 * slow_) - span.from >= grace;
    };
    for (const Touch& touch : touches_) {
        const bool ours = touch.node == every_peer || std::find(nodes.begin(), nodes.end(), touch.node) != nodes.end();
        if (ours && overlap(touch.from, later(touch.until, aftermath()), from, until)) return use(Excuse::no_ring);
    }
    for (const std::uint32_t a : nodes) {
        const std::vector<Span> control = control_of(a, true);
        if (std::any_of(control.begin(), control.end(), long_enough)) return use(Excuse::no_ring);
        for (const std::uint32_t b : nodes) {
            if (a == b) continue;
            // A connection that breaks again soon after it opened counts as down all the time.
            const std::vector<Span> data = merged(between(a, b), grace);
            if (std::any_of(data.begin(), data.end(), long_enough)) return use(Excuse::no_ring);
            const Duration lateness = latest(0, a, from, until) + latest(a, 0, from, until) +
                                      latest(a, b, from, until) + latest(b, a, from, until);
            if (lateness + connects(a, b) >= grace) return use(Excuse::narrow_path);
        }
    }
    return false;
}

bool Excuses::forgotten(Instant from, Instant earlier, Instant later, Instant answered) {
    const bool found = std::any_of(records_lost_.begin(), records_lost_.end(), [&](const Period& lost) {
        return lost.from <= earlier && from <= lost.until && lost.until <= later && answered <= lost.until;
    });
    return found && use(Excuse::forgotten);
}

bool Excuses::cut_off(std::uint32_t node, Instant from, Instant until) {
    const std::vector<Span> spans = control_of(node, false);
    const bool found = std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
        return (span.closes || span.silent) && overlap(span.from, span.until, from, until);
    });
    return found && use(Excuse::silence);
}

Instant Excuses::counted_until(Instant gone) const {
    if (gone == never) return never;
    Instant until = gone + seat_kept();
    for (bool changed = true; changed;) {
        changed = false;
        // The master's clock stops while the master does not run, and starts anew after a restart.
        const auto extend = [&](Instant from, Instant to) {
            if (until == never || from > until || to <= gone) return;
            const Instant extended = later(to, seat_kept());
            if (extended != never && extended <= until) return;
            until = extended;
            changed = true;
        };
        for (const Span& span : control_[0]) extend(span.from, span.until);
        for (const Period& period : standstills_) extend(period.from, period.until);
        for (const Touch& touch : touches_) {
            if (touch.node == every_peer) extend(touch.from, touch.until);
        }
    }
    return until;
}

Instant Excuses::heard_until(std::uint32_t node, Instant gone) const {
    const Instant until = later(gone, latest_of_all(0));
    for (const Span& span : control_of(node, true)) {
        if (span.silent && overlap(span.from, span.until, gone, until)) return later(span.until, latest_of_all(0));
    }
    return until;
}

std::string Excuses::explain(std::uint32_t node, Instant from, Instant until) const {
    std::string text;
    const auto add = [&](const std::string& what, const std::vector<Span>& spans) {
        for (const Span& span : spans) {
            text += formatted("\n    {} {} us .. {}{}{}", what, span.from / microsecond,
                              span.until == never ? "for ever" : formatted("{} us", span.until / microsecond),
                              span.closes ? ", closed" : "", span.silent ? ", silent" : "");
        }
    };
    add("control", control_of(node, true));
    for (std::uint32_t other = 1; other < nodes_; ++other) {
        if (other != node) add(formatted("data with peer{}", other), data_of(node, other));
    }
    return formatted("a member at {} us, lost at {} us; what faults did to its links:{}", from / microsecond,
                     until / microsecond, text.empty() ? " nothing" : text);
}

}  // namespace pccl::harness
