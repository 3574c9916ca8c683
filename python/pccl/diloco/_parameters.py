"""The parameters of a model as one vector, in the order of ``named_parameters()``."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class Parameters:
    """Views of the trainable parameters of a model; they stay where they are, on their device and in their type.

    Positions count elements over all parameters that required gradients when this was made. Buffers (running
    statistics) are not among them. Not thread-safe: the model must not be trained during a call.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._places: list[tuple[int, Tensor]] = []
        self.size = 0
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if hasattr(parameter, "to_local"):
                raise ValueError(
                    f"parameter {name} is a DTensor; give each shard as a plain module, in a peer group per shard"
                )
            if not parameter.is_floating_point():
                raise ValueError(
                    f"parameter {name} is {parameter.dtype}; only real floating-point parameters are averaged"
                )
            self._places.append((self.size, parameter.detach()))
            self.size += parameter.numel()
        if self.size == 0:
            raise ValueError("the model has no parameter that requires a gradient")

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[Tensor, slice, slice]]:
        """Parameter, range within it, and range within ``[begin, end)``, for each that overlaps ``[begin, end)``."""
        for start, parameter in self._places:
            low, high = max(begin, start), min(end, start + parameter.numel())
            if low < high:
                yield parameter, slice(low - start, high - start), slice(low - begin, high - begin)

    def read(self, out: Tensor) -> None:
        """Copies all parameters to ``out`` (float32, on the CPU)."""
        for parameter, inside, outside in self._pieces(0, self.size):
            out[outside].copy_(parameter.reshape(-1)[inside])

    def write(self, source: Tensor, begin: int, keep: float = 0.0) -> None:
        """Sets the elements from ``begin`` on to ``keep * themselves + (1 - keep) * source``."""
        for parameter, inside, outside in self._pieces(begin, begin + source.numel()):
            # Of a parameter that is not contiguous this is a copy, which has to be written back.
            flat = parameter.reshape(-1)
            target = flat[inside]
            if keep == 0.0:
                target.copy_(source[outside])
            else:
                target.mul_(keep).add_(source[outside].to(target), alpha=1.0 - keep)
            if not parameter.is_contiguous():
                parameter.copy_(flat.view(parameter.shape))

    def subtract_from(self, outer: Tensor, begin: int, out: Tensor) -> None:
        """``out = outer - parameters`` for the elements from ``begin`` on.

        Parameters of fewer bits began the round at the rounded outer value; without the same rounding here the
        pseudo-gradient would contain the rounding error.
        """
        for parameter, inside, outside in self._pieces(begin, begin + outer.numel()):
            local = parameter.reshape(-1)[inside]
            base = outer[outside]
            if local.dtype != torch.float32:
                base = base.to(local.dtype).to(torch.float32)
            torch.sub(base, local.to("cpu", torch.float32), out=out[outside])
