"""The training loop of one peer: joining, admitting others, equal state, reductions that survive lost peers."""

from __future__ import annotations

import contextlib
import logging
import time
from types import TracebackType
from typing import Any

from pccl._collectives import Array
from pccl._communicator import Communicator
from pccl._enums import ReduceOp
from pccl._errors import PCCLError, argument_error
from pccl._membership import Lost, Membership
from pccl._repeated import RepeatedReduction, leave_if_interrupted
from pccl._values import QuantizationOptions, SharedState, reduce_memory

# While too few peers are there, all members vote at this interval on whether another one waits.
POLL_S = 0.02
# After so much waiting for peers, a line of the log says so.
WARN_AFTER_S = 10.0
# Reductions of one call that run at the same time.
IN_FLIGHT_MAX = 8


class Run:
    """Makes the calls of the loop in the right order, for newcomers and members alike, and joins again when this peer
    was removed. ::

        state = pccl.SharedState([pccl.TensorInfo.from_torch(weights, "weights")])
        with pccl.Communicator("10.0.0.1:48148") as communicator:
            with pccl.Run(communicator, state, steps=1000, min_peers=2) as run:
                while run.step():                      # joins, admits others, makes the state equal
                    gradient = compute(weights)
                    run.all_reduce(gradient)           # averages; repeats it when a peer is lost
                    weights -= 0.1 * gradient          # the same arithmetic on all members

    ``state.revision`` is the number of finished steps, and :class:`Run` increments it. Set it before the first step to
    go on from a checkpoint. A newcomer receives arrays and revision from the members. All members make the same calls
    in each step: which they are may depend on the state and on results of reductions, but not on clocks or local data.

    If this peer is removed within a step, or loses its master, its reductions return what it gave to them. The next
    :meth:`step` joins again, and the state of the members replaces its own. So that step is lost for this peer only.

    Not thread-safe. While it is in use, no other code may call ``update_topology()`` or ``sync_shared_state()`` of this
    communicator.

    :param comm: connected or not. Leaving the ``with`` block makes it leave the run and does not close it; connect()
        joins again.
    :param state: the arrays that all members keep equal.
    :param steps: number of steps after which the run ends, counted by the revision; None: until :meth:`stop`. The same
        on all peers.
    :param min_peers: :meth:`step` waits while the run has fewer members, in all groups together. The same on all peers.
    :param rejoin_timeout_s: how long to retry a master that does not answer, before ``PCCLMasterConnectionError``.
    :raises PCCLArgumentError: a number that cannot work.
    """

    def __init__(
        self,
        comm: Communicator,
        state: SharedState,
        *,
        steps: int | None = None,
        min_peers: int = 1,
        rejoin_timeout_s: float = 600.0,
    ) -> None:
        if min_peers < 1 or (steps is not None and steps < 0):
            raise argument_error("Run", f"min_peers is {min_peers} (at least 1), steps is {steps} (at least 0)")
        self._comm = comm
        self._state = state
        self._steps = steps
        self._min_peers = min_peers
        self._membership = Membership(comm, state, rejoin_timeout_s, "Run.step")
        self._is_member = False
        self._is_stopped = False
        self._revision_is_own = True  # of the caller; from the first step on it is counted here
        self._received = False

    @property
    def received(self) -> bool:
        """Whether the last :meth:`step` replaced this peer's arrays by those of the members, because it is new, joined
        again, or differed. Then reset what depends on them and is not in the state, such as an optimizer's moments."""
        return self._received

    @property
    def world_size(self) -> int:
        """Members of this peer's group; 1 if it is alone or out of the run. Divide a sum by what :meth:`all_reduce`
        returned instead."""
        return self._comm.world_size

    def step(self) -> bool:
        """Ends the last step and begins the next one. On return the members hold the same state.

        Blocks until all members have reached this point, and while there are fewer than ``min_peers``. The first call
        joins the run. If this peer is out of the run, it joins again.

        :returns: True if there is a step to do; False after ``steps`` steps, or after :meth:`stop`.
        :raises PCCLMasterConnectionError: no master has answered for ``rejoin_timeout_s``.
        :raises PCCLError: a failure that joining again does not cure, for example other names of arrays than those of
            the members.
        """
        if self._revision_is_own:
            self._membership.revision = self._state.revision
            self._revision_is_own = False
        while not self._is_stopped:
            try:
                if self._is_member:
                    self._membership.admit()
                    self._wait_for_peers()
                    self._received = self._membership.synchronize()
                else:
                    self._received = self._membership.enter(self._wait_for_peers)
                    self._is_member = True
            except Lost:
                self._is_member = False
            else:
                self._is_stopped = self._steps is not None and self._state.revision >= self._steps
                return not self._is_stopped
        return False

    def stop(self) -> None:
        """Makes the next :meth:`step` return False, on this peer only: the others go on without it once it has left.
        Returns at once."""
        self._is_stopped = True

    def all_reduce(
        self,
        *arrays: Array,
        op: ReduceOp = ReduceOp.AVG,
        quantization_options: QuantizationOptions | None = None,
    ) -> int:
        """Reduces arrays over the group, each in place. Blocks until all are reduced. All members pass arrays of the
        same sizes and types, in the same order.

        A reduction that failed because a peer was lost is repeated with the others. If this peer is alone or out of the
        run, the rest of the arrays stay as they are, which is the result for one member.

        If a signal handler raises (Ctrl-C), the call ends and this peer leaves the run; the next :meth:`step` joins
        again. Nothing uses the arrays then. Each holds its result or its input.

        :param arrays: torch tensors or numpy arrays, as for :meth:`Communicator.all_reduce`. Tags 0 to 7 are used.
        :param op: the operation.
        :param quantization_options: as for :meth:`Communicator.all_reduce`.
        :returns: the smallest number of members that took part in one of the reductions.
        :raises PCCLArgumentError: an array cannot be used in place, or the members disagree.
        :raises PCCLUsageError: before the first :meth:`step`, or the communicator is closed.
        """
        for array in arrays:
            reduce_memory(array, array, "Run.all_reduce")  # refuses what cannot be reduced before anything is launched
        sizes = [self.world_size] if not arrays else []
        for begin in range(0, len(arrays), IN_FLIGHT_MAX):
            part: list[RepeatedReduction] = []
            try:
                for tag, array in enumerate(arrays[begin : begin + IN_FLIGHT_MAX]):
                    part.append(
                        RepeatedReduction(
                            self._comm, array, array, op=op, tag=tag, quantization_options=quantization_options
                        )
                    )
                sizes += [one.finish() or 1 for one in part]
            except BaseException as error:
                leave_if_interrupted(self._comm, error)
                raise
            finally:
                for one in part:
                    one.forget()
        return min(sizes)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # As a member it would make the others wait.
        if self._comm._was_connected:
            with contextlib.suppress(PCCLError):
                self._comm.abort()

    def _wait_for_peers(self) -> None:
        warn_at: float | None = time.monotonic() + WARN_AFTER_S
        # All members see the same number after the same vote, so they go on together.
        while (present := self._comm.global_world_size) < self._min_peers:
            if warn_at is not None and time.monotonic() >= warn_at:
                warn_at = None
                logging.getLogger("pccl").warning(
                    "Run.step: the run has %d of the %d peers that it needs (min_peers); start more of them",
                    present,
                    self._min_peers,
                )
            time.sleep(POLL_S)
            self._membership.admit()
