"""Replicas of a model, each sharded over processes (FSDP2): a grid of replicas (rows) and shards (columns)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from pccl._communicator import Communicator
from pccl._enums import Attribute, DataType, QuantizationAlgorithm, ReduceOp
from pccl._errors import PCCLConnectionLostError, PCCLError, PCCLTooFewPeersError, PCCLTopologyError, argument_error
from pccl._memory import memory_of
from pccl._values import QuantizationOptions, ReduceDescriptor, ReduceOpDescriptor, ReduceOperandDescriptor, SharedState
from pccl.torch._local import local_tensor

_POLL_S = 0.02
_FIRST_TAG = 3 << 61
_FAILURES_IN_A_ROW = 5

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

    Process k of each replica holds shard k and joins peer group k. A replica takes part as a whole or not at all. No
    process computes until every shard has the same number of members. A step is taken by all processes of a replica or
    by none. If one process is removed from the run, all processes of its replica leave and join again together, as
    newcomers that receive what the others hold. If one process dies, the calls of the others of its replica raise after
    they have left the run: end them, and start the replica again.

    ``begin`` and ``average_`` are collectives of the whole grid: all processes call them in the same order. Within the
    replica they send a few small messages over ``mesh``. Its time-out limits how long a process waits for one of its
    own replica that hangs. A context manager, which calls close() at the end.

    :param address: address of the master, as for :class:`pccl.Communicator`. The first ``begin`` connects.
    :param mesh: the processes of this replica: a DeviceMesh of one dimension, or a process group. If its backend has no
        CPU tensors (NCCL), the constructor makes a gloo group of the same processes for the messages, with the time-out
        of the mesh; then the constructor is a collective of the replica.
    :param mates_timeout_s: seconds that a process, once admitted to the run, waits until the other processes of its
        replica are admitted, too. After that it leaves, so that the other replicas do not wait for it.
    :param settings: as for :class:`pccl.Communicator`, except for the peer group, which is the shard.
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
            self._group = _group_for_messages(mesh.get_group())
        else:
            self._group = _group_for_messages(mesh)
        if not mates_timeout_s > 0:
            raise argument_error("ReplicaGrid", f"mates_timeout_s is {mates_timeout_s}; use a number above 0")
        self._mates_timeout_s = mates_timeout_s
        self.shards = dist.get_world_size(self._group)
        self.shard = dist.get_rank(self._group)
        self.communicator = Communicator(address, peer_group=self.shard, **settings)
        self._member = False
        # Whether all processes of this replica are known to be members, and the deadline for that.
        self._met = False
        self._meets_until = 0.0
        self._replicas = 0
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self._turn: tuple[dist.Work | None, torch.Tensor] | None = None

    @property
    def replicas(self) -> int:
        """Number of replicas at the last ``begin``. It is equal in all processes of this replica, so they may branch on
        it. 0 when this process is not in the run. Never blocks."""
        return self._replicas if self._member else 0

    def begin(self, state: SharedState) -> None:
        """Admits newcomers and blocks until the grid is full. Then synchronizes the state within each shard's group.

        :param state: of this process: its shards, as :func:`shared_state` makes it. The grid counts its revisions.
        :raises PCCLError: the state cannot be synchronized, after several attempts or for a reason that does not go
            away; this process has left the run.
        :raises torch.distributed.DistBackendError: another process of this replica is gone; this one has left the run.
        """
        failures = 0
        try:
            # A replica that lost a process must leave before it votes. Its remaining processes and a part of a newcomer
            # could together have as many members of each shard, as if they were a complete replica.
            if self._member:
                self._agree(_FINE)
        except BaseException:
            self.close()
            raise
        while True:
            try:
                cause, answer = self._wait_until_full()
                if answer == _FINE:
                    cause, answer = self._synchronize(state)
                worst, replicas = self._agree(answer)
            except BaseException:
                self.close()
                raise
            if worst == _FINE:
                self._replicas = replicas
                return
            failures += 1
            if failures == _FAILURES_IN_A_ROW or worst == _REFUSED:
                self.close()
                raise cause if cause is not None else RuntimeError(
                    "pccl: another process of this replica could not synchronize its state; see its error"
                )
            self._leave()

    def average_(self, tensors: Sequence[torch.Tensor], quantize: str | None = None) -> bool:
        """Averages tensors in place over the replicas, each within its shard's group. Blocks until all replicas have
        called it, and all processes of this replica have exchanged the outcome.

        :param tensors: contiguous, on the CPU; on the same shard of every replica the same number and sizes.
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
            worst, _ = self._agree(answer)
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
        """Leaves the run. May be called again."""
        self._member = False
        self.communicator.close()

    def __enter__(self) -> ReplicaGrid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- between replicas

    def _wait_until_full(self) -> tuple[PCCLError | None, int]:
        """Returns when the grid is full, with an answer. Every member of every group sees the same numbers after the
        same vote, so all of them go on after the same vote."""
        while True:
            # A process that was just admitted is at the point where the others return from their vote.
            if not self._member:
                self._join()
                # Each process sends its first message as a member, so the message completes only when all are members.
                self._look_for_mates()
            else:
                try:
                    self.communicator.update_topology()
                except PCCLTopologyError as error:
                    return error, _OUT
            if self._is_full():
                return None, _FINE
            if self._look_for_mates() != _FINE:
                return None, _OUT
            if not self._met and time.monotonic() > self._meets_until:
                self._await_mates()
            time.sleep(_POLL_S)

    def _join(self) -> None:
        """Joins in shard order: when a shard of a replica is in, all shards before it are in. So equal group sizes mean
        complete replicas. Otherwise they could be parts of several replicas, whose processes would wait for their mates
        while the mates wait to be admitted by them."""
        joined = False
        try:
            self._await_turn()
            self.communicator.connect()
            joined = True
        finally:
            self._pass_turn(joined)
        self._member = True
        self._met = self.shards == 1
        self._meets_until = time.monotonic() + self._mates_timeout_s

    def _is_full(self) -> bool:
        members = self.communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE)
        replicas = self.communicator.get_attribute(Attribute.LARGEST_PEER_GROUP_WORLD_SIZE)
        return members >= self.shards * replicas

    def _synchronize(self, state: SharedState) -> tuple[PCCLError | None, int]:
        try:
            self.communicator.sync_shared_state(state)
        except PCCLError as error:
            return error, _REFUSED if isinstance(error, ValueError) else _OUT
        # Revisions count synchronizations, not steps, because this replica may miss a step.
        state.push_revision()
        return None, _FINE

    def _reduce(self, descriptors: list[ReduceOpDescriptor]) -> tuple[PCCLError | None, int]:
        if not descriptors:
            return None, _FINE
        if self._members_of_group() > 1:
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
        return None, _OUT if self._is_out() else _FINE

    def _is_out(self) -> bool:
        """Whether this process is out of the run: its communicator then reads a world of one member. A member of a
        replica of several processes reads more. With one process per replica, only the next vote shows it."""
        return self.shards > 1 and self.communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1

    def _members_of_group(self) -> int:
        return self.communicator.get_attribute(Attribute.LOCAL_WORLD_SIZE)

    def _leave(self) -> None:
        """Leaves the run. When this process is a newcomer again, its content does not count against the others'."""
        self._member = False
        self.communicator.abort()

    # ---- within the replica

    def _await_turn(self) -> None:
        if self.shard == 0:
            return
        joined = torch.zeros(1, dtype=torch.int32, device="cpu")
        before = dist.get_global_rank(self._group, self.shard - 1)
        self._within_replica(lambda: dist.recv(joined, before, group=self._group))
        if not joined.item():
            raise RuntimeError("pccl: another process of this replica could not join the run; see its error")

    def _pass_turn(self, joined: bool) -> None:
        """Lets the next shard join, or passes a failure on. Returns at once."""
        if self.shard + 1 == self.shards:
            return
        message = torch.tensor([int(joined)], dtype=torch.int32, device="cpu")
        after = dist.get_global_rank(self._group, self.shard + 1)

        def send() -> None:
            self._turn = dist.isend(message, after, group=self._group), message  # kept alive while it is sent

        self._within_replica(send)

    # Every message has an answer, whether its sender still waits for a full grid, and how many replicas it sees. A
    # process that waits sends one message after the other and only polls whether it has completed. It must not block: a
    # process that still joins cannot answer before it is admitted, and that vote needs this process.

    def _look_for_mates(self) -> int:
        """Fails if another process of this replica is dead. Returns the worst answer of those that no longer wait."""
        worst = _FINE
        if self._sent is not None and self._sent[0].is_completed():
            worst, _, _ = self._receive()
        if self._sent is None:
            self._send(_FINE, waits=True)
        return worst

    def _agree(self, answer: int) -> tuple[int, int]:
        """Returns the worst answer and the smallest number of replicas that a process sees: around a death the groups
        of the shards differ in size. If it met a message of a process that still waited, all processes send theirs
        again."""
        if self._sent is not None:
            self._receive()
        while True:
            self._send(answer, waits=False)
            worst, waits, replicas = self._receive()
            if not waits:
                return worst, replicas

    def _send(self, answer: int, waits: bool) -> None:
        message = torch.tensor([answer, int(waits), -self._members_of_group()], dtype=torch.int32, device="cpu")

        def send() -> None:
            work = dist.all_reduce(message, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
            assert work is not None
            self._sent = work, message

        self._within_replica(send)

    def _receive(self) -> tuple[int, bool, int]:
        assert self._sent is not None
        if not self._met:
            self._await_mates()
        work, message = self._sent
        self._sent = None
        self._within_replica(work.wait)
        worst, waits, replicas = message.tolist()
        return worst, bool(waits), -replicas

    def _await_mates(self) -> None:
        """Waits until the deadline at most. In a full grid the mates are members or never will be: after a death,
        groups of equal size may consist of parts of several replicas. Then the others would wait for this
        process, and its mates for them."""
        assert self._sent is not None
        while not self._sent[0].is_completed():
            if time.monotonic() > self._meets_until:
                raise dist.DistBackendError(
                    "pccl: another process of this replica did not join the run within "
                    f"{self._mates_timeout_s:g} s (mates_timeout_s); this one has left the run. A replica is whole or "
                    "not there: end all its processes, and start the replica again"
                )
            time.sleep(_POLL_S)
        self._met = True

    def _within_replica(self, message: Callable[[], object]) -> None:
        try:
            message()
        except RuntimeError as error:
            raise dist.DistBackendError(
                "pccl: another process of this replica is gone or does not answer; this one has left the run. A "
                f"replica is whole or not there: end this process, too, and start the replica again ({error})"
            ) from error


def _group_for_messages(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Returns the group itself if its backend has messages of CPU tensors, else a gloo group of the same processes."""
    backends = dict(one.split(":", 1) for one in str(dist.get_backend_config(group)).split(","))
    if backends.get("cpu", "pccl") != "pccl":
        return group
    timeout = None
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", timeout)
    made = dist.new_group(
        dist.get_process_group_ranks(group), timeout, backend="gloo", use_local_synchronization=True
    )
    assert isinstance(made, dist.ProcessGroup)
    return made


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
