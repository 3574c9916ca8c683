"""The master of a run, in this process."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from pccl import _lifetime, _native
from pccl._address import parse


class MasterNode:
    """A master in this process.

    If PCCL_STATE_DIR names a directory, the master keeps a journal there. The next master with that directory resumes
    the run, unless interrupt() ended it. Without a journal the run ends with this master. A program that ends while its
    master runs goes on serving until interrupt(), SIGINT or SIGTERM. A context manager, which calls close() at the end.
    Any thread may call any method.

    :param listen_address: ``"ip:port"``, ``"host:port"`` or ``"[ipv6]:port"``; port 0 asks for a free one. The
        constructor binds nothing.
    :raises PCCLArgumentError: not an address.
    """

    def __init__(self, listen_address: str) -> None:
        address = parse(listen_address, "MasterNode")
        endpoint = address.resolve()[0] if address.endpoint is None else address.endpoint
        _lifetime.begin()
        self._address = address
        self._stopped = threading.Event()
        self._master = _native.Master(endpoint.packed, endpoint.port)

    def run(self) -> None:
        """Binds the address and serves in a thread of its own. Returns at once.

        :raises PCCLUsageError: the address cannot be bound, or run() was called before.
        """
        self._master.run()
        _lifetime.running_masters.add(self)

    def _run_until_exit(self) -> None:
        """As run(), but this master ends with the program: it serves a group of which this process is a member."""
        self._master.run()
        _lifetime.masters_of_groups.add(self)

    def interrupt(self) -> None:
        """Ends the run, and empties its journal if there is one. Blocks until the master has stopped, usually for
        milliseconds. May be called again."""
        self._master.interrupt()
        _lifetime.forget(self)
        self._stopped.set()

    @property
    def port(self) -> int:
        """The port that the master listens on.

        :raises PCCLUsageError: run() was not called before.
        """
        return self._master.port()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the master is interrupted or closed.

        :param timeout: seconds; None: no limit.
        :returns: False if the master still runs after that time.
        """
        return self._stopped.wait(timeout)

    def close(self) -> None:
        """Stops the master if it runs, and frees it. Blocks until it has stopped, usually for milliseconds. With a
        journal, the run is kept for the next master. May be called again."""
        _lifetime.forget(self)
        self._master.close()
        self._stopped.set()

    def __enter__(self) -> MasterNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pccl.MasterNode at {self._address.text}>"


def serve_until_interrupted(masters: list[MasterNode]) -> None:
    """Blocks until all masters are interrupted, or SIGINT or SIGTERM comes; then closes them. For the main thread."""
    ask_to_stop = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        ask_to_stop.set()

    former: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        former[number] = signal.signal(number, stop)
    try:
        # The wait is cut into slices, because a signal handler runs only between two of them.
        while not ask_to_stop.is_set() and not all(master._stopped.is_set() for master in masters):
            ask_to_stop.wait(0.1)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    for master in masters:
        master.close()
