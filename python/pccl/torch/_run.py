"""The communicator under one or more process groups, and what they share: ranks, the first failure, time-outs."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from pccl._communicator import Communicator
from pccl._enums import Attribute
from pccl._errors import PCCLArgumentError, PCCLError, argument_error
from pccl._master import MasterNode
from pccl.torch import _failure

if TYPE_CHECKING:
    from pccl.torch._work import Work

_CONNECT_ATTEMPTS = 30  # a second apart, because ranks may start before their master
_POLL_S = 0.02
_SECOND_LOOK_S = 0.2
_LOOK_S = 0.1  # interval at which operations in progress are looked at
# Tags of groups begin here, far above those of a program that also uses the communicator.
_FIRST_TAG = 1 << 63
_TAGS_PER_GROUP = 1 << 40


class Run:
    """One of the ranks of a job, which are the members of a master's run.

    :param ranks: the rank of each member, by its index. Pieces of arrays are in the order of ranks.
    :param index: the index of this member.
    :param peers: the peer id of each member, by its index.
    :param master: the master of this run, if it is in this process for this run alone.
    """

    def __init__(
        self,
        communicator: Communicator,
        ranks: list[int],
        index: int,
        peers: list[bytes],
        master: MasterNode | None = None,
    ) -> None:
        self.communicator = communicator
        self._master = master
        self.ranks = ranks
        self.rank = ranks[index]
        self.size = len(ranks)
        communicator.set_piece_order([ranks.index(one) for one in range(self.size)])
        self._peers = peers
        self._groups = itertools.count()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._watchdog: _Watchdog | None = None

    @classmethod
    def gather(
        cls,
        communicator: Communicator,
        rank: int,
        size: int,
        timeout: timedelta,
        function: str = "init_process_group",
        master: MasterNode | None = None,
    ) -> Run:
        """Waits until ``size`` peers are there. ``rank`` -1: the rank is assigned. ``function`` is named in errors."""
        what = function
        if size < 1:
            raise argument_error(what, f"world_size is {size}; give the number of processes (or set WORLD_SIZE)")
        if not -1 <= rank < size:
            raise argument_error(what, f"rank is {rank} and world_size {size}; use a rank from 0 to {size - 1}")
        try:
            with _abort_after(communicator, timeout, what):
                communicator.connect(_CONNECT_ATTEMPTS)
                while (present := communicator.get_attribute(Attribute.LOCAL_WORLD_SIZE)) < size:
                    time.sleep(_POLL_S)
                    communicator.update_topology()
                if present > size:
                    raise argument_error(
                        what,
                        f"{present} peers joined this run and world_size is {size}; each job needs a master of its own",
                    )
                if size == 1:
                    return cls(communicator, [0], 0, [communicator.peer_id], master)
                ranks = _agree_on_ranks(communicator, rank, size)
                peers = [member.peer_id for member in communicator.members]
                return cls(communicator, ranks, communicator.index, peers, master)
        except PCCLError as error:
            communicator.close()
            raise _failure.of(error, what)
        except BaseException:
            communicator.close()
            raise

    def peer_of(self, rank: int) -> bytes:
        """The peer id of a rank."""
        return self._peers[self.ranks.index(rank)]

    def failure_of(self, error: PCCLError, operation: str) -> Exception:
        """The exception for a failed call of the communicator."""
        # A root that has left, or pieces for ranks that have left, are wrong arguments for the library.
        present = self.communicator.world_size
        if isinstance(error, PCCLArgumentError) and present < self.size:
            failure: Exception = _failure.lost(operation, present, self.size)
            failure.__cause__ = error
            return failure
        return _failure.of(error, operation)

    def tags(self) -> Iterator[int]:
        """Tags for one group. Every rank makes its groups in the same order, so it gets the same tags."""
        return itertools.count(_FIRST_TAG + next(self._groups) * _TAGS_PER_GROUP)

    def fail(self, error: Exception) -> Exception:
        """Keeps the first failure, because later ones follow from it. Returns it."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            return self._failure

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def watch(self, work: Work, deadline: float) -> None:
        with self._lock:
            if self._watchdog is None:
                self._watchdog = _Watchdog(self)
            watchdog = self._watchdog
        watchdog.add(work, deadline)

    def unwatch(self, work: Work) -> None:
        if self._watchdog is not None:
            self._watchdog.remove(work)

    def expire(self, operation: str, seconds: float) -> None:
        """Ends everything: after one rank gave up an operation, no other operation can be trusted."""
        self.fail(_failure.timed_out(operation, seconds, self.communicator.last_message()))
        with contextlib.suppress(PCCLError):
            self.communicator.abort()

    def is_closed(self) -> bool:
        return self.communicator._closed

    def close(self) -> None:
        self.fail(dist.DistBackendError("pccl: the process group was destroyed; call init_process_group() again"))
        if self._watchdog is not None:
            self._watchdog.stop()
        self.communicator.close()
        if self._master is not None:
            self._master.close()


