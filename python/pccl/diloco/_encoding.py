"""How a pseudo-gradient is sent: as float32, through the library's quantized ring, or as small whole numbers.
``_top_k`` has the form that sends only the largest elements.

An encoding owns the buffers of one fragment (one is in flight at a time) and describes its exchange as a generator of
collectives. It does not handle lost peers: the code that drives the generator repeats a collective that failed.

The sender's weight is sent with its data. So the sum is divided by the weights of exactly those peers that are in it,
whichever peers were lost meanwhile. A newcomer that has trained nothing yet sends zeros with weight 0. The outer
optimizer does the division, because it reads each element anyway. Weights are whole numbers, sent as digits that are
small enough for their sums to be exact in the type of the data.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

import pccl
from pccl import _staging
from pccl.diloco._cores import CHUNK, over_ranges
from pccl.diloco._outer import Floats

# Elements that the library quantizes with one pair of parameters, and that share one scale here.
BLOCK = 512

Codebook = NDArray[numpy.int8] | NDArray[numpy.int16]

# A weight is below this.
WEIGHT_LIMIT = 1 << 36
# Digits of a weight among float32: sums of up to 4,096 members are exact.
DIGITS, BASE = 3, 1 << 12
# Digits of a weight among codes. 16 members with 8 bits and 4,681 with 16 bits do not overflow.
CODE_DIGITS, CODE_BASE = 12, 8


def put_weight(weight: int, digits: Tensor, base: int) -> None:
    """Writes the digits of ``weight``, the lowest first."""
    digits.copy_(torch.tensor([weight // base**place % base for place in range(digits.numel())], device="cpu"))


def weight_of(digits: Tensor, base: int) -> int:
    """Returns the weight of digits, or of sums of digits; 0 if another member sent what is no number."""
    if not bool(torch.isfinite(digits).all()):
        return 0
    return sum(int(digit) * base**place for place, digit in enumerate(digits.tolist()))


@dataclass(frozen=True)
class Reduction:
    """One all-reduce of an exchange. ``stage`` distinguishes the reductions of an exchange."""

    stage: int
    send: Tensor
    receive: Tensor
    op: pccl.ReduceOp
    options: pccl.QuantizationOptions | None = None


@dataclass(frozen=True)
class Gathering:
    """One all-gather of an exchange: bytes of different length at each member, ``bytes_max`` at most."""

    stage: int
    send: Tensor
    bytes_max: int


# Yields reductions, and receives the number of members of each. Yields gatherings, and receives the bytes of all
# members by index, which are valid until the next one. Returns the sum of the weights.
Exchange = Generator[Reduction | Gathering, Any, int]


class Encoding(Protocol):
    """All tensors are on the CPU. Not thread-safe."""

    def pseudo_gradient(self, elements: int) -> Tensor:
        """The buffer for what this peer has learned: float32, that many elements, valid until the next call."""

    def total(self, elements: int) -> Tensor:
        """The sum of the last exchange, float32; divided by the weights it is the average. After ``keep_own`` it is
        this peer's own pseudo-gradient."""

    def exchange(
        self, begin: int, elements: int, weight: int, factor: int = 1, *, again: bool = False
    ) -> Exchange:
        """Multiplies this peer's pseudo-gradient by ``factor`` and adds all of them up. ``begin`` is the position of the
        fragment in the vector of all parameters. ``again``: repeats the last exchange, which went to its end; ``factor``
        is 1, because the buffer holds what was meant then."""

    def keep_own(self, begin: int, elements: int) -> None:
        """For an exchange that cannot finish, because all others were lost: this peer's pseudo-gradient is the sum."""

    def residual(self) -> Tensor | None:
        """Rounding errors that are still to be sent, for all parameters (a view); None if the encoding keeps none."""


class Plain:
    """Sends float32. Takes 8 bytes of memory per element of a fragment."""

    def __init__(self, largest: int, pinned: bool = False) -> None:
        # The weight is behind the data.
        self._send = zeros(largest + DIGITS, pinned)
        self._receive = zeros(largest + DIGITS, False)

    def pseudo_gradient(self, elements: int) -> Tensor:
        return self._send[:elements]

    def total(self, elements: int) -> Tensor:
        return self._receive[:elements]

    def exchange(
        self, begin: int, elements: int, weight: int, factor: int = 1, *, again: bool = False
    ) -> Exchange:
        send, receive = self._send[: elements + DIGITS], self._receive[: elements + DIGITS]
        _multiply(self._send[:elements].numpy(), factor)
        put_weight(weight, send[elements:], BASE)
        yield Reduction(0, send, receive, pccl.ReduceOp.SUM)
        return weight_of(receive[elements:], BASE)

    def keep_own(self, begin: int, elements: int) -> None:
        self.total(elements).copy_(self.pseudo_gradient(elements))

    def residual(self) -> Tensor | None:
        return None


