"""Runs an exchange over a communicator: launches its collectives, repeats those that fail, and notices when this peer
is alone."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

import torch

from pccl._collectives import Gathered
from pccl._errors import PCCLError
from pccl._membership import Membership
from pccl._operation import AsyncHandle
from pccl._repeated import Repeated, RepeatedReduction
from pccl.diloco._encoding import Exchange, Gathering, Reduction


class Transfer:
    """One exchange. With ``in_background`` a thread of its own runs it from now on, also the encoding and decoding;
    otherwise ``finish`` runs it. One other thread makes all calls.

    A collective fails for all members or for none, so all remaining members repeat the same one. If this peer remains
    alone in the group, and is still in the run, the result is ``None``.
    """

    def __init__(
        self,
        membership: Membership,
        exchange: Exchange,
        tag: int,
        on_retry: Callable[[], None],
        in_background: bool,
    ) -> None:
        """``on_retry`` is called once for each failed collective, by ``poll`` and ``finish``."""
        self._membership = membership
        self._exchange = exchange
        self._tag = tag
        self._on_retry = on_retry
        self._retries = 0
        self._retries_reported = 0
        self._result: int | None = None
        self._failure: BaseException | None = None
        # Held while the exchange computes, thus changes the buffers of its encoding.
        self._computing = threading.Lock()
        self._prepared = threading.Event()  # the first collective was encoded, or could not be
        self._thread: threading.Thread | None = None
        if in_background:
            self._thread = threading.Thread(target=self._run, name="pccl-diloco-transfer", daemon=True)
            self._thread.start()
            _in_background.add(self)

    def poll(self) -> None:
        """Reports the retries so far. Raises the failure if the exchange has failed. Returns at once."""
        self._report_retries()
        if self._failure is not None:
            raise self._failure

    def finish(self) -> int | None:
        """Waits for the end. Returns the sum of weights, or None if all others were lost first. Raises Lost or
        PCCLError."""
        if self._thread is None:
            self._run()
        else:
            self._thread.join()
        self.poll()
        return self._result

    def abort(self) -> None:
        """Ends the exchange, if it still runs. This peer then leaves the run."""
        if self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(PCCLError):
                self._membership.comm.abort()
            self._thread.join()

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """While it is entered, the buffers of the encoding do not change, and hold what the first collective sends."""
        if self._thread is not None:
            self._prepared.wait()
        with self._computing:
            yield

    def _run(self) -> None:
        try:
            self._result = self._exchange_all()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._prepared.set()

    def _exchange_all(self) -> int | None:
        with self._computing:
            step = next(self._exchange)
        self._prepared.set()
        while (answer := self._reduce(step) if isinstance(step, Reduction) else self._gather(step)) is not None:
            try:
                with self._computing:
                    step = self._exchange.send(answer)
            except StopIteration as stop:
                weights: int = stop.value
                return weights
        self._membership.raise_if_lost("this peer is no longer a member of the run")
        return None

    def _reduce(self, reduction: Reduction) -> int | None:
        """Returns the number of members that took part, or None if this peer is alone."""
        return RepeatedReduction(
            self._membership.comm,
            reduction.send,
            reduction.receive,
            self._note_retry,
            op=reduction.op,
            tag=self._tag + reduction.stage,
            quantization_options=reduction.options,
        ).finish()

    def _gather(self, gathering: Gathering) -> list[Any] | None:
        """Returns the bytes of all members by index, or None if this peer is alone."""
        comm = self._membership.comm

        def launch() -> AsyncHandle[Gathered]:
            # The group does not grow before the next update_topology(), which comes after this.
            room = torch.empty(comm.world_size * gathering.bytes_max, dtype=torch.uint8, device="cpu")
            return comm.all_gather_async(gathering.send, room, tag=self._tag + gathering.stage)

        gathered = Repeated(comm, launch, "all_gather", self._note_retry).finish()
        return None if gathered is None else gathered.pieces

    def _note_retry(self) -> None:
        self._retries += 1
        if self._thread is None:
            self._report_retries()

    def _report_retries(self) -> None:
        while self._retries_reported < self._retries:
            self._retries_reported += 1
            self._on_retry()


_in_background: weakref.WeakSet[Transfer] = weakref.WeakSet()


def _abort_all() -> None:
    # A thread that waits for peers must not outlive the interpreter.
    for transfer in list(_in_background):
        transfer.abort()


atexit.register(_abort_all)
