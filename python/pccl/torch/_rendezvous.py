"""How a process group finds its master: from ``init_method="pccl://host:port"``, or from PCCL_MASTER_ADDRESS with
another method."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

from pccl._communicator import Communicator
from pccl._errors import argument_error
from pccl.torch._c10d import PrefixStore, Store
from pccl.torch._run import Run
from pccl.torch._store import MissingStore, RunStore, open_store

SCHEME = "pccl"
_FUNCTION = "init_process_group"


def handle_url(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> Iterator[tuple[Store, int, int]]:
    parts = urlsplit(url)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if "peer_group" in query:
        raise argument_error(
            _FUNCTION,
            f"{url!r} names a peer group; leave it out, and start another master for each job that runs at the same time",
        )
    unknown = query.keys() - {"rank", "world_size"}
    if unknown or parts.path not in ("", "/") or not parts.netloc:
        raise argument_error(_FUNCTION, f"{url!r} is no address of a master; write 'pccl://host:port'")
    communicator = Communicator(parts.netloc)
    run = Run.gather(communicator, int(query.get("rank", -1)), int(query.get("world_size", -1)), timeout)
    try:
        store = open_store(run, parts.hostname or "", timeout)
    except BaseException:
        run.close()
        raise
    yield store, run.rank, run.size


def gathered_by(store: Store) -> Run | None:
    """The run that pccl:// gathered; None if another method was used."""
    inner: Any = store
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    return inner.run if isinstance(inner, (RunStore, MissingStore)) else None


def run_of(rank: int, size: int, timeout: timedelta) -> Run:
    """A run that is gathered now from the environment."""
    return Run.gather(Communicator.from_env(), rank, size, timeout)


def register() -> None:
    register_rendezvous_handler(SCHEME, handle_url)  # type: ignore[no-untyped-call]
