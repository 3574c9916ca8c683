"""Changing the members of a process group without a new one.

The names and the contract are those of torch (pull requests 186298 and 192275 of pytorch/pytorch, and its test
``test_c10d_fault_tolerance.py``). Versions of torch that have them use these methods; for older ones this package has
the functions, too.

A handle is the address of a store in the process that it stands for. The processes of the new group meet at the store
of the first of them, which starts a master for the new run. So nothing else has to be alive, neither a former rank 0
nor a master of the former run.
"""

from __future__ import annotations

import os
import uuid as uuids
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from pccl._errors import argument_error
from pccl.torch import _subgroup
from pccl.torch._c10d import PrefixStore, Store, TCPStore
from pccl.torch._run import Run
from pccl.torch._store import own_address

if TYPE_CHECKING:
    from pccl.torch._work import Work

_FUNCTION = "reconfigure"
_SCHEME = "pccl"

Handles = Sequence[str] | AbstractSet[str]


@dataclass
class ReconfigureOptions:
    """Which processes a group has from now on. The names are those of torch.

    :param uuid: a number of 64 bits that no earlier attempt had, the same in all processes of the new group.
    :param handles: of all processes of the new group, what ``get_reconfigure_handle()`` returned there; the same in
        all of them. In a list, the first one becomes rank 0, and so on. In a set, the ranks are in an order that all
        processes know.
    :param timeout: how long to wait for the other processes; None: the time-out of the group.
    :param hints: not used.
    """

    uuid: int = 0
    handles: Handles = ()
    timeout: timedelta | None = None
    hints: Mapping[str, str] = field(default_factory=dict)


class Meeting:
    """The store of this process, at which it meets others when it is the first of a new group."""

    def __init__(self, store: Store, job: Run | None) -> None:
        """``store`` and ``job`` tell which address of this host the others reach."""
        host = os.environ.get("PCCL_ADVERTISE_ADDRESS") or own_address(_subgroup.reached_host(store, job))
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self._used: set[int] = set()
        self.handle = f"{_SCHEME}/{host}/{self._store.port}/{uuids.uuid4().hex}"

    def gather(self, options: ReconfigureOptions, timeout: timedelta) -> tuple[Run | None, int, int]:
        """Blocks until all processes of the new group call it. Returns the run (None for a single process), the rank
        and the size. After an exception nothing has changed but that the number is used.

        :raises PCCLArgumentError: handles that cannot be used.
        :raises torch.distributed.DistBackendError: the number was used before, or a process did not come in time.
        """
        handles = list(options.handles) if isinstance(options.handles, Sequence) else sorted(options.handles)
        if self.handle not in handles or len(set(handles)) < len(handles):
            raise argument_error(
                _FUNCTION,
                "the handles must have that of this process, and none twice; get_reconfigure_handle() gives it",
            )
        host, port = _address_of(handles[0])
        rank, size = handles.index(self.handle), len(handles)
        store = self._store if rank == 0 else None
        is_used = options.uuid in self._used
        self._used.add(options.uuid)
        if is_used:
            cause = f"the uuid {options.uuid} was already used; take another one for each attempt"
            if store is not None:
                _subgroup.refuse(PrefixStore(str(options.uuid), store), cause)  # the others wait for it
            raise dist.DistBackendError(f"pccl: {_FUNCTION}: {cause}")
        if size == 1:
            return None, 0, 1
        try:
            if store is None:
                store = TCPStore(host, port, is_master=False, timeout=timeout)
            meeting = PrefixStore(str(options.uuid), store)
            meeting.set_timeout(timeout)
            run = _subgroup.gather(meeting, rank, size, timeout, None, _FUNCTION, host)
        except (dist.DistNetworkError, dist.DistStoreError) as error:
            raise dist.DistBackendError(
                f"pccl: {_FUNCTION}: rank 0 of the new group ({host}:{port}) did not come within "
                f"{timeout.total_seconds():g} s; the group is as before, try again with another uuid ({error})"
            ) from error
        return run, rank, size


def _address_of(handle: str) -> tuple[str, int]:
    parts = handle.split("/")
    if len(parts) != 4 or parts[0] != _SCHEME or not parts[2].isdecimal():
        raise argument_error(_FUNCTION, f"{handle!r} is no handle; get_reconfigure_handle() returns them")
    return parts[1], int(parts[2])


def _group_of(group: dist.ProcessGroup | None) -> Any:
    return group if group is not None else dist.distributed_c10d._get_default_group()


def supports_reconfigure(group: dist.ProcessGroup | None = None) -> bool:
    """Whether the members of a group can change. It was made with
    ``pg_options=ProcessGroupPCCL.Options(enable_reconfigure=True)``. Never blocks.

    :param group: None: the default group.
    """
    return bool(getattr(_group_of(group), "supports_reconfigure", False))


def get_reconfigure_handle(group: dist.ProcessGroup | None = None) -> str:
    """Returns a text that stands for this process in :func:`reconfigure`. It stays the same as long as the group
    exists. Send it to the other processes over whatever connects them. Never blocks.

    :param group: None: the default group.
    :raises PCCLArgumentError: the group was made without ``enable_reconfigure``.
    """
    handle: str = _group_of(group).get_reconfigure_handle()
    return handle


def reconfigure(
    uuid: int,
    handles: Handles,
    *,
    timeout: timedelta | None = None,
    hints: Mapping[str, str] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Work:
    """Gives a group other members: fewer, more, or others. The group stays the same object, with another rank and
    size. A collective of the processes whose handles are given; those that are left out are not asked.

    Blocks until all of them have called it. If it fails, it has failed in all processes that wait in it, and their
    groups are as before: try again with another ``uuid``. A process that gives up at the moment at which the others
    have met is missing in the new group: the first collective of the others fails, and they try again without it.

    Wait for collectives first: those that still run raise ``DistBackendError``. Groups that were made of this one
    (``new_group``, meshes) must be made again. Afterwards the ranks may hold different parameters: broadcast them.

    :param uuid: a number of 64 bits that no earlier attempt had, the same in all processes of the new group.
    :param handles: of all processes of the new group; as for :class:`ReconfigureOptions`.
    :param timeout: as for :class:`ReconfigureOptions`.
    :param hints: not used.
    :param group: None: the default group.
    :returns: done already.
    :raises PCCLArgumentError: handles that cannot be used, or a group made without ``enable_reconfigure``.
    :raises torch.distributed.DistBackendError: ``uuid`` was used before, or a process did not come in time.
    """
    work: Work = _group_of(group).reconfigure(ReconfigureOptions(uuid, handles, timeout, hints or {}))
    return work
