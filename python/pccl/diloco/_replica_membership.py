"""The membership of a process of a replica: every call ends alike in all processes of the replica."""

from __future__ import annotations

import time
from collections.abc import Callable

from pccl._communicator import Communicator
from pccl._enums import Result
from pccl._errors import PCCLError
from pccl._membership import SYNC_ATTEMPTS_MAX, Anew, Lost, Membership
from pccl._values import SharedState
from pccl.diloco._replica import Replica

# Between attempts while the master does not listen (yet), or a process of the replica has not come.
_POLL_S = 0.25


class ReplicaMembership(Membership):
    """As :class:`Membership`. The calls of all processes of a replica return the same, or raise :class:`Lost` in all of
    them, or another error in all of them. Not thread-safe."""

    def __init__(
        self,
        comm: Communicator,
        state: SharedState,
        rejoin_timeout_s: float,
        function: str,
        replica: Replica,
        identity: Callable[[], list[int]],
    ) -> None:
        """``identity`` returns up to 5 numbers of the shared state that are equal in all parts of one model."""
        super().__init__(comm, state, rejoin_timeout_s, function)
        self._replica = replica
        self._identity = identity

    def connect(self) -> None:
        deadline = time.monotonic() + self._rejoin_timeout_s
        while True:
            failure: Exception | None = None
            again = False
            try:
                if self.is_lost():
                    self.comm.connect(n_attempts=1)
            except PCCLError as error:
                again = error.result == Result.MASTER_CONNECTION_FAILED and time.monotonic() < deadline
                failure = None if again else error
            if not any(wants for (wants,) in self._replica.settle(failure, int(again))):
                return
            if not again:
                self.comm.abort()  # the gang is admitted again as a whole
            time.sleep(_POLL_S)

    def admit(self) -> bool:
        pending = False
        failure: Exception | None = None
        try:
            pending = self.comm.are_peers_pending()
        except PCCLError as error:
            failure = Lost(str(error)) if self.is_lost() else error
        self._replica.settle(failure)
        if pending:
            self.update_topology()
        return pending

    def update_topology(self) -> None:
        failure: Exception | None = None
        try:
            super().update_topology()
        except (Lost, PCCLError) as error:
            failure = error
        self._replica.settle(failure)

    def synchronize(self, *, is_entering: bool = False) -> bool:
        """Returns True in all processes of the replica if the state of one of them was overwritten."""
        cause: PCCLError | None = None
        for _ in range(SYNC_ATTEMPTS_MAX):
            received, cause = False, None
            failure: Exception | None = None
            try:
                received = self._synchronize_once()
            except PCCLError as error:
                if error.result != Result.INVALID_USAGE:
                    failure = error
                elif self.is_lost():
                    failure = Lost(str(error))
                cause = error
            # The synchronization of one part may have failed for all its members, and that of another part succeeded.
            # Then all parts repeat it: the vote before that needs the members of all of them.
            rows = self._replica.settle(failure, int(cause is not None), int(received), *self._identity())
            if not any(row[0] for row in rows):
                self._check_identity([row[2:] for row in rows])
                return any(row[1] for row in rows)
            if is_entering:
                self._leave()
                raise Anew(str(cause) if cause is not None else "another part of the model was not synchronized")
            self.update_topology()
        raise cause or PCCLError(
            Result.INVALID_USAGE, self._function, "another process of this replica could not synchronize its state"
        )

    def _check_identity(self, identities: list[list[int]]) -> None:
        """A replica that was the only one to hold the state may have died when some of its processes had sent it to the
        newcomers and others had not. All replicas see the same here, and enter once more with what they came with."""
        if any(one != identities[0] for one in identities):
            self._leave()
            raise Anew(
                "the processes of this replica hold parts of different models (inner step, outer step, batches, run: "
                f"{identities})"
            )