class Ring(Plain):
    """Lets the library quantize every hop.

    A weight among the elements would widen the range of its block, so the weights have a reduction of their own. A peer
    that is lost between the two reductions would be in only one of the sums. Then both are repeated.
    """

    def __init__(self, largest: int, options: pccl.QuantizationOptions, pinned: bool = False) -> None:
        super().__init__(largest, pinned)
        self._options = options
        self._weights = torch.zeros(2, DIGITS, dtype=torch.float32, device="cpu")

    def exchange(
        self, begin: int, elements: int, weight: int, factor: int = 1, *, again: bool = False
    ) -> Exchange:
        own, weights = self._weights
        put_weight(weight, own, BASE)
        _multiply(self._send[:elements].numpy(), factor)
        weighed, summed = 0, -1
        while weighed != summed:
            weighed = yield Reduction(0, own, weights, pccl.ReduceOp.SUM)
            summed = yield Reduction(
                1, self._send[:elements], self._receive[:elements], pccl.ReduceOp.SUM, self._options
            )
        return weight_of(weights, BASE)


class Codes:
    """Sends whole numbers of 8 bits (16 with more than 16 members). All members share one scale per block of 512.

    A first, small reduction finds the largest magnitude of each block among all members. The scale leaves room for the
    sum of all members' codes, so the ring adds without overflow and without rounding. A peer therefore knows exactly
    what its own rounding took away. It keeps that and adds it to its next pseudo-gradient of the fragment (error
    feedback): over many rounds, the sum of what was sent differs from the sum of what was meant by less than one code
    per peer. With w members there are 127 // w levels on each side. It sends 25.8 % of the bytes of float32.

    A block that contains a NaN or an infinity becomes NaN as a whole, on all members.
    Memory: 10 bytes per element of a fragment (14 once there were more than 16 members), and 4 per parameter of the
    model.
    """

    WORLD_MAX_INT8 = 16

    def __init__(self, largest: int, parameters: int, pinned: bool = False) -> None:
        padded = -(-largest // BLOCK) * BLOCK
        self._gradient: Floats = zeros(padded, pinned).numpy()
        self._total = numpy.zeros(padded, numpy.float32)
        self._peaks = torch.zeros(2, padded // BLOCK, dtype=torch.float32, device="cpu")
        self._codes: dict[torch.dtype, Tensor] = {}
        self._residual = numpy.zeros(parameters, numpy.float32)

    def pseudo_gradient(self, elements: int) -> Tensor:
        return torch.from_numpy(self._gradient[:elements])

    def total(self, elements: int) -> Tensor:
        return torch.from_numpy(self._total[:elements])

    def residual(self) -> Tensor | None:
        return torch.from_numpy(self._residual)

    def keep_own(self, begin: int, elements: int) -> None:
        # The gradient contains the residual already, and nothing is lost in coding here.
        self._total[:elements] = self._gradient[:elements]
        self._residual[begin : begin + elements] = 0

    def exchange(
        self, begin: int, elements: int, weight: int, factor: int = 1, *, again: bool = False
    ) -> Exchange:
        blocks = -(-elements // BLOCK)
        meant = self._gradient[: blocks * BLOCK]
        meant[elements:] = 0
        _multiply(meant, factor)
        residual = self._residual[begin : begin + elements] if weight > 0 else None
        own, peaks = self._peaks[0, :blocks], self._peaks[1, :blocks]
        _add_and_find_peaks(meant, None if again else residual, own.numpy())
        world = yield Reduction(0, own, peaks, pccl.ReduceOp.MAX)

        dtype = torch.int8 if world <= self.WORLD_MAX_INT8 else torch.int16
        levels = torch.iinfo(dtype).max // world
        scale = (peaks.numpy() / numpy.float32(levels)).astype(numpy.float32)
        send, receive = self._codes_of(dtype)
        _encode(meant, scale, levels, send.numpy()[: meant.size], residual)
        # Behind the codes. Those of the rest of the last block are 0 and are not sent.
        end = elements + CODE_DIGITS
        put_weight(weight, send[elements:end], CODE_BASE)
        yield Reduction(1, send[:end], receive[:end], pccl.ReduceOp.SUM)

        weights = weight_of(receive[elements:end], CODE_BASE)
        _decode(receive.numpy()[: meant.size], scale, self._total[: meant.size])
        return weights

    def _codes_of(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._codes:
            self._codes[dtype] = torch.zeros(2, self._gradient.size + CODE_DIGITS, dtype=dtype, device="cpu")
        return self._codes[dtype]


def zeros(elements: int, pinned: bool) -> Tensor:
    if pinned:
        return _staging.room(elements, torch.float32).zero_()
    return torch.zeros(elements, dtype=torch.float32, device="cpu")


def _multiply(values: Floats, factor: int) -> None:
    if factor == 1:
        return

    def pass_over(first: int, end: int) -> None:
        # An infinity is noticed in the sum.
        with numpy.errstate(over="ignore"):
            numpy.multiply(values[first:end], numpy.float32(factor), out=values[first:end])

    over_ranges(pass_over, values.size)


def _add_and_find_peaks(meant: Floats, residual: Floats | None, peaks: Floats) -> None:
    """Adds ``residual``, if any, to the beginning of ``meant``. Writes the largest magnitude of each block to
    ``peaks``: NaN for a block that contains one."""

    def pass_over(first: int, end: int) -> None:
        magnitudes = numpy.empty(min(CHUNK, end - first), numpy.float32)
        for begin in range(first, end, CHUNK):
            stop = min(begin + CHUNK, end)
            if residual is not None:
                left = residual[begin:stop]
                numpy.add(meant[begin : begin + left.size], left, out=meant[begin : begin + left.size])
            numpy.abs(meant[begin:stop], out=magnitudes[: stop - begin])
            blocks = magnitudes[: stop - begin].reshape(-1, BLOCK)
            numpy.max(blocks, axis=1, out=peaks[begin // BLOCK : stop // BLOCK])

    over_ranges(pass_over, meant.size, BLOCK)


def _encode(meant: Floats, scale: Floats, levels: int, codes: Codebook, residual: Floats | None) -> None:
    """Writes the codes of ``meant``, which is whole blocks. ``residual``, which may end within the last block, gets
    what the codes leave out, or 0 where that is not finite."""

    def pass_over(first: int, end: int) -> None:
        room = numpy.empty((2, min(CHUNK, end - first)), numpy.float32)
        for begin in range(first, end, CHUNK):
            stop = min(begin + CHUNK, end)
            steps = scale[begin // BLOCK : stop // BLOCK, None]
            usable = numpy.isfinite(steps)
            steps = numpy.where(usable & (steps > 0), steps, numpy.float32(1))
            block_wise = meant[begin:stop].reshape(-1, BLOCK)
            rounded, left = (one[: stop - begin].reshape(-1, BLOCK) for one in room)
            numpy.divide(block_wise, steps, out=rounded)
            if not usable.all():
                rounded[~usable[:, 0]] = 0
            numpy.rint(rounded, out=rounded)
            numpy.clip(rounded, -levels, levels, out=rounded)
            codes[begin:stop].reshape(-1, BLOCK)[...] = rounded
            if residual is not None:
                # A code of almost the largest number can stand for an infinity.
                with numpy.errstate(over="ignore", invalid="ignore"):
                    numpy.multiply(rounded, steps, out=rounded)
                    numpy.subtract(block_wise, rounded, out=left)
                finite = numpy.isfinite(left)
                if not finite.all():
                    left[~finite] = 0
                out = residual[begin:stop]
                out[:] = left.reshape(-1)[: out.size]

    over_ranges(pass_over, meant.size, BLOCK)


def _decode(codes: Codebook, scale: Floats, total: Floats) -> None:
    """Writes ``codes * scale`` to ``total``; all of them whole blocks."""

    def pass_over(first: int, end: int) -> None:
        for begin in range(first, end, CHUNK):
            stop = min(begin + CHUNK, end)
            out = total[begin:stop].reshape(-1, BLOCK)
            out[...] = codes[begin:stop].reshape(-1, BLOCK)
            # Intended: 0 times an infinite scale gives NaN, and a sum beyond the largest number gives an infinity.
            with numpy.errstate(invalid="ignore", over="ignore"):
                numpy.multiply(out, scale[begin // BLOCK : stop // BLOCK, None], out=out)

    over_ranges(pass_over, codes.size, BLOCK)
