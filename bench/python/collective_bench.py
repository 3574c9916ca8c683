"""Time and bytes of all collectives, beside gloo: ``./dev bench collectives [time|bytes] [--check]``.

time   Peers on this machine move arrays (default 64 MiB), through the C interface (also over TCP, where peers of one
       host use shared memory otherwise) and through torch. All contestants take turns. A ratio is the median of the
       ratios of the rounds: our time over that of gloo. The time of a collective is from the first member's begin to
       the last member's end, behind a barrier. Bound: 0.9 for all_reduce, all_gather, broadcast and reduce_scatter, on
       a machine that does nothing else.
bytes  Each peer is a network namespace with an interface of its own, and a bridge counts every frame, with all
       headers and acknowledgements. Bounds: at most 1.03 of the optimum; through torch at most 1.1 (broadcast) and
       1.05 (all_gather, reduce_scatter) of the bytes of gloo.

The array is what all hold after an all_gather, what each has before a reduce_scatter and an all_to_all, and what the
root has in a gather and a scatter. Of w members, and an array of S bytes, some interface must carry in one direction
at least

    all_reduce                                              2 (w - 1) / w  S
    all_gather, reduce_scatter, gather, scatter, all_to_all   (w - 1) / w  S
    broadcast, reduce                                                      S

and all interfaces together what the members must receive: (w - 1) / w S in a gather and a scatter, 2 (w - 1) S in an
all_reduce, (w - 1) S in the others. The pieces of a gather, a scatter and an all_to_all go over direct edges. The first
one of a group goes around the ring, where all together carry w / 2 times this sum, and makes the edges: so these kinds
are repeated before they are counted, until one goes direct.

Exit status: 0 measured, and with --check all bounds held; 1 not measured, or a bound is broken; 2 usage. bytes needs
root and iproute2. With --skip, without these it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

from compare import machine, networks, report
from compare.contestants import Contestant, Gloo, Ours, OursOverTcp, OursThroughTorch, Tools
from compare.networks import CountedNetwork, Failed, Setting
from compare.plan import say, size_bytes, size_text

KINDS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "gather", "scatter", "all_to_all")
TIME_BOUND = 0.9
TIME_BOUND_KINDS = KINDS[:4]
BYTES_BOUND = 1.03
GLOO_BOUNDS = {"broadcast": 1.1, "all_gather": 1.05, "reduce_scatter": 1.05}
PATIENCE_S = 300.0
DIRECT_KINDS = ("gather", "scatter", "all_to_all")
WARM_UPS_MAX = 50
RATIO_TITLES = ("/ gloo", "TCP / gloo", "torch / gloo")  # of the contestants of measure_time(), in their order


def optimum(kind: str, world: int) -> tuple[float, float]:
    """For an array of 1 byte: what the busiest interface and all interfaces together must carry in one direction."""
    part = (world - 1) / world
    if kind == "all_reduce":
        return 2 * part, 2 * (world - 1)
    if kind in ("broadcast", "reduce"):
        return 1, world - 1
    if kind in ("gather", "scatter"):
        return part, part
    return part, world - 1


class Verdicts:
    def __init__(self) -> None:
        self.broken: list[str] = []

    def hold(self, what: str, value: float, bound: float) -> str:
        if value <= bound:
            return "held"
        self.broken.append(f"{what}: {value:.3f}, bound {bound:g}")
        return "BROKEN"


def start(kinds: list[type[Contestant]], tools: Tools, network: networks.Network) -> list[Contestant]:
    running: list[Contestant] = []
    for kind in kinds:
        contestant = kind(tools)
        try:
            contestant.start(network)
        except BaseException:
            for one in (contestant, *running):
                one.close()
            raise
        running.append(contestant)
    return running


def measure_time(options: argparse.Namespace, tools: Tools, verdicts: Verdicts) -> list[dict[str, object]]:
    rows = []
    kinds: list[type[Contestant]] = [Ours, OursOverTcp, OursThroughTorch, Gloo]
    ours = kinds[:-1]
    for world in options.peers or [2, 4]:
        size = options.size or 64 << 20
        print(f"\nloopback, {world} peers, {size_text(size)}; ms, and our time over that of gloo")
        print(f"{'':>15}" + "".join(f"{kind.name:>12}" for kind in kinds) +
              "".join(f"{title:>14}" for title in RATIO_TITLES))  # fmt: skip
        with networks.make(Setting("loopback", shared_memory=True), world, tools.programs) as network:
            contestants = start(kinds, tools, network)
            try:
                for kind in options.kinds:
                    medians: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
                    for number in range(options.rounds):
                        turn = number % len(contestants)
                        for contestant in contestants[turn:] + contestants[:turn]:
                            times = contestant.move(kind, size, 1 + options.iterations, PATIENCE_S)
                            medians[contestant.name].append(statistics.median(times[1:]))
                    ratios = {
                        name: statistics.median(x / y for x, y in zip(medians[name], medians[Gloo.name]))
                        for name in (one.name for one in ours)
                    }
                    verdict = ""
                    if kind in TIME_BOUND_KINDS:
                        verdict = verdicts.hold(f"time of {kind}, {world} peers", ratios[Ours.name], TIME_BOUND)
                    cells = "".join(f"{statistics.median(medians[one.name]):12.1f}" for one in contestants)
                    cells += "".join(f"{ratio:14.2f}" for ratio in ratios.values())
                    print(f"{kind:>15}{cells}  {verdict}", flush=True)
                    rows.append({"kind": kind, "peers": world, "bytes": size, "round_medians_ms": medians,
                                 "ratios": ratios})  # fmt: skip
            finally:
                for contestant in contestants:
                    contestant.close()
    return rows


def count(network: CountedNetwork, contestant: Contestant, kind: str, size: int, rounds: int) -> tuple[float, float]:
    """Bytes of one collective: of the busiest interface in its busier direction, and of all together. The least of the
    rounds: if the machine stands still, TCP sends segments again, which is no property of the collective."""
    counted = []
    for _ in range(rounds):
        before = network.counters()
        contestant.move(kind, size, 1, PATIENCE_S)
        moved = [(a - b, c - d) for (a, c), (b, d) in zip(network.counters(), before)]
        counted.append((max(max(pair) for pair in moved), sum(sent for sent, _ in moved)))
    return min(busiest for busiest, _ in counted), min(total for _, total in counted)


def warm_up(network: CountedNetwork, contestant: Contestant, kind: str, world: int, size: int) -> None:
    """Until the pieces go over direct edges. Around a ring of three members or more, they carry at least 1.5 times the
    optimum."""
    if kind not in DIRECT_KINDS or world < 3 or isinstance(contestant, Gloo):
        return
    for _ in range(WARM_UPS_MAX):
        if count(network, contestant, kind, size, 1)[1] < 1.2 * size * optimum(kind, world)[1]:
            return


def judge_bytes(kind: str, world: int, size: int, counted: dict[str, tuple[float, float]], verdicts: Verdicts) -> str:
    """The row of the table, from what `count` gave for each contestant."""
    busiest, total = (size * factor for factor in optimum(kind, world))
    ours, torch, gloo = (counted.get(one.name) for one in (Ours, OursThroughTorch, Gloo))
    assert ours is not None
    where = f"{kind}, {world} peers"
    held = [
        verdicts.hold(f"bytes of the busiest interface, {where}", ours[0] / busiest, BYTES_BOUND),
        verdicts.hold(f"bytes of all interfaces, {where}", ours[1] / total, BYTES_BOUND),
    ]
    text = "".join(f"{value / best:9.3f}" for pair in counted.values() for value, best in zip(pair, (busiest, total)))
    if torch and gloo:
        ratio = torch[1] / gloo[1]
        text += f"{ratio:14.3f}"
        if kind in GLOO_BOUNDS:
            held.append(verdicts.hold(f"bytes through torch over those of gloo, {where}", ratio, GLOO_BOUNDS[kind]))
    return f"{kind:>15}{text}  {'BROKEN' if 'BROKEN' in held else 'held'}"


def measure_bytes(options: argparse.Namespace, tools: Tools, verdicts: Verdicts) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    kinds: list[type[Contestant]] = [Ours]
    for contestant in (OursThroughTorch, Gloo):
        reason = contestant(tools).missing()
        if reason:
            say(f"{contestant.name}: skipped: {reason}")
        else:
            kinds.append(contestant)
    for world in options.peers or list(range(2, 10)):
        # All pieces have one length.
        size = (options.size or 16 << 20) // (4 * world) * (4 * world)
        print(f"\n{world} peers, {size / 1e6:.1f} MB, frames of {options.mtu} bytes; bytes over the optimum")
        print(f"{'':>15}" + "".join(f"{one.name:>18}" for one in kinds))
        print(f"{'':>15}" + f"{'busiest':>9}{'total':>9}" * len(kinds) + ("  torch / gloo" if len(kinds) == 3 else ""))
        with CountedNetwork(world, options.mtu) as network:
            contestants = start(kinds, tools, network)
            try:
                for kind in options.kinds:
                    for one in contestants:
                        warm_up(network, one, kind, world, size)
                    counted = {one.name: count(network, one, kind, size, options.rounds) for one in contestants}
                    print(judge_bytes(kind, world, size, counted, verdicts), flush=True)
                    rows.append({"kind": kind, "peers": world, "bytes": size, "counted": counted,
                                 "optima": optimum(kind, world)})  # fmt: skip
            finally:
                for one in contestants:
                    one.close()
    return rows


def section(results: dict[str, Any], about: dict[str, str], command: str) -> str:
    """Of docs/benchmarks.md."""
    lines = [
        report.COLLECTIVES,
        "",
        f"Command: `{command}` ({about['date']}, commit {about['commit']}, load before {about['load before']})",
        "",
        "Times are medians in ms, from the first member's begin to the last member's end: of the C interface, of torch",
        "with this library as its backend, and of torch with gloo. Ratios are medians of the ratios of the rounds, so",
        "below 1 means that we are faster. Where nothing else is said, peers of one host use shared memory. The bytes",
        "are those of all interfaces, in network namespaces.",
        "",
    ]
    for peers in sorted({row["peers"] for row in results.get("time", [])}):
        lines += [
            f"### {peers} peers",
            "",
            "| collective | ours | torch | gloo | ours / gloo | torch / gloo | over TCP / gloo | bytes, torch / gloo |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in (row for row in results["time"] if row["peers"] == peers):
            times = {name: statistics.median(rounds) for name, rounds in row["round_medians_ms"].items()}
            counted = next(
                (
                    f"{of[OursThroughTorch.name][1] / of[Gloo.name][1]:.2f}"
                    for other in results.get("bytes", [])
                    if (other["kind"], other["peers"]) == (row["kind"], peers)
                    for of in [other["counted"]]
                    if OursThroughTorch.name in of and Gloo.name in of
                ),
                "-",
            )
            cells = [f"{times[one.name]:.1f}" for one in (Ours, OursThroughTorch, Gloo)]
            cells += [f"{row['ratios'][one.name]:.2f}" for one in (Ours, OursThroughTorch, OursOverTcp)]
            lines.append(f"| {row['kind']} | " + " | ".join([*cells, counted]) + " |")
        lines.append("")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench collectives", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="time, bytes (default: both)")
    parser.add_argument("--peers", type=lambda text: [int(n) for n in text.split(",")], help="for example 2,4")
    parser.add_argument("--size", type=size_bytes, help="of the array (default 64M for time, 16M for bytes)")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="for example broadcast")
    parser.add_argument("--rounds", type=int, default=0, help="in which all take turns (default 7; bytes: 3)")
    parser.add_argument("--iterations", type=int, default=3, help="time: collectives in a round (default 3)")
    parser.add_argument("--mtu", type=int, default=9000, help="bytes: of a frame (default 9000)")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is broken")
    parser.add_argument("--skip", action="store_true", help="bytes: where namespaces cannot be made, that is no failure")
    parser.add_argument("--write-docs", action="store_true", help="write the last section of docs/benchmarks.md")
    parser.add_argument("--json", type=Path, help="file for all numbers (default build/bench/collectives.json)")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    wrong = [part for part in options.parts if part not in ("time", "bytes")]
    wrong += [kind for kind in options.kinds if kind not in KINDS]
    if wrong:
        parser.error(f"no part or kind '{wrong[0]}'")
    if options.write_docs and "time" not in (options.parts or ["time"]):
        parser.error("--write-docs needs the part time")
    if any(not 2 <= n <= 64 for n in options.peers or []):
        parser.error("2 to 64 peers")
    return options


def main() -> int:
    networks.adopt_orphans()
    options = parse()
    tree = Path(__file__).resolve().parents[2]
    os.environ["PYTHONPATH"] = f"{tree / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    tools = Tools(options.programs or tree / "build/bin", Path(__file__).parent)
    verdicts = Verdicts()
    results: dict[str, Any] = {"cores": os.cpu_count()}
    about = machine.describe(tree, {})
    results["load before"] = about["load before"]
    print(f"load {about['load before']} on {os.cpu_count()} cores")
    rounds = options.rounds
    try:
        for part in options.parts or ["time", "bytes"]:
            if part == "time":
                options.rounds = rounds or 7
                results["time"] = measure_time(options, tools, verdicts)
            elif options.skip and not networks.may_make_namespaces():
                print("skipped: network namespaces need root and iproute2")
            else:
                options.rounds = rounds or 3
                results["bytes"] = measure_bytes(options, tools, verdicts)
    except Failed as failure:
        say(f"not measured: {failure}")
        return 1
    results["broken bounds"] = verdicts.broken
    path = options.json or tree / "build/bench/collectives.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    if options.write_docs:
        command = shlex.join(["./dev", "bench", "collectives", *sys.argv[1:]])
        report.write_page(tree / "docs/benchmarks.md", collectives=section(results, about, command))
        print("section: docs/benchmarks.md")
    for line in verdicts.broken:
        print(f"BROKEN: {line}")
    return 1 if options.check and verdicts.broken else 0


if __name__ == "__main__":
    sys.exit(main())
