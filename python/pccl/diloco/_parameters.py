"""The parameters of a model as one vector, in the order of ``named_parameters()``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pccl import _memory, _staging
from pccl._errors import argument_error
from pccl.diloco._pieces import Piece, is_sharded, local_part, piece_of

# Parts that wrappers add to a parameter's name: torch.compile, activation checkpoints.
_WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module"}


# The modules of each fragment, as objects or by name.
Parts = Sequence[Sequence[torch.nn.Module | str]]


def strided(blocks: Iterable[torch.nn.Module], fragments: int) -> list[list[torch.nn.Module]]:
    """Deals the blocks of a model out to fragments, for ``DiLoCo(fragments=strided(model.blocks, 4))``: the first
    fragment gets blocks 0, 4, 8 and so on (the strided pattern of arXiv 2501.18512). So each fragment has blocks from
    the whole depth of the model.

    :param blocks: in their order.
    :param fragments: how many, 1 to the number of blocks.
    :raises ValueError: more fragments than blocks, or none.
    """
    all_blocks = list(blocks)
    if not 1 <= fragments <= len(all_blocks):
        raise ValueError(f"{fragments} fragments of {len(all_blocks)} blocks; use 1 to {len(all_blocks)}")
    return [all_blocks[first::fragments] for first in range(fragments)]


class _Place(NamedTuple):
    name: str
    label: str  # of the part of the parameter that this process holds; "" if it is the whole
    parameter: torch.nn.Parameter
    start: int
    shape: torch.Size  # of that part
    dtype: torch.dtype


class Parameters:
    """The trainable parameters of a model. They stay in place, on their device and in their type. With ``parts``, those
    of each part lie together, one part after the other.

    Positions count elements over all parameters that required gradients when this object was made. Buffers (running
    statistics) are not among them. It keeps the parameter objects, not their memory: each access uses the memory that a
    parameter has at that time. Not thread-safe: the model must not be trained during a call.

    In a replica of several processes, a parameter may be a DTensor, of which this process holds a part, and the vector
    consists of the parts that this process owns (``owned``: their labels by name).
    """

    def __init__(
        self, model: torch.nn.Module, parts: Parts | None = None, owned: Mapping[str, str] | None = None
    ) -> None:
        self._model = model
        self._places: list[_Place] = []
        self._others: list[_Place] = []  # other processes of the replica own them
        self._are_sharded = False
        self.size = 0
        self.was_written = False  # by write(); callers set it back
        _refuse_flat(model)
        self._borders = [0]  # of the parts
        named = list(_trainable(model))
        part_of = _parts_of(named, parts or [])
        for name, parameter in sorted(named, key=lambda one: part_of[one[0]]):
            self._borders += [self.size] * (part_of[name] - len(self._borders) + 1)
            if is_sharded(parameter) and owned is None:
                raise ValueError(
                    f"parameter {name} is a DTensor, so all processes of the replica take part in the run: give each "
                    "of them pccl.torch.replica_communicator(address), and process_group=torch.distributed.group.WORLD"
                )
            if not parameter.is_floating_point():
                raise ValueError(
                    f"parameter {name} is {parameter.dtype}; only real floating-point parameters are averaged"
                )
            self._are_sharded |= is_sharded(parameter)
            local = local_part(parameter)
            label = "" if owned is None else owned.get(name)
            place = _Place(name, label or "", parameter, self.size, local.shape, parameter.dtype)
            if label is None:
                self._others.append(place)
                continue
            self._places.append(place)
            self.size += local.numel()
        if self.size == 0:
            raise ValueError("the model has no parameter that requires a gradient")

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Begin and end of each part."""
        return list(zip(self._borders, [*self._borders[1:], self.size], strict=True))

    def __str__(self) -> str:
        """What all peers that average must have in common: number of tensors and elements, and a digest of names,
        shapes, types and parts."""
        described = [
            f"{place.name} {tuple(place.shape)} {place.dtype}" + (f" {place.label}" if place.label else "")
            for place in self._places
        ]
        described += [str(self._borders)] if len(self._borders) > 1 else []
        digest = hashlib.blake2b("\n".join(described).encode(), digest_size=8).hexdigest()
        return f"{len(self._places)} tensors of {self.size} elements, {digest}"

    def check(self, function: str) -> None:
        """Raises PCCLArgumentError if the model no longer trains what is averaged.

        A parameter may have moved to other memory or to another device. It must be the same object, because the inner
        optimizer steps that object, and it must have its former shape and type.
        """
        self._reshard()
        trainable = dict(_trainable(self._model))
        for place in self._places + self._others:
            now = trainable.pop(place.name, None)
            if now is None:
                raise argument_error(
                    function,
                    f"parameter {place.name} was frozen or removed since DiLoCo was made. The peers would average what "
                    "this one no longer trains; make optimizer and DiLoCo anew, on all peers",
                )
            if now is not place.parameter:
                raise argument_error(
                    function,
                    f"parameter {place.name} was replaced by another object (load_state_dict(assign=True)?) since "
                    "DiLoCo was made, and the optimizer steps the former one; replace parameters before, and then "
                    "make optimizer and DiLoCo",
                )
            local = local_part(now)
            if local.shape != place.shape or now.dtype != place.dtype:
                raise argument_error(
                    function,
                    f"parameter {place.name} is {now.dtype} {tuple(local.shape)} and was {place.dtype} "
                    f"{tuple(place.shape)} when DiLoCo was made; convert the model before, and then make DiLoCo",
                )
            end = (local.storage_offset() + local.numel()) * local.element_size()
            if local.is_meta or (local.is_contiguous() and local.numel() and end > local.untyped_storage().nbytes()):
                raise argument_error(
                    function, f"parameter {place.name} has no memory (meta device, or freed); materialize it first"
                )
        if trainable:
            raise argument_error(
                function,
                f"parameter {next(iter(trainable))} requires a gradient and did not when DiLoCo was made, so that it "
                "would never be averaged; unfreeze it before, and then make DiLoCo, on all peers",
            )

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[Tensor, slice, slice]]:
        """Yields each parameter that overlaps ``[begin, end)``, the range within it, and that within the interval."""
        for place in self._places:
            low, high = max(begin, place.start), min(end, place.start + place.shape.numel())
            if low < high:
                inside, outside = slice(low - place.start, high - place.start), slice(low - begin, high - begin)
                yield local_part(place.parameter), inside, outside

    def all(self) -> list[Tensor]:
        return [place.parameter.detach() for place in self._places]

    def are_on_gpu(self) -> bool:
        """Whether page-locked memory on the CPU makes copies from and to the parameters faster."""
        return any(_is_on_gpu(place.parameter) for place in self._places)

    def _reshard(self) -> None:
        """FSDP2 may leave the root gathered after a forward pass without a backward one (an evaluation). Then its
        gathered copy, and not the part of this process, is what the next forward pass reads."""
        if self._are_sharded:
            for module in self._model.modules():
                reshard = getattr(module, "reshard", None)
                if callable(reshard) and hasattr(module, "unshard"):
                    reshard()

    def read(self, out: Tensor) -> None:
        """Copies all parameters to ``out`` (float32, on the CPU)."""
        self._reshard()
        for parameter, inside, outside in self._pieces(0, self.size):
            out[outside].copy_(parameter.reshape(-1)[inside])

    def write(self, source: Tensor, begin: int, keep: float = 0.0) -> None:
        """Sets the elements from ``begin`` on to ``keep * themselves + (1 - keep) * source``."""
        self.was_written = True
        self._reshard()
        for parameter, inside, outside in self._pieces(begin, begin + source.numel()):
            # If a parameter is not contiguous, this is a copy and has to be written back.
            flat = parameter.reshape(-1)
            target = flat[inside]
            if keep == 0.0:
                _copy(target, source[outside])
            else:
                target.lerp_(source[outside].to(target), 1.0 - keep)
            if not parameter.is_contiguous():
                parameter.copy_(flat.view(parameter.shape))
        self._wait_for_gpus()

    def _wait_for_gpus(self) -> None:
        """Copies from and to page-locked memory are not done when the call for them returns."""
        for device in {place.parameter.device for place in self._places if _is_on_gpu(place.parameter)}:
            _staging.streams.current(device).synchronize()

    def capture(self, begin: int, out: Tensor) -> None:
        """Copies the elements from ``begin`` on to ``out``, for :meth:`subtract_captured`."""
        self._reshard()
        for parameter, inside, outside in self._pieces(begin, begin + out.numel()):
            _copy(out[outside], parameter.reshape(-1)[inside])
        self._wait_for_gpus()

    def subtract_captured(self, outer: Tensor, begin: int, out: Tensor) -> None:
        """As :meth:`subtract_from`, for parameters that :meth:`capture` has copied to ``out``. The model may be trained
        meanwhile."""
        for parameter, _, outside in self._pieces(begin, begin + outer.numel()):
            _subtract(outer[outside], parameter.dtype, out[outside], out[outside])

    def subtract_from(self, outer: Tensor, begin: int, out: Tensor) -> None:
        """Computes ``out = outer - parameters`` for the elements from ``begin`` on."""
        for parameter, inside, outside in self._pieces(begin, begin + outer.numel()):
            if _is_on_gpu(parameter):
                _copy(out[outside], parameter.reshape(-1)[inside])
        self._wait_for_gpus()
        for parameter, inside, outside in self._pieces(begin, begin + outer.numel()):
            difference = out[outside]
            local = difference if _is_on_gpu(parameter) else parameter.reshape(-1)[inside].to("cpu", torch.float32)
            _subtract(outer[outside], parameter.dtype, local, difference)


