"""The process group: every collective is one or more all-reduces.

The library has an all-reduce, which is made for slow and failing links. So a broadcast is a sum to which all ranks but
one contribute zeros, and a gathering is a sum to which each rank contributes its part. This sends more bytes than
necessary: all_gather and reduce_scatter among w ranks send about twice w times a rank's part, per rank. The results are
exact, because sums that move data are made over bytes, never over numbers.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from pccl._enums import ReduceOp
from pccl._errors import PCCLError, argument_error
from pccl._memory import memory_of
from pccl.torch import _failure
from pccl.torch._run import Run
from pccl.torch._work import Work, recorded

# One reduction: input, output (may be the same), operation.
Reduction = tuple[Tensor, Tensor, ReduceOp]

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVG,
    dist.ReduceOp.PRODUCT: ReduceOp.PROD,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.MIN: ReduceOp.MIN,
}


class ProcessGroupPCCL(dist.ProcessGroup):
    """``torch.distributed.init_process_group("pccl")``. The docstring of the package describes what it can do."""

    def __init__(self, run: Run | None, rank: int, size: int, timeout: timedelta, *, owns_run: bool) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._run = run
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._owns_run = owns_run
        self._name = ""
        self._description = ""
        self._tags = run.tags() if run is not None else iter(())
        # DDP.join() passes the Work of an all_reduce of one element to C++. C++ keeps its own object until the end of
        # the backward pass, but not the Python object with our methods. So the Python object is kept here for a while.
        self._kept: deque[Work] = deque(maxlen=256)
        # By type of device: the group of the backend that ``init_process_group("cpu:pccl,cuda:nccl")`` names for it.
        self._others: dict[str, dist.ProcessGroup | None] = {}

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        return "pccl"

    def name(self) -> str:
        return "pccl"

    # Kept here, because torch keeps them in C++ backends, and this group has none.
    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        self._description = desc

    @property
    def _device_types(self) -> list[torch.device]:
        # Used by torch.distributed.checkpoint.async_save, for example.
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def abort(self) -> None:
        if self._run is not None:
            self._run.close()

    def shutdown(self) -> None:
        """Leaves the run. Collectives in which the other members still need this one fail there."""
        if self._run is not None and self._owns_run:
            self._run.close()

    # ---- reductions

    def allreduce(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op = _operation(opts, "all_reduce")
        return self._launch("all_reduce", [(t, t, op) for t in _plain(tensors)], tensors, opts, timeout)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op = _operation(opts, "reduce")
        root = _root(opts) == self._rank
        reductions = [(t, t if root else torch.empty_like(t), op) for t in _plain(tensors)]
        return self._launch("reduce", reductions, tensors, opts, timeout)

    def reduce_scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op = _operation(opts, "reduce_scatter")
        own = [parts[self._rank] for parts in inputs]
        sums = []
        for output, part, parts in zip(outputs, own, inputs, strict=True):
            _same_size("reduce_scatter", output, part.numel())
            sums.append(torch.cat([_flat(one, "reduce_scatter") for one in parts]))
        begins = [sum(part.numel() for part in parts[: self._rank]) for parts in inputs]

        def finish() -> None:
            for output, total, begin in zip(outputs, sums, begins, strict=True):
                output.detach().copy_(total[begin : begin + output.numel()].view(output.shape))

        return self._launch("reduce_scatter", [(t, t, op) for t in sums], outputs, opts, timeout, finish)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        parts = []
        for output, source in zip(outputs, inputs, strict=True):
            _same_size("reduce_scatter_tensor", source, output.numel() * self._size)
            parts.append(list(_flat(source, "reduce_scatter_tensor").view(self._size, output.numel()).unbind()))
        return self.reduce_scatter(outputs, parts, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    # ---- distributing bytes

    def broadcast(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        flats = [_bytes(tensor, "broadcast") for tensor in tensors]
        if _root(opts) != self._rank:
            for flat in flats:
                flat.zero_()
        return self._launch("broadcast", _sums(flats), tensors, opts, timeout)

    def allgather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        gathered = [self._own_part(source, parts) for source, parts in zip(inputs, outputs, strict=True)]

        def finish() -> None:
            for flat, parts in zip(gathered, outputs, strict=True):
                _distribute(flat, parts)

        flattened = [tensor for parts in outputs for tensor in parts]
        return self._launch("all_gather", _sums(gathered), flattened, opts, timeout, finish)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        # This interface has outputs[rank][tensor], the other one outputs[tensor][rank].
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        flats = []
        for output, source in zip(outputs, inputs, strict=True):
            _same_size("all_gather_into_tensor", output, source.numel() * self._size)
            flat, own = _bytes(output, "all_gather_into_tensor"), _bytes(source, "all_gather_into_tensor")
            begin, end = self._rank * own.numel(), (self._rank + 1) * own.numel()
            # The input may already be in its place in the output (FSDP).
            if flat.data_ptr() + begin != own.data_ptr():
                flat[begin:end] = own
            flat[:begin].zero_()
            flat[end:].zero_()
            flats.append(flat)
        return self._launch("all_gather_into_tensor", _sums(flats), outputs, opts, None)

    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]

    def gather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root = _root(opts) == self._rank
        gathered = [self._own_part(source, [source] * self._size) for source in inputs]

        def finish() -> None:
            for flat, parts in zip(gathered, outputs, strict=False):
                _distribute(flat, parts)

        return self._launch("gather", _sums(gathered), inputs, opts, timeout, finish if root else None)

    def scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        if _root(opts) == self._rank:
            flats = [torch.cat([_bytes(part, "scatter") for part in parts]) for parts in inputs]
            for flat, output in zip(flats, outputs, strict=True):
                _same_size("scatter", output, flat.numel() // output.element_size() // self._size)
        else:
            flats = [_bytes(output, "scatter").new_zeros(output.nbytes * self._size) for output in outputs]

        def finish() -> None:
            for output, flat in zip(outputs, flats, strict=True):
                size = output.nbytes
                _bytes(output, "scatter").copy_(flat[self._rank * size : (self._rank + 1) * size])

        return self._launch("scatter", _sums(flats), outputs, opts, timeout, finish)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:  # type: ignore[override]
        return self._launch("barrier", _sums([torch.zeros(1, dtype=torch.uint8, device="cpu")]), [], opts, timeout)

    # ---- what an all-reduce cannot do

    def alltoall(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("all_to_all")

    def alltoall_base(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("all_to_all_single")

    all_to_all_single = alltoall_base

    def send(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("send")

    def recv(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("recv")

    def recv_anysource(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("recv")

    # ---- tensors on devices of other backends

    def _group_for(self, arguments: tuple[Any, ...]) -> dist.ProcessGroup | None:
        """The group of another backend to which the tensors among ``arguments`` belong, or None. torch gives all calls
        to the first backend in the description that is a process group, which is this one."""
        device = _device_of(arguments)
        if device is None:
            return None
        if device not in self._others:
            self._others[device] = self._make_group_for(device)
        return self._others[device]

    def _make_group_for(self, device: str) -> dist.ProcessGroup | None:
        try:
            backends = dict(one.split(":") for one in dist.get_backend_config(self).split(",") if ":" in one)
        except (ValueError, AssertionError):  # torch does not know this group (yet)
            return None
        backend = backends.get(device, "pccl")
        if backend == "pccl":
            return None
        # All ranks make this group, because all make the call that needs it.
        return dist.new_group(dist.get_process_group_ranks(self), timeout=self._timeout, backend=backend)

    # ---- the launch, the same for all

    def _launch(
        self,
        operation: str,
        reductions: list[Reduction],
        result: Sequence[Tensor],
        opts: Any,
        timeout: timedelta | None,
        finish: Callable[[], None] | None = None,
    ) -> Work:
        with recorded(f"pccl:{operation}"):
            work = self._launched(operation, reductions, result, opts, timeout, finish)
        if operation == "all_reduce" and len(reductions) == 1 and reductions[0][0].numel() == 1:
            self._kept.append(work)
        return work

    def _launched(
        self,
        operation: str,
        reductions: list[Reduction],
        result: Sequence[Tensor],
        opts: Any,
        timeout: timedelta | None,
        finish: Callable[[], None] | None,
    ) -> Work:
        run = self._run
        given = timeout if timeout is not None else getattr(opts, "timeout", None)
        # A negative time-out means that none was given.
        limit = given if given is not None and given > timedelta(0) else self._timeout
        handles = []
        if run is None:
            for send, recv, _ in reductions:
                if recv is not send:
                    recv.copy_(send)
        else:
            run.check()
            # Check all before the first launch: if a rank launched only some of them, the others would wait for it.
            for send, recv, _ in reductions:
                memory_of(send, "the tensor", operation, written=False)
            for send, recv, op in reductions:
                try:
                    handles.append(run.communicator.all_reduce_async(send, recv, op=op, tag=next(self._tags)))
                except PCCLError as error:
                    raise run.fail(_failure.of(error, operation))
        return Work(run, operation, handles, list(result), finish, limit.total_seconds())

    def _own_part(self, source: Tensor, parts: list[Tensor]) -> Tensor:
        """The bytes of all parts one after the other; zeros except for our own part."""
        sizes = [part.nbytes for part in parts]
        if len(parts) != self._size or sizes[self._rank] != source.nbytes:
            raise argument_error(
                "all_gather",
                f"{len(parts)} output tensors, of {sizes[self._rank] if len(parts) > self._rank else 0} bytes for this "
                f"rank's {source.nbytes}; give one per rank ({self._size}), each as large as the input of its rank",
            )
        own = _bytes(source, "all_gather")
        flat = own.new_zeros(sum(sizes))
        begin = sum(sizes[: self._rank])
        flat[begin : begin + own.numel()] = own
        return flat


def _device_of(arguments: Any) -> str | None:
    """The type of device of the first tensor in nested lists."""
    for one in arguments:
        if isinstance(one, Tensor):
            return str(one.device.type)
        if isinstance(one, (list, tuple)) and (found := _device_of(one)) is not None:
            return found
    return None


def _for_all_devices(name: str) -> Callable[..., Any]:
    own = getattr(ProcessGroupPCCL, name)

    @functools.wraps(own)
    def call(self: ProcessGroupPCCL, *arguments: Any, **options: Any) -> Any:
        other = self._group_for(arguments)
        return own(self, *arguments, **options) if other is None else getattr(other, name)(*arguments, **options)

    return call


# torch.compile must call these without tracing them. It does not know the attributes of a process group written in
# Python, and fails if it looks into one.
for _name in (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "_reduce_scatter_base",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "broadcast",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "_allgather_base",
    "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced",
    "gather",
    "scatter",
    "barrier",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "send",
    "recv",
    "recv_anysource",
):
    setattr(ProcessGroupPCCL, _name, torch._disable_dynamo(_for_all_devices(_name)))


def _operation(opts: Any, function: str) -> ReduceOp:
    # Older callers pass a plain operation, others pass options that hold one. None means a sum.
    given = getattr(opts, "reduceOp", opts if opts is not None else dist.ReduceOp.SUM)
    for theirs, ours in _OPS.items():
        if given == theirs:
            return ours
    raise NotImplementedError(
        f"pccl: {function} with {given}: use SUM, AVG, PRODUCT, MIN or MAX (bitwise ones on 0/1 values: MIN is 'and', "
        "MAX is 'or'), or a group of another backend: torch.distributed.new_group(backend='gloo')"
    )


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", 0))


def _plain(tensors: Sequence[Tensor]) -> list[Tensor]:
    # Detached, because torch.distributed also changes parameters in place without autograd noticing.
    return [tensor.detach() for tensor in tensors]


def _flat(tensor: Tensor, function: str) -> Tensor:
    memory_of(tensor, "the tensor", function, written=False)
    return tensor.detach().view(-1)


def _bytes(tensor: Tensor, function: str) -> Tensor:
    """The memory of a tensor of any type, as bytes."""
    if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):
        raise argument_error(function, "the tensor is a DTensor; use tensor.to_local()")
    if not tensor.is_contiguous() or tensor.layout is not torch.strided:
        raise argument_error(
            function, "the tensor is not contiguous; use tensor.contiguous(), and copy the result back"
        )
    return tensor.detach().resolve_conj().resolve_neg().view(-1).view(torch.uint8)


def _sums(flats: list[Tensor]) -> list[Reduction]:
    return [(flat, flat, ReduceOp.SUM) for flat in flats]


def _distribute(flat: Tensor, parts: Sequence[Tensor]) -> None:
    begin = 0
    for part in parts:
        _bytes(part, "all_gather").copy_(flat[begin : begin + part.nbytes])
        begin += part.nbytes


def _same_size(function: str, tensor: Tensor, elements: int) -> None:
    if tensor.numel() != elements:
        raise argument_error(function, f"a tensor has {tensor.numel()} elements where {elements} are needed")
