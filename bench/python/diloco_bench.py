"""Measures the DiLoCo helper (pccl.diloco): its own time, and the transfer time that overlaps with training.

    ./dev bench diloco

The model has 10 million parameters. One peer alone, or two peers as processes of this machine. The inner optimizer does
nothing.

overhead  Time that the helper adds to an inner step: its time per round, divided by 50 inner steps. For a peer that is
          alone, it is the whole round. For one of two peers, the inner steps (sleeps) and the same all-reduce without
          the helper are subtracted. Bound: 2 % of an inner step of a transformer of about that size, measured just
          before.
hidden    Part of the transfer that overlaps with inner steps. The time that ``step()`` waits for transfers with
          one step behind is compared with that of a synchronous run. Inner steps are sleeps. Bound: at least
          90 %, and a synchronous transfer must be shorter than the sleeps of one round.
          The row "round longer than alone" is for comparison. It also contains the vote at the end of a round, and the
          time lost because two peers use the memory of one machine.
peak      Most bytes of reductions that end within one inner step, which is what the link has to carry in the time it is
          given. All parameters at once are compared with four fragments. Bound: at least 0.8 x 4 times lower.

blocking  Seconds that step() blocks in a round, for 10^9 parameters: measured with 10^8, on the GPU too if torch has one.
          The wire takes no time (an all-reduce is a copy), and inner steps take as long as the thread of the transfer
          computes. "without the check": with check_every=0. The second number is the CPU time of the training thread.
          Both are the smallest of some rounds, because other programs only add to them.

Times are medians over rounds, without the first round of each run: one step behind it has nothing to wait for.
Exit status 1: a bound was missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("PCCL_PORT_RANGE", "0")

import torch

import pccl
from pccl.diloco import DiLoCo
from pccl.diloco._encoding import Reduction
from pccl.diloco._transfer import Transfer

PARAMETERS = 10_000_000
FRAGMENTS = 4
# For what step() blocks.
LARGE = 100_000_000
# Inner steps per round, and seconds of each. They are sleeps, which leave the CPU to the transfer.
PERIOD, PAUSE_S = 20, 0.05
ROUNDS = 6
# Inner steps per round, for the overhead.
PERIOD_OVERHEAD = 50
STAGES: dict[str, dict[str, Any]] = {
    "sync": {},
    "behind": {"overlap": True, "delay": PERIOD},
    "whole": {"overlap": True, "delay": 5},
    "streaming": {"overlap": True, "delay": 5, "fragments": FRAGMENTS},
}


class Nothing(torch.optim.SGD):
    """An inner optimizer that does nothing."""

    def step(self, closure: Any = None) -> Any:
        return None


class Waits:
    """Adds up the time that step() waits for a transfer. The constructor replaces the method that does so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        finish = Transfer.finish

        def timed(transfer: Transfer) -> int | None:
            begin = time.perf_counter()
            try:
                return finish(transfer)
            finally:
                self.seconds += time.perf_counter() - begin

        Transfer.finish = timed  # type: ignore[method-assign]


waits = Waits()


class Round(NamedTuple):
    """Medians over the rounds of a run, and the peak of the whole run."""

    seconds: float
    waited: float  # seconds that step() waited for transfers
    peak: int  # most bytes of reductions that ended within one inner step; 0 if inner steps take no time


def rounds(diloco: DiLoCo, comm: pccl.Communicator, period: int, pause_s: float) -> Round:
    seconds, waited, peak, sent = [], [], 0, 0
    diloco.join()
    for _ in range(ROUNDS):
        begin, waited_before = time.perf_counter(), waits.seconds
        for _ in range(period):
            if pause_s:
                time.sleep(pause_s)
            diloco.step()
            now = comm.stats()["all_reduce"]["sent_bytes"] if pause_s else 0
            peak, sent = max(peak, now - sent), now
        seconds.append(time.perf_counter() - begin)
        waited.append(waits.seconds - waited_before)
    diloco.finish()
    return Round(statistics.median(seconds[1:]), statistics.median(waited[1:]), peak)


