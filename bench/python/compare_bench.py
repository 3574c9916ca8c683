"""Compares the all-reduce of PCCL with a bare ring, gloo and OpenMPI, on loopback and on networks of its own.

    ./dev bench [part...] [--quick] [--peers 2,4] [--sizes 4K,64M] [--write-docs]

Parts (default: all):
  loopback  processes of this machine; 2, 4 and 8 peers
  host      the same with shared memory for those who have it, PCCL and OpenMPI; 2 and 4 peers
  lan       1 Gbit/s per interface: veth and a token bucket; 2 and 4 peers
  wan       40 ms round trip, 1 Gbit/s per flow, 8 connections: TUN and bench/delay_line.cpp; 2, 4 and 8 peers
  loss      the same with 0.01 % loss; 2 peers

All libraries reduce f32 in place, but for `host` over TCP. They take turns in each round; a ratio is the median of the
ratios of the rounds. lan and wan need root. What is not installed is left out with one line.
Exit status: 0 measured, 1 something of ours could not be measured, 2 usage.
"""

from __future__ import annotations

import argparse
import atexit
import shlex
import signal
import sys
import types
from pathlib import Path
from typing import Any

from compare import machine, plan, report
from compare.contestants import CONTESTANTS, Tools, remove_stale_folders
from compare.networks import Failed, adopt_orphans, reap_orphans, run


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="loopback, host, lan, wan, loss")
    parser.add_argument("--peers", help="numbers of peers, for example 2,4")
    parser.add_argument("--sizes", help=f"for example 4K,64M (default {plan.SIZES}; more peers: fewer large ones)")
    parser.add_argument("--rounds", type=int, default=5, help="in which all take turns (default 5)")
    parser.add_argument("--minutes", type=float, default=14, help="of measuring; the rest is skipped (default 14)")
    parser.add_argument("--quick", action="store_true", help="3 rounds, 2 peers, small sizes: some minutes")
    parser.add_argument("--only", help="contestants, for example pccl,ring")
    parser.add_argument("--out-of-place", action="store_true", help="two buffers for those who can (gloo cannot)")
    network = parser.add_argument_group("other networks than the default ones")
    for name, text in (
        ("latency-ms", "one way"), ("flow-mbit", "rate of a flow"), ("interface-mbit", "rate of an interface"),
        ("queue-ms", "longest wait in a queue"), ("loss-percent", "of segments"),
    ):  # fmt: skip
        network.add_argument(f"--{name}", type=float, help=text)
    network.add_argument("--connections", type=int, help="to each neighbour")
    parser.add_argument("--json", type=Path, help="file for all numbers (default build/bench/results.json)")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md and its plots")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gloo-python", help="an interpreter with torch (default: the one that runs this)")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in plan.SETTINGS]
    if unknown:
        parser.error(f"no part '{unknown[0]}': there are {', '.join(plan.SETTINGS)}")
    try:
        options.size_list = [plan.size_bytes(s) for s in options.sizes.split(",")] if options.sizes else None
        options.peer_list = [int(n) for n in options.peers.split(",")] if options.peers else []
    except ValueError as error:
        parser.error(f"not a size or number: {error}")
    if any(not 2 <= n <= 64 for n in options.peer_list):
        parser.error("2 to 64 peers")
    if options.quick:
        options.rounds = min(options.rounds, 3)
        options.peer_list = options.peer_list or [2]
        options.size_list = options.size_list or [plan.size_bytes(s) for s in plan.QUICK_SIZES.split(",")]
    return options


def main() -> int:
    # Ends the processes of this program on the way out.
    def end(number: int, _: types.FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    adopt_orphans()
    remove_stale_folders()
    atexit.register(reap_orphans)
    options = parse()
    tree = Path(__file__).resolve().parents[2]
    tools = Tools(options.programs or tree / "build/bin", Path(__file__).parent, options.gloo_python or sys.executable)
    command = "./dev bench " + " ".join(shlex.quote(word) for word in sys.argv[1:])

    kinds, versions = [], {}
    for kind in CONTESTANTS:
        if options.only and kind.name not in options.only.split(","):
            continue
        contestant = kind(tools)
        reason = contestant.missing()
        if reason:
            plan.say(f"{kind.name}: skipped: {reason}")
            versions[kind.name] = f"left out: {reason}"
            continue
        kinds.append(kind)
        version = contestant.version()
        if version:
            versions[kind.name] = version
    try:
        versions["iperf3"] = run(["iperf3", "--version"]).splitlines()[0]
    except Failed:
        pass
    if not kinds:
        plan.say("there is nothing to compare")
        return 2
    about = machine.describe(tree, versions)
    for key, value in about.items():
        print(f"{key:>22}: {value}")
    print(f"{'command':>22}: {command}", flush=True)

    change: dict[str, Any] = {
        name: value
        for name in ("latency_ms", "flow_mbit", "interface_mbit", "queue_ms", "loss_percent", "connections")
        if (value := getattr(options, name)) is not None
    }
    parts = plan.make_parts(options.parts or list(plan.SETTINGS), options.peer_list, options.size_list, change)
    comparison = plan.Comparison(
        tools, kinds, plan.Options(options.rounds, options.minutes * 60, not options.out_of_place), plan.say
    )
    names = [kind.name for kind in kinds]
    table = report.Table(names)
    comparison.run(parts, table.row, table.part)
    about["load after"] = f"{machine.load():.1f}"

    results = report.as_json(comparison, about, command)
    folder = tree / "build/bench"
    report.write_json(options.json or folder / "results.json", results)
    print(f"\nresults: {options.json or 'build/bench/results.json'}")
    docs = tree / "docs"
    plots = []
    try:
        place = docs / "benchmarks" if options.write_docs else folder
        plots = report.plot(comparison.rows, names, place)
        print("plots:", ", ".join(str(path.relative_to(tree)) for path in plots))
    except ImportError:
        plan.say("plots: skipped: matplotlib is not installed")
    if options.write_docs:
        text = report.page(results, comparison, names, [str(path.relative_to(docs)) for path in plots], command)
        report.write_page(docs / "benchmarks.md", text)
        print("page: docs/benchmarks.md")
    ours = [row.figures.get("pccl") for row in comparison.rows]
    broken = not comparison.rows or any(f is not None and f.error for f in ours)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
