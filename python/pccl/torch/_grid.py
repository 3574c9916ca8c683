"""Replicas of a model, each sharded over processes (FSDP2): a grid of which rows are replicas and columns shards."""

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

# What the processes of a replica tell each other; the worst counts.
_FINE, _OUT, _REFUSED = 0, 1, 2


class ReplicaGrid:
    """This process's place in the grid. ::

        grid = ReplicaGrid("10.0.0.1:48148", mesh)        # the mesh of fully_shard: the processes of this replica
        state = pccl.torch.shared_state(model, more={"step": step})
        while step < steps:
            grid.begin(state)                             # newcomers enter, all replicas hold the same
            ...                                           # forward and backward within the replica
            if grid.average_([local_tensor(p.grad) for p in model.parameters()]):
                optimizer.step()
                step += 1

    Process k of each replica holds shard k and joins peer group k. A replica is whole or not there: nobody computes
    until every shard has as many members, a step is taken by all processes of a replica or by none, and when one of
    them is thrown out of the run, all of them leave and enter again together, as newcomers who receive what the others
    hold. When one of them dies, the call of the others raises, after they left the run: end them, and start the replica
    anew.

    ``begin`` and ``average_`` are collectives of the whole grid: all processes call them in the same order. Within the
    replica, they use ``mesh`` for a few small messages; its time-out decides how long a process waits for one of its
    own replica that hangs. A context manager: close() at the end.

    :param address: the master's, as of :class:`pccl.Communicator`. Nothing is connected before the first ``begin``.
    :param mesh: the processes of this replica: a DeviceMesh of one dimension, or a process group. Where its backend has
        no CPU tensors (NCCL), the constructor makes a gloo group of the same processes for the messages, with the
        time-out of the mesh: then it is a collective of the replica.
    :param mates_timeout_s: seconds that a process which was admitted to the run waits for the other processes of its
        replica to be admitted, too. After that it leaves, so that the other replicas do not wait for it.
    :param settings: as of :class:`pccl.Communicator`, but for the peer group, which is the shard.
    :raises PCCLArgumentError: a mesh of several dimensions, or an address or a setting that cannot be used.
    """

    shards: int
    """Processes of a replica."""
    shard: int
    """Which of them this is; its peer group."""
    communicator: Communicator
    """That of this process; its counters may be read, and nothing else be called on it."""

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
        # Whether all processes of this replica are members, and until when they have to be.
        self._met = False
        self._meets_until = 0.0
        self._replicas = 0
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self._turn: tuple[dist.Work | None, torch.Tensor] | None = None

    @property
    def replicas(self) -> int:
        """As many as held this shard at the last ``begin``: equal in all processes of this replica, which may branch on
        it; 0 when it is not in the run. Never blocks."""
        return self._replicas if self._member else 0

    def begin(self, state: SharedState) -> None:
        """Blocks until the grid is full, which lets newcomers in, and synchronizes the state within each shard's group.

        :param state: of this process: its shards, as :func:`shared_state` has them. The grid counts its revisions.
        :raises PCCLError: the state cannot be synchronized, in several attempts or for a reason that does not go away;
            this process has left the run.
        :raises torch.distributed.DistBackendError: another process of this replica is gone; this one has left the run.
        """
        failures = 0
        try:
            # A replica that lost a process leaves before it votes: its rest beside a newcomer's part would look like
            # as many of each shard.
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
        called it, and all processes of this one know how it went.

        :param tensors: contiguous, on the CPU, as many and as large on the same shard of every replica;
            :func:`local_tensor` makes them of gradients.
        :param quantize: ``"int8"``: a quarter of the bytes, for float32 and float64.
        :returns: False: this replica takes no step, and what is in the tensors is of no use; the next ``begin`` brings
            it level with the others.
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
        """Every member of every group sees the same numbers after the same vote, and so all go on after the same
        one."""
        while True:
            # Who was just admitted stands where the others stand after their vote.
            if not self._member:
                self._join()
                # Each process sends its first message when it is a member, so that its arrival says that all are.
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
        """Shard after shard: of each replica that is on its way those before a shard are in when that shard is. So as many
        of each shard are as many whole replicas, and not parts of several, whose processes would wait for mates that wait
        to be admitted by them."""
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
        # Revisions count synchronizations, not steps, of which this replica may miss one.
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
        # Alone with this shard, what we have is the average; unless it is we who are out.
        return None, _OUT if self._is_out() else _FINE

    def _is_out(self) -> bool:
        """A lost communicator sees one member, itself; of a replica of several processes a member sees more. Where
        there is one process only, the next vote tells."""
        return self.shards > 1 and self.communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1

    def _members_of_group(self) -> int:
        return self.communicator.get_attribute(Attribute.LOCAL_WORLD_SIZE)

    def _leave(self) -> None:
        """As newcomers, our content counts for nothing against that of those who stayed."""
        self._member = False
        self.communicator.abort()

    # ---- within the replica

    def _await_turn(self) -> None:
        if self.shard == 0:
            return
        joined = torch.zeros(1, dtype=torch.int32)
        before = dist.get_global_rank(self._group, self.shard - 1)
        self._within_replica(lambda: dist.recv(joined, before, group=self._group))
        if not joined.item():
            raise RuntimeError("pccl: another process of this replica could not join the run; see its error")

    def _pass_turn(self, joined: bool) -> None:
        """Returns at once."""
        if self.shard + 1 == self.shards:
            return
        message = torch.tensor([int(joined)], dtype=torch.int32)
        after = dist.get_global_rank(self._group, self.shard + 1)

        def send() -> None:
            self._turn = dist.isend(message, after, group=self._group), message  # kept while it is sent

        self._within_replica(send)

    # Every message is an answer, whether its sender still waits for a full grid, and how many replicas it sees. Who
    # waits sends one after the other, and only looks whether they have arrived: who still joins cannot answer before it
    # is in, and votes need us meanwhile.

    def _look_for_mates(self) -> int:
        """Fails when another process of this replica is dead. The worst that one has answered which waits no more."""
        worst = _FINE
        if self._sent is not None and self._sent[0].is_completed():
            worst, _, _ = self._receive()
        if self._sent is None:
            self._send(_FINE, waits=True)
        return worst

    def _agree(self, answer: int) -> tuple[int, int]:
        """The worst answer, and the fewest replicas that one sees: around a death the groups of the shards differ in
        size. Where it met a message of one that still waited, all give theirs again."""
        if self._sent is not None:
            self._receive()
        while True:
            self._send(answer, waits=False)
            worst, waits, replicas = self._receive()
            if not waits:
                return worst, replicas

    def _send(self, answer: int, waits: bool) -> None:
        message = torch.tensor([answer, int(waits), -self._members_of_group()], dtype=torch.int32)

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
        """Not longer than to the limit. In a full grid they are members, or never will be: shards of equal size may be
        parts of several replicas after a death. Then the others would wait for us, and our mates for them."""
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
    """The group itself if its backend has messages of CPU tensors, else one of gloo with the same processes."""
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
