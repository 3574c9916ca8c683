"""What the DiLoCo helper costs and what it hides: two peers, processes of this machine, 10 million parameters.

    ./dev bench diloco

overhead  what ``step()`` adds to an inner step on average over a round of 50: for a peer that is alone, and for one of two
          beyond the same all-reduce without the helper. As a part of the inner step of a small transformer of that size,
          measured here just before. Bound: 2 %.
hidden    the part of the transfer that a run one step behind does not wait for, while its inner steps sleep for several times
          the transfer: the time that handles of reductions are waited for, one step behind and synchronous. Bound: 90 %.
          How much longer a round is than that of a peer alone is said beside it; that has the vote in it, and that two
          peers do their arithmetic at the same moment on one machine's memory.
peak      the most bytes that come to their end within one inner step, all parameters at once over four fragments: what a
          link has to carry in the time it is given. Bound: 0.8 x 4.

Medians over rounds; the first round of a run, which waits for nothing, is left out. Exit status 1: a bound was missed.
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

PARAMETERS = 10_000_000
FRAGMENTS = 4
# With two peers; inner steps are sleeps, so that they leave the processors to the transfer.
PERIOD, PAUSE_S = 20, 0.05
ROUNDS = 6
# The round of which the overhead is a part.
PERIOD_OVERHEAD = 50
STAGES: dict[str, dict[str, Any]] = {
    "sync": {},
    "behind": {"overlap": True},
    "whole": {"overlap": True, "delay": 5},
    "streaming": {"overlap": True, "delay": 5, "fragments": FRAGMENTS},
}


class Nothing(torch.optim.SGD):
    """An inner optimizer that takes no time."""

    def step(self, closure: Any = None) -> Any:
        return None


class Waits:
    """Adds up how long outcomes of launched reductions are waited for, from its making on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        wait = pccl.AsyncReduceHandle.wait

        def timed(handle: pccl.AsyncReduceHandle, timeout: float | None = None) -> Any:
            begin = time.perf_counter()
            try:
                return wait(handle, timeout)
            finally:
                self.seconds += time.perf_counter() - begin

        pccl.AsyncReduceHandle.wait = timed  # type: ignore[method-assign]


waits = Waits()


class Round(NamedTuple):
    """Medians of rounds, in seconds; of ``peak`` the greatest."""

    seconds: float
    waited: float
    peak: int  # the most bytes that came to their end within an inner step


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


def all_reduce_s(address: str) -> float:
    """Seconds of the all-reduce of all parameters, without the helper."""
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
    """Seconds of a round of inner steps alone."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(PERIOD):
            time.sleep(PAUSE_S)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def peer(addresses: list[str]) -> None:
    """One of two: all stages, each in a run of its own."""
    torch.set_num_threads(1)
    results: dict[str, Any] = {"pauses": pauses_s(), "bare": all_reduce_s(addresses[0])}
    for address, (name, options) in zip(addresses[1:], STAGES.items(), strict=True):
        results[name] = measure(address, PERIOD, PAUSE_S, min_peers=2, **options)
    print(json.dumps(results))


def alone(period: int, pause_s: float, **options: Any) -> float:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        return measure(f"127.0.0.1:{node.port}", period, pause_s, **options).seconds


class Transformer:
    """One of 10.6 million parameters, on 4 x 128 tokens."""

    def __init__(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0)
        self.model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step_s()  # makes the moments

    def step_s(self) -> float:
        """Seconds of forward, backward and AdamW."""
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 128, 384)).square().mean().backward()
            self.optimizer.step()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)


def pair() -> list[dict[str, Any]]:
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
        "one step behind": {"overlap": True},
        "streaming": {"overlap": True, "delay": 5, "fragments": FRAGMENTS},
    }
    for name, options in forms.items():
        inner = transformer.step_s()
        overhead(f"alone, {name}", alone(PERIOD_OVERHEAD, 0.0, **options) / PERIOD_OVERHEAD, inner)

    inner = transformer.step_s()
    mine_sync, mine_behind = alone(PERIOD, PAUSE_S), alone(PERIOD, PAUSE_S, overlap=True)
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
