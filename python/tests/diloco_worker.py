"""One peer of a DiLoCo run, as a process that a test controls.

It sends events, one dictionary for each (``said``), and receives orders: ``go`` (join), ``to N`` (train up to the end
of round N and wait there), ``die`` (kill yourself in the middle of the next reduction). ``given``: address, seed,
rounds, options (of DiLoCo), timeout_ms, replica. If ``replica`` is given, this is one process of a replica, and its
model is sharded: rank, size, port (of the store), name, kind (of the model; "node": only rank 0 is in the run).

With the option ``checkpoints``, it saves a checkpoint after each round, and begins with the last one of its seed.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dying import Dying

import pccl
from pccl.diloco import DiLoCo, Event

INPUTS, HIDDEN, CLASSES, BATCH = 32, 720, 8, 32


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


def make_model(seed: int, processes: int = 1) -> torch.nn.Module:
    """Each process of a replica has as many parameters as a peer of one process, so that it can die while it sends."""
    torch.manual_seed(seed)
    hidden = math.ceil(HIDDEN * math.sqrt(processes) / 16) * 16
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, hidden),
        torch.nn.Tanh(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.Tanh(),
        torch.nn.Linear(hidden, CLASSES),
    )


def shard(model: torch.nn.Module, kind: str, size: int) -> torch.nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if kind in ("ddp", "node"):
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind in ("fsdp", "hsdp"):
        mesh = (
            init_device_mesh("cpu", (size,))
            if kind == "fsdp"
            else init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
        )
        for layer in (model[0], model[2], model[4]):  # type: ignore[index]
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tp":
        mesh = init_device_mesh("cpu", (size,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    else:
        raise ValueError(kind)
    return model


def falling(rounds: int) -> float:
    """An outer learning rate."""
    return 0.6 + 0.4 / (1 + rounds)


class Checkpoints:
    """Those of one process. All processes of a replica begin with the same round."""

    KEPT = 3  # rounds; the processes of a replica may be one apart

    def __init__(self, folder: Path, seed: int, rank: int) -> None:
        self._folder = folder / f"checkpoints-{seed}-{rank}"
        self._folder.mkdir(exist_ok=True)

    def save(self, diloco: DiLoCo, last_round: int) -> None:
        begun = self._folder / "begun"
        torch.save(diloco.state_dict(), begun)
        begun.rename(self._folder / f"{last_round}.pt")
        for old in sorted(self._rounds())[: -self.KEPT]:
            (self._folder / f"{old}.pt").unlink()

    def load(self, diloco: DiLoCo, size: int) -> None:
        usable: list[set[int]] = [self._rounds()] * size
        if size > 1:
            dist.all_gather_object(usable, self._rounds())
        common = set.intersection(*usable)
        if common:
            diloco.load_state_dict(torch.load(self._folder / f"{max(common)}.pt"))

    def _rounds(self) -> set[int]:
        return {int(one.stem) for one in self._folder.glob("*.pt")}


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

    rank, size = (0, 1) if given["replica"] is None else (given["replica"]["rank"], given["replica"]["size"])
    is_node = given["replica"] is not None and given["replica"]["kind"] == "node"
    model = make_model(given["seed"], 1 if is_node else size)
    settings: dict[str, Any] = {"peer_timeout_ms": given["timeout_ms"]}
    options = dict(given["options"])
    checkpoints = None
    # The state of a node is on its rank 0.
    if options.pop("checkpoints", False) and not (is_node and rank > 0):
        checkpoints = Checkpoints(Path(log).parent, given["seed"], rank)
    if given["replica"] is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store is served by the test
        # Now and then gloo does not notice that another process was killed in a collective.
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{given['replica']['port']}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=120),
        )
        model = shard(model, given["replica"]["kind"], size)
        if not is_node:
            settings |= {"peer_group": rank, "gang": (given["replica"]["name"], size, rank), "gang_timeout_s": 600.0}
        options = {**options, "process_group": dist.group.WORLD}
    # With tensor parallelism all processes need the same data.
    data = given["seed"]
    if given["replica"] is not None and given["replica"]["kind"] != "tp":
        data = data * 10 + rank
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    comm = None if is_node and rank > 0 else Mortal(orders, given["address"], **settings)
    diloco: DiLoCo

    def report(event: Event) -> None:
        more: dict[str, Any] = {}
        if event.kind == "outer_step":
            more["batches"] = diloco.batches
            more["hash"] = digest(diloco.outer, diloco.momentum, torch.tensor([diloco.batches]))
        say(event.kind, step=event.inner_step, outer=event.outer_step, world=event.world, **more)

    diloco = DiLoCo(model, optimizer, comm, on_event=report, **options)
    period = given["options"]["H"]
    loss_of = torch.nn.CrossEntropyLoss()
    if checkpoints is not None:
        checkpoints.load(diloco, 1 if is_node else size)
    say("ready", elements=0 if comm is None else diloco.outer.numel())
    try:
        while not orders.go:
            orders.read()
        diloco.join()
        if comm is None:
            say("joined", step=diloco.inner_step, world=diloco.world)
        while diloco.inner_step < given["rounds"] * period:
            while orders.last_round <= diloco.inner_step // period:
                orders.read()
            points, labels = make_batch(BATCH, data * 1_000_003 + diloco.inner_step)
            optimizer.zero_grad()
            loss_of(model(points), labels).backward()
            samples = BATCH - diloco.inner_step % 5 - given["seed"] % 3
            diloco.step(samples=samples if options.get("weighted") else None)
            if diloco.inner_step % period == 0 and checkpoints is not None:
                checkpoints.save(diloco, diloco.inner_step // period)
            if diloco.inner_step % period == 0:
                say("round", round=diloco.inner_step // period, world=diloco.world)
        diloco.finish()
        with torch.no_grad():
            points, labels = make_batch(2048, 7)
            at_end = list(model.parameters()) if is_node else [diloco.outer, diloco.momentum]
            say("end", loss=loss_of(model(points), labels).item(), hash=digest(*at_end))
    except Leave:
        say("left")
    except (RuntimeError, pccl.PCCLError):
        # Another process of the replica has left before this one.
        if not orders.leaving or size == 1:
            raise
        say("left")
    if comm is not None:
        comm.close()
