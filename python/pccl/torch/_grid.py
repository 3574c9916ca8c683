"""Replicas of a model, each sharded over processes (FSDP2): a grid of replicas (rows) and shards (columns)."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from pccl._communicator import Communicator
from pccl._enums import DataType, QuantizationAlgorithm, ReduceOp
from pccl._errors import (
    PCCLConnectionLostError,
    PCCLError,
    PCCLMasterConnectionError,
    PCCLTooFewPeersError,
    PCCLTopologyError,
    argument_error,
)
from pccl._memory import memory_of
from pccl._staging import is_on_gpu
from pccl._values import (
    QuantizationOptions,
    ReduceDescriptor,
    ReduceOpDescriptor,
    ReduceOperandDescriptor,
    SharedState,
    TensorInfo,
)
from pccl.torch._local import local_tensor
from pccl.torch._replica import group_for_messages, replica_communicator

_FIRST_TAG = 3 << 61
_FAILURES_IN_A_ROW = 5
_ATTEMPTS = 5

Answer = TypeVar("Answer")

# Answers that the processes of a replica exchange. The worst (largest) one counts.
_FINE, _OUT, _REFUSED = 0, 1, 2


class ReplicaGrid:
    """This process's place in the grid. ::

        grid = ReplicaGrid("10.0.0.1:48148", mesh)        # the mesh of fully_shard: the processes of this replica
        state = pccl.torch.shared_state(model, more={"step": step})
        while step < steps:
            grid.begin(state)                             # admits newcomers; all replicas hold the same
            ...                                           # forward and backward within the replica
            if grid.average_([local_tensor(p.grad) for p in model.parameters()]):
                optimizer.step()
                step += 1

    Process k of each replica holds shard k and joins peer group k. The processes of a replica are a gang: the master
    admits and removes them together, so a replica takes part as a whole or not at all. A step is taken by all processes
    of a replica or by none. If one process is removed from the run, all processes of its replica leave and join again
    together, as newcomers that receive what the others hold. If one process dies, the calls of the others of its
    replica raise after they have left the run: end them, and start the replica again.

    The constructor is a collective of the replica. ``begin`` and ``average_`` are collectives of the whole grid: all
    processes call them in the same order. Within the replica they send one small message over ``mesh``. Its time-out
    limits how long a process waits for one of its own replica that hangs. A context manager, which calls close() at the
    end.

    :param address: address of the master, as for :class:`pccl.Communicator`. The first ``begin`` connects.
    :param mesh: the processes of this replica: a DeviceMesh of one dimension, or a process group. If its backend has no
        CPU tensors (NCCL), the constructor makes a gloo group of the same processes for the messages, with the time-out
        of the mesh.
    :param mates_timeout_s: seconds that ``begin`` waits until all other processes of the replica ask to join the run.
    :param settings: as for :class:`pccl.Communicator`, except for the peer group, which is the shard, and the gang.
    :raises PCCLArgumentError: a mesh of several dimensions, or an address or a setting that cannot be used.
    """

    shards: int
    """Number of processes of a replica."""
    shard: int
    """Index of this process in its replica; also its peer group."""
    communicator: Communicator
    """The communicator of this process. Its counters may be read; nothing else may be called on it."""

    def __init__(
        self, address: str, mesh: DeviceMesh | dist.ProcessGroup, *, mates_timeout_s: float = 60.0, **settings: Any
    ) -> None:
        if isinstance(mesh, DeviceMesh):
            if mesh.ndim != 1:
                raise argument_error(
                    "ReplicaGrid", f"the mesh has {mesh.ndim} dimensions; pass that of the shards: mesh['shard']"
                )
            self._group = group_for_messages(mesh.get_group())
        else:
            self._group = group_for_messages(mesh)
        if not mates_timeout_s > 0:
            raise argument_error("ReplicaGrid", f"mates_timeout_s is {mates_timeout_s}; use a number above 0")
        self._mates_timeout_s = mates_timeout_s
        self.shards = dist.get_world_size(self._group)
        self.shard = dist.get_rank(self._group)
        self.communicator = self._within_replica(
            lambda: replica_communicator(address, self._group, mates_timeout_s=mates_timeout_s, **settings)
        )
        self._member = False
        self._replicas = 0

    @property
    def replicas(self) -> int:
        """Number of replicas at the last ``begin``. It is equal in all processes of this replica, so they may branch on
        it. 0 when this process is not in the run. Never blocks."""
        return self._replicas if self._member else 0

    def begin(self, state: SharedState) -> None:
        """Admits replicas that wait. Then synchronizes the state within each shard's group. Blocks until all replicas
        have called it, and all processes of this replica have exchanged the outcome. While this replica joins, it keeps
        a copy of the state in CPU memory. If only some of its processes receive the run's state, all go back to what
        they had, and join again. So also after an exception.

        :param state: of this process: its shards, as :func:`shared_state` makes it. The grid counts its revisions.
        :raises PCCLMasterConnectionError: the master cannot be reached, or another process of this replica did not ask
            to join within ``mates_timeout_s``.
        :raises PCCLError: the state cannot be synchronized, after several attempts or for a reason that does not go
            away; this process has left the run.
        :raises torch.distributed.DistBackendError: another process of this replica is gone; this one has left the run.
        """
        failures = 0
        own = _Content(state)
        while True:
            is_new = not self._member
            try:
                cause, answer = self._renew()
                if answer == _FINE:
                    # Members only send.
                    cause, answer = self._synchronize(state, own if is_new else None)
                worst, replicas, is_equal = self._agree(answer, state.revision)
            except BaseException:
                own.put_back()
                self.close()
                raise
            if worst == _FINE and is_equal:
                self._replicas = replicas
                return
            # Some processes of this replica may have received their part of the run's state, and others not.
            own.put_back()
            failures += 1
            if failures == _FAILURES_IN_A_ROW or worst == _REFUSED:
                self.close()
                raise cause if cause is not None else RuntimeError(
                    "pccl: the processes of this replica hold states of different revisions; give state.revision the "
                    "same number in all of them"
                    if worst == _FINE
                    else "pccl: another process of this replica could not synchronize its state; see its error"
                )
            self._leave()

    def average_(self, tensors: Sequence[torch.Tensor], quantize: str | None = None) -> bool:
        """Averages tensors in place over the replicas, each within its shard's group. Blocks until all replicas have
        called it, and all processes of this replica have exchanged the outcome.

        :param tensors: contiguous, on the CPU or a GPU; on the same shard of every replica the same number and sizes.
            :func:`local_tensor` makes them of gradients.
        :param quantize: ``"int8"``: a quarter of the bytes, for float32 and float64.
        :returns: False: this replica takes no step, and the content of the tensors is of no use. The next ``begin``
            gives it what the others hold.
        :raises PCCLArgumentError: tensors that cannot be averaged, or no ``begin`` before.
        :raises torch.distributed.DistBackendError: another process of this replica is gone; this one has left the run.
        """
        if quantize not in (None, "int8"):
            raise argument_error("ReplicaGrid.average_", f"quantize is {quantize!r}; use None or 'int8'")
        if not self._member:
            raise argument_error("ReplicaGrid.average_", "begin() comes before the first average_()")
        descriptors = [_descriptor(tensor, tag, quantize) for tag, tensor in enumerate(tensors)]
        try:
            cause, answer = self._reduce(descriptors)
            worst, *_ = self._agree(answer)
        except BaseException:
            self.close()
            raise
        if worst == _FINE:
            return True
        if worst == _REFUSED:
            self.close()
            raise cause if cause is not None else RuntimeError(
                "pccl: another process of this replica could not average its tensors; see its error"
            )
        self._leave()
        return False

    def close(self) -> None:
        """Leaves the run. Usually blocks for some seconds at most. May be called again."""
        self._member = False
        self.communicator.close()

    def __enter__(self) -> ReplicaGrid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- between replicas

    def _renew(self) -> tuple[PCCLError | None, int]:
        """Joins the run, or admits others. A process that was just admitted is at the point where the others return
        from their vote."""
        if not self._member:
            self._join()
            self._member = True
            return None, _FINE
        try:
            self.communicator.update_topology()
        except PCCLTopologyError as error:
            return error, _OUT
        return None, _FINE

    def _join(self) -> None:
        """Tries a few times, because the master may still be starting. A mate that does not come is waited for once."""
        deadline = time.monotonic() + self._mates_timeout_s
        for attempt in range(_ATTEMPTS):
            try:
                self.communicator.connect(1)
                return
            except PCCLMasterConnectionError:
                if attempt + 1 == _ATTEMPTS or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def _synchronize(self, state: SharedState, own: _Content | None) -> tuple[PCCLError | None, int]:
        try:
            if own is not None:
                own.keep()
            self.communicator.sync_shared_state(state)
        except PCCLError as error:
            return error, _REFUSED if isinstance(error, ValueError) else _OUT
        # Revisions count synchronizations, not steps, because this replica may miss a step.
        state.push_revision()
        return None, _FINE

    def _reduce(self, descriptors: list[ReduceOpDescriptor]) -> tuple[PCCLError | None, int]:
        if not descriptors:
            return None, _FINE
        if self.communicator.world_size > 1:
            try:
                self.communicator.all_reduce_multiple_with_retry(descriptors, max_in_flight=16)
                return None, _FINE
            except PCCLTooFewPeersError:
                pass
            except PCCLConnectionLostError as error:
                return error, _OUT
            except PCCLError as error:
                return error, _REFUSED
        # Alone with this shard, its own tensors are the average, unless this process is out of the run.
        return None, _FINE if self.communicator.world_gangs else _OUT

    def _leave(self) -> None:
        """Leaves the run. When this process is a newcomer again, its content does not count against the others'."""
        self._member = False
        self.communicator.abort()

    # ---- within the replica

    def _agree(self, answer: int, revision: int = 0) -> tuple[int, int, bool]:
        """Returns the worst answer, the smallest number of replicas that a process sees (they may have read it before
        and after a death), and whether all have the same revision."""
        revision %= 1 << 62
        message = torch.tensor(
            [answer, -self.communicator.world_gangs, revision, -revision], dtype=torch.int64, device="cpu"
        )
        self._within_replica(lambda: dist.all_reduce(message, op=dist.ReduceOp.MAX, group=self._group))
        worst, replicas, largest, smallest = message.tolist()
        return worst, -replicas, largest == -smallest

    def _within_replica(self, message: Callable[[], Answer]) -> Answer:
        try:
            return message()
        except RuntimeError as error:
            raise dist.DistBackendError(
                "pccl: another process of this replica is gone or does not answer; this one has left the run. A "
                f"replica is whole or not there: end this process, too, and start the replica again ({error})"
            ) from error


