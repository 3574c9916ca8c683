"""A reduction that is launched again when a peer is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pccl._collectives import Array
from pccl._communicator import Communicator
from pccl._enums import Attribute, Result
from pccl._errors import PCCLError, PCCLTooFewPeersError
from pccl._operation import AsyncReduceHandle

# Failures in a row, for all members alike, before that is an error. Each failure costs the group a member, a broken
# connection, or a wait for memory, so this many are no accident.
RETRIES_MAX = 1000


class RepeatedReduction:
    """Launches a reduction at once. A reduction fails for all members or for none, and after a failure the arrays hold
    their inputs, so all remaining members launch the same one again. Not thread-safe.

    :param on_retry: called in :meth:`finish` for each failure.
    :param options: as for :meth:`Communicator.all_reduce_async`.
    """

    def __init__(
        self, comm: Communicator, send: Array, recv: Array, on_retry: Callable[[], None] | None = None, **options: Any
    ) -> None:
        self._comm = comm
        self._arrays = send, recv
        self._options = options
        self._on_retry = on_retry
        self._handle: AsyncReduceHandle | None = None
        self._launch()

    def finish(self) -> int | None:
        """Blocks. Returns the number of members that took part, or None if no other member is left. Raises PCCLError if
        a retry does not help."""
        for _ in range(RETRIES_MAX):
            if self._handle is None:
                return None
            handle, self._handle = self._handle, None
            succeeded, status, info = handle.wait()
            if succeeded:
                return info.local_world_size
            if status not in (Result.RANK_CONNECTION_LOST, Result.TOO_FEW_PEERS):
                handle.result()  # raises
            if self._on_retry is not None:
                self._on_retry()
            self._launch()
        self.forget()
        raise PCCLError(status, "all_reduce", f"the same reduction failed {RETRIES_MAX} times in a row")

    def forget(self) -> None:
        """Awaits what was launched and not finished. A launched reduction that nobody awaits prevents the next vote."""
        if self._handle is not None:
            self._handle.wait()

    def _launch(self) -> None:
        if self._comm.get_attribute(Attribute.PEER_GROUP_WORLD_SIZE) < 2:  # raises if it is closed
            return
        try:
            self._handle = self._comm.all_reduce_async(*self._arrays, **self._options)
        except PCCLTooFewPeersError:
            pass