def _is_on_gpu(tensor: Tensor) -> bool:
    return _memory.device_of(tensor) == "cuda"


def _copy(target: Tensor, source: Tensor) -> None:
    """Begins the copy. Between page-locked memory and a GPU it is not done when this returns."""
    device = next((tensor.device for tensor in (source, target) if _is_on_gpu(tensor)), None)
    if device is None:
        target.copy_(source)
    else:
        _staging.streams.copy(_staging.streams.current(device), target, source)


def _subtract(base: Tensor, dtype: torch.dtype, local: Tensor, out: Tensor) -> None:
    """Parameters of fewer bits began the round at the rounded outer value. Without the same rounding here, the
    pseudo-gradient would contain the rounding error."""
    if dtype != torch.float32:
        base = base.to(dtype).to(torch.float32)
    torch.sub(base, local, out=out)


def pieces_of(model: torch.nn.Module, parts: Parts | None) -> list[Piece]:
    """What this process holds of the trainable parameters. ValueError for a model that cannot be averaged."""
    _refuse_flat(model)
    named = list(_trainable(model))
    part_of = _parts_of(named, parts or [])
    return [piece_of(name, parameter, part_of[name]) for name, parameter in named]


def tensors_of(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trainable parameters by name, as objects."""
    return dict(_trainable(model))


def clean_moments(optimizer: torch.optim.Optimizer) -> None:
    """Sets values of the optimizer's state that are not finite to 0. They would spoil the next step."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.is_floating_point():
                local_part(value).nan_to_num_(0.0, 0.0, 0.0)


def _trainable(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yields names and parameters. Names are those without DDP, torch.compile and activation checkpoints."""
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), torch.nn.Module):
            model = inner
        else:
            break
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield ".".join(part for part in name.split(".") if part not in _WRAPPERS), parameter


def _parts_of(named: list[tuple[str, torch.nn.Parameter]], parts: Parts) -> dict[str, int]:
    """The part of each parameter. Those that are in no part go with the first one."""
    found: dict[str, int] = {}
    for index, modules in enumerate(parts):
        mine = set()
        for module in modules:
            if isinstance(module, str):
                inside = {name for name, _ in named if name == module or name.startswith(module + ".")}
            else:
                own = {id(parameter) for parameter in module.parameters()}
                inside = {name for name, parameter in named if id(parameter) in own}
            if not inside:
                what = repr(module) if isinstance(module, str) else f"a {type(module).__name__}"
                raise ValueError(f"fragments: {what} is no module of the model with trainable parameters")
            mine |= inside
        twice = sorted(mine & found.keys())
        if twice or not mine:
            what = f"parameter {twice[0]} is in two of them" if twice else f"the one at {index} is empty"
            raise ValueError(f"fragments: {what}")
        found |= dict.fromkeys(mine, index)
    return {name: found.get(name, 0) for name, _ in named}


def _refuse_flat(model: torch.nn.Module) -> None:
    # A model can be of FSDP1 only if FSDP1 was imported. Importing it here would take long.
    fsdp = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    flat = sys.modules.get("torch.distributed.fsdp._flat_param")
    if fsdp is not None and any(isinstance(one, fsdp.FullyShardedDataParallel) for one in model.modules()) or (
        flat is not None and any(isinstance(one, flat.FlatParameter) for one in model.parameters())
    ):
        raise ValueError(
            "the model is in FullyShardedDataParallel (FSDP1), which keeps flat parameters whose layout depends on the "
            "number of ranks; use fully_shard (FSDP2)"
        )
