// Faults of strangers: processes outside the run that may send anything.
#include "harness/hostile.hpp"
#include "harness/injector.hpp"

namespace pccl::harness {

using namespace core;

namespace {

// Whether the `hostile` fault opens many connections that send nothing.
bool is_crowd(const Fault& fault) { return ((fault.value >> 50) & 3) == 0; }

// Whether the stranger waits to be admitted and keeps sending false reports about members.
bool is_lying_newcomer(const Fault& fault) {
    return fault.kind == FaultKind::hostile && ((fault.value >> 50) & 3) == 1;
}

}  // namespace

// What a stranger can know about the run and the target.
Knowledge Injector::what_is_known(std::uint32_t target) {
    Knowledge known = learn(world_.network().greeting_among(nodes(), target));
    const auto& payloads = world_.payloads_to(target);
    known.payloads.assign(payloads.begin(), payloads.end());
    return known;
}

// Opens more and more connections that send nothing.
void Injector::crowd_comes(const Fault& fault, std::uint64_t index) {
    Stranger& stranger = stranger_links_[index];
    if (!fault.forever && stranger.said >= std::max(fault.b % 40, 1u)) return;
    ++stranger.said;
    const std::uint32_t first = strangers_from(scenario_);
    const std::uint32_t own = first + static_cast<std::uint32_t>(index % (nodes_for(scenario_) - first));
    if (fault.forever) {
        // One of many hosts, each with a few connections: none of them is the one with the most.
        world_.network().dial(own, 0, sim::endpoint_of(fault.a % nodes()));
        const Duration wait = scenario_.timeouts.place() * 3 / 4;
        return world_.schedule_script(world_.now() + draw_.between(wait / 2, wait), fault_goes_on, index);
    }
    for (std::uint64_t i = draw_.number(1, 20); i-- != 0;)
        world_.network().dial(own, 0, sim::endpoint_of(fault.a % nodes()));
    world_.schedule_script(world_.now() + draw_.log_uniform(millisecond, second), fault_goes_on, index);
}

// Dials, or sends once. The next step follows after a while.
void Injector::stranger_speaks(const Fault& fault, std::uint64_t index) {
    Stranger& stranger = stranger_links_[index];
    sim::Network& network = world_.network();
    const std::uint32_t first = strangers_from(scenario_);
    const std::uint32_t own = first + static_cast<std::uint32_t>(index % (nodes_for(scenario_) - first));
    const bool replay = fault.kind == FaultKind::replayed_hello;
    if (fault.kind == FaultKind::hostile && is_crowd(fault)) return crowd_comes(fault, index);
    if (stranger.said >= std::max(fault.b % 40, 1u)) return;
    Duration wait = 0;
    if (!stranger.dialled || !network.open_end(stranger.connection, 0) || draw_.chance(150'000)) {
        // If its link was closed, the stranger dials again.
        if (stranger.dialled) network.close(stranger.connection, 0, draw_.chance(500'000));
        const std::uint32_t target = replay || is_lying_newcomer(fault) ? 0 : fault.a % nodes();
        stranger.registered = false;
        stranger.connection = network.dial(own, 0, sim::endpoint_of(target));
        stranger.dialled = true;
        wait = 2 * network.latency(own, target) + millisecond;
        ++stranger.said;  // a dial that is refused counts too
    } else {
        const bool liar = is_lying_newcomer(fault);
        std::string newcomer;
        const std::vector<std::uint8_t> bytes =
            replay ? network.greeting(1 + (fault.a - 1) % (nodes() - 1), world_.master())
            : liar ? newcomer_lies(draw_, own, what_is_known(0), stranger.registered, newcomer)
                   : hostile_bytes(draw_, own, fault.a % nodes() == 0, what_is_known(fault.a % nodes()), newcomer);
        stranger.registered = liar;
        if (replay || !newcomer.empty()) {
            stranger_hellos_.push_back({world_.now(), world_.now(), newcomer});
            hello_of_.push_back(index);
        }
        for (std::size_t i = 0; i < hello_of_.size(); ++i) {
            if (hello_of_[i] == index) stranger_hellos_[i].last_said = world_.now();
        }
        if (replay) touch(fault, 1 + (fault.a - 1) % (nodes() - 1), Excuse::copied_token);
        if (!bytes.empty()) network.write(stranger.connection, 0, bytes);
        ++stranger.said;
        wait = draw_.log_uniform(100 * microsecond, second);
    }
    world_.schedule_script(world_.now() + wait, fault_goes_on, index);
}

}  // namespace pccl::harness
