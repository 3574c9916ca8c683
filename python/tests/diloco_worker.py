"""One peer of a DiLoCo run, as a process that a test controls.

It sends events, one dictionary for each (``said``), and receives orders: ``go`` (join), ``to N`` (train up to the end
of round N and wait there), ``die`` (kill yourself in the middle of the next reduction). ``given``: address, seed,
rounds, options (of DiLoCo), timeout_ms.
"""

from __future__ import annotations

import hashlib
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import torch
from dying import Dying

import pccl
from pccl.diloco import DiLoCo, Event

INPUTS, HIDDEN, CLASSES, BATCH = 32, 700, 8, 32


class Leave(Exception):
    """SIGTERM."""


class Orders:
    """The orders received so far."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.go = False
        self.last_round = 0
        self.die = False
        self.leaving = False
        self._reading = False
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: object) -> None:
        self.leaving = True
        if self._reading:
            raise Leave

    def read(self) -> None:
        self._reading = True
        if self.leaving:
            raise Leave
        try:
            order = self._link.recv()
        except EOFError:
            raise Leave from None
        self._reading = False
        word, *rest = order.split()
        if word == "go":
            self.go = True
        elif word == "to":
            self.last_round = int(rest[0])
        elif word == "die":
            self.die = True


class Mortal(Dying):
    """Kills the process while a long reduction runs, if that was ordered."""

    def __init__(self, orders: Orders, address: str, **settings: Any) -> None:
        super().__init__(address, **settings)
        self._orders = orders

    def dies_in(self, array: Any) -> bool:
        return self._orders.die and super().dies_in(array)


def digest(*tensors: torch.Tensor | None) -> str:
    """A short hash of these bytes."""
    state = hashlib.blake2b(digest_size=12)
    for tensor in tensors:
        if tensor is not None:
            state.update(memoryview(tensor.numpy()).cast("B"))
    return state.hexdigest()


def make_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(HIDDEN, CLASSES),
    )


def make_batch(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points whose class follows from a fixed map. A fifth of the labels is random, so that no loss reaches zero."""
    draw = torch.Generator().manual_seed(seed)
    plan = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(12345))
    points = torch.randn(size, INPUTS, generator=draw)
    labels = (points @ plan).argmax(1)
    noise = torch.rand(size, generator=draw) < 0.2
    return points, torch.where(noise, torch.randint(CLASSES, (size,), generator=draw), labels)


def main(link: Connection, given: dict[str, Any], environment: dict[str, str], log: str) -> None:
    os.environ |= environment
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    torch.set_num_threads(1)
    orders = Orders(link)

    def say(said: str, **more: Any) -> None:
        link.send({"said": said, **more})

    model = make_model(given["seed"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    comm = Mortal(orders, given["address"], peer_timeout_ms=given["timeout_ms"])
    diloco: DiLoCo

    def report(event: Event) -> None:
        more: dict[str, Any] = {}
        if event.kind == "outer_step":
            more["hash"] = digest(diloco.outer, diloco.momentum, torch.tensor([diloco.batches]))
        say(event.kind, step=event.inner_step, outer=event.outer_step, world=event.world, **more)

    diloco = DiLoCo(model, optimizer, comm, on_event=report, **given["options"])
    period = given["options"]["H"]
    loss_of = torch.nn.CrossEntropyLoss()
    say("ready")
    try:
        while not orders.go:
            orders.read()
        diloco.join()
        while diloco.inner_step < given["rounds"] * period:
            while orders.last_round <= diloco.inner_step // period:
                orders.read()
            points, labels = make_batch(BATCH, given["seed"] * 1_000_003 + diloco.inner_step)
            optimizer.zero_grad()
            loss_of(model(points), labels).backward()
            diloco.step()
            if diloco.inner_step % period == 0:
                say("round", round=diloco.inner_step // period, world=diloco.world)
        diloco.finish()
        with torch.no_grad():
            points, labels = make_batch(2048, 7)
            say("end", loss=loss_of(model(points), labels).item(), hash=digest(diloco.outer, diloco.momentum))
    except Leave:
        say("left")
    comm.close()
