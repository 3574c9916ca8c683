"""What the tables of `./dev bench` do not show: ratios with a bound each, a line per row.

    ./dev bench bounds [part...] [--rounds N] [--check]

Parts (default: all):
  tcp      64 MiB and more out of place over TCP beside the bare ring; 2, 4 and 8 peers; CPU time
  memory   256 MiB through shared memory beside the bare ring over TCP, time and CPU time; 2 and 4 peers
  place    256 MiB in place beside out of place
  hosts    bytes between two hosts with two peers each, beside 2 (h - 1) / h times the array
  tags     8 operations of 8 MiB at once on a WAN, beside the bare ring with 64 MiB
  loss     64 MiB on a WAN with 0.1 % loss, beside the same without
  stall    256 MiB on a WAN where one of the connections is held for 2 s at any time, beside the same without
  state    256 MiB of shared state to a newcomer; and hashed where all are equal
  quantized  16 and 64 MiB over 1 Gbit/s as 8-bit numbers, beside plain ones

A WAN has 40 ms round trip and 8 connections of 1 Gbit/s. Contestants take turns; a ratio is the median of the ratios of
the rounds. `./dev bench sim topology` has the rows that the simulator measures. The parts but tcp, memory, place and
state need root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from compare import machine, networks
from compare.contestants import Contestant, Measured, Ours, Ring, Tools
from compare.networks import CountedNetwork, Failed, Network, Setting, adopt_orphans
from compare.plan import size_text

MIB = 1 << 20
PATIENCE_S = 120.0
WAN = Setting("wan", connections=8, flow_mbit=1000, latency_ms=20)
TCP, MEMORY = Setting("loopback"), Setting("loopback", shared_memory=True)


class TwoHosts(CountedNetwork):
    """Two peers in each of two namespaces."""

    def __init__(self) -> None:
        super().__init__(2, 9000)
        self.setting = Setting("counted", shared_memory=True)
        self.addresses = [self.addresses[rank // 2] for rank in range(4)]
        self.namespaces = [self.namespaces[rank // 2] for rank in range(4)]
        self.peers = 4

    def __enter__(self) -> TwoHosts:
        return self

    def between_hosts(self) -> int:
        """Bytes that left the two hosts, with all headers, since they were made."""
        self.peers = 2
        try:
            return sum(sent for sent, _ in self.counters())
        finally:
            self.peers = 4


class Bench:
    def __init__(self, tools: Tools, rounds: int) -> None:
        self.tools, self.rounds = tools, rounds
        self.broken: list[str] = []

    def row(self, text: str, value: float, bound: float, more: str = "") -> None:
        verdict = "held" if value <= bound else "BROKEN"
        if value > bound:
            self.broken.append(text)
        print(f"{text:<66} {value:7.3f}   bound {bound:<6g} {verdict}{'   ' + more if more else ''}", flush=True)

    def start(self, network: Network, *kinds: type[Contestant]) -> list[Contestant]:
        running: list[Contestant] = []
        for kind in kinds:
            contestant = kind(self.tools)
            running.append(contestant)
            try:
                contestant.start(network)
            except BaseException:
                stop(running)
                raise
        return running

    def turns(self, *works: Callable[[], Measured]) -> list[list[Measured]]:
        """Each work once in each round, another one first in each; the first round is not counted."""
        results: list[list[Measured]] = [[] for _ in works]
        for number in range(self.rounds + 1):
            for i in range(len(works)):
                which = (i + number) % len(works)
                measured = works[which]()
                if number > 0:
                    results[which].append(measured)
        return results

    def beside_ring(self, setting: Setting, peers: int, size: int) -> tuple[float, float, float, str]:
        """Out of place: the ratio of times, our CPU seconds for 1 GB, the ratio of CPU times, and the times."""
        with networks.make(setting, peers, self.tools.programs) as network:
            running = self.start(network, Ours, Ring)
            try:
                count = max(3, min(20, (512 * MIB) // size // peers))
                ours, ring = self.turns(
                    *(lambda one=one: one.measure(size, False, 1, count, PATIENCE_S) for one in running)
                )
            finally:
                stop(running)
        cpu = [statistics.median(one.cpu_seconds for one in side) / (size * count * 1e-9) for side in (ours, ring)]
        return ratio(ours, ring), cpu[0], cpu[0] / cpu[1] if cpu[1] else 0.0, f"{ms(ours)} and {ms(ring)} ms"

    def tcp(self) -> None:
        for peers, size in ((2, 64 * MIB), (2, 256 * MIB), (4, 64 * MIB), (4, 256 * MIB), (8, 64 * MIB)):
            times, cpu, _, text = self.beside_ring(TCP, peers, size)
            name = f"{size_text(size)}, {peers} peers, TCP"
            self.row(f"{name} / bare ring", times, 1.10, text)
            if peers in (2, 4) and size == 256 * MIB:
                self.row(f"{name}: CPU seconds for 1 GB, all peers", cpu, {2: 0.7, 4: 2.1}[peers])

    def memory(self) -> None:
        for peers in (2, 4):
            times, _, cpu, text = self.beside_ring(MEMORY, peers, 256 * MIB)
            self.row(f"256 MiB, {peers} peers, shared memory / bare ring over TCP", times, 0.6, text)
            self.row(f"256 MiB, {peers} peers, CPU time / that of the bare ring", cpu, 0.55)

    def place(self) -> None:
        for name, setting in (("TCP", TCP), ("shared memory", MEMORY)):
            with networks.make(setting, 2, self.tools.programs) as network:
                running = self.start(network, Ours)
                try:
                    (ours,) = running
                    inside, outside = self.turns(
                        lambda: ours.measure(256 * MIB, True, 1, 4, PATIENCE_S),
                        lambda: ours.measure(256 * MIB, False, 1, 4, PATIENCE_S),
                    )
                finally:
                    stop(running)
            text = f"{ms(inside)} and {ms(outside)} ms"
            self.row(f"256 MiB, 2 peers, {name}: in place / out of place", ratio(inside, outside), 1.08, text)

    def hosts(self) -> None:
        size = 64 * MIB
        with TwoHosts() as network:
            running = self.start(network, Ours)
            try:
                (ours,) = running
                counted = []
                for _ in range(self.rounds + 1):
                    before = network.between_hosts()
                    ours.measure(size, False, 0, 1, PATIENCE_S)
                    counted.append(network.between_hosts() - before)
            finally:
                stop(running)
        # 2 (h - 1) / h of the array for each of h = 2 hosts.
        self.row("64 MiB, 2 hosts with 2 peers: bytes / the least for hosts", min(counted[1:]) / (2 * size), 1.05)

    def tags(self) -> None:
        with networks.make(WAN, 2, self.tools.programs) as network:
            running = self.start(network, Ours, Ring)
            try:
                ours, ring = running
                batch, many, two, one = self.turns(
                    lambda: ours.measure(8 * MIB, False, 1, 5, PATIENCE_S, tags=8),
                    lambda: ours.stream(8 * MIB, 8, 5, PATIENCE_S),
                    lambda: ours.stream(64 * MIB, 2, 3, PATIENCE_S),
                    lambda: ring.measure(64 * MIB, False, 1, 5, PATIENCE_S),
                )
            finally:
                stop(running)
                self.say_late(network)
        # A batch that is awaited as a whole also waits for its votes: a round trip to the master.
        self.row("8 times 8 MiB as a batch, WAN / bare ring with 64 MiB and 44 ms", self.beside(batch, one, 44), 1 / 0.9,
                 f"{ms(batch)} and {ms(one)} ms")  # fmt: skip
        self.row("8 MiB, 8 in flight, WAN / bare ring with 64 MiB", ratio(many, one), 1 / 0.9, f"{ms(many)} and {ms(one)} ms")
        self.row("64 MiB, 2 in flight, WAN / twice bare ring", ratio(two, one) / 2, 1 / 0.9, f"{ms(two)} and {ms(one)} ms")

    def beside_clean(self, setting: Setting, size: int, count: int, *kinds: type[Contestant]) -> list[list[Measured]]:
        """Each kind on this network, then each on a WAN without its fault."""
        with networks.make(WAN, 2, self.tools.programs) as clean, networks.make(setting, 2, self.tools.programs) as other:
            running = self.start(other, *kinds)
            try:
                running += self.start(clean, *kinds)
                return self.turns(*(lambda one=one: one.measure(size, False, 1, count, PATIENCE_S) for one in running))
            finally:
                stop(running)
                self.say_late(clean)

    def loss(self) -> None:
        lossy = Setting("wan", connections=8, flow_mbit=1000, latency_ms=20, loss_percent=0.1)
        lost, ring_lost, without, ring_without = self.beside_clean(lossy, 64 * MIB, 5, Ours, Ring)
        # TCP repairs a loss in a round trip, and nearly all connections lose a segment in each phase: see what that costs
        # a ring that does nothing else.
        self.row("64 MiB, WAN with 0.1 % loss / without", ratio(lost, without), 1.5,
                 f"{ms(lost)} and {ms(without)} ms; the bare ring {ratio(ring_lost, ring_without):.2f}: "
                 f"{ms(ring_lost)} and {ms(ring_without)} ms")  # fmt: skip

    def stall(self) -> None:
        held = Setting("wan", connections=8, flow_mbit=1000, latency_ms=20, stall_ms=2000)
        sides = self.beside_clean(held, 256 * MIB, 8, Ours)
        # Means, because only some of the operations see a stall begin.
        means = [[statistics.mean(one.times_ms) for one in side] for side in sides]
        value = statistics.median(x / y for x, y in zip(*means))
        longest = max(time for one in sides[0] for time in one.times_ms)
        self.row("256 MiB, WAN with a stalled connection / without", value, 1.25,
                 f"{statistics.median(means[0]):.1f} and {statistics.median(means[1]):.1f} ms, longest {longest:.0f}")  # fmt: skip

    def state(self) -> None:
        with networks.make(MEMORY, 2, self.tools.programs) as network:
            running = self.start(network, Ours)
            try:
                equal_s, received_s = running[0].synchronize(256 * MIB, 5, PATIENCE_S)
            finally:
                stop(running)
        times = ", ".join(f"{time_s:.3f}" for time_s in received_s)
        self.row("256 MiB of state to a newcomer, cold: s", received_s[0], 0.25, f"all: {times}")
        self.row("256 MiB of state that is equal: CPU s of a peer", equal_s, 0.03)

    def quantized(self) -> None:
        with networks.make(Setting("lan", interface_mbit=1000), 2, self.tools.programs) as network:
            running = self.start(network, Ours)
            try:
                (ours,) = running
                for size in (16 * MIB, 64 * MIB):
                    bytes_, plain = self.turns(
                        lambda: ours.measure(size, False, 1, 3, PATIENCE_S, quantized=True),
                        lambda: ours.measure(size, False, 1, 3, PATIENCE_S),
                    )
                    self.row(f"{size_text(size)}, 1 Gbit/s, 8-bit / plain", ratio(bytes_, plain), 1 / 3.5,
                             f"{ms(bytes_)} and {ms(plain)} ms")  # fmt: skip
            finally:
                stop(running)

    @staticmethod
    def beside(ours: list[Measured], ring: list[Measured], more_ms: float) -> float:
        return statistics.median(
            statistics.median(x.times_ms) / (statistics.median(y.times_ms) + more_ms) for x, y in zip(ours, ring)
        )

    @staticmethod
    def say_late(network: Network) -> None:
        late = network.end_delay_line().get("late_us_p99")
        if late is not None:
            print(f"  (the delay line: 99 % of its packets were at most {late / 1e3:.2f} ms late)", flush=True)


def stop(running: list[Contestant]) -> None:
    for contestant in running:
        contestant.close()


def ms(measured: list[Measured]) -> str:
    return f"{statistics.median(time for one in measured for time in one.times_ms):.1f}"


def ratio(a: list[Measured], b: list[Measured]) -> float:
    return statistics.median(statistics.median(x.times_ms) / statistics.median(y.times_ms) for x, y in zip(a, b))


PARTS = ("tcp", "memory", "place", "hosts", "tags", "loss", "stall", "state", "quantized")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench bounds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5, help="in which all take turns (default 5)")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is broken")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part '{unknown[0]}': there are {', '.join(PARTS)}")
    if options.rounds < 1:
        parser.error("one round at least")
    adopt_orphans()
    tree = Path(__file__).resolve().parents[2]
    bench = Bench(Tools(options.programs or tree / "build/bin", Path(__file__).parent), options.rounds)
    print(f"load {machine.load():.1f} on {os.cpu_count()} cores")
    failed = False
    for part in options.parts or PARTS:
        try:
            getattr(bench, part)()
        except Failed as failure:
            print(f"{part}: not measured: {failure}", file=sys.stderr)
            failed = True
    return 1 if failed or (options.check and bench.broken) else 0


if __name__ == "__main__":
    sys.exit(main())
