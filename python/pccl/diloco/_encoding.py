"""How a pseudo-gradient travels: as it is, through the library's quantized ring, or as small whole numbers.

An encoding owns the buffers of one fragment (one is in flight at a time) and describes its exchange as a generator of
reductions. It knows nothing of peers that are lost: whoever drives the generator repeats a reduction that failed.

With what travels goes the sender's weight, so that the sum is divided by the weights of exactly those who are in it,
whoever was lost on the way. A newcomer that has trained nothing yet sends zeros of weight 0. The division is left to
the outer optimizer, which has each element in its hands anyway.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

import pccl
from pccl.diloco._outer import CHUNK, Floats

# Elements that the library quantizes with one pair of parameters, and that share a scale here.
BLOCK = 512

Codebook = NDArray[numpy.int8] | NDArray[numpy.int16]


@dataclass(frozen=True)
class Reduction:
    """One all-reduce of an exchange; ``stage`` tells the reductions of an exchange apart."""

    stage: int
    send: Tensor
    receive: Tensor
    op: pccl.ReduceOp
    options: pccl.QuantizationOptions | None = None


# Yields reductions, is sent the number of members of each, returns the sum of the weights.
Exchange = Generator[Reduction, int, int]


class Encoding(Protocol):
    """All tensors are on the CPU. Not thread-safe."""

    def pseudo_gradient(self, elements: int) -> Tensor:
        """Where to write what this peer has learned: float32, that many elements, valid until the next call."""

    def total(self, elements: int) -> Tensor:
        """The sum of the last exchange, float32; divided by the weights it is the average. After ``keep_own`` this peer's
        own pseudo-gradient."""

    def exchange(self, begin: int, elements: int, weight: int) -> Exchange:
        """Adds the pseudo-gradients up; ``begin`` is the place of the fragment in the vector of all parameters."""

    def keep_own(self, begin: int, elements: int) -> None:
        """Everybody else was lost: the exchange came to no end, this peer's own pseudo-gradient is the sum."""

    def residual(self) -> Tensor | None:
        """What was lost in coding and is still to be sent, for all parameters (a view); None if nothing ever is."""


class Plain:
    """Sends float32. 8 bytes of memory per element of a fragment."""

    def __init__(self, largest: int) -> None:
        # One more than the data: the weight.
        self._send = torch.zeros(largest + 1)
        self._receive = torch.zeros(largest + 1)

    def pseudo_gradient(self, elements: int) -> Tensor:
        return self._send[:elements]

    def total(self, elements: int) -> Tensor:
        return self._receive[:elements]

    def exchange(self, begin: int, elements: int, weight: int) -> Exchange:
        send, receive = self._send[: elements + 1], self._receive[: elements + 1]
        send[-1] = weight
        yield Reduction(0, send, receive, pccl.ReduceOp.SUM)
        return int(receive[-1])

    def keep_own(self, begin: int, elements: int) -> None:
        self.total(elements).copy_(self.pseudo_gradient(elements))

    def residual(self) -> Tensor | None:
        return None


class Ring(Plain):
    """Lets the library quantize every hop.

    A weight among the elements would widen the range of their block, so the weights are a reduction of their own. Who
    is lost between the two would be in the one sum and not in the other: then both are done again.
    """

    def __init__(self, largest: int, options: pccl.QuantizationOptions) -> None:
        super().__init__(largest)
        self._options = options
        self._weights = torch.zeros(2, 1)

    def exchange(self, begin: int, elements: int, weight: int) -> Exchange:
        own, weights = self._weights
        own.fill_(weight)
        weighed, summed = 0, -1
        while weighed != summed:
            weighed = yield Reduction(0, own, weights, pccl.ReduceOp.SUM)
            summed = yield Reduction(
                1, self._send[:elements], self._receive[:elements], pccl.ReduceOp.SUM, self._options
            )
        return int(weights)


