"""What is measured: networks, numbers of peers and sizes; and how: rounds in which all contestants take turns."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from compare import networks
from compare.contestants import Contestant, Tools, path_limit
from compare.networks import Failed, Setting, path_options, run

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZES = "4,4K,64K,1M,16M,64M,256M,1G"
QUICK_SIZES = "4,64K,1M,16M"
# The largest size by number of peers: memory and time grow with their product.
LARGEST = {2: 1 << 30, 4: 256 << 20, 8: 64 << 20}
SETTINGS = {
    "loopback": Setting("loopback"),
    "host": Setting("loopback", shared_memory=True),
    "lan": Setting("lan", interface_mbit=1000),
    "wan": Setting("wan", connections=8, flow_mbit=1000, latency_ms=20),
    "loss": Setting("wan", connections=8, flow_mbit=1000, latency_ms=20, loss_percent=0.01),
}
PEERS = {"loopback": (2, 4, 8), "host": (2, 4), "lan": (2, 4), "wan": (2, 4, 8), "loss": (2,)}
ROUND_S = 0.4  # of one contestant, for small sizes
ROUNDS_LEAST = 3


def size_bytes(text: str) -> int:
    value = int(text[:-1]) * UNITS[text[-1].upper()] if text[-1:].upper() in UNITS else int(text)
    if value < 4:
        raise ValueError(text)
    return value


def size_text(size: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        factor = UNITS[unit[0]]
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


@dataclasses.dataclass
class Figures:
    """One contestant in one row."""

    medians_ms: list[float] = dataclasses.field(default_factory=list)  # one per round
    all_ms: list[float] = dataclasses.field(default_factory=list)
    cpu_seconds: float = 0
    operations: int = 0
    error: str = ""


@dataclasses.dataclass
class Row:
    setting: Setting
    part: str
    peers: int
    size: int
    figures: dict[str, Figures]
    predicted_ms: float | None = None
    limit_bytes_s: float | None = None  # of a path, by iperf3

    def median_ms(self, name: str) -> float | None:
        figures = self.figures.get(name)
        return statistics.median(figures.medians_ms) if figures and figures.medians_ms else None

    def ratio(self, name: str, to: str) -> tuple[float, float, float] | None:
        """The median of the ratios of the rounds, and the lowest and the highest one."""
        a, b = self.figures.get(name), self.figures.get(to)
        if a is None or b is None or a is b:
            return None
        ratios = [x / y for x, y in zip(a.medians_ms, b.medians_ms)]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def limit_ms(self) -> float | None:
        """No ring can be faster on a path of this rate."""
        if not self.limit_bytes_s:
            return None
        return 1e3 * 2 * (self.peers - 1) / self.peers * self.size / self.limit_bytes_s

    def as_json(self) -> dict[str, Any]:
        names = list(self.figures)
        return {
            "part": self.part,
            "setting": dataclasses.asdict(self.setting),
            "peers": self.peers,
            "bytes": self.size,
            "path_limit_bytes_s": self.limit_bytes_s,
            "path_limit_ms": self.limit_ms(),
            "predicted_ms": self.predicted_ms,
            "contestants": {
                name: {
                    "median_ms": self.median_ms(name),
                    "min_ms": min(f.all_ms, default=None),
                    "max_ms": max(f.all_ms, default=None),
                    "round_medians_ms": f.medians_ms,
                    "operations": f.operations,
                    "cpu_s_per_gb": f.cpu_seconds / (self.size * f.operations * 1e-9) if f.operations else None,
                    "error": f.error,
                }
                for name, f in self.figures.items()
            },
            "ratios": {f"{names[0]}/{other}": self.ratio(names[0], other) for other in names[1:]} if names else {},
        }


@dataclasses.dataclass
class Part:
    """One network with its peers, and the sizes that are measured on it."""

    name: str
    setting: Setting
    peers: int
    sizes: list[int]


@dataclasses.dataclass
class Options:
    rounds: int
    seconds: float
    in_place: bool = True


def available_memory() -> int:
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def fits(peers: int, size: int) -> bool:
    """In place the library keeps a copy, and gloo and MPI need room too."""
    return 3 * peers * size < available_memory() * 3 // 4


def predict(tools: Tools, part: Part) -> dict[int, float]:
    setting = part.setting
    text = run([str(tools.programs / "predict"), "--peers", str(part.peers), "--connections", str(setting.connections),
                "--sizes", ",".join(map(str, part.sizes)), *path_options(setting)], 300)  # fmt: skip
    rows = [json.loads(line) for line in text.splitlines()]
    return {int(row["bytes"]): float(row["predicted_ms"]) for row in rows}


def share_of(part: Part) -> int:
    """Rows, and as much as three of them for the start of the contestants."""
    return len(part.sizes) + 3


class Comparison:
    def __init__(self, tools: Tools, contestants: list[type[Contestant]], options: Options,
                 say: Callable[[str], None]) -> None:  # fmt: skip
        self.tools, self.kinds, self.options, self.say = tools, contestants, options, say
        self.rows: list[Row] = []
        self.remarks: list[str] = []
        self.delay_lines: list[dict[str, Any]] = []
        self._end = time.monotonic() + options.seconds
        self._shares_left = 0  # of the time, for the parts that have not begun

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)
            self.say(text)

    def run(self, parts: list[Part], print_row: Callable[[Row], None], print_part: Callable[[Part], None]) -> None:
        self._shares_left = sum(share_of(part) for part in parts)
        for part in parts:
            try:
                self._run_part(part, print_row, print_part)
            except Failed as error:
                self.remark(f"{part.name} with {part.peers} peers: from here on skipped: {error}")

    def _run_part(self, part: Part, print_row: Callable[[Row], None], print_part: Callable[[Part], None]) -> None:
        # A part that takes longer than its share takes it from all that follow, not from the last ones alone.
        now = time.monotonic()
        share = max(0.0, self._end - now) * share_of(part) / self._shares_left
        self._shares_left -= share_of(part)
        end = now + share
        print_part(part)
        with networks.make(part.setting, part.peers, self.tools.programs) as network:
            limit = None
            if not part.setting.shared_memory:
                try:
                    limit = path_limit(network, part.setting.connections)
                except Failed as error:
                    self.remark(f"no limit of a path: {error}")
            predicted: dict[int, float] = {}
            if part.setting.kind != "loopback":
                try:
                    predicted = predict(self.tools, part)
                except Failed as error:
                    self.remark(f"no prediction: {error}")
            contestants: list[Contestant] = []
            try:
                self._start(network, contestants)
                for i, size in enumerate(part.sizes):
                    if not fits(part.peers, size):
                        self.remark(f"{size_text(size)} with {part.peers} peers: skipped: it needs more memory")
                        continue
                    if i > 0 and time.monotonic() > end:
                        raise Failed("the time of this part is over")
                    budget = max(1.0, 1.5 * (end - time.monotonic()) / (len(part.sizes) - i))
                    row = Row(part.setting, part.name, part.peers, size, {}, predicted.get(size), limit)
                    self._measure(row, contestants, budget)
                    self.rows.append(row)
                    print_row(row)
            finally:
                for contestant in contestants:
                    contestant.close()
                counted = network.end_delay_line()
            if counted:
                self.delay_lines.append({"part": part.name, "peers": part.peers, **counted})
                late_ms, last_ms = counted["late_us_p99"] / 1e3, counted["late_us_max"] / 1e3
                text = f"delay line: 99 % of its packets were at most {late_ms:.2f} ms late, all of them {last_ms:.1f} ms"
                if late_ms > 0.1 * part.setting.latency_ms:
                    text += "; that is TOO LATE, so these rows are worth little"
                self.say(text)

    def _start(self, network: networks.Network, contestants: list[Contestant]) -> None:
        for kind in self.kinds:
            contestant = kind(self.tools)
            try:
                contestant.start(network)
                contestants.append(contestant)
            except Failed as error:
                contestant.close()
                where = f"{network.setting.kind} with {network.peers} peers"
                self.remark(f"{kind.name} does not take part in {where}: {error}")
            except BaseException:
                contestant.close()
                raise

    def _measure(self, row: Row, contestants: list[Contestant], budget_s: float) -> None:
        begin = time.monotonic()
        row.figures = {contestant.name: Figures() for contestant in contestants}
        iterations: dict[str, int] = {}
        running = list(contestants)
        patience_s = max(30.0, min(300.0, 3 * budget_s))
        for number in range(self.options.rounds):
            if number >= ROUNDS_LEAST and time.monotonic() - begin > budget_s:
                break
            # Another one begins in each round, so that nobody always follows the same neighbour.
            turn = number % len(running) if running else 0
            for contestant in running[turn:] + running[:turn]:
                figures = row.figures[contestant.name]
                try:
                    if contestant.name not in iterations:
                        first = contestant.measure(row.size, self.options.in_place, 1, 1, patience_s)
                        share = min(ROUND_S, budget_s / (self.options.rounds * len(running) * 2))
                        iterations[contestant.name] = max(1, min(200, int(share * 1e3 / max(first.times_ms[0], 1e-3))))
                    count = iterations[contestant.name]
                    measured = contestant.measure(row.size, self.options.in_place, 1, count, patience_s)
                except Failed as error:
                    figures.error = str(error)
                    self.remark(f"{contestant.name}, {size_text(row.size)}, {row.peers} peers: {error}")
                    contestant.close()
                    contestants.remove(contestant)
                    continue
                figures.medians_ms.append(statistics.median(measured.times_ms))
                figures.all_ms += measured.times_ms
                figures.cpu_seconds += measured.cpu_seconds
                figures.operations += len(measured.times_ms)
            running = [contestant for contestant in running if contestant in contestants]


def make_parts(names: list[str], peers: list[int], sizes: list[int] | None, change: dict[str, Any]) -> list[Part]:
    parts = []
    for name in names:
        setting = SETTINGS[name]
        if setting.kind != "loopback":
            setting = dataclasses.replace(setting, **change)
        for count in peers or PEERS[name]:
            largest = LARGEST.get(count, 64 << 20)
            chosen = sizes if sizes is not None else [s for s in map(size_bytes, SIZES.split(",")) if s <= largest]
            parts.append(Part(name, setting, count, chosen))
    return parts


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
