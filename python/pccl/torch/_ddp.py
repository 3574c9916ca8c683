"""A communication hook for DistributedDataParallel: it averages gradients over the peers of a run, which come and
go."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from pccl import _memory, _staging
from pccl._communicator import Communicator
from pccl._enums import Attribute, DataType, QuantizationAlgorithm, ReduceOp
from pccl._errors import PCCLConnectionLostError, PCCLTooFewPeersError, argument_error
from pccl._operation import AsyncReduceHandle
from pccl._values import QuantizationOptions
from pccl.torch._c10d import GradBucket

# No `from __future__ import annotations` here: DDP checks the annotations of a hook, and they must be types.
Hook = Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]

# First tag of the gradients, each of which has its own. Lower tags are free for the program.
_FIRST_TAG = 1 << 62


def ddp_hook(
    communicator: Communicator | None, quantize: str | None = None, process_group: dist.ProcessGroup | None = None
) -> Hook:
    """For ``model.register_comm_hook(model, ddp_hook(communicator))``: gradients become the average over all peers.

    DDP itself spans the processes of one node (or only this process: gloo, world size 1). The nodes are the peers of a
    run. In a node of several processes, rank 0 of ``process_group`` (default: the default group) passes the
    communicator, and the others pass None. Gradients are first averaged within the node. Then rank 0 averages them over
    the run and sends the result to the others.

    When a peer dies, the remaining peers repeat what failed, and all get the same bytes. A peer that is alone keeps its
    own gradients, also if it is alone because it was removed from the run; then its next ``update_topology()`` fails.
    So the loop around the hook is that of any peer: update_topology (not in the first turn), sync_shared_state,
    forward, backward, step, push_revision.

    Each gradient is a reduction of its own, because DDP reorders its buckets after the first step: those of a newcomer
    would differ from the others'. The reductions run during the backward pass, which blocks at its end until all have
    an outcome. Register the hook with the model as state, or before the first backward pass.

    Gradients on a CUDA device are copied to the CPU bucket by bucket, while the backward pass goes on, and back at its
    end.

    :param communicator: connected before the first backward pass; only on rank 0 of a node, None on its other ranks.
    :param quantize: ``"int8"``: a quarter of the bytes, for float32 and float64 gradients, with rounding at each hop.
    :param process_group: the processes of this node; None: the default group.
    :raises PCCLArgumentError: another ``quantize``, or a communicator where None belongs, or the reverse. Later, from
        the backward pass: a gradient that is neither on the CPU nor on a CUDA device, or of a type that cannot be
        quantized.
    """
    if quantize not in (None, "int8"):
        raise argument_error("ddp_hook", f"quantize is {quantize!r}; use None or 'int8'")
    reducer = _Reducer(communicator, quantize == "int8", process_group)

    def pccl_hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        return reducer.reduce(state, bucket)

    return pccl_hook


class _Gradient:
    def __init__(self, tag: int, target: torch.Tensor) -> None:
        self.tag = tag
        self.target = target
        self.handle: AsyncReduceHandle | None = None


class _Bucket:
    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        self.gradients: list[_Gradient] = []
        self.local: Any = None  # the reduction within the node
        self.fetch: _staging.Fetch | None = None  # of a buffer on a GPU
        self.launched = False
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future()


class _Reducer:
    def __init__(
        self, communicator: Communicator | None, quantize: bool, process_group: dist.ProcessGroup | None
    ) -> None:
        self._communicator = communicator
        self._quantization = QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.MIN_MAX) if quantize else None
        self._group = process_group
        self._node_size = dist.get_world_size(process_group) if dist.is_initialized() else 1
        self._leads = self._node_size == 1 or dist.get_rank(process_group) == 0
        if self._leads != (communicator is not None):
            raise argument_error(
                "ddp_hook",
                "rank 0 of the node takes part in the run for all its processes; pass the communicator there"
                if self._leads
                else "only rank 0 of the node takes part in the run; pass None instead of the communicator on other "
                "ranks",
            )
        self._indices: dict[int, int] = {}
        self._buckets: list[_Bucket] = []
        self._failure: BaseException | None = None

    def reduce(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._buckets.clear()
            self._failure = None
        current = _Bucket(bucket.buffer())
        self._buckets.append(current)
        if self._node_size > 1:
            current.buffer.div_(self._node_size)
            current.local = dist.all_reduce(current.buffer, group=self._group, async_op=True)
        try:
            if self._leads:
                for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                    current.gradients.append(_Gradient(self._tag(state, parameter), gradient))
            self._launch_waiting(self._buckets[:-1])
            if current.local is None:
                self._begin(current)
            if bucket.is_last():
                self._launch_waiting(self._buckets)
                self._await_all()
        except BaseException as error:
            if self._node_size == 1:
                raise
            # Raised in _share(), after the last bucket: the other processes of the node wait for the outcome there.
            self._failure = self._failure or error
        if bucket.is_last():
            if self._node_size > 1:
                self._share()
            for one in self._buckets:
                one.future.set_result(one.buffer)
            self._buckets.clear()
        return current.future

    def _tag(self, state: Any, parameter: torch.Tensor) -> int:
        if not self._indices and isinstance(state, torch.nn.Module):
            module = state.module if isinstance(state, torch.nn.parallel.DistributedDataParallel) else state
            for one in module.parameters():
                self._indices[id(one)] = len(self._indices)
        # In the first step, all peers meet the gradients in the same order.
        return _FIRST_TAG + self._indices.setdefault(id(parameter), len(self._indices))

    # ---- one bucket after the other

    def _launch_waiting(self, buckets: list[_Bucket]) -> None:
        """Launches buckets that waited for their reduction within the node, or for their copy from a GPU."""
        for bucket in buckets:
            if bucket.local is not None:
                bucket.local.wait()
                bucket.local = None
                self._begin(bucket)
        for bucket in buckets:
            if bucket.fetch is not None and not bucket.launched:
                host = bucket.fetch.wait()
                begin = bucket.buffer.data_ptr()
                for gradient in bucket.gradients:
                    first = (gradient.target.data_ptr() - begin) // gradient.target.element_size()
                    gradient.target = host[first : first + gradient.target.numel()]
                self._launch(bucket)

    def _begin(self, bucket: _Bucket) -> None:
        """A bucket on a GPU is launched when the next one is there, so that its copy runs beside the backward pass."""
        if bucket.gradients and _memory.device_of(bucket.buffer) == "cuda":
            bucket.fetch = _staging.Fetch(bucket.buffer)
        else:
            self._launch(bucket)

    def _launch(self, bucket: _Bucket) -> None:
        bucket.launched = True
        if self._failure is not None:
            return
        for gradient in bucket.gradients:
            if self._quantization is not None and gradient.target.dtype not in (torch.float32, torch.float64):
                raise argument_error(
                    "ddp_hook",
                    f"quantize='int8' works on float32 and float64 gradients, and one is {gradient.target.dtype}; "
                    "leave quantize out, or keep the parameters in float32 (torch.autocast does)",
                )
            self._start(gradient)

    def _start(self, gradient: _Gradient) -> None:
        communicator = self._communicator
        assert communicator is not None
        gradient.handle = None
        if communicator.get_attribute(Attribute.LOCAL_WORLD_SIZE) < 2:
            return
        with contextlib.suppress(PCCLTooFewPeersError):
            gradient.handle = communicator.all_reduce_async(
                gradient.target,
                gradient.target,
                op=ReduceOp.AVG,
                tag=gradient.tag,
                quantization_options=self._quantization,
            )

    # ---- all of them

    def _await_all(self) -> None:
        for bucket in self._buckets:
            for gradient in bucket.gradients:
                self._await(gradient)
        for bucket in self._buckets:
            if bucket.fetch is not None:
                _staging.store(bucket.fetch.host, bucket.buffer)

    def _await(self, gradient: _Gradient) -> None:
        # After a loss the tensor holds its input again, and the other members also launch it again.
        while gradient.handle is not None:
            try:
                gradient.handle.result()
                return
            except PCCLConnectionLostError:
                self._start(gradient)
            except PCCLTooFewPeersError:
                return

    def _share(self) -> None:
        """Rank 0 sends the outcome to its node."""
        device = self._buckets[0].buffer.device
        failed = torch.tensor([self._failure is not None], dtype=torch.uint8, device=device)
        root = 0 if self._group is None else dist.get_global_rank(self._group, 0)
        dist.broadcast(failed, root, group=self._group)
        if self._failure is not None:
            raise self._failure
        if failed.item():
            raise RuntimeError("pccl: rank 0 of this node could not average the gradients; see its error")
        for bucket in self._buckets:
            dist.broadcast(bucket.buffer, root, group=self._group)
