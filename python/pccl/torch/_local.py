"""The part of a model and its optimizer in this process, as the library takes it: plain tensors, without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pccl._errors import argument_error
from pccl._values import SharedState, TensorInfo

# Optimizers whose state begins with zeros. The initial state of others is not known here.
_BEGIN_WITH_ZEROS = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.RAdam,
)


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a plain tensor on the memory of a tensor, of a parameter, or of the part of a DTensor that this process
    holds. It has no gradient. Blocks only for a part that a functional collective is still filling.

    :param tensor: on any device.
    :raises PCCLArgumentError: a partial DTensor, whose sum was not made yet, or a part that is not contiguous.
    """
    if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):
        if any(placement.is_partial() for placement in tensor.placements):
            raise argument_error(
                "local_tensor",
                "the DTensor is partial, its value a sum that nobody has made; use tensor.redistribute()",
            )
        with torch.no_grad():
            tensor = tensor.to_local()
        if hasattr(tensor, "elem") and hasattr(tensor, "wait"):
            tensor = tensor.wait()  # a functional collective may still be filling it
    local = tensor.detach()
    if not local.is_contiguous():
        raise argument_error(
            "local_tensor",
            "the part of this process is not contiguous, so that it cannot be reduced where it lies; shard along the "
            "first dimension, or copy: tensor.to_local().contiguous(), and back",
        )
    return local


def local_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers of a module by name; of sharded ones, the part of this process. Writing to them
    changes the module. Waits for no other peer.

    :param module: plain, or in DDP, FSDP2 or torch.compile; names are those without these wrappers.
    :raises PCCLArgumentError: as for :func:`local_tensor`.
    """
    return {name: local_tensor(tensor) for name, tensor in _named_tensors(module)}


def shared_state(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    more: Mapping[str, torch.Tensor] | None = None,
) -> SharedState:
    """Makes a shared state of all parameters and buffers, the optimizer's tensors and ``more``. Tensors on the CPU are
    used in place. Each synchronization copies those on a CUDA device to the CPU, and back if bytes were received. This
    function waits for no other peer.

    An optimizer that has made no step yet has no state. It gets its initial state of zeros, so that newcomers have
    memory to receive into; parameters and gradients stay as they are, and hooks of steps are not called. If a tensor
    gets other memory later (``model.to()``, ``optimizer.load_state_dict()``), make a new shared state; synchronizing
    the old one raises an error that says so.

    :param module: as for :func:`local_tensors`. It keeps its tensors.
    :param optimizer: SGD, Adam, AdamW, RMSprop, Adadelta, Adamax, RAdam; others after their first step, as SGD with
        dampening.
    :param more: further tensors by name, for example the step: ``torch.zeros((), dtype=torch.int64)``, changed in
        place.
    :raises PCCLArgumentError: a tensor cannot be used in place, or an optimizer has no state yet.
    """
    infos = [_LocalTensorInfo.of(tensor, "model." + name) for name, tensor in _named_tensors(module)]
    if optimizer is not None:
        infos += [_LocalTensorInfo.of(t, "optimizer." + name) for name, t in _optimizer_tensors(module, optimizer)]
    infos += [_LocalTensorInfo.of(tensor, "more." + name) for name, tensor in (more or {}).items()]
    return SharedState(infos)


class _LocalTensorInfo(TensorInfo):
    """Also keeps the tensor of the program, which may get other memory than that of the local part made of it here."""

    _source: torch.Tensor

    @classmethod
    def of(cls, source: torch.Tensor, name: str) -> TensorInfo:
        info = cls.from_torch(_as_supported(source), name)
        assert isinstance(info, cls)
        info._source = source
        return info

    def _check_unmoved(self, function: str) -> None:
        self._array = _as_supported(self._source)
        super()._check_unmoved(function)


def _as_supported(tensor: torch.Tensor) -> torch.Tensor:
    """The local part. Types that the library does not have become others of the same bytes."""
    local = local_tensor(tensor)
    if local.is_complex():
        return torch.view_as_real(local)
    if local.dtype is torch.bool or (local.is_floating_point() and local.element_size() == 1):
        return local.view(torch.uint8)
    return local


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module without DDP and torch.compile around it, so that names do not depend on them."""
    while True:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), torch.nn.Module):
            module = inner
        else:
            return module


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    module = _unwrapped(module)
    yield from module.named_parameters()
    yield from module.named_buffers()


def _optimizer_tensors(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
    names = {parameter: name for name, parameter in _unwrapped(module).named_parameters()}
    trained = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    if any(parameter not in names for parameter in trained):
        raise argument_error(
            "shared_state",
            "the optimizer holds a parameter that the module does not have; pass the module it was made for",
        )
    without = [parameter for parameter in trained if parameter not in optimizer.state]
    if without:
        _begin(optimizer, without)
    found = []
    for parameter in trained:
        state: dict[str, Any] = optimizer.state.get(parameter, {})
        for key, value in sorted(state.items()):
            if isinstance(value, torch.Tensor):
                found.append((f"{names[parameter]}.{key}", value))
    return found


def _begin(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """Gives these parameters the state of zeros with which their training begins. The optimizer makes it, in a step for
    tensors that stand for the parameters: so neither these nor their gradients change."""
    if not isinstance(optimizer, _BEGIN_WITH_ZEROS):
        raise argument_error(
            "shared_state",
            f"a {type(optimizer).__name__} that has made no step yet does not tell its state; let every peer make a "
            "first step before, or list its tensors yourself: SharedState([TensorInfo.from_torch(...), ...])",
        )
    without = set(parameters)
    groups = [(group, group["params"]) for group in optimizer.param_groups]
    if any(
        group.get("momentum") and group.get("dampening") and not without.isdisjoint(members)
        for group, members in groups
    ):
        raise argument_error(
            "shared_state",
            f"the momentum of a {type(optimizer).__name__} with dampening begins with the first gradient, not with "
            "zeros; let every peer make a first step before",
        )
    step: Any = type(optimizer).step
    if getattr(step, "hooked", False):
        step = step.__wrapped__  # the program's hooks are for steps of its own
    try:
        for group, _ in groups:
            group["params"] = []
        for group, members in groups:
            for parameter in members:
                if parameter not in without:
                    continue
                stand_in = torch.zeros_like(parameter, requires_grad=False)
                stand_in.grad = torch.zeros_like(stand_in)
                group["params"] = [stand_in]
                step(optimizer)
                state = optimizer.state.pop(stand_in, {})
                with torch.no_grad():
                    for value in state.values():
                        if isinstance(value, torch.Tensor):
                            value.zero_()  # what the step has counted
                if state:
                    optimizer.state[parameter] = state
            group["params"] = []
    finally:
        for group, members in groups:
            group["params"] = members
