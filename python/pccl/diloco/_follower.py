"""DiLoCo on the ranks of a node above 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

import pccl
from pccl._errors import argument_error
from pccl.diloco._diloco import DiLoCo
from pccl.diloco._node import Node, Outcome
from pccl.diloco._parameters import Parameters, Parts, clean_moments
from pccl.diloco._schedule import Schedule


class Follower(DiLoCo):
    """:class:`DiLoCo` on the other ranks of a node: it receives what rank 0 has."""

    def follow(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        comm: pccl.Communicator | None,
        process_group: dist.ProcessGroup,
        schedule: Schedule,
        parts: Parts | None,
    ) -> None:
        """Takes the place of the constructor: DiLoCo makes itself a follower, so that users name one class."""
        if comm is not None:
            raise argument_error("DiLoCo", "only rank 0 of the node takes part in the run; pass None on other ranks")
        self._schedule = schedule
        self._inner_optimizer = inner_optimizer
        self._leader = Node(process_group, Parameters(model, parts).all)
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
            clean_moments(self._inner_optimizer)

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(f"DiLoCo.{what} is on rank 0 of the node alone")
