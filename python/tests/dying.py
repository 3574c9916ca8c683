"""A peer that dies in the middle of a reduction, however busy the machine is."""

from __future__ import annotations

import os
import signal
import socket
import struct
from typing import Any

import pccl

SO_MAX_PACING_RATE = 47  # of Linux; the socket module has no name for it


def slow_down(bytes_per_second: int) -> None:
    """From now on all TCP connections of this process send no faster than that. When the process dies, data that it has
    not sent is lost."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_second)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            continue  # closed meanwhile


class Dying(pccl.Communicator):
    """Kills the process while a launched reduction, or an all-gather, of more than 160,000 bytes runs."""

    def __init__(self, address: str, **settings: Any) -> None:
        # Each connection sends a segment of up to 64 KiB before the limit applies. So use one, and send more than that.
        super().__init__(address, p2p_connection_pool_size=1, **settings)
        self._launched: list[pccl.AsyncHandle[Any]] = []

    def dies_in(self, array: Any) -> bool:
        return bool(array.nbytes > 160_000)

    def all_reduce_async(self, send: Any, recv: Any, **more: Any) -> pccl.AsyncReduceHandle:
        handle: pccl.AsyncReduceHandle = self._launch_or_die(super().all_reduce_async, send, recv, more)
        return handle

    def all_gather_async(self, send: Any, recv: Any, **more: Any) -> pccl.AsyncHandle[pccl.Gathered]:
        return self._launch_or_die(super().all_gather_async, send, recv, more)

    def _launch_or_die(self, launch: Any, send: Any, recv: Any, more: dict[str, Any]) -> Any:
        if not self.dies_in(send):
            self._launched.append(launch(send, recv, **more))
            return self._launched[-1]
        for earlier in self._launched:  # stats() below could not tell it from this one
            earlier.wait()
        # The others cannot finish without this peer's bytes. Sending them takes many seconds, so this thread sees the
        # running operation in time, however late it gets to run.
        slow_down(10_000)
        handle = launch(send, recv, **more)
        while True:
            if self.stats()["all_reduce"]["running"] or handle.done():
                os.kill(os.getpid(), signal.SIGKILL)
