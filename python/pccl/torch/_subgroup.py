"""Groups of some of the ranks. Each is a run of its own: the first rank of the group starts its master, and the store
of the group tells the others where it listens.

A place in the job's run would need a vote of all ranks, also of those that are not in the group and of those that
compute. A store has the name of its group in front of all keys, so groups do not meet, and every rank knows the same
name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from pccl._communicator import Communicator
from pccl._errors import PCCLError, argument_error
from pccl._master import MasterNode
from pccl.torch._c10d import PrefixStore, Store, TCPStore
from pccl.torch._run import Run
from pccl.torch._store import own_address

_FUNCTION = "new_group"
_KEY = "pccl/master"
# The master of a group does not come back when its process has ended. So members try that long only, for the sake of
# links that break.
_MASTER_TIMEOUT_MS = 10_000


def gather(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    job: Run | None,
    function: str = _FUNCTION,
    host: str | None = None,
) -> Run:
    """Blocks until all ranks of the group call it. ``rank`` and ``size`` are those in the group. ``job``: the run of
    all ranks, if this backend made it. ``host``: the address of the first rank, if it is known."""
    began = time.monotonic()
    master: MasterNode | None = None
    try:
        if rank == 0:
            try:
                master, address = _start_master(store, job, host, function)
            except BaseException as error:
                refuse(store, str(error))  # the others wait for it
                raise
            store.set(_KEY, address)
        else:
            address = store.get(_KEY).decode()
            if address.startswith("!"):
                raise dist.DistBackendError(f"pccl: {function}: the first rank of the group failed: {address[1:]}")
        communicator = Communicator(address, master_timeout_ms=_MASTER_TIMEOUT_MS)
        left = max(timeout - timedelta(seconds=time.monotonic() - began), timedelta(seconds=0.001))
        run = Run.gather(communicator, rank, size, left, function=function, master=master)
        if rank == 0:
            # All have read it. A later group may have the same name, if the store outlives the job's process group.
            with contextlib.suppress(RuntimeError):
                store.delete_key(_KEY)
        return run
    except BaseException:
        if master is not None:
            master.close()
        raise


def refuse(store: Store, cause: str) -> None:
    """For the first rank: the others raise an exception with this cause."""
    store.set(_KEY, f"!{cause}")


def _start_master(store: Store, job: Run | None, known_host: str | None, function: str) -> tuple[MasterNode, str]:
    for name, why in (
        ("PCCL_INVITE", "the run is secure, and the master of a group of ranks would not be"),
        ("PCCL_STATE_DIR", "it is the journal of the job's master alone"),
    ):
        if os.environ.get(name):
            raise argument_error(
                function,
                f"{name} is set in a process of the job: {why}; unset it, or make the group with another backend: "
                "torch.distributed.new_group(ranks, backend='gloo')",
            )
    advertised = os.environ.get("PCCL_ADVERTISE_ADDRESS")
    host = advertised or known_host or own_address(reached_host(store, job))
    listen = "0.0.0.0" if advertised else host
    master = MasterNode(_joined(listen, 0))
    try:
        master._run_until_exit()
        return master, _joined(host, master.port)
    except PCCLError:
        master.close()
        raise


def reached_host(store: Store, job: Run | None) -> str:
    """A host that all ranks reach: through it this host finds the address that it has for them."""
    if job is not None:
        return job.communicator._target.host
    inner: Any = store
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    return inner.host if isinstance(inner, TCPStore) else socket.gethostname()


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
