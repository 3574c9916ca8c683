"""A communication hook for DistributedDataParallel: it averages gradients over the peers of a run, which come and
go."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from pccl import _memory, _staging
from pccl._communicator import Communicator
from pccl._enums import DataType, QuantizationAlgorithm, ReduceOp
from pccl._errors import argument_error
from pccl._repeated import RepeatedReduction, leave_if_interrupted
from pccl._values import QuantizationOptions
from pccl.torch._c10d import GradBucket

# No `from __future__ import annotations` here: DDP checks the annotations of a hook, and they must be types.
Hook = Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]

# First tag of the gradients. Lower tags are free for the program.
_FIRST_TAG = 1 << 62

# Gradients are reduced together until they have the first number of bytes. They have at most the second one together,
# apart from a single gradient that is larger. No more than the second number of bytes of other types comes between
# them, so that they do not wait for the end of the backward pass.
_PARCEL_BYTES_MIN = 16 << 20
_PARCEL_BYTES_MAX = 64 << 20
# Elements that share a scale when they are quantized. Each gradient then begins at a multiple of this.
_BLOCK = 512


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
    So the loop around the hook is that of any peer, which :class:`pccl.Run` makes.

    DDP reorders its buckets after the first step, so those of a newcomer would differ from the others'. Therefore the
    hook makes buckets of its own, of 16 to 64 MiB, from the order of the parameters alone. Each is one reduction, which
    is launched when the last of its gradients is there. The reductions run during the backward pass, which blocks at
    its end until all have an outcome. Register the hook with the model as state, or before the first backward pass; without
    the model, the reductions of the first backward pass begin at its end.

    If a signal handler raises during the backward pass (Ctrl-C), the peer leaves the run, and nothing uses the gradients
    any more. ``connect()`` joins again.

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


class _Parcel:
    """Gradients that are reduced together. All peers have the same parcels, and the same tags for them."""

    def __init__(self, tag: int, parameters: list[torch.Tensor], align: int) -> None:
        self.tag = tag
        self.parameters = parameters
        self.gradients: dict[int, torch.Tensor] = {}  # of this step, by id of the parameter
        self.reduction: RepeatedReduction | None = None  # once it is launched
        self._align = align  # each gradient begins at a multiple of this
        self._flat: torch.Tensor | None = None  # memory for several gradients
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # gradients, and their places in it

    def forget(self) -> None:
        """What belongs to one step."""
        self.gradients.clear()
        self._copies.clear()
        self.reduction = None

    def pack(self) -> torch.Tensor:
        """Returns what is to be reduced: the memory of the gradients, if they lie there as all peers need them."""
        present = [self.gradients[id(one)].view(-1) for one in self.parameters if id(one) in self.gradients]
        begins = [0]
        for one in present:
            begins.append(begins[-1] + -(-one.numel() // self._align) * self._align)
        first = present[0]
        if all(
            one.data_ptr() == first.data_ptr() + begin * one.element_size()
            and one.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            for one, begin in zip(present, begins[:-1], strict=True)
        ):
            # Views of one bucket, one behind the other.
            return first.as_strided((begins[-2] + present[-1].numel(),), (1,))
        size = begins[-2] + present[-1].numel()
        if self._flat is None or self._flat.numel() != size or self._flat.dtype != first.dtype:
            self._flat = torch.zeros(size, dtype=first.dtype, device="cpu")
        self._copies = [
            (one, self._flat[begin : begin + one.numel()]) for one, begin in zip(present, begins[:-1], strict=True)
        ]
        for gradient, place in self._copies:
            place.copy_(gradient)
        return self._flat

    def unpack(self) -> None:
        for gradient, place in self._copies:
            gradient.copy_(place)


def _parcels_of(parameters: list[torch.Tensor], align: int) -> list[_Parcel]:
    """Parcels of parameters, in the order in which a backward pass meets them."""
    groups: list[list[int]] = []
    # By type: the open group, its bytes, and the bytes of other types since it was opened.
    is_open: dict[torch.dtype, tuple[list[int], int, int]] = {}
    for index, one in enumerate(parameters):
        size = one.numel() * one.element_size()
        group, own, between = is_open.pop(one.dtype, ([], 0, 0))
        if not group or own + size > _PARCEL_BYTES_MAX or between > _PARCEL_BYTES_MAX:
            group, own, between = [], 0, 0
            groups.append(group)
        group.append(index)
        for kind, (other, bytes_, passed) in is_open.items():
            is_open[kind] = other, bytes_, passed + size
        if own + size < _PARCEL_BYTES_MIN:
            is_open[one.dtype] = group, own + size, between
    return [_Parcel(_FIRST_TAG + group[0], [parameters[index] for index in group], align) for group in groups]


class _Bucket:
    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        self.gradients: list[tuple[torch.Tensor, torch.Tensor]] = []  # parameter and gradient
        self.local: Any = None  # the reduction within the node
        self.fetch: _staging.Fetch | None = None  # of a buffer on a GPU
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
        self._parcels: list[_Parcel] = []
        self._parcel_of: dict[int, _Parcel] = {}  # by id of the parameter
        self._buckets: list[_Bucket] = []
        self._waiting: list[_Bucket] = []  # for their reduction within the node, or for their copy from a GPU
        self._failure: BaseException | None = None

    def reduce(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._buckets.clear()
            self._waiting.clear()
            self._failure = None
            self._forget_parcels()
            if not self._parcels and isinstance(state, torch.nn.Module):
                parameters = [one for one in state.parameters() if one.requires_grad]
                self._make_parcels(parameters[::-1])
        current = _Bucket(bucket.buffer())
        self._buckets.append(current)
        if self._node_size > 1:
            current.buffer.div_(self._node_size)
            current.local = dist.all_reduce(current.buffer, group=self._group, async_op=True)
        try:
            if self._leads:
                current.gradients = list(zip(bucket.parameters(), bucket.gradients(), strict=True))
            self._launch_waiting()
            if current.local is None:
                self._begin(current)
            if current.local is not None or current.fetch is not None:
                self._waiting.append(current)
            if bucket.is_last():
                self._launch_waiting()
                if self._leads:
                    self._launch_rest()
                    self._await_all()
        except BaseException as error:
            self._give_up(error)
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
            self._forget_parcels()
        return current.future

    def _give_up(self, error: BaseException) -> None:
        """Nothing uses the gradients afterwards."""
        if self._communicator is not None:
            leave_if_interrupted(self._communicator, error)
        for parcel in self._parcels:
            if parcel.reduction is not None:
                parcel.reduction.forget()

    def _forget_parcels(self) -> None:
        for parcel in self._parcels:
            parcel.forget()

    def _make_parcels(self, parameters: list[torch.Tensor]) -> None:
        self._parcels = _parcels_of(parameters, 1 if self._quantization is None else _BLOCK)
        self._parcel_of = {id(one): parcel for parcel in self._parcels for one in parcel.parameters}

    # ---- one bucket after the other

    def _launch_waiting(self) -> None:
        """Launches what waited when the next bucket is there, and at the end."""
        for bucket in self._waiting:
            if bucket.local is not None:
                bucket.local.wait()
                bucket.local = None
                self._begin(bucket)
        for bucket in self._waiting:
            if bucket.fetch is not None:
                host = bucket.fetch.wait()
                begin = bucket.buffer.data_ptr()
                for place, (parameter, gradient) in enumerate(bucket.gradients):
                    first = (gradient.data_ptr() - begin) // gradient.element_size()
                    bucket.gradients[place] = parameter, host[first : first + gradient.numel()]
                self._launch(bucket)
        self._waiting.clear()

    def _begin(self, bucket: _Bucket) -> None:
        """A bucket on a GPU is launched when the next one is there, so that its copy runs beside the backward pass."""
        if bucket.gradients and _memory.device_of(bucket.buffer) == "cuda":
            bucket.fetch = _staging.Fetch(bucket.buffer)
        else:
            self._launch(bucket)

    def _launch(self, bucket: _Bucket) -> None:
        """The gradients of the bucket are there, on the CPU."""
        if self._failure is not None:
            return
        for parameter, gradient in bucket.gradients:
            if self._quantization is not None and gradient.dtype not in (torch.float32, torch.float64):
                raise argument_error(
                    "ddp_hook",
                    f"quantize='int8' works on float32 and float64 gradients, and one is {gradient.dtype}; "
                    "leave quantize out, or keep the parameters in float32 (torch.autocast does)",
                )
            parcel = self._parcel_of.get(id(parameter))
            if parcel is not None:
                parcel.gradients[id(parameter)] = gradient
                if len(parcel.gradients) == len(parcel.parameters):
                    self._start(parcel)

    def _launch_rest(self) -> None:
        """At the end of a backward pass. All peers meet the gradients of the first one in the same order."""
        met = [one for bucket in self._buckets for one in bucket.gradients]
        if not self._parcels:
            self._make_parcels([parameter for parameter, _ in met])
            for parameter, gradient in met:
                self._parcel_of[id(parameter)].gradients[id(parameter)] = gradient
        unknown = [parameter for parameter, _ in met if id(parameter) not in self._parcel_of]
        if unknown:
            raise argument_error(
                "ddp_hook",
                f"a gradient of shape {tuple(unknown[0].shape)} is of a parameter that required none in the first "
                "backward pass; register the hook again, on all peers",
            )
        for parcel in self._parcels:
            if parcel.gradients and parcel.reduction is None:
                self._start(parcel)

    def _start(self, parcel: _Parcel) -> None:
        assert self._communicator is not None
        memory = parcel.pack()
        parcel.reduction = RepeatedReduction(
            self._communicator,
            memory,
            memory,
            op=ReduceOp.AVG,
            tag=parcel.tag,
            quantization_options=self._quantization,
        )

    # ---- all of them

    def _await_all(self) -> None:
        for parcel in self._parcels:
            if parcel.reduction is not None:
                parcel.reduction.finish()
                parcel.unpack()
        for bucket in self._buckets:
            if bucket.fetch is not None:
                _staging.store(bucket.fetch.host, bucket.buffer)

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
