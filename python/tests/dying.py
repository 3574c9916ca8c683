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
    """All TCP connections of this process send no faster than that from now on, and what they have not sent when the
    process dies is gone with it."""
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
    """Kills the process while a launched reduction of more than 40,000 elements runs."""

    def dies_in(self, array: Any) -> bool:
        return bool(array.numel() > 40_000)

    def all_reduce_async(self, send: Any, recv: Any, **more: Any) -> pccl.AsyncReduceHandle:
        dies = self.dies_in(send)
        if dies:
            # The others cannot end without our bytes, 160 kB and more: it takes many seconds, however late this thread
            # comes to see that it runs.
            slow_down(10_000)
        handle = super().all_reduce_async(send, recv, **more)
        while dies:
            if self.stats()["all_reduce"]["running"] or handle.done():
                os.kill(os.getpid(), signal.SIGKILL)
        return handle