class _Watchdog:
    """Ends operations that exceed their time-out. A thread, because the wait may happen in C++ (as in DDP).

    It also completes operations for which nobody waits: their results are put into place, and their memory is freed.
    """

    def __init__(self, run: Run) -> None:
        self._run = weakref.ref(run)
        self._changed = threading.Condition()
        self._deadlines: dict[Work, float] = {}
        self._next = float("inf")
        self._stopping = False
        threading.Thread(target=self._watch, name="pccl-watchdog", daemon=True).start()

    def add(self, work: Work, deadline: float) -> None:
        with self._changed:
            self._deadlines[work] = deadline
            if deadline < self._next:
                self._changed.notify()

    def remove(self, work: Work) -> None:
        with self._changed:
            self._deadlines.pop(work, None)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                now = time.monotonic()
                self._next = min(self._deadlines.values(), default=float("inf"))
                if self._next > now:
                    # Also wakes when idle: if nothing refers to the run any more, this thread ends.
                    self._changed.wait(min(self._next - now, _LOOK_S) if self._deadlines else 60.0)
                    if self._run() is None:
                        return
                    late = None
                    works = list(self._deadlines)[::-1] if self._next < float("inf") else []
                else:
                    late = next(work for work, deadline in self._deadlines.items() if deadline <= now)
            if late is None:
                while works:  # keeps no reference to them
                    works.pop().look_for_nobody()
                continue
            if self._is_late(late):
                with self._changed:
                    self._deadlines.clear()
                run = self._run()
                if run is not None:
                    run.expire(late.operation, late.seconds)
                del run
            del late  # keep no reference to it

    def _is_late(self, work: Work) -> bool:
        """It may be done since the last look."""
        end = time.monotonic() + _SECOND_LOOK_S
        while not work.look():
            if time.monotonic() >= end:
                with self._changed:
                    return work in self._deadlines
            time.sleep(_POLL_S)
        self.remove(work)
        return False


@contextlib.contextmanager
def _abort_after(communicator: Communicator, timeout: timedelta, what: str) -> Iterator[None]:
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        # A communicator that is still connecting has nothing to abort. Closing it ends that, too.
        communicator.close()

    timer = threading.Timer(timeout.total_seconds(), expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    except PCCLError as error:
        if expired.is_set():
            raise dist.DistBackendError(
                f"pccl: {what}: not all ranks joined the run within {timeout.total_seconds():g} s; check that as many "
                "processes as world_size were started with the address of the same master, and that the master serves "
                "no other job"
            ) from error
        raise
    finally:
        timer.cancel()


def _agree_on_ranks(communicator: Communicator, rank: int, size: int) -> list[int]:
    """Returns the rank of each member, by index. Those without a rank get the free ones in that order."""
    own = torch.tensor([rank], dtype=torch.int64, device="cpu")
    given = torch.empty(size, dtype=torch.int64, device="cpu")
    info = communicator.all_gather(own, given, tag=_FIRST_TAG - 1).info
    if info.local_world_size != size:
        raise _failure.lost("init_process_group", info.local_world_size, size)
    ranks = [int(one) for one in given.tolist()]
    twice = [index for index in range(size) if ranks.count(index) > 1]
    if twice:
        raise argument_error(
            "init_process_group",
            f"several processes have rank {', '.join(map(str, twice))}; give each its own (RANK), or none a rank "
            "at all",
        )
    free = iter([index for index in range(size) if index not in ranks])
    return [one if one >= 0 else next(free) for one in ranks]
