"""What the forms of DiLoCo cost in quality: the loss of python/examples/char_gpt.py at the end, for each of its modes.

    diloco_quality.py [--peers 4] [--steps 300] [--seeds 2] [--in-process] [mode...]

A mode is one of the program (sync, async, ...), perhaps with a delay, an outer learning rate or fragments: async:20,
sparse@4, streaming+2 (equal parts), streaming+modules:2 (blocks in order), streaming+strided:2 (blocks dealt out).
A rate may fall: sparse@4-1 is 4 for two thirds of the rounds, and then falls linearly to 1. A momentum may follow:
sync@0.7/0.9. Both only with --in-process.

Each run has its own master and peers on this machine. Prints for each mode the loss on held-out draws (mean over the
seeds, and relative to the first mode) and the bytes that a peer sent.

--in-process takes all peers into this process, without a network (gpt_peers.py), which is several times faster. It can
do the modes in which all peers wait for an average (sync, int8, sparse). --inner-lr and --inner-end go with it: the
learning rate of the inner optimizer falls from one to the other along half a cosine.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pccl
import torch
from gpt_peers import Peers, char_gpt
from gpt_peers import train as train_peers
from pccl.diloco import TopK

TREE = Path(__file__).resolve().parents[2]
PROGRAM = TREE / "python" / "examples" / "char_gpt.py"


def parts_of(how: str, layers: int) -> int | list[list[str]]:
    """The blocks of each fragment, by name; all else goes with the first one."""
    kind, _, number = how.rpartition(":")
    count, blocks = int(number), [f"blocks.{block}" for block in range(layers)]
    if not kind:
        return count
    if kind == "strided":
        return [blocks[first::count] for first in range(count)]
    return [blocks[place * layers // count : (place + 1) * layers // count] for place in range(count)]


def with_parts(mode: str, parts: int | list[list[str]]) -> str:
    """The program, with other fragments in a mode."""
    lines = [
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import char_gpt",
        f"char_gpt.MODES[{mode!r}]['fragments'] = {parts!r}",
        "char_gpt.main()",
    ]
    return "\n".join(lines)


def train(mode: str, peers: int, steps: int, period: int, size: list[str], seed: int) -> tuple[float, int]:
    """Returns the loss at the end, and the bytes that a peer sent."""
    mode, _, rate = mode.partition("@")
    mode, _, fragments = mode.partition("+")
    mode, _, delay = mode.partition(":")
    if "-" in rate or "/" in rate:
        raise SystemExit(f"{mode}@{rate}: rates that fall and momenta need --in-process")
    with pccl.MasterNode("127.0.0.1:0") as master:
        master.run()
        program = ["-c", with_parts(mode, parts_of(fragments, int(size[3])))] if fragments else [str(PROGRAM)]
        common = [sys.executable, "-B", *program, f"127.0.0.1:{master.port}", "--mode", mode, *size]
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


def outer_lr(rate: str, rounds: int) -> float | Callable[[int], float]:
    first, _, last = rate.partition("-")
    if not last:
        return float(first)
    begin, end, hold = float(first), float(last), 2 * rounds // 3
    return lambda done: begin + (end - begin) * min(1.0, max(0, done - hold) / (rounds - hold))


def train_in_process(mode: str, options: argparse.Namespace, seed: int, text: torch.Tensor) -> tuple[float, int]:
    """Returns the loss at the end, and 0: nothing was sent."""
    name, _, rate = mode.partition("@")
    form = char_gpt.MODES.get(name)
    if form is None or "overlap" in form:
        raise SystemExit(f"{mode}: --in-process can do sync, int8 and sparse")
    outer = {"lr": 1.0, "momentum": 0.0, **form["outer"]}
    quantize = TopK(k=options.k) if name == "sparse" else form.get("quantize")
    rate, _, momentum = rate.partition("/")
    if momentum:
        outer["momentum"] = float(momentum)
    if rate:
        outer["lr"] = outer_lr(rate, options.steps // options.period)

    def inner_lr(part: float) -> float:
        return float(options.inner_end + (options.inner_lr - options.inner_end) * 0.5 * (1 + math.cos(math.pi * part)))

    peers = Peers(options.peers, options.width, options.layers, options.batch, seed, options.inner_lr, text)
    return train_peers(peers, options.peers, options.steps, options.period, quantize, outer, inner_lr), 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", default=["sync", "int8", "sparse", "async", "async:20", "eager", "streaming"])
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--period", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    for name, size in (("width", 64), ("layers", 2), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--k", type=int, default=TopK().k, help="of sparse, in process: elements of a chunk")
    parser.add_argument("--inner-lr", type=float, default=2e-3)
    parser.add_argument("--inner-end", type=float, help="default: that of --inner-lr, thus a constant rate")
    options = parser.parse_args()
    if not options.in_process and (options.inner_lr != 2e-3 or options.inner_end is not None):
        parser.error("--inner-lr and --inner-end go with --in-process")
    options.inner_end = options.inner_lr if options.inner_end is None else options.inner_end
    torch.set_num_threads(1)
    text = char_gpt.read(char_gpt.TEXTS) if options.in_process else torch.empty(0)
    model = ["--width", str(options.width), "--layers", str(options.layers), "--batch", str(options.batch)]
    print(f"{options.peers} peers, {options.steps} inner steps each, rounds of {options.period}, {options.seeds} seeds")
    first = 0.0
    for mode in options.modes:
        runs = [
            train_in_process(mode, options, seed, text)
            if options.in_process
            else train(mode, options.peers, options.steps, options.period, model, seed)
            for seed in range(options.first_seed, options.first_seed + options.seeds)
        ]
        loss = sum(one for one, _ in runs) / len(runs)
        first = first or loss
        losses = ", ".join(f"{one:.3f}" for one, _ in runs)
        sent = f"  {runs[0][1]:>12,} bytes" if not options.in_process else ""
        print(f"{mode:20} loss {loss:.4f} ({losses})  {loss / first - 1:+7.2%}{sent}", flush=True)


if __name__ == "__main__":
    main()
