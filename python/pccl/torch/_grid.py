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

    Process k of each replica holds shard k and joins peer group k. A replica is whole or not there: nobody computes until
    every shard has as many members, a step is taken by all processes of a replica or by none, and when one of them is
    thrown out of the run, all of them leave and enter again together, as newcomers who receive what the others hold. When
    one of them dies, the call of the others raises, after they left the run: end them, and start the replica anew.

    ``begin`` and ``average_`` are collectives of the whole grid: all processes call them in the same order. Within the
    replica, they use ``mesh`` (a DeviceMesh of one dimension, or a process group) for one small message each; its time-out
    decides how long a process waits for one of its own replica that hangs.
    """

    def __init__(self, address: str, mesh: DeviceMesh | dist.ProcessGroup, **settings: Any) -> None:
        if isinstance(mesh, DeviceMesh):
            if mesh.ndim != 1:
                raise argument_error(
                    "ReplicaGrid", f"the mesh has {mesh.ndim} dimensions; pass that of the shards: mesh['shard']"
                )
            self._group = mesh.get_group()
        else:
            self._group = mesh
        self.shards: int = dist.get_world_size(self._group)
        self.shard: int = dist.get_rank(self._group)
        self.communicator = Communicator(address, peer_group=self.shard, **settings)
        self._member = False

    @property
    def replicas(self) -> int:
        """As many as hold this shard; 0 when we are not in the run."""
        return self.communicator.get_attribute(Attribute.LOCAL_WORLD_SIZE) if self._member else 0

    def begin(self, state: SharedState) -> None:
        """Waits for a full grid, and synchronizes the state within each shard's group. The grid counts its revisions."""
        failures = 0
        while True:
            try:
                self._wait_until_full()
                cause, answer = self._synchronize(state)
                worst = self._agree(answer)
            except BaseException:
                self.close()
                raise
            if worst == _FINE:
                return
            failures += 1
            if failures == _FAILURES_IN_A_ROW or worst == _REFUSED:
                self.close()
                raise cause if cause is not None else RuntimeError(
                    "pccl: another process of this replica could not synchronize its state; see its error"
                )
            self._leave()

    def average_(self, tensors: Sequence[torch.Tensor], quantize: str | None = None) -> bool:
        """Averages the tensors in place over the replicas. False: this replica takes no step, and what is in the tensors
        is of no use; the next ``begin`` brings it level with the others."""
        if quantize not in (None, "int8"):
            raise argument_error("ReplicaGrid.average_", f"quantize is {quantize!r}; use None or 'int8'")
        if not self._member:
            raise argument_error("ReplicaGrid.average_", "begin() comes before the first average_()")
        descriptors = [_descriptor(tensor, tag, quantize) for tag, tensor in enumerate(tensors)]
        try:
            cause, answer = self._reduce(descriptors)
            worst = self._agree(answer)
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
        """Leaves the run."""
        self._member = False
        self.communicator.close()

    def __enter__(self) -> ReplicaGrid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- between replicas

    def _wait_until_full(self) -> None:
        """Every member of every group sees the same numbers after the same vote, and so all go on after the same one."""
        # Sent once and only looked at while we wait: who of our replica still joins cannot answer before that, and votes
        # need us meanwhile. When one of them is dead, this fails.
        present = dist.all_reduce(torch.zeros(1), group=self._group, async_op=True)
        assert present is not None
        while True:
            if present.is_completed():
                self._within_replica(present.wait)
            # Who was just admitted stands where the others stand after their vote.
            if not self._member:
                self.communicator.connect()
                self._member = True
            else:
                try:
                    self.communicator.update_topology()
                except PCCLTopologyError:
                    self._member = False
                    continue
            if self._is_full():
                break
            time.sleep(_POLL_S)
        self._within_replica(present.wait)

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
        if self.replicas > 1:
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
        """A lost communicator sees one member, itself; of a replica of several processes a member sees more. Where there is
        one process only, the next vote tells."""
        return self.shards > 1 and self.communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) == 1

    def _leave(self) -> None:
        """As newcomers, our content counts for nothing against that of those who stayed."""
        self._member = False
        self.communicator.abort()

    # ---- within the replica

    def _agree(self, answer: int) -> int:
        worst = torch.tensor([answer], dtype=torch.int32)
        self._within_replica(lambda: dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=self._group))
        return int(worst.item())

    def _within_replica(self, message: Callable[[], object]) -> None:
        try:
            message()
        except RuntimeError as error:
            raise dist.DistBackendError(
                "pccl: another process of this replica is gone or does not answer; this one has left the run. A replica is "
                f"whole or not there: end this process, too, and start the replica again ({error})"
            ) from error


def _descriptor(tensor: torch.Tensor, tag: int, quantize: str | None) -> ReduceOpDescriptor:
    local = local_tensor(tensor)
    memory = memory_of(local, f"tensor {tag}", "ReplicaGrid.average_", written=True)
    options = None
    if quantize is not None:
        if memory.data_type not in (DataType.FLOAT, DataType.DOUBLE):
            raise argument_error(
                "ReplicaGrid.average_", f"quantize='int8' works on float32 and float64, and tensor {tag} is {local.dtype}"
            )
        options = QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.MIN_MAX)
    descriptor = ReduceDescriptor(
        local.numel(), ReduceOp.AVG, _FIRST_TAG + tag, ReduceOperandDescriptor(memory.data_type), options
    )
    return ReduceOpDescriptor.from_torch(local, local, descriptor)
