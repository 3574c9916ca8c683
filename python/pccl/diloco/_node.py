"""Nodes of several processes: DDP keeps their parameters equal, and rank 0 takes part in the run for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl.diloco._diloco import DiLoCo
from pccl.diloco._parameters import Parameters
from pccl.diloco._schedule import Schedule

# Parameters that are broadcast together.
BROADCAST_BYTES = 32 << 20


@dataclass
class Outcome:
    """What rank 0 tells the others after a step that may have changed something."""

    has_failed: int = 0
    inner_step: int = 0
    outer_step: int = 0
    batches: int = 0
    world: int = 1
    has_written: int = 0
    """The parameters follow."""
    has_cleaned: int = 0
    """Values of the inner optimizer's state that are not finite were set to 0."""


class Node:
    """What the ranks of a node share. All ranks make the same calls in the same order. Not thread-safe."""

    def __init__(self, group: dist.ProcessGroup, parameters: Callable[[], list[Tensor]]) -> None:
        self._parameters = parameters
        self._root = dist.get_global_rank(group, 0)
        # Behind the parameters, so that it is freed after the model. If DistributedDataParallel frees a process group
        # of gloo, it joins gloo's threads with the interpreter's lock held, and one of them may wait for that lock.
        self._group = group
        self._device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"

    def tell(self, outcome: Outcome) -> None:
        """For rank 0. Blocks until the others listen."""
        self._broadcast(torch.tensor(astuple(outcome), dtype=torch.int64, device=self._device))
        if outcome.has_written:
            self._broadcast_parameters()

    def listen(self) -> Outcome:
        """For the other ranks. Blocks until rank 0 tells. RuntimeError if it failed."""
        told = torch.zeros(len(astuple(Outcome())), dtype=torch.int64, device=self._device)
        self._broadcast(told)
        outcome = Outcome(*told.tolist())
        if outcome.has_failed:
            raise RuntimeError("pccl: rank 0 of this node could not go on; see its error")
        if outcome.has_written:
            self._broadcast_parameters()
        return outcome

    def _broadcast(self, tensor: Tensor) -> None:
        dist.broadcast(tensor, self._root, group=self._group)

    def _broadcast_parameters(self) -> None:
        part: list[Tensor] = []
        size = 0
        for tensor in self._parameters():
            if part and (size + tensor.nbytes > BROADCAST_BYTES or tensor.dtype != part[0].dtype):
                self._broadcast_together(part)
                part, size = [], 0
            part.append(tensor.detach())
            size += tensor.nbytes
        self._broadcast_together(part)

    def _broadcast_together(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._broadcast(flat)
        begin = 0
        for tensor in tensors:
            tensor.copy_(flat[begin : begin + tensor.numel()].view(tensor.shape))
            begin += tensor.numel()


class Follower(DiLoCo):
    """:class:`DiLoCo` on the other ranks of a node: it receives what rank 0 has."""

    def follow(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator | None,
        process_group: dist.ProcessGroup,
        schedule: Schedule,
    ) -> None:
        """Takes the place of the constructor: DiLoCo makes itself a follower, so that users name one class."""
        if comm is not None:
            raise argument_error("DiLoCo", "only rank 0 of the node takes part in the run; pass None on other ranks")
        self._schedule = schedule
        self._inner_optimizer = inner_optimizer
        self._leader = Node(process_group, Parameters(model).all)
        self._told = Outcome()
        self._inner_step = 0
        self._joined = False

    @property
    def outer_step(self) -> int:
        return self._told.outer_step

    @property
    def batches(self) -> int:
        return self._told.batches

    @property
    def world(self) -> int:
        return self._told.world

    @property
    def outer(self) -> Tensor:
        self._refuse("outer")

    @property
    def momentum(self) -> Tensor | None:
        self._refuse("momentum")

    def join(self) -> None:
        if not self._joined:
            self._receive()
            self._joined = True

    def step(self, closure: Callable[[], float] | None = None, *, samples: int | None = None) -> Any:
        result = self._inner_optimizer.step(closure) if closure is not None else self._inner_optimizer.step()
        self.advance(samples=samples)
        return result

    def advance(self, *, samples: int | None = None) -> None:
        if not self._joined:
            raise RuntimeError("DiLoCo.join() comes before the first step")
        self._inner_step += 1
        if self._schedule.does_anything(self._inner_step):
            self._receive()

    def finish(self) -> None:
        self._receive()

    def state_dict(self) -> dict[str, Any]:
        self._refuse("state_dict()")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._refuse("load_state_dict()")

    def _receive(self) -> None:
        self._told = self._leader.listen()
        self._inner_step = self._told.inner_step
        if self._told.has_cleaned:
            self._clean_moments()

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(f"DiLoCo.{what} is on rank 0 of the node alone")