class Codes:
    """Sends whole numbers of 8 bits (16 with more than 16 members) on a scale per block of 512 that all members share.

    A first, small reduction finds the largest magnitude of each block among all members; the scale leaves room for the
    sum of all members' codes, so that the ring adds without overflow and without rounding. All that a peer's rounding
    takes away is therefore known to it exactly; it is kept and added to the peer's next pseudo-gradient of the fragment
    (error feedback): over many rounds the sums of what was sent and of what was meant differ by less than one code per
    peer. With w members there are 127 // w levels on each side; 25.8 % of the bytes of float32.

    A block that contains a NaN or an infinity becomes NaN as a whole, on all members.
    10 bytes of memory per element of a fragment (14 once there were more than 16 members), 4 more while it encodes, and 4
    per parameter of the model.
    """

    WORLD_MAX_INT8 = 16

    def __init__(self, largest: int, parameters: int) -> None:
        padded = -(-largest // BLOCK) * BLOCK
        self._gradient = numpy.zeros(padded, numpy.float32)
        self._total = numpy.zeros(padded, numpy.float32)
        self._peaks = torch.zeros(2, padded // BLOCK)
        self._codes: dict[torch.dtype, Tensor] = {}
        self._residual = numpy.zeros(parameters, numpy.float32)

    def pseudo_gradient(self, elements: int) -> Tensor:
        return torch.from_numpy(self._gradient[:elements])

    def total(self, elements: int) -> Tensor:
        return torch.from_numpy(self._total[:elements])

    def residual(self) -> Tensor | None:
        return torch.from_numpy(self._residual)

    def keep_own(self, begin: int, elements: int) -> None:
        # With the residual already in it; nothing is lost in coding.
        self._total[:elements] = self._gradient[:elements]
        self._residual[begin : begin + elements] = 0

    def exchange(self, begin: int, elements: int, weight: int) -> Exchange:
        blocks = -(-elements // BLOCK)
        meant = self._gradient[: blocks * BLOCK]
        residual = self._residual[begin : begin + elements]
        meant[elements:] = 0
        if weight > 0:
            meant[:elements] += residual
        own, peaks = self._peaks[0, :blocks], self._peaks[1, :blocks]
        numpy.max(numpy.abs(meant.reshape(blocks, BLOCK)), axis=1, out=own.numpy())
        world = yield Reduction(0, own, peaks, pccl.ReduceOp.MAX)

        dtype = torch.int8 if world <= self.WORLD_MAX_INT8 else torch.int16
        levels = torch.iinfo(dtype).max // world
        scale = (peaks.numpy() / numpy.float32(levels)).astype(numpy.float32)
        send, receive = self._codes_of(dtype, meant.size)[:, : elements + 1]
        _encode(meant[:elements], scale, levels, send.numpy(), residual if weight > 0 else None)
        send[-1] = weight
        yield Reduction(1, send, receive, pccl.ReduceOp.SUM)

        _decode(receive.numpy()[:elements], scale, self._total[:elements])
        return int(receive[-1])

    def _codes_of(self, dtype: torch.dtype, elements: int) -> Tensor:
        if dtype not in self._codes:
            self._codes[dtype] = torch.zeros(2, self._gradient.size + 1, dtype=dtype)
        return self._codes[dtype][:, : elements + 1]


def _encode(meant: Floats, scale: Floats, levels: int, codes: Codebook, residual: Floats | None) -> None:
    """Codes of ``meant``; what they leave out goes to ``residual``, 0 where it is no number."""
    for begin in range(0, meant.size, CHUNK):
        part = slice(begin, min(begin + CHUNK, meant.size))
        steps = numpy.repeat(scale[begin // BLOCK : -(-part.stop // BLOCK)], BLOCK)[: part.stop - begin]
        usable = numpy.isfinite(steps) & (steps > 0)
        rounded = numpy.zeros(steps.size, numpy.float32)
        numpy.divide(meant[part], steps, out=rounded, where=usable)
        numpy.rint(rounded, out=rounded)
        numpy.clip(rounded, -levels, levels, out=rounded)
        codes[part] = rounded
        if residual is not None:
            numpy.multiply(rounded, steps, out=rounded, where=usable)
            numpy.subtract(meant[part], rounded, out=residual[part])
            residual[part][~numpy.isfinite(residual[part])] = 0


def _decode(codes: Codebook, scale: Floats, total: Floats) -> None:
    """``codes * scale``."""
    for begin in range(0, codes.size, CHUNK):
        part = slice(begin, min(begin + CHUNK, codes.size))
        steps = numpy.repeat(scale[begin // BLOCK : -(-part.stop // BLOCK)], BLOCK)[: part.stop - begin]
        # 0 times an infinite scale is to be NaN, and a sum beyond the largest number infinite.
        with numpy.errstate(invalid="ignore", over="ignore"):
            numpy.multiply(codes[part].astype(numpy.float32), steps, out=total[part])


def make_encoding(
    quantize: str | pccl.QuantizationOptions | None, largest: int, parameters: int
) -> Encoding:
    """ValueError for a name that is not known."""
    if quantize is None:
        return Plain(largest)
    if isinstance(quantize, pccl.QuantizationOptions):
        return Ring(largest, quantize)
    if quantize == "int8":
        return Codes(largest, parameters)
    raise ValueError(
        f"quantize is {quantize!r}; use None, 'int8', or a pccl.QuantizationOptions for the library's ring"
    )
