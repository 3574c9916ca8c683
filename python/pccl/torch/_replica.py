"""A replica: processes that share one copy of a model, and join and leave the run together."""

from __future__ import annotations

import uuid
from typing import Any

import torch
import torch.distributed as dist

from pccl._communicator import Communicator
from pccl._errors import argument_error


def replica_communicator(
    address: str | None,
    process_group: dist.ProcessGroup | None = None,
    *,
    mates_timeout_s: float = 60.0,
    **settings: Any,
) -> Communicator:
    """Makes the communicator of one process of a replica, for :class:`pccl.diloco.DiLoCo`. The processes become a gang:
    the master admits and removes them together. The process of rank k joins peer group k, so it averages with rank k of
    the other replicas. ::

        communicator = pccl.torch.replica_communicator("10.0.0.1:48148")
        with communicator, DiLoCo(model, optimizer, communicator, process_group=dist.group.WORLD) as diloco:
            ...

    A collective of the process group: rank 0 draws a name for the gang and sends it to the others. It blocks until all
    of them have called it, for the time-out of the group at most. It does not connect.

    :param address: as for :class:`pccl.Communicator`.
    :param process_group: the processes of this replica; None: the default group. If its backend has no CPU tensors
        (NCCL), this function makes a gloo group of the same processes for the name.
    :param mates_timeout_s: seconds that ``connect()`` waits until all other processes of the replica ask to join.
    :param settings: as for :class:`pccl.Communicator`, except for the peer group and the gang.
    :returns: not connected; its owner closes it.
    :raises PCCLArgumentError: an address or a setting that cannot be used.
    :raises RuntimeError: another process of the group is gone.
    """
    group = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
    if not mates_timeout_s > 0:
        raise argument_error("replica_communicator", f"mates_timeout_s is {mates_timeout_s}; use a number above 0")
    group = group_for_messages(group)
    name = torch.tensor(list(uuid.uuid4().bytes), dtype=torch.uint8, device="cpu")
    dist.broadcast(name, dist.get_global_rank(group, 0), group=group)
    rank = dist.get_rank(group)
    gang = ("replica-" + bytes(name.tolist()).hex(), dist.get_world_size(group), rank)
    return Communicator(address, peer_group=rank, gang=gang, gang_timeout_s=mates_timeout_s, **settings)


def group_for_messages(group: dist.ProcessGroup) -> dist.ProcessGroup:
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
