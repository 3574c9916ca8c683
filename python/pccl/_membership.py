"""This peer's membership in the run: joining, admitting others, keeping the shared state equal, and noticing when the
peer is out of the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from pccl._communicator import Communicator
from pccl._enums import Result, SharedStateSyncStrategy
from pccl._errors import PCCLError
from pccl._values import SharedState

# Failed synchronizations, for all members alike, before that is an error. Holders that die are replaced within one.
SYNC_ATTEMPTS_MAX = 8
# Between attempts to reach the master.
RETRY_FIRST_S = 0.25
RETRY_LONGEST_S = 2.0
# Removals in a row while entering before that is an error. The cause may be another configuration than the others'.
ENTRY_ATTEMPTS_MAX = 3
# The library's message if a member was removed because of its revision contains this.
_AHEAD = "shared-state revision"


class Lost(Exception):
    """The communicator was removed from the run, or the master is gone: only connect() helps."""


class Anew(Lost):
    """This peer has left, because it entered a run whose state nobody holds any more."""


class Membership:
    """One communicator and its shared state. Every call may raise :class:`Lost`. Not thread-safe.

    All members make the same calls in the same order, because what they do next depends only on answers that are the
    same for all. That includes failures: an all-reduce or a synchronization fails for every member that lives.
    """

    def __init__(self, comm: Communicator, state: SharedState, rejoin_timeout_s: float, function: str) -> None:
        """``function`` is named in the error if this peer cannot join."""
        self.comm = comm
        self.revision = state.revision  # of the next synchronization
        self._state = state
        self._rejoin_timeout_s = rejoin_timeout_s
        self._function = function

    def is_lost(self) -> bool:
        """Whether this peer is out of the run. World sizes are the same as for a peer that is alone in the run.

        So this asks the master with a vote, in which this peer is the only elector. While the master restarts, the vote
        waits for it.
        """
        if not self.comm._was_connected:  # asking would be an error, which is logged
            return True
        if self.comm.global_world_size > 1:
            return False
        try:
            self.comm.are_peers_pending()
        except PCCLError:
            return True
        return False

    def raise_if_lost(self, cause: object) -> None:
        if self.is_lost():
            raise Lost(str(cause))

    def connect(self) -> None:
        """Joins the run unless this peer is in it; waits to be admitted. PCCLError if no master answers in
        rejoin_timeout_s."""
        if not self.is_lost():
            return
        deadline = time.monotonic() + self._rejoin_timeout_s
        pause = RETRY_FIRST_S
        while True:
            try:
                self.comm.connect(n_attempts=1)
                return
            except PCCLError as error:
                if error.result != Result.MASTER_CONNECTION_FAILED or time.monotonic() >= deadline:
                    raise
                # The master does not listen yet, or refuses this peer. Each attempt is logged.
                time.sleep(min(pause, max(deadline - time.monotonic(), 0)))
                pause = min(pause * 1.5, RETRY_LONGEST_S)

    def admit(self) -> bool:
        """Votes on whether a peer waits, and if so admits it. Returns True if a synchronization has to follow, on all
        members."""
        try:
            pending = self.comm.are_peers_pending()
        except PCCLError as error:
            self.raise_if_lost(error)
            raise
        if pending:
            self.update_topology()
        return bool(pending)

    def update_topology(self) -> None:
        try:
            self.comm.update_topology()
        except PCCLError as error:
            if error.result != Result.UPDATE_TOPOLOGY_FAILED:
                raise
            raise Lost(str(error)) from error

    def synchronize(self, *, is_entering: bool = False) -> bool:
        """Makes the shared state equal on all members. Returns True if this peer's state differed from the group's and
        was overwritten.

        If it fails while this peer is entering, those that held the state may be gone. Then the others leave, all alike,
        and begin anew: :class:`Anew` is raised.

        All members use ENFORCE_POPULAR: members that have synchronized in this run outrank newcomers, however many
        newcomers there are.
        """
        for attempt in range(SYNC_ATTEMPTS_MAX):
            try:
                return self._synchronize_once()
            except PCCLError as error:
                if error.result != Result.INVALID_USAGE:
                    raise
                self.raise_if_lost(error)
                if is_entering:
                    self._leave()
                    raise Anew(str(error)) from error
                if attempt + 1 == SYNC_ATTEMPTS_MAX:
                    raise
                self.update_topology()
        raise AssertionError("unreachable")

    def _synchronize_once(self) -> bool:
        self._state.revision = self.revision
        info = self.comm.sync_shared_state(self._state, SharedStateSyncStrategy.ENFORCE_POPULAR)
        self.revision = self._state.revision + 1
        return info.rx_bytes > 0

    def enter(self, prepare: Callable[[], None]) -> bool:
        """Joins the run and takes part in the synchronization that follows an admission. Returns what synchronize()
        returns.

        ``prepare`` is called between the two, for example to write to the shared state before it is compared. If this
        peer is removed because its revision is ahead of the run's (a checkpoint of another run), it tries again with
        revision 0, as a newcomer. After any other loss it keeps its revision: the run may be gone, and this peer may be
        the one that continues it.
        """
        attempts = begun_anew = 0
        revision = self.revision
        while True:
            self.connect()
            prepare()
            try:
                return self.synchronize(is_entering=True)
            except Anew as lost:
                begun_anew += 1
                if begun_anew >= SYNC_ATTEMPTS_MAX:
                    raise self._refused(lost) from lost
                self.revision = revision
            except Lost as lost:
                attempts += 1
                if attempts >= ENTRY_ATTEMPTS_MAX:
                    raise self._refused(lost) from lost
                if _AHEAD in str(lost):
                    revision = 0
                self.revision = revision

    def _leave(self) -> None:
        with contextlib.suppress(PCCLError):
            self.comm.abort()

    def _refused(self, lost: Lost) -> PCCLError:
        # The names of the first two entries contain what all peers must have in common.
        own = " and ".join(f"'{info.name}'" for info in self._state.tensor_infos[:2])
        return PCCLError(Result.INVALID_USAGE, self._function, f"{lost}; this peer has {own}")
