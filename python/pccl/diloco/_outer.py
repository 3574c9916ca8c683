"""The outer optimizer: SGD with (Nesterov) momentum, in arithmetic that gives the same bytes on all machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy
from numpy.typing import NDArray

from pccl.diloco._cores import CHUNK, over_ranges

Floats = NDArray[numpy.float32]


class OuterSGD:
    """Makes one step for a range of elements, in place.

    Each peer computes the step by itself, so the bytes must be equal on all machines. Every operation is one IEEE 754
    binary32 operation per element, rounded to nearest even, in the order below. Nothing is fused or summed::

        g = g / weight
        m = mu * m;  m = m + g;  d = mu * m;  d = d + g   (Nesterov; otherwise d = m, and d = g without momentum)
        d = lr * d;  p = p - d

    ``lr``, ``mu`` and ``weight`` are rounded to binary32 first. This is SGD with momentum as in ``torch.optim.SGD``.
    The defaults are those of DiLoCo (arXiv 2311.08105, section 3). Not thread-safe.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """``options``: ``lr`` (default 0.7; a number, or a function of the number of finished rounds), ``momentum``
        (0.9), ``nesterov`` (True if there is momentum). ValueError for other keys, and for values that cannot work."""
        given = dict(options or {})
        lr = given.pop("lr", 0.7)
        self.lr: float | Callable[[int], float] = lr if callable(lr) else float(lr)
        self.momentum = float(given.pop("momentum", 0.9))
        self.nesterov = bool(given.pop("nesterov", self.momentum > 0))
        if given:
            raise ValueError(f"outer has unknown keys {sorted(given)}; it takes lr, momentum and nesterov")
        self.lr_of(0)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"outer: momentum is {self.momentum}; use 0 to below 1")
        if self.nesterov and self.momentum == 0:
            raise ValueError("outer: nesterov needs a momentum above 0")

    def __str__(self) -> str:
        lr = "schedule" if callable(self.lr) else repr(self.lr)
        return f"sgd({lr},{self.momentum!r},{'nesterov' if self.nesterov else 'plain'})"

    def lr_of(self, rounds: int) -> float:
        """The learning rate behind that many finished rounds. ValueError if it is not a number above 0."""
        lr = float(self.lr(rounds)) if callable(self.lr) else self.lr
        if not 0 < lr < math.inf:
            raise ValueError(f"outer: lr is {lr} after {rounds} rounds; use a number above 0")
        return lr

    def step(
        self, parameters: Floats, momentum: Floats | None, gradient: Floats, weight: int, rounds: int = 0
    ) -> None:
        """All arrays are contiguous and of one length; ``momentum`` is None exactly if this optimizer has none.
        ``gradient`` is a sum of total weight ``weight`` (1 or more), and becomes the average."""
        lr, mu, divisor = numpy.float32(self.lr_of(rounds)), numpy.float32(self.momentum), numpy.float32(weight)

        def step_range(first: int, end: int) -> None:
            direction = numpy.empty(min(CHUNK, end - first), numpy.float32)
            for begin in range(first, end, CHUNK):
                part = slice(begin, min(begin + CHUNK, end))
                p, g, d = parameters[part], gradient[part], direction[: part.stop - begin]
                if weight != 1:
                    numpy.divide(g, divisor, out=g)
                if momentum is None:
                    numpy.multiply(g, lr, out=d)
                else:
                    m = momentum[part]
                    numpy.multiply(m, mu, out=m)
                    numpy.add(m, g, out=m)
                    if self.nesterov:
                        numpy.multiply(m, mu, out=d)
                        numpy.add(d, g, out=d)
                        numpy.multiply(d, lr, out=d)
                    else:
                        numpy.multiply(m, lr, out=d)
                numpy.subtract(p, d, out=p)

        over_ranges(step_range, parameters.size)

    def look_ahead(
        self, parameters: Floats, momentum: Floats | None, own: Floats, members: int, out: Floats, rounds: int = 0
    ) -> None:
        """Writes to ``out`` where :meth:`step` would lead if the other members had learned nothing: a step with
        ``own / members``. Only ``out`` changes. This stays on one peer, so its bytes need not be equal elsewhere."""
        lr, mu = numpy.float32(self.lr_of(rounds)), numpy.float32(self.momentum)

        def step_range(first: int, end: int) -> None:
            for begin in range(first, end, CHUNK):
                part = slice(begin, min(begin + CHUNK, end))
                g = own[part] / numpy.float32(members)
                if momentum is not None:
                    moved = momentum[part] * mu + g
                    g = moved * mu + g if self.nesterov else moved
                numpy.subtract(parameters[part], g * lr, out=out[part])

        over_ranges(step_range, parameters.size)
