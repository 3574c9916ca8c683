"""Sends only the largest elements of a pseudo-gradient (SparseLoCo, arXiv 2508.15706).

A fragment is cut into chunks. Of each chunk a member sends the positions of its k largest magnitudes, and for each a
sign and one of two levels (2 bits). What it does not send, it adds to its next pseudo-gradient. Members gather the
pieces of all members and add them up in the order of indices, so all get the same bytes.

A piece: the weight (8 bytes; a member of weight 0 sends nothing else), then for all chunks their levels, the upper and
the lower parts of their positions, and their codes. Positions are in Elias-Fano form: ascending, each split into its
``low_bits`` lower bits, which are written down, and the rest, which is written as a row of bits: position i with the
rest r sets bit ``r + i``. For 64 of 4,096 positions that is 8 bits for each instead of 12.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from pccl.diloco._cores import over_ranges
from pccl.diloco._encoding import WEIGHT_LIMIT, Exchange, Gathering, zeros
from pccl.diloco._outer import Floats

Bytes = NDArray[numpy.uint8]
Places = NDArray[numpy.int64]

_WEIGHT_BYTES = 8
# Elements that a thread looks at together.
_PASS = 1 << 20


@dataclass(frozen=True)
class TopK:
    """``DiLoCo(quantize=TopK())``: of every ``chunk`` elements of a pseudo-gradient, only the ``k`` of largest
    magnitude are sent, with 2 bits each, and what is not sent is added to the next pseudo-gradient (error feedback;
    SparseLoCo, arXiv 2508.15706). The defaults send 84 bytes for 4,096 elements to each other member.

    :param k: elements of a chunk that are sent, 1 to ``chunk // 2``.
    :param chunk: elements of a chunk: a power of two, 64 to 65,536.
    :param decay: what was not sent is multiplied by this once per round; above 0, up to 1.
    """

    k: int = 64
    chunk: int = 4096
    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 64 <= self.chunk <= 1 << 16 or self.chunk & (self.chunk - 1):
            raise ValueError(f"TopK: chunk is {self.chunk}; use a power of two from 64 to 65536")
        if not 1 <= self.k <= self.chunk // 2:
            raise ValueError(f"TopK: k is {self.k}; use 1 to chunk // 2 = {self.chunk // 2}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"TopK: decay is {self.decay}; use a number above 0, up to 1")


class Layout:
    """Turns chunks into bytes and back."""

    def __init__(self, options: TopK) -> None:
        self.k, self.chunk = options.k, options.chunk
        self.low_bits = (self.chunk // self.k).bit_length() - 1
        self.high_bits = self.k + (self.chunk >> self.low_bits) - 1
        # Bytes of a chunk: two levels of 16 bits, and the rows of bits.
        self.widths = (4, -(-self.high_bits // 8), -(-self.k * self.low_bits // 8), -(-self.k * 2 // 8))
        self.chunk_bytes = sum(self.widths)

    def parts(self, body: Bytes) -> list[Bytes]:
        """Views of levels, upper parts, lower parts and codes, a row for each chunk."""
        chunks, parts, begin = body.size // self.chunk_bytes, [], 0
        for width in self.widths:
            parts.append(body[begin : begin + chunks * width].reshape(chunks, width))
            begin += chunks * width
        return parts

    def encode(self, values: Floats, parts: list[Bytes]) -> tuple[Places, Floats]:
        """Writes the rows of ``values`` (one chunk each). Returns the positions that are sent, and what is sent for
        them."""
        magnitudes = torch.from_numpy(values).abs()
        places = torch.topk(magnitudes, self.k, dim=1, sorted=False).indices.sort(dim=1).values.numpy()
        chosen = numpy.take_along_axis(values, places, axis=1)
        levels, large = _levels(numpy.abs(chosen))
        negative = numpy.signbit(chosen)

        rest = (places >> self.low_bits) + numpy.arange(self.k)
        row = numpy.zeros((len(values), self.high_bits), numpy.uint8)
        numpy.put_along_axis(row, rest, 1, axis=1)
        bits = (places[:, :, None] >> numpy.arange(self.low_bits)) & 1
        codes = numpy.stack([negative, large], axis=2)
        parts[0][:] = levels.view(numpy.uint8).reshape(len(values), 4)
        parts[1][:] = numpy.packbits(row, axis=1)
        parts[2][:] = numpy.packbits(bits.astype(numpy.uint8).reshape(len(values), -1), axis=1)
        parts[3][:] = numpy.packbits(codes.astype(numpy.uint8).reshape(len(values), -1), axis=1)
        return places, _values(levels, large, negative)

    def decode(self, parts: list[Bytes]) -> tuple[Places, Floats] | None:
        """Returns positions and values of the rows; None if no encoder writes such bytes."""
        chunks = len(parts[0])
        row = numpy.unpackbits(parts[1], axis=1)
        if not (row[:, self.high_bits :] == 0).all() or not (row.sum(axis=1, dtype=numpy.int64) == self.k).all():
            return None
        rest = numpy.nonzero(row)[1].reshape(chunks, self.k) - numpy.arange(self.k)
        bits = numpy.unpackbits(parts[2], axis=1, count=self.k * self.low_bits).reshape(chunks, self.k, self.low_bits)
        low = (bits.astype(numpy.int64) << numpy.arange(self.low_bits)).sum(axis=2)
        places = (rest << self.low_bits) + low
        if not (numpy.diff(places, axis=1) > 0).all():
            return None
        codes = numpy.unpackbits(parts[3], axis=1, count=self.k * 2).reshape(chunks, self.k, 2).astype(numpy.bool_)
        levels = numpy.ascontiguousarray(parts[0]).view("<u2")
        return places, _values(levels, codes[:, :, 1], codes[:, :, 0])


class Largest:
    """The encoding. Takes 8 bytes of memory per element of a fragment, 4 per parameter of the model, and the pieces of
    all members.

    Residuals are in units of the weighted pseudo-gradient, as the values that are sent.
    """

    def __init__(self, largest: int, parameters: int, options: TopK, pinned: bool = False) -> None:
        self._layout = Layout(options)
        self._decay = numpy.float32(options.decay)
        chunks = -(-largest // options.chunk)
        padded = chunks * options.chunk
        self._gradient: Floats = zeros(padded, pinned).numpy()
        self._total = numpy.zeros(padded, numpy.float32)
        self._residual = numpy.zeros(parameters, numpy.float32)
        self._piece = torch.zeros(_WEIGHT_BYTES + chunks * self._layout.chunk_bytes, dtype=torch.uint8, device="cpu")

    def pseudo_gradient(self, elements: int) -> Tensor:
        return torch.from_numpy(self._gradient[:elements])

    def total(self, elements: int) -> Tensor:
        return torch.from_numpy(self._total[:elements])

    def residual(self) -> Tensor | None:
        return torch.from_numpy(self._residual)

    def keep_own(self, begin: int, elements: int) -> None:
        # The gradient contains the residual already, and nothing is left out here.
        self._total[:elements] = self._gradient[:elements]
        self._residual[begin : begin + elements] = 0

    def exchange(
        self, begin: int, elements: int, weight: int, factor: int = 1, *, again: bool = False
    ) -> Exchange:
        chunks = -(-elements // self._layout.chunk)
        size = _WEIGHT_BYTES + chunks * self._layout.chunk_bytes
        piece: Bytes = self._piece.numpy()[:size]
        piece[:_WEIGHT_BYTES] = numpy.array([weight], "<u8").view(numpy.uint8)
        if weight > 0:
            residual = self._residual[begin : begin + elements]
            if not again:
                self._mean(residual, elements, factor)
            self._encode(piece[_WEIGHT_BYTES:], residual)
        send = self._piece[: size if weight > 0 else _WEIGHT_BYTES]
        gathered: list[Tensor] = yield Gathering(0, send, size)
        return self._add_up([one.numpy() for one in gathered], chunks)

    def _mean(self, residual: Floats, elements: int, factor: int) -> None:
        """Turns the pseudo-gradient into what is meant to be sent."""
        self._gradient[elements : -(-elements // self._layout.chunk) * self._layout.chunk] = 0

        def pass_over(first: int, end: int) -> None:
            for low in range(first, end, _PASS):
                high = min(low + _PASS, end)
                meant = self._gradient[low:high]
                # What is not finite is skipped by all members when they have added it up.
                with numpy.errstate(over="ignore", invalid="ignore"):
                    if factor != 1:
                        numpy.multiply(meant, numpy.float32(factor), out=meant)
                    meant += self._decay * residual[low:high]

        over_ranges(pass_over, elements)

    def _encode(self, body: Bytes, residual: Floats) -> None:
        layout, chunk = self._layout, self._layout.chunk
        padded = body.size // layout.chunk_bytes * chunk
        parts = layout.parts(body)

        def pass_over(first: int, end: int) -> None:
            for low in range(first, end, _PASS):
                high = min(low + _PASS, end)
                own = residual[low:high]
                with numpy.errstate(over="ignore", invalid="ignore"):
                    rows = self._gradient[low:high].reshape(-1, chunk)
                    places, values = layout.encode(rows, [part[low // chunk : high // chunk] for part in parts])
                    left = rows.copy()
                    numpy.put_along_axis(left, places, numpy.take_along_axis(left, places, axis=1) - values, axis=1)
                left[~numpy.isfinite(left)] = 0
                own[:] = left.reshape(-1)[: own.size]

        over_ranges(pass_over, padded, chunk)

    def _add_up(self, pieces: list[Bytes], chunks: int) -> int:
        """Sets the total. Returns the sum of the weights of the pieces that are in it."""
        layout, chunk = self._layout, self._layout.chunk
        weights, bodies = 0, []
        for index, piece in enumerate(pieces):
            weight = int(piece[:_WEIGHT_BYTES].copy().view("<u8")[0]) if piece.size >= _WEIGHT_BYTES else -1
            body = piece[_WEIGHT_BYTES:]
            if weight == 0 and body.size == 0:
                continue
            if not 0 < weight < WEIGHT_LIMIT or body.size != chunks * layout.chunk_bytes or not self._is_whole(body):
                # All members have the same bytes here, so all of them leave it out.
                logging.getLogger("pccl").warning(
                    "DiLoCo: the member with index %d sent %d bytes that are no piece of a pseudo-gradient; its part "
                    "is left out of this average. Does it run another version?",
                    index,
                    piece.size,
                )
                continue
            weights += weight
            bodies.append(layout.parts(body))

        def pass_over(first: int, end: int) -> None:
            for low in range(first, end, _PASS):
                high = min(low + _PASS, end)
                out = self._total[low:high].reshape(-1, chunk)
                out[:] = 0
                rows = numpy.arange(len(out))[:, None]
                for parts in bodies:
                    found = layout.decode([part[low // chunk : high // chunk] for part in parts])
                    assert found is not None  # _is_whole() has looked
                    places, values = found
                    with numpy.errstate(over="ignore", invalid="ignore"):
                        out[rows, places] += values

        over_ranges(pass_over, chunks * chunk, chunk)
        return weights

    def _is_whole(self, body: Bytes) -> bool:
        parts, rows = self._layout.parts(body), _PASS // self._layout.chunk
        return all(
            self._layout.decode([part[first : first + rows] for part in parts]) is not None
            for first in range(0, len(parts[0]), rows)
        )


def _levels(magnitudes: Floats) -> tuple[NDArray[numpy.uint16], NDArray[numpy.bool_]]:
    """Returns the two levels of each row (16 bits: the upper half of a float32), and which elements take the larger
    one. Two rounds of Lloyd's method: each level is the mean of the elements that are nearer to it."""
    border = magnitudes.mean(axis=1, dtype=numpy.float64, keepdims=True)
    for _ in range(2):
        large = magnitudes > border
        count = large.sum(axis=1, keepdims=True)
        upper = numpy.where(large, magnitudes, 0).sum(axis=1, dtype=numpy.float64, keepdims=True)
        lower = magnitudes.sum(axis=1, dtype=numpy.float64, keepdims=True) - upper
        low = lower / numpy.maximum(magnitudes.shape[1] - count, 1)
        high = numpy.where(count > 0, upper / numpy.maximum(count, 1), low)
        border = (low + high) / 2
    large = magnitudes > border
    bits = numpy.concatenate([low, high], axis=1).astype(numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2"), large


def _values(levels: NDArray[Any], large: NDArray[numpy.bool_], negative: NDArray[numpy.bool_]) -> Floats:
    pair = (levels.astype(numpy.uint32) << 16).view(numpy.float32)
    values = numpy.where(large, pair[:, 1:], pair[:, :1])
    return numpy.where(negative, -values, values)
