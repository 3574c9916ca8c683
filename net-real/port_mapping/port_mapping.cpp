#include "net-real/port_mapping/port_mapping.hpp"

#include "core/base/format.hpp"
#include "net-real/event_loop.hpp"
#include "net-real/port_mapping/router.hpp"
#include "net-real/port_mapping/way.hpp"
#include "net-real/workers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace pccl::real {

namespace {

// A router on the same network answers within milliseconds. PCP's own first repetition comes after 3 s, but a peer
// cannot wait that long for a router that does not speak PCP.
constexpr core::Duration datagram_time = core::second;
constexpr core::Duration upnp_time = 3 * core::second;  // the search alone may take 1 s
constexpr core::Duration renewal_time = 3 * core::second;
constexpr core::Duration retry_first = 4 * core::second, retry_last = 600 * core::second;

struct Choice {
    const char* name;
    std::unique_ptr<Way> way;  // null: not in this build
    core::Duration time;
};

std::vector<Choice> all_ways(const Router& router) {
    std::vector<Choice> ways;
    ways.push_back({"PCP", make_pcp(router), datagram_time});
    ways.push_back({"NAT-PMP", make_nat_pmp(router), datagram_time});
    ways.push_back({"UPnP", make_upnp(router), upnp_time});
    return ways;
}

const char* const left_out = "left out of this build, because libminiupnpc was not there";

bool has_address(const core::Endpoint& endpoint) { return endpoint.address != core::Endpoint{}.address; }

}  // namespace

std::uint32_t bounded_life(std::uint32_t seconds) { return std::clamp<std::uint32_t>(seconds, 2, 86'400); }

std::vector<ExaminedWay> examine_router(std::string& why) {
    std::vector<ExaminedWay> found;
    const auto router = find_router(why);
    if (!router) return found;
    for (const Choice& choice : all_ways(*router)) {
        ExaminedWay& one = found.emplace_back();
        one.name = choice.name;
        one.why = left_out;
        if (choice.way != nullptr)
            one.speaks = choice.way->examine({EventLoop::now() + choice.time, {}}, one.outer, one.why);
    }
    return found;
}

// ---- PortMapping -------------------------------------------------------------------------------------------------

class PortMapping::Keeper {
public:
    Keeper(std::uint16_t port, Log log) : port_(port), log_(std::move(log)) {}
    ~Keeper() {
        {
            const std::lock_guard lock(mutex_);
            stops_ = true;
        }
        wakeup_.notify_all();
        if (thread_.joinable()) thread_.join();
        if (way_ != nullptr) way_->forget(port_, grant_);
    }
    Keeper(const Keeper&) = delete;

    bool begin(const core::Endpoint& listener, std::string& why) {
        const auto router = find_router(why);
        if (!router) return false;
        if (has_address(listener) && listener.address != router->own.address) {
            why = core::formatted("the router reaches this host at {}, and the peer listens only at {}",
                                  host_text(router->own), host_text(listener));
            return false;
        }
        core::Endpoint wished;
        wished.port = port_;
        for (Choice& choice : all_ways(*router)) {
            std::string reason = left_out;
            if (choice.way != nullptr &&
                choice.way->map(port_, wished, {EventLoop::now() + choice.time, {}}, grant_, reason)) {
                way_ = std::move(choice.way);
                break;
            }
            why += core::formatted("{}{}: {}", why.empty() ? "" : "; ", choice.name, reason);
        }
        if (way_ == nullptr) return false;
        outer_ = grant_.outer;
        const SignalsBlocked blocked;
        thread_ = std::thread([this] {
            name_this_thread("pccl-port");
            keep();
        });
        return true;
    }
    const core::Endpoint& outer() const { return outer_; }
    const char* way() const { return way_->name(); }

private:
    static constexpr core::Duration half_second = core::second / 2;

    void keep() {
        core::Duration wait = grant_.life_s * half_second;
        core::Instant ends_at = EventLoop::now() + 2 * wait;
        bool is_lost = false;
        while (!stopped_within(wait)) {
            try {
                renew(wait, ends_at, is_lost);
            } catch (const std::exception&) {
                wait = retry_first;  // no memory now, perhaps later
            }
        }
    }
    void renew(core::Duration& wait, core::Instant& ends_at, bool& is_lost) {
        std::string why;
        Grant renewed;
        const Patience patience{EventLoop::now() + renewal_time, [this] { return stops_.load(); }};
        if (way_->map(port_, grant_.outer, patience, renewed, why)) {
            if (is_lost) log_(Severity::info, "the router forwards the port again");
            is_lost = false;
            tell_change(renewed.outer);
            grant_ = renewed;
            wait = grant_.life_s * half_second;
            ends_at = EventLoop::now() + 2 * wait;
            return;
        }
        if (stops_) return;
        if (!is_lost)
            log_(Severity::warn, core::formatted("the port of the router could not be renewed by {}, and is asked "
                                                 "for again until it can: {}",
                                                 way_->name(), why));
        is_lost = true;
        const core::Duration left = ends_at - EventLoop::now();
        wait = left > 0 ? std::max(left / 2, retry_first) : std::min(std::max(2 * wait, retry_first), retry_last);
    }
    bool stopped_within(core::Duration time) {
        std::unique_lock lock(mutex_);
        return wakeup_.wait_for(lock, std::chrono::nanoseconds(time), [this] { return stops_.load(); });
    }
    void tell_change(const core::Endpoint& now) const {
        if (now == grant_.outer) return;
        log_(Severity::warn, core::formatted("the router now forwards {} and not {}: others cannot dial this peer any "
                                             "more until it is started again",
                                             core::to_text(now), core::to_text(grant_.outer)));
    }

    const std::uint16_t port_;
    const Log log_;
    std::unique_ptr<Way> way_;  // that gave the port. Used by the thread while it runs
    core::Endpoint outer_;      // as it was given first
    Grant grant_;               // used by the thread while it runs
    std::mutex mutex_;
    std::condition_variable wakeup_;
    std::atomic<bool> stops_{false};  // set under mutex_
    std::thread thread_;
};

PortMapping::PortMapping(std::unique_ptr<Keeper> keeper) : keeper_(std::move(keeper)) {}
PortMapping::~PortMapping() = default;

std::unique_ptr<PortMapping> PortMapping::ask(const core::Endpoint& listener, Log log, std::string& why) {
    auto keeper = std::make_unique<Keeper>(listener.port, std::move(log));
    if (!keeper->begin(listener, why)) return nullptr;
    return std::unique_ptr<PortMapping>(new PortMapping(std::move(keeper)));
}

const core::Endpoint& PortMapping::outer() const { return keeper_->outer(); }
const char* PortMapping::way() const { return keeper_->way(); }

}  // namespace pccl::real
