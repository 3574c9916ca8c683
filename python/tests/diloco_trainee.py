"""DiLoCo peers as threads: a small model, data, and runs of several peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pccl
import torch
from conftest import run_threads
from pccl.diloco import DiLoCo, Event, TopK

MODES: dict[str, dict[str, Any]] = {
    "sync": {"H": 4},
    "sync_fragments": {"H": 4, "fragments": 3},
    "one_step_behind": {"H": 4, "overlap": True},
    "whole": {"H": 4, "overlap": True, "delay": 2},
    "streaming": {"H": 6, "fragments": 3, "overlap": True, "delay": 1},
    "streaming_full": {"H": 6, "fragments": 3, "overlap": True},
    "eager": {"H": 4, "overlap": True, "eager": True},
    "sync_int8": {"H": 4, "quantize": "int8"},
    "one_step_behind_int8": {"H": 4, "overlap": True, "quantize": "int8"},
    "streaming_int8": {"H": 6, "fragments": 3, "overlap": True, "quantize": "int8"},
    "sync_ring": {"H": 4, "quantize": pccl.QuantizationOptions()},
    "sync_top_k": {"H": 4, "quantize": TopK(k=16, chunk=64)},
    "streaming_top_k": {"H": 6, "fragments": 3, "overlap": True, "quantize": TopK(k=16, chunk=64)},
}


class Trainee:
    """A small model, its optimizer and data that depend on the peer and on the inner step alone."""

    def __init__(
        self, index: int, model_seed: int = 0, lr: float = 0.05, momentum: float = 0.0, device: str = "cpu"
    ) -> None:
        self.index = index
        self.device = device
        draw = torch.Generator().manual_seed(model_seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
        with torch.no_grad():
            for one in self.model.parameters():
                one.copy_(torch.randn(one.shape, generator=draw) / 4)
        self.model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum)

    def loss(self, step: int, index: int | None = None) -> torch.Tensor:
        draw = torch.Generator().manual_seed(1000 * (self.index if index is None else index) + step)
        points = torch.randn(8, 6, generator=draw).to(self.device)
        loss: torch.Tensor = ((self.model(points) - points[:, :3].sin()) ** 2).mean()
        return loss

    def train(self, diloco: DiLoCo, last_step: int, samples_of: Callable[[int, int], int] | None = None) -> None:
        """``samples_of(index, inner step)`` is for averages that weigh peers."""
        while diloco.inner_step < last_step:
            self.optimizer.zero_grad()
            self.loss(diloco.inner_step).backward()
            diloco.step(samples=None if samples_of is None else samples_of(self.index, diloco.inner_step + 1))


def vector(model: Any) -> Any:
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])


def train_together(
    address: str,
    count: int,
    last_step: int,
    devices: tuple[str, ...] = ("cpu",),
    samples_of: Callable[[int, int], int] | None = None,
    checkpoints: list[Any] | None = None,
    **options: Any,
) -> list[tuple[Trainee, DiLoCo, list[Event]]]:
    """Trains members 0..count-1 from the first step to the last, on the devices in turn. Events hold copies of their
    tensors. If ``checkpoints`` is not empty, each member begins with its own; it then contains those of the end."""

    def body(index: int) -> tuple[Trainee, DiLoCo, list[Event]]:
        events: list[Event] = []
        trainee = Trainee(index, device=devices[index % len(devices)])
        with pccl.Communicator(address) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                min_peers=count,
                on_event=lambda e: events.append(kept(e)),
                **options,
            )
            if checkpoints:
                diloco.load_state_dict(checkpoints[index])
            with diloco:
                trainee.train(diloco, last_step, samples_of)
                ends[index] = diloco.state_dict()
        return trainee, diloco, events

    ends: list[Any] = [None] * count
    results = run_threads(count, body)
    if checkpoints is not None:
        checkpoints[:] = ends
    return results


def kept(event: Event) -> Event:
    tensor = None if event.tensor is None else event.tensor.clone()
    return Event(
        event.kind, event.inner_step, event.outer_step, event.world, event.fragment, tensor, event.detail
    )
