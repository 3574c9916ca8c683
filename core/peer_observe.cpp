// What others see of a peer: its hash, figures and descriptions. Changes nothing.
#include "core/base/format.hpp"
#include "core/base/leftovers.hpp"
#include "core/base/packed.hpp"
#include "core/peer_core.hpp"

namespace pccl::core {

std::uint64_t PeerCore::state_hash() const {
    std::uint64_t hash = 0xD1B54A32D192ED03ull;
    const auto mix = [&hash](std::uint64_t value) {
        hash = (hash ^ value) * 0xBF58476D1CE4E5B9ull;
        hash ^= hash >> 29;
    };
    mix(static_cast<std::uint64_t>(state()));
    mix(session_.seen());
    mix(session_.votes().last_serial());
    mix(tickets_.epoch());
    mix(tickets_.attributes().global_world);
    mix(links_.size());
    mix(links_.next_name());
    mix(memory_.next_name());
    mix(computes_.next_name());
    mix(session_.votes().size());
    mix(launches_.size());
    mix(exchange_.dead_frames());
    mix(probe_.receiving());
    if (probe_.sends()) mix(probe_.bytes_sent());
    exchange_.mix_into(mix);
    if (sync_.running()) {
        mix(sync_.stage_number() - 1);
        mix(sync_.received_bytes());
    }
    return hash;
}

PeerStatistics PeerCore::statistics() const {
    PeerStatistics now = counted_;
    now.master_links_lost = session_.links_lost();
    now.refused_frames = links_.refused();
    now.dead_frames = exchange_.dead_frames();
    now.attributes = tickets_.attributes();
    now.epoch = tickets_.epoch();
    now.tags_open = static_cast<std::uint32_t>(launches_.size());
    now.operations_running = static_cast<std::uint32_t>(exchange_.reductions().running());
    now.votes_open = static_cast<std::uint32_t>(session_.votes().size());
    exchange_.stripes().count(now);
    return now;
}

std::string PeerCore::explain() const {
    std::string text = session_.explain();
    text += exchange_.explain_operations();
    if (sync_.running()) text += formatted(", sync stage {}", sync_.stage_number() - 1);
    if (probe_.sends()) text += ", tests the bandwidth to " + short_name(probe_.target());
    text += exchange_.stripes().explain();
    return text;
}

std::string PeerCore::leftovers() const {
    const bool calls = connect_ticket_ != 0 || waiting_connect_ != 0 || !leave_tickets_.empty() ||
                       run_wide_.size() != 0 || !launches_.empty() || launches_.many() ||
                       !exchange_.reductions().empty() || sync_.running();
    if (calls) return {};
    std::string text = name_leftovers({{"votes", session_.votes().size()},
                                       {"votes that end something", session_.votes().end_votes()},
                                       {"launches that wait for a start", launches_.unstarted()}});
    if (state() == State::member || !links_.empty()) return text;
    std::string outside = exchange_.leftovers();
    if (probe_.count() != 0) outside += (outside.empty() ? "" : ", ") + name_leftovers({{"tests", probe_.count()}});
    return text.empty() || outside.empty() ? text + outside : text + ", " + outside;
}

// A coarse description: counts are put into a few classes.
std::uint64_t PeerCore::abstract_state() const {
    Packed state;
    // phase
    state.count(static_cast<std::size_t>(session_.state()), 2);
    state.count(sync_.stage_number(), 3);
    state.flags(!exchange_.reductions().empty(), launches_.unstarted() != 0, run_wide_.size() != 0);
    // session
    state.count(session_.link_stage(), 2);
    state.flags(session_.lost_since() != never);
    state.count(session_.votes().size(), 2);
    state.count(run_wide_.size(), 2);
    // operations
    exchange_.describe_operations(state);
    state.flags(launches_.many());
    // edges
    exchange_.describe_edges(state);
    // shared state
    sync_.describe(state);
    state.flags(probe_.sends(), probe_.receives(), memory_.waits(), sync_.awaits_abandoned_memory(),
                session_.former_tokens() != 0);
    return state.word();
}

void PeerCore::check() const {
    links_.check();
    session_.check();
    run_wide_.check();
    launches_.check();
    probe_.check();
    exchange_.check();
    sync_.check();
}

}  // namespace pccl::core
