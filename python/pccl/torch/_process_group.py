"""The process group: each collective is one or more collectives of the communicator.

Ranks are given by the program, indices by the run. The communicator keeps pieces in the order of ranks
(:meth:`Communicator.set_piece_order`), so arrays are used where they are; lists of tensors too, if these lie one behind
the other, as those of ``torch.chunk`` do.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from pccl._errors import PCCLError, argument_error
from pccl._memory import memory_of
from pccl.torch import _failure
from pccl.torch._call import (
    Call,
    adjacent,
    bytes_of,
    check_size,
    joined,
    operation_of,
    overlap,
    plain,
    root_of,
    target_of,
    vector_of,
)
from pccl.torch._devices import OtherBackends, backends_of, for_all_devices
from pccl.torch._reconfigure import Meeting, ReconfigureOptions
from pccl.torch._run import Run
from pccl.torch._work import Finish, Work, recorded


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
        self._begin_tags(run)
        # DDP.join() passes the Work of an all_reduce of one element to C++. C++ keeps its own object until the end of
        # the backward pass, but not the Python object with our methods. So the Python object is kept here for a while.
        self._kept: deque[Work] = deque(maxlen=256)
        self._others = OtherBackends()

    def _begin_tags(self, run: Run | None) -> None:
        """All ranks begin to count with the members of a run."""
        self._tags = run.tags() if run is not None else iter(())
        # Messages of this group: a number that is the same for all ranks, and how many there were with each rank, in
        # each direction and with each tag. A rank may send several ones with a tag before the first one is received.
        self._group_tag = next(self._tags, 0)
        self._messages: Counter[tuple[str, int, int]] = Counter()

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
        self._begin_tags(self._run)
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
        others = [device for device, backend in backends_of(self).items() if backend != "pccl"]
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
        op = operation_of(opts, "all_reduce")
        calls = [Call("all_reduce", t, t, op) for t in plain(tensors)]
        return self._launch("all_reduce", calls, tensors, opts, timeout)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        op, root = operation_of(opts, "reduce"), root_of(opts)
        calls = [Call("reduce", t, t if root == self._rank else None, op, root) for t in plain(tensors)]
        return self._launch("reduce", calls, tensors, opts, timeout)

    def reduce_scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        sources = []
        for output, parts in zip(outputs, inputs, strict=True):
            check_size("reduce_scatter", output, parts[self._rank].numel())
            whole = joined([vector_of(part, "reduce_scatter") for part in parts])
            sources.append(whole.clone() if overlap(whole, output) else whole)
        return self._scatter_reduced("reduce_scatter", outputs, sources, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        sources = []
        for output, source in zip(outputs, inputs, strict=True):
            check_size("reduce_scatter_tensor", source, output.numel() * self._size)
            flat = vector_of(source, "reduce_scatter_tensor")
            sources.append(flat.clone() if overlap(flat, output) else flat)
        return self._scatter_reduced("reduce_scatter_tensor", outputs, sources, opts, None)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def _scatter_reduced(
        self, function: str, outputs: list[Tensor], sources: list[Tensor], opts: Any, timeout: timedelta | None
    ) -> Work:
        op = operation_of(opts, "reduce_scatter")
        targets = [
            output.detach().view(-1) if output.is_contiguous() else output.detach().new_empty(output.numel())
            for output in outputs
        ]
        calls = [Call("reduce_scatter", *pair, op) for pair in zip(sources, targets, strict=True)]

        def finish(_: list[Any]) -> None:
            for output, target in zip(outputs, targets, strict=True):
                if not output.is_contiguous():
                    output.detach().copy_(target.view(output.shape))

        return self._launch(function, calls, outputs, opts, timeout, finish)

    # ---- distributing bytes

    def broadcast(  # type: ignore[override]
        self, tensors: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root = root_of(opts)
        view = bytes_of if root == self._rank else target_of
        flats = [view(tensor, "broadcast") for tensor in tensors]
        calls = [Call("broadcast", flat if root == self._rank else None, flat, root=root) for flat in flats]
        return self._launch("broadcast", calls, tensors, opts, timeout)

    def allgather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        for source, parts in zip(inputs, outputs, strict=True):
            self._check_parts(source, parts)
        sizes = [[part.nbytes for part in parts] for parts in outputs]
        calls = [self._gathering("all_gather", *pair) for pair in zip(inputs, outputs, strict=True)]

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_gather", infos, sizes)
            for call, parts in zip(calls, outputs, strict=True):
                _distribute(call.recv, parts)

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
        calls = []
        sizes = [[source.nbytes] * self._size for source in inputs]
        for output, source in zip(outputs, inputs, strict=True):
            check_size("all_gather_into_tensor", output, source.numel() * self._size)
            flat, own = target_of(output, "all_gather_into_tensor"), bytes_of(source, "all_gather_into_tensor")
            # The input may already be in its place in the output (FSDP).
            calls.append(Call("all_gather", own.clone() if overlap(own, flat) else own, flat))

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_gather_into_tensor", infos, sizes)

        return self._launch("all_gather_into_tensor", calls, outputs, opts, None, finish)

    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]

    def gather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root = root_of(opts)
        for source, parts in zip(inputs, outputs, strict=False):
            self._check_parts(source, parts)
        sizes = [[source.nbytes] * self._size for source in inputs]
        if root == self._rank:
            calls = [self._gathering("gather", *pair, root) for pair in zip(inputs, outputs, strict=True)]
        else:
            calls = [Call("gather", bytes_of(source, "gather"), None, root=root) for source in inputs]

        def finish(infos: list[Any]) -> None:
            self._check_pieces("gather", infos, sizes)
            if root == self._rank:
                for call, parts in zip(calls, outputs, strict=True):
                    _distribute(call.recv, parts)

        return self._launch("gather", calls, inputs, opts, timeout, finish)

    def scatter(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        root, calls = root_of(opts), []
        targets = [target_of(output, "scatter") for output in outputs]
        for place, target in enumerate(targets):
            if root != self._rank:
                calls.append(Call("scatter", None, target, root=root))
                continue
            pieces = [bytes_of(piece, "scatter") for piece in inputs[place]]
            check_size("scatter", outputs[place], sum(map(len, pieces)) // outputs[place].element_size() // self._size)
            whole = joined(pieces)
            counts = [len(pieces[rank]) for rank in self._ranks]
            calls.append(
                Call("scatter", whole.clone() if overlap(whole, target) else whole, target, root=root, counts=counts)
            )

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
        return self._launch("barrier", [Call("barrier", None, None)], [], opts, timeout)

    # ---- exchanging bytes

    def alltoall(  # type: ignore[override]
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        if len(outputs) != self._size or len(inputs) != self._size:
            raise argument_error(
                "all_to_all", f"{len(inputs)} inputs and {len(outputs)} outputs; give one per rank ({self._size})"
            )
        pieces = [bytes_of(piece, "all_to_all") for piece in inputs]
        sizes = [bytes_of(output, "all_to_all").numel() for output in outputs]
        received, whole = _room_for(outputs, "all_to_all"), joined(pieces)
        counts = [len(pieces[rank]) for rank in self._ranks]
        call = Call("all_to_all", whole.clone() if overlap(whole, received) else whole, received, counts=counts)

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_to_all", infos, [sizes])
            _distribute(received, outputs)

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
        source, target = bytes_of(input, "all_to_all_single"), target_of(output, "all_to_all_single")
        sent = self._split(input, input_split_sizes, "input")
        sizes = self._split(output, output_split_sizes, "output")
        if overlap(source, target):
            source = source.clone()
        call = Call("all_to_all", source, target, counts=[sent[rank] for rank in self._ranks])

        def finish(infos: list[Any]) -> None:
            self._check_pieces("all_to_all_single", infos, [sizes])

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
        flat = bytes_of(tensors[0], kind) if kind == "send" else target_of(tensors[0], kind)
        call = Call("send", flat, None, root=rank) if kind == "send" else Call("recv", None, flat, root=rank)

        def finish(infos: list[Any]) -> None:
            if infos and (sent := infos[0].members[0].count) != len(flat):
                raise argument_error(
                    kind, f"rank {rank} sent {sent} bytes, and the tensor has {len(flat)}; make both equally large"
                )

        number = self._messages[kind, rank, tag]
        self._messages[kind, rank, tag] += 1
        name = hashlib.blake2b(f"{self._group_tag} {tag} {number}".encode(), digest_size=8).digest()
        return self._launch(kind, [call], tensors, None, None, finish, int.from_bytes(name, "little"))

    # ---- the launch, the same for all

    def _launch(
        self,
        operation: str,
        calls: list[Call],
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
        calls: list[Call],
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
        if run is None and self._size > 1:
            raise dist.DistBackendError(
                f"pccl: {operation}: the group has no members yet; call pccl.torch.reconfigure() with the handles "
                "of all of them"
            )
        if run is None or self._size == 1:
            run = None
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
        """The rank of each member, in the order of indices."""
        return self._run.ranks if self._run is not None else [0]

    def _gathering(self, kind: str, source: Tensor, outputs: Sequence[Tensor], root: int = -1) -> Call:
        own, received = bytes_of(source, kind), _room_for(outputs, kind)
        return Call(kind, own.clone() if overlap(own, received) else own, received, root=root)

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


def _room_for(parts: Sequence[Tensor], function: str) -> Tensor:
    """Where pieces for these tensors land: their own memory, if they lie there one behind the other."""
    flats = [target_of(part, function) for part in parts]
    whole = adjacent(flats)
    return flats[0].new_empty(sum(map(len, flats))) if whole is None else whole


def _distribute(gathered: Tensor | None, parts: Sequence[Tensor]) -> None:
    """Copies pieces to their tensors, if they have not landed there."""
    assert gathered is not None
    if gathered.untyped_storage().data_ptr() == parts[0].untyped_storage().data_ptr():
        return
    begin = 0
    for one in parts:
        part = bytes_of(one, "all_gather")
        part.copy_(gathered[begin : begin + part.numel()])
        begin += part.numel()


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
    setattr(ProcessGroupPCCL, _name, torch._disable_dynamo(for_all_devices(_name, getattr(ProcessGroupPCCL, _name))))
