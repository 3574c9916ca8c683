"""What docs/diloco.md states about memory, and about a peer that is removed from the run."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import Any

import numpy
import pccl
import pytest
from conftest import run_threads

torch = pytest.importorskip("torch")

from pccl.diloco import DiLoCo, Event
from pccl.diloco._cores import CHUNK
from pccl.diloco._encoding import Exchange

PARAMETERS = 4096 * 1024


def held_bytes(diloco: DiLoCo, model: Any) -> int:
    """Bytes of arrays and tensors that the helper refers to. Each memory counts once; the model's does not count."""
    seen: set[int] = set()
    memory: dict[int, int] = {}
    waiting: list[Any] = [diloco]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, torch.nn.Module, torch.optim.Optimizer)):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            memory[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, numpy.ndarray):
            while isinstance(one.base, numpy.ndarray):  # one is a view
                one = one.base
            memory[one.__array_interface__["data"][0]] = one.nbytes
        elif not callable(one):
            waiting += gc.get_referents(one)
    for parameter in model.parameters():
        memory.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(memory.values())


def carry_out(exchange: Exchange, world: int) -> None:
    """Runs an exchange as if the other members had nothing to add."""
    reduction = next(exchange)
    try:
        while True:
            reduction.receive.copy_(reduction.send)
            reduction = exchange.send(world)
    except StopIteration:
        pass


@pytest.mark.parametrize(
    ("fragments", "quantize", "bytes_each"), [(1, None, 16), (4, None, 10), (1, "int8", 22), (4, "int8", 14.5)]
)
def test_bytes_per_parameter(fragments: int, quantize: str | None, bytes_each: float) -> None:
    model = torch.nn.Linear(1024, PARAMETERS // 1024, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    communicator = pccl.Communicator("127.0.0.1:1")
    diloco = DiLoCo(model, optimizer, communicator, H=8, fragments=fragments, quantize=quantize)
    size = PARAMETERS // fragments
    carry_out(diloco._encoding.exchange(0, size, 1), 2)  # makes the buffers of the codes
    held = held_bytes(diloco, model)
    assert held / PARAMETERS == pytest.approx(bytes_each, abs=0.1)
    tracemalloc.start()
    try:
        carry_out(diloco._encoding.exchange(0, size, 1), 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Passes over chunks of elements, on up to 4 cores here, need room that is the same for any model.
    assert peak <= 4 * 12 * CHUNK


@pytest.mark.parametrize("alone", [True, False])
def test_what_was_learned_when_a_peer_is_thrown_out(master: str, alone: bool) -> None:
    """It is kept if the run did not go on. Otherwise the run's state replaces it."""
    events: list[str] = []
    averages: list[float] = []
    ended = threading.Event()

    def trained(index: int) -> tuple[int, float]:
        model = torch.nn.Linear(4, 1, bias=False)
        with torch.no_grad():
            model.weight.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

        def tell(event: Event) -> None:
            if index == 0:
                events.append(event.kind)

        with pccl.Communicator(master) as communicator:
            diloco = DiLoCo(
                model, optimizer, communicator, H=4, outer={"lr": 1.0, "momentum": 0.0}, min_peers=1 if alone else 2,
                on_event=tell,
            )  # fmt: skip
            diloco.join()
            if index == 0:
                communicator.abort()
            while True:
                with torch.no_grad():
                    model.weight += index + 1.0
                diloco.advance()
                if index == 0 and "lost" in events:
                    ended.set()
                    reached = diloco.inner_step, model.weight[0, 0].item()
                    if alone:
                        for _ in range(4):
                            with torch.no_grad():
                                model.weight += 1.0
                            diloco.advance()
                        averages.append(diloco.outer[0].item())
                    return reached
                if index == 1 and ended.is_set():
                    return diloco.inner_step, model.weight[0, 0].item()

    inner_step, weight = run_threads(1 if alone else 2, trained)[0]
    assert "joined" in events[events.index("lost") :]
    assert inner_step % 4 == 0
    if alone:
        # From its own four steps, which are also in the next average.
        assert (inner_step, weight, averages) == (4, 4.0, [8.0])
    else:
        # Two for each step of the other peer, and nothing of its own.
        assert inner_step > 0 and weight == 2.0 * inner_step
