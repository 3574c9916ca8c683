// delay_line: a wide area network in user space, for measurements on one machine.
//
// Each peer is a network namespace with one TUN device. This program reads the packets that leave a device, holds them,
// and writes them to the device of the peer that owns the target address. It adds latency, a rate per flow, a rate per
// interface, a bounded queue per flow, loss from a seeded generator, and stalls of one flow after the other. It needs no
// kernel module except TUN.
//
// Devices exchange packets of up to 64 KiB (TCP segmentation offload), otherwise one core could not forward several
// Gbit/s. Rates, queues and losses still count single segments: a large packet is cut where a segment is lost.
//
// The peer with index i has the address 10.99.0.(i+1). The program prints "ready" when all devices exist. It runs until
// its standard input ends, and then prints one JSON line: what it forwarded and lost, and how late it was. If
// `late_us_p99` is not far below the latency, the machine was too slow and the measurement is worthless.
#include "delay_queue.hpp"
#include "statistics.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <memory>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

namespace {

using namespace pccl::bench;

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

// The device belongs to the namespace in which it is made. Its descriptor works from anywhere.
int open_device(const std::string& network, const std::string& name) {
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const int there = open(network.c_str(), O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0) fail(network);
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) fail("/dev/net/tun");
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    if (ioctl(device, TUNSETIFF, &request) != 0) fail("device " + name);
    if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) fail("offload of device " + name);
    if (setns(home, CLONE_NEWNET) != 0) fail("own namespace");
    close(there);
    close(home);
    return device;
}

class DelayLine {
public:
    DelayLine(std::vector<int> devices, const PathOptions& path) : devices_(std::move(devices)), queue_(path) {}

    void run() {
        std::vector<pollfd> fds{{STDIN_FILENO, POLLIN, 0}};
        for (const int device : devices_) fds.push_back({device, POLLIN, 0});
        while (true) {
            deliver(monotonic_ns());
            const std::int64_t due = queue_.next_due();
            const std::int64_t wait = due < 0 ? 1'000'000'000 : std::max<std::int64_t>(due - monotonic_ns(), 0);
            const timespec timeout{wait / 1'000'000'000, wait % 1'000'000'000};
            if (ppoll(fds.data(), fds.size(), &timeout, nullptr) < 0 && errno != EINTR) fail("ppoll");
            if (fds[0].revents != 0 && input_ended()) return;
            for (std::size_t i = 0; i < devices_.size(); ++i)
                if (fds[i + 1].revents != 0) receive(i);
        }
    }

    void print_statistics() const {
        const PathCounters& c = queue_.counters();
        std::printf("{\"segments\":%llu,\"packets\":%llu,\"bytes\":%llu,\"cpu_seconds\":%.3f,\"lost_random\":%llu,"
                    "\"lost_queue\":%llu,\"not_delivered\":%llu,"
                    "\"late_us_p50\":%.0f,\"late_us_p99\":%.0f,\"late_us_max\":%.0f}\n",
                    static_cast<unsigned long long>(c.segments), static_cast<unsigned long long>(packets_),
                    static_cast<unsigned long long>(c.bytes), process_cpu_seconds(getpid()),
                    static_cast<unsigned long long>(c.lost_random), static_cast<unsigned long long>(c.lost_queue),
                    static_cast<unsigned long long>(not_delivered_), late_.quantile_us(0.5), late_.quantile_us(0.99),
                    late_.max_us());
    }

private:
    static bool input_ended() {
        char bytes[256];
        const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
        return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }

    // At most some packets of one device at a time, or the others would wait for it.
    void receive(std::size_t from) {
        for (int turn = 0; turn < 16; ++turn) {
            const ssize_t got = read(devices_[from], scratch_, sizeof scratch_);
            if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == EIO)) return;
            if (got < 0) fail("read from a device");
            queue_.accept(scratch_, static_cast<std::size_t>(got), from, devices_.size(), monotonic_ns());
        }
    }

    void deliver(std::int64_t now) {
        while (queue_.next_due() >= 0 && queue_.next_due() <= now) {
            const Delayed packet = queue_.take();
            late_.add(now - packet.due);
            ++packets_;
            const ssize_t put = write(devices_[packet.target], packet.bytes.data(), packet.bytes.size());
            // A device that is down does not take packets.
            if (put < 0) ++not_delivered_;
        }
    }

    std::vector<int> devices_;
    DelayQueue queue_;
    Lateness late_;
    std::uint64_t packets_ = 0, not_delivered_ = 0;
    std::uint8_t scratch_[sizeof(PacketHead) + 65'536];
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"A wide area network between network namespaces, in user space. Ends when its standard input ends."};
    std::vector<std::string> networks;
    std::string device = "tun0";
    double latency_ms = 20, rate_mbit = 1000, interface_mbit = 0, queue_ms = 50, loss_percent = 0, stall_ms = 0;
    PathOptions path;
    app.add_option("--net", networks, "namespace of a peer, for example /proc/PID/ns/net; once per peer")
        ->required()
        ->expected(2, 200);
    app.add_option("--device", device, "name of the TUN devices")->capture_default_str();
    app.add_option("--latency-ms", latency_ms, "one way")->check(CLI::Range(0.0, 10'000.0))->capture_default_str();
    app.add_option("--flow-mbit", rate_mbit, "rate of one flow; 0: no limit")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--interface-mbit", interface_mbit, "rate of all flows that leave a peer; 0: no limit")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--queue-ms", queue_ms, "longest wait for the rate; segments that would wait longer are lost")
        ->check(CLI::Range(0.1, 10'000.0))
        ->capture_default_str();
    app.add_option("--loss-percent", loss_percent, "of the segments, at random")
        ->check(CLI::Range(0.0, 50.0))
        ->capture_default_str();
    app.add_option("--stall-ms", stall_ms, "one flow at a time is held for so long, then another one; 0: none")
        ->check(CLI::Range(0.0, 60'000.0))
        ->capture_default_str();
    app.add_option("--seed", path.seed, "of the losses")->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    path.latency_ns = static_cast<std::int64_t>(latency_ms * 1e6);
    path.flow_bytes_per_second = rate_mbit * 1e6 / 8;
    path.interface_bytes_per_second = interface_mbit * 1e6 / 8;
    path.queue_ns = static_cast<std::int64_t>(queue_ms * 1e6);
    path.loss = loss_percent / 100;
    path.stall_ns = static_cast<std::int64_t>(stall_ms * 1e6);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1'000);
    // The network must not wait for the peers that share the processors with it. Whoever runs all of this at a lower
    // priority has other work that goes first.
    if (getpriority(PRIO_PROCESS, 0) == 0) setpriority(PRIO_PROCESS, 0, -10);
    try {
        std::vector<int> devices;
        for (const std::string& network : networks) devices.push_back(open_device(network, device));
        std::printf("ready\n");
        std::fflush(stdout);
        const auto line = std::make_unique<DelayLine>(std::move(devices), path);
        line->run();
        line->print_statistics();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "delay_line: %s\n", error.what());
        return 1;
    }
    return 0;
}