def measure(address: str, period: int, pause_s: float, **options: Any) -> Round:
    model = torch.nn.Linear(PARAMETERS // 100, 100, bias=False)
    with pccl.Communicator(address) as comm:
        diloco = DiLoCo(model, Nothing(model.parameters()), comm, H=period, **options)
        return rounds(diloco, comm, period, pause_s)


def blocking_s(parameters: int, device: str, **options: Any) -> tuple[float, float]:
    """Returns the seconds that step() takes in a round if the wire takes none, and the CPU seconds of its thread."""

    def copy(_: Transfer, reduction: Reduction) -> int:
        reduction.receive.copy_(reduction.send)
        return 1

    reduce, Transfer._reduce = Transfer._reduce, copy  # type: ignore[method-assign]
    model = torch.nn.Linear(parameters // 100, 100, bias=False, device=device)
    walls, cpus = [], []
    try:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            with pccl.Communicator(f"127.0.0.1:{node.port}") as comm:
                diloco = DiLoCo(model, Nothing(model.parameters()), comm, H=PERIOD, **options)
                diloco.join()
                for _ in range(ROUNDS):
                    wall = cpu = 0.0
                    for _ in range(PERIOD):
                        begin, cpu_begin = time.perf_counter(), time.thread_time()
                        diloco.step()
                        wall += time.perf_counter() - begin
                        cpu += time.thread_time() - cpu_begin
                        if diloco._transfer is not None and diloco._transfer._thread is not None:
                            diloco._transfer._thread.join()
                    walls.append(wall)
                    cpus.append(cpu)
                diloco.finish()
    finally:
        Transfer._reduce = reduce  # type: ignore[method-assign]
    return min(walls[1:]), min(cpus[1:])


def all_reduce_s(address: str) -> float:
    """Returns the seconds of an all-reduce of all parameters by two peers, without the helper."""
    array = torch.zeros(PARAMETERS)
    seconds = []
    with pccl.Communicator(address) as comm:
        comm.connect()
        while comm.get_attribute(pccl.Attribute.GLOBAL_WORLD_SIZE) < 2:
            comm.update_topology()
        for _ in range(ROUNDS):
            time.sleep(PAUSE_S)
            begin = time.perf_counter()
            comm.all_reduce(array, array, op=pccl.ReduceOp.SUM)
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def pauses_s() -> float:
    """Returns the seconds of one round of inner steps (sleeps) without the helper."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(PERIOD):
            time.sleep(PAUSE_S)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def peer(addresses: list[str]) -> None:
    """The process of one of two peers. Runs each stage with another master, and prints the results as JSON."""
    torch.set_num_threads(1)
    results: dict[str, Any] = {"pauses": pauses_s(), "bare": all_reduce_s(addresses[0])}
    for address, (name, options) in zip(addresses[1:], STAGES.items(), strict=True):
        results[name] = measure(address, PERIOD, PAUSE_S, min_peers=2, **options)
    print(json.dumps(results))


def alone(period: int, pause_s: float, **options: Any) -> float:
    """Returns the seconds of a round of a peer that is alone in its run. ``delay="H"``: a whole round."""
    if options.get("delay") == "H":
        options["delay"] = period
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        return measure(f"127.0.0.1:{node.port}", period, pause_s, **options).seconds


class Transformer:
    """A transformer of 10.6 million parameters. A batch is 4 sequences of 128 tokens."""

    def __init__(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0)
        self.model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step_s()  # allocates the moments of AdamW before the first measurement

    def step_s(self) -> float:
        """Returns the seconds of one inner step: forward, backward and AdamW."""
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 128, 384)).square().mean().backward()
            self.optimizer.step()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)


def pair() -> list[dict[str, Any]]:
    """Runs two peer processes, with masters in this process. Returns what each printed, by name of the stage."""
    nodes = [pccl.MasterNode("127.0.0.1:0") for _ in range(1 + len(STAGES))]
    for node in nodes:
        node.run()
    addresses = [f"127.0.0.1:{node.port}" for node in nodes]
    peers = [
        subprocess.Popen([sys.executable, __file__, "--peer", *addresses], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [one.communicate(timeout=1200)[0] for one in peers]
    for node in nodes:
        node.close()
    results = [json.loads(output) for output in outputs]
    return [
        {name: Round(*value) if name in STAGES else value for name, value in one.items()} for one in results
    ]


def main() -> int:
    missed = []

    def row(name: str, value: str, bound: str, held: bool) -> None:
        print(f"{name:<52} {value:>26}   {bound}{'' if held else '   MISSED'}", flush=True)
        if not held:
            missed.append(name)

    def overhead(name: str, part: float, inner: float) -> None:
        value = f"{part * 1e3:.2f} of {inner * 1e3:.0f} ms = {part / inner:.2%}"
        row(f"overhead, {name}", value, "at most 2 %", part <= 0.02 * inner)

    transformer = Transformer()
    forms: dict[str, dict[str, Any]] = {
        "sync": {},
        "one step behind": {"overlap": True, "delay": "H"},
        "streaming": {"overlap": True, "delay": 5, "fragments": FRAGMENTS},
    }
    for name, options in forms.items():
        inner = transformer.step_s()
        overhead(f"alone, {name}", alone(PERIOD_OVERHEAD, 0.0, **options) / PERIOD_OVERHEAD, inner)

    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        blocking = forms | {
            "one step behind, int8": {"overlap": True, "delay": "H", "quantize": "int8"},
            "5 steps behind": {"overlap": True},
            "5 steps behind, int8": {"overlap": True, "quantize": "int8"},
            "5 steps behind, without the check": {"overlap": True, "check_every": 0},
        }
        for name, options in blocking.items():
            options = {**options, "delay": PERIOD} if options.get("delay") == "H" else options
            wall, cpu = (one * 1e9 / LARGE for one in blocking_s(LARGE, device, **options))
            row(f"blocking, {name}, {device}", f"{wall:.2f} s, CPU {cpu:.2f} s", "", True)

    inner = transformer.step_s()
    mine_sync, mine_behind = alone(PERIOD, PAUSE_S), alone(PERIOD, PAUSE_S, overlap=True, delay="H")
    results = pair()

    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        return statistics.mean(value(one) for one in results)

    beyond = mean(lambda one: one["sync"].seconds - one["pauses"] - one["bare"])
    overhead("one of two, sync, beyond the transfer", max(beyond, 0.0) / PERIOD_OVERHEAD, inner)
    transfer, waited = mean(lambda one: one["sync"].waited), mean(lambda one: one["behind"].waited)
    longer = [mean(lambda one: one["sync"].seconds) - mine_sync, mean(lambda one: one["behind"].seconds) - mine_behind]
    row("all-reduce without the helper", f"{results[0]['bare'] * 1e3:.0f} ms", "", True)
    row("waited for, synchronous, one step behind", f"{transfer * 1e3:.1f} ms, {waited * 1e3:.1f} ms", "", True)
    row("round longer than alone", ", ".join(f"{one * 1e3:.1f} ms" for one in longer), "", True)
    row("hidden", f"{1 - waited / transfer:.1%}", "at least 90 %", waited <= 0.1 * transfer and transfer < PERIOD * PAUSE_S)
    whole, parts = results[0]["whole"].peak, results[0]["streaming"].peak
    row("peak bytes per inner step, whole, streaming", f"{whole}, {parts}", "", True)
    row("peak", f"{whole / parts:.2f} x lower", f"at least {0.8 * FRAGMENTS:.1f}", whole >= 0.8 * FRAGMENTS * parts)
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2:])
    else:
        sys.exit(main())
