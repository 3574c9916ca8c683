"""Runs an exchange over a communicator: launches its reductions, repeats those that fail, and notices when this peer is
alone."""

from __future__ import annotations

from collections.abc import Callable

import pccl
from pccl import PCCLError, Result
from pccl.diloco._encoding import Exchange, Reduction
from pccl.diloco._membership import Membership

# Failures of one reduction in a row, for all members alike, before that is an error. Each failure costs the group a
# member, a broken connection, or a wait for memory, so this many are no accident.
RETRIES_MAX = 1000


class Transfer:
    """One exchange in flight. Only the library works in the background: ``poll`` moves from one reduction to the next,
    so between calls at most one reduction advances. Not thread-safe.

    A reduction fails for all members or for none, so all remaining members repeat the same one. If this peer remains
    alone in the group, and is still in the run, the result is ``None``.
    """

    def __init__(self, membership: Membership, exchange: Exchange, tag: int, on_retry: Callable[[], None]) -> None:
        self._membership = membership
        self._exchange = exchange
        self._tag = tag
        self._on_retry = on_retry
        self._handle: pccl.AsyncReduceHandle | None = None
        self._failures = 0
        self.weight: int | None = None
        self.tx_bytes = 0
        self.rx_bytes = 0
        self._reduction: Reduction = next(exchange)
        self._launch()

    def poll(self) -> None:
        """Starts the next reduction if the running one has ended. Returns at once; may raise Lost or PCCLError."""
        while self._handle is not None and self._handle.done():
            self._collect()

    def finish(self) -> int | None:
        """Waits for the end. Returns the sum of weights, or None if all others were lost first. Raises Lost or
        PCCLError."""
        while self._handle is not None:
            self._collect()
        return self.weight

    def _launch(self) -> None:
        reduction = self._reduction
        if self._membership.world() > 1:
            try:
                self._handle = self._membership.comm.all_reduce_async(
                    reduction.send,
                    reduction.receive,
                    op=reduction.op,
                    tag=self._tag + reduction.stage,
                    quantization_options=reduction.options,
                )
                return
            except PCCLError as error:
                if error.result != Result.TOO_FEW_PEERS:
                    raise
        self._membership.raise_if_lost("this peer is no longer a member of the run")

    def _collect(self) -> None:
        assert self._handle is not None
        succeeded, status, info = self._handle.wait()
        self._handle = None
        if succeeded:
            self._failures = 0
            self.tx_bytes += info.tx_bytes
            self.rx_bytes += info.rx_bytes
            try:
                self._reduction = self._exchange.send(info.local_world_size)
            except StopIteration as stop:
                self.weight = stop.value
                return
        elif status in (Result.RANK_CONNECTION_LOST, Result.TOO_FEW_PEERS):
            self._failures += 1
            if self._failures > RETRIES_MAX:
                raise PCCLError(status, "DiLoCo.step", f"the same reduction failed {RETRIES_MAX} times in a row")
            self._on_retry()
        else:
            raise PCCLError(
                status, "DiLoCo.step", "the members do not agree about what they reduce, or memory is short"
            )
        self._launch()

