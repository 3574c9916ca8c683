"""Tensors on devices of other backends: ``init_process_group("cpu:pccl,cuda:nccl")``.

torch gives all calls to the first backend in the description that is a process group, which is that of this package. It
passes on those whose tensors belong to another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from pccl.torch._process_group import ProcessGroupPCCL


class OtherBackends:
    """The groups of other backends beside a process group of this package. Each is made at the first call with a tensor
    on one of its devices."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup | None] = {}  # by type of device; None: that of this package

    def group_for(self, group: ProcessGroupPCCL, arguments: tuple[Any, ...]) -> dist.ProcessGroup | None:
        """The group of another backend to which the tensors among ``arguments`` belong, or None. May block until all
        ranks of ``group`` call it, because it may make that group."""
        device = _device_of(arguments)
        if device is None:
            return None
        if device not in self._groups:
            self._groups[device] = _make_group(group, device)
        return self._groups[device]


def backends_of(group: dist.ProcessGroup) -> dict[str, str]:
    """The backend for each type of device."""
    try:
        return dict(one.split(":") for one in dist.get_backend_config(group).split(",") if ":" in one)
    except (ValueError, AssertionError):  # torch does not know this group (yet)
        return {}


def for_all_devices(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the process group that passes on calls with tensors of other backends. ``name``: its name there."""

    @functools.wraps(own)
    def call(self: ProcessGroupPCCL, *arguments: Any, **options: Any) -> Any:
        other = self._others.group_for(self, arguments)
        return own(self, *arguments, **options) if other is None else getattr(other, name)(*arguments, **options)

    return call


def _make_group(group: ProcessGroupPCCL, device: str) -> dist.ProcessGroup | None:
    backend = backends_of(group).get(device, "pccl")
    if backend == "pccl":
        return None
    # All ranks of this group make it, because all make the call that needs it; other ranks know nothing of it.
    return dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=group._timeout,
        backend=backend,
        use_local_synchronization=group._size < dist.get_world_size(),
    )


def _device_of(arguments: Any) -> str | None:
    """The type of device of the first tensor in nested lists."""
    for one in arguments:
        if isinstance(one, Tensor):
            return str(one.device.type)
        if isinstance(one, (list, tuple)) and (found := _device_of(one)) is not None:
            return found
    return None
