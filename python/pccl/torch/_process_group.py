"""The process group: each collective is one or more collectives of the communicator.

Ranks are given by the program, indices by the run. Where the two orders differ, pieces are gathered in the order of
indices and then copied into that of ranks. What only moves data moves bytes, never numbers.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from pccl._enums import ReduceOp
from pccl._errors import PCCLError, argument_error
from pccl._memory import memory_of
from pccl.torch import _failure
from pccl.torch._reconfigure import Meeting, ReconfigureOptions
from pccl.torch._run import Run
from pccl.torch._work import Finish, Handle, Work, recorded

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVG,
    dist.ReduceOp.PRODUCT: ReduceOp.PROD,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.MIN: ReduceOp.MIN,
}


# What a message calls the other rank.
_ENDS = {"send": "to", "recv": "source"}


class _Call(NamedTuple):
    """A collective of the communicator: ``kind`` is the name of its method. ``recv`` may be ``send``. ``root`` is a
    rank, or -1 for none; of a send and a recv, the other rank. ``counts``: elements of the pieces of ``send``, in the
    order of indices."""

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


class ProcessGroupPCCL(dist.ProcessGroup):
    """``torch.distributed.init_process_group("pccl")``. The docstring of the package describes what it can do."""

    @dataclass
    class Options:
        """For ``init_process_group("pccl", ..., pg_options=ProcessGroupPCCL.Options(...))``.

        :param enable_reconfigure: whether the members of the group can change (:func:`pccl.torch.reconfigure`). Unless
            ``pccl://`` has gathered it, the group then has no members before the first ``reconfigure``.
        """

        enable_reconfigure: bool = False

    def __init__(
        self,
        run: Run | None,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        owns_run: bool,
        meeting: Meeting | None = None,
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._run = run
        self._meeting = meeting
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._owns_run = owns_run
        self._name = ""
        self._description = ""
        self._tags = run.tags() if run is not None else iter(())
        # Messages of this group: a number that is the same for all ranks, and how many there were with each rank, in
        # each direction and with each tag. A rank may send several ones with a tag before the first one is received.
        self._group_tag = next(self._tags, 0)
        self._messages: Counter[tuple[str, int, int]] = Counter()
        # DDP.join() passes the Work of an all_reduce of one element to C++. C++ keeps its own object until the end of
        # the backward pass, but not the Python object with our methods. So the Python object is kept here for a while.
        self._kept: deque[Work] = deque(maxlen=256)
        # By type of device: the group of the backend that ``init_process_group("cpu:pccl,cuda:nccl")`` names for it.
        self._others: dict[str, dist.ProcessGroup | None] = {}

    # torch asks these, because the members may change.
    def getRank(self) -> int:  # noqa: N802 (torch's name)
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        return self._size

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

    # ---- other members

    @property
    def supports_reconfigure(self) -> bool:
        """As :func:`pccl.torch.supports_reconfigure`."""
        return self._meeting is not None

    def get_reconfigure_handle(self) -> str:
        """As :func:`pccl.torch.get_reconfigure_handle`."""
        return self._meets("get_reconfigure_handle").handle

    def reconfigure(self, opts: ReconfigureOptions) -> Work:
        """As :func:`pccl.torch.reconfigure`.

        :param opts: also those of torch, where it has them.
        """
        timeout = self._timeout if opts.timeout is None else opts.timeout
        former = self._run
        self._run, self._rank, self._size = self._meets("reconfigure").gather(opts, timeout)
        self._tags = self._run.tags() if self._run is not None else iter(())
        if former is not None and self._owns_run:
            former.close()
        self._owns_run = True
        ranks = dist.distributed_c10d._world.pg_group_ranks
        if self in ranks and self is dist.distributed_c10d._world.default_pg:
            ranks[self] = {rank: rank for rank in range(self._size)}
        return Work(None, "reconfigure", [], [], None, 0.0)

    def _meets(self, function: str) -> Meeting:
        if self._meeting is None:
            raise argument_error(
                function,
                "the members of this group cannot change; make it with "
                "pg_options=pccl.torch.ProcessGroupPCCL.Options(enable_reconfigure=True)",
            )
        others = [device for device, backend in self._backends().items() if backend != "pccl"]
        if others:
            raise argument_error(
                function,
                f"the group has another backend for {others[0]}, whose members would stay; make one group of each",
            )
        return self._meeting

    # ---- reductions

    def allreduce(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op = _operation(opts, "all_reduce")
        calls = [_Call("all_reduce", t, t, op) for t in _plain(tensors)]
        return self._launch("all_reduce", calls, tensors, opts, timeout)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op, root = _operation(opts, "reduce"), _root(opts)
        calls = [_Call("reduce", t, t if root == self._rank else None, op, root) for t in _plain(tensors)]
        return self._launch("reduce", calls, tensors, opts, timeout)

    def reduce_scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        sources = []
        for output, parts in zip(outputs, inputs, strict=True):
            _same_size("reduce_scatter", output, parts[self._rank].numel())
            sources.append(torch.cat([_flat(parts[rank], "reduce_scatter") for rank in self._ranks]))
        return self._scatter_reduced("reduce_scatter", outputs, sources, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        sources = []
        for output, source in zip(outputs, inputs, strict=True):
            _same_size("reduce_scatter_tensor", source, output.numel() * self._size)
            flat = _flat(source, "reduce_scatter_tensor")
            if not self._in_rank_order:
                flat = torch.cat([flat.view(self._size, output.numel())[rank] for rank in self._ranks])
            elif _overlap(flat, output):
                flat = flat.clone()
            sources.append(flat)
        return self._scatter_reduced("reduce_scatter_tensor", outputs, sources, opts, None)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def _scatter_reduced(
        self, function: str, outputs: list[Tensor], sources: list[Tensor], opts: Any, timeout: timedelta | None
    ) -> Work:
        """``sources`` have the parts in the order of indices."""
        op = _operation(opts, "reduce_scatter")
        targets = [
            output.detach().view(-1) if output.is_contiguous() else output.detach().new_empty(output.numel())
            for output in outputs
        ]
        calls = [_Call("reduce_scatter", *pair, op) for pair in zip(sources, targets, strict=True)]

        def finish(_: list[Any]) -> None:
            for output, target in zip(outputs, targets, strict=True):
                if not output.is_contiguous():
                    output.detach().copy_(target.view(output.shape))

        return self._launch(function, calls, outputs, opts, timeout, finish)

    # ---- distributing bytes

    def broadcast(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root = _root(opts)
        flats = [_bytes(tensor, "broadcast") for tensor in tensors]
        calls = [_Call("broadcast", flat if root == self._rank else None, flat, root=root) for flat in flats]
        return self._launch("broadcast", calls, tensors, opts, timeout)

    def allgather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        for source, parts in zip(inputs, outputs, strict=True):
            self._check_parts(source, parts)
        sizes = [[part.nbytes for part in parts] for parts in outputs]
        calls = [self._gathering(source, sum(size)) for source, size in zip(inputs, sizes, strict=True)]

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_gather", infos, sizes)
            for call, parts in zip(calls, outputs, strict=True):
                self._distribute(call.recv, parts)

        flattened = [tensor for parts in outputs for tensor in parts]
        return self._launch("all_gather", calls, flattened, opts, timeout, finish)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        # This interface has outputs[rank][tensor], the other one outputs[tensor][rank].
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        calls, scattered = [], []
        sizes = [[source.nbytes] * self._size for source in inputs]
        for output, source in zip(outputs, inputs, strict=True):
            _same_size("all_gather_into_tensor", output, source.numel() * self._size)
            flat, own = _bytes(output, "all_gather_into_tensor"), _bytes(source, "all_gather_into_tensor")
            if self._in_rank_order:
                # The input may already be in its place in the output (FSDP).
                calls.append(_Call("all_gather", own.clone() if _overlap(own, flat) else own, flat))
            else:
                calls.append(_Call("all_gather", own, torch.empty_like(flat)))
                scattered.append((calls[-1].recv, flat.view(self._size, own.numel()).unbind()))

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_gather_into_tensor", infos, sizes)
            for gathered, parts in scattered:
                self._distribute(gathered, parts)

        return self._launch("all_gather_into_tensor", calls, outputs, opts, None, finish)

    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]

    def gather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root = _root(opts) == self._rank
        for source, parts in zip(inputs, outputs, strict=False):
            self._check_parts(source, parts)
        sizes = [[source.nbytes] * self._size for source in inputs]
        flats = [_bytes(source, "gather") for source in inputs]
        calls = [
            _Call("gather", flat, flat.new_empty(flat.numel() * self._size) if root else None, root=_root(opts))
            for flat in flats
        ]

        def finish(infos: list[Any]) -> None:
            self._check_pieces("gather", infos, sizes)
            if root:
                for call, parts in zip(calls, outputs, strict=True):
                    self._distribute(call.recv, parts)

        return self._launch("gather", calls, inputs, opts, timeout, finish)

    def scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root, calls = _root(opts), []
        targets = [_bytes(output, "scatter") for output in outputs]
        for place, target in enumerate(targets):
            if root != self._rank:
                calls.append(_Call("scatter", None, target, root=root))
                continue
            pieces = [_bytes(inputs[place][rank], "scatter") for rank in self._ranks]
            _same_size("scatter", outputs[place], sum(map(len, pieces)) // outputs[place].element_size() // self._size)
            calls.append(_Call("scatter", torch.cat(pieces), target, root=root, counts=[*map(len, pieces)]))

        def finish(infos: list[Any]) -> None:
            for info, target in zip(infos, targets, strict=False):  # none in a group of one rank
                if (sent := info.members[info.index].count) != len(target):
                    raise argument_error(
                        "scatter",
                        f"rank {root} sent {sent} bytes to this rank, whose output has {len(target)}; make the output "
                        "as large as its input",
                    )

        return self._launch("scatter", calls, outputs, opts, timeout, finish)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:  # type: ignore[override]
        return self._launch("barrier", [_Call("barrier", None, None)], [], opts, timeout)

    # ---- exchanging bytes

    def alltoall(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        if len(outputs) != self._size or len(inputs) != self._size:
            raise argument_error(
                "all_to_all", f"{len(inputs)} inputs and {len(outputs)} outputs; give one per rank ({self._size})"
            )
        pieces = [_bytes(inputs[rank], "all_to_all") for rank in self._ranks]
        sizes = [_bytes(output, "all_to_all").numel() for output in outputs]
        received = pieces[0].new_empty(sum(sizes))
        call = _Call("all_to_all", torch.cat(pieces), received, counts=[*map(len, pieces)])

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_to_all", infos, [sizes])
            self._distribute(received, outputs)

        return self._launch("all_to_all", [call], outputs, opts, timeout, finish)

    def alltoall_base(  # type: ignore[override]
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        source, target = _bytes(input, "all_to_all_single"), _bytes(output, "all_to_all_single")
        sent = self._split(input, input_split_sizes, "input")
        sizes = self._split(output, output_split_sizes, "output")
        received = target
        if not self._in_rank_order:
            parts = source.split(sent)
            source, received = torch.cat([parts[rank] for rank in self._ranks]), torch.empty_like(target)
        elif _overlap(source, target):
            source = source.clone()
        call = _Call("all_to_all", source, received, counts=[sent[rank] for rank in self._ranks])

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_to_all_single", infos, [sizes])
            if received is not target:
                self._distribute(received, target.split(sizes))

        return self._launch("all_to_all_single", [call], [output], opts, timeout, finish)

    all_to_all_single = alltoall_base

    def _split(self, tensor: Tensor, sizes: Sequence[int] | None, which: str) -> list[int]:
        """Bytes of the part of each rank. ``sizes``: rows of each part; none: all parts have as many."""
        rows = tensor.shape[0] if tensor.dim() else 1
        row_bytes = tensor.nbytes // rows if rows else 0
        if not sizes:
            if rows % self._size:
                raise argument_error(
                    "all_to_all_single",
                    f"the {which} has {rows} rows for {self._size} ranks; give {which}_split_sizes, or a tensor whose "
                    "rows can be shared evenly",
                )
            return [rows // self._size * row_bytes] * self._size
        if len(sizes) != self._size or sum(sizes) != rows:
            raise argument_error(
                "all_to_all_single",
                f"the {which}_split_sizes are {list(sizes)} for {self._size} ranks and {rows} rows; give one per rank, "
                "which together are all rows",
            )
        return [size * row_bytes for size in sizes]

    # ---- messages between two ranks

    def send(self, tensors: list[Tensor], dstRank: int, tag: int = 0) -> Work:  # type: ignore[override]  # noqa: N803
        return self._message("send", tensors, dstRank, tag)

    def recv(self, tensors: list[Tensor], srcRank: int, tag: int = 0) -> Work:  # type: ignore[override]  # noqa: N803
        return self._message("recv", tensors, srcRank, tag)

    def recv_anysource(self, *_: Any, **__: Any) -> NoReturn:
        raise _failure.unsupported("recv from any rank")

    def _message(self, kind: str, tensors: list[Tensor], rank: int, tag: int) -> Work:
        if len(tensors) != 1:
            raise argument_error(kind, f"{len(tensors)} tensors; give one")
        if rank == self._rank or not 0 <= rank < self._size:
            raise argument_error(kind, f"rank {rank} is no other rank of this group of {self._size}")
        flat = _bytes(tensors[0], kind)
        call = _Call("send", flat, None, root=rank) if kind == "send" else _Call("recv", None, flat, root=rank)

        def finish(infos: list[Any]) -> None:
            if infos and (sent := infos[0].members[0].count) != len(flat):
                raise argument_error(
                    kind, f"rank {rank} sent {sent} bytes, and the tensor has {len(flat)}; make both equally large"
                )

        number = self._messages[kind, rank, tag]
        self._messages[kind, rank, tag] += 1
        name = hashlib.blake2b(f"{self._group_tag} {tag} {number}".encode(), digest_size=8).digest()
        return self._launch(kind, [call], tensors, None, None, finish, int.from_bytes(name, "little"))

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

    def _backends(self) -> dict[str, str]:
        """The backend for each type of device."""
        try:
            return dict(one.split(":") for one in dist.get_backend_config(self).split(",") if ":" in one)
        except (ValueError, AssertionError):  # torch does not know this group (yet)
            return {}

    def _make_group_for(self, device: str) -> dist.ProcessGroup | None:
        backend = self._backends().get(device, "pccl")
        if backend == "pccl":
            return None
        # All ranks of this group make it, because all make the call that needs it; other ranks know nothing of it.
        return dist.new_group(
            dist.get_process_group_ranks(self),
            timeout=self._timeout,
            backend=backend,
            use_local_synchronization=self._size < dist.get_world_size(),
        )

    # ---- the launch, the same for all

    def _launch(
        self,
        operation: str,
        calls: list[_Call],
        result: Sequence[Tensor],
        opts: Any,
        timeout: timedelta | None,
        finish: Finish | None = None,
        tag: int | None = None,
    ) -> Work:
        """``tag``: of a message; None: the next one of the group."""
        with recorded(f"pccl:{operation}"):
            work = self._launched(operation, calls, result, opts, timeout, finish, tag)
        if operation == "all_reduce" and len(calls) == 1 and result[0].numel() == 1:
            self._kept.append(work)
        return work

    def _launched(
        self,
        operation: str,
        calls: list[_Call],
        result: Sequence[Tensor],
        opts: Any,
        timeout: timedelta | None,
        finish: Finish | None,
        tag: int | None,
    ) -> Work:
        run = self._run
        given = timeout if timeout is not None else getattr(opts, "timeout", None)
        # A negative time-out means that none was given.
        limit = given if given is not None and given > timedelta(0) else self._timeout
        handles = []
        if run is None:
            if self._size > 1:
                raise dist.DistBackendError(
                    f"pccl: {operation}: the group has no members yet; call pccl.torch.reconfigure() with the handles "
                    "of all of them"
                )
            for call in calls:
                call.alone()
        else:
            run.check()
            # Check all before the first launch: if a rank launched only some of them, the others would wait for it.
            for call in calls:
                for tensor in (call.send, call.recv):
                    if tensor is not None:
                        memory_of(tensor, "the tensor", operation, written=False)
            for call in calls:
                try:
                    handles.append(call.launch(run, next(self._tags) if tag is None else tag))
                except PCCLError as error:
                    raise run.fail(run.failure_of(error, operation))
        size = None if tag is None else 2
        return Work(run, operation, handles, list(result), finish, limit.total_seconds(), size)

    # ---- pieces

    @property
    def _ranks(self) -> list[int]:
        """The rank of each member, in the order of indices, which is the order of pieces."""
        return self._run.ranks if self._run is not None else [0]

    @property
    def _in_rank_order(self) -> bool:
        return self._run is None or self._run.in_rank_order

    def _gathering(self, source: Tensor, nbytes: int) -> _Call:
        """``nbytes``: of all ranks together."""
        own = _bytes(source, "all_gather")
        return _Call("all_gather", own, own.new_empty(nbytes))

    def _check_parts(self, source: Tensor, parts: list[Tensor]) -> None:
        if len(parts) != self._size or parts[self._rank].nbytes != source.nbytes:
            raise argument_error(
                "all_gather",
                f"{len(parts)} output tensors, of {parts[self._rank].nbytes if len(parts) > self._rank else 0} bytes "
                f"for this rank's {source.nbytes}; give one per rank ({self._size}), each as large as the input of its "
                "rank",
            )

    def _check_pieces(self, function: str, infos: list[Any], sizes: list[list[int]]) -> None:
        """``infos`` of a group with one rank are missing. ``sizes``: what each rank should have sent, in bytes."""
        for gathered, wanted in zip(infos, sizes, strict=False):
            for rank, member in zip(self._ranks, gathered.members, strict=True):
                if member.count != wanted[rank]:
                    raise argument_error(
                        function,
                        f"rank {rank} sent {member.count} bytes where {wanted[rank]} have room; make each output as "
                        "large as the input of its rank",
                    )

    def _distribute(self, gathered: Tensor | None, parts: Sequence[Tensor]) -> None:
        """``parts`` are in the order of ranks."""
        assert gathered is not None
        begin = 0
        for rank in self._ranks:
            part = _bytes(parts[rank], "all_gather")
            part.copy_(gathered[begin : begin + part.numel()])
            begin += part.numel()


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


def _overlap(one: Tensor, other: Tensor) -> bool:
    first: int = one.data_ptr()
    second: int = other.data_ptr()
    return bool(first < second + other.nbytes and second < first + one.nbytes)


def _same_size(function: str, tensor: Tensor, elements: int) -> None:
    if tensor.numel() != elements:
        raise argument_error(function, f"a tensor has {tensor.numel()} elements where {elements} are needed")
