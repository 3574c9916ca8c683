"""A collective that is launched again when a peer is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pccl._collectives import Array
from pccl._communicator import Communicator
from pccl._enums import Attribute, Result
from pccl._errors import PCCLError, PCCLTooFewPeersError
from pccl._operation import AsyncHandle
from pccl._values import ReduceInfo

# After so many failures in a row, which are the same for all members, an error is raised. Each of them means that a
# member was lost, a connection broke, or memory was short: so many of these are no accident.
RETRIES_MAX = 1000


Info = TypeVar("Info")


class Repeated(Generic[Info]):
    """Launches a collective at once. A collective fails for all members or for none, and after a failure its inputs are
    as before, so all remaining members launch the same one again. Not thread-safe.

    :param launch: launches it; called again after a failure.
    :param function: named in errors.
    :param on_retry: called in :meth:`finish` for each failure.
    """

    def __init__(
        self,
        comm: Communicator,
        launch: Callable[[], AsyncHandle[Info]],
        function: str,
        on_retry: Callable[[], None] | None = None,
    ) -> None:
        self._comm = comm
        self._launch_one = launch
        self._function = function
        self._on_retry = on_retry
        self._handle: AsyncHandle[Info] | None = None
        self._launch()

    def finish(self) -> Info | None:
        """Blocks. Returns what the collective returned, or None if no other member is left. Raises PCCLError if a retry
        does not help.

        If a signal handler raises (Ctrl-C), this peer leaves the run, and nothing uses the arrays any more: the others
        may take part late, or never."""
        for _ in range(RETRIES_MAX):
            if self._handle is None:
                return None
            handle = self._handle
            try:
                succeeded, status, info = handle.wait()
            except BaseException as error:
                leave_if_interrupted(self._comm, error)
                self.forget()
                raise
            self._handle = None
            if succeeded:
                return info
            if status not in (Result.RANK_CONNECTION_LOST, Result.TOO_FEW_PEERS):
                handle.result()  # raises
            if self._on_retry is not None:
                self._on_retry()
            self._launch()
        self.forget()
        raise PCCLError(status, self._function, f"the same operation failed {RETRIES_MAX} times in a row")

    def forget(self) -> None:
        """Awaits what was launched and not finished. A launched collective that nobody awaits prevents the next
        vote."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None

    def _launch(self) -> None:
        if self._comm.get_attribute(Attribute.PEER_GROUP_WORLD_SIZE) < 2:  # raises if it is closed
            return
        try:
            self._handle = self._launch_one()
        except PCCLTooFewPeersError:
            pass


def leave_if_interrupted(comm: Communicator, error: BaseException) -> None:
    """Leaves the run if ``error`` is not of the library. After Ctrl-C, for example, the others would wait for what this
    peer does not launch any more."""
    if not isinstance(error, PCCLError):
        with contextlib.suppress(PCCLError):
            comm.abort()


class RepeatedReduction:
    """An all-reduce as :class:`Repeated`. If it is in place, the array holds its input again after each failure.

    :param options: as for :meth:`Communicator.all_reduce_async`.
    """

    def __init__(
        self, comm: Communicator, send: Array, recv: Array, on_retry: Callable[[], None] | None = None, **options: Any
    ) -> None:
        self._repeated: Repeated[ReduceInfo] = Repeated(
            comm, lambda: comm.all_reduce_async(send, recv, **options), "all_reduce", on_retry
        )

    def finish(self) -> int | None:
        """As :meth:`Repeated.finish`; returns the number of members that took part."""
        info = self._repeated.finish()
        return None if info is None else info.local_world_size

    def forget(self) -> None:
        """As :meth:`Repeated.forget`."""
        self._repeated.forget()
