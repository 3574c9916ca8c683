"""Runs passes over long arrays on several cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Elements that are worth a thread of their own: about half a millisecond of work.
SHARE_MIN = 1 << 20
THREADS_MAX = 16
# Elements per pass of a thread. Between passes the threads wait for the interpreter's lock, so many short passes make
# them wait for each other; the data of a long one does not stay in the cache of a core.
CHUNK = 1 << 18


def _make_pool() -> ThreadPoolExecutor:
    """Starts no thread before it is used."""
    return ThreadPoolExecutor(THREADS_MAX - 1, thread_name_prefix="pccl-diloco")


_pool = _make_pool()


def over_ranges(work: Callable[[int, int], None], elements: int, multiple_of: int = 1) -> None:
    """Calls ``work(begin, end)`` for ranges that cover ``[0, elements)``, and blocks until all are done.

    Ranges begin at multiples of ``multiple_of``. ``work`` runs on several threads at the same time; it spends its time
    in numpy, which releases the interpreter's lock. If calls raise, one of the exceptions is raised here. Thread-safe.
    """
    shares = max(1, min(elements // SHARE_MIN, _cores()))
    units = -(-elements // multiple_of)
    borders = [min(share * units // shares * multiple_of, elements) for share in range(shares + 1)]
    others = [_pool.submit(work, borders[i], borders[i + 1]) for i in range(1, shares)]
    try:
        work(borders[0], borders[1])
    finally:
        failures = [one.exception() for one in others]
    for failure in failures:
        if failure is not None:
            raise failure


def _cores() -> int:
    return min(len(os.sched_getaffinity(0)), THREADS_MAX)


def _after_fork() -> None:
    """The child does not have the threads."""
    global _pool
    _pool = _make_pool()


os.register_at_fork(after_in_child=_after_fork)