class _Content:
    """Revision and content with which a state came into ``begin``."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._revision = state.revision
        self._copies: list[tuple[TensorInfo, Any]] = []

    def keep(self) -> None:
        """Copies the content to CPU memory, once."""
        if self._copies:
            return
        for info in self._state.tensor_infos:
            info._check_unmoved("ReplicaGrid.begin")
        self._copies = [
            (
                info,
                info._gpu_tensor("ReplicaGrid.begin").to("cpu", copy=True)
                if is_on_gpu(info.device_type)
                else ctypes.string_at(info.data_ptr, info.numel * info.dtype.itemsize),
            )
            for info in self._state.tensor_infos
        ]

    def put_back(self) -> None:
        self._state.revision = self._revision
        for info, copy in self._copies:
            if isinstance(copy, bytes):
                ctypes.memmove(info.data_ptr, copy, len(copy))
            else:
                with torch.no_grad():
                    info._gpu_tensor("ReplicaGrid.begin").copy_(copy)


def _descriptor(tensor: torch.Tensor, tag: int, quantize: str | None) -> ReduceOpDescriptor:
    local = local_tensor(tensor)
    memory = memory_of(local, f"tensor {tag}", "ReplicaGrid.average_", written=True)
    options = None
    if quantize is not None:
        if memory.data_type not in (DataType.FLOAT, DataType.DOUBLE):
            raise argument_error(
                "ReplicaGrid.average_",
                f"quantize='int8' works on float32 and float64, and tensor {tag} is {local.dtype}",
            )
        options = QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.MIN_MAX)
    descriptor = ReduceDescriptor(
        local.numel(), ReduceOp.AVG, _FIRST_TAG + tag, ReduceOperandDescriptor(memory.data_type), options
    )
    return ReduceOpDescriptor.from_torch(local, local, descriptor)
