"""Threads for what a program wants to do when a collective is done, if that may wait for another collective.

Jobs of a lane run one after the other, in their order. A job that waits for what it has launched itself does not hold
that up: what was launched in a lane has its own jobs in the next lane. A job may also wait for something that comes
later in its own lane. So a job that takes long is overtaken: another thread goes on with the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

# A job is overtaken after this time.
_LONG_S = 0.5
# How long the end of the program waits for jobs.
_END_S = 5.0

_here = threading.local()


def next_lane() -> int:
    """The lane for jobs of what this thread launches."""
    lane: int = getattr(_here, "lane", -1)
    return lane + 1


class _Lane:
    def __init__(self, number: int) -> None:
        self._number = number
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._runner: threading.Thread | None = None  # has the job that was begun last, and may be overtaken
        self._began = 0.0  # that job
        self._waiting = 0  # threads that have no job
        self._threads: set[threading.Thread] = set()
        self._is_ending = False

    def run(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            self._start_if_needed()

    def end(self, deadline: float) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start_if_needed(self) -> None:
        """While a job waits, a thread is there that runs it or overtakes the one before."""
        if self._jobs and not self._waiting:
            thread = threading.Thread(target=self._serve, name=f"pccl-lane-{self._number}", daemon=True)
            self._threads.add(thread)
            self._waiting += 1
            try:
                thread.start()
            except Exception:  # the system starts no more threads, or has no memory
                self._waiting -= 1
                self._threads.discard(thread)
                if not self._threads:
                    raise
                # A thread of this lane takes the job when it is done with its own.

    def _serve(self) -> None:
        _here.lane = self._number
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException:  # SystemExit, too: this thread serves all groups
                logging.getLogger("pccl").exception("a callback of a collective failed")
            del job
            with self._changed:
                self._waiting += 1
                if self._runner is threading.current_thread():
                    self._runner = None
                    self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while True:
                left = None if self._runner is None else self._began + _LONG_S - time.monotonic()
                if self._jobs and (left is None or left <= 0):
                    self._runner, self._began = threading.current_thread(), time.monotonic()
                    self._waiting -= 1
                    job = self._jobs.popleft()
                    self._start_if_needed()
                    return job
                if not self._jobs and (self._is_ending or self._waiting > 2):
                    self._waiting -= 1
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait(left if self._jobs else None)


_lanes: dict[int, _Lane] = {}
_lock = threading.Lock()


def run(lane: int, job: Callable[[], None]) -> None:
    """Returns at once. Another thread calls the job."""
    with _lock:
        if lane not in _lanes:
            _lanes[lane] = _Lane(lane)
        one = _lanes[lane]
    one.run(job)


def end() -> None:
    """Waits for the jobs, when the program ends. The lanes cannot be used afterwards."""
    deadline = time.monotonic() + _END_S
    for number in itertools.count():  # jobs of one lane may still begin the next
        with _lock:
            one = _lanes.get(number)
        if one is None:
            return
        one.end(deadline)


def forget() -> None:
    """For a child of fork(), which does not have the threads."""
    global _lock
    _lock = threading.Lock()
    _lanes.clear()
    with contextlib.suppress(AttributeError):
        del _here.lane
