"""What the forms of DiLoCo cost in quality: the loss of python/examples/char_gpt.py at the end, for each of its modes.

    diloco_quality.py [--peers 4] [--steps 300] [--seeds 2] [mode...]

A mode is one of the program (sync, async, ...), perhaps with a delay and an outer learning rate: async:20, sparse@4.

Each run has its own master and peers on this machine. Prints for each mode the loss on held-out draws (mean over the
seeds, and relative to the first mode) and the bytes that a peer sent.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pccl

TREE = Path(__file__).resolve().parents[2]
PROGRAM = TREE / "python" / "examples" / "char_gpt.py"
BATCH = "8"


def train(mode: str, peers: int, steps: int, period: int, size: list[str], seed: int) -> tuple[float, int]:
    """Returns the loss at the end, and the bytes that a peer sent."""
    mode, _, rate = mode.partition("@")
    mode, _, delay = mode.partition(":")
    with pccl.MasterNode("127.0.0.1:0") as master:
        master.run()
        common = [sys.executable, "-B", str(PROGRAM), f"127.0.0.1:{master.port}", "--mode", mode, *size]
        common += ["--steps", str(steps), "--period", str(period), "--peers", str(peers)]
        common += ["--delay", delay] if delay else []
        common += ["--outer-lr", rate] if rate else []
        started = [
            subprocess.Popen([*common, "--seed", str(100 * seed + place)], stdout=subprocess.PIPE, text=True)
            for place in range(peers)
        ]
        outputs = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        raise SystemExit(f"{mode}: a peer failed:\n" + "\n".join(outputs))
    ends = [re.search(r"end: loss (\S+), model (\w+), \d+ batches, (\d+) bytes", output) for output in outputs]
    found = [end for end in ends if end is not None]
    if len({end[2] for end in found}) != 1 or len(found) != peers:
        raise SystemExit(f"{mode}: the peers ended with different models:\n" + "\n".join(outputs))
    return float(found[0][1]), sum(int(end[3]) for end in found) // peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", default=["sync", "int8", "sparse", "async", "async:20", "eager", "streaming"])
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--period", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--width", default="64")
    parser.add_argument("--layers", default="2")
    options = parser.parse_args()
    size = ["--width", options.width, "--layers", options.layers, "--batch", BATCH]
    print(f"{options.peers} peers, {options.steps} inner steps each, rounds of {options.period}, {options.seeds} seeds")
    first = 0.0
    for mode in options.modes:
        runs = [
            train(mode, options.peers, options.steps, options.period, size, seed)
            for seed in range(1, options.seeds + 1)
        ]
        loss = sum(one for one, _ in runs) / len(runs)
        first = first or loss
        losses = ", ".join(f"{one:.3f}" for one, _ in runs)
        print(f"{mode:14} loss {loss:.4f} ({losses})  {loss / first - 1:+7.2%}  {runs[0][1]:>12,} bytes", flush=True)


if __name__ == "__main__":
    main()
