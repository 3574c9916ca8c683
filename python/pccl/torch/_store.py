"""The key-value store of a run that only pccl:// gathered. Collectives of this backend need no store, but groups of
other backends beside it do. So rank 0 serves one."""

from __future__ import annotations

import logging
import os
import socket
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from pccl._enums import ReduceOp
from pccl.torch._c10d import Store, TCPStore
from pccl.torch._run import Run

_ADDRESS_BYTES = 256
_TAG = (1 << 63) - (1 << 19)
_CONNECT_TIMEOUT = timedelta(seconds=10)


class RunStore(TCPStore):
    run: Run


class MissingStore(Store):
    """Takes the place of rank 0's store if that cannot be reached. Its calls raise; everything else works."""

    run: Run

    def __init__(self, cause: str) -> None:
        super().__init__()
        self._cause = cause

    def _fail(self, *_: Any) -> NoReturn:
        raise dist.DistNetworkError(self._cause)

    set = get = add = check = compare_set = delete_key = num_keys = wait = _fail  # type: ignore[assignment]

    def set_timeout(self, timeout: timedelta) -> None:
        pass


def open_store(run: Run, master_host: str, timeout: timedelta) -> RunStore | MissingStore:
    """Opens the store of rank 0. A collective of all ranks."""
    address = torch.zeros(_ADDRESS_BYTES, dtype=torch.uint8, device="cpu")
    store: RunStore | MissingStore | None = None
    if run.rank == 0:
        host = os.environ.get("PCCL_ADVERTISE_ADDRESS") or own_address(master_host)
        store = RunStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        text = f"{store.port} {host}".encode()[:_ADDRESS_BYTES]
        address[: len(text)] = torch.tensor(list(text), dtype=torch.uint8, device="cpu")
    if run.size > 1:
        run.communicator.all_reduce(address, address, op=ReduceOp.SUM, tag=_TAG)
    if store is None:
        port, host = bytes(address.tolist()).rstrip(b"\0").decode().split(" ", 1)
        try:
            store = RunStore(host, int(port), is_master=False, timeout=min(timeout, _CONNECT_TIMEOUT))
        except (dist.DistNetworkError, dist.DistStoreError) as error:
            cause = (
                f"pccl: the store of rank 0 at {host}:{port} cannot be reached, so that no groups of other backends "
                "can be made; set PCCL_ADVERTISE_ADDRESS on rank 0 to an address that all ranks reach"
            )
            logging.getLogger("pccl").warning("%s (%s)", cause, error)
            store = MissingStore(cause)
    store.run = run
    return store


def own_address(master_host: str) -> str:
    """The address from which this host reaches the master. Sends nothing."""
    family, _, _, _, where = socket.getaddrinfo(master_host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])
