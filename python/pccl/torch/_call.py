"""What a collective of torch becomes: calls of the communicator, and the memory of tensors that they take.

What only moves data moves bytes, never numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pccl._enums import ReduceOp
from pccl._errors import argument_error
from pccl._memory import memory_of
from pccl.torch._run import Run
from pccl.torch._work import Handle

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVG,
    dist.ReduceOp.PRODUCT: ReduceOp.PROD,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.MIN: ReduceOp.MIN,
}
# What a message calls the other rank.
_ENDS = {"send": "to", "recv": "source"}


class Call(NamedTuple):
    """A collective of the communicator: ``kind`` is the name of its method. ``recv`` may be ``send``. ``root`` is a
    rank, or -1 for none; of a send and a recv, the other rank. Pieces are in the order of ranks. ``counts``: elements of
    those of ``send``, in the order of indices."""

    kind: str
    send: Tensor | None
    recv: Tensor | None
    op: ReduceOp | None = None
    root: int = -1
    counts: list[int] | None = None

    def launch(self, run: Run, tag: int) -> Handle:
        options: dict[str, Any] = {"tag": tag}
        if self.op is not None:
            options["op"] = self.op
        if self.root >= 0:
            options[_ENDS.get(self.kind, "root")] = run.peer_of(self.root)
        if self.counts is not None:
            options["counts"] = self.counts
        arrays = (self.send, self.recv)
        if self.kind in ("barrier", *_ENDS):
            arrays = tuple(array for array in arrays if array is not None)
        handle: Handle = getattr(run.communicator, f"{self.kind}_async")(*arrays, **options)
        return handle

    def alone(self) -> None:
        """What it does in a group of one rank."""
        if self.send is not None and self.recv is not None and self.recv is not self.send:
            self.recv.copy_(self.send)


def operation_of(opts: Any, function: str) -> ReduceOp:
    # Older callers pass a plain operation, others pass options that hold one. None means a sum.
    given = getattr(opts, "reduceOp", opts if opts is not None else dist.ReduceOp.SUM)
    for theirs, ours in _OPS.items():
        if given == theirs:
            return ours
    raise NotImplementedError(
        f"pccl: {function} with {given}: use SUM, AVG, PRODUCT, MIN or MAX (bitwise ones on 0/1 values: MIN is 'and', "
        "MAX is 'or'), or a group of another backend: torch.distributed.new_group(backend='gloo')"
    )


def root_of(opts: Any) -> int:
    return int(getattr(opts, "rootRank", 0))


def plain(tensors: Sequence[Tensor]) -> list[Tensor]:
    # Detached, because torch.distributed also changes parameters in place without autograd noticing.
    return [tensor.detach() for tensor in tensors]


def vector_of(tensor: Tensor, function: str) -> Tensor:
    memory_of(tensor, "the tensor", function, written=False)
    return tensor.detach().view(-1)


def bytes_of(tensor: Tensor, function: str) -> Tensor:
    """The memory of a tensor of any type, as bytes."""
    if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):
        raise argument_error(function, "the tensor is a DTensor; use tensor.to_local()")
    if not tensor.is_contiguous() or tensor.layout is not torch.strided:
        raise argument_error(
            function, "the tensor is not contiguous; use tensor.contiguous(), and copy the result back"
        )
    return tensor.detach().resolve_conj().resolve_neg().view(-1).view(torch.uint8)


def target_of(tensor: Tensor, function: str) -> Tensor:
    """As :func:`bytes_of`, for a tensor into which data is received."""
    # The bytes of such a view are a copy, from which nothing would come back.
    if tensor.is_neg():
        raise argument_error(
            function, "the output is a lazily negated view; use tensor.resolve_neg(), and copy the result back"
        )
    if tensor.is_conj():
        raise argument_error(
            function, "the output is a lazily conjugated view; use tensor.resolve_conj(), and copy the result back"
        )
    return bytes_of(tensor, function)


def adjacent(parts: Sequence[Tensor]) -> Tensor | None:
    """The memory of vectors of one type as one vector, if they lie there one behind the other; else None."""
    filled = [part for part in parts if part.numel()]
    if not filled:
        return parts[0]
    storage, end = filled[0].untyped_storage().data_ptr(), filled[0].data_ptr()
    for part in filled:
        if part.data_ptr() != end or part.untyped_storage().data_ptr() != storage:
            return None
        end += part.nbytes
    return filled[0].as_strided((sum(part.numel() for part in filled),), (1,))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Vectors of one type as one vector: their memory if they are adjacent, else a copy."""
    whole = adjacent(parts)
    return torch.cat(list(parts)) if whole is None else whole


def overlap(one: Tensor, other: Tensor) -> bool:
    first: int = one.data_ptr()
    second: int = other.data_ptr()
    return bool(first < second + other.nbytes and second < first + one.nbytes)


def check_size(function: str, tensor: Tensor, elements: int) -> None:
    if tensor.numel() != elements:
        raise argument_error(function, f"a tensor has {tensor.numel()} elements where {elements} are needed")
