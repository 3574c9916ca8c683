"""Peers as processes: forks of a server that has imported torch, so that they start without delay."""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from conftest import PATIENCE_S

context = multiprocessing.get_context("forkserver")
PRELOAD = ["pytest", "torch._dynamo", "torch.nn.parallel", "torch.distributed.fsdp"]
context.set_forkserver_preload(PRELOAD)

Channel = Connection  # the first argument of a peer's function: send() and recv() with the test


class Peer:
    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._link, theirs = context.Pipe()
        self.process = context.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self) -> Any:
        """Returns the next message of the peer. A failed peer fails the test."""
        kind, value = self._next()
        assert kind == "message", f"the peer ended with {value!r}"
        return value

    def tell(self, what: Any) -> None:
        self._link.send(what)

    def result(self) -> Any:
        """Returns what its function returned."""
        while True:
            kind, value = self._next()
            if kind == "result":
                self.process.join(PATIENCE_S)
                return value

    def said(self) -> list[Any]:
        """Waits for its end, and returns the messages that nobody has heard yet."""
        messages = []
        while True:
            kind, value = self._next()
            if kind == "result":
                self.process.join(PATIENCE_S)
                return messages
            messages.append(value)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def _next(self) -> tuple[str, Any]:
        assert self._link.poll(PATIENCE_S), "the peer hangs"
        try:
            kind, value = self._link.recv()
        except EOFError:
            self.process.join(PATIENCE_S)
            raise AssertionError(f"the peer ended with exit code {self.process.exitcode}") from None
        if kind == "error":
            raise AssertionError(f"the peer failed:\n{value}")
        return kind, value


class _Messages:
    """send() for a peer's function, kept apart from its result."""

    def __init__(self, link: Connection) -> None:
        self._link = link

    def send(self, what: Any) -> None:
        self._link.send(("message", what))

    def recv(self) -> Any:
        return self._link.recv()


def _run(link: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
    try:
        link.send(("result", function(_Messages(link), *arguments)))
    except BaseException:
        link.send(("error", traceback.format_exc()))
        raise


@pytest.fixture
def start() -> Iterator[Callable[..., Peer]]:
    """start(function, ...): a peer that runs function(channel, ...)."""
    made: list[Peer] = []

    def start_peer(function: Callable[..., Any], *arguments: Any) -> Peer:
        made.append(Peer(function, arguments))
        return made[-1]

    yield start_peer
    for peer in made:
        peer.kill()


@pytest.fixture
def run_ranks(start: Callable[..., Peer], master: str) -> Callable[..., list[Any]]:
    """run_ranks(n, function, ...): calls function(rank, ...) on n ranks of a process group; returns their results."""

    def run(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        peers = [start(in_group, master, rank, size, function, *arguments) for rank in range(size)]
        return [peer.result() for peer in peers]

    return run


def in_group(channel: Channel, master: str, rank: int, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    import pccl.torch  # noqa: F401 (registers the backend)
    import torch.distributed as dist

    dist.init_process_group("pccl", init_method=f"pccl://{master}", rank=rank, world_size=size)
    try:
        return function(rank, *arguments)
    finally:
        dist.destroy_process_group()
