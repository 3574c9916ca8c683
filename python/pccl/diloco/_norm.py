"""The Euclidean norm of long vectors."""

from __future__ import annotations

import math

import numpy
from torch import Tensor

from pccl.diloco._cores import CHUNK, over_ranges
from pccl.diloco._outer import Floats


def norm(vector: Tensor) -> float:
    """Returns the norm of a float32 vector on the CPU, with an error of about 1e-6 of it. It is not finite exactly if an
    element is not."""
    values: Floats = vector.numpy()
    sums: list[float] = []

    def add_up(first: int, end: int) -> None:
        squares = numpy.empty(min(CHUNK, end - first), numpy.float32)
        total = 0.0
        # A sum of squares in 32 bits overflows for finite elements above 1.8e19; then it is done again in 64 bits.
        with numpy.errstate(over="ignore"):
            for begin in range(first, end, CHUNK):
                part = values[begin : min(begin + CHUNK, end)]
                numpy.multiply(part, part, out=squares[: part.size])
                sum_of_squares = float(numpy.sum(squares[: part.size]))
                if not math.isfinite(sum_of_squares):
                    sum_of_squares = float(numpy.sum(numpy.square(part, dtype=numpy.float64)))
                total += sum_of_squares
        sums.append(total)

    over_ranges(add_up, values.size)
    return math.sqrt(math.fsum(sums)) if all(map(math.isfinite, sums)) else math.inf
