"""Nodes of several processes: DDP keeps their parameters equal, and rank 0 takes part in the run for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist
from torch import Tensor

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

    @contextlib.contextmanager
    def telling(self, outcome: Callable[[], Outcome], on_broken: Callable[[], None]) -> Generator[None]:
        """For rank 0. At its end it tells the outcome, also if that is an exception. ``on_broken`` is called if another
        rank is gone."""
        try:
            yield
        except Exception:
            with contextlib.suppress(Exception):  # the failure that is raised is the first one
                self._tell(Outcome(has_failed=1))
            raise
        try:
            self._tell(outcome())
        except Exception:
            on_broken()
            raise

    def _tell(self, outcome: Outcome) -> None:
        """Blocks until the others listen."""
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
        broadcast_together(self._parameters(), self._root, self._group)


def broadcast_together(tensors: Iterable[Tensor], root: int, group: dist.ProcessGroup) -> None:
    """Overwrites tensors with those of ``root``, a global rank, in messages of some megabytes. A collective of the
    group."""
    part: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if part and (size + tensor.nbytes > BROADCAST_BYTES or tensor.dtype != part[0].dtype):
            _broadcast_flat(part, root, group)
            part, size = [], 0
        part.append(tensor.detach())
        size += tensor.nbytes
    if part:
        _broadcast_flat(part, root, group)


def _broadcast_flat(tensors: list[Tensor], root: int, group: dist.ProcessGroup) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.broadcast(flat, root, group=group)
    begin = 0
    for tensor in tensors:
        tensor.copy_(flat[begin : begin + tensor.numel()].view(tensor.shape))
        begin += tensor.numel()
