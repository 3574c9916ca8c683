"""Which encoding an argument ``quantize`` means."""

from __future__ import annotations

import pccl
from pccl.diloco._encoding import Codes, Encoding, Plain, Ring
from pccl.diloco._top_k import Largest, TopK

Quantize = str | pccl.QuantizationOptions | TopK | None


def make_encoding(quantize: Quantize, largest: int, parameters: int, pinned: bool) -> Encoding:
    """``largest``: elements of the largest fragment. ``parameters``: of the model. ``pinned``: whether pseudo-gradients
    are in page-locked memory. ValueError for an unknown name."""
    if quantize is None:
        return Plain(largest, pinned)
    if isinstance(quantize, pccl.QuantizationOptions):
        return Ring(largest, quantize, pinned)
    if isinstance(quantize, TopK):
        return Largest(largest, parameters, quantize, pinned)
    if quantize == "int8":
        return Codes(largest, parameters, pinned)
    raise ValueError(
        f"quantize is {quantize!r}; use None, 'int8', a TopK, or a pccl.QuantizationOptions for the library's ring"
    )


def name_of(quantize: Quantize) -> str:
    """What peers that average must have in common."""
    if isinstance(quantize, pccl.QuantizationOptions):
        return f"{int(quantize.quantized_datatype)}/{int(quantize.algorithm)}"
    if isinstance(quantize, TopK):
        return f"top{quantize.k}of{quantize.chunk}*{quantize.decay!r}"
    return str(quantize)
